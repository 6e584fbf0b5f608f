//! What the command says. A reader that has seen enough (`weir lab list | head -1`) is no failure.

use anyhow::Context;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// To stdout: what was asked for.
pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing the output"),
    }
}

/// To stderr: what the reader should know beside it. Nobody may be listening.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
