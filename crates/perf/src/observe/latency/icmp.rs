//! ICMP echo requests and replies (RFC 792 and RFC 4443 section 4).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Icmp {
    V4,
    V6,
}

impl Icmp {
    /// Builds an echo request. The kernel fills in the identifier for an unprivileged socket, and
    /// the checksum for all but raw IPv4 sockets.
    pub(super) fn request(self, identifier: u16, number: u16, payload: &[u8]) -> Vec<u8> {
        let kind = match self {
            Self::V4 => 8,
            Self::V6 => 128,
        };
        let mut message = vec![kind, 0, 0, 0];
        message.extend_from_slice(&identifier.to_be_bytes());
        message.extend_from_slice(&number.to_be_bytes());
        message.extend_from_slice(payload);
        if self == Self::V4 {
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    /// Returns the payload of an echo reply; `None` for other messages.
    pub(super) fn reply(self, message: &[u8]) -> Option<&[u8]> {
        let kind = match self {
            Self::V4 => 0,
            Self::V6 => 129,
        };
        let (header, payload) = message.split_at_checked(8)?;
        (header[..2] == [kind, 0]).then_some(payload)
    }
}

/// Strips the IP header from a datagram that a raw IPv4 socket received.
pub(super) fn behind_ip_header(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let length = usize::from(first & 15) * 4;
    (first >> 4 == 4 && length >= 20).then(|| packet.get(length..)).flatten()
}

/// Computes the internet checksum (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let words = message
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_icmp_echo_request_has_the_right_header_and_checksum() {
        assert_eq!(
            Icmp::V4.request(0x1234, 1, b"ab"),
            [8, 0, 0x84, 0x68, 0x12, 0x34, 0, 1, 97, 98]
        );
        assert_eq!(checksum(&Icmp::V4.request(7, 9, &[1, 2, 3, 4])), 0);
        assert_eq!(Icmp::V6.request(1, 2, b"x")[..4], [128, 0, 0, 0]);
    }

    #[test]
    fn only_an_icmp_echo_reply_is_accepted() {
        assert_eq!(Icmp::V4.reply(&[0, 0, 1, 2, 3, 4, 5, 6, 7]), Some(&[7][..]));
        assert_eq!(Icmp::V4.reply(&Icmp::V4.request(1, 1, b"own")), None);
        assert_eq!(Icmp::V6.reply(&[129, 0, 0, 0, 0, 0, 0, 0]), Some(&[][..]));
        assert_eq!(Icmp::V6.reply(&[129, 0, 0]), None);
        let options = [&[0x46][..], &[0; 23], b"rest"].concat();
        assert_eq!(behind_ip_header(&options), Some(&b"rest"[..]));
        assert_eq!(behind_ip_header(&[0x41, 0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn the_parser_of_icmp_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = behind_ip_header(&bytes).and_then(|bytes| Icmp::V4.reply(bytes));
            let _ = Icmp::V6.reply(&bytes);
        }
    }
}
