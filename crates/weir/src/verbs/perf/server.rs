use super::accounts::ServerAccounts;
use super::foreign::Foreign;
use super::stamped::{self, Stamped};
use super::values::{self, Bind, RateLimit};
use crate::background;
use crate::exit::Ending;
use crate::port;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::{ArgAction, Args};
use perf::PerfError;
use perf::event::{Audience, Event, Stop};
use perf::options::{Family, KeepAlive, LONGEST_TEST, Limits, PORT, ServerOptions};
use perf::output::{Json, JsonStream, RateUnit, Text, TextFormat};
use perf::server::{Client, OutputForm, ServeAs};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use units::Span;

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Server {
    /// The port, for TCP and UDP, for example 5202; 0 uses a free one and prints it
    #[arg(short, long, default_value_t = PORT, value_name = "N", value_parser = port::or_any)]
    port: u16,
    /// The local address, interface or both: 10.0.0.1, %eth0, fe80::1%eth0 [default: all]
    #[arg(short = 'B', long, value_name = "ADDRESS[%DEV]", value_parser = values::bind)]
    bind: Option<Bind>,
    /// The local interface (SO_BINDTODEVICE), for example eth1
    #[arg(long, value_name = "DEV")]
    bind_dev: Option<String>,
    /// Serve IPv4 only
    #[arg(short = '4', long = "version4", conflicts_with = "v6")]
    v4: bool,
    /// Serve IPv6 only
    #[arg(short = '6', long = "version6")]
    v6: bool,
    /// End after one test; the exit status is 1 if it failed. A client that leaves before its
    /// traffic begins is no test
    #[arg(short = '1', long)]
    one_off: bool,
    /// End after this long without a client: seconds, or with a unit, for example 10min
    #[arg(long, value_name = "TIME", value_parser = positive)]
    idle_timeout: Option<Span>,
    /// Pin the streams to this CPU, for example 1; a client's request (-A 0,1) takes precedence
    #[arg(short = 'A', long, value_name = "CPU")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..1024))]
    affinity: Option<u16>,
    /// Run in the background, once the port is taken
    #[arg(short = 'D', long)]
    daemon: bool,
    /// Write the process's number to this file, and remove it at the end
    #[arg(short = 'I', long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Serve as this user, once the ports are open: a name or a number. Only root can choose
    /// another user [default: nobody for root, otherwise the user who starts the server]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Collect only iperf3's data: no TCP_INFO between the intervals
    #[arg(long)]
    no_probes: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: ClientLimits,
    #[command(flatten)]
    accounts: ServerAccounts,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "//", value_parser = values::keep_alive)]
    cntl_ka: Option<KeepAlive>,
    #[arg(long, hide = true, value_name = "TIME")]
    snd_timeout: Option<String>,
    #[arg(short, long, hide = true)]
    udp: bool,
    #[command(flatten)]
    foreign: Foreign,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// Print a JSON document for each test, with iperf3's keys and further keys under `weir`
    #[arg(short = 'J', long)]
    json: bool,
    /// Print a line of JSON for each event as it happens, with the client's number
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    /// How often to report: seconds, or with a unit, for example 500ms; 0 for the end only
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = values::interval)]
    interval: Span,
    /// The unit of rates: k m g t for bits a second, K M G T for bytes; powers of 1000
    #[arg(short, long, value_name = "LETTER", value_parser = values::unit)]
    format: Option<RateUnit>,
    /// Print all figures, stream by stream
    #[arg(short = 'V', long, action = ArgAction::SetTrue)]
    verbose: bool,
    /// Append the output to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Put the time (UTC) in front of each line of text; a format as of strftime(3) may follow, as
    /// in --timestamps='%T '
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = stamped::USUAL, conflicts_with_all = ["json", "json_stream"])]
    timestamps: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits for clients")]
