//! Reads captures packet by packet, in both formats: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), with the link types of Ethernet, Linux' cooked captures, raw IP and
//! loopback. The caller passes the bytes of the capture in chunks of any length.

use crate::headers::{IPV4, IPV6, MAC_HEADER, TAG, is_tag, word};

/// The reader's state between two chunks of a capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureReader {
    format: Option<Format>,
    /// The number of packets read so far.
    count: u64,
}

/// The item at the beginning of the given bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A packet of the capture.
    Packet {
        /// The number of bytes to skip before the next call.
        used: usize,
        /// The packet, whose bytes are a part of the bytes that the caller passed.
        packet: CapturedPacket<'a>,
    },
    /// A header, or a block without a packet.
    Skip {
        /// The number of bytes to skip before the next call.
        used: usize,
    },
    /// The reader needs more bytes. If the file has no more bytes, the capture ends here, possibly
    /// in the middle of a packet.
    More,
}

/// A packet as captured, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Nanoseconds since 1970; `None` in a block without a time.
    pub time_ns: Option<u64>,
    /// The header with which `bytes` begin.
    pub link: LinkType,
    /// The captured bytes, from the link header on. The capture has fewer bytes than
    /// `original_length` if it cut the packet.
    pub bytes: &'a [u8],
    /// The length of the packet before the capture cut it.
    pub original_length: u32,
}

/// The link-layer header that precedes the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// MAC addresses, any VLAN tags, and the EtherType.
    Ethernet,
    /// Linux' cooked capture (SLL, link type 113).
    Cooked,
    /// The second version of Linux' cooked capture (SLL2, link type 276).
    Cooked2,
    /// No link-layer header: the packet begins with the IP header.
    Raw,
    /// A four-byte address family (BSD loopback).
    Loopback,
    /// Another link type, by its number in the registry of tcpdump.org; the reader finds no IP
    /// header.
    Other(u16),
}

/// The reason for which a capture cannot be read. The text continues a sentence that begins with
/// the capture's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The first bytes are neither a magic number of pcap nor a section header of pcapng.
    #[error("is no capture in pcap's or pcapng's format: name a file that `tcpdump -w` wrote")]
    NotCapture,
    /// The value is the number of packets before the damage: a record or block has an impossible
    /// length or interface.
    #[error(
        "is damaged behind packet {0}, where a length is impossible: copy the file again, or capture \
         the packets again"
    )]
    Damaged(u64),
    /// A section of a pcapng file has more interfaces than the reader keeps.
    #[error("describes more than {MOST_INTERFACES} interfaces: capture on fewer interfaces")]
    Interfaces,
}

#[derive(Debug, Clone)]
enum Format {
    Pcap { big: bool, unit_ns: u64, link: LinkType },
    Pcapng { big: bool, interfaces: Vec<Interface> },
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: LinkType,
    /// Resolution of timestamps, in units per second.
    resolution: u64,
    /// Offset of timestamps, in seconds.
    offset: i64,
}

