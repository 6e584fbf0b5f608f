use super::accounts::ClientAccount;
use super::foreign::Foreign;
use super::profiling::Profiling;
use super::report::report_audience;
use super::stamped::{self, Stamped};
use super::values::{self, Affinity, Bind, Bitrate};
use crate::background;
use crate::exit::Ending;
use crate::output;
use crate::port;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::{ArgAction, Args};
use perf::PerfError;
use perf::event::{Audience, Ended, Event, Stop};
use perf::options::{
    Amount, ClientOptions, Direction, Family, KeepAlive, PORT, Protocol, TestOptions,
};
use perf::output::{Json, JsonStream, RateUnit, Text, TextFormat};
use std::io::{self, Stdout};
use std::path::PathBuf;
use std::time::Duration;
use units::{Bytes, Rate, Span};

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Client {
    /// The server: a name or an address; fe80::1%eth0 or NAME%eth0 for one interface
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
    #[command(flatten)]
    test: Test,
    #[command(flatten)]
    streams: Streams,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    account: ClientAccount,
    #[command(flatten)]
    foreign: Foreign,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct Test {
    /// How long to send: seconds, or with a unit, for example 500ms; 0 until Ctrl-C [default: 10]
    #[arg(short, long, value_name = "TIME", value_parser = values::duration_or_endless)]
    #[arg(conflicts_with_all = ["bytes", "blockcount"])]
    time: Option<Span>,
    /// How much to send, instead of a time: 100M, 1GiB
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = values::bytes)]
    #[arg(conflicts_with = "blockcount")]
    bytes: Option<u64>,
    /// How many blocks or datagrams to send, instead of a time: 1000, 10K
    #[arg(short = 'k', long, value_name = "N", value_parser = values::count)]
    blockcount: Option<u64>,
    /// Time at the start to leave out of every figure: seconds, or with a unit [default: 0]
    #[arg(short = 'O', long, value_name = "TIME", value_parser = values::omit)]
    omit: Option<Span>,
    /// Reverse: the server sends, this end receives
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Bidirectional: both ends send at once
    #[arg(long)]
    bidir: bool,
    /// Streams in each direction
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// Use UDP instead of TCP
    #[arg(short, long)]
    udp: bool,
    /// The target rate of each stream: 600mbit, 100M, 0 for unlimited; /16 sends 16 blocks at
    /// once [default: 0; UDP: 1mbit]
    #[arg(short, long, value_name = "RATE[/N]", alias = "bandwidth", value_parser = values::bitrate)]
    bitrate: Option<Bitrate>,
    /// Measure only the streams: no TCP_INFO over time, no latency under load
    #[arg(long)]
    no_probes: bool,
    /// How long to measure the latency of the idle path first
    #[arg(long, value_name = "TIME", value_parser = values::seconds, conflicts_with = "no_probes")]
    #[arg(default_value = "500ms")]
    idle_probe: Span,
    /// Measure the cost of the probes: turn the probes of both ends off and on within the test, and
    /// compare the goodput with and without them. A test of a minute or more shows small costs
    #[arg(long, conflicts_with_all = ["no_probes", "udp"])]
    probe_cost: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Streams")]