struct ClientLimits {
    /// Maximum number of concurrent tests; a further client takes the place of a test that stalls,
    /// or is asked to try again later. The last quarter is reserved for addresses without a test
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions)]
    #[arg(value_parser = count)]
    max_sessions: usize,
    /// Maximum number of concurrent tests from one address; IPv6 addresses of one /64 count as one
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions_per_address)]
    #[arg(value_parser = count)]
    sessions_per_address: usize,
    /// Maximum number of streams of one test in each direction
    #[arg(long, value_name = "N", default_value_t = Limits::default().streams)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    max_streams: u32,
    /// Maximum rate of all streams of a test together, for example 100mbit [default: no limit];
    /// /SECONDS behind the rate is the time over which a running test is averaged [default: 5]
    #[arg(long, value_name = "RATE[/SECONDS]", alias = "server-bitrate-limit")]
    #[arg(value_parser = values::rate_limit)]
    max_rate: Option<RateLimit>,
    /// Maximum duration of a test, with the time that it omits, and of a session of rr, crr, udp-rr
    /// or stream: seconds, or with a unit, for example 60; 0 for no limit. A client that asks for
    /// more is refused; a test of bytes or blocks that lasts longer is ended
    #[arg(long, value_name = "TIME", alias = "server-max-duration", value_parser = values::seconds)]
    #[arg(default_value_t = LONGEST_TEST)]
    max_time: Span,
    /// The ports that crr, udp-rr and stream -u may open beside the server's own, for example
    /// 20000-20100 [default: any above 1023]
    #[arg(long, value_name = "N-N", value_parser = values::ports)]
    data_ports: Option<RangeInclusive<u16>>,
    /// How long a test may transfer nothing: milliseconds, or with a unit [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = values::silence)]
    rcv_timeout: Option<Duration>,
    /// How long a client may take for each step before and after the test: milliseconds, or with a
    /// unit [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout)]
    patience: Option<Duration>,
}

pub(crate) fn run(arguments: &Server) -> anyhow::Result<Ending> {
    arguments.check_foreign()?;
    let options = arguments.options()?;
    let serve_as = arguments.user.as_deref().map(ServeAs::named).transpose()?.unwrap_or_default();
    if arguments.daemon
        && let Some(ending) = background::detach()?
    {
        return Ok(ending);
    }
    let log = arguments.output.logfile.as_deref();
    log.map_or(Ok(()), background::log_to)?;
    let form = if arguments.output.json { OutputForm::Json } else { OutputForm::Text };
    let server = perf::server::Server::bind(&options)?.output_form(form);
    let stop = Stop::on(cancel_on_signals()?.flag());
    let outputs = ClientOutputs::new(&arguments.output, stop.clone());
    let mut pidfile = arguments.pidfile.as_deref().map(background::PidFile::write).transpose()?;
    pidfile.as_mut().map_or(Ok(()), background::PidFile::remove_on_own_thread)?;
    outputs.of_server().event(&Event::Listening(&server.listening()));
    if arguments.daemon {
        background::serving(log)?;
    }
    server.confine(&serve_as)?;
    let summary = server.run(&stop, |client| outputs.of(client))?;
    drop(pidfile);
    tracing::info!("{summary:?}");
    outputs.shared.lock().trouble.take().map_or(Ok(()), Err).context("writing the output")?;
    // Clients that left before the test began do not count.
    let failed = options.one_off && summary.failed > 0 && summary.completed == 0;
    Ok(if failed { Ending::Failed } else { Ending::Fine })
}

impl Server {
    /// Checks the options of iperf3 that the help does not list.
    fn check_foreign(&self) -> Result<(), PerfError> {
        if self.cntl_ka.is_some() {
            tracing::debug!("--cntl-ka changes nothing: the server always probes its clients");
        }
        if self.snd_timeout.is_some() {
            let text = "--snd-timeout is for the client: leave --snd-timeout out; --rcv-timeout \
                        limits the time without traffic here";
            return Err(PerfError::Usage(text.to_owned()));
        }
        if self.udp {
            let text = "--udp is for the client: leave --udp out; the server serves TCP and UDP";
            return Err(PerfError::Usage(text.to_owned()));
        }
        self.foreign.check()
    }

    fn options(&self) -> Result<ServerOptions, PerfError> {
        let defaults = Limits::default();
        let limits = &self.limits;
        Ok(ServerOptions {
            port: self.port,
            family: match (self.v4, self.v6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
            bind: self.bind.as_ref().and_then(|bind| bind.address),
            bind_device: self
                .bind_dev
                .clone()
                .or_else(|| self.bind.as_ref().and_then(|bind| bind.device.clone())),
            one_off: self.one_off,
            idle_timeout: self.idle_timeout.map(Span::as_duration),
            affinity: self.affinity.map(usize::from),
            interval: self.output.interval,
            probes: !self.no_probes,
            limits: Limits {
                sessions: limits.max_sessions,
                sessions_per_address: limits.sessions_per_address,
                streams: limits.max_streams,
                rate: limits.max_rate.and_then(|limit| limit.rate),
                rate_window: limits
                    .max_rate
                    .and_then(|limit| limit.window)
                    .unwrap_or(defaults.rate_window),
                duration: Some(limits.max_time).filter(|time| *time > Span::ZERO),
                data_ports: limits.data_ports.clone(),
                patience: limits.patience.unwrap_or(defaults.patience),
                receive_timeout: limits.rcv_timeout.unwrap_or(defaults.receive_timeout),
                ..defaults
            },
            accounts: self.accounts.open()?,
        })
    }
}

/// The audiences of the server's tests, which share one output.
struct ClientOutputs {
    text_format: TextFormat,
    form: Form,
    timestamps: Option<String>,
    shared: SharedOutput,
    stop: Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Lines,
}

impl ClientOutputs {
    fn new(output: &Output, stop: Stop) -> Self {
        let text_format = TextFormat {
            unit: output.format.unwrap_or_default(),
            verbose: output.verbose,
            ..TextFormat::of_stdout()
        };
        let form = match (output.json, output.json_stream) {
            (true, _) => Form::Json,
            (_, true) => Form::Lines,
            _ => Form::Text,
        };
        let timestamps = output.timestamps.clone();
        Self { text_format, form, timestamps, shared: SharedOutput::default(), stop }
    }

