use units::Bytes;
use wire::caqm::Info;

/// What a link must know of the packets it carries. They may be buffers, handles to buffers, or a
/// simulator's records; a link clones one only to duplicate it.
pub trait Packet: Clone {
    /// The frame's bytes from the MAC addresses on, without the frame check sequence. It must not
    /// change while the link holds the packet.
    fn size(&self) -> Bytes;

    /// A hash of what makes a flow (addresses, protocol, ports), for FQ-CoDel.
    fn flow(&self) -> u64;

    /// Whether the packet may be marked instead of dropped: ECT(0), ECT(1) or already CE.
    fn ecn_capable(&self) -> bool;

    /// Sets "congestion experienced" (RFC 3168).
    fn mark_congestion(&mut self);

    /// Flips one bit, chosen by `random`.
    fn corrupt(&mut self, random: u64);

    /// What its CAQM tag says, where tags bear this TPID; most packets have none.
    fn caqm(&self, _tpid: u16) -> Option<Info> {
        None
    }

    /// Writes over what [`Self::caqm`] reads; where there is nothing it does nothing.
    fn set_caqm(&mut self, _tpid: u16, _info: Info) {}
    /// Where it is a handshake's packet that asks whether a port on the way speaks CAQM with such tags, says so in it.
    fn answer_caqm_offer(&mut self, _tpid: u16) {}
}
