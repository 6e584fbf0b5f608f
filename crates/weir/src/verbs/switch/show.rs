use super::client::Running;
use crate::exit::Ending;
use crate::output::print;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    running: Running,
}

pub(crate) fn run(arguments: &Show) -> anyhow::Result<Ending> {
    let command = if arguments.json { "switch/status" } else { "switch/show" };
    print(arguments.running.call(command, &[])?)?;
    Ok(Ending::Fine)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch show
  weir switch show --json | jq '.bridges[].ports[] | {name, state}'";
