use host::HostError;
use port::PortError;

use crate::profile::Mistakes;

#[derive(Debug, thiserror::Error)]
pub enum GenError {
    #[error("{0}")]
    Profile(#[from] Mistakes),
    #[error("cannot read {file}: {reason}; check the path and the permissions")]
    Unreadable { file: String, reason: std::io::Error },
    #[error(
        "cannot read {file}: {reason}; check the path, or choose a profile of `weir gen --profiles`"
    )]
    NoProfile { file: String, reason: std::io::Error },
    #[error("cannot write {file}: {reason}; name another one")]
    Unwritable { file: String, reason: std::io::Error },
    #[error("{file}: {problem}")]
    Capture { file: String, problem: String },
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(
        "no answer from gateway {gateway} at {port} after {attempts} requests: check the address, or \
         give its MAC address with `dest-mac=`"
    )]
    NoNeighbour { gateway: std::net::IpAddr, port: String, attempts: u32 },
    #[error("a port failed during the test: {0}")]
    PortFailed(String),
    #[error("{port}; start the other end, for example `weir switch run`")]
    NoPeer { port: String },
    #[error("cancelled before the first packet")]
    Cancelled,
    #[error("{0}")]
    Thread(&'static str),
}

impl GenError {
    /// True if the user's input is wrong; false if the measurement failed.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Profile(_)
                | Self::Unreadable { .. }
                | Self::NoProfile { .. }
                | Self::Unwritable { .. }
                | Self::Capture { .. }
                | Self::Usage(_)
                | Self::Port(PortError::NoSuchInterface { .. })
        )
    }
}
