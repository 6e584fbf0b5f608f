//! Measurements of a path: iperf3's tests, and netperf's.

mod accounts;
mod client;
mod download;
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
    for at in 2..words.len() {
        let Some(word) = text(at) else { continue };
        let (verb, host, taken) = match word {
            "-s" | "--server" => ("server", None, 1),
            // Without a host, `perf client` reports that the host is missing.
            "-c" | "--client" => {
                let host = words.get(at + 1).cloned();
                let taken = 1 + usize::from(host.is_some());
                ("client", host, taken)
            }
            _ => match word.strip_prefix("--client=").or_else(|| word.strip_prefix("-c")) {
                Some(host) if !word.starts_with("--c") || word.starts_with("--client=") => {
                    ("client", Some(OsString::from(host)), 1)
                }
                _ => continue,
            },
        };
        let rest = words[2..at].iter().chain(&words[at + taken..]).cloned();
        let head = words[..2].iter().cloned().chain([OsString::from(verb)]);
        return head.chain(host).chain(rest).collect();
    }
    words
}

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
            ("weir perf -s -p 6000", "weir perf server -p 6000"),
            ("weir perf -p 6000 --server", "weir perf server -p 6000"),
            ("weir perf client far -C cubic", "weir perf client far -C cubic"),
            ("weir perf -c", "weir perf client"),
            ("weir perf --help", "weir perf --help"),
            ("weir perf --connect-timeout 5 -c far", "weir perf client far --connect-timeout 5"),
            ("weir lab list -c x", "weir lab list -c x"),
        ] {
            assert_eq!(translated(line), same, "{line}");
        }
    }
}
