use crate::exit::Ending;
use crate::output::{note, print};
use clap::Args;
use std::path::PathBuf;
use tunnel::status::{KickedSession, Reply};
use units::foreign;

#[derive(Debug, Args)]
pub(crate) struct Kick {
    /// The identity whose sessions end, such as laptop, or one session, such as laptop/17
    #[arg(value_name = "IDENTITY|SESSION")]
    session: String,
    /// Ask only the server with this socket, and the processes from which it took over, instead of
    /// all servers of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print one JSON document, a list with an entry for each server
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Kick) -> anyhow::Result<Ending> {
    let all = tunnel::run::kick(arguments.status_socket.as_deref(), &arguments.session)?;
    let has_ended_some = all.iter().any(|(_, reply)| matches!(reply, Reply::Kicked(_)));
    if arguments.json {
        let entry = |(status, reply): &(_, _)| {
            let tunnel::status::Status { role, pid, .. } = status;
            match reply {
                Reply::Kicked(ended) => serde_json::json!({
                    "role": role, "pid": pid, "kicked": ended, "refused": null
                }),
                other => serde_json::json!({
                    "role": role, "pid": pid, "kicked": [], "refused": refusal(other)
                }),
            }
        };
        let entries: Vec<_> = all.iter().map(entry).collect();
        print(serde_json::to_string_pretty(&entries)? + "\n")?;
    }
    for (status, reply) in all.iter().filter(|_| !arguments.json) {
        let server = format!("{} (pid {})", foreign(&status.role), status.pid);
        match reply {
            Reply::Kicked(ended) => {
                for session in ended {
                    print(format_args!("{server}: {}\n", shown(session)))?;
                }
            }
            // Another server of this user may have the session.
            _ if has_ended_some => {}
            other => note(format_args!("{server}: {}", foreign(refusal(other)).up_to(LONGEST))),
        }
    }
    if all.is_empty() {
        note(
            "no tunnel server of this user runs here; for a service, name its socket: \
              --status-socket /run/weir-tunnel-server/status.sock",
        );
    }
    Ok(if has_ended_some { Ending::Fine } else { Ending::Failed })
}

fn shown(KickedSession { session, remote, tunnels }: &KickedSession) -> String {
    let (session, remote) = (foreign(session), foreign(remote));
    let plural = if *tunnels == 1 { "" } else { "s" };
    format!("session {session} of {remote} has ended, with {tunnels} tunnel{plural}")
}

pub(super) fn refusal(reply: &Reply) -> &str {
    match reply {
        Reply::Refused(why) => why,
        _ => "the end gave an unexpected answer: use the weir that runs it",
    }
}

const LONGEST: usize = 1024;

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel kick laptop
  weir tunnel kick laptop/17
`weir tunnel sessions` lists the sessions of a server. The tunnels of a session that ends are
reset, and its client connects again. To keep a client out, remove it from the server's file and
reload: `weir tunnel reload`. Exit status 1 if no session has ended.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_about_a_session_with_one_tunnel_has_the_singular() {
        let session = |tunnels| {
            let (session, remote) = ("laptop/17".to_owned(), "192.0.2.7:4711".to_owned());
            shown(&KickedSession { session, remote, tunnels })
        };
        assert_eq!(session(1), "session laptop/17 of 192.0.2.7:4711 has ended, with 1 tunnel");
        assert_eq!(session(2), "session laptop/17 of 192.0.2.7:4711 has ended, with 2 tunnels");
    }
}
