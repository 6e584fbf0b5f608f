//! Checksums of changed headers: the internet checksum by its change (RFC 1624), and the CRC32c of
//! SCTP (RFC 9260, appendix A).

/// The difference of changed words that an internet checksum covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change(u32);

impl Change {
    pub(super) const NONE: Self = Self(0);

    /// Computes the change from the four 16-bit words of `old` to those of `new`.
    #[inline(always)]
    pub(super) fn of(old: u64, new: u64) -> Self {
        Self(sum(!old) + sum(new))
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Returns the checksum after the change.
    #[inline(always)]
    pub(super) fn apply(self, checksum: u16) -> u16 {
        let mut sum = u32::from(!checksum) + self.0;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        !(sum as u16)
    }
}

/// Returns the checksum field of TCP or UDP after a change `pseudo` of the addresses and a change
/// `rest` of other words. A frame is unfinished if the network card completes the checksum; its
/// field then holds the pseudo-header's sum without the complement.
#[inline(always)]
pub(super) fn fixed(field: u16, pseudo: Change, rest: Change, is_unfinished: bool) -> u16 {
    match is_unfinished {
        true => !pseudo.apply(!field),
        false => pseudo.and(rest).apply(field),
    }
}

#[inline(always)]
fn sum(words: u64) -> u32 {
    let pairs = (words & 0x0000_ffff_0000_ffff) + (words >> 16 & 0x0000_ffff_0000_ffff);
    (pairs as u32) + (pairs >> 32) as u32
}

/// Computes the checksum of an SCTP packet, as if its checksum field were 0.
pub(super) fn crc32c(packet: &[u8]) -> u32 {
    let bytes = packet.iter().enumerate();
    let crc = bytes.fold(u32::MAX, |crc, (at, byte)| {
        let byte = if (8..12).contains(&at) { 0 } else { *byte };
        crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)]
    });
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incremental_checksum_update_follows_the_example_of_rfc_1624() {
        assert_eq!(Change::of(0x5555, 0x3285).apply(0xdd2f), 0x0000);
    }

    #[test]
    fn crc32c_has_the_known_value_for_eight_digits() {
        // The published check value is for nine digits, of which the ninth would lie in the
        // checksum field.
        assert_eq!(crc32c(b"12345678"), 0x6087_809a);
    }
}
