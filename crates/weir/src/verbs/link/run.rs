//! `weir link run`: two namespaces, a link between them, and a command in one of the namespaces.

mod far_output;

use super::Both;
use crate::exit::{Ending, Unusable};
use crate::output::note;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use emu::control::{Claim, Directory, Server};
use emu::{EmuError, LinkOptions, RunningLink};
use far_output::{FarOutput, Writers};
use host::{Namespace, is_installed};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use units::visible;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A setting from the command's side to the far one only, for example --ab loss=1%; may be
    /// repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ab: Vec<String>,
    /// A setting from the far side to the command's only, for example --ba rate=20mbit; may be
    /// repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ba: Vec<String>,
    /// A command line for the shell on the far side, 10.0.0.2. The far side's program is ended with
    /// the command. Its output is printed only if the program or the command fails, after the
    /// command's output, on standard error
    #[arg(long, value_name = "COMMAND")]
    far: Option<String>,
    /// Write all output of --far to this file
    #[arg(long, value_name = "FILE", requires = "far")]
    far_log: Option<PathBuf>,
    /// The link's name for `weir link list`, `show`, `set` and `down` [default: the first free of
    /// link0, link1, …]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The command, which runs at 10.0.0.1
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
    // The last field, because clap puts all later arguments under the heading of `Both`.
    #[command(flatten)]
    both: Both,
}

