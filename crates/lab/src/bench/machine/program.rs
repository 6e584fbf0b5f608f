//! A program of the workload or of the system under test, and its output.

use super::MachineStep;
use crate::model::Failure;
use host::{Confined, HostError, Namespace, Program};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// A running program. The program's output goes to unnamed files. The kernel removes the files and
/// ends the program, however this run ends.
#[derive(Debug)]
pub(crate) struct Started {
    process: Confined,
    name: String,
    out: File,
    err: File,
}

impl Started {
    pub(crate) fn new(
        inside: &Namespace,
        argv: Vec<String>,
        cpus: &[usize],
        step: &MachineStep<'_>,
    ) -> Result<Self, Failure> {
        let create = || {
            let file = tempfile::tempfile()?;
            Ok((file.try_clone()?, file))
        };
        let wrong = |e: io::Error| {
            let folder = std::env::temp_dir();
            Failure::io(&format!("creating a temporary file in {}", folder.display()), &e)
        };
        let (stdout, out) = create().map_err(wrong)?;
        let (stderr, err) = create().map_err(wrong)?;
        // A program that is killed before it unlinks a temporary file leaves the file behind. In
        // the run's own folder, the next run removes the file.
        let room = step.programs.display().to_string();
        let mut environment = vec![("TMPDIR".to_owned(), room)];
        let path = super::search_path().into_string();
        environment.extend(path.ok().map(|path| ("PATH".to_owned(), path)));
        let name = name_of(&argv, step.weir);
        let program = Program { argv, environment, stdout, stderr, cpus: cpus.to_vec() };
        Ok(Self { process: Confined::start(inside, program)?, name, out, err })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the program's exit status if it ends within `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, HostError> {
        self.process.wait(patience)
    }

    /// Kills the program and its descendants, and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<(), HostError> {
        self.process.kill().map(drop)
    }

    /// Returns everything that the program has printed so far.
    pub(crate) fn output(&self) -> io::Result<String> {
        let bytes = from(&self.out, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the first line of the program's error output that contains `sign`, joined with the
    /// next line.
    pub(crate) fn complaint(&self, sign: &str) -> Option<String> {
        let bytes = from(&self.err, 0).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines().skip_while(|line| !line.contains(sign));
        let first = lines.next()?;
        let all = format!("{first} {}", lines.next().unwrap_or_default());
        Some(units::foreign(all.trim()).to_string())
    }

    /// Builds the failure of a program that ended too early, with its last output.
    pub(crate) fn early_end(&self, status: ExitStatus) -> Failure {
        let words = [&self.err, &self.out]
            .into_iter()
            .filter_map(|file| {
                let length = file.metadata().ok()?.len();
                from(file, length.saturating_sub(LAST_WORDS)).ok()
            })
            .map(|bytes| telling_line(&bytes))
            .find(|line| !line.is_empty())
            .unwrap_or_else(|| "it said nothing".to_owned());
        let advice = match status.success() {
            // Status 0 may mean that the program went into the background. The kernel then ended
            // all its processes.
            true => " (it must stay in the foreground)",
            false => "",
        };
        let name = self.name();
        Failure::Workload(format!("{name} ended early ({status}){advice}: {words}"))
    }
}

/// Returns the program's name from the command line. For our own program, returns its subcommand
/// rather than its path.
fn name_of(argv: &[String], weir: &Path) -> String {
    match argv {
        [program, verb, role, ..] if Path::new(program) == weir => format!("weir {verb} {role}"),
        [program, ..] => program.clone(),
        [] => String::new(),
    }
}

/// Reads without moving the file offset, because the program writes there.
fn from(file: &File, mut at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(bytes),
            count => {
                bytes.extend_from_slice(&buffer[..count]);
                at += count as u64;
            }
        }
    }
}

/// Returns the last line that begins with `error`, or else the last line. Many programs print a
/// line of usage or of help after the error.
fn telling_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let is_error =
        |line: &&str| line.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("error"));
    lines().find(is_error).or_else(|| lines().next()).unwrap_or("").to_owned()
}

const LAST_WORDS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_programs_last_nonempty_line_is_reported() {
        assert_eq!(telling_line(b"one\ntwo\n\n  \n"), "two");
        assert_eq!(telling_line(b""), "");
    }

    #[test]
    fn a_failed_programs_error_line_is_reported_before_its_usage() {
        let words = b"error: unexpected argument '-x' found\n\nUsage: peer [OPTIONS]\n\n\
                      For more information, try '--help'.\n";
        assert_eq!(telling_line(words), "error: unexpected argument '-x' found");
    }
}
