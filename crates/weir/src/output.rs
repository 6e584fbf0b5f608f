//! The command's output. A reader that closes the pipe early (`weir lab list | head -1`) is not an
//! error.

use anyhow::Context;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing the output"),
    }
}

/// Writes a note to stderr. Ignores errors, because stderr may have no reader.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
