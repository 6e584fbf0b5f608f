use super::values;
use crate::exit::Ending;
use crate::output;
use crate::port;
use anyhow::Context;
use clap::Args;
use perf::PerfError;
use perf::plain::{PlainClient, serve};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use units::Span;

/// Only read the data of plain clients: the minimum that a program can do
///
/// A baseline for the cost of measuring (`weir lab run perf-overhead`). The server runs until
/// Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Server {
    /// Listen at this address only
    #[arg(short = 'B', long, value_name = "ADDRESS", default_value_t = Ipv4Addr::UNSPECIFIED.into())]
    bind: IpAddr,
    /// The port
    #[arg(short, long, default_value_t = perf::options::PORT, value_parser = port::or_any)]
    port: u16,
}

/// Only write to a plain server for a time: the minimum that a program can do
///
/// A baseline for the cost of measuring (`weir lab run perf-overhead`). The client prints JSON with
/// iperf3's keys, as far as the client knows their values.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Client {
    /// The server: a name or an address
    host: String,
    /// The server's port
    #[arg(short, long, default_value_t = perf::options::PORT, value_parser = port::named)]
    port: u16,
    /// How long to write: 10, 500ms, 2min
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = values::duration)]
    time: Span,
    /// Connections, one thread each
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// Congestion control of the connections
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
}

pub(crate) fn read(arguments: &Server) -> anyhow::Result<Ending> {
    let address = SocketAddr::new(arguments.bind, arguments.port);
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    serve(&listener)?;
    Ok(Ending::Fine)
}

pub(crate) fn measure(arguments: &Client) -> anyhow::Result<Ending> {
    let Client { host, port, .. } = arguments;
    let to = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next());
    let Some(to) = to else {
        let host = host.clone();
        return Err(PerfError::NoAddress { host, family: None, reason: None }.into());
    };
    let client = PlainClient {
        duration: arguments.time,
        streams: arguments.parallel,
        congestion: arguments.congestion.clone(),
        ..PlainClient::new(to)
    };
    let result = client.run()?;
    output::print(serde_json::to_string_pretty(&result.to_json())? + "\n")?;
    Ok(Ending::Fine)
}

const EXAMPLE: &str = "\
Example:
  weir perf plain-server &
  weir perf plain-client 127.0.0.1 --time 2";