pub(super) fn run(arguments: &Run) -> anyhow::Result<Ending> {
    if let Some(program) = arguments.command.first().filter(|program| !is_installed(program)) {
        return Err(Unusable::program(program).into());
    }
    let claim = arguments.claim()?;
    // Must precede the first thread: becoming root of a user namespace needs a single-threaded
    // process.
    let privilege = host::acquire()?;
    if let Some(sentence) = privilege.degradation() {
        note(format_args!("note: {sentence}"));
    }
    let cancel = cancel_on_signals()?;
    let (heard, output) = FarOutput::new(arguments.far_log.as_deref())?;
    let (near, far) = (Side::new("near", None)?, Side::new("far", Some(output))?);
    let mut options = LinkOptions::default();
    for (key, value) in [
        ("a", near.interface()),
        ("b", far.interface()),
        ("address-a", format!("{NEAR}/24")),
        ("address-b", format!("{FAR}/24")),
    ] {
        options.set(key, &value).map_err(EmuError::from)?;
    }
    arguments.both.set(&mut options)?;
    for pair in &arguments.ab {
        options.set_ab(pair).map_err(EmuError::from)?;
    }
    for pair in &arguments.ba {
        options.set_ba(pair).map_err(EmuError::from)?;
    }
    let name = claim.as_ref().map_or("run", Claim::name);
    let link = RunningLink::start(name, options.plan().map_err(EmuError::from)?, privilege)?;
    for warning in link.inspector().warnings() {
        note(format_args!("note: {warning}"));
    }
    let server = claim.map(|claim| Server::start(claim, link.inspector())).transpose()?;
    let is_asked_to_end = || server.as_ref().is_some_and(Server::down_requested);
    let served = arguments
        .far
        .as_ref()
        .map(|line| far.start(["sh", "-c", line].map(str::to_owned).to_vec()));
    if let Some(served) = &served {
        served.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        far.await_listener(|| cancel.is_cancelled() || is_asked_to_end() || !link.is_running());
    }
    near.start(arguments.command.clone())?;
    let mut leaving = None;
    let status = loop {
        match near.ended.recv_timeout(LOOK_EVERY) {
            Ok(status) => break status.context("waiting for the command")?,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if link.is_running() => {
                // The terminal has sent the signal to the command, too.
                if cancel.is_cancelled() {
                    near.terminate();
                }
                if is_asked_to_end() {
                    leaving.get_or_insert_with(Leaving::begin).go_on(&near);
                }
            }
            Err(_) => anyhow::bail!("the emulated link ended before the command: run it again"),
        }
    };
    // The command may have left programs in the background.
    if let Some(leaving) = &mut leaving {
        while leaving.go_on(&near) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    let far_status = arguments.far.as_ref().and_then(|_| far.stop());
    let far_failed = far_status.filter(|status| !status.success());
    if arguments.far.is_some() && (!status.success() || far_failed.is_some()) {
        heard.text().lines().for_each(|line| note(format_args!("far: {}", visible(line))));
    }
    if let Some(status) = far_failed {
        note(format_args!(
            "weir: the command of --far failed before the other one ended: {status}"
        ));
    }
    let report = link.finish()?;
    if !report.valid {
        let why = report.problems.join("; ");
        note(format_args!("note: figures of this run do not hold: {why}"));
    }
    note(format_args!("note: {}", emu::cost(&report)));
    Ok(if status.success() && far_failed.is_none() { Ending::Fine } else { Ending::Failed })
}

impl Run {
    /// Claims the name under which other commands find the link. Without a name the link still
    /// runs.
    fn claim(&self) -> anyhow::Result<Option<Claim>> {
        let directory = Directory::of_user();
        match (directory.prepare().and_then(|()| directory.claim(self.name.as_deref())), &self.name)
        {
            (Ok(claim), _) => Ok(Some(claim)),
            (Err(error), Some(_)) => Err(error.into()),
            (Err(error), None) => {
                note(format_args!("note: `weir link list` will not show this link: {error}"));
                Ok(None)
            }
        }
    }
}

/// The ending of the command and all its descendants, which `weir link down` has requested.
#[derive(Debug)]
struct Leaving {
    since: Instant,
    /// The number of signals sent.
    sent: usize,
}

impl Leaving {
    fn begin() -> Self {
        Self { since: Instant::now(), sent: 0 }
    }

    /// Sends the signals that are due. Returns true if processes are left and further signals may
    /// end these processes.
    fn go_on(&mut self, side: &Side) -> bool {
        let processes = side.processes();
        while let Some((after, signal)) = SIGNALS.get(self.sent)
            && self.since.elapsed() >= *after
        {
            for process in &processes {
                let _ = kill_process(*process, *signal);
            }
            self.sent += 1;
        }
        !processes.is_empty() && self.since.elapsed() < GIVEN_UP
    }
}

/// A namespace, and a thread in it that starts the side's program.
#[derive(Debug)]
struct Side {
    thread: u32,
    begin: Sender<Vec<String>>,
    begun: Receiver<std::io::Result<u32>>,
    ended: Receiver<std::io::Result<ExitStatus>>,
    /// Whether the program and its children are a separate process group, which the terminal does
    /// not signal.
    is_group: bool,
    program: std::cell::Cell<Option<u32>>,
    _keeper: JoinHandle<()>,
}

impl Side {
    /// Creates the namespace. `output` receives the program's output; `None` passes this command's
    /// output on to the program.
    fn new(name: &str, output: Option<Writers>) -> anyhow::Result<Self> {
        let namespace = Namespace::create(name)?;
        let is_group = output.is_some();
        let (begin, beginning) = channel::<Vec<String>>();
        let (tell_thread, thread) = channel();
        let (tell_begun, begun) = channel();
        let (tell_ended, ended) = channel();
        let keeper = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let entered = namespace.enter().map(|()| rustix::thread::gettid().as_raw_pid() as u32);
            if tell_thread.send(entered).is_err() {
                return;
            }
            let Ok(words) = beginning.recv() else { return };
            let Some((program, rest)) = words.split_first() else { return };
            let mut command = Command::new(program);
            command.args(rest);
            if let Some([out, err]) = output {
                command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
            }
            let spawned = command.spawn();
            // The command holds writing ends of the output, whose reader waits until all are
            // closed.
            drop(command);
            match spawned {
                Err(error) => drop(tell_begun.send(Err(error))),
                Ok(mut child) => {
                    let _ = tell_begun.send(Ok(child.id()));
                    let _ = tell_ended.send(child.wait());
                }
            }
        });
        let keeper = keeper.context("starting a thread")?;
        let thread = thread.recv().context("starting a thread")??;
        Ok(Self { thread, begin, begun, ended, is_group, program: None.into(), _keeper: keeper })
    }

    fn interface(&self) -> String {
        format!("/proc/{}/task/{}/ns/net:eth0", std::process::id(), self.thread)
    }

    fn start(&self, words: Vec<String>) -> anyhow::Result<()> {
        let name = words.first().cloned().unwrap_or_default();
        self.begin.send(words).context("starting a program")?;
        let pid = self.begun.recv().context("starting a program")?;
        self.program.set(Some(pid.with_context(|| format!("starting {name}"))?));
        Ok(())
    }

    /// Waits until a server listens, at most `START`. After `HEAD_START` the wait continues only
    /// while the program runs, or waits for a CPU or a disk. The wait ends early if `is_over`
    /// returns true.
    fn await_listener(&self, is_over: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_over() {
            std::thread::sleep(LOOK_EVERY);
            let waited = begun.elapsed();
            if self.listens() || waited > START || waited > HEAD_START && !self.is_busy() {
                return;
            }
        }
    }

    /// Whether a program in the namespace listens to TCP or has a socket of UDP.
    fn listens(&self) -> bool {
        let has = |table: &str, state: Option<&str>| {
            let path = format!("/proc/self/task/{}/net/{table}", self.thread);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let mut lines = text.lines().skip(1);
            lines.any(|line| state.is_none() || line.split_whitespace().nth(3) == state)
        };
        let listening = Some("0A");
        has("tcp", listening) || has("tcp6", listening) || has("udp", None) || has("udp6", None)
    }

    fn is_busy(&self) -> bool {
        self.processes().iter().any(|pid| {
            let path = format!("/proc/{}/stat", pid.as_raw_pid());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            // The process name, which precedes the state, may contain any character.
            let rest = text.rsplit_once(") ").map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.starts_with(['R', 'D']))
        })
    }

    fn terminate(&self) {
        let Some(pid) = self.program.take().and_then(process) else { return };
        let _ = match self.is_group {
            true => kill_process_group(pid, Signal::TERM),
            false => kill_process(pid, Signal::TERM),
        };
    }

    /// Returns the processes in the namespace except this process, which has only a thread in it.
    fn processes(&self) -> Vec<Pid> {
        let own = format!("/proc/self/task/{}/ns/net", self.thread);
        let Ok(own) = std::fs::read_link(own) else { return Vec::new() };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| {
            let pid = process(entry.file_name().to_str()?.parse().ok()?)?;
            let network = std::fs::read_link(entry.path().join("ns/net")).ok()?;
            (network == own).then_some(pid)
        })
        .collect()
    }

    /// Ends the program and the processes that it has left in the background. Returns the program's
    /// status if the program had ended before this call.
    fn stop(&self) -> Option<ExitStatus> {
        let ended = self.ended.try_recv().ok();
        self.terminate();
        if ended.is_none() {
            // Waits for the program's last output, unless the program ignores the signal.
            let _ = self.ended.recv_timeout(LAST_WORDS);
        }
        ended?.ok()
    }
}

