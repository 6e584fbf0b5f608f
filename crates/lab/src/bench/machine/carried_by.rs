//! The congestion control of a pair of programs that carries the workload's connection.
//!
//! The workload's own connection ends at the tunnel client, over loopback. The algorithm of this
//! connection says nothing about the path, so the lab asks the tunnel itself.

use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};

/// The algorithm in the output of `weir tunnel status --json`.
#[derive(Debug, Deserialize)]
struct End {
    congestion: String,
}

/// Returns the algorithm of both endpoints of a `weir tunnel`, found by their command lines. `None`
/// for other programs, which do not report their algorithm. `weir`: the program that ran the
/// endpoints.
pub(super) fn algorithm(weir: &Path, client: &[String], server: &[String]) -> Option<String> {
    let near = of_end(weir, client)?;
    match of_end(weir, server) {
        Some(far) if far != near => Some(format!("{near}, far end {far}")),
        _ => Some(near),
    }
}

fn of_end(weir: &Path, argv: &[String]) -> Option<String> {
    let socket = status_socket(weir, argv)?;
    let mut command = Command::new(weir);
    command.args(["tunnel", "status", "--json", "--status-socket", socket]);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let ends: Vec<End> = serde_json::from_slice(&output.stdout).ok()?;
    ends.into_iter().next().map(|end| end.congestion)
}

/// Returns the status socket of `weir tunnel client` or `weir tunnel server`.
fn status_socket<'a>(weir: &Path, argv: &'a [String]) -> Option<&'a str> {
    let [program, verb, _, flags @ ..] = argv else { return None };
    if Path::new(program) != weir || verb != "tunnel" {
        return None;
    }
    let mut flags = flags.iter().map(String::as_str);
    while let Some(flag) = flags.next() {
        match flag.strip_prefix(STATUS_SOCKET) {
            Some("") => return flags.next(),
            Some(value) if value.starts_with('=') => return value.get(1..),
            _ => {}
        }
    }
    None
}

const STATUS_SOCKET: &str = "--status-socket";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_socket_is_found_in_the_tunnels_command_line() {
        let of = |line: &str| {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            status_socket(Path::new("/bin/weir"), &argv).map(str::to_owned)
        };
        let given = of("/bin/weir tunnel client --status-socket /k/c.sock --pin x");
        assert_eq!(given.as_deref(), Some("/k/c.sock"));
        let given = of("/bin/weir tunnel server --status-socket=/k/s.sock");
        assert_eq!(given.as_deref(), Some("/k/s.sock"));
        for other in [
            "/bin/weir tunnel client --pin x",
            "/bin/weir tunnel client --status-socket",
            "/bin/weir perf client --status-socket /k/c.sock",
            "hysteria client --status-socket /k/c.sock",
            "weir",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
