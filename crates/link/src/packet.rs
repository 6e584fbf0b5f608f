use units::Bytes;
use wire::caqm::Info;

/// The properties of a packet that a link needs. Packets may be buffers, handles to buffers, or a
/// simulator's records. A link clones a packet only to duplicate it.
pub trait Packet: Clone {
    /// Returns the frame's size in bytes from the MAC addresses onwards, without the frame check
    /// sequence. The size must not change while the link holds the packet.
    fn size(&self) -> Bytes;

    /// Returns a hash of the flow's addresses, protocol and ports, for FQ-CoDel.
    fn flow(&self) -> u64;

    /// Whether a queue may mark the packet instead of dropping it: ECT(0), ECT(1) or already CE.
    fn ecn_capable(&self) -> bool;

    /// Sets the CE ("congestion experienced") mark (RFC 3168).
    fn mark_congestion(&mut self);

    /// Flips one bit, chosen by `random`.
    fn corrupt(&mut self, random: u64);

    /// Reads the packet's CAQM tag with this TPID; `None` for a packet without such a tag, as most
    /// packets are.
    fn caqm(&self, _tpid: u16) -> Option<Info> {
        None
    }

    /// Overwrites the tag that [`Self::caqm`] reads. Does nothing if the packet has no tag.
    fn set_caqm(&mut self, _tpid: u16, _info: Info) {}
    /// Writes into a handshake packet that offers CAQM that a port on the path supports CAQM with
    /// this TPID. Does nothing for other packets.
    fn answer_caqm_offer(&mut self, _tpid: u16) {}
}
