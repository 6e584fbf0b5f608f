//! Brings the client's host, the server's host or both into a state for a step, and undoes the
//! state.
//!
//! Settings and features end with the host's namespace. Algorithms of Weir stay in the kernel until
//! a step has another state. For a command, a guard process runs the `undo` as soon as the guard's
//! input is closed: by this process, or by the kernel if this process is killed.

use super::loaded::unused_name;
use super::{MachineStep, Testbed, is_installed};
use crate::model::Failure;
use crate::model::file::{ChangedEnd, FileError, SideSpec, words};
use host::{Namespace, Sysctl};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A state of `[state]` that is in force.
#[derive(Debug)]
pub(super) struct Applied {
    guard: Option<Guard>,
}

impl Applied {
    /// Brings the hosts into the step's state. `None` if the lab has no states.
    pub(super) fn apply(
        step: &MachineStep<'_>,
        testbed: &Testbed,
    ) -> Result<Option<Self>, Failure> {
        let Some(state) = &step.lab.state else { return Ok(None) };
        let wrong = |error: FileError| Failure::Workload(error.to_string());
        let side = state.get_ref().side(step.system.name());
        let hosts = match step.lab.changed_end(step.axes).map_err(wrong)? {
            ChangedEnd::Client => vec![step.ends.from.as_str()],
            ChangedEnd::Server => vec![step.ends.to.as_str()],
            ChangedEnd::Both if step.ends.from == step.ends.to => vec![step.ends.from.as_str()],
            ChangedEnd::Both => vec![step.ends.from.as_str(), step.ends.to.as_str()],
        };
        let load = side.load.iter().map(|name| name.get_ref());
        let mut wanted: Vec<_> = load.map(|name| (name.clone(), unused_name(name))).collect();
        let algorithm = match &side.congestion {
            Some(name) if name.get_ref() == accel::algorithm::NAME => {
                let own = format!("weir_{}", std::process::id());
                wanted.push((name.get_ref().clone(), own.clone()));
                Some(own)
            }
            other => other.as_ref().map(|name| name.get_ref().clone()),
        };
        step.loaded.keep_only(&wanted)?;
        let mut settings = Vec::new();
        for (name, value) in &side.sysctl {
            let value = step.lab.filled(step.axes, value).map_err(wrong)?;
            settings.push(Sysctl { name: name.get_ref().clone(), value });
        }
        if let Some(algorithm) = algorithm {
            settings.push(Sysctl { name: DEFAULT_ALGORITHM.to_owned(), value: algorithm });
        }
        for host in &hosts {
            let namespace = testbed.namespace(host)?;
            namespace.run(|| settings.iter().try_for_each(host::write_sysctl))?;
            if !side.offload.is_empty() {
                switch_features(side, &namespace, testbed.interfaces(host), step)?;
            }
        }
        let guard = match (&side.command, &side.undo) {
            (Some(command), Some(undo)) => {
                let [command, undo] = [command, undo].map(|text| text.get_ref().as_str());
                Some(run_command(step, testbed, side, &hosts, command, undo)?)
            }
            _ => None,
        };
        Ok(Some(Self { guard }))
    }

    /// Removes the state, except for algorithms of Weir that the next step may need again.
    pub(super) fn undo(mut self) -> Result<(), Failure> {
        self.guard.take().map_or(Ok(()), Guard::undo)
    }
}

/// Finds ethtool on this machine. An ordinary user's PATH has no sbin on Debian.
pub(super) fn find_ethtool() -> Option<String> {
    let places = ["ethtool", "/usr/sbin/ethtool", "/sbin/ethtool"];
    places.into_iter().find(|place| is_installed(place)).map(str::to_owned)
}

/// Runs `ethtool -K` on each interface of the host.
fn switch_features(
    side: &SideSpec,
    namespace: &Namespace,
    interfaces: Vec<String>,
    step: &MachineStep<'_>,
) -> Result<(), Failure> {
    let missing = || Failure::Workload("ethtool is not installed".to_owned());
    let program = find_ethtool().ok_or_else(missing)?;
    for interface in interfaces {
        let mut argv = vec![program.clone(), "-K".to_owned(), interface];
        for (name, value) in &side.offload {
            argv.extend([name.get_ref().clone(), value.get_ref().clone()]);
        }
        run_to_end(&argv, Some(namespace), step)?;
    }
    Ok(())
}

