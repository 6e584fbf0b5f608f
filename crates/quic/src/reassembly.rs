//! Puts the bytes of a stream into order.
//!
//! An endpoint reads stream data from quinn-proto in the order of arrival, because quinn-proto
//! closes a connection if a thousand chunks of a stream, about 1.5 MB, wait behind a gap.

use bytes::{Buf, Bytes};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

/// The bytes of a stream that have arrived: bytes in order, and bytes after gaps.
#[derive(Debug, Default)]
pub struct Reassembly {
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// The offset of the byte after `ready`.
    next: u64,
    /// Contiguous runs of data after gaps, by start offset. The map has an entry per gap instead of
    /// an entry per packet, because thousands of packets may wait behind a hundred gaps.
    held: BTreeMap<u64, Run>,
    held_bytes: usize,
}

/// Chunks without gaps between them.
#[derive(Debug, Default)]
struct Run {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// Whether the first chunk shares its memory with no other buffer.
    is_own: bool,
}

impl Reassembly {
    /// Adds bytes that begin at `offset` of the stream. Drops bytes that have arrived before.
    pub fn insert(&mut self, mut offset: u64, mut bytes: Bytes) {
        if offset < self.next {
            let known = self.next - offset;
            if known >= bytes.len() as u64 {
                return;
            }
            bytes.advance(known as usize);
            offset = self.next;
        }
        if offset > self.next {
            if !bytes.is_empty() {
                self.hold(offset, bytes);
            }
            return;
        }
        self.push(bytes);
        while let Some(entry) = self.held.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (mut offset, run) = entry.remove_entry();
            self.held_bytes -= run.bytes;
            for mut bytes in run.pieces {
                let (known, length) = (self.next.saturating_sub(offset), bytes.len() as u64);
                offset += length;
                if known < length {
                    bytes.advance(known as usize);
                    self.push(bytes);
                }
            }
        }
    }

    /// Returns the number of bytes that are in order and not consumed.
    pub fn ready(&self) -> usize {
        self.ready_bytes
    }

    /// Returns the number of bytes that wait behind a gap.
    pub fn held(&self) -> usize {
        self.held_bytes
    }

    /// Whether the data behind gaps is so fragmented that it takes far more memory than its bytes.
    /// No path causes such fragments; only a peer that wants to exhaust memory sends them.
    pub fn is_scattered(&self) -> bool {
        self.held.len() > MOST_GAPS + self.held_bytes / 256
    }

    /// Returns the offset of the first byte that is missing.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Copies the data behind gaps into separate memory. Without the copy, a chunk keeps whole
    /// packets in memory. A peer that never fills the gaps could thus occupy a multiple of its
    /// credit.
    pub fn compact(&mut self) {
        for run in self.held.values_mut().filter(|run| run.pieces.len() > 1 || !run.is_own) {
            let mut whole = Vec::with_capacity(run.bytes);
            run.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
            run.pieces = VecDeque::from([Bytes::from(whole)]);
            run.is_own = true;
        }
    }

    /// Copies the ready bytes into separate memory.
    pub fn compact_ready(&mut self) {
        if self.ready.len() > 1 {
            let mut whole = Vec::with_capacity(self.ready_bytes);
            self.ready.iter().for_each(|piece| whole.extend_from_slice(piece));
            self.ready = VecDeque::from([Bytes::from(whole)]);
        }
    }

    /// Fills `out` with the first ready bytes, one slice per entry. Returns the number of slices.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (place, bytes) in out.iter_mut().zip(&self.ready) {
            *place = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// Copies up to `most` of the first ready bytes.
    pub fn peek(&self, most: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for bytes in &self.ready {
            let take = bytes.len().min(most - out.len());
            out.extend_from_slice(&bytes[..take]);
            if out.len() == most {
                break;
            }
        }
        out
    }

    /// Consumes the first `count` ready bytes, or all ready bytes if there are fewer.
    pub fn consume(&mut self, count: usize) {
        let mut left = count.min(self.ready_bytes);
        self.ready_bytes -= left;
        while let Some(front) = self.ready.front_mut() {
            if front.len() > left {
                front.advance(left);
                return;
            }
            left -= front.len();
            self.ready.pop_front();
        }
    }

    fn push(&mut self, bytes: Bytes) {
        self.next += bytes.len() as u64;
        self.ready_bytes += bytes.len();
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    fn hold(&mut self, mut offset: u64, mut bytes: Bytes) {
        if let Some((start, run)) = self.held.range_mut(..=offset).next_back() {
            let end = start + run.bytes as u64;
            let known = end.saturating_sub(offset);
            if known >= bytes.len() as u64 {
                return;
            }
            bytes.advance(known as usize);
            offset += known;
            if offset == end {
                run.bytes += bytes.len();
                self.held_bytes += bytes.len();
                run.pieces.push_back(bytes);
                return;
            }
        }
        let run = self.held.entry(offset).or_default();
        run.bytes += bytes.len();
        self.held_bytes += bytes.len();
        run.pieces.push_back(bytes);
    }
}

