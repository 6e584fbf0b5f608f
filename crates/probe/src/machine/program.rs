use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ProbeError;

/// Returns the first 4 KiB that `program` prints when called with `flags` (`["--version"]`; nginx
/// and ssh need other flags): on standard output or, if that is empty, on standard error.
pub fn program_text(program: &str, flags: &[&str]) -> Result<String, ProbeError> {
    let failed = |source| ProbeError::Kernel { what: "the version of a program", source };
    let spawned = Command::new(program)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        // A directory in PATH that cannot be read gives PermissionDenied.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Err(ProbeError::NotFound {
                what: format!("program {program:?} that may be run"),
                hint: "install it, or give its path",
            });
        }
        spawned => spawned.map_err(failed)?,
    };
    // A program that does not know the flag may run as a server instead of ending.
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(failed)?.is_none() && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
    let _ = child.kill();
    let _ = child.wait();

    let outputs = [child.stdout.take().map(what_is_there), child.stderr.take().map(what_is_there)];
    for text in outputs.into_iter().flatten() {
        let text = text.map_err(failed)?;
        if !text.trim().is_empty() {
            return Ok(text);
        }
    }
    Err(ProbeError::NotFound {
        what: format!("version in what {program:?} printed"),
        hint: "give the flags that make it print one",
    })
}

/// Reads what is in the pipe now. A process that the program left behind may hold the pipe open, so
/// a read up to the end of file could wait forever.
fn what_is_there(mut output: impl Read + AsFd) -> io::Result<String> {
    rustix::io::ioctl_fionbio(&output, true)?;
    let mut text = vec![0; TEXT_MAX];
    let length = match output.read(&mut text) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        length => length?,
    };
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(2);
const TEXT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_on_standard_output_or_standard_error_is_read() {
        let say = |script| program_text("sh", &["-c", script]);
        assert_eq!(say("echo v1; echo more").unwrap(), "v1\nmore\n");
        assert_eq!(say("echo v2 >&2").unwrap(), "v2\n");
        let left_behind = "sleep 60 & echo $! >&2";
        let sleeper: i32 = say(left_behind).unwrap().trim().parse().unwrap();
        let sleeper = rustix::process::Pid::from_raw(sleeper).unwrap();
        rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).unwrap();
        assert!(matches!(say("true"), Err(ProbeError::NotFound { .. })));
        let error = program_text("no-such-program", &[]).unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("install"), "{error}");
    }
}
