/// The number of a port in OpenFlow 1.1 and later. OpenFlow 1.0 has 16 bits. The reserved numbers
/// of OpenFlow 1.0, 0xff00 to 0xffff, are 0xffff_ff00 to 0xffff_ffff here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNumber(pub u32);

impl PortNumber {
    pub const UNSET: Self = Self(0xffff_fff7);
    pub const IN_PORT: Self = Self(0xffff_fff8);
    pub const TABLE: Self = Self(0xffff_fff9);
    pub const NORMAL: Self = Self(0xffff_fffa);
    pub const FLOOD: Self = Self(0xffff_fffb);
    pub const ALL: Self = Self(0xffff_fffc);
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Means no port in actions, and any port in requests.
    pub const NONE: Self = Self(0xffff_ffff);

    /// Returns the port's number in OpenFlow 1.0; `None` if OpenFlow 1.0 has no such number.
    #[inline]
    #[must_use]
    pub fn to_16_bits(self) -> Option<u16> {
        match self.0 {
            0..0xff00 => Some(self.0 as u16),
            0xffff_ff00.. => Some(self.0 as u16),
            _ => None,
        }
    }

    #[inline]
    #[must_use]
    pub fn from_16_bits(number: u16) -> Self {
        if number < 0xff00 { Self(number.into()) } else { Self(0xffff_0000 | u32::from(number)) }
    }

    #[inline]
    #[must_use]
    pub fn is_reserved(self) -> bool {
        self.0 >= 0xffff_ff00
    }
}
