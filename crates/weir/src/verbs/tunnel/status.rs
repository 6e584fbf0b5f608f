use crate::exit::Ending;
use crate::output::{note, print};
use crate::watch;
use clap::Args;
use std::path::PathBuf;
use tunnel::status::Status;

#[derive(Debug, Args)]
pub(crate) struct StatusOf {
    /// Ask only the end with this socket instead of all ends of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print one JSON document, a list with an entry for each end; with --watch one per second,
    /// each on its own line
    #[arg(long)]
    json: bool,
    /// Repeat every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) fn run(arguments: &StatusOf) -> anyhow::Result<Ending> {
    let read = || tunnel::run::statuses(arguments.status_socket.as_deref());
    if arguments.watch {
        watch::every_second(arguments.json, || shown(&read()?, arguments.json, true))?;
        return Ok(Ending::Fine);
    }
    let all = read()?;
    print(shown(&all, arguments.json, false)?)?;
    if all.is_empty() {
        note(NONE);
        return Ok(Ending::Failed);
    }
    Ok(Ending::Fine)
}

/// The error if no end is found. The packaged units put their sockets in other directories.
pub(super) const NONE: &str = "no tunnel of this user runs here; for a service, name its socket: \
     --status-socket /run/weir-tunnel-server/status.sock or /run/weir-tunnel-client/status.sock";

fn shown(all: &[Status], json: bool, compact: bool) -> anyhow::Result<String> {
    match json {
        true => watch::document(&serde_json::to_value(all)?, compact),
        false => Ok(all.iter().map(Status::to_string).collect()),
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel status
  weir tunnel status --watch
  weir tunnel status --json | jq '.[].connections[] | {peer, limited_by}'
Each end describes the data that it sends: ask the side that sends the data. `limited by
application` means that the application supplies less than the path could carry, `pacing` that
congestion control has found the path's rate, `window` that as much is in flight as path and queue
may hold. Exit status 1 if no tunnel runs.";
