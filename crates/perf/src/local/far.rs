use super::channel::pin;
use crate::PerfError;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::str::FromStr;
use units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Sends each message back.
    Echo,
    /// Writes blocks.
    Fill,
}

impl Task {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Fill => "fill",
        }
    }
}

impl FromStr for Task {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "echo" => Ok(Self::Echo),
            "fill" => Ok(Self::Fill),
            _ => Err(format!("`{text}`: write echo or fill")),
        }
    }
}

/// Does the work of the second process over its standard input and output, until the first process
/// closes them.
pub fn far_end(task: Task, size: Bytes, affinity: Option<usize>) -> Result<(), PerfError> {
    if let Some(cpu) = affinity {
        pin(cpu)?;
    }
    let failed = |error| PerfError::system("reaching the first process", error);
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(std::fs::File::from);
    let mut input = clone(std::io::stdin().as_fd()).map_err(failed)?;
    let mut output = clone(std::io::stdout().as_fd()).map_err(failed)?;
    let mut block = vec![b'f'; usize::try_from(size.count()).unwrap_or(usize::MAX)];
    loop {
        let done = match task {
            Task::Echo => input.read_exact(&mut block).and_then(|()| output.write_all(&block)),
            Task::Fill => output.write_all(&block),
        };
        match done {
            Ok(()) => {}
            // The first process has closed the transport: the measurement is over.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        }
    }
}
