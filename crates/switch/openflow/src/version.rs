use std::fmt;

/// A version of OpenFlow that sessions support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    V10 = 1,
    V11 = 2,
    V12 = 3,
    V13 = 4,
    V14 = 5,
    V15 = 6,
}

impl Version {
    pub const ALL: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// Returns the number in the header of each message.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    #[must_use]
    pub fn from_number(number: u8) -> Option<Version> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V10 => "OpenFlow10",
            Version::V11 => "OpenFlow11",
            Version::V12 => "OpenFlow12",
            Version::V13 => "OpenFlow13",
            Version::V14 => "OpenFlow14",
            Version::V15 => "OpenFlow15",
        })
    }
}
