//! Measurements of a path: iperf3's tests, and netperf's.

mod accounts;
mod client;
mod download;
mod foreign;
mod local;
mod plain;
mod profiling;
mod report;
mod rounds;
mod server;
mod stamped;
mod values;
mod web;

use crate::exit::Ending;
use clap::Subcommand;
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Measure the path to a weir or iperf3 server
    #[command(after_help = client::EXAMPLES)]
    Client(Box<client::Client>),
    /// Serve tests to weir and iperf3, many clients at once
    #[command(after_help = server::EXAMPLES)]
    Server(Box<server::Server>),
    #[command(flatten)]
    Rounds(rounds::Verb),
    Download(download::Arguments),
    Web(web::Web),
    WebServer(web::Server),
    Latency(local::Latency),
    Bandwidth(local::Bandwidth),
    /// The second process of `latency` and `bandwidth`
    #[command(hide = true)]
    LocalEnd(local::FarEnd),
    /// Only write to a plain server for a time: a baseline
    PlainClient(plain::Client),
    /// Only read the data of plain clients: a baseline
    PlainServer(plain::Server),
}

/// Translates iperf3's command lines: `perf -c HOST …` becomes `perf client HOST …`, and `perf -s
/// …` becomes `perf server …`. Other command lines do not change.
pub(crate) fn as_iperf3(words: Vec<OsString>) -> Vec<OsString> {
    let text = |at: usize| words.get(at).and_then(|word| word.to_str());
    let is_option = text(2).is_some_and(|word| word.starts_with('-'));
    if text(1) != Some("perf") || !is_option {
        return words;
    }
    if words.len() == 3 && text(2) == Some("-v") {
        return vec![words[0].clone(), words[1].clone(), OsString::from("--version")];
    }
    for at in 2..words.len() {
        let Some(role) = text(at).and_then(role) else { continue };
        let (host, taken) = match role.host {
            Host::Absent => (None, 1),
            Host::Attached(host) => (Some(OsString::from(host)), 1),
            // Without a host, `perf client` reports that the host is missing.
            Host::Next => {
                let host = words.get(at + 1).cloned();
                let taken = 1 + usize::from(host.is_some());
                (host, taken)
            }
        };
        let flags = role.flags.map(OsString::from);
        let rest = words[2..at].iter().cloned().chain(flags);
        let rest = rest.chain(words[at + taken..].iter().cloned());
        let head = words[..2].iter().cloned().chain([OsString::from(role.verb)]);
        return head.chain(host).chain(rest).collect();
    }
    words
}

/// The role that a word of iperf3's command line names, as `-s`, `-sD` and `-uc HOST` do.
struct Role<'a> {
    verb: &'static str,
    host: Host<'a>,
    /// The other flags of the same word, as `-D` of `-sD`.
    flags: Option<String>,
}

/// The server's name or address behind `-c`.
enum Host<'a> {
    /// The word names a server's role, which has no host.
    Absent,
    /// The host follows in the same word: `-cHOST`, `--client=HOST`.
    Attached(&'a str),
    /// The next word of the command line is the host.
    Next,
}

fn role(word: &str) -> Option<Role<'_>> {
    match word {
        "--server" => return Some(Role { verb: "server", host: Host::Absent, flags: None }),
        "--client" => return Some(Role { verb: "client", host: Host::Next, flags: None }),
        _ => {}
    }
    if let Some(host) = word.strip_prefix("--client=") {
        return Some(Role { verb: "client", host: Host::Attached(host), flags: None });
    }
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let (before, behind) = letters.split_at(letters.find(|letter: char| !FLAGS.contains(letter))?);
    let flags = |letters: String| (!letters.is_empty()).then(|| format!("-{letters}"));
    if let Some(behind) = behind.strip_prefix('s') {
        let flags = flags(format!("{before}{behind}"));
        return Some(Role { verb: "server", host: Host::Absent, flags });
    }
    let host = match behind.strip_prefix('c')? {
        "" => Host::Next,
        host => Host::Attached(host),
    };
    Some(Role { verb: "client", host, flags: flags(before.to_owned()) })
}

/// Letters of iperf3's options without a value: these letters may share a word with `-s` or `-c`.
const FLAGS: &str = "146DJNRVZu";

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Client(arguments) => client::run(&arguments),
        Verb::Server(arguments) => server::run(&arguments),
        Verb::Rounds(verb) => rounds::run(&verb),
        Verb::Download(arguments) => download::run(&arguments),
        Verb::Web(arguments) => web::measure(&arguments),
        Verb::WebServer(arguments) => web::serve(&arguments),
        Verb::Latency(arguments) => local::latency(&arguments),
        Verb::Bandwidth(arguments) => local::bandwidth(&arguments),
        Verb::LocalEnd(arguments) => local::far_end(&arguments),
        Verb::PlainClient(arguments) => plain::measure(&arguments),
        Verb::PlainServer(arguments) => plain::read(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_iperf3_are_translated() {
        let translated = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = as_iperf3(words).into_iter();
            words.map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (line, same) in [
            ("weir perf -c far -t 5", "weir perf client far -t 5"),
            ("weir perf -t 5 -R --client far", "weir perf client far -t 5 -R"),
            ("weir perf -cfar -u", "weir perf client far -u"),
            ("weir perf --client=far", "weir perf client far"),
            ("weir perf -sD", "weir perf server -D"),
            ("weir perf -s1 -p 6000", "weir perf server -1 -p 6000"),
            ("weir perf -1sJ", "weir perf server -1J"),
            ("weir perf -sp 6000", "weir perf server -p 6000"),
            ("weir perf -t 5 -uRc far -J", "weir perf client far -t 5 -uR -J"),
            ("weir perf -Rcfar", "weir perf client far -R"),
            ("weir perf -Ccubic -c far", "weir perf client far -Ccubic"),
            ("weir perf -s -p 6000", "weir perf server -p 6000"),
            ("weir perf -p 6000 --server", "weir perf server -p 6000"),
            ("weir perf client far -C cubic", "weir perf client far -C cubic"),
            ("weir perf -c", "weir perf client"),
            ("weir perf --help", "weir perf --help"),
            ("weir perf -v", "weir perf --version"),
            ("weir perf --connect-timeout 5 -c far", "weir perf client far --connect-timeout 5"),
            ("weir lab list -c x", "weir lab list -c x"),
        ] {
            assert_eq!(translated(line), same, "{line}");
        }
    }
}
