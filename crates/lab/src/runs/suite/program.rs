//! Runs a command of the user. The command's time and output are bounded, and all processes of the
//! command end with the command.

use crate::model::{Cancel, Failure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use units::{Bytes, Span};

/// The limits on a command's time and output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub(super) limit: Span,
    pub(super) most_output: Bytes,
    /// The cancellation that ends the command. `None` for a command that must run to its end.
    pub(super) cancel: Option<&'a Cancel>,
}

/// The way in which a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Alone(ExitStatus),
    AtTheLimit,
    WithTooMuchOutput,
}

/// Prepares a line for the shell, or a program and its arguments.
pub(super) fn prepare(words: &[String]) -> Command {
    match words {
        [line] if line.contains(char::is_whitespace) => {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        }
        words => {
            let (program, arguments) =
                words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
    }
}

/// Runs a command to its end, with its output in the file `output`. All processes of the command
/// have `mark` in their environment. Processes that remain after the command are killed.
pub(super) fn run(
    mut command: Command,
    mark: &str,
    output: &Path,
    bounds: Bounds<'_>,
) -> Result<Ended, Failure> {
    let wrong = |error: io::Error| Failure::io(&format!("writing {}", output.display()), &error);
    let file = File::options().append(true).create_new(true).open(output).map_err(wrong)?;
    let program = command.get_program().display().to_string();
    let mut child = command
        .env(MARK, mark)
        // Without PYTHONUNBUFFERED a Python script buffers its output, and lines of standard output
        // and standard error arrive out of order.
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(wrong)?)
        .stderr(file.try_clone().map_err(wrong)?)
        // A process group of its own protects the suite from Ctrl-C: Weir decides how the suite
        // ends.
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::Workload(format!(
                "{program} is not installed: install it, or name the program by its path"
            )),
            _ => Failure::io(&format!("starting {program}"), &error),
        })?;
    let ended = attend(&mut child, &file, bounds);
    if ended.as_ref().is_ok_and(|ended| !matches!(ended, Ended::Alone(_))) || ended.is_err() {
        end_group(&mut child);
    }
    end_marked(mark);
    ended
}

fn attend(child: &mut Child, output: &File, bounds: Bounds<'_>) -> Result<Ended, Failure> {
    let deadline = Instant::now() + bounds.limit.as_duration();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let status = child.try_wait().map_err(|e| Failure::io("waiting for a command", &e))?;
        if let Some(status) = status {
            return Ok(Ended::Alone(status));
        }
        if bounds.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Failure::Interrupted);
        }
        if Instant::now() > deadline {
            return Ok(Ended::AtTheLimit);
        }
        let length = output.metadata().map_or(0, |metadata| metadata.len());
        if length > bounds.most_output.count() {
            return Ok(Ended::WithTooMuchOutput);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks the process group of a command to end, and kills the group after [`GRACE`].
pub(in crate::runs) fn end_group(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LONGEST_PAUSE);
    }
    // The group may have members although its first process has ended.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Kills each process that has the mark in its environment, also in other sessions and groups.
pub(super) fn end_marked(mark: &str) {
    // A process may start another process while this loop reads /proc, and shows no environment
    // during execve(2). So the loop ends after two readings without a marked process.
    let mut was_empty = false;
    for _ in 0..ROUNDS {
        let marked = marked(mark);
        if marked.is_empty() && was_empty {
            return;
        }
        was_empty = marked.is_empty();
        for pid in marked {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(SHORTEST_PAUSE);
    }
}

fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let is_marked =
                environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
            is_marked.then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

/// Runs a line of the user that changes the state. The error has the last line of the output.
/// `started` receives the line's process group.
pub(super) fn run_line(
    line: &str,
    what: &str,
    patience: Span,
    cancel: Option<&Cancel>,
    started: impl FnOnce(u32),
) -> Result<(), Failure> {
    let wrong = |error: io::Error| Failure::io("making a temporary file", &error);
    let mut output = tempfile::tempfile().map_err(wrong)?;
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(wrong)?)
        .stderr(output.try_clone().map_err(wrong)?)
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::io("starting sh", &error))?;
    started(child.id());
    let bounds = Bounds { limit: patience, most_output: MOST_WORDS, cancel };
    let ended = attend(&mut child, &output, bounds);
    if !matches!(ended, Ok(Ended::Alone(_))) {
        end_group(&mut child);
    }
    let mut failed = |how: String| {
        let words = last_line(&mut output);
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        Err(Failure::Workload(format!("{what} `{line}` {how}{words}")))
    };
    match ended? {
        Ended::Alone(status) if status.success() => Ok(()),
        Ended::Alone(status) => failed(format!("ended with {}", told(status))),
        Ended::AtTheLimit => failed(format!("took longer than {patience}")),
        Ended::WithTooMuchOutput => failed(format!("printed more than {}", MOST_WORDS.shown())),
    }
}