impl CaptureReader {
    /// Creates a reader that expects the first byte of a capture.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of packets read so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Reads the packet, header or block at the beginning of `bytes`.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        match &mut self.format {
            None => self.begin(bytes),
            Some(Format::Pcap { big, unit_ns, link }) => {
                let (big, unit_ns, link) = (*big, *unit_ns, *link);
                let step = record(bytes, big, unit_ns, link);
                self.counted(step)
            }
            Some(Format::Pcapng { .. }) => self.block(bytes),
        }
    }

    fn counted<'a>(&mut self, step: Option<Step<'a>>) -> Result<Step<'a>, CaptureError> {
        let step = step.ok_or(CaptureError::Damaged(self.count))?;
        self.count += u64::from(matches!(step, Step::Packet { .. }));
        Ok(step)
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        let Some(magic) = bytes.first_chunk() else { return Ok(Step::More) };
        let magic = u32::from_be_bytes(*magic);
        if magic == SECTION {
            self.format = Some(Format::Pcapng { big: false, interfaces: Vec::new() });
            return self.block(bytes);
        }
        let (big, unit_ns) = match (magic, magic.swap_bytes()) {
            (MICROSECONDS, _) => (true, 1000),
            (NANOSECONDS, _) => (true, 1),
            (_, MICROSECONDS) => (false, 1000),
            (_, NANOSECONDS) => (false, 1),
            _ => return Err(CaptureError::NotCapture),
        };
        let Some(link) = long(bytes, LINK_TYPE_AT, big) else { return Ok(Step::More) };
        // The upper bits hold the length of a frame check sequence.
        let link = LinkType::of((link & 0xffff) as u16);
        self.format = Some(Format::Pcap { big, unit_ns, link });
        Ok(Step::Skip { used: FILE_HEADER })
    }

    fn block<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        let Some(Format::Pcapng { big, interfaces }) = &mut self.format else {
            return Err(CaptureError::NotCapture);
        };
        let damaged = CaptureError::Damaged(self.count);
        let Some(first) = bytes.first_chunk() else { return Ok(Step::More) };
        if u32::from_be_bytes(*first) == SECTION {
            let Some(order) = bytes.get(8..12) else { return Ok(Step::More) };
            *big = match order {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(if self.count == 0 { CaptureError::NotCapture } else { damaged }),
            };
            interfaces.clear();
        }
        let big = *big;
        let (Some(kind), Some(length)) = (long(bytes, 0, big), long(bytes, 4, big)) else {
            return Ok(Step::More);
        };
        let used = length as usize;
        if used < 12 || !used.is_multiple_of(4) || used > LONGEST_BLOCK {
            return Err(damaged);
        }
        let Some(block) = bytes.get(..used) else { return Ok(Step::More) };
        let body = &block[8..used - 4];
        let packet = match kind {
            INTERFACE => {
                if interfaces.len() >= MOST_INTERFACES {
                    return Err(CaptureError::Interfaces);
                }
                interfaces.push(Interface::read(body, big).ok_or(damaged)?);
                None
            }
            ENHANCED_PACKET => Some(enhanced(body, big, interfaces).ok_or(damaged)?),
            OLD_PACKET => Some(old(body, big, interfaces).ok_or(damaged)?),
            SIMPLE_PACKET => Some(simple(body, big, interfaces).ok_or(damaged)?),
            _ => None,
        };
        let step = packet.map_or(Step::Skip { used }, |packet| Step::Packet { used, packet });
        self.counted(Some(step))
    }
}

impl LinkType {
    fn of(number: u16) -> Self {
        match number {
            1 => Self::Ethernet,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            0 | 108 => Self::Loopback,
            other => Self::Other(other),
        }
    }

    /// Returns the offset of the IP header in a packet; `None` for another protocol.
    pub fn ip_offset(self, bytes: &[u8]) -> Option<usize> {
        let offset = match self {
            Self::Ethernet => behind_tags(bytes, MAC_HEADER - 2)?,
            Self::Cooked => behind_tags(bytes, 14)?,
            Self::Cooked2 => match word(bytes, 0)? {
                IPV4 | IPV6 => 20,
                kind if is_tag(kind) => behind_tags(bytes, 22)?,
                _ => return None,
            },
            Self::Raw => 0,
            Self::Loopback => 4,
            Self::Other(_) => return None,
        };
        matches!(bytes.get(offset)? >> 4, 4 | 6).then_some(offset)
    }
}

/// Returns the offset after an EtherType and the VLAN tags that follow it.
fn behind_tags(bytes: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..=MOST_TAGS {
        match word(bytes, at)? {
            IPV4 | IPV6 => return Some(at + 2),
            kind if is_tag(kind) => at += TAG,
            _ => return None,
        }
    }
    None
}

