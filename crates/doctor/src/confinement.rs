//! Takes from the process of an observer the rights that it does not need.
//!
//! The observer reads the files of all processes, which Landlock would deny. The filter of system
//! calls refuses to write, make and remove files, so threads with rights of their own write the
//! recording and remove the socket of the metrics.

use crate::{DoctorError, Recording};
use host::{Calls, ConfinedPaths, Confinement, OtherThreads, Policy};
use rustix::thread::CapabilitySet;
use std::io;
use std::path::{Path, PathBuf};

/// Confines this thread, and threads that it starts later, permanently. Call this function before
/// the observation.
pub fn confine() -> Confinement {
    host::confine_calls(&OBSERVER)
}

/// A thread that may write one file, or a file beside it.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    writer: OtherThreads,
}

impl RecordingFile {
    /// Starts the thread. Call this method before [`confine`].
    pub fn prepare(path: &Path) -> io::Result<Self> {
        let mut paths = ConfinedPaths::default();
        paths.writes(path);
        let path = std::path::absolute(path)?;
        let prepare = move || host::confine(&FILE, &paths);
        let (writer, _) = OtherThreads::start("recording", prepare)?;
        Ok(Self { path, writer })
    }

    /// Writes the recording and returns it.
    pub fn write(&self, recording: Recording) -> Result<Recording, DoctorError> {
        let path = self.path.clone();
        let written = self.writer.call(move || recording.write(&path).map(|()| recording));
        written.map_err(|source| DoctorError::Write { path: self.path.clone(), source })?
    }
}

/// Starts a thread that may make and remove sockets in the directory of `socket`, and nothing else.
/// Call this function before [`confine`].
pub fn socket_remover(socket: &Path) -> io::Result<OtherThreads> {
    let mut paths = ConfinedPaths::default();
    paths.binds(socket);
    OtherThreads::start("socket", move || host::confine(&FILE, &paths)).map(|(threads, _)| threads)
}

const OBSERVER: Policy = Policy {
    // CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH: files of all processes in /proc. CAP_BPF, CAP_PERFMON,
    // CAP_SYSLOG: programs and profiles of the kernel, with addresses of its functions.
    // CAP_SYS_ADMIN: other network namespaces. CAP_NET_ADMIN: congestion controls' values.
    // CAP_NET_RAW: a capture.
    capabilities: CapabilitySet::SYS_PTRACE
        .union(CapabilitySet::DAC_READ_SEARCH)
        .union(CapabilitySet::BPF)
        .union(CapabilitySet::PERFMON)
        .union(CapabilitySet::SYSLOG)
        .union(CapabilitySet::SYS_ADMIN)
        .union(CapabilitySet::NET_ADMIN)
        .union(CapabilitySet::NET_RAW),
    system: &[],
    calls: &[
        Calls::Routes,
        Calls::Sockets,
        Calls::Ports,
        Calls::Networks,
        Calls::Watch,
        Calls::ReadOnly,
    ],
};

/// The rights of a thread for one file. CAP_DAC_OVERRIDE: another user may own the directory.
const FILE: Policy =
    Policy { capabilities: CapabilitySet::DAC_OVERRIDE, system: &[&["/proc/self"]], calls: &[] };

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_observer_of_root_reads_files_and_is_refused_every_other_forbidden_action() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(testing::Need::Root);
        }
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("file"), "text").unwrap();
        let own = tempfile::tempdir().unwrap();
        let (record, socket) = (own.path().join("seen.json"), own.path().join("metrics"));
        let listener = UnixListener::bind(&socket).unwrap();
        // Confines only this thread, which ends with the test.
        let enforced = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let file = RecordingFile::prepare(&record).unwrap();
                let remover = socket_remover(&socket).unwrap();
                let confinement = confine();
                if !confinement.has_calls() {
                    return false;
                }
                assert_eq!(confinement.warnings(), Vec::<String>::new());
                let permitted = testing::permitted(other.path());
                let names = permitted.iter().filter_map(|line| line.split(':').next());
                let more: Vec<_> = names.filter(|name| !PERMITTED.contains(name)).collect();
                assert_eq!(more, Vec::<&str>::new(), "{permitted:?}");
                fs::remove_file(&socket).unwrap_err();
                file.write(Recording::new(crate::recording::Machine::default())).unwrap();
                let gone = socket.clone();
                remover.call(move || fs::remove_file(gone)).unwrap().unwrap();
                true
            });
            thread.join().unwrap()
        });
        drop(listener);
        if !enforced {
            return testing::skip_part(testing::Need::Confinement);
        }
        assert!(Recording::read(&record).is_ok());
        assert!(!socket.exists());
        let refused = testing::forbidden_names().count() - PERMITTED.len();
        eprintln!("ATTACK confined-doctor: {refused} calls refused");
    }

    /// Actions of an observation.
    const PERMITTED: [&str; 5] = [
        "read /etc/shadow",
        "read another directory",
        "read /proc/1/environ",
        "socket AF_PACKET",
        "perf_event_open",
    ];
}