fn run_command(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    side: &SideSpec,
    hosts: &[&str],
    command: &str,
    undo: &str,
) -> Result<Guard, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let [client, server] = [testbed.address(from, to)?, testbed.address(to, from)?];
    let argv = |text: &str| {
        let word = |name: &str| match name {
            "weir" => Some(step.weir.display().to_string()),
            "client" => Some(client.to_string()),
            "server" => Some(server.to_string()),
            _ => None,
        };
        let filled = step.lab.state_command(step.axes, text, word).map_err(Failure::Workload)?;
        Ok::<_, Failure>(words(&filled))
    };
    let place = match side.is_in_host() {
        // If `both` hosts have the state, the command runs in the first host. A lab file with
        // several commands starts a shell.
        true => hosts.first().map(|host| testbed.namespace(host)).transpose()?,
        false => None,
    };
    let (command, undo) = (argv(command)?, argv(undo)?);
    // The guard starts before the command changes anything.
    let guard = Guard::start(&undo, place.as_ref())?;
    match run_to_end(&command, place.as_ref(), step) {
        Ok(()) => Ok(guard),
        Err(failure) => Err(match guard.undo() {
            Ok(()) => failure,
            Err(Failure::NotUndone(left)) => Failure::NotUndone(format!("{failure}; {left}")),
            Err(other) => other,
        }),
    }
}

/// Runs a program and waits until it exits.
fn run_to_end(
    argv: &[String],
    place: Option<&Namespace>,
    step: &MachineStep<'_>,
) -> Result<(), Failure> {
    let line = argv.join(" ");
    let wrong = |error: io::Error| Failure::io(&format!("running `{line}`"), &error);
    let mut words = tempfile::tempfile().map_err(wrong)?;
    let [program, arguments @ ..] = argv else { return Ok(()) };
    let output = || words.try_clone().map(Stdio::from);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(output().map_err(wrong)?).stderr(output().map_err(wrong)?);
    // A signal from the terminal must reach only the lab, which then ends the program.
    command.process_group(0);
    let mut child = spawned(command, place).map_err(wrong)?;
    let deadline = Instant::now() + COMMAND_WITHIN;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(wrong)? {
            break status;
        }
        let failure = match () {
            () if step.cancel.is_cancelled() => Failure::Interrupted,
            () if Instant::now() > deadline => {
                let patience = COMMAND_WITHIN.as_secs();
                Failure::Workload(format!("`{line}` of the state did not end within {patience} s"))
            }
            () => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        end_group(&mut child);
        return Err(failure);
    };
    match status.success() {
        true => Ok(()),
        false => {
            let said = last_line(&mut words);
            Err(Failure::Workload(format!("`{line}` of the state failed ({status}): {said}")))
        }
    }
}

/// The process that undoes a command once its input ends.
#[derive(Debug)]
struct Guard {
    child: Child,
    /// The guard's input. `None` once the guard was told to run the undo.
    input: Option<ChildStdin>,
    words: File,
    line: String,
}

