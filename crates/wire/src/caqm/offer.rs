//! The offer by which the ends of a connection negotiate CAQM before any packet carries a tag. The
//! ends learn from the offer whether a port on the path supports CAQM. SYN and SYN-ACK carry an
//! experimental TCP option (RFC 6994) that holds a tag's words.
//!
//! ```text
//! | kind 254 (8) | length 10 (8) | "CAQM" (32) | TPID (16) | Info::question() (16)
//! ```
//!
//! A port on the path answers the packet's question. The SYN-ACK reports the answer to the SYN's
//! question with [`Info::echoed`], and the handshake's last packet reports the answer to the
//! SYN-ACK's question with [`Info::go_ahead`]. A host that does not know the option ignores it. If
//! a host ignores the option or a middlebox removes it, the connection continues without CAQM.

use super::Info;
use crate::checksum;
use crate::headers::{Layout, Transport, word};

/// Returns the info word, of any kind, in an offer of tags with this TPID. Returns `None` if the
/// frame is not a SYN or SYN-ACK with a complete offer.
#[inline]
pub fn read(frame: &[u8], tpid: u16) -> Option<Info> {
    let (_, at) = find(frame, tpid)?;
    word(frame, at).map(Info::from_bits)
}

/// Answers an offer's question with "a port supports CAQM". Returns false and changes nothing if
/// the frame has no offer with an open question.
#[inline]
pub fn answer(frame: &mut [u8], tpid: u16) -> bool {
    let Some((tcp, at)) = find(frame, tpid) else { return false };
    let Some(asks) = word(frame, at).map(Info::from_bits) else { return false };
    if !(asks.is_caqm() && asks.is_question()) {
        return false;
    }
    // Only the first of the info word's two bytes changes. Options may begin at an odd offset, but
    // the checksum adds words at even offsets from the header's first byte.
    let summed = tcp + ((at - tcp) & !1);
    let (Some(old), Some(sum)) = (word(frame, summed), word(frame, tcp + CHECKSUM)) else {
        return false;
    };
    frame[at..at + 2].copy_from_slice(&asks.answered().bits().to_be_bytes());
    let sum = checksum::update(sum, old, word(frame, summed).unwrap_or(old));
    frame[tcp + CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Returns the offsets of the TCP header and of the offer's info word.
#[inline]
fn find(frame: &[u8], tpid: u16) -> Option<(usize, usize)> {
    let layout = Layout::parse(frame)?;
    let Transport::Tcp { header_len } = layout.transport else { return None };
    let tcp = layout.transport_offset;
    let header = frame.get(tcp..tcp + header_len)?;
    if header.get(FLAGS)? & SYN == 0 {
        return None;
    }
    let mut rest = header.get(NO_OPTIONS..)?;
    loop {
        match *rest {
            [] | [END, ..] => return None,
            [PADDING, ref after @ ..] => rest = after,
            [kind, length, ..] => {
                let option = rest.get(..usize::from(length)).filter(|option| option.len() >= 2)?;
                if kind == EXPERIMENTAL
                    && option.len() == LENGTH
                    && option[2..6] == *MAGIC
                    && word(option, 6) == Some(tpid)
                {
                    return Some((tcp, tcp + header_len - rest.len() + 8));
                }
                rest = &rest[option.len()..];
            }
            [_] => return None,
        }
    }
}

/// The length of the option with padding to a multiple of four bytes.
pub const SIZE: usize = 12;

const LENGTH: usize = 10;
const EXPERIMENTAL: u8 = 254;
const MAGIC: &[u8; 4] = b"CAQM";
const END: u8 = 0;
const PADDING: u8 = 1;
const NO_OPTIONS: usize = 20;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
const SYN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caqm::TPID;
    use crate::checksum::Sum;
    use proptest::prelude::*;

    const IPV4_HEADER: usize = 20;

    /// Builds a TCP segment over IPv4 with these flags, options and tags, and a valid checksum.
    fn segment(tags: &[u16], flags: u8, options: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(tags.iter().flat_map(|word| word.to_be_bytes()));
        let start = frame.len() + 2;
        let header_len = 20 + options.len().next_multiple_of(4);
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((IPV4_HEADER as u16 + header_len as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x16, 0xa9, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0]);
        frame.extend([(header_len as u8 / 4) << 4, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        frame.extend(options);
        frame.resize(start + IPV4_HEADER + header_len, 0);
        let sum = summed(&frame, start);
        frame[start + 36..start + 38].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    /// Returns the sum of the segment and the pseudo-header. If the checksum is valid, all bits of
    /// the sum are ones.
    fn summed(frame: &[u8], start: usize) -> u16 {
        let tcp = &frame[start + IPV4_HEADER..];
        let addresses = Sum::of(&frame[start + 12..start + 20]);
        Sum::of(tcp).plus(addresses).plus_word(6).plus_word(tcp.len() as u16).folded()
    }

    fn offer(tpid: u16, info: Info) -> Vec<u8> {
        let words = [tpid.to_be_bytes(), info.bits().to_be_bytes()].concat();
        [&[EXPERIMENTAL, LENGTH as u8][..], MAGIC, &words].concat()
    }

    #[test]
    fn answering_an_offer_keeps_the_checksum_valid() {
        let mss = [2, 4, 5, 0xb4];
        for tags in [&[][..], &[0x8100, 5], &[0x9100, 5, 0x8100, 6]] {
            for info in [Info::question(), Info::question().echoed()] {
                for before in 0..4 {
                    // Put the offer at any offset, including odd offsets.
                    let options = [&mss[..], &vec![PADDING; before], &offer(TPID, info)].concat();
                    let mut frame = segment(tags, 0x12, &options);
                    let start = 14 + 2 * tags.len();
                    assert_eq!(summed(&frame, start), 0xffff);
                    assert_eq!(read(&frame, TPID), Some(info));
                    assert!(answer(&mut frame, TPID));
                    assert_eq!(read(&frame, TPID), Some(info.answered()));
                    assert!(!info.answered().is_question());
                    assert_eq!(info.answered().is_echoed(), info.is_echoed());
                    assert_eq!(summed(&frame, start), 0xffff, "{tags:x?} {before}");
                    // A second answer changes nothing.
                    let answered = frame.clone();
                    assert!(!answer(&mut frame, TPID) && frame == answered);
                }
            }
        }
    }

    #[test]
    fn a_frame_without_an_offer_stays_unchanged() {
        let question = Info::question();
        let whole = offer(TPID, question);
        let mut magic = whole.clone();
        magic[2] = b'c';
        let mut long = whole.clone();
        long[1] = 12;
        for (flags, options) in [
            (0x10, whole.clone()),
            (0x02, offer(0x88b5, question)),
            (0x02, offer(TPID, question.of_kind(1))),
            (0x02, offer(TPID, question.answered())),
            (0x02, offer(TPID, Info::request(9))),
            (0x02, magic),
            (0x02, long),
            (0x02, [&[END][..], &whole].concat()),
            (0x02, [&[5, 1][..], &whole].concat()),
            (0x02, vec![EXPERIMENTAL]),
        ] {
            let frame = segment(&[], flags, &options);
            let mut passed = frame.clone();
            assert!(!answer(&mut passed, TPID), "{options:x?}");
            assert_eq!(passed, frame);
        }
        let frame = segment(&[], 0x02, &whole);
        for length in 0..frame.len() - 2 {
            let mut cut = frame[..length].to_vec();
            assert!(!answer(&mut cut, TPID), "{length}");
            assert_eq!(cut, frame[..length]);
        }
    }

    proptest! {
        /// Answering an offer changes at most the question's byte and the checksum, in any frame.
        #[test]
        fn answering_an_offer_changes_only_the_question_and_the_checksum(
            flags: u8,
            before in proptest::collection::vec(any::<u8>(), 0..12),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut frame = segment(&[], flags, &[&before[..], &offer(TPID, Info::question())].concat());
            for (at, byte) in changes {
                *at.get_mut(&mut frame) = byte;
            }
            let asked = read(&frame, TPID);
            let mut passed = frame.clone();
            let done = answer(&mut passed, TPID);
            prop_assert_eq!(passed.len(), frame.len());
            let changed = frame.iter().zip(&passed).filter(|(a, b)| a != b).count();
            let most = if done { 3 } else { 0 };
            prop_assert!(changed <= most);
            if done {
                prop_assert_eq!(read(&passed, TPID), asked.map(Info::answered));
            }
        }
    }
}
