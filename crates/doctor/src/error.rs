use std::io;
use std::path::PathBuf;

/// The reason why no diagnosis could be made. The message has advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    #[error("{0}")]
    Usage(String),
    #[error(
        "cannot read {path}: {source}; name a file that `weir doctor --record FILE` wrote, or the directory of a run"
    )]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {path}: {source}; name a capture in pcap's or pcapng's format")]
    Capture {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("none of the {packets} packets of this capture is a TCP segment: capture TCP")]
    NoSegments { packets: u64 },
    #[error("no TCP segment passed {0}: capture for longer with --time, or on another interface")]
    NothingCaptured(String),
    #[error("cannot capture on {interface}: {source}")]
    Interface {
        interface: String,
        #[source]
        source: port::PortError,
    },
    #[error("cannot write {path}: {source}; name another file with --record")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} cannot be judged: {reason}")]
    Malformed { path: PathBuf, reason: String },
    #[error("{path} has more than {most} bytes, which no recording has: name another file")]
    TooLong { path: PathBuf, most: u64 },
    #[error("no TCP connection matches {0}; `ss -tnp` lists the connections of this machine")]
    NoFlow(String),
    #[error(
        "process {pid} ({name}) has no TCP connection, opens none, and waits for no name server; `ss -tnp` lists the connections of this machine"
    )]
    NoConnection { pid: u32, name: String },
    #[error("there is no process {0}; `ss -tnp` lists the processes with connections")]
    NoProcess(u32),
    #[error("--cpus {chosen}: {known}")]
    NoSuchCores { chosen: String, known: String },
}

impl DoctorError {
    /// Whether the user gave wrong arguments. `false`: the observation failed.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::NoSuchCores { .. }
                | Self::Malformed { .. }
                | Self::TooLong { .. }
                | Self::Read { .. }
                | Self::Capture { .. }
                | Self::Write { .. }
        )
    }
}
