//! Explicit congestion notification (RFC 3168): reading and setting the two bits.

use crate::checksum;
use crate::headers::{IPV4, IPV6, Layout, MAC_HEADER, Network, word};

/// The ECN field of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT (00): a queue must drop the packet instead of marking it.
    NotCapable,
    /// ECT(1) (01): ECN-capable; the codepoint of L4S (RFC 9331).
    Ect1,
    /// ECT(0) (10): ECN-capable.
    Ect0,
    /// CE (11): a queue on the path was congested.
    CongestionExperienced,
}

impl Ecn {
    /// Returns the ECN field of an IP packet; `None` if the frame carries no IP packet.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let (network, offset) = network(frame)?;
        let bits = match network {
            Network::Ipv4 => frame.get(offset + 1)? & 3,
            Network::Ipv6 => (frame.get(offset + 1)? >> 4) & 3,
            Network::Other(_) => return None,
        };
        Some(Self::of_traffic_class(bits))
    }

    /// Decodes the lowest two bits of the traffic class, or of IPv4's type of service.
    pub fn of_traffic_class(class: u8) -> Self {
        match class & 3 {
            0 => Self::NotCapable,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::CongestionExperienced,
        }
    }

    /// Whether a queue may mark the packet instead of dropping it.
    pub fn is_capable(self) -> bool {
        self != Self::NotCapable
    }
}

/// Sets the codepoint "congestion experienced" and corrects IPv4's header checksum. Returns false
/// and changes nothing if the packet is not ECN-capable; a queue must then drop the packet.
pub fn mark(frame: &mut [u8]) -> bool {
    match Ecn::read(frame) {
        Some(Ecn::CongestionExperienced) => return true,
        Some(Ecn::Ect0 | Ecn::Ect1) => {}
        Some(Ecn::NotCapable) | None => return false,
    }
    match network(frame) {
        Some((Network::Ipv4, offset)) => {
            let (Some(old), Some(sum)) = (word(frame, offset), word(frame, offset + 10)) else {
                return false;
            };
            let new = old | 0x0003;
            let sum = checksum::update(sum, old, new);
            frame[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
            frame[offset + 10..offset + 12].copy_from_slice(&sum.to_be_bytes());
            true
        }
        Some((Network::Ipv6, offset)) => {
            frame[offset + 1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// Finds the network header, with a fast path for untagged frames.
fn network(frame: &[u8]) -> Option<(Network, usize)> {
    match word(frame, MAC_HEADER - 2)? {
        IPV4 if frame.len() >= MAC_HEADER + 20 && frame[MAC_HEADER] >> 4 == 4 => {
            Some((Network::Ipv4, MAC_HEADER))
        }
        IPV6 if frame.len() >= MAC_HEADER + 40 && frame[MAC_HEADER] >> 4 == 6 => {
            Some((Network::Ipv6, MAC_HEADER))
        }
        _ => Layout::parse(frame).map(|layout| (layout.network, layout.network_offset)),
    }
}
