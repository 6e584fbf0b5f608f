use std::io::ErrorKind;
use std::path::PathBuf;

use host::HostError;
use thiserror::Error;

use super::config::ConfigError;
use super::ports::OpenError;
use super::tls::TlsError;

/// The reason for which a switch does not start, or refuses a change of its settings.
#[derive(Debug, Error)]
pub enum SwitchError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Port(#[from] OpenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot use {}: {error}; run it as root, or choose another folder by --rundir", path.display())]
    Rundir { path: PathBuf, error: std::io::Error },
    #[error("another switch runs in {}: end it, or choose another folder by --rundir", rundir.display())]
    Running { rundir: PathBuf },
    #[error("cannot listen at {place}: {error}; choose another address")]
    Listen { place: String, error: std::io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Flows { path: PathBuf, line: usize, problem: String },
    #[error("cannot read {}: {error}; check the path and the permissions", path.display())]
    ReadFlows { path: PathBuf, error: std::io::Error },
    #[error("CPU {cpu} is not available: pmd-cpus may name {available}")]
    NoCpu { cpu: usize, available: String },
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("cannot start a thread: {0}; end other programs, or raise `ulimit -u`")]
    Thread(std::io::Error),
    #[error(
        "{what}: {} is in none of the directories that this process could open at its start: \
         name a file there in the settings and restart `weir switch run`, or leave out \
         --confine-files",
        path.display()
    )]
    Confined { what: String, path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

impl SwitchError {
    /// Whether the cause is the user's input rather than the machine.
    #[must_use]
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Tls(_)
            | Self::Port(OpenError::Pcap { .. })
            | Self::Running { .. }
            | Self::Flows { .. }
            | Self::ReadFlows { .. }
            | Self::NoCpu { .. }
            | Self::Host(HostError::NotPrivate { .. })
            | Self::Confined { .. }
            | Self::Refused(_) => true,
            // The user named an address that this machine does not have.
            Self::Listen { error, .. } => error.kind() == ErrorKind::AddrNotAvailable,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listen_address_of_another_host_is_a_usage_error() {
        let refused = |kind: ErrorKind| {
            let place = "203.0.113.7:6653".to_owned();
            SwitchError::Listen { place, error: kind.into() }.is_misuse()
        };
        assert!(refused(ErrorKind::AddrNotAvailable));
        assert!(!refused(ErrorKind::AddrInUse));
    }
}
