use super::{cpus, ports, settling, time};
use crate::destination;
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use clap::Args;
use generator::ndr::{self, Bench, Event, Goal, PortTester, SizeResult};
use generator::run::{self, Lane};
use generator::{
    Addressing, Capture, FrameMix, Frequency, GenError, Load, Plan, PlanOptions, Profile,
};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{Bytes, Share, Span};

#[derive(Debug, Args)]
pub(crate) struct Ndr {
    /// A port: INTERFACE, NAMESPACE:INTERFACE, xdp:INTERFACE, tap:NAME, ring:PLACE,
    /// vhost-user:PATH or null, and its addresses, for example
    /// veth0,ip=192.168.10.2,gateway=192.168.10.1. In pairs; the first one sends
    #[arg(short, long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// Sizes of frames on the wire, check sequence included, or imix (7 x 64, 4 x 594, 1 x 1518),
    /// for example 64,1518,imix
    #[arg(short, long, value_name = "BYTES", value_delimiter = ',', default_value = "64")]
    size: Vec<String>,
    /// The number of different flows
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// Take the packets of a profile instead, of a file or of `weir gen --profiles`; every packet
    /// needs 18 bytes of UDP payload
    #[arg(short, value_name = "PROFILE", conflicts_with_all = ["size", "flows"])]
    file: Option<PathBuf>,
    /// The order of addresses: lockstep or destination
    #[arg(long, value_name = "ORDER", default_value = "lockstep")]
    addressing: String,
    /// Loss goals, each a share of the packets; the rate is searched for every goal
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "0,0.5%")]
    goal: Vec<String>,
    /// Duration of the trials that decide
    #[arg(long, value_name = "TIME", default_value = "1s")]
    trial: String,
    /// Time measured at one load, over all its trials
    #[arg(long, value_name = "TIME", default_value = "20s")]
    sum: String,
    /// The part of that time that may be beyond the goal
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    exceed: String,
    /// The relative distance of the bounds at the end
    #[arg(long, value_name = "SHARE", default_value = "0.5%")]
    width: String,
    /// Also search RFC 2544's throughput: no loss in 60 s
    #[arg(long)]
    rfc2544: bool,
    /// The lowest load: packets a second, for example 500k, or bits a second of the line, for
    /// example 50mbit [default: a tenth of the rate forwarded under the highest load; below 20,000
    /// packets a second up to half of it]
    #[arg(long, value_name = "RATE")]
    min_rate: Option<String>,
    /// The highest load, for example 1.2mpps or 1gbit, preamble and gap of Ethernet included
    /// [default: nine tenths of what the generator reaches]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<String>,
    /// Sending threads, one a core
    #[arg(short, value_name = "THREADS", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: u16,
    /// Duration of each measurement of latency, at 50, 90 and 99 % of the rate found
    #[arg(long, value_name = "TIME", default_value = "5s")]
    latency_time: String,
    /// Measure no latency
    #[arg(long)]
    no_latency: bool,
    /// Measure no back-to-back frames
    #[arg(long)]
    no_back_to_back: bool,
    /// Wait so long between opening the ports and the first trial [default: 1 s with a vhost-user
    /// port, none otherwise]
    #[arg(short, long, value_name = "TIME")]
    wait: Option<String>,
    /// Run on these CPUs, for example 2-5 [default: all but those that a thread of another program
    /// is pinned to]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Do not ask for real-time scheduling
    #[arg(long)]
    no_real_time: bool,
    /// Also write a report in Markdown; an existing file is replaced
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Ndr) -> anyhow::Result<Ending> {
    let bench = arguments.bench()?;
    let range = arguments.range()?;
    let specs = ports(&arguments.ports, false)?;
    let loads = arguments.loads()?;
    let options = PlanOptions {
        addressing: arguments.addressing.parse::<Addressing>()?,
        ipv6: false,
        stamped: true,
    };
    if let Some(file) = &arguments.report {
        destination::check_file(file, "--report")?;
    }
    let cancel = cancel_on_signals()?;
    let wait = settling(arguments.wait.as_deref(), &specs)?;
    cpus::choose(arguments.cpus.as_deref())?;
    generator::confine(&specs, arguments.report.as_deref());
    let mut lanes = Lane::open_all(&specs, &cancel.flag())?;
    run::settle(wait, &cancel.flag());
    if !lanes.iter().any(Lane::receives) {
        return Err(GenError::Usage(
            "no port receives: add the port behind the device by a second --port".to_owned(),
        )
        .into());
    }
    let addresses: Vec<_> = lanes.iter().map(Lane::addresses).collect();
    let mut results: Vec<(String, SizeResult)> = Vec::new();
    for (name, profile, captures) in loads {
        let plan = Arc::new(Plan::new(&profile, &captures, &addresses, options)?);
        let bench = range.of(&bench, plan.mean_wire_size())?;
        let threads = usize::from(arguments.cores);
        let mut tester = PortTester::new(&mut lanes, plan, threads, cancel.flag());
        tester.real_time = !arguments.no_real_time;
        let flag = cancel.flag();
        let mut progress = Progress::new(&name);
        let result = bench.run(
            &mut tester,
            || flag.load(Ordering::Relaxed),
            |event| progress.tell(&event),
        )?;
        progress.end();
        let is_cancelled = result.stopped == Some(ndr::Stop::Cancelled);
        results.push((name, result));
        if is_cancelled {
            break;
        }
    }
    if arguments.json {
        output::print(format_args!("{:#}\n", ndr::json(&results)))?;
    } else {
        output::print(ndr::text(&results))?;
    }
    if let Some(file) = &arguments.report {
        let environment =
            arguments.environment(&specs.iter().map(ToString::to_string).collect::<Vec<_>>());
        destination::write(file, ndr::markdown(&results, &environment))
            .map_err(|reason| GenError::Unwritable { file: file.display().to_string(), reason })?;
        output::note(format_args!("The report is in {}.", file.display()));
    }
    let is_valid = results.iter().all(|(_, result)| result.is_valid());
    Ok(if is_valid { Ending::Fine } else { Ending::Failed })
}

