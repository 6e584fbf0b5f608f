pub(crate) mod load;
mod page;
mod serve;
mod subject;
mod two_ends;

use crate::destination;
use crate::exit::Ending;
use crate::output;
use crate::port;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use doctor::confinement::RecordingFile;
use doctor::observe::{self, DropWatch, Focus, Plan};
use doctor::test_path::{self, TestPlan};
use doctor::{Diagnosis, DoctorError, Question, Recording};
use lab::Cancel;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use subject::Subject;
use units::Span;

#[derive(Debug, Args)]
#[command(disable_version_flag = true, after_help = DETAILS)]
pub(crate) struct Doctor {
    /// A host to test with, which runs `weir perf server` or iperf3 -s. Or a file that --record
    /// wrote, perhaps on another machine, or a directory that --report, `weir perf --report` or
    /// `weir lab run` wrote, a result of iperf3 -J, or a capture of packets (pcap, pcapng)
    #[arg(value_name = "HOST|RUN")]
    subject: Option<String>,
    /// The port of the host's server
    #[arg(short, long, value_name = "N", default_value_t = perf::options::PORT, value_parser = port::named)]
    port: u16,
    /// Judge a recording that comes with weir: `slow-nic`, a board with one core
    #[arg(long, value_name = "NAME", conflicts_with = "subject", value_parser = doctor::examples::NAMES)]
    example: Option<String>,
    /// Test between two machines that ssh reaches, and observe both: the client of the test
    #[arg(long, value_name = "HOST", requires = "to", conflicts_with_all = TWO_ENDS_ALONE)]
    from: Option<String>,
    /// The server of the test
    #[arg(long, value_name = "HOST", requires = "from")]
    to: Option<String>,
    /// The address of --to for --from [default: the address of the ssh connection]
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    address: Option<std::net::IpAddr>,
    /// With --from and --to: the file that ssh reads instead of your configuration (its option -F)
    #[arg(long, value_name = "FILE", requires = "to")]
    ssh_config: Option<PathBuf>,
    /// Test with the host for longer, up to thirty seconds in all
    #[arg(long)]
    thorough: bool,
    /// Judge the connections of a process, a port or an address: 4711, pid:4711, port:443,
    /// 10.0.0.2, 10.0.0.2:443
    #[arg(long, value_name = "PID|PORT|ADDR")]
    flow: Option<String>,
    /// Judge as if the machine had only these CPUs, for example the CPUs of a container or of a
    /// lab's host. The other CPUs and their threads are left out
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<BTreeSet<usize>>,
    /// Observe for so many seconds [default: 3]
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=600))]
    time: Option<u16>,
    /// Judge the packets that pass an interface instead of the sockets of this machine
    #[arg(long, value_name = "IFACE")]
    capture: Option<String>,
    /// Keep observing, and print a line whenever the verdict changes
    #[arg(long)]
    watch: bool,
    /// Keep observing, serve figures for Prometheus at an address of this host, and print a line of
    /// JSON when a verdict begins or ends [default: 127.0.0.1:9152]
    #[arg(long, value_name = "ADDRESS|unix:PATH", num_args = 0..=1, default_missing_value = serve::ADDRESS)]
    serve: Option<host::MetricsAddress>,
    /// Series of connections that --serve keeps apart; further series are counted as `other`
    #[arg(long, value_name = "N", default_value_t = serve::SERIES, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    series: u16,
    /// Also write all signals to a file, which names processes and peers; an existing file is
    /// replaced
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Also write a page with time series to this directory, and the recording beside it
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Show every cause that was ruled out or could not be seen
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(arguments: &Doctor) -> anyhow::Result<Ending> {
    if let (Some(from), Some(to)) = (&arguments.from, &arguments.to) {
        return two_ends::run(arguments, [from, to]);
    }
    let subject = arguments.subject()?;
    if let Some(directory) = &arguments.report {
        destination::check_directory(directory, "--report")?;
    }
    if let Some(path) = &arguments.record {
        destination::check_file(path, "--record")?;
    }
    if let (Some(cpus), false) = (&arguments.cpus, subject.is_recording()) {
        doctor::recording::chosen::check(cpus, &observe::cpus())?;
    }
    if arguments.watch {
        confine();
        return arguments.watch();
    }
    if let Some(address) = &arguments.serve {
        return serve::run(arguments, address);
    }
    let file = arguments.confine(&subject)?;
    let mut recording = match &subject {
        Subject::Example(name) => doctor::examples::open(name)?,
        Subject::Recording(path) => doctor::saved::open(path, &arguments.focus()?)?,
        Subject::Host(host) => arguments.test(host)?,
        Subject::Machine => match &arguments.capture {
            Some(interface) => arguments.capture(interface)?,
            None => arguments.observe()?,
        },
    };
    arguments.limit(&mut recording)?;
    if let (Some(path), false) = (&arguments.record, subject.is_recording()) {
        match &file {
            Some(file) => recording = file.write(recording)?,
            None => recording.write(path)?,
        }
        output::note(format_args!("The recording is in {}.", path.display()));
    }
    let observed = observe::own_cpu_time();
    let mut diagnosis = doctor::diagnose(&recording, Question::of(&recording));
    if !subject.is_recording() {
        diagnosis.add_own_cpu(observe::own_cpu_time() - observed);
    }
    arguments.print(&diagnosis)?;
    if let Some(directory) = &arguments.report {
        page::write(directory, &recording, &diagnosis)?;
    }
    Ok(Ending::Fine)
}