struct Streams {
    /// Bytes of a write or datagram [default: 128KiB; UDP: what fits into a packet]
    #[arg(short, long, value_name = "SIZE", value_parser = values::block)]
    length: Option<Bytes>,
    /// Socket buffers at both ends, for example 4M [default: the kernel's choice]
    #[arg(short, long, value_name = "SIZE", value_parser = values::window)]
    window: Option<Bytes>,
    /// TCP's maximum segment size, for example 1400 [default: that of the path]
    #[arg(short = 'M', long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(88..=32767))]
    set_mss: Option<u32>,
    /// Do not delay small segments (turn Nagle's algorithm off)
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// The congestion control, for example cubic or bbr
    #[arg(short = 'C', long, value_name = "NAME", alias = "linux-congestion")]
    congestion: Option<String>,
    /// Send without copying
    #[arg(short = 'Z', long)]
    zerocopy: bool,
    /// Let the receiver's kernel discard the data without copying it
    #[arg(long)]
    skip_rx_copy: bool,
    /// CPUs to pin this end and, after a comma, the server to: 0 or 0,1
    #[arg(short = 'A', long, value_name = "CPU[,CPU]", value_parser = values::affinity)]
    affinity: Option<Affinity>,
    /// IP's type of service: 32, 040 or 0x20
    #[arg(short = 'S', long, value_name = "N", value_parser = values::type_of_service)]
    #[arg(conflicts_with = "dscp")]
    tos: Option<u8>,
    /// DSCP, the upper six bits of the type of service: 46, or a name such as ef, cs1, af41
    #[arg(long, value_name = "NAME", value_parser = values::dscp)]
    dscp: Option<u8>,
    /// IPv6's flow label: 1 to 0xfffff
    #[arg(short = 'L', long, value_name = "N", value_parser = values::flow_label)]
    flowlabel: Option<u32>,
    /// Pace in the kernel (SO_MAX_PACING_RATE), for example at 100mbit
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    fq_rate: Option<Rate>,
    /// How often the pace of --bitrate is checked: microseconds, or with a unit [default: 1ms; UDP
    /// is paced more finely]
    #[arg(long, value_name = "TIME", value_parser = values::pacing_timer)]
    pacing_timer: Option<Span>,
    /// Forbid fragmentation by IPv4 routers
    #[arg(long)]
    dont_fragment: bool,
    /// Use 64-bit sequence numbers in datagrams
    #[arg(long)]
    udp_counters_64bit: bool,
    /// Send a pattern instead of random bytes
    #[arg(long)]
    repeating_payload: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// Print one JSON document, with iperf3's keys and further keys under `weir`
    #[arg(short = 'J', long)]
    json: bool,
    /// Print a line of JSON for each event as it happens
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    /// How often to report: seconds, or with a unit; 0 for the end only
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = values::interval)]
    interval: Span,
    /// The unit of rates: k m g t for bits a second, K M G T for bytes; powers of 1000
    #[arg(short, long, value_name = "LETTER", value_parser = values::unit)]
    format: Option<RateUnit>,
    /// Print all figures, stream by stream
    #[arg(short = 'V', long)]
    verbose: bool,
    /// Print only the outcome: the amounts sent and received
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// A title for the test, in front of the output and in the JSON
    #[arg(short = 'T', long, value_name = "TEXT")]
    title: Option<String>,
    /// A text for the JSON of both ends
    #[arg(long, value_name = "TEXT")]
    extra_data: Option<String>,
    /// Write a report of the test to this directory: report.html, report.md and results.json
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the report with a CPU profile of this machine: functions, a flame graph and stacks.
    /// Needs perf events
    #[arg(long, value_name = "DIR", conflicts_with = "report")]
    profile: Option<PathBuf>,
    /// Write the process's number to this file, and remove the file at the end
    #[arg(short = 'I', long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Append the output to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Put the time (UTC) in front of each line of text; a format as of strftime(3) may follow, as
    /// in --timestamps='%T '
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = stamped::USUAL, conflicts_with_all = ["json", "json_stream"])]
    timestamps: Option<String>,
    /// Fetch the server's own output
    #[arg(long, action = ArgAction::SetTrue)]
    get_server_output: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
struct Connection {
    /// The local address, interface or both: 10.0.0.1, %eth0, fe80::1%eth0
    #[arg(short = 'B', long, value_name = "ADDRESS[%DEV]", value_parser = values::bind)]
    bind: Option<Bind>,
    /// The local interface (SO_BINDTODEVICE), for example eth1
    #[arg(long, value_name = "DEV")]
    bind_dev: Option<String>,
    /// The local port of the first stream; the other streams use the next ports
    #[arg(long, value_name = "PORT", value_parser = port::named)]
    cport: Option<u16>,
    /// How long the server may take to answer: milliseconds, or with a unit [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout)]
    connect_timeout: Option<Duration>,
    /// How long a receiver waits without receiving anything: milliseconds, or with a unit [default:
    /// 120s]
    #[arg(long, value_name = "TIME", value_parser = values::silence)]
    rcv_timeout: Option<Duration>,
    /// How long sent data may stay unacknowledged before the test fails (TCP_USER_TIMEOUT):
    /// milliseconds, or with a unit [default: the kernel's limit]
    #[arg(long, value_name = "TIME", value_parser = values::timeout)]
    snd_timeout: Option<Duration>,
    /// Keep the control connection alive across a firewall that forgets idle connections. The
    /// seconds before and between the probes and the number of probes may follow, as in
    /// --cntl-ka=60/10/5 [default of each: the kernel's setting]
    #[arg(long, value_name = "IDLE/INTERVAL/COUNT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "//", value_parser = values::keep_alive)]
    cntl_ka: Option<KeepAlive>,
}

