#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Prepares a program that continues after this process has ended. The program reads from /dev/null
/// and prints to /dev/null. The program inherits no descriptor except the standard error that the
/// caller sets: an inherited lock of flock(1) or writing end of a pipe would stay open until the
/// program ends.
pub fn prepare_background(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: `close_on_exec` is
    // one system call.
    unsafe { command.pre_exec(close_on_exec) };
}

/// Marks all descriptors above the standard descriptors to be closed on exec, open or not. The
/// standard library's own pipe to the new process stays usable until the program starts.
fn close_on_exec() -> io::Result<()> {
    // SAFETY: the call only sets a flag of descriptors, and takes no pointer.
    let status = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_OTHER,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The descriptor after standard input, output and error.
const FIRST_OTHER: libc::c_uint = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// Returns the open descriptors of `ls`. `ls` itself opens one of these descriptors.
    fn descriptors(prepare: impl FnOnce(&mut Command)) -> Vec<String> {
        let mut command = Command::new("ls");
        command.args(["-l", "/proc/self/fd"]).stdin(Stdio::piped());
        prepare(&mut command);
        let output = command.stdout(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let named = lines.lines().filter_map(|line| line.split_once(" -> "));
        let number = |line: &str| line.split_whitespace().next_back().unwrap_or("?").to_owned();
        named.map(|(line, target)| format!("{} {target}", number(line))).collect()
    }

    #[test]
    fn a_program_in_the_background_inherits_no_other_descriptor() {
        // The duplicated descriptors are not marked close-on-exec.
        let file = rustix::io::dup(File::open("/dev/zero").unwrap()).unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let pipe = rustix::io::dup(writer).unwrap();
        let of = |descriptor: &OwnedFd, all: &[String]| {
            all.iter().any(|one| one.starts_with(&format!("{} ", descriptor.as_raw_fd())))
        };
        let all = descriptors(|_| ());
        assert!(of(&file, &all) && of(&pipe, &all), "{all:?}");
        let left = descriptors(prepare_background);
        assert_eq!(left[0], "0 /dev/null");
        // The other three are standard output and error, and the folder that `ls` reads.
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(!left.iter().any(|one| one.ends_with("/dev/zero")), "{left:?}");
    }
}
