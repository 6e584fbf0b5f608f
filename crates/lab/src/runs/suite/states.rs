//! Switches the machine between the two states, and back to the first state at the end.

use super::Suite;
use super::program::{MARK, run_line};
use crate::model::{Cancel, Failure};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A state of the machine, before or after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Before,
    After,
}

/// Switches between the states. When this value is dropped, the machine returns to the first state.
/// If this process is killed, a guard process returns the machine to the first state.
#[derive(Debug)]
pub(super) struct States<'a> {
    suite: &'a Suite,
    now: Option<State>,
    guard: Guard,
}

impl<'a> States<'a> {
    /// Starts the guard. `mark`: the mark of the suite's processes, by which the guard finds and
    /// ends them.
    pub(super) fn new(suite: &'a Suite, mark: &str) -> Result<Self, Failure> {
        let way_back: Vec<&str> =
            [&suite.undo, &suite.before].into_iter().flatten().map(String::as_str).collect();
        let guard = Guard::start(mark, &way_back)
            .map_err(|error| Failure::io("starting the guard of the machine's state", &error))?;
        Ok(Self { suite, now: None, guard })
    }

    pub(super) fn switch_to(&mut self, state: State, cancel: &Cancel) -> Result<(), Failure> {
        if self.now == Some(state) {
            return Ok(());
        }
        match state {
            State::Before if self.now == Some(State::After) => self.go_back()?,
            State::Before => {
                self.now = Some(State::Before);
                self.run_guarded(self.suite.before.as_deref(), "--before", Some(cancel))?;
            }
            State::After => {
                self.guard.tell(ARM);
                // A command that fails may have changed the machine.
                self.now = Some(State::After);
                self.run_guarded(Some(&self.suite.after), "--after", Some(cancel))?;
            }
        }
        Ok(())
    }

    /// Undoes the second state, even in a cancelled run.
    fn go_back(&mut self) -> Result<(), Failure> {
        self.now = Some(State::Before);
        let undone = self.run_guarded(self.suite.undo.as_deref(), "--undo", None);
        let before = self.run_guarded(self.suite.before.as_deref(), "--before", None);
        self.guard.tell(DISARM);
        undone.and(before)
    }

    /// Runs a line for the shell. If this process dies, the guard kills the line's processes.
    fn run_guarded(
        &mut self,
        line: Option<&str>,
        what: &str,
        cancel: Option<&Cancel>,
    ) -> Result<(), Failure> {
        let Some(line) = line else { return Ok(()) };
        let guard = &mut self.guard;
        let started = |group: u32| guard.tell(&format!("{RUNS} {group}"));
        let ended = run_line(line, what, self.suite.patience, cancel, started);
        self.guard.tell(RUNS);
        ended
    }

    /// Brings the machine into the first state.
    pub(super) fn restore(&mut self) -> Result<(), Failure> {
        match self.now {
            Some(State::After) => self.go_back(),
            _ => Ok(()),
        }
    }
}

impl Drop for States<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.restore() {
            tracing::warn!("the machine may be in its state after the change: {failure}");
        }
    }
}

/// A process that undoes the change if this process dies: the guard's standard input then ends.
#[derive(Debug)]
struct Guard {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Guard {
    fn start(mark: &str, way_back: &[&str]) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", GUARD, "weir-guard"])
            .arg(format!("{MARK}={mark}"))
            .args(way_back)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take();
        Ok(Self { child, orders })
    }

    fn tell(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{order}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell(DONE);
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// The order that reports the process group of a running line. Without a number: the line has
/// ended.
const RUNS: &str = "runs";
const ARM: &str = "arm";
const DISARM: &str = "disarm";
const DONE: &str = "done";
/// The guard's script, which reads orders. If the orders end without `done`, the script ends the
/// suite's processes and a line that still runs. Then the script runs the commands that take the
/// change back.
const GUARD: &str = r#"
trap '' HUP INT TERM
armed=
runs=
while read -r order group; do
  case $order in
    runs) runs=$group ;;
    arm) armed=1 ;;
    disarm) armed= ;;
    done) exit 0 ;;
  esac
done
mark=$1
shift
for round in 1 2 3; do
  for environment in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$environment" 2>/dev/null | grep -qxF "$mark"; then
      pid=${environment#/proc/}
      kill -KILL "${pid%/environ}"
    fi
  done
done
if [ -n "$runs" ] && kill -s TERM -- "-$runs" 2>/dev/null; then
  for round in 1 2 3 4 5 6 7 8 9 10; do
    kill -s 0 -- "-$runs" 2>/dev/null || break
    sleep 0.5
  done
  kill -s KILL -- "-$runs" 2>/dev/null
fi
trap - HUP INT TERM
[ -z "$armed" ] || for line in "$@"; do sh -c "$line"; done
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_running_state_line_is_killed_before_the_change_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, started) = (folder.path().join("trace"), folder.path().join("started"));
        let undo = format!("echo undone >>{}", trace.display());
        let mut guard = Guard::start("no-suite", &[&undo]).unwrap();
        let line =
            format!("echo >{}; sleep 999; echo changed >>{}", started.display(), trace.display());
        let mut changing = Command::new("sh").args(["-c", &line]).process_group(0).spawn().unwrap();
        guard.tell(ARM);
        guard.tell(&format!("{RUNS} {}", changing.id()));
        let began = (0..12_000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            started.exists()
        });
        assert!(began, "the line did not begin");
        // The drop closes the guard's input, as the kernel does if this process dies.
        drop(guard.orders.take());
        assert!(!changing.wait().unwrap().success());
        guard.child.wait().unwrap();
        assert_eq!(std::fs::read_to_string(trace).unwrap(), "undone\n");
    }
}
