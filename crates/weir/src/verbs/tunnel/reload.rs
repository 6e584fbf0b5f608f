use crate::exit::{Ending, Unusable};
use crate::output::{note, print};
use clap::Args;
use std::path::PathBuf;
use units::foreign;

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Reload only the end with this socket instead of all ends of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Hand this private key to the end, which may not be able to read the file itself
    #[arg(long, value_name = "FILE", requires = "status_socket")]
    key_file: Option<PathBuf>,
    /// Print one JSON document, a list with an entry for each end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Reload) -> anyhow::Result<Ending> {
    let key = arguments.key_file.as_deref().map(|path| {
        host::read_regular_bytes(path)
            .map_err(|cause| Unusable::path("read", path, &cause, "--key-file"))
    });
    let key = key.transpose()?;
    let all = tunnel::run::reload(arguments.status_socket.as_deref(), key.as_deref())?;
    if all.is_empty() {
        if arguments.json {
            print("[]\n")?;
        }
        note(super::status::NONE);
        return Ok(Ending::Failed);
    }
    if arguments.json {
        let entries: Vec<_> = all.iter().map(|(end, refused)| {
            serde_json::json!({ "role": end.role, "pid": end.pid, "refused": refused })
        }).collect();
        print(serde_json::to_string_pretty(&entries)? + "\n")?;
        let failed = all.iter().any(|(_, refused)| refused.is_some());
        return Ok(if failed { Ending::Failed } else { Ending::Fine });
    }
    let mut ending = Ending::Fine;
    for (end, refused) in &all {
        let (role, pid) = (foreign(&end.role), end.pid);
        match refused {
            None => print(format_args!("{role} (pid {pid}): reloaded\n"))?,
            Some(why) => {
                let why = foreign(why).up_to(LONGEST_REASON);
                print(format_args!("{role} (pid {pid}): all stays as it was: {why}\n"))?;
                ending = Ending::Failed;
            }
        }
    }
    Ok(ending)
}

const LONGEST_REASON: usize = 1024;
pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel reload
  weir tunnel reload --status-socket /run/weir/tunnel/server-4711.sock
  weir tunnel reload --status-socket /run/weir-tunnel-server/status.sock \\
      --key-file /etc/weir/tunnel/server.key
A service gets a copy of its key when it starts. The units hand the present key over with the last
command: `systemctl reload` is enough.

After a reload, also by SIGHUP, keys, peers, the targets that each may reach, pins of servers and
listeners are those of the file (and of the flags that the end was started with). Tunnels continue
if they are still allowed. A file with a mistake changes nothing, and the exit status is 1. The log
names changed settings that take effect after a restart: addresses of servers, carriers, congestion
control, memory, keepalive, sockets of status and metrics.";
