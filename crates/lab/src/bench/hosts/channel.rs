//! The controller's end of the connection to an agent.

use super::capture::Capture;
use super::message::{self, Answer, Ask, MAGIC};
use crate::model::{Cancel, Failure};
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

/// A running program, usually ssh, whose standard streams lead to an agent.
#[derive(Debug)]
pub(super) struct Channel {
    name: String,
    child: Child,
    /// Leads to the thread that writes to the program. A program that reads nothing cannot block
    /// the controller.
    asks: Option<Sender<Vec<u8>>>,
    answers: Receiver<io::Result<Answer>>,
    errors: Capture,
    /// A request failed. The late reply to this request would be taken for the reply to a later
    /// request.
    is_broken: bool,
}

impl Channel {
    pub(super) fn open(name: &str, mut command: Command) -> Result<Self, Failure> {
        let (errors, stderr) =
            Capture::new().map_err(|error| Failure::io("making a pipe", &error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        // Ctrl-C signals the foreground group; the lab decides how the connection ends.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned = command.spawn();
        // `command` holds a copy of the error pipe's write end. Without the drop the pipe would
        // stay open.
        drop(command);
        let mut child = spawned.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::Workload(format!(
                "`{program}` is not installed: install it (openssh-client)"
            )),
            _ => Failure::io(&format!("starting {program}"), &error),
        })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        // The queue holds one reply, so that an agent cannot flood the controller.
        let (sender, answers) = sync_channel(1);
        let read = move || {
            let Some(mut stdout) = stdout else { return };
            if let Err(error) = skip_greeting(&mut stdout) {
                let _ = sender.send(Err(error));
                return;
            }
            while let Some(answer) = message::read(&mut stdout).transpose() {
                let is_last = answer.is_err();
                if sender.send(answer).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("from {name}")).spawn(read);
        thread.map_err(|error| Failure::io("starting a thread", &error))?;
        let (asks, questions) = channel::<Vec<u8>>();
        let write = move || {
            let Some(mut stdin) = stdin else { return };
            for bytes in questions {
                if stdin.write_all(&bytes).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("to {name}")).spawn(write);
        thread.map_err(|error| Failure::io("starting a thread", &error))?;
        let name = name.to_owned();
        Ok(Self { name, child, asks: Some(asks), answers, errors, is_broken: false })
    }

    /// Sends the request `ask` and waits for the reply.
    pub(super) fn ask(
        &mut self,
        ask: &Ask,
        patience: Duration,
        cancel: &Cancel,
    ) -> Result<Answer, Failure> {
        let answer = self.asked(ask, patience, cancel);
        // The late reply to a failed request would be taken for the reply to the next request.
        self.is_broken |= answer.is_err();
        match answer? {
            Answer::Failed { reason } => {
                let reason = units::foreign(reason).up_to(LONGEST_REASON).to_string();
                Err(Failure::Workload(format!("{}: {reason}", self.name)))
            }
            answer => Ok(answer),
        }
    }

    fn asked(&mut self, ask: &Ask, patience: Duration, cancel: &Cancel) -> Result<Answer, Failure> {
        if self.is_broken {
            return Err(self.lost("the connection is lost"));
        }
        let bytes = message::encode(ask).map_err(|error| Failure::io("asking a host", &error))?;
        let Some(asks) = &self.asks else {
            return Err(self.lost("the connection is closed"));
        };
        if asks.send(bytes).is_err() {
            // A program other than the agent exits early. The program's output explains the failure
            // better than its exit status.
            return Err(match self.answers.recv_timeout(END_WITHIN) {
                Ok(Err(error)) => self.strange(&error),
                _ => self.ended(),
            });
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(LOOK)) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => return Err(self.strange(&error)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    return Err(Failure::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let text = format!("it did not answer within {} s", patience.as_secs());
                    return Err(self.lost(&text));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Builds the failure of a connection whose program is about to exit.
    fn ended(&mut self) -> Failure {
        let deadline = Instant::now() + END_WITHIN;
        while Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The last error output still arrives through a pipe.
        self.errors.await_end(LAST_LOOKS);
        let words = self.errors.so_far().text;
        match super::ssh::advice(&words) {
            Some(advice) => self.lost(&advice),
            None => {
                let lines = self.errors.so_far().last_lines(3);
                self.lost(&match lines.is_empty() {
                    true => "the connection ended".to_owned(),
                    false => format!("the connection ended: {lines}"),
                })
            }
        }
    }

    fn strange(&self, error: &io::Error) -> Failure {
        // A login that prints texts of its own may also have an agent that did not start.
        self.errors.await_end(LAST_LOOKS);
        let said = self.errors.so_far().last_lines(1);
        let said = if said.is_empty() { said } else { format!("; its last error is `{said}`") };
        self.lost(&format!("it sent no valid answer: {error}{said}"))
    }

    fn lost(&self, reason: &str) -> Failure {
        Failure::HostLost { host: self.name.clone(), reason: reason.to_owned() }
    }
}

/// Closes the agent's input, so that the agent ends, and waits until it has taken its changes back.
impl Drop for Channel {
    fn drop(&mut self) {
        drop(self.asks.take());
        let patience = if self.is_broken { LAST_WORK_IF_BROKEN } else { LAST_WORK };
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            // Unread replies would keep the agent from ending.
            while self.answers.try_recv().is_ok() {}
            std::thread::sleep(Duration::from_millis(5));
        }
        super::ssh::end_group(&mut self.child);
    }
}

/// Reads up to and including the line that an agent prints first.
fn skip_greeting(from: &mut impl Read) -> io::Result<()> {
    let mut seen: Vec<u8> = Vec::new();
    let mut byte = [0];
    while seen.len() < LONGEST_GREETING {
        match from.read(&mut byte) {
            Ok(0) if seen.is_empty() => return Ok(()),
            Ok(0) => break,
            Ok(_) => seen.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if seen.ends_with(MAGIC) {
            return Ok(());
        }
    }
    let seen = String::from_utf8_lossy(&seen);
    let seen = seen.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(io::Error::other(format!("no agent, but `{}`", units::foreign(seen))))
}

const LOOK: Duration = Duration::from_millis(50);
const END_WITHIN: Duration = Duration::from_secs(2);
/// Number of polls, a millisecond apart, for the rest of an ended program's error output.
const LAST_LOOKS: u32 = 500;
/// The undo of each change may take an agent half a minute.
const LAST_WORK: Duration = Duration::from_secs(60);
/// Timeout for the end of an agent after a failed request: the connection may not tell the agent
/// that its input has ended.
const LAST_WORK_IF_BROKEN: Duration = Duration::from_secs(10);
const LONGEST_GREETING: usize = 64 << 10;
const LONGEST_REASON: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Sends a request to a program that replies or exits, and returns the error. The long timeout
    /// is for a busy machine.
    fn asked(script: &str) -> String {
        asked_within(script, Duration::from_secs(60))
    }

    fn asked_within(script: &str, patience: Duration) -> String {
        let mut channel = Channel::open("far", shell(script)).unwrap();
        let answer = channel.ask(&Ask::Clock, patience, &Cancel::default());
        let text = answer.unwrap_err().to_string();
        let _ = channel.child.kill();
        text
    }

    #[test]
    fn a_host_without_an_agent_is_refused_with_its_output_escaped() {
        let said = asked("printf 'hello\\033[2J\\n'");
        assert!(said.contains(r"no agent, but `hello\x1b[2J`"), "{said}");
        let said = asked("printf 'motd\\nweir-agent\\n\\177\\377\\377\\377'; sleep 1");
        assert!(said.contains("limit"), "{said}");
        let said =
            asked_within("printf 'weir-agent\\n'; exec sleep 999", Duration::from_millis(300));
        assert!(said.contains("did not answer"), "{said}");
        // The program reads nothing, and the request is longer than the pipe's buffer.
        let long = Ask::Set { name: "x".repeat(1 << 20), value: String::new() };
        let mut channel = Channel::open("far", shell("exec sleep 999")).unwrap();
        let answer = channel.ask(&long, Duration::from_millis(300), &Cancel::default());
        let said = answer.unwrap_err().to_string();
        assert!(said.contains("did not answer"), "{said}");
        let _ = channel.child.kill();
        let said = asked("echo broken >&2; exit 7");
        assert!(said.contains("the connection ended: broken"), "{said}");
        let said = asked("echo hello; echo 'sudo: a password is required' >&2");
        assert!(said.contains("no agent, but `hello`; its last error is `sudo: a"), "{said}");
        let said = asked("cat /dev/zero");
        assert!(said.contains("no agent"), "{said}");
    }

    #[test]
    fn the_error_names_a_program_that_does_not_exist() {
        let error = Channel::open("far", Command::new("no-such-ssh")).unwrap_err();
        assert!(error.to_string().contains("`no-such-ssh` is not installed"), "{error}");
    }
}