pub(crate) fn run(arguments: &Client) -> anyhow::Result<Ending> {
    arguments.foreign.check()?;
    let cancel = cancel_on_signals()?;
    let stop = Stop::on(cancel.flag());
    let options = ClientOptions {
        credentials: arguments.account.credentials(&stop)?,
        ..arguments.options()?
    };
    if let Some(path) = &arguments.output.logfile {
        background::log_to(path)?;
    }
    // The file is removed when this value is dropped.
    let _pidfile =
        arguments.output.pidfile.as_deref().map(background::PidFile::write).transpose()?;
    let out = io::stdout();
    if arguments.output.json {
        let mut json = Json::new(out).stopping(stop.clone());
        let outcome = arguments.run_for(&options, &stop, &mut json);
        return ended(outcome, json.is_abandoned(), json.finish(), &options.test);
    }
    if arguments.output.json_stream {
        let mut lines = JsonStream::new(out).stopping(stop.clone());
        let outcome = arguments.run_for(&options, &stop, &mut lines);
        return ended(outcome, lines.is_abandoned(), lines.finish(), &options.test);
    }
    let out = Stamped::new(out, arguments.output.timestamps.clone());
    let text = Text::new(out, arguments.output.text_format()).stopping(stop.clone());
    let mut text = WithoutFailure(text);
    let outcome = arguments.run_for(&options, &stop, &mut text);
    ended(outcome, text.0.is_abandoned(), text.0.finish(), &options.test)
}

/// An audience that prints text for users without the failure, which every verb reports on standard
/// error.
#[derive(Debug)]
struct WithoutFailure(Text<Stamped<Stdout>>);

impl Audience for WithoutFailure {
    fn event(&mut self, event: &Event<'_>) {
        if !matches!(event, Event::Failed(_)) {
            self.0.event(event);
        }
    }
}

fn ended<W>(
    outcome: anyhow::Result<Ended>,
    abandoned: bool,
    written: io::Result<W>,
    test: &TestOptions,
) -> anyhow::Result<Ending> {
    let Some(ended) = with_output(outcome, abandoned, written)? else { return Ok(Ending::Fine) };
    match another_algorithm(test, &ended) {
        None => Ok(Ending::Fine),
        Some(difference) => {
            output::note(format_args!("weir: {difference}"));
            Ok(Ending::Failed)
        }
    }
}

/// Combines the outcome of the test with the outcome of its output. The test's failure takes
/// precedence. A failed write of the output is also an error; `None` if a reader closed the pipe
/// early (`weir perf client HOST --json-stream | head`).
fn with_output<T, W>(
    outcome: anyhow::Result<T>,
    abandoned: bool,
    written: io::Result<W>,
) -> anyhow::Result<Option<T>> {
    let called_off = |error: &anyhow::Error| {
        matches!(error.downcast_ref::<PerfError>(), Some(PerfError::Interrupted))
    };
    let written = written.context("writing the output");
    let ended = match outcome {
        Err(error) if abandoned && called_off(&error) => return Ok(None),
        // The failed write stopped the test, so the failed write is the error to report.
        Err(error) if called_off(&error) => {
            written?;
            return Err(error);
        }
        outcome => outcome?,
    };
    written?;
    Ok(Some(ended))
}

/// Returns a note if the data's sender used another algorithm than the user asked for.
fn another_algorithm(test: &TestOptions, ended: &Ended) -> Option<String> {
    let asked = test.congestion.as_deref().filter(|_| test.protocol == Protocol::Tcp)?;
    let (here, there) = (ended.local_congestion.as_deref(), ended.remote_congestion.as_deref());
    let senders = match test.direction {
        Direction::Forward => vec![(here, "here")],
        Direction::Reverse => vec![(there, "there")],
        Direction::Both => vec![(here, "here"), (there, "there")],
    };
    let known = senders.into_iter().filter_map(|(used, place)| Some((used?, place)));
    let (used, place) = known.into_iter().find(|(used, _)| *used != asked)?;
    Some(format!(
        "{asked} was asked for, and {used} was used {place}: these are figures of {used}. A rule of \
         `weir accel` there may have replaced it (`weir accel status`)"
    ))
}

