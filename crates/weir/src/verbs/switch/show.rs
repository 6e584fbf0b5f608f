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
    print(match arguments.json {
        true => arguments.running.json("switch/status", &[])?,
        false => arguments.running.text("switch/show", &[])?,
    })?;
    Ok(Ending::Fine)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch show
  weir switch show --json | jq '.bridges[].ports[] | {name, state}'";
