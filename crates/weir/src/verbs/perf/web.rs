use super::values;
use crate::exit::Ending;
use crate::output;
use crate::port;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use perf::PerfError;
use perf::event::Stop;
use perf::web::serve::WebServer;
use perf::web::{self, Address, Header, Trust, WebOptions};
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use units::{Bytes, Span};

/// Send requests to a web server over http or https, and measure its answers
///
/// Each connection sends a request as soon as its former request is answered. With --rate,
/// requests have fixed times, and latency counts from the fixed time: the figures then show every
/// pause of the server (no coordinated omission).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Web {
    /// For example http://192.0.2.1:8080/index.html
    url: String,
    /// Connections at once
    #[arg(short = 'P', long, default_value_t = 10, value_name = "N")]
    #[arg(alias = "parallel", visible_short_alias = 'c')]
    connections: u32,
    /// Threads that share the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// Open a connection for each request
    #[arg(long)]
    short: bool,
    /// Requests a second over all connections, at fixed times [default: as fast as answers come]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// A header field of each request, as in -H 'Authorization: Bearer TOKEN'; may be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header_field)]
    header: Vec<Header>,
    /// How long to measure: seconds, or with a unit, for example 500ms
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = values::duration)]
    #[arg(alias = "duration", visible_short_alias = 'd')]
    time: Span,
    /// Time at the start to leave out of every figure
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = values::omit)]
    omit: Span,
    /// How long a request may take, its connection included: milliseconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::timeout)]
    timeout: Duration,
    /// Trust the certificates of this PEM file instead of those of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long)]
    insecure: bool,
    /// The CPU to pin this program to
    #[arg(short = 'A', long, value_name = "CPU")]
    affinity: Option<usize>,
    /// Print one JSON document
    #[arg(short = 'J', long)]
    json: bool,
}

/// Serve one small file over http or https, as a peer of `weir perf web`
///
/// Every path has the same body. The server runs until it is stopped.
#[derive(Debug, Args)]
#[command(after_help = SERVER_EXAMPLES)]
pub(crate) struct Server {
    /// Listen at this address only
    #[arg(short = 'B', long, value_name = "ADDRESS", default_value_t = Ipv4Addr::UNSPECIFIED.into())]
    bind: IpAddr,
    /// The port
    #[arg(short, long, default_value_t = 8080, value_name = "N", value_parser = port::or_any)]
    port: u16,
    /// Bytes of the body
    #[arg(long, value_name = "SIZE", default_value = "612", value_parser = values::size)]
    size: Bytes,
    /// Connections that are served at once, a thread each
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// The certificate for https: PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's key: PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

pub(crate) fn measure(arguments: &Web) -> anyhow::Result<Ending> {
    let options = options(arguments)?;
    options.check()?;
    let cancel = cancel_on_signals()?;
    let stop = Stop::on(cancel.flag());
    let bar = bar(options.time);
    let outcome = web::run(&options, &stop);
    bar.finish_and_clear();
    let outcome = outcome?;
    if arguments.json {
        let document = web::document(&options, &outcome);
        output::print(serde_json::to_string_pretty(&document)? + "\n")?;
    } else {
        output::print(web::text(&options, &outcome))?;
    }
    if stop.is_called() {
        return Err(PerfError::Interrupted.into());
    }
    Ok(if outcome.is_fine(&options) { Ending::Fine } else { Ending::Failed })
}

pub(crate) fn serve(arguments: &Server) -> anyhow::Result<Ending> {
    let Server { bind, port, size, connections, .. } = arguments;
    if *size > LARGEST_BODY {
        return Err(PerfError::Usage(format!("--size is at most {LARGEST_BODY}")).into());
    }
    let mut server = WebServer::new(usize::try_from(size.count())?, *connections);
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        server = server.with_tls(certificate, key)?;
    }
    let address = SocketAddr::new(*bind, *port);
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    let address = listener.local_addr()?;
    let scheme = if arguments.key.is_some() { "https" } else { "http" };
    let cancel = cancel_on_signals()?;
    output::note(format_args!("serving {scheme}://{address}/: stop it with Ctrl-C"));
    server.run(&listener, &cancel.flag())?;
    Ok(Ending::Fine)
}

fn options(arguments: &Web) -> Result<WebOptions, PerfError> {
    let address: Address = arguments
        .url
        .parse()
        .map_err(|problem| PerfError::Usage(format!("`{}`: {problem}", arguments.url)))?;
    if !address.is_tls && (arguments.insecure || arguments.ca.is_some()) {
        let text = "--insecure and --ca are for https: leave them out, or write https://";
        return Err(PerfError::Usage(text.to_owned()));
    }
    Ok(WebOptions {
        headers: arguments.header.clone(),
        connections: arguments.connections,
        threads: arguments.threads,
        keep_alive: !arguments.short,
        rate: arguments.rate,
        time: arguments.time,
        omit: arguments.omit,
        timeout: arguments.timeout,
        trust: match (&arguments.ca, arguments.insecure) {
            (Some(file), _) => Trust::File(file.clone()),
            (None, true) => Trust::Anything,
            (None, false) => Trust::System,
        },
        affinity: arguments.affinity,
        ..WebOptions::new(address)
    })
}

fn header_field(text: &str) -> Result<Header, String> {
    text.parse()
}

/// Shows a progress bar on the terminal, if the measurement takes longer than two seconds.
fn bar(time: Span) -> ProgressBar {
    let bar = ProgressBar::hidden();
    if std::io::stderr().is_terminal() && time > QUIET {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let whole =
            format!("{{spinner}} {{elapsed}} of {}", units::shown::seconds(time.secs_f64()));
        if let Ok(style) = ProgressStyle::with_template(&whole) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

const QUIET: Span = Span::from_secs(2);
const LARGEST_BODY: Bytes = Bytes::new(64 << 20);

const EXAMPLES: &str = "\
Examples:
  weir perf web http://192.0.2.1/                    # ten open connections
  weir perf web https://192.0.2.1/ --short --insecure  # a handshake a request
  weir perf web http://192.0.2.1/ --rate 5000 --connections 50 --json

Errors are counted by kind: refused, reset, stalled, a status of 400 or above, cut, a wrong length.
Any of them makes the exit status 1. Redirects are not followed. https is TLS 1.3. `weir perf web-server` is a peer for a first try.";

const SERVER_EXAMPLES: &str = "\
Examples:
  weir perf web-server --port 8080 --size 1KiB
  weir perf web-server --port 8443 --certificate server.pem --key server.key";
