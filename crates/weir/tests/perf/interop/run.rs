//! One case between one client and one server.

use super::case::{Both, Case, expect};
use super::document::{Document, End, agree};
use super::sockets::Seen;
use crate::support::{CommandOutput, Running, Sandbox, longer};
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// An implementation of iperf3's protocol.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    path: String,
    /// Whether the program's rates are over the actual time, and its two ends report the same
    /// retransmissions.
    exact: bool,
    /// Cases that fail even between two ends of this implementation, with the reason.
    lacking: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Agreed(String),
    Lacking(String),
    Failed(String),
}

impl Program {
    pub(crate) fn weir() -> Self {
        let path = env!("CARGO_BIN_EXE_weir").to_owned();
        Self { name: WEIR, path, exact: true, lacking: &[] }
    }

    pub(crate) fn iperf3(path: String) -> Self {
        Self { name: "iperf3", path, exact: true, lacking: &[] }
    }

    /// Describes riperf3, whose client ends a test a tenth of a second late, and computes rates
    /// over the requested time.
    pub(crate) fn riperf3(path: String) -> Self {
        let lacking = &[
            ("segments", "riperf3's client does not ask for a size of segments"),
            ("segments, back", "riperf3's client does not ask for a size of segments"),
            ("pinned", "riperf3's server is not pinned"),
            ("client bound, 2 streams", "riperf3 binds both streams to the one port"),
            ("client bound, UDP", "riperf3 binds datagrams to the address alone"),
            ("client bound, UDP back", "riperf3 binds datagrams to the address alone"),
            ("title", "riperf3's document has no title"),
        ];
        Self { name: "riperf3", path, exact: false, lacking }
    }

    fn is_weir(&self) -> bool {
        self.name == WEIR
    }

    fn server(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(if self.is_weir() { ["perf", "server"].as_slice() } else { &["-s"] });
        command.args(words);
        command
    }

    fn client(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        if self.is_weir() {
            command.args(["perf", "client", host, "--idle-probe", "50ms"]);
        } else {
            command.args(["-c", host]);
        }
        command.args(words);
        command
    }
}

pub(crate) fn run(case: &Case, client: &Program, server: &Program) -> Outcome {
    for program in [client, server] {
        if let Some((_, why)) = program.lacking.iter().find(|(name, _)| *name == case.name) {
            return Outcome::Lacking((*why).to_owned());
        }
    }
    if case.is_over_ipv6() && !testing::Need::Ipv6.is_met() {
        testing::skip_part(testing::Need::Ipv6);
        return Outcome::Lacking("no IPv6 here".to_owned());
    }
    let Some(sandbox) = Sandbox::new() else {
        return Outcome::Lacking("no network namespaces here".to_owned());
    };
    match fought(case, &sandbox, client, server) {
        Ok(figures) => Outcome::Agreed(figures),
        Err(why) => Outcome::Failed(why),
    }
}

fn fought(
    case: &Case,
    sandbox: &Sandbox,
    client: &Program,
    server: &Program,
) -> Result<String, String> {
    let mut words = case.server.clone();
    words.push("-1");
    if case.plain.is_empty() {
        words.push("-J");
    }
    let mut serving = sandbox.start_command(server.server(&words));
    listening(&mut serving)?;
    let mut words = case.client.clone();
    if case.plain.is_empty() {
        words.push("-J");
    }
    let mut asking = sandbox.start_command(client.client(case.host, &words));
    let mut promised = case.sockets.map_or(Ok(()), |_| Err("never looked at".to_owned()));
    let asked = ended(&mut asking, |pid| {
        if let (Err(_), Some(check)) = (&promised, case.sockets) {
            let mut seen = Seen::now(pid, serving.pid());
            seen.ours = [client.is_weir(), server.is_weir()];
            // A process that has no sockets yet, or none any more, cannot be judged.
            if promised.is_err() && !seen.client.is_empty() && !seen.server.is_empty() {
                promised = check(&seen);
            }
        }
    });
    let asked = asked.map_err(|why| format!("{} client {why}", client.name));
    // A one-off server ends once its client has ended.
    let served = match &asked {
        Ok(output) if output.status.success() => {
            ended(&mut serving, |_| ()).map_err(|why| format!("{} server {why}", server.name))
        }
        Ok(output) => {
            Err(format!("{} client: {} {}", client.name, output.status, last_words(output)))
        }
        Err(_) => Err(String::new()),
    };
    if served.is_err() {
        let _ = serving.child.kill();
        let _ = serving.child.wait();
    }
    let (asked, served) = (asked?, served?);
    for (end, program, output) in [("client", client, &asked), ("server", server, &served)] {
        if !output.status.success() {
            return Err(format!(
                "{} {end}: {} {}",
                program.name,
                output.status,
                last_words(output)
            ));
        }
    }
    promised?;
    if !case.plain.is_empty() {
        return plain_figures(&asked, &served, case.plain);
    }
    let (bidir, reverse) = (case.has("--bidir"), case.has("-R"));
    let read = |end, program: &Program, output: &CommandOutput| {
        let document = Document::read(&output.stdout, end, bidir, reverse);
        document.map_err(|why| format!("{} as {end:?}: {why}", program.name))
    };
    let both = Both {
        client: read(End::Client, client, &asked)?,
        server: read(End::Server, server, &served)?,
        exact: client.exact && server.exact,
    };
    agree(&both, case.has("-t") && both.exact)?;
    if let Some(check) = &case.documents {
        check(&both)?;
    }
    Ok(figures(&both))
}

