//! The output of the far side's command, held back so that it does not mix with the output of the
//! near side's command.

use crate::exit::Unusable;
use anyhow::Context;
use host::{Earlier, open_output_file};
use std::collections::VecDeque;
use std::io::{PipeReader, Read, pipe};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The command's standard output and standard error.
pub(super) type Writers = [Stdio; 2];

/// The last part of the output; empty if the output goes to a file.
#[derive(Debug)]
pub(super) struct FarOutput {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// A channel that is disconnected once all of the output was read.
    open: Receiver<()>,
}

impl FarOutput {
    pub(super) fn new(file: Option<&Path>) -> anyhow::Result<(Self, Writers)> {
        let (end, open) = channel();
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let output = Self { kept: Arc::clone(&kept), open };
        if let Some(path) = file {
            let opened = open_output_file(path, Earlier::Replaced, READABLE);
            let files = opened
                .and_then(|file| Ok([file.try_clone()?, file]))
                .map_err(|cause| Unusable::path("write", path, &cause, "--far-log"))?;
            return Ok((output, files.map(Stdio::from)));
        }
        let (reader, writer) = pipe().context("opening a pipe")?;
        let writers = [writer.try_clone().context("opening a pipe")?, writer];
        std::thread::Builder::new()
            .name("far-output".to_owned())
            .spawn(move || {
                keep_end(reader, &kept);
                drop(end);
            })
            .context("starting a thread")?;
        Ok((output, writers.map(Stdio::from)))
    }

    /// Returns the output so far, including all that the program wrote before it ended.
    pub(super) fn text(&self) -> String {
        // A descendant of the program may hold the pipe open.
        let _ = self.open.recv_timeout(AT_MOST);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.make_contiguous();
        let whole = if bytes.len() < KEPT { 0 } else { first_line(bytes) };
        String::from_utf8_lossy(&bytes[whole..]).into_owned()
    }
}

fn keep_end(mut reader: PipeReader, kept: &Mutex<VecDeque<u8>>) {
    let mut room = [0; 4096];
    loop {
        let count = match reader.read(&mut room) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&room[..count]);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }
}

/// Returns the index of the first whole line.
fn first_line(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Bytes kept: a program that prints without end must not fill the memory.
const KEPT: usize = 16 << 10;
const AT_MOST: Duration = Duration::from_millis(200);
/// Permission bits of a new file, before the umask applies.
const READABLE: u32 = 0o666;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn heard(script: &str) -> String {
        let (output, [out, err]) = FarOutput::new(None).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(out).stderr(err);
        let mut child = command.spawn().unwrap();
        drop(command);
        child.wait().unwrap();
        output.text()
    }

    #[test]
    fn stdout_and_stderr_are_kept() {
        assert_eq!(heard("echo one; echo two >&2"), "one\ntwo\n");
        assert_eq!(heard(":"), "");
    }

    #[test]
    fn only_the_last_part_of_long_output_is_kept() {
        let text = heard("seq 1 100000");
        assert!(text.len() <= KEPT && text.ends_with("\n100000\n"), "{}", text.len());
        let first = text.lines().next().unwrap();
        assert_eq!(first.len(), 5, "a cut line: {first}");
    }
}