impl Ndr {
    fn bench(&self) -> anyhow::Result<Bench> {
        let share = |text: &str| -> Result<Share, GenError> {
            text.parse().map_err(|error| GenError::Usage(format!("{error}")))
        };
        let (final_trial, duration_sum) = (time(&self.trial)?, time(&self.sum)?);
        let (exceed, width) = (share(&self.exceed)?, share(&self.width)?);
        if final_trial < SHORTEST || final_trial > LONGEST || duration_sum > LONGEST {
            return Err(GenError::Usage("--trial and --sum are from 50ms to 1h".to_owned()).into());
        }
        if width.is_zero() || width.fraction() > 0.5 || exceed.fraction() > 0.95 {
            return Err(GenError::Usage(
                "--width is above 0 and at most 50%, --exceed at most 95%".to_owned(),
            )
            .into());
        }
        let mut goals = Vec::new();
        for text in &self.goal {
            goals.push(Goal { loss: share(text)?, final_trial, duration_sum, exceed, width });
        }
        if self.rfc2544 {
            goals.push(Goal { width, ..Goal::rfc_2544() });
        }
        let latency = if self.no_latency { None } else { Some(time(&self.latency_time)?) };
        let back_to_back = !self.no_back_to_back;
        Ok(Bench { goals, lowest: None, highest: None, latency, back_to_back })
    }

    /// Returns the loads that the user named. Checks the order of the loads at once if the order
    /// does not depend on the sizes of packets.
    fn range(&self) -> anyhow::Result<LoadRange> {
        let load = |text: &Option<String>| text.as_deref().map(str::parse::<Load>).transpose();
        let range = LoadRange { lowest: load(&self.min_rate)?, highest: load(&self.max_rate)? };
        let is_alike = matches!(
            (range.lowest, range.highest),
            (Some(Load::Packets(_)), Some(Load::Packets(_)))
                | (Some(Load::Bits(_)), Some(Load::Bits(_)))
        );
        if is_alike {
            range.packets(Bytes::new(1))?;
        }
        Ok(range)
    }

