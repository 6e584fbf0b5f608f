//! Measurements of a path: iperf3's tests, and netperf's.

mod accounts;
mod client;
mod download;
mod plain;
mod report;
mod rounds;
mod server;
mod values;

use crate::exit::Ending;
use clap::Subcommand;

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
    /// Only write to a plain server for a time: a baseline
    PlainClient(plain::Client),
    /// Only read the data of plain clients: a baseline
    PlainServer(plain::Server),
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Client(arguments) => client::run(&arguments),
        Verb::Server(arguments) => server::run(&arguments),
        Verb::Rounds(verb) => rounds::run(&verb),
        Verb::Download(arguments) => download::run(&arguments),
        Verb::PlainClient(arguments) => plain::measure(&arguments),
        Verb::PlainServer(arguments) => plain::read(&arguments),
    }
}
