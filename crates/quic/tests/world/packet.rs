//! Reads the headers of packets on the path, which `quic::plain` leaves readable.

use std::collections::BTreeMap;

/// A packet number space (RFC 9000, section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    Initial,
    Handshake,
    Application,
}

#[derive(Clone, Copy)]
pub struct Header {
    pub space: Space,
    pub number: u64,
    /// Whether the packet number exceeds all previous packet numbers of its space.
    pub rises: bool,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let not = if self.rises { "" } else { ", after higher ones" };
        write!(f, "{:?} {}{not}", self.space, self.number)
    }
}

/// Reads the packet headers of an uncorrupted datagram. `last` holds each space's highest number so
/// far.
pub fn headers(mut datagram: &[u8], last: &mut BTreeMap<Space, u64>) -> Vec<Header> {
    let mut found = Vec::new();
    while let Some((space, at, length, end)) = header(datagram) {
        let truncated =
            datagram[at..at + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let expected = last.get(&space).map_or(0, |number| number + 1);
        let number = expand(truncated, length, expected);
        let rises = number >= expected;
        last.insert(space, number.max(expected.saturating_sub(1)));
        found.push(Header { space, number, rises });
        datagram = &datagram[end..];
    }
    found
}

/// Returns a packet's number space, the position and length of its number, and the packet's end.
fn header(datagram: &[u8]) -> Option<(Space, usize, usize, usize)> {
    let first = *datagram.first()?;
    let length = usize::from(first & 3) + 1;
    if first & 0x80 == 0 {
        return Some((Space::Application, 1 + ID, length, datagram.len()));
    }
    let mut at = 5;
    for _ in 0..2 {
        at += 1 + usize::from(datagram[at]);
    }
    let space = match first >> 4 & 3 {
        0 => {
            let token = variable(datagram, &mut at);
            at += token;
            Space::Initial
        }
        2 => Space::Handshake,
        kind => panic!("a long header of type {kind}"),
    };
    let rest = variable(datagram, &mut at);
    Some((space, at, length, at + rest))
}

/// Reads a variable-length integer (RFC 9000, section 16).
fn variable(bytes: &[u8], at: &mut usize) -> usize {
    let length = 1 << (bytes[*at] >> 6);
    let value =
        bytes[*at..*at + length].iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
    *at += length;
    value & (usize::MAX >> (66 - 8 * length))
}

/// Decodes a truncated packet number (RFC 9000, appendix A.3).
fn expand(truncated: u64, length: usize, expected: u64) -> u64 {
    let window = 1 << (8 * length);
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Length of the engine's connection IDs, in bytes.
const ID: usize = 8;
