use flow::step::PacketHash;
use flow::{Field, Key, word};
use port::Frame;

use super::parse::{parse, parse_over};

/// A frame in the datapath, with its fields.
#[derive(Debug, Default)]
pub struct Packet {
    pub frame: Frame,
    /// The fields of the frame, the metadata, and the connection state. Methods that change the
    /// frame also update the key, except after a push or a pop of a header: see [`Packet::parse`].
    pub key: Key,
    pub layout: Layout,
    /// Whether a header was pushed or popped since the last [`Packet::parse`].
    pub(super) is_stale: bool,
    /// Whether the key's words are 0, except for the words of the port, of tracking, and of a usual
    /// frame ([`parse_over`]). If so, the next frame in this slot need not clear the other words.
    pub(super) is_usual: bool,
    /// The egress queue that later outputs use. 0 if no step has set a queue.
    pub(super) queue: u32,
    /// The earlier fragments that the tracker kept until this fragment completed their packet. The
    /// kept fragments continue in place of this fragment.
    pub released: Option<Box<Vec<Packet>>>,
}

/// The positions of a frame's headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// The first byte after the Ethernet type: an IP, ARP or MPLS header.
    pub network: u32,
    /// The first byte of a valid IP packet's transport header.
    pub transport: u32,
    /// The end of the IP packet. Padding may follow.
    pub end: u32,
    /// Properties of the frame: bits of [`flag`].
    pub flags: u16,
}

/// Bits for complete headers and for properties of the frame.
pub mod flag {
    pub const IPV4: u16 = 1;
    pub const IPV6: u16 = 1 << 1;
    pub const ARP: u16 = 1 << 2;
    pub const MPLS: u16 = 1 << 3;
    /// TCP, UDP, SCTP, ICMP, ICMPv6 or IGMP; [`flow::Field::NwProto`] says which.
    pub const TRANSPORT: u16 = 1 << 4;
    /// A VLAN tag.
    pub const TAGGED: u16 = 1 << 5;
    /// The packet has an IPv6 routing header with segments left, so checksums cover the last
    /// destination.
    pub const ROUTED: u16 = 1 << 6;
    /// A neighbour solicitation or advertisement.
    pub const NEIGHBOR: u16 = 1 << 7;
    /// The checksum of TCP or UDP is only the pseudo-header's sum: the frame has a
    /// [`port::Offload`].
    pub const UNFINISHED: u16 = 1 << 8;
}

impl Layout {
    #[inline(always)]
    #[must_use]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

impl Packet {
    /// Builds the packet of a frame that arrived on the OpenFlow port `in_port`.
    #[must_use]
    pub fn arrived(in_port: u32, frame: Frame) -> Self {
        let mut packet = Self { frame, ..Self::default() };
        packet.arrive(in_port);
        packet
    }

    /// Parses the frame again. Metadata and connection state stay.
    pub fn parse(&mut self) {
        parse(self.frame.bytes(), &mut self.key, &mut self.layout);
        self.look_at_offload();
        (self.is_stale, self.is_usual) = (false, false);
    }

    /// Marks that headers have moved, and that the key may have words that a usual frame lacks.
    pub(super) fn become_stale(&mut self) {
        (self.is_stale, self.is_usual) = (true, false);
    }

    /// Returns the IP protocol, after IPv6 extension headers; 0 without a valid IP header.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        if self.layout.flags & (flag::IPV4 | flag::IPV6) == 0 {
            return 0;
        }
        (self.key.words[word::NW] >> 48) as u8
    }

    /// Whether the packet is a fragment.
    pub(super) fn is_fragment(&self) -> bool {
        self.layout.flags & (flag::IPV4 | flag::IPV6) != 0
            && self.key.words[word::NW] >> 24 & 0xff != 0
    }

    /// Returns the transport header and its payload, without padding; empty without a transport
    /// header.
    #[must_use]
    pub fn segment(&self) -> &[u8] {
        if !self.layout.has(flag::TRANSPORT) {
            return &[];
        }
        let range = self.layout.transport as usize..self.layout.end as usize;
        self.frame.bytes().get(range).unwrap_or_default()
    }

    /// Initializes the slot's packet from its new frame. Only the arrival port is set among the
    /// metadata.
    #[inline]
    pub(super) fn arrive(&mut self, in_port: u32) {
        let Self { frame, key, layout, is_stale, is_usual, queue, .. } = self;
        let metadata = if *is_usual { word::CT..word::ETH_SRC } else { 0..word::ETH_SRC };
        key.words[metadata].fill(0);
        key.words[word::IN_PORT] = u64::from(in_port) << 32;
        *is_usual = parse_over(frame.bytes(), key, layout, *is_usual);
        *is_stale = false;
        *queue = 0;
        debug_assert_eq!(*key, super::extract(in_port, frame.bytes()));
        self.look_at_offload();
    }

    #[inline(always)]
    fn look_at_offload(&mut self) {
        if self.frame.is_unfinished() {
            self.layout.flags |= flag::UNFINISHED;
        }
    }

    /// Computes the checksum that the sender left out. The packet must not be a super-packet.
    #[cold]
    pub(super) fn complete_checksum(&mut self) {
        self.frame.complete_checksum();
        self.layout.flags &= !flag::UNFINISHED;
    }

    /// Segments a super-packet into packets, each with the metadata of this packet.
    pub(super) fn cut(&mut self) -> impl Iterator<Item = Self> + use<> {
        let mut frames = Vec::new();
        std::mem::take(&mut self.frame).finish(&mut frames);
        let (key, queue) = (self.key.clone(), self.queue);
        frames.into_iter().map(move |frame| {
            let mut packet = Self { frame, key: key.clone(), queue, ..Self::default() };
            packet.parse();
            packet
        })
    }

    /// Computes a hash of the packet and stores it in the key.
    pub(super) fn store_hash(&mut self, hash: PacketHash) {
        if self.is_stale {
            self.parse();
        }
        let hash = hash.of(&self.key);
        self.key.write(Field::DpHash, hash.into());
        self.is_usual = false;
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.frame = other.frame.clone();
        self.key.words = other.key.words;
        self.layout = other.layout;
        (self.is_stale, self.is_usual) = (other.is_stale, false);
        self.queue = other.queue;
    }
}