impl Doctor {
    fn subject(&self) -> Result<Subject, DoctorError> {
        let subject = match &self.example {
            Some(name) => Subject::Example(name.clone()),
            None => Subject::of(self.subject.as_deref()),
        };
        let refuse = |what: &str| Err(DoctorError::Usage(what.to_owned()));
        let host = matches!(subject, Subject::Host(_));
        match &subject {
            Subject::Recording(_) | Subject::Example(_) | Subject::Host(_)
                if self.serve.is_some() =>
            {
                refuse("--serve is for the connections of this machine: leave out the host or file")
            }
            _ if self.serve.is_some() && (self.watch || self.capture.is_some()) => refuse(
                "--serve observes the sockets of this machine itself: leave out --watch and --capture",
            ),
            _ if self.serve.is_none() && self.series != serve::SERIES => {
                refuse("--series is for --serve: add --serve")
            }
            Subject::Example(_) if self.flow.is_some() => {
                refuse("an example is judged as a whole: leave out --flow")
            }
            Subject::Recording(_) | Subject::Example(_) if self.time.is_some() || self.watch => {
                refuse("a recording is not observed again: leave out --time and --watch")
            }
            Subject::Recording(_) | Subject::Example(_) | Subject::Host(_)
                if self.capture.is_some() =>
            {
                refuse(
                    "--capture is for packets that pass this machine: leave out the host or file",
                )
            }
            _ if self.capture.is_some() && (self.watch || self.cpus.is_some()) => {
                refuse("a capture knows no CPUs and is judged once: leave out --watch and --cpus")
            }
            Subject::Recording(_) | Subject::Example(_) if self.record.is_some() => {
                refuse("a recording is not recorded again: leave out --record")
            }
            Subject::Host(_) if self.flow.is_some() || self.time.is_some() || self.watch => refuse(
                "a test with a host has its own length and its own connections: leave out --flow, --time and --watch, \
                 or the host",
            ),
            _ if self.thorough && !host => {
                refuse("--thorough is for a test with a host: name the host")
            }
            _ if (self.watch || self.serve.is_some())
                && (self.record.is_some() || self.report.is_some()) =>
            {
                refuse(
                    "--record and --report need an observation with an end: leave out --watch and --serve",
                )
            }
            _ => Ok(subject),
        }
    }

    fn limit(&self, recording: &mut Recording) -> Result<(), DoctorError> {
        self.cpus.as_ref().map_or(Ok(()), |cpus| recording.limit_to(cpus))
    }

    /// Gives up the rights that an observation of this machine does not need. Returns the file of
    /// --record. Two kinds of runs keep all rights: a test with a host, and a run with --report,
    /// which makes a directory after the observation.
    fn confine(&self, subject: &Subject) -> anyhow::Result<Option<RecordingFile>> {
        if *subject != Subject::Machine || self.report.is_some() {
            return Ok(None);
        }
        let file = self.record.as_deref().map(RecordingFile::prepare).transpose();
        let file = file.context("starting the thread that writes the recording")?;
        confine();
        Ok(file)
    }

    fn observe(&self) -> anyhow::Result<Recording> {
        let cancel = cancel_on_signals()?;
        Ok(observe::machine(&self.plan()?, &cancel.flag())?)
    }

    fn focus(&self) -> Result<Focus, DoctorError> {
        self.flow.as_deref().map_or(Ok(Focus::All), Focus::parse)
    }

    fn capture(&self, interface: &str) -> anyhow::Result<Recording> {
        let cancel = cancel_on_signals()?;
        let time = self.time.map_or(observe::TIME, |seconds| Span::from_secs(seconds.into()));
        Ok(doctor::capture::live(interface, time, &self.focus()?, &cancel.flag())?)
    }

    fn plan(&self) -> Result<Plan, DoctorError> {
        let focus = self.focus()?;
        let time = self.time.map_or(observe::TIME, |seconds| Span::from_secs(seconds.into()));
        // The CPU time for starting this program and searching for a port counts as cost of the
        // observation.
        let drops = Some(Arc::new(DropWatch::begin()));
        Ok(Plan { time, focus, spent: observe::own_cpu_time(), drops, ..Plan::default() })
    }

