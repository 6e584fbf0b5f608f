//! Neighbour discovery (RFC 4861): the target, and the link-layer addresses in its options.

use flow::{Key, word};

use super::u64_at;
use crate::packet::{Layout, flag};

/// Reads a solicitation or advertisement; `segment` begins with the ICMPv6 header.
pub(super) fn parse(segment: &[u8], key: &mut Key, layout: &mut Layout) {
    if !matches!(segment[..2], [135 | 136, 0]) || segment.len() < BODY {
        return;
    }
    let mut addresses = [0_u64; 2];
    for (kind, address) in options(segment) {
        let known = &mut addresses[usize::from(kind) - 1];
        if *known != 0 {
            // A message that has the same option twice is invalid.
            return;
        }
        *known = u64_at(segment, address - 2) << 16;
    }
    for step in 0..2 {
        key.words[word::ND_TARGET + step] = u64_at(segment, 8 + 8 * step);
    }
    [key.words[word::ARP_SHA], key.words[word::ARP_THA]] = addresses;
    layout.flags |= flag::NEIGHBOR;
}

/// Returns the options that carry a link-layer address: 1 for the source's address, 2 for the
/// target's address, each with the offset of the address.
pub(crate) fn options(segment: &[u8]) -> impl Iterator<Item = (u8, usize)> + '_ {
    let mut at = BODY;
    std::iter::from_fn(move || {
        loop {
            let option = segment.get(at..)?.first_chunk::<8>()?;
            let length = usize::from(option[1]) * 8;
            if length == 0 || at + length > segment.len() {
                return None;
            }
            let address = at + 2;
            at += length;
            if matches!(option[0], 1 | 2) && length == 8 {
                return Some((option[0], address));
            }
        }
    })
}

/// The length of the message before its options.
const BODY: usize = 24;