fn process(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";
/// Longest wait for a server that neither listens nor is busy.
const HEAD_START: Duration = Duration::from_millis(300);
const START: Duration = Duration::from_secs(10);
const LAST_WORDS: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The signals that end the command, each with its time after the request. An interactive shell
/// ignores SIGTERM.
const SIGNALS: [(Duration, Signal); 3] = [
    (Duration::ZERO, Signal::TERM),
    (Duration::from_secs(1), Signal::HUP),
    (Duration::from_secs(5), Signal::KILL),
];
/// Time after the request at which this process stops waiting for the command's end: earlier than
/// `weir link down`, which waits for ten seconds.
const GIVEN_UP: Duration = Duration::from_secs(7);
pub(crate) const EXAMPLES: &str = "\
Examples:
  weir link run --rate 100mbit --loss 1% \\
    --far 'weir perf server' -- weir perf client 10.0.0.2
  weir link run --rtt 80ms --ab rate=5mbit --ba rate=50mbit \\
    --far 'python3 -m http.server 80' -- curl http://10.0.0.2/
  weir link run --delay 10ms -- bash              # a shell behind the link

The command runs in a new network namespace at 10.0.0.1, and the far side is 10.0.0.2. Nothing
else of the machine changes, and nothing is left behind. Exit status 1 if the command fails, or
that of --far before it ends. The last line is the CPU time of the link.";