/// Returns the last line that a suite printed.
pub(super) fn last_line_of(output: &Path) -> String {
    File::open(output).map(|mut file| last_line(&mut file)).unwrap_or_default()
}

fn last_line(output: &mut File) -> String {
    let mut bytes = Vec::new();
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let read = output
        .seek(SeekFrom::Start(length.saturating_sub(4096)))
        .and_then(|_| output.take(4096).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    units::foreign(line).to_string()
}

/// Describes the exit status, as in `status 3` or `signal 9`.
pub(super) fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The environment variable that marks a suite's processes. The guard looks for the same variable.
pub(super) const MARK: &str = "WEIR_SUITE_MARK";
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Time between the request to end and the kill: a suite may have settings to restore.
const GRACE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 50;
const MOST_WORDS: Bytes = Bytes::new(16 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(limit: Span) -> Bounds<'static> {
        Bounds { limit, most_output: Bytes::new(1 << 20), cancel: None }
    }

    fn shell(line: &str, mark: &str, limit: Span) -> (Ended, String) {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let command = prepare(&[line.to_owned()]);
        let ended = run(command, mark, &output, bounds(limit)).unwrap();
        (ended, std::fs::read_to_string(output).unwrap_or_default())
    }

    #[test]
    fn a_suite_command_is_killed_at_its_limit_with_its_descendants() {
        let mark = format!("endless-{}", std::process::id());
        let (ended, _) = shell(
            "setsid sleep 1000 & trap '' TERM; sleep 1000 & wait; sleep 1000",
            &mark,
            Span::from_millis(300),
        );
        assert_eq!(ended, Ended::AtTheLimit);
        assert_eq!(marked(&mark), Vec::new());
    }

    #[test]
    fn a_suite_command_is_killed_at_its_output_limit() {
        let mark = format!("yes-{}", std::process::id());
        let (ended, _) = shell("exec yes some words", &mark, Span::from_secs(60));
        assert_eq!(ended, Ended::WithTooMuchOutput);
    }

    #[test]
    fn processes_left_by_a_suite_command_are_killed() {
        let mark = format!("leaves-{}", std::process::id());
        let (ended, output) = shell("setsid sleep 1000 & echo done", &mark, Span::from_secs(60));
        assert!(matches!(ended, Ended::Alone(status) if status.success()));
        assert_eq!(output, "done\n");
        // The kernel may take a moment to end a killed process.
        let until = Instant::now() + Duration::from_secs(60);
        while !marked(&mark).is_empty() {
            assert!(Instant::now() < until, "{:?} still run", marked(&mark));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_failed_state_line_reports_its_last_output() {
        let failure = run_line(
            "echo first; echo last >&2; exit 3",
            "the command",
            Span::from_secs(60),
            None,
            |_| {},
        );
        let text = failure.unwrap_err().to_string();
        assert!(text.ends_with("ended with status 3: last"), "{text}");
        let slow = run_line("sleep 1000", "the command", Span::from_millis(50), None, |_| {});
        assert!(slow.unwrap_err().to_string().contains("took longer than 50ms"));
    }
}
