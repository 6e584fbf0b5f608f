use rustix::io::Errno;
use std::fmt;

/// A stream that ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stream {id}: {ending}")]
pub struct StreamFailure {
    pub id: u32,
    /// This end was sending on it.
    pub sends: bool,
    pub ending: Ending,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The peer closed it.
    Closed,
    /// The peer, or something between, reset it.
    Reset,
    /// The peer's host says that nobody holds the port datagrams are sent to.
    Refused,
    /// The kernel would not send a datagram of this size in one piece.
    TooLarge,
    /// This machine's firewall refuses what is sent.
    Forbidden,
    System(Errno),
}

impl Ending {
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::PIPE => Self::Closed,
            Errno::CONNRESET | Errno::CONNABORTED => Self::Reset,
            Errno::CONNREFUSED => Self::Refused,
            Errno::MSGSIZE => Self::TooLarge,
            Errno::PERM | Errno::ACCESS => Self::Forbidden,
            errno => Self::System(errno),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed the data connection"),
            Self::Reset => f.write_str("the data connection was reset"),
            Self::Refused => f.write_str("the peer no longer takes datagrams on its port"),
            Self::TooLarge => f.write_str(
                "a datagram of this size does not fit the path: take a smaller --length",
            ),
            Self::Forbidden => f.write_str("this machine's firewall forbids what is sent"),
            Self::System(errno) => write!(f, "{}", std::io::Error::from(*errno)),
        }
    }
}