impl Interface {
    fn read(body: &[u8], big: bool) -> Option<Self> {
        let link = LinkType::of(short(body, 0, big)?);
        let mut interface = Self { link, resolution: 1_000_000, offset: 0 };
        let mut at = 8;
        while let (Some(code), Some(length)) = (short(body, at, big), short(body, at + 2, big)) {
            let value = body.get(at + 4..at + 4 + usize::from(length))?;
            match (code, value) {
                (0, _) => break,
                (TIME_RESOLUTION, [exponent, ..]) => {
                    let power = u32::from(exponent & 0x7f);
                    let base: u64 = if exponent & 0x80 == 0 { 10 } else { 2 };
                    interface.resolution = base.checked_pow(power)?;
                }
                (TIME_OFFSET, value) => {
                    let eight: [u8; 8] = value.try_into().ok()?;
                    interface.offset =
                        if big { i64::from_be_bytes(eight) } else { i64::from_le_bytes(eight) };
                }
                _ => {}
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        Some(interface)
    }

    fn time_ns(self, high: u32, low: u32) -> u64 {
        let ticks = u128::from(u64::from(high) << 32 | u64::from(low));
        let ns = ticks * 1_000_000_000 / u128::from(self.resolution.max(1));
        let ns = ns.min(u128::from(u64::MAX)) as u64;
        let offset = self.offset.unsigned_abs().saturating_mul(1_000_000_000);
        if self.offset < 0 { ns.saturating_sub(offset) } else { ns.saturating_add(offset) }
    }
}

/// Reads a record of a pcap file; `None` if the record's length is impossible.
fn record(bytes: &[u8], big: bool, unit_ns: u64, link: LinkType) -> Option<Step<'_>> {
    let word = |number: usize| long(bytes, 4 * number, big);
    let (Some(seconds), Some(part), Some(length), Some(original_length)) =
        (word(0), word(1), word(2), word(3))
    else {
        return Some(Step::More);
    };
    if length > LONGEST_PACKET {
        return None;
    }
    let used = RECORD_HEADER + length as usize;
    let Some(packet) = bytes.get(RECORD_HEADER..used) else { return Some(Step::More) };
    // Both numbers have 32 bits, so the sum fits in 64 bits.
    let time_ns = Some(u64::from(seconds) * 1_000_000_000 + u64::from(part) * unit_ns);
    let packet = CapturedPacket { time_ns, link, bytes: packet, original_length };
    Some(Step::Packet { used, packet })
}

fn enhanced<'a>(body: &'a [u8], big: bool, interfaces: &[Interface]) -> Option<CapturedPacket<'a>> {
    let interface = *interfaces.get(long(body, 0, big)? as usize)?;
    timed(body, big, interface)
}

/// Reads a Packet Block, the predecessor of the Enhanced Packet Block, with an interface number of
/// 16 bits.
fn old<'a>(body: &'a [u8], big: bool, interfaces: &[Interface]) -> Option<CapturedPacket<'a>> {
    let interface = *interfaces.get(usize::from(short(body, 0, big)?))?;
    timed(body, big, interface)
}

/// Reads the part after the interface's number, which both kinds of block have.
fn timed(body: &[u8], big: bool, interface: Interface) -> Option<CapturedPacket<'_>> {
    let word = |number: usize| long(body, 4 * number, big);
    let length = word(3)? as usize;
    Some(CapturedPacket {
        time_ns: Some(interface.time_ns(word(1)?, word(2)?)),
        link: interface.link,
        bytes: body.get(20..20_usize.checked_add(length)?)?,
        original_length: word(4)?,
    })
}

fn simple<'a>(body: &'a [u8], big: bool, interfaces: &[Interface]) -> Option<CapturedPacket<'a>> {
    let original_length = long(body, 0, big)?;
    let bytes = body.get(4..)?;
    let bytes = bytes.get(..original_length as usize).unwrap_or(bytes);
    Some(CapturedPacket { time_ns: None, link: interfaces.first()?.link, bytes, original_length })
}