    /// Returns the packets to offer: each size, or the packets of a profile.
    fn loads(&self) -> anyhow::Result<Vec<(String, Profile, Vec<Capture>)>> {
        if let Some(file) = &self.file {
            let (profile, captures) = generator::load(file)?;
            return Ok(vec![(file.display().to_string(), profile, captures)]);
        }
        let mut loads = Vec::new();
        for text in &self.size {
            let mix: FrameMix = text.parse()?;
            let (profile, captures) = mix.profile(self.flows, Span::from_secs(1));
            loads.push((mix.name, profile, captures));
        }
        Ok(loads)
    }

    fn environment(&self, ports: &[String]) -> Vec<(String, String)> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let flows = match &self.file {
            Some(file) => format!("those of {}", file.display()),
            None => self.flows.to_string(),
        };
        [
            ("generator", format!("weir {}", env!("CARGO_PKG_VERSION"))),
            ("kernel", kernel.trim().to_owned()),
            ("ports", ports.join(", ")),
            ("flows", flows),
            ("sending threads", self.cores.to_string()),
            ("trials", format!("{} each, {} at one load", self.trial, self.sum)),
            ("share of the time that may exceed the goal", self.exceed.clone()),
            ("width of the bounds", self.width.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct LoadRange {
    lowest: Option<Load>,
    highest: Option<Load>,
}

impl LoadRange {
    /// Returns the test with these loads, for packets that take `size` on the wire.
    fn of(self, bench: &Bench, size: Bytes) -> Result<Bench, GenError> {
        let (lowest, highest) = self.packets(size)?;
        Ok(Bench { lowest, highest, ..bench.clone() })
    }

    fn packets(self, size: Bytes) -> Result<(Option<Frequency>, Option<Frequency>), GenError> {
        let packets = |load: Option<Load>| load.map(|load| load.packets(size));
        let (lowest, highest) = (packets(self.lowest), packets(self.highest));
        if [lowest, highest].into_iter().flatten().any(|rate| rate.events() < 1.0) {
            let problem =
                "the rates are at least 1 packet a second: raise --min-rate or --max-rate";
            return Err(GenError::Usage(problem.to_owned()));
        }
        if let (Some(lowest), Some(highest)) = (lowest, highest)
            && lowest >= highest
        {
            let problem = "--min-rate is not below --max-rate: lower it, or leave one of them out";
            return Err(GenError::Usage(problem.to_owned()));
        }
        Ok((lowest, highest))
    }
}

/// A line of progress on the terminal, which each trial overwrites.
struct Progress {
    name: String,
    trials: u32,
    is_shown: bool,
}

impl Progress {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), trials: 0, is_shown: std::io::stderr().is_terminal() }
    }

    fn tell(&mut self, event: &Event<'_>) {
        let line = match event {
            Event::Trial(trial) => {
                self.trials += 1;
                match &trial.invalid {
                    Some(reason) => format!("trial {} at {}: {reason}", self.trials, trial.load),
                    None => format!(
                        "trial {} at {}: {:.3} % lost",
                        self.trials,
                        trial.load,
                        trial.loss() * 100.0
                    ),
                }
            }
            Event::Goal(goal) => format!("{} is decided", goal.goal.name()),
            Event::Latency(percent) => format!("latency at {percent} %"),
            Event::BackToBack => "back-to-back frames".to_owned(),
        };
        tracing::debug!(size = %self.name, %line);
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}: {line}", self.name);
        }
    }

    fn end(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

const SHORTEST: Span = Span::from_millis(50);
const LONGEST: Span = Span::from_secs(3600);

pub(super) const EXAMPLES: &str = "\
Example, with a device between veth0 and veth1:

  # weir gen ndr --port veth0 --port veth1 --size 64,1518,imix --report ndr.md

A trial in which the generator did not keep its own load, or this machine dropped packets before
it counted them, is invalid and is repeated; it is never a result. A result of `generator-limited`
is a bound from below. Packets that come more than 0.5 % of the trial's duration after its end
count as lost: a device that only fills a queue does not forward them at that rate.";
