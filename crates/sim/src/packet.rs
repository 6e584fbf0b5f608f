use units::{Bytes, Time};
use wire::caqm::Info;

/// One frame of a flow, in one cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// The index of the packet's next hop in the table of routes.
    pub(crate) route: u32,
    /// The size of the frame from the MAC addresses on.
    pub(crate) size: u32,
    /// The length of the payload for data; the offered window for an ACK.
    pub(crate) length: u32,
    /// The first byte for data; the next expected byte for an ACK.
    pub(crate) sequence: u64,
    /// The sending time for data; the echoed time for an ACK (RFC 7323).
    pub(crate) stamp: Time,
    pub(crate) sacks: Sacks,
    pub(crate) kind: Kind,
    pub(crate) flags: Flags,
    pub(crate) tag: Tag,
}

impl Packet {
    pub(crate) fn bear(&mut self, tag: Tag) {
        self.size += Tag::SIZE;
        self.tag = tag;
    }

    /// Adds the CAQM offer to a handshake packet, with a question for the ports on the path or
    /// without.
    pub(crate) fn offer(&mut self, question: Tag) {
        self.size += wire::caqm::offer::SIZE as u32;
        self.flags.set(Flags::SPEAKS);
        self.tag = question;
    }

    fn is_offer(&self) -> bool {
        matches!(self.kind, Kind::Syn | Kind::SynAck)
    }
}

/// CAQM's tag after the MAC addresses, or the tag's 16-bit fields in an offer. Most packets have no
/// tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tag {
    /// 0 if the packet has no tag.
    tpid: u16,
    bits: u16,
}

impl Tag {
    pub(crate) const NONE: Self = Self { tpid: 0, bits: 0 };
    /// The size of a tag in a frame.
    pub(crate) const SIZE: u32 = 4;

    pub(crate) fn new(tpid: u16, info: Info) -> Self {
        Self { tpid, bits: info.bits() }
    }

    /// Returns the content of a tag of any kind if it has this TPID.
    #[inline]
    pub(crate) fn info(self, tpid: u16) -> Option<Info> {
        (self.tpid == tpid && tpid != 0).then(|| Info::from_bits(self.bits))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    Data,
    Ack,
    Datagram,
    /// A QUIC tunnel's datagram; `sequence` is the number of the datagram's payload.
    Tunnelled,
}

/// ECN's field and TCP's flags (RFC 3168), and the link's effects on the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u16);

impl Flags {
    /// ECN-capable transport.
    pub(crate) const CAPABLE: u16 = 1;
    /// Congestion experienced.
    pub(crate) const MARKED: u16 = 2;
    /// ECE: the receiver saw a mark.
    pub(crate) const ECHO: u16 = 4;
    /// CWR: the sender has reduced its window.
    pub(crate) const REDUCED: u16 = 8;
    /// FIN: the end of the data.
    pub(crate) const LAST: u16 = 16;
    pub(crate) const CORRUPT: u16 = 32;
    /// The packet goes from the sender of the data to the receiver.
    pub(crate) const FORWARD: u16 = 64;
    /// In a handshake: the sending end supports CAQM, and has read the peer's offer.
    pub(crate) const SPEAKS: u16 = 128;
    /// A port on the path of the data supports CAQM.
    pub(crate) const SPOKEN_TO: u16 = 256;

    pub(crate) const fn of(bits: u16) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u16) {
        self.0 |= flag;
    }
}

/// Up to three SACK blocks, which fit beside a timestamp (RFC 2018). Each block is relative to the
/// acknowledged sequence, before which a DSACK block (RFC 2883) lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sacks {
    /// Used blocks come first, and none of them is empty.
    blocks: [(i32, u32); 3],
}

impl Sacks {
    pub(crate) const ROOM: usize = 3;

    pub(crate) fn push(&mut self, acknowledged: u64, start: u64, end: u64) {
        let offset = start.wrapping_sub(acknowledged) as i64;
        if let Some(free) = self.blocks.iter_mut().find(|(_, length)| *length == 0)
            && i64::from(offset as i32) == offset
        {
            *free = (offset as i32, (end - start) as u32);
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.iter().take_while(|(_, length)| *length > 0).count()
    }

    /// Returns the start and the end of each block.
    #[inline]
    pub(crate) fn blocks(&self, acknowledged: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks[..self.len()].iter().map(move |(offset, length)| {
            let start = acknowledged.saturating_add_signed(i64::from(*offset));
            (start, start + u64::from(*length))
        })
    }
}

impl link::Packet for Packet {
    #[inline]
    fn size(&self) -> Bytes {
        Bytes::new(u64::from(self.size))
    }

    #[inline]
    fn flow(&self) -> u64 {
        // A queue treats the two directions of a flow as two flows.
        let direction = u64::from(self.flags.has(Flags::FORWARD));
        link::mix(u64::from(self.flow) << 1 | direction | 1 << 40)
    }

    #[inline]
    fn ecn_capable(&self) -> bool {
        self.flags.has(Flags::CAPABLE)
    }

    #[inline]
    fn mark_congestion(&mut self) {
        self.flags.set(Flags::MARKED);
    }

    /// Does nothing but flag the damage: the checksum detects any damaged bit.
    fn corrupt(&mut self, _random: u64) {
        self.flags.set(Flags::CORRUPT);
    }

    #[inline]
    fn caqm(&self, tpid: u16) -> Option<Info> {
        self.tag.info(tpid).filter(|info| info.is_caqm() && !self.is_offer())
    }

    fn set_caqm(&mut self, tpid: u16, info: Info) {
        if link::Packet::caqm(self, tpid).is_some() {
            self.tag = Tag::new(tpid, info);
        }
    }

    fn answer_caqm_offer(&mut self, tpid: u16) {
        let asks = self.tag.info(tpid).filter(|info| info.is_caqm() && info.is_question());
        if let Some(asks) = asks.filter(|_| self.is_offer()) {
            self.tag = Tag::new(tpid, asks.answered());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_fits_into_a_cache_line() {
        assert!(size_of::<Packet>() <= 64, "{}", size_of::<Packet>());
    }
}