fn long(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let four = *bytes.get(at..)?.first_chunk()?;
    Some(if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
}

fn short(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let two = *bytes.get(at..)?.first_chunk()?;
    Some(if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
}

/// Maximum length of a chunk that a caller ever needs to pass.
pub const LONGEST_STEP: usize = LONGEST_BLOCK;
const LONGEST_BLOCK: usize = 4 << 20;
const LONGEST_PACKET: u32 = 2 << 20;
const MOST_INTERFACES: usize = 4096;
const MOST_TAGS: usize = 3;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
const FILE_HEADER: usize = 24;
const LINK_TYPE_AT: usize = 20;
const RECORD_HEADER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{file_header, record_header};
    use proptest::prelude::*;

    /// A packet's time, its length before the capture cut it, and its bytes.
    type Read = (Option<u64>, u32, Vec<u8>);

    fn packets(bytes: &[u8]) -> Result<Vec<Read>, CaptureError> {
        let mut reader = CaptureReader::new();
        let (mut at, mut all) = (0, Vec::new());
        loop {
            match reader.next(&bytes[at..])? {
                Step::More => return Ok(all),
                Step::Skip { used } => at += used,
                Step::Packet { used, packet } => {
                    all.push((packet.time_ns, packet.original_length, packet.bytes.to_vec()));
                    at += used;
                }
            }
        }
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        let mut bytes = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        bytes.extend(body);
        bytes.resize(length as usize - 4, 0);
        bytes.extend(length.to_le_bytes());
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_pcap_file_is_read_in_chunks_of_any_length() {
        let mut bytes = file_header(65_535).to_vec();
        for (time, frame) in [(1_000_000_005, [1u8; 60]), (2_000_000_007, [2; 60])] {
            bytes.extend(record_header(time, 60));
            bytes.extend(frame);
        }
        let all = packets(&bytes).unwrap();
        assert_eq!(all[0], (Some(1_000_000_005), 60, vec![1; 60]));
        assert_eq!(all[1], (Some(2_000_000_007), 60, vec![2; 60]));
        for cut in 0..bytes.len() {
            assert!(packets(&bytes[..cut]).unwrap().len() < 2);
        }
    }

    #[test]
    fn a_pcapng_file_gives_nanoseconds_and_its_unknown_blocks_are_skipped() {
        let section = block(SECTION, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        let mut interface = words(&[u32::from(113_u16), 0]);
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0]);
        let mut packet = words(&[0, 0, 77, 6, 1500]);
        packet.extend([1, 2, 3, 4, 5, 6]);
        let mut simple = words(&[4]);
        simple.extend([9; 4]);
        let bytes = [
            section,
            block(INTERFACE, &interface),
            block(0xbad, &[1; 5]),
            block(ENHANCED_PACKET, &packet),
            block(SIMPLE_PACKET, &simple),
        ]
        .concat();
        let all = packets(&bytes).unwrap();
        assert_eq!(all, [(Some(77), 1500, vec![1, 2, 3, 4, 5, 6]), (None, 4, vec![9; 4])]);
    }

    #[test]
    fn the_ip_header_is_found_after_each_link_header() {
        let ip = [0x45, 0, 0, 40];
        let with = |head: &[u8]| [head, &ip].concat();
        let ethernet = |tail: &[u8]| with(&[&[0; 12], tail].concat());
        let is_at = |link: LinkType, bytes: Vec<u8>, at| assert_eq!(link.ip_offset(&bytes), at);
        is_at(LinkType::Ethernet, ethernet(&[8, 0]), Some(14));
        is_at(LinkType::Ethernet, ethernet(&[0x81, 0, 0, 5, 8, 0]), Some(18));
        is_at(LinkType::Ethernet, ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]), Some(22));
        is_at(LinkType::Ethernet, ethernet(&[8, 6]), None);
        is_at(LinkType::Cooked, with(&[&[0; 14][..], &[8, 0]].concat()), Some(16));
        is_at(LinkType::Cooked2, with(&[&[8, 0][..], &[0; 18]].concat()), Some(20));
        is_at(LinkType::Raw, ip.to_vec(), Some(0));
        is_at(LinkType::Loopback, with(&[2, 0, 0, 0]), Some(4));
        is_at(LinkType::Other(147), ip.to_vec(), None);
    }

    #[test]
    fn files_of_other_formats_and_impossible_lengths_are_refused() {
        assert_eq!(packets(b"{\"weir\"").unwrap_err(), CaptureError::NotCapture);
        let mut bytes = file_header(65_535).to_vec();
        bytes.extend(record_header(0, u32::MAX));
        assert_eq!(packets(&bytes).unwrap_err(), CaptureError::Damaged(0));
        let section = block(SECTION, &words(&[0x1a2b_3c4d, 1, 0, 0]));
        let packet = block(ENHANCED_PACKET, &words(&[0, 0, 0, 0, 0]));
        assert_eq!(packets(&[section, packet].concat()).unwrap_err(), CaptureError::Damaged(0));
    }

    proptest! {
        #[test]
        fn reading_arbitrary_bytes_gives_few_packets_or_an_error(
            start in prop::sample::select(vec![
                file_header(0).to_vec(),
                block(SECTION, &words(&[0x1a2b_3c4d, 1, 0, 0])),
            ]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(all) = packets(&[start, rest.clone()].concat()) {
                prop_assert!(all.len() <= rest.len() / 12 + 1);
            }
        }
    }
}
