//! Questions to a user at the terminal, and views that end at a key press.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Write};

/// Whether a user can read a question and answer it.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns the number of columns of the terminal that shows standard output; `None` if standard
/// output is no terminal.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    // A terminal without a known size reports 0 columns.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether a terminal shows standard output and a user can press keys.
pub(crate) fn shows_and_reads() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns the numbers of columns and lines of the terminal that shows standard output, if the
/// terminal reports them.
pub(crate) fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    Some(size).filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

/// A view on the whole terminal. Dropping this value restores the former content of the terminal.
pub(crate) struct Screen(Termios);

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(io::stdin(), OptionalActions::Flush, &keys)?;
        let screen = Self(before);
        // Switches to the alternate screen, without a cursor and wrapped lines (xterm's private
        // modes).
        show("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    /// Draws the text from the first line on, and `foot` below it.
    pub(crate) fn draw(&self, text: &str, foot: &str) -> io::Result<()> {
        // Each line erases the rest of its line, so that nothing flickers (ECMA-48: CUP, EL, ED).
        let text = text.replace('\n', "\x1b[K\n");
        show(&format!("\x1b[H{text}\x1b[J{foot}"))
    }

    /// Waits a tenth of a second for a key press and returns the key.
    pub(crate) fn key(&self) -> io::Result<Option<u8>> {
        if !is_readable()? {
            return Ok(None);
        }
        let mut key = [0];
        match rustix::io::read(io::stdin(), &mut key) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(Some(key[0])),
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = show("\x1b[?7h\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
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

/// Disables echo until this value is dropped. Discards input typed before the question.
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
        // The terminal did not echo the newline either: print a newline.
        let _ = put("\n");
    }
}

/// Waits up to a tenth of a second for a whole line of input.
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
