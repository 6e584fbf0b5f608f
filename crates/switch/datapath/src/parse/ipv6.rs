//! IPv6 and its extension headers.

use flow::{Key, word};

use super::{FRAGMENT, LATER, MAX_PADDING, transport, u16_at, u64_at};
use crate::packet::{Layout, flag};

pub(super) fn parse(frame: &[u8], key: &mut Key, layout: &mut Layout) {
    let start = layout.network as usize;
    let packet = &frame[start..];
    let Some(header) = packet.first_chunk::<40>() else { return };
    let end = 40 + usize::from(u16_at(header, 4));
    if end > packet.len() || packet.len() - end > MAX_PADDING {
        return;
    }
    for step in 0..2 {
        key.words[word::IPV6_SRC + step] = u64_at(header, 8 + 8 * step);
        key.words[word::IPV6_DST + step] = u64_at(header, 24 + 8 * step);
    }
    let Some(chain) = walk(&packet[..end], header[6], layout) else { return };
    let first = u64_at(header, 0) >> 32;
    key.words[word::MPLS] = first & 0xf_ffff;
    key.words[word::NW] = u64::from(chain.protocol) << 48
        | (first >> 20 & 0xff) << 40
        | u64::from(header[7]) << 32
        | chain.fragment << 24;
    layout.flags |= flag::IPV6;
    layout.transport = (start + chain.next) as u32;
    layout.end = (start + end) as u32;
    if chain.fragment & LATER == 0 {
        transport::parse(frame, chain.protocol, key, layout);
    }
}

struct Chain {
    protocol: u8,
    fragment: u64,
    /// The offset in the packet of the header that `protocol` names.
    next: usize,
}

/// Skips the extension headers. `None` if a header is truncated.
fn walk(packet: &[u8], first: u8, layout: &mut Layout) -> Option<Chain> {
    let mut chain = Chain { protocol: first, fragment: 0, next: 40 };
    loop {
        if !matches!(
            chain.protocol,
            HOP_BY_HOP | ROUTING | DESTINATION | AUTHENTICATION | FRAGMENTS
        ) {
            return Some(chain);
        }
        let header = packet.get(chain.next..)?.first_chunk::<8>()?;
        let length = match chain.protocol {
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            FRAGMENTS => 8,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if chain.next + length > packet.len() {
            return None;
        }
        chain.next += length;
        if chain.protocol == ROUTING && header[3] > 0 {
            layout.flags |= flag::ROUTED;
        }
        let is_fragment_header = chain.protocol == FRAGMENTS;
        chain.protocol = header[0];
        let offset = u16_at(header, 2);
        if is_fragment_header && offset != 0 {
            chain.fragment = FRAGMENT;
            if offset & 0xfff8 != 0 {
                chain.fragment |= LATER;
                chain.protocol = FRAGMENTS;
                return Some(chain);
            }
        }
    }
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENTS: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
