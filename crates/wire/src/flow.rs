//! Identifies the flow of a frame by a hash, for queues that share a link among flows.

use crate::headers::{Layout, MAC_HEADER, Network, Transport};

/// Returns a hash over addresses, protocol and ports that differs for every `seed`, and for the two
/// directions of a connection.
///
/// Fragments after the first fragment have no ports, so all fragments of a packet are hashed
/// without ports. For IPv6 packets without ports, the flow label replaces the ports (RFC 6437
/// section 3). ICMP echoes are distinguished by identifier, and packets other than IP by MAC
/// addresses and EtherType.
pub fn hash(frame: &[u8], seed: u64) -> u64 {
    let mut hash = Hash(seed ^ SALT);
    let Some(layout) = Layout::parse(frame) else {
        hash.take(frame);
        return hash.finish();
    };
    let at = layout.network_offset;
    match layout.network {
        Network::Ipv4 => hash.take(&frame[at + 12..at + 20]),
        Network::Ipv6 => hash.take(&frame[at + 8..at + 40]),
        Network::Other(kind) => {
            hash.take(&frame[..MAC_HEADER - 2]);
            hash.mix(u64::from(kind));
            return hash.finish();
        }
    }
    let at = layout.transport_offset;
    match layout.transport {
        Transport::Tcp { .. } => hash.mix(ports(frame, at) << 8 | 6),
        Transport::Udp => hash.mix(ports(frame, at) << 8 | 17),
        Transport::Icmp => {
            let identifier = u64::from(u16::from_be_bytes([frame[at + 4], frame[at + 5]]));
            let echo = matches!(frame[at], 0 | 8 | 128 | 129);
            hash.mix(if echo { identifier << 8 | 1 } else { 1 });
        }
        Transport::Other(protocol) | Transport::Fragment(protocol) => {
            hash.mix(flow_label(frame, &layout) << 8 | u64::from(protocol));
        }
        Transport::None => {}
    }
    hash.finish()
}

struct Hash(u64);

impl Hash {
    fn take(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(last));
        }
    }

    /// Multiplies and folds, as in wyhash, so that every input bit affects every output bit.
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.0.rotate_left(29);
    }

    fn finish(mut self) -> u64 {
        self.mix(SALT);
        self.mix(MULTIPLIER);
        self.0
    }
}

fn ports(frame: &[u8], at: usize) -> u64 {
    u64::from(u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]))
}

fn flow_label(frame: &[u8], layout: &Layout) -> u64 {
    let at = layout.network_offset;
    match layout.network {
        Network::Ipv6 => {
            u64::from(u32::from_be_bytes([0, frame[at + 1] & 0x0f, frame[at + 2], frame[at + 3]]))
        }
        _ => 0,
    }
}

const SALT: u64 = 0xa076_1d64_78bd_642f;
const MULTIPLIER: u64 = 0xe703_7ed1_a0b4_28db;
