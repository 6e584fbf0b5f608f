mod cpus;
mod ndr;
mod trex;

use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use clap::{Args, Subcommand};
use generator::run::{self, Job, Lane, Pace, PortSpec, Probe, Snapshot};
use generator::{Capture, Frequency, GenError, Plan, PlanOptions, report};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::Span;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    disable_version_flag = true,
    after_help = EXAMPLES
)]
pub(crate) struct Gen {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The profile: a file in TRex's YAML, or one of --profiles
    #[arg(short, value_name = "PROFILE")]
    file: Option<PathBuf>,
    /// Multiply every template's new flows a second, for example by 10 or 0.5
    #[arg(short, value_name = "FACTOR", default_value_t = 1.0)]
    multiplier: f64,
    /// Send for so long, for example 60 or 60s [default: the profile's duration]
    #[arg(short, value_name = "TIME")]
    duration: Option<String>,
    /// Sending threads, one a core
    #[arg(short, value_name = "THREADS", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: u16,
    /// Also send so many packets a second by each port that measure latency, loss and order, for
    /// example 100
    #[arg(short, value_name = "PPS")]
    latency: Option<String>,
    /// A port: INTERFACE, NAMESPACE:INTERFACE, xdp:INTERFACE, tap:NAME, ring:PATH,
    /// vhost-user:PATH, pcap:FILE or null, and its addresses, for example
    /// veth0,ip=192.168.10.2,gateway=192.168.10.1. In pairs, clients first
    #[arg(short, long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// Take the ports from TRex's platform file [default without --port: /etc/trex_cfg.yaml, if it
    /// exists]
    #[arg(long, value_name = "FILE", conflicts_with = "ports")]
    cfg: Option<PathBuf>,
    /// The order of addresses: lockstep as in TRex, or destination, where the client stays until
    /// every server was used
    #[arg(long, value_name = "ORDER", default_value = "lockstep")]
    addressing: String,
    /// Send IPv6 packets, with the profile's src_ipv6 and dst_ipv6 before the addresses
    #[arg(long)]
    ipv6: bool,
    /// Give up after so long if the ports are full, for example 300 or 5min [default: four times
    /// the duration and 5 s]
    #[arg(long, value_name = "TIME")]
    max_time: Option<String>,
    /// Time between opening the ports and sending, for example 2s [default: 1s with a vhost-user
    /// port, because some switches need this time to make the port ready; none otherwise]
    #[arg(short, long, value_name = "TIME")]
    wait: Option<String>,
    /// Run on these CPUs, for example 2-5 [default: all but those that a thread of another program
    /// is pinned to]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Do not ask for real-time scheduling
    #[arg(long)]
    no_real_time: bool,
    /// Check the profile, print what would be sent and end
    #[arg(long)]
    check: bool,
    /// List the captures that are built in
    #[arg(long)]
    captures: bool,
    /// List the profiles that are built in
    #[arg(long)]
    profiles: bool,
    /// Print one JSON document at the end instead of the tables; also of --check, --captures and
    /// --profiles
    #[arg(long)]
    json: bool,
    /// TRex's mode of the live table: 0 shows no table
    #[arg(long, hide = true, value_name = "MODE", value_parser = clap::value_parser!(u8).range(0..=2))]
    iom: Option<u8>,
    #[command(flatten)]
    trex: trex::TrexOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find the highest rates that a device forwards without loss (MLRsearch, RFC 2544, RFC 9004)
    #[command(after_help = ndr::EXAMPLES)]
    Ndr(Box<ndr::Ndr>),
}

