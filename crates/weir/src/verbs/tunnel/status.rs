use crate::exit::Ending;
use crate::output::{note, print};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct StatusOf {
    /// Ask only the end with this socket instead of all ends of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print one JSON document, a list with an entry for each end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &StatusOf) -> anyhow::Result<Ending> {
    let all = tunnel::run::statuses(arguments.status_socket.as_deref())?;
    if arguments.json {
        print(format_args!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        all.iter().try_for_each(print)?;
    }
    if all.is_empty() {
        note("no tunnel of this user runs here");
        return Ok(Ending::Failed);
    }
    Ok(Ending::Fine)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel status
  weir tunnel status --json | jq '.[].connections[] | {peer, rtt_seconds, limited_by}'
Each end describes the data that it sends: ask the side that sends the data. `limited by application` means that
the application supplies less than the path could carry, `pacing` that congestion control has found the path's
rate, `window` that as much is in flight as path and queue may hold. Exit status 1 if no tunnel runs.";
