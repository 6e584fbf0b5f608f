//! The checksum of SCTP: CRC-32C (RFC 9260 section 6.8).

/// The checksum of an SCTP packet, whose own field at byte 8 counts as zero. It is stored least
/// significant byte first.
pub(super) fn of_sctp(packet: &[u8]) -> u32 {
    let (head, rest) = packet.split_at(packet.len().min(8));
    let crc = update(update(u32::MAX, head), &[0; 4]);
    !update(crc, rest.get(4..).unwrap_or_default())
}

fn update(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4: 32 bytes of zero.
    #[test]
    fn rfc_3720_example() {
        assert_eq!(!update(u32::MAX, &[0; 32]), 0x8a91_36aa);
    }
}