    fn of_server(&self) -> Box<dyn Audience + Send> {
        self.audience(None)
    }

    fn of(&self, client: &Client) -> Box<dyn Audience + Send> {
        self.audience(Some((client.number, client.address.to_string())))
    }

    fn audience(&self, client: Option<(u64, String)>) -> Box<dyn Audience + Send> {
        let shared = self.shared.clone();
        let output = ClientOutput { client, form: self.form, shared, has_written: false };
        let stop = self.stop.clone();
        match self.form {
            Form::Text => {
                let output = Stamped::new(output, self.timestamps.clone());
                Box::new(Text::new(output, self.text_format.clone()).stopping(stop))
            }
            Form::Json => Box::new(Json::new(output).stopping(stop)),
            Form::Lines => Box::new(JsonStream::new(output).stopping(stop)),
        }
    }
}

/// The output of one client. If another client wrote last, a line with this client's address comes
/// first, as `tail` names files.
#[derive(Debug)]
struct ClientOutput {
    /// The client's number and address; `None` for the server itself.
    client: Option<(u64, String)>,
    form: Form,
    shared: SharedOutput,
    /// Whether this client has written. The first output of a client names the client, without a
    /// line before the name.
    has_written: bool,
}

impl Write for ClientOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shared = self.shared.lock();
        let mut out = io::stdout().lock();
        let number = self.client.as_ref().map_or(0, |(number, _)| *number);
        let written = match (&self.client, self.form) {
            (Some((_, address)), Form::Text) if self.has_written && shared.last != number => {
                out.write_all(format!("--- {address}\n").as_bytes())
            }
            _ => Ok(()),
        };
        shared.last = number;
        self.has_written = true;
        let written = written.and_then(|()| match bytes.strip_prefix(b"{") {
            Some(rest) if self.form == Form::Lines && number > 0 => {
                out.write_all(format!("{{\"client\":{number},").as_bytes())?;
                out.write_all(rest)
            }
            _ => out.write_all(bytes),
        });
        match written.and_then(|()| out.flush()) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                // A closed pipe is a normal end.
                if error.kind() != io::ErrorKind::BrokenPipe {
                    let copy = io::Error::new(error.kind(), error.to_string());
                    shared.trouble.get_or_insert(copy);
                }
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The client that wrote last, and the first write error.
#[derive(Debug, Clone, Default)]
struct SharedOutput(Arc<Mutex<OutputState>>);

#[derive(Debug, Default)]
struct OutputState {
    last: u64,
    trouble: Option<io::Error>,
}

impl SharedOutput {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn positive(text: &str) -> Result<Span, String> {
    match values::seconds(text)? {
        Span::ZERO => Err("write for example 60, 500ms or 10min".to_owned()),
        span => Ok(span),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("write 1 to 1024".to_owned()),
    }
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  weir perf server                              # for weir and iperf3
  weir perf server -1 -p 5202 -J > test.json    # one test, as JSON
  weir perf server -B 10.0.0.1 --max-rate 100mbit --max-time 60 --max-sessions 4
  weir perf server --users users.csv --rsa-private-key private.pem
  weir perf server -B %eth1 -A 1 --idle-timeout 10min

Clients are `weir perf client HOST` and `iperf3 -c HOST`; many may measure at once.

Accounts are iperf3's. To make a key and a user:
  openssl genrsa -out private.pem 2048
  openssl rsa -in private.pem -pubout -out public.pem    # for clients
  hash=$(printf '{user}PASSWORD' | sha256sum | cut -d' ' -f1)
  echo \"user,$hash\" >> users.csv
Only the password is encrypted, not the test. An attacker who reads it on the way can replay it
within --time-skew-threshold: not at this server, which refuses it a second time, but at a stock
iperf3, at another server with the same key, and at this one after a restart. PKCS#1 v1.5 padding
is weaker than OAEP: use it only for an iperf3 before 3.17.";