/// Waits until the server listens; the namespace has no other listener.
fn listening(server: &mut Running) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(2);
    loop {
        let listens = ["tcp", "tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", server.pid()));
            table.is_ok_and(|table| {
                let mut rows = table.lines().map(|row| row.split_whitespace());
                // A listener's row has the port in hexadecimal, and 0A for LISTEN
                // (net/ipv4/tcp_ipv4.c).
                rows.any(|mut row| {
                    row.nth(1).is_some_and(|local| local.ends_with(":1451"))
                        && row.nth(1) == Some("0A")
                })
            })
        });
        if listens {
            return Ok(());
        }
        if server.has_ended() || Instant::now() > deadline {
            let (stdout, stderr) = server.output_so_far();
            return Err(format!("the server does not listen: {stdout} {stderr}"));
        }
        std::thread::sleep(pause);
        pause = longer(pause);
    }
}

/// Waits until the process ends, and observes the sockets until then.
fn ended(running: &mut Running, mut look: impl FnMut(u32)) -> Result<CommandOutput, String> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(4);
    loop {
        if let Some(status) = running.child.try_wait().unwrap() {
            let (stdout, stderr) = running.output_so_far();
            return Ok(CommandOutput { status, stdout, stderr });
        }
        if Instant::now() > deadline {
            let _ = running.child.kill();
            let _ = running.child.wait();
            let (stdout, stderr) = running.output_so_far();
            return Err(format!("did not end; it said {stdout} {stderr}"));
        }
        look(running.pid());
        std::thread::sleep(pause);
        pause = longer(pause);
    }
}

fn last_words(output: &CommandOutput) -> String {
    let error = serde_json::from_str::<serde_json::Value>(&output.stdout)
        .ok()
        .and_then(|document| Some(document.get("error")?.to_string()));
    let text = error.unwrap_or_else(|| format!("{}{}", output.stderr, output.stdout));
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ")
}

fn figures(both: &Both) -> String {
    let directions = [("↑", &both.client.up), ("↓", &both.client.down)];
    let directions = directions.into_iter().filter_map(|(arrow, direction)| {
        let direction = direction.as_ref()?;
        let mut text = format!("{arrow}{:.1} MB", direction.received.bytes as f64 / 1e6);
        if direction.streams.len() > 1 {
            text.push_str(&format!(" in {}", direction.streams.len()));
        }
        if let Some(datagrams) = direction.datagrams {
            text.push_str(&format!(", {}/{} lost", datagrams.lost, datagrams.counted));
        }
        Some(text)
    });
    directions.collect::<Vec<_>>().join(" ")
}

/// Checks the parts of the text output that all implementations share.
fn plain_figures(
    client: &CommandOutput,
    server: &CommandOutput,
    prints: &[&str],
) -> Result<String, String> {
    expect(prints.iter().any(|text| client.stdout.contains(text)), || {
        format!("the client prints none of {prints:?}: {}", last_words(client))
    })?;
    expect(server.stdout.contains("bit"), || {
        format!("the server tells no rate: {}", last_words(server))
    })?;
    Ok(format!("tells `{}`", prints[0]))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed(figures) => write!(f, "ok: {figures}"),
            Self::Lacking(why) => write!(f, "left out: {why}"),
            Self::Failed(why) => write!(f, "**FAILED**: {}", why.replace('|', "\\|")),
        }
    }
}

const WEIR: &str = "weir";
/// On an idle machine no case takes a tenth of this time.
const PATIENCE: Duration = Duration::from_secs(25);
