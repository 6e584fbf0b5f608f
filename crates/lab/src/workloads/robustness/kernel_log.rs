//! Reads the kernel's log from one moment on.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Reads records of `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg) that the kernel writes after
/// [`Self::open`].
#[derive(Debug)]
pub(super) struct KernelLog {
    file: File,
}

impl KernelLog {
    /// Opens the log. `None` if this process may not read the log.
    pub(super) fn open() -> Option<Self> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = File::options().read(true).custom_flags(flags).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Self { file })
    }

    /// Returns the new records of a warning or worse, oldest first.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        let mut buffer = [0; 8192];
        let mut complaints = Vec::new();
        while complaints.len() < MOST {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    complaints.extend(complaint(&String::from_utf8_lossy(&buffer[..count])));
                }
                // EPIPE means that the kernel overwrote records before this process read the
                // records.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        complaints
    }
}

/// Returns the message of a record, `LEVEL,SEQUENCE,TIME,FLAGS;MESSAGE`, if the record is a warning
/// or worse.
fn complaint(record: &str) -> Option<String> {
    let (head, message) = record.split_once(';')?;
    let level: u32 = head.split(',').next()?.parse().ok()?;
    // The lower three bits are the priority, the other bits the facility. User space also writes
    // records.
    let (priority, facility) = (level & 7, level >> 3);
    let line = message.lines().next().unwrap_or_default();
    // A line with this end counts suppressed messages of any level (lib/ratelimit.c).
    let is_count = line.ends_with("callbacks suppressed");
    (facility == 0 && priority <= WARNING && !is_count).then(|| units::foreign(line).to_string())
}

const WARNING: u32 = 4;
const MOST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_warnings_are_complaints() {
        let warning =
            "4,339,5140900,-;WARNING: CPU: 0 PID: 1 at net/core/dev.c:1\n SUBSYSTEM=net\n";
        assert_eq!(complaint(warning).unwrap(), "WARNING: CPU: 0 PID: 1 at net/core/dev.c:1");
        assert_eq!(complaint("6,340,5140900,-;eth0: link becomes ready"), None);
        assert_eq!(complaint("12,341,5140900,-;systemd[1]: a warning of a program"), None);
        assert_eq!(complaint("4,342,5140900,-;net_ratelimit: 2 callbacks suppressed\n"), None);
        assert_eq!(complaint("no record"), None);
    }
}
