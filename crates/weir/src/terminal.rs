//! Questions to a person at the terminal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Write};

/// Whether a person can read a question and answer it.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The columns of the terminal that shows standard output; `None` if no terminal does.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know its size has no columns.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Asks for yes or no; any other answer is no.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    put(&format!("{question} [y/N] "))?;
    let answer = line()?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Reads a line that the terminal does not show; `None` if `is_called_off` becomes true first.
pub(crate) fn secret(prompt: &str, is_called_off: impl Fn() -> bool) -> io::Result<Option<String>> {
    let _hidden = EchoOff::begin()?;
    put(prompt)?;
    while !is_readable()? {
        if is_called_off() {
            return Ok(None);
        }
    }
    let secret = line()?;
    Ok(Some(secret.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Disables echo until it is dropped. Input typed before the question is discarded.
struct EchoOff(Termios);

impl EchoOff {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
        // The terminal did not show the newline either.
        let _ = put("\n");
    }
}

/// Waits a tenth of a second for a whole line.
fn is_readable() -> io::Result<bool> {
    let stdin = io::stdin();
    let turn = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&turn)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line)
}

fn put(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}