impl Client {
    fn run_for(
        &self,
        options: &ClientOptions,
        stop: &Stop,
        audience: &mut dyn Audience,
    ) -> anyhow::Result<Ended> {
        let (directory, flag) = match (&self.output.report, &self.output.profile) {
            (None, None) => return Ok(perf::client::run(options, stop, audience)?),
            (Some(directory), _) => (directory, "--report"),
            (None, Some(directory)) => (directory, "--profile"),
        };
        crate::destination::check_directory(directory, flag)?;
        let profiling = self.output.profile.as_ref().map(|_| Profiling::start()).transpose()?;
        let mut report = report_audience(directory);
        let outcome = perf::client::run(options, stop, &mut report.beside(audience));
        let written = report.write(profiling);
        match (outcome, written) {
            (Ok(ended), written) => written.map(|()| ended),
            (Err(failure), written) => {
                if let Err(error) = written {
                    // The test's failure decides the exit status.
                    output::note(format_args!("weir: {error:#}"));
                }
                Err(failure.into())
            }
        }
    }

    fn options(&self) -> Result<ClientOptions, PerfError> {
        let defaults = ClientOptions::default();
        let connection = &self.connection;
        let (host, host_device) = host(&self.host)?;
        let bound = connection.bind.as_ref();
        let devices =
            [host_device, connection.bind_dev.clone(), bound.and_then(|bind| bind.device.clone())];
        Ok(ClientOptions {
            host,
            port: self.port,
            family: match (self.v4, self.v6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
            bind: bound.and_then(|bind| bind.address),
            bind_device: devices.into_iter().flatten().next(),
            client_port: connection.cport,
            connect_timeout: connection.connect_timeout.unwrap_or(defaults.connect_timeout),
            receive_timeout: connection.rcv_timeout.unwrap_or(defaults.receive_timeout),
            send_timeout: connection.snd_timeout,
            keep_alive: connection.cntl_ka,
            affinity: self.streams.affinity.and_then(|affinity| affinity.here),
            interval: self.output.interval,
            test: self.test()?,
            probes: !self.test.no_probes,
            idle_probe: if self.test.no_probes { Span::ZERO } else { self.test.idle_probe },
            probe_cost: self.test.probe_cost,
            credentials: None,
        })
    }

    fn test(&self) -> Result<TestOptions, PerfError> {
        let (test, streams) = (&self.test, &self.streams);
        let defaults = TestOptions::default();
        let protocol = if test.udp { Protocol::Udp } else { Protocol::Tcp };
        self.fits(protocol)?;
        Ok(TestOptions {
            protocol,
            direction: match (test.reverse, test.bidir) {
                (true, _) => Direction::Reverse,
                (_, true) => Direction::Both,
                _ => Direction::Forward,
            },
            amount: match (test.time, test.bytes, test.blockcount) {
                (_, Some(bytes), _) => Amount::Bytes(bytes),
                (_, _, Some(blocks)) => Amount::Blocks(blocks),
                (time, ..) => time.map_or(defaults.amount, Amount::Time),
            },
            omit: test.omit.unwrap_or(defaults.omit),
            streams: test.parallel,
            block: streams.length,
            rate: match test.bitrate {
                Some(asked) => asked.rate,
                // iperf3's default, so that a test without the option does not flood a network.
                None if test.udp => Some(Rate::from_mbit(1)),
                None => None,
            },
            burst: test.bitrate.and_then(|asked| asked.burst).unwrap_or(defaults.burst),
            pacing_timer: streams.pacing_timer.unwrap_or(defaults.pacing_timer),
            kernel_rate: streams.fq_rate.filter(|rate| rate.bits_per_second() > 0),
            window: streams.window,
            mss: streams.set_mss,
            no_delay: streams.no_delay,
            congestion: streams.congestion.as_deref().map(congestion).transpose()?,
            type_of_service: streams.tos.or(streams.dscp).unwrap_or(0),
            flow_label: streams.flowlabel,
            zero_copy: streams.zerocopy,
            skip_receive_copy: streams.skip_rx_copy,
            repeating_payload: streams.repeating_payload,
            dont_fragment: streams.dont_fragment,
            udp_wide_counters: streams.udp_counters_64bit,
            server_output: self.output.get_server_output,
            server_affinity: streams.affinity.and_then(|affinity| affinity.there),
            title: self.output.title.clone(),
            extra_data: self.output.extra_data.clone(),
        })
    }

    /// Refuses an option of one protocol in a test of another protocol, which clap cannot check.
    fn fits(&self, protocol: Protocol) -> Result<(), PerfError> {
        let streams = &self.streams;
        let refuse = |text: &str| Err(PerfError::Usage(text.to_owned()));
        match protocol {
            Protocol::Tcp if streams.udp_counters_64bit => {
                refuse("--udp-counters-64bit is for UDP: add --udp")
            }
            Protocol::Udp if streams.set_mss.is_some() => {
                refuse("--set-mss is for TCP: --length sets a datagram's size")
            }
            Protocol::Udp if streams.congestion.is_some() => {
                refuse("--congestion is for TCP: leave it or --udp out")
            }
            Protocol::Udp if streams.no_delay => {
                refuse("--no-delay is for TCP: datagrams are never held back")
            }
            Protocol::Udp if streams.length.is_some_and(|size| !UDP_SIZES.contains(&size)) => {
                refuse("a datagram carries 16 to 65507 bytes: change --length")
            }
            _ => Ok(()),
        }
    }
}

impl Output {
    fn text_format(&self) -> TextFormat {
        TextFormat {
            unit: self.format.unwrap_or_default(),
            verbose: self.verbose,
            quiet: self.quiet,
            ..TextFormat::of_stdout()
        }
    }
}

/// Splits a host from its interface: the interface is part of a link-local address, and separate
/// from other addresses.
fn host(text: &str) -> Result<(String, Option<String>), PerfError> {
    match text.split_once('%') {
        Some((_, "") | ("", _)) => {
            Err(PerfError::Usage(format!("`{text}` lacks a part: write HOST%INTERFACE")))
        }
        Some((host, device)) if !host.contains(':') => {
            Ok((host.to_owned(), Some(device.to_owned())))
        }
        _ if text.is_empty() => Err(PerfError::Usage("name the server".to_owned())),
        _ => Ok((text.to_owned(), None)),
    }
}

/// Checks the name of the algorithm, to suggest the closest known name. A kernel may load
/// algorithms that it does not list.
fn congestion(name: &str) -> Result<String, PerfError> {
    let listed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    if listed.is_empty() || listed.split_whitespace().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let hint = units::did_you_mean(name, listed.split_whitespace());
    if hint.is_empty() {
        return Ok(name.to_owned());
    }
    Err(PerfError::Usage(format!("this kernel has no congestion control `{name}`{hint}")))
}

/// Sizes of datagrams: from the size of a header to the payload that IPv4 and UDP leave of 65535.
const UDP_SIZES: std::ops::RangeInclusive<Bytes> = Bytes::new(16)..=Bytes::new(65_507);
pub(crate) const EXAMPLES: &str = "\
Examples:
  weir perf client 10.0.0.2                    # TCP, and latency under its load
  weir perf client 10.0.0.2 -R -P 4 -t 30      # four streams, the server sends
  weir perf client 10.0.0.2 -u -b 600mbit      # UDP: loss, order and jitter
  weir perf client 10.0.0.2 --bidir -C bbr -J  # both directions, as JSON
  weir perf client host -n 1GiB -Z -A 0,1      # no copy, both ends pinned
  weir perf client host --profile where        # the functions that use the CPUs
  weir perf client host -t 120 --probe-cost    # measure the cost of the probes
  weir perf client host --username user --rsa-public-key public.pem

The far end is `weir perf server`, or `iperf3 -s` of version 3.12 or later; options are iperf3's.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_the_test_with_the_reason() {
        let called_off = || Err::<(), _>(PerfError::Interrupted.into());
        let full = || Err::<(), _>(io::ErrorKind::StorageFull.into());
        let error = with_output(called_off(), false, full()).unwrap_err();
        assert!(error.to_string().starts_with("writing the output"), "{error}");
        let error = with_output(called_off(), false, Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        assert!(with_output(called_off(), true, Ok(())).is_ok());
        assert!(with_output(Ok(()), false, full()).is_err());
    }
}