impl Guard {
    fn start(undo: &[String], place: Option<&Namespace>) -> Result<Self, Failure> {
        let line = undo.join(" ");
        let wrong = |error: io::Error| Failure::io("starting the guard of a state", &error);
        let words = tempfile::tempfile().map_err(wrong)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "weir-undo"]).args(undo).stdin(Stdio::piped());
        command.stdout(Stdio::from(words.try_clone().map_err(wrong)?));
        command.stderr(Stdio::from(words.try_clone().map_err(wrong)?));
        // A signal from the terminal, or to the lab's process group, must not reach the guard.
        command.process_group(0);
        let mut child = spawned(command, place).map_err(wrong)?;
        let input = child.stdin.take();
        Ok(Self { child, input, words, line })
    }

    fn undo(mut self) -> Result<(), Failure> {
        self.run()
    }

    fn run(&mut self) -> Result<(), Failure> {
        if self.input.take().is_none() {
            return Ok(());
        }
        let line = &self.line;
        let left = |what: String| {
            Failure::NotUndone(format!(
                "the state of the lab is still in force: `{line}` {what}; run it yourself before anything else"
            ))
        };
        let status = match waited(&mut self.child, COMMAND_WITHIN) {
            Ok(Some(status)) => status,
            Ok(None) => {
                end_group(&mut self.child);
                let patience = COMMAND_WITHIN.as_secs();
                return Err(left(format!("did not end within {patience} s")));
            }
            Err(error) => return Err(left(format!("could not be waited for: {error}"))),
        };
        match status.success() {
            true => Ok(()),
            false => Err(left(format!("failed ({status}): {}", last_line(&mut self.words)))),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(failure) = self.run() {
            tracing::error!("{failure}");
        }
    }
}

/// Starts a program in the namespace `place`, or in the namespace of this process.
fn spawned(mut command: Command, place: Option<&Namespace>) -> io::Result<Child> {
    match place {
        None => command.spawn(),
        Some(namespace) => namespace
            .run(|| Ok(command.spawn()))
            .map_err(|error| io::Error::other(error.to_string()))?,
    }
}

fn waited(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() > deadline => return Ok(None),
            None => std::thread::sleep(LOOK),
        }
    }
}

/// Ends a program and its process group.
fn end_group(child: &mut Child) {
    if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn last_line(words: &mut File) -> String {
    let mut text = String::new();
    let read = words
        .seek(SeekFrom::Start(0))
        .and_then(|_| words.take(LONGEST_OUTPUT).read_to_string(&mut text));
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    match (read, line) {
        (Ok(_), Some(line)) => line.to_owned(),
        _ => "it said nothing".to_owned(),
    }
}

/// The guard's script, which ignores signals, waits for the end of its input, and then becomes the
/// undo command.
const SCRIPT: &str =
    "trap '' INT TERM HUP QUIT; while read -r line; do :; done; exec </dev/null; exec \"$@\"";
const DEFAULT_ALGORITHM: &str = "net.ipv4.tcp_congestion_control";
const COMMAND_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_OUTPUT: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    fn guard_that_writes(file: &Path) -> Guard {
        let undo = ["/bin/sh", "-c", "echo undone > \"$0\""].map(str::to_owned);
        let undo: Vec<String> = undo.into_iter().chain([file.display().to_string()]).collect();
        Guard::start(&undo, None).unwrap()
    }

    #[test]
    fn dropping_a_state_undoes_the_state_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let guard = guard_that_writes(&file);
        assert!(!file.exists());
        assert!(guard.input.as_ref().unwrap().as_raw_fd() > 2);
        guard.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "undone\n");
        std::fs::remove_file(&file).unwrap();
        drop(guard_that_writes(&file));
        assert!(file.exists());
    }

    #[test]
    fn the_undo_guard_ignores_hup_int_and_term() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let guard = guard_that_writes(&file);
        // Bits 0, 1 and 14 of SigIgn in proc_pid_status(5): HUP, INT and TERM.
        let ignores_all = || {
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", guard.child.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & 0x4003 == 0x4003
        };
        while !ignores_all() {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_raw(guard.child.id().cast_signed()).unwrap();
        for signal in [
            rustix::process::Signal::INT,
            rustix::process::Signal::TERM,
            rustix::process::Signal::HUP,
        ] {
            rustix::process::kill_process(pid, signal).unwrap();
        }
        guard.undo().unwrap();
        assert!(file.exists());
    }

    #[test]
    fn a_failed_undo_names_the_command_to_run() {
        let undo = ["/bin/sh", "-c", "echo no right >&2; exit 3"].map(str::to_owned);
        let failure = Guard::start(&undo, None).unwrap().undo().unwrap_err().to_string();
        assert!(failure.contains("still in force"), "{failure}");
        assert!(failure.contains("exit status: 3): no right; run it yourself"), "{failure}");
    }
}
