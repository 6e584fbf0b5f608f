//! `weir link run`: two namespaces, a link between them, and a command in one of them.

use super::Both;
use crate::exit::Ending;
use crate::output::note;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use emu::{EmuError, LinkOptions, RunningLink};
use host::Namespace;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    both: Both,
    /// A setting from the command's side to the far one only, for example --ab loss=1%
    #[arg(long, value_name = "KEY=VALUE")]
    ab: Vec<String>,
    /// A setting from the far side to the command's only
    #[arg(long, value_name = "KEY=VALUE")]
    ba: Vec<String>,
    /// A command line for the shell on the far side, 10.0.0.2; its output goes to standard error,
    /// and it is ended with the command
    #[arg(long, value_name = "COMMAND")]
    far: Option<String>,
    /// The command, which runs at 10.0.0.1
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(arguments: &Run) -> anyhow::Result<Ending> {
    // Must precede the first thread: becoming root of a user namespace needs a single-threaded
    // process.
    let privilege = host::acquire()?;
    if let Some(sentence) = privilege.degradation() {
        note(format_args!("note: {sentence}"));
    }
    let cancel = cancel_on_signals()?;
    let (near, far) = (Side::new("near", false)?, Side::new("far", true)?);
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
    let link = RunningLink::start("run", options.plan().map_err(EmuError::from)?, privilege)?;
    let served = arguments
        .far
        .as_ref()
        .map(|line| far.start(vec!["sh".to_owned(), "-c".to_owned(), format!("exec {line}")]));
    if let Some(served) = &served {
        served.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        // A server takes a moment to listen.
        std::thread::sleep(HEAD_START);
    }
    near.start(arguments.command.clone())?;
    let status = loop {
        match near.ended.recv_timeout(LOOK_EVERY) {
            Ok(status) => break status.context("waiting for the command")?,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if link.is_running() => {
                // The terminal has sent the signal to the command too.
                if cancel.is_cancelled() {
                    near.stop();
                }
            }
            Err(_) => anyhow::bail!("the emulated link ended before the command"),
        }
    };
    far.stop();
    let report = link.finish()?;
    if !report.valid {
        note("note: the link was late, so that figures of this run do not hold");
    }
    Ok(if status.success() { Ending::Fine } else { Ending::Failed })
}

/// A namespace, and a thread in it that starts its program.
#[derive(Debug)]
struct Side {
    thread: u32,
    begin: Sender<Vec<String>>,
    begun: Receiver<std::io::Result<u32>>,
    ended: Receiver<std::io::Result<ExitStatus>>,
    program: std::cell::Cell<Option<u32>>,
    _keeper: JoinHandle<()>,
}

impl Side {
    /// `aside`: its program's output goes to standard error, so that standard output has that of
    /// the command alone.
    fn new(name: &str, aside: bool) -> anyhow::Result<Self> {
        let namespace = Namespace::create(name)?;
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
            if aside {
                command.stdin(Stdio::null()).stdout(std::io::stderr());
            }
            match command.spawn() {
                Err(error) => drop(tell_begun.send(Err(error))),
                Ok(mut child) => {
                    let _ = tell_begun.send(Ok(child.id()));
                    let _ = tell_ended.send(child.wait());
                }
            }
        });
        let keeper = keeper.context("starting a thread")?;
        let thread = thread.recv().context("starting a thread")??;
        Ok(Self { thread, begin, begun, ended, program: None.into(), _keeper: keeper })
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

    /// Ends the program, unless it has ended.
    fn stop(&self) {
        let Some(pid) = self.program.take() else { return };
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        if let (Some(pid), Err(_)) = (pid, self.ended.try_recv()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";
const HEAD_START: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
pub(crate) const EXAMPLES: &str = "\
Examples:
  weir link run --rate 100mbit --loss 1% --far 'weir perf server' -- weir perf client 10.0.0.2
  weir link run --rtt 80ms --ab rate=5mbit --ba rate=50mbit \\
    --far 'python3 -m http.server 80' -- curl http://10.0.0.2/
  weir link run --delay 10ms -- bash              # a shell behind the link

The command runs in a new network namespace at 10.0.0.1, and the far side is 10.0.0.2. Nothing
else of the machine changes, and nothing is left behind. Exit status 1 if the command fails.";
