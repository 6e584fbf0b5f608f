use crate::UsageError;
use host::HostError;
use link::LinkError;
use port::PortError;
use std::io::{self, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    #[error("cable {cable}: {source}")]
    Link { cable: String, source: LinkError },
    #[error("cable {cable}, side {side}: {source}")]
    Port { cable: String, side: char, source: PortError },
    #[error("there is no cable {0}")]
    NoSuchCable(usize),
    #[error(
        "the emulator's thread cannot start: {0}; end other programs, or raise `ulimit -u` and `ulimit -n`"
    )]
    Thread(io::Error),
    #[error("the emulator's thread ended by an internal error: {0}; please report it")]
    Died(String),
    #[error(
        "the emulator's thread has had no CPU time for {0} s: end the real-time program that uses its CPU; the \
         request may still take effect then"
    )]
    Starved(u64),
    #[error("the emulated link has ended")]
    Ended,
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("{end}: {source}")]
    Host { end: String, source: HostError },
    #[error("{end}: {source}")]
    Attach { end: String, source: PortError },
    #[error(
        "no network namespace is called `{name}`{hint}; `ip netns list` lists the existing ones"
    )]
    NoSuchNamespace { name: String, hint: String },
    #[error(
        "{end}: without root no other namespace of this machine can be entered; run as root, or leave \
         out `pid:` and paths: the link then makes a namespace of the plain name"
    )]
    OutOfReach { end: String },
    #[error("a link called `{name}` is up already{}: choose another --name, or end it with `weir link down {name}`",
        .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    NameTaken { name: String, pid: Option<u32> },
    #[error("no link is called `{name}`{hint}; `weir link list` shows the links that are up")]
    NoSuchLink { name: String, hint: String },
    #[error("cannot access the links of this user: {0}")]
    Directory(#[source] HostError),
    #[error("{doing}: {source}{}", remedy(.source))]
    Control { doing: String, source: io::Error },
    #[error("{0}")]
    Refused(String),
}

impl EmuError {
    /// Whether the cause is the user's command line.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Usage(_)
            | Self::NoSuchNamespace { .. }
            | Self::OutOfReach { .. }
            | Self::NameTaken { .. }
            | Self::NoSuchLink { .. }
            | Self::Refused(_) => true,
            Self::Attach { source, .. } => matches!(source, PortError::NoSuchInterface { .. }),
            Self::Host { source, .. } => {
                matches!(
                    source,
                    HostError::NoSuchInterface { .. } | HostError::NoSuchNamespace { .. }
                )
            }
            _ => false,
        }
    }
}

/// Returns advice for errors whose system message does not tell what to do.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => ": run this command as the link's user, or as root",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            ": its process may be stopped; continue it, or kill it"
        }
        _ => "",
    }
}
