use super::kick::refusal;
use crate::exit::Ending;
use crate::output::{note, print};
use clap::Args;
use std::path::PathBuf;
use tunnel::status::Reply;
use units::{Span, foreign};

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The end's socket; needed if several ends of this user run here
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Tunnels that are still open after this time are reset
    #[arg(long, value_name = "TIME", default_value = "600s")]
    timeout: Span,
    /// Return once the end has begun to drain
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Drain) -> anyhow::Result<Ending> {
    let Drain { status_socket, timeout, no_wait, json } = arguments;
    let (socket, within) = (status_socket.as_deref(), timeout.as_duration());
    let Some((status, reply)) = tunnel::run::drain(socket, within)? else {
        note(super::status::NONE);
        return Ok(Ending::Failed);
    };
    let (role, pid) = (foreign(&status.role), status.pid);
    let Reply::Draining { tunnels } = reply else {
        anyhow::bail!("{role} (pid {pid}) does not drain: {}", foreign(refusal(&reply)));
    };
    let begun = format!(
        "{role} (pid {pid}): draining; {tunnels} tunnels are open, at most {} left",
        timeout.shown()
    );
    if *no_wait {
        match json {
            true => print(document(&status.role, pid, tunnels, None)?)?,
            false => print(begun + "\n")?,
        }
        return Ok(Ending::Fine);
    }
    note(begun);
    let Some(left) = tunnel::run::drained(socket, pid, within)? else {
        anyhow::bail!("{role} (pid {pid}) has not ended in time: end it by a signal (kill {pid})");
    };
    match (json, left) {
        (true, left) => print(document(&status.role, pid, tunnels, Some(left))?)?,
        (false, 0) => print(format_args!("{role} (pid {pid}) has ended with its last tunnel\n"))?,
        (false, left) => {
            print(format_args!(
                "{role} (pid {pid}) has ended; {left} tunnels were open at the last look\n"
            ))?;
        }
    }
    Ok(if left > 0 { Ending::Failed } else { Ending::Fine })
}

fn document(role: &str, pid: u32, tunnels: u64, reset: Option<u64>) -> anyhow::Result<String> {
    let document = serde_json::json!({
        "role": role, "pid": pid, "tunnels": tunnels, "tunnels_reset": reset
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel drain --timeout 60s
  weir tunnel drain --status-socket /run/weir-tunnel-server/status.sock
An end that drains accepts no new sessions and tunnels. It ends with its last tunnel, or after the
timeout: the tunnels that are then still open are reset. A server ends the sessions that have no
tunnel at once; their clients connect to another server if they have one. The same command again
changes the timeout. Exit status 1 if tunnels were reset or no tunnel runs.";