    fn test(&self, host: &str) -> anyhow::Result<Recording> {
        let cancel = cancel_on_signals()?;
        let plan = match self.thorough {
            true => TestPlan::thorough(host, self.port),
            false => TestPlan::short(host, self.port),
        };
        output::note(format_args!("weir doctor: {}", plan.announcement()));
        Ok(test_path::run(&plan, &cancel.flag())?)
    }

    fn watch(&self) -> anyhow::Result<Ending> {
        let cancel = cancel_on_signals()?;
        let (begun, mut changes) = (Instant::now(), doctor::Changes::default());
        let judge = |diagnosis: Option<&Diagnosis>, _: &Plan| {
            let at = Span::from_millis(begun.elapsed().as_millis() as u64);
            let news =
                diagnosis.and_then(|diagnosis| Some((changes.news(at, diagnosis)?, diagnosis)));
            match news {
                Some((_, diagnosis)) if self.json => {
                    output::print(doctor::output::json_line(diagnosis))
                }
                Some((line, _)) => output::print(line + "\n"),
                None => Ok(()),
            }
        };
        self.keep_observing(&cancel, judge, || ())
    }

    /// Observes repeatedly until `cancel`, and passes each diagnosis (`None` if no connection
    /// matched) and the plan to `judge`. Calls `rests` repeatedly between two observations.
    fn keep_observing(
        &self,
        cancel: &Cancel,
        mut judge: impl FnMut(Option<&Diagnosis>, &Plan) -> anyhow::Result<()>,
        rests: impl Fn(),
    ) -> anyhow::Result<Ending> {
        let (mut plan, begun) = (self.plan()?, Instant::now());
        while !cancel.is_cancelled() {
            match observe::machine(&plan, &cancel.flag()) {
                // A matching connection may begin later.
                Err(DoctorError::NoFlow(_) | DoctorError::NoConnection { .. }) => {
                    plan.spent = Span::ZERO;
                    judge(None, &plan)?;
                }
                recording => {
                    let mut recording = recording?;
                    let observed = observe::own_cpu_time();
                    if cancel.is_cancelled() {
                        break;
                    }
                    self.limit(&mut recording)?;
                    judge(Some(&doctor::diagnose(&recording, Question::of(&recording))), &plan)?;
                    plan.spent = observe::own_cpu_time() - observed;
                }
            }
            // With many connections, the beginning and the end of an observation cost much CPU
            // time.
            let earliest = observe::own_cpu_time().secs_f64() / WATCHING_SHARE;
            while begun.elapsed().as_secs_f64() < earliest && !cancel.is_cancelled() {
                rests();
                std::thread::sleep(REST);
            }
        }
        Ok(Ending::Fine)
    }

    fn print(&self, diagnosis: &Diagnosis) -> anyhow::Result<()> {
        match self.json {
            true => output::print(doctor::output::json(diagnosis)),
            false => output::print(doctor::output::text(diagnosis, columns(), self.verbose)),
        }
    }
}

fn cpus(text: &str) -> Result<BTreeSet<usize>, String> {
    units::parse_cpus(text).map(BTreeSet::from_iter)
}

fn confine() {
    let confinement = doctor::confinement::confine();
    for warning in confinement.warnings() {
        tracing::warn!("{warning}");
    }
    tracing::debug!("{confinement}");
}

/// Returns the terminal's width; without a terminal, the usual width of a page.
fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .map_or(80, |columns| columns.min(120))
}

const DETAILS: &str = "\
Without an argument it observes this machine. It sends nothing and changes nothing. It ranks the
busiest TCP connections, and says for each which cause limits it, by which evidence, and which
causes a number rules out. Then it lists what is out of order on interfaces, queues and limits.

With --from and --to it copies itself to two machines by ssh, lets the first test with the second,
observes both, and joins what each end sees into one diagnosis.

With a HOST it sends to that host's `weir perf server` or iperf3 for some seconds, receives from it
as long, and judges both directions. It says before how long and how much at most.

Root sees the processes of all users. Another user sees only the own processes; --verbose names the
signals that were not seen.

Examples:
  weir doctor
  weir doctor server.example
  weir doctor --flow port:5432 --record slow.json
  weir doctor --from root@10.0.0.5 --to root@10.0.0.6
  weir doctor slow.json
  weir doctor runs/quic-tun-quick-20260102-030405
  weir doctor --example slow-nic
  weir doctor --watch
  weir doctor --serve
  weir doctor --serve 127.0.0.1:9152 --time 10
  weir doctor trace.pcap --flow port:443
  weir doctor --capture eth0 --time 10";

/// The arguments that conflict with --from and --to.
const TWO_ENDS_ALONE: [&str; 11] = [
    "subject", "example", "flow", "cpus", "time", "capture", "watch", "serve", "series", "record",
    "report",
];
/// Maximum share of a core for all observations of `--watch` together.
const WATCHING_SHARE: f64 = 0.018;
const REST: Duration = Duration::from_millis(50);
