use rustix::io::Errno;
use std::fmt;
use units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stream {id}: {ending}")]
pub struct StreamFailure {
    pub id: u32,
    pub sends: bool,
    pub ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    Closed,
    /// The peer, or a middlebox, reset the stream.
    Reset,
    /// The peer's host reports that no socket is bound to the destination port.
    Refused,
    /// The kernel refused to send a datagram of this size unfragmented.
    TooLarge {
        /// Maximum datagram for the path's MTU, if the local kernel knows the MTU.
        fits: Option<Bytes>,
    },
    /// This host's firewall rejects the packets.
    Forbidden,
    System(Errno),
}

impl Ending {
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::PIPE => Self::Closed,
            Errno::CONNRESET | Errno::CONNABORTED => Self::Reset,
            Errno::CONNREFUSED => Self::Refused,
            Errno::MSGSIZE => Self::TooLarge { fits: None },
            Errno::PERM | Errno::ACCESS => Self::Forbidden,
            errno => Self::System(errno),
        }
    }

    /// Returns the errno; zero if no system call failed.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Closed => 0,
            Self::Reset => Errno::CONNRESET.raw_os_error(),
            Self::Refused => Errno::CONNREFUSED.raw_os_error(),
            Self::TooLarge { .. } => Errno::MSGSIZE.raw_os_error(),
            Self::Forbidden => Errno::PERM.raw_os_error(),
            Self::System(errno) => errno.raw_os_error(),
        }
    }

    /// True if the cause is this host, not the peer or the path.
    pub(crate) fn is_own(self) -> bool {
        match self {
            Self::Closed | Self::Reset | Self::Refused => false,
            Self::TooLarge { .. } | Self::Forbidden => true,
            Self::System(errno) => !matches!(
                errno,
                Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN
            ),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed the data connection"),
            Self::Reset => f.write_str("the data connection was reset"),
            Self::Refused => f.write_str("the peer no longer takes datagrams on its port"),
            Self::TooLarge { fits: Some(fits) } => write!(
                f,
                "datagrams of this size do not fit the path's MTU whole: take --length {} or less",
                fits.count()
            ),
            Self::TooLarge { fits: None } => f.write_str(
                "datagrams of this size do not fit the path's MTU whole: take a smaller --length",
            ),
            Self::Forbidden => f.write_str("this machine's firewall rejects the packets"),
            Self::System(Errno::TIMEDOUT) => f.write_str(
                "the peer acknowledged no data in time: the path broke, or the peer's host is down",
            ),
            Self::System(errno) => write!(f, "{}", std::io::Error::from(*errno)),
        }
    }
}
