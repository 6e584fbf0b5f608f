use crate::exit::Ending;
use crate::output::{note, print};
use crate::watch;
use clap::Args;
use std::path::PathBuf;
use tunnel::status::Status;

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Ask only the end with this socket instead of all ends of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print one JSON document, a list with an entry for each end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Sessions) -> anyhow::Result<Ending> {
    let all = tunnel::run::statuses(arguments.status_socket.as_deref())?;
    match arguments.json {
        true => {
            let all: Vec<_> = all.iter().map(Status::sessions_json).collect();
            print(watch::document(&serde_json::to_value(all)?, false)?)?;
        }
        false => print(all.iter().map(Status::sessions_table).collect::<String>())?,
    }
    if all.is_empty() {
        note(super::status::NONE);
        return Ok(Ending::Failed);
    }
    Ok(Ending::Fine)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel sessions
  weir tunnel sessions --json | jq '.[].sessions[] | {session, rate_out}'
Each line is a connection: its name for `weir tunnel kick`, the address of the other end, UDP or
TCP, its age, its tunnels, the bytes that its tunnels have carried, and the rates of the last
second. `in` comes out of the tunnels at this end, `out` goes into them. The busiest session is
first. Exit status 1 if no tunnel runs.";