pub(crate) fn run(arguments: Gen) -> anyhow::Result<Ending> {
    if let Some(Verb::Ndr(arguments)) = &arguments.verb {
        return ndr::run(arguments);
    }
    arguments.trex.check()?;
    if arguments.captures {
        let names = Capture::built_in_names().map(|name| format!("{name}.pcap"));
        return listed(&names.collect::<Vec<_>>(), arguments.json);
    }
    if arguments.profiles {
        let names = generator::profile::shipped_names().map(str::to_owned);
        return listed(&names.collect::<Vec<_>>(), arguments.json);
    }
    let Some(file) = &arguments.file else {
        return Err(GenError::Usage("no profile: name one with -f".to_owned()).into());
    };
    let (profile, captures) = generator::load(file)?;
    let duration = match &arguments.duration {
        Some(text) => time(text)?,
        None => profile.duration,
    };
    check_range(arguments.multiplier, duration)?;
    let specs = ports(&arguments.port_texts()?, arguments.check)?;
    let rate = arguments.latency.as_deref().map(str::parse::<Frequency>).transpose()?;
    let options = PlanOptions {
        addressing: arguments.addressing.parse()?,
        ipv6: arguments.ipv6,
        stamped: false,
    };
    if arguments.check {
        let lanes = vec![generator::LaneAddresses::default(); specs.len().max(1)];
        let plan = Plan::new(&profile, &captures, &lanes, options)?;
        plan.check(arguments.multiplier, duration)?;
        return checked(&arguments, &plan, duration);
    }
    let cancel = cancel_on_signals()?;
    let wait = settling(arguments.wait.as_deref(), &specs)?;
    cpus::choose(arguments.cpus.as_deref())?;
    generator::confine(&specs, None);
    let mut lanes = Lane::open_all(&specs, &cancel.flag())?;
    run::settle(wait, &cancel.flag());
    let addresses: Vec<_> = lanes.iter().map(Lane::addresses).collect();
    let plan = Arc::new(Plan::new(&profile, &captures, &addresses, options)?);
    plan.check(arguments.multiplier, duration)?;
    for note in plan.notes() {
        output::note(format_args!("note: {note}"));
    }
    let at_most = match &arguments.max_time {
        Some(text) => time(text)?,
        None => duration * 4 + Span::from_secs(5),
    };
    let probes = rate.map(|rate| Probe::streams(&lanes, &plan, rate)).transpose()?;
    let job = Job {
        plan: Arc::clone(&plan),
        multiplier: arguments.multiplier,
        duration,
        threads: usize::from(arguments.cores),
        pace: Pace::Complete { at_most },
        drain: if lanes.iter().any(Lane::receives) { DRAIN } else { Span::ZERO },
        probes: probes.unwrap_or_default(),
        first_stream: 0,
        late_after: None,
        real_time: !arguments.no_real_time,
    };
    let mut screen = Screen::new(arguments.json || arguments.iom == Some(0));
    let outcome = run::run(&mut lanes, &job, &cancel.flag(), |now| {
        screen.show(&plan, arguments.multiplier, now);
    })?;
    screen.end();
    if arguments.json {
        let document = report::document(&plan, arguments.multiplier, &outcome);
        output::print(format_args!("{document:#}\n"))?;
    } else {
        output::print(report::summary(&outcome))?;
    }
    let failed = outcome.error.is_some() || !outcome.missed().is_empty() || outcome.cancelled;
    Ok(if failed { Ending::Failed } else { Ending::Fine })
}

fn listed(names: &[String], json: bool) -> anyhow::Result<Ending> {
    let text = if json { serde_json::to_string_pretty(names)? } else { names.join("\n") };
    output::print(text + "\n")?;
    Ok(Ending::Fine)
}

impl Gen {
    fn port_texts(&self) -> anyhow::Result<Vec<String>> {
        let file = match &self.cfg {
            Some(file) => file.clone(),
            None if self.ports.is_empty() && Path::new(PLATFORM).exists() => PLATFORM.into(),
            None => return Ok(self.ports.clone()),
        };
        let name = file.display().to_string();
        let text = host::read_regular_file(&file)
            .map_err(|reason| GenError::Unreadable { file: name.clone(), reason })?;
        let ports = generator::profile::ports_of_platform(&name, &text, Path::new(CARDS));
        Ok(ports.map_err(GenError::from)?)
    }
}

/// Parses a number of seconds, as TRex takes it, or a time with a unit.
fn time(text: &str) -> anyhow::Result<Span> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Span::from_secs_f64(seconds)),
        _ => text.parse().map_err(|error| GenError::Usage(format!("{error}")).into()),
    }
}

/// Returns how long to wait until the peers of the ports are ready.
fn settling(asked: Option<&str>, specs: &[PortSpec]) -> anyhow::Result<Span> {
    match asked {
        Some(text) => match time(text)? {
            span if span <= LONGEST_WAIT => Ok(span),
            _ => Err(GenError::Usage(format!("--wait is at most {LONGEST_WAIT}")).into()),
        },
        None if specs.iter().any(PortSpec::is_virtio) => Ok(USUAL_WAIT),
        None => Ok(Span::ZERO),
    }
}

