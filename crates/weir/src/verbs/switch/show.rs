//! The state of a running switch.

use super::Target;
use crate::exit::Ending;
use crate::output::print;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Ctl {
    /// The command and its arguments, for example: dpif-netdev/pmd-stats-show
    #[arg(required = true, value_name = "COMMAND", allow_hyphen_values = true)]
    command: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn show(arguments: &Show) -> anyhow::Result<Ending> {
    let method = if arguments.json { "weir/show-json" } else { "weir/show" };
    print(arguments.target.call(method, &[])?)?;
    Ok(Ending::Fine)
}

pub(super) fn ctl(arguments: &Ctl) -> anyhow::Result<Ending> {
    let words: Vec<&str> = arguments.command.iter().map(String::as_str).collect();
    if let [method, rest @ ..] = words.as_slice() {
        print(arguments.target.call(method, rest)?)?;
    }
    Ok(Ending::Fine)
}