/// Maximum number of gaps for which small chunks are accepted. At 5 % loss, a window of 48 MiB has
/// 1,700 gaps.
const MOST_GAPS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn single_bytes_behind_gaps_count_as_scattered_and_gaps_of_lost_packets_do_not() {
        let mut single = Reassembly::default();
        for offset in 0..=4200 {
            assert!(!single.is_scattered() || offset > 4096);
            single.insert(2 * offset + 1, Bytes::from_static(b"x"));
        }
        assert!(single.is_scattered());
        let mut packets = Reassembly::default();
        for offset in 0..20_000 {
            packets.insert(2900 * offset + 1450, Bytes::from_static(&[0; 1450]));
        }
        assert!(!packets.is_scattered());
    }

    #[test]
    fn compacted_runs_share_no_memory_and_hold_the_same_bytes() {
        let packet = Bytes::from((0..=255).collect::<Vec<u8>>());
        let mut reassembly = Reassembly::default();
        for offset in [10, 11, 12, 40, 200] {
            reassembly.insert(offset, packet.slice(offset as usize..offset as usize + 1));
        }
        assert!(!packet.is_unique());
        reassembly.compact();
        assert!(packet.is_unique());
        reassembly.insert(13, packet.slice(13..14));
        assert_eq!(reassembly.held(), 6);
        reassembly.insert(0, packet.slice(0..10));
        assert_eq!(reassembly.peek(100), packet.slice(0..14));
        reassembly.insert(14, packet.slice(14..200));
        assert_eq!((reassembly.peek(300).len(), reassembly.held()), (201, 0));
        assert_eq!(reassembly.peek(300), packet.slice(..201));
    }

    proptest! {
        #[test]
        fn reassembly_is_exact_for_any_order_and_overlap_of_chunks(
            whole in proptest::collection::vec(any::<u8>(), 1..2000),
            cuts in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..300), 0..40),
            order in any::<u64>(),
        ) {
            let whole = Bytes::from(whole);
            let mut pieces: Vec<(u64, Bytes)> = cuts
                .iter()
                .map(|(at, length)| {
                    let from = at.index(whole.len());
                    (from as u64, whole.slice(from..(from + length).min(whole.len())))
                })
                .collect();
            // Insert every byte once more, in case the earlier cuts skipped or repeated a byte.
            for from in (0..whole.len()).step_by(97) {
                pieces.push((from as u64, whole.slice(from..(from + 97).min(whole.len()))));
            }
            let count = pieces.len();
            for place in 0..count {
                let other = (order.wrapping_mul(place as u64 * 2 + 1) >> 7) as usize % count;
                pieces.swap(place, other);
            }
            let mut reassembly = Reassembly::default();
            let mut out = Vec::new();
            for (offset, bytes) in pieces {
                reassembly.insert(offset, bytes);
                let take = reassembly.ready() / 2 + reassembly.ready() % 2;
                let mut slices = [IoSlice::new(&[]); 64];
                let filled = reassembly.slices(&mut slices);
                let some: Vec<u8> =
                    slices[..filled].iter().flat_map(|slice| slice.to_vec()).take(take).collect();
                let took = some.len();
                prop_assert_eq!(&reassembly.peek(took), &some);
                out.extend(some);
                reassembly.consume(took);
            }
            out.extend(reassembly.peek(usize::MAX));
            prop_assert_eq!(reassembly.held(), 0);
            prop_assert_eq!(out, whole.to_vec());
        }
    }
}