fn check_range(multiplier: f64, duration: Span) -> anyhow::Result<()> {
    if !(multiplier.is_finite() && multiplier > 0.0) {
        return Err(GenError::Usage("-m is a factor above 0, such as 0.5 or 10".to_owned()).into());
    }
    if duration == Span::ZERO || duration > LONGEST {
        return Err(GenError::Usage(
            "the duration is more than 0 and at most a week: set it with -d".to_owned(),
        )
        .into());
    }
    Ok(())
}

fn ports(texts: &[String], none_needed: bool) -> anyhow::Result<Vec<PortSpec>> {
    if texts.is_empty() && !none_needed {
        return Err(GenError::Usage(
            "no port: name two with --port, clients first, for example --port veth0 --port veth1; \
             `--port null` measures the generator itself"
                .to_owned(),
        )
        .into());
    }
    Ok(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

fn checked(arguments: &Gen, plan: &Plan, duration: Span) -> anyhow::Result<Ending> {
    let multiplier = arguments.multiplier;
    for note in plan.notes() {
        output::note(format_args!("note: {note}"));
    }
    let packets = plan.packet_rate(multiplier);
    if arguments.json {
        let document = report::planned(plan, multiplier, duration);
        output::print(format_args!("{document:#}\n"))?;
        return Ok(Ending::Fine);
    }
    output::print(format_args!(
        "The profile is valid: {} in {} new flows a second for {duration}, {} in all.\n",
        packets,
        plan.flow_rate(multiplier).events(),
        packets.times(duration.secs_f64()).events().round(),
    ))?;
    Ok(Ending::Fine)
}

/// The live table, drawn only on a terminal.
struct Screen {
    before: Option<Snapshot>,
    is_live: bool,
}

impl Screen {
    fn new(is_silent: bool) -> Self {
        Self { before: None, is_live: !is_silent && std::io::stdout().is_terminal() }
    }

    fn show(&mut self, plan: &Plan, multiplier: f64, now: &Snapshot) {
        if !self.is_live {
            return;
        }
        let Some(before) = &self.before else {
            self.before = Some(now.clone());
            return;
        };
        if now.elapsed.saturating_sub(before.elapsed) < Span::from_secs(1) {
            return;
        }
        let table = report::live_table(plan, multiplier, before, now);
        let mut stdout = std::io::stdout().lock();
        let _ = write!(stdout, "\x1b[H\x1b[J{table}").and_then(|()| stdout.flush());
        self.before = Some(now.clone());
    }

    fn end(&self) {
        if self.is_live {
            let _ = write!(std::io::stdout(), "\x1b[H\x1b[J");
        }
    }
}

const PLATFORM: &str = "/etc/trex_cfg.yaml";
/// The kernel's folder of PCI devices.
const CARDS: &str = "/sys/bus/pci/devices";
/// Time to wait for packets in flight at the end.
const DRAIN: Span = Span::from_millis(500);
const LONGEST: Span = Span::from_secs(7 * 86_400);
/// The default wait, the same as TRex's. Open vSwitch took 0.7 s to set up memory for a port whose
/// first driver connected, and lost packets for that port until then.
const USUAL_WAIT: Span = Span::from_secs(1);
const LONGEST_WAIT: Span = Span::from_secs(3600);

const EXAMPLES: &str = "\
Example, with both ports of a tested device at veth0 and veth1:

  # weir gen -f imix_64.yaml -m 10 -d 60 -c 2 --port veth0 --port veth1

Profiles that are built in (`--profiles`; the package installs them in /usr/share/weir/profiles):

  imix.yaml            the simple IMIX: 7 x 64, 4 x 594 and 1 x 1518 bytes
  imix_64.yaml         64 bytes, 255 flows, as in the flow-rules report
  imix_64_65535.yaml   64 bytes, 65,535 flows
  imix_64_131070.yaml  64 bytes, 131,070 flows

A file of that name takes precedence, and TRex's folder cap2/ may stand before it. Captures that a profile names are looked for next to the profile; those of TRex that are missing
are built in (`--captures`). Every packet is sent: if a port has no room, the run takes longer than
planned, and the summary shows both times. The exit status is 1 if the offered rate was not kept.";
