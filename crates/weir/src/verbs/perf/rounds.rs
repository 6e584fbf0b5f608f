use super::accounts::ClientAccount;
use super::values::{self, Affinity, Bind};
use crate::exit::Ending;
use crate::output;
use crate::port;
use crate::signals::cancel_on_signals;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use perf::event::Stop;
use perf::options::{Family, PORT};
use perf::output::TextFormat;
use perf::rounds::{
    self, Confidence, Event, Kind, Measured, Repeats, RoundsOptions, RoundsOutcome, Size,
};
use std::io::IsTerminal;
use std::time::Duration;
use units::{Bytes, Span};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Requests and responses over persistent TCP connections
    #[command(after_help = RR_EXAMPLES)]
    Rr(Box<Rr>),
    /// A TCP connection for each request and response
    #[command(after_help = CRR_EXAMPLES)]
    Crr(Box<Crr>),
    /// Requests and responses as UDP datagrams; lost datagrams are counted
    #[command(after_help = UDP_RR_EXAMPLES)]
    UdpRr(Box<UdpRr>),
    /// Streams by message size
    #[command(after_help = STREAM_EXAMPLES)]
    Stream(Box<Stream>),
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Rr {
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    requests: Requests,
    /// Requests under way at once on each connection
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    #[command(flatten)]
    series: Series,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Crr {
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    requests: Requests,
    #[command(flatten)]
    data_ports: DataPorts,
    #[command(flatten)]
    series: Series,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct UdpRr {
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    requests: Requests,
    /// Time without a response after which a request counts as lost and the next request is sent
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = values::timeout)]
    loss_timeout: Duration,
    #[command(flatten)]
    data_ports: DataPorts,
    #[command(flatten)]
    series: Series,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Stream {
    #[command(flatten)]
    connection: ConnectionOptions,
    /// Use UDP instead of TCP
    #[arg(short, long, help_heading = "Test")]
    udp: bool,
    /// Sizes of the messages [default: 1,64,1024,16384,65536; UDP: 65507 for the last]
    #[arg(short, long, value_name = "SIZE,…", value_delimiter = ',', value_parser = values::size)]
    #[arg(help_heading = "Test")]
    size: Vec<Bytes>,
    #[command(flatten)]
    data_ports: DataPorts,
    #[command(flatten)]
    series: Series,
}

#[derive(Debug, Args)]
struct ConnectionOptions {
    /// The host where `weir perf server` runs: a name or an address
    host: String,
    /// The server's port
    #[arg(short, long, default_value_t = PORT, value_name = "N", value_parser = port::named)]
    port: u16,
    /// Use IPv4 only
    #[arg(short = '4', long = "version4", conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "version6")]
    v6: bool,
    /// The address and interface to measure from: 10.0.0.1, fe80::1%eth0 or %eth0
    #[arg(short = 'B', long, value_name = "ADDRESS", value_parser = values::bind)]
    bind: Option<Bind>,
    /// Time limit for connecting
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::timeout)]
    connect_timeout: Duration,
    /// How long to wait for the server without receiving anything
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::timeout)]
    patience: Duration,
    #[command(flatten)]
    account: ClientAccount,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct Requests {
    /// Sizes of request and response, for example 1 or 128/8K; several are measured in turn
    #[arg(short, long, value_name = "SIZE[/SIZE],…", value_delimiter = ',', default_value = "1")]
    size: Vec<Size>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct DataPorts {
    /// The first of the ports that the server opens for this test, for firewalls to admit [default:
    /// any free ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1024..))]
    server_port: Option<u16>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct Series {
    /// Connections at once, one thread each
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// How long each repeat takes
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    time: Span,
    /// Repeat until the mean is known this accurately: the level and the interval's whole width in
    /// percent, as for netperf -I; 99,5 is ±2.5 % at 99 %. The output ends with a prominent warning
    /// if this accuracy was not reached
    #[arg(long, value_name = "LEVEL,WIDTH")]
    confidence: Option<Confidence>,
    /// Number of repeats: the minimum, and the maximum if the confidence is not reached earlier
    /// [default: 1; with --confidence: 3,30]
    #[arg(long, value_name = "LEAST[,MOST]")]
    repeats: Option<Repeats>,
    /// Exit with status 1 if the confidence was not reached
    #[arg(long, requires = "confidence")]
    strict: bool,
    /// CPUs to pin this end and, after a comma, the server to: 0 or 0,1
    #[arg(short = 'A', long, value_name = "CPU[,CPU]", value_parser = values::affinity)]
    affinity: Option<Affinity>,
    /// Print one JSON document
    #[arg(short = 'J', long, help_heading = None::<&str>)]
    json: bool,
}

pub(crate) fn run(verb: &Verb) -> anyhow::Result<Ending> {
    let (options, series) = options(verb);
    options.check()?;
    let cancel = cancel_on_signals()?;
    let stop = Stop::on(cancel.flag());
    let options =
        RoundsOptions { credentials: verb.connection().account.credentials(&stop)?, ..options };
    let mut watcher = Watcher::of(&options);
    let outcome = rounds::run(&options, &stop, &mut watcher);
    watcher.bar.finish_and_clear();
    // Report the results before a failure, too.
    let (outcomes, error) = (watcher.outcomes, outcome.err());
    if series.json {
        let document = rounds::document(&options, &outcomes, error.as_ref());
        output::print(serde_json::to_string_pretty(&document)? + "\n")?;
    } else if !outcomes.is_empty() {
        output::print(rounds::table(&options, &outcomes, &TextFormat::of_stdout()))?;
    }
    if let Some(error) = error {
        return Err(error.into());
    }
    let sure = outcomes.iter().all(RoundsOutcome::is_sure);
    if !sure && series.json {
        output::note("weir: the requested confidence was not reached: see \"confidence\"");
    }
    Ok(if sure || !series.strict { Ending::Fine } else { Ending::Failed })
}

impl Verb {
    fn connection(&self) -> &ConnectionOptions {
        match self {
            Self::Rr(arguments) => &arguments.connection,
            Self::Crr(arguments) => &arguments.connection,
            Self::UdpRr(arguments) => &arguments.connection,
            Self::Stream(arguments) => &arguments.connection,
        }
    }
}

fn options(verb: &Verb) -> (RoundsOptions, &Series) {
    match verb {
        Verb::Rr(arguments) => {
            let Rr { connection, requests, depth, series } = &**arguments;
            let sizes = requests.size.clone();
            (RoundsOptions { depth: *depth, ..series.options(connection, Kind::Rr, sizes) }, series)
        }
        Verb::Crr(arguments) => {
            let Crr { connection, requests, data_ports, series } = &**arguments;
            let options = series.options(connection, Kind::Crr, requests.size.clone());
            (RoundsOptions { server_port: data_ports.server_port, ..options }, series)
        }
        Verb::UdpRr(arguments) => {
            let UdpRr { connection, requests, loss_timeout, data_ports, series } = &**arguments;
            let options = RoundsOptions {
                loss_timeout: *loss_timeout,
                server_port: data_ports.server_port,
                ..series.options(connection, Kind::UdpRr, requests.size.clone())
            };
            (options, series)
        }
        Verb::Stream(arguments) => {
            let Stream { connection, udp, size, data_ports, series } = &**arguments;
            let kind = if *udp { Kind::UdpStream } else { Kind::TcpStream };
            let sizes: Vec<Bytes> = match size.as_slice() {
                [] => SWEEP.map(|count| Bytes::new(count.min(kind.most_bytes()))).to_vec(),
                sizes => sizes.to_vec(),
            };
            let sizes = sizes.into_iter().map(Size::both).collect();
            let options = series.options(connection, kind, sizes);
            (RoundsOptions { server_port: data_ports.server_port, ..options }, series)
        }
    }
}

impl Series {
    fn options(
        &self,
        connection: &ConnectionOptions,
        kind: Kind,
        sizes: Vec<Size>,
    ) -> RoundsOptions {
        let bind = connection.bind.as_ref();
        let usual = if self.confidence.is_some() { Repeats::USUAL } else { Repeats::ONCE };
        RoundsOptions {
            port: connection.port,
            family: match (connection.v4, connection.v6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
            bind: bind.and_then(|bind| bind.address),
            bind_device: bind.and_then(|bind| bind.device.clone()),
            connect_timeout: connection.connect_timeout,
            patience: connection.patience,
            sizes,
            connections: self.parallel,
            time: self.time,
            repeats: self.repeats.unwrap_or(usual),
            confidence: self.confidence,
            affinity: self.affinity.and_then(|affinity| affinity.here),
            server_affinity: self.affinity.and_then(|affinity| affinity.there),
            ..RoundsOptions::new(connection.host.clone(), kind)
        }
    }
}

/// An audience of the measurement, which shows a line on the terminal and keeps the results.
struct Watcher {
    bar: ProgressBar,
    most_repeats: u64,
    outcomes: Vec<RoundsOutcome>,
}

impl Watcher {
    fn of(options: &RoundsOptions) -> Self {
        let most_repeats = u64::from(options.repeats.most);
        let most = options.sizes.len() as u64 * most_repeats;
        let bar = ProgressBar::hidden();
        if std::io::stderr().is_terminal() && options.time * most > QUIET {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_length(most);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {pos}/{len} repeats, at most {eta} left  {msg}")
        {
            bar.set_style(style);
        }
        Self { bar, most_repeats, outcomes: Vec::new() }
    }

    fn measured(&self, measured: &Measured<'_>) {
        self.bar.inc(1);
        let so_far = match measured.estimate.relative_half_width() {
            Some(half) => format!("{}: ±{:.1} % so far", measured.size, half * 100.0),
            None => measured.size.to_string(),
        };
        self.bar.set_message(so_far);
    }
}

impl rounds::Audience for Watcher {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Connected { .. } => self.bar.tick(),
            Event::Measured(measured) => self.measured(measured),
            Event::Outcome(outcome) => {
                self.outcomes.push((*outcome).clone());
                // Counts repeats that were not needed as done.
                self.bar.set_position(self.outcomes.len() as u64 * self.most_repeats);
            }
        }
    }
}

/// Minimum length of a measurement that shows the remaining time.
const QUIET: Span = Span::from_secs(2);
const SWEEP: [u64; 5] = [1, 64, 1024, 16_384, 65_536];
const RR_EXAMPLES: &str = "\
Examples:
  weir perf rr 10.0.0.2                         # one byte each way
  weir perf rr 10.0.0.2 --size 1,128/8K,64K --confidence 99,5
  weir perf rr 10.0.0.2 -P 4 --depth 16         # 16 requests on each connection

The far end is `weir perf server`.";
const CRR_EXAMPLES: &str = "\
Examples:
  weir perf crr 10.0.0.2                        # connections a second
  weir perf crr 10.0.0.2 --size 128/8K --server-port 5300

The far end is `weir perf server`, which opens a separate port for it. The server closes first.";
const UDP_RR_EXAMPLES: &str = "\
Examples:
  weir perf udp-rr 10.0.0.2 --size 1,1024
  weir perf udp-rr 10.0.0.2 -P 4 --server-port 5300    # and 5301 to 5303

The far end is `weir perf server`, which opens separate ports for it.";
const STREAM_EXAMPLES: &str = "\
Examples:
  weir perf stream 10.0.0.2                     # messages of one byte to 64 KiB
  weir perf stream 10.0.0.2 -u --size 64,1024 -t 5
  weir perf stream 10.0.0.2 --confidence 95,10 --strict

The far end is `weir perf server`. `weir perf client` can send at a given rate and reports more.";
