//! The layout of the shared memory, and the checks of everything that a peer writes there.

use thiserror::Error;

use crate::Frame;

/// The sizes of a ring, which are the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The number of descriptors, a power of two.
    pub descriptors: u32,
    /// The number of bytes in the area for frames, a multiple of 64.
    pub area: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    #[error("the peer announces {descriptors} descriptors and an area of {area} bytes")]
    Geometry { descriptors: u32, area: u32 },
    #[error("the peer's index moved by {moved}, and the ring allows {allowed}")]
    Index { moved: u32, allowed: u32 },
    #[error("the peer's descriptor names {len} bytes at {offset} of an area of {area} bytes")]
    Descriptor { offset: u32, len: u32, area: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    pub offset: u32,
    pub len: u32,
}

/// The offsets of one direction's parts in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// The number of frames that were produced.
    pub produced: usize,
    /// The number of frames that were consumed.
    pub consumed: usize,
    /// A value other than 0 means that the consumer waits to be woken.
    pub sleeps: usize,
    pub descriptors: usize,
    pub area: usize,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { descriptors: 4096, area: 4 << 20 }
    }
}

impl Geometry {
    pub fn check(self) -> Result<Self, Violation> {
        let Self { descriptors, area } = self;
        let is_fine = descriptors.is_power_of_two()
            && (LEAST_DESCRIPTORS..=MOST_DESCRIPTORS).contains(&descriptors)
            && area.is_multiple_of(LINE as u32)
            && (LEAST_AREA..=MOST_AREA).contains(&area);
        if is_fine { Ok(self) } else { Err(Violation::Geometry { descriptors, area }) }
    }

    #[must_use]
    pub fn memory_len(self) -> usize {
        let direction = HEADER + self.descriptors as usize * DESCRIPTOR + self.area as usize;
        2 * direction.next_multiple_of(PAGE)
    }

    /// Returns the share of a direction's capacity that frames use, by descriptors or by bytes.
    #[must_use]
    pub fn occupancy(self, frames: &[Frame]) -> f64 {
        let sizes = || frames.iter().map(|frame| frame.bytes().len().next_multiple_of(LINE));
        // A frame that does not fit at the end of the area is written to the start of the area, and
        // the bytes at the end stay unused.
        let bytes = sizes().sum::<usize>() + 2 * sizes().max().unwrap_or_default();
        let descriptors = frames.len() as f64 / f64::from(self.descriptors);
        descriptors.max(bytes as f64 / f64::from(self.area))
    }

    #[must_use]
    pub fn places(self, direction: Direction) -> Places {
        let start = match direction {
            Direction::FromCreator => 0,
            Direction::ToCreator => self.memory_len() / 2,
        };
        Places {
            produced: start,
            consumed: start + 2 * LINE,
            sleeps: start + 4 * LINE,
            descriptors: start + HEADER,
            area: start + HEADER + self.descriptors as usize * DESCRIPTOR,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    FromCreator,
    ToCreator,
}

/// Returns the number of waiting frames, computed from the producer's index. The consumer's own
/// index is trusted.
#[inline]
pub fn waiting(produced: u32, consumed: u32, geometry: Geometry) -> Result<u32, Violation> {
    let moved = produced.wrapping_sub(consumed);
    match moved <= geometry.descriptors {
        true => Ok(moved),
        false => Err(Violation::Index { moved, allowed: geometry.descriptors }),
    }
}

/// Returns the number of frames among the `in_flight` frames that the consumer has returned since
/// the last check.
#[inline]
pub fn returned(consumed: u32, before: u32, in_flight: u32) -> Result<u32, Violation> {
    let moved = consumed.wrapping_sub(before);
    match moved <= in_flight {
        true => Ok(moved),
        false => Err(Violation::Index { moved, allowed: in_flight }),
    }
}

impl Descriptor {
    #[must_use]
    #[inline]
    pub fn to_word(self) -> u64 {
        u64::from(self.offset) | u64::from(self.len) << 32
    }

    /// Checks and decodes a descriptor that a peer wrote.
    #[inline]
    pub fn check(word: u64, geometry: Geometry) -> Result<Self, Violation> {
        let (offset, len) = (word as u32, (word >> 32) as u32);
        let end = u64::from(offset) + u64::from(len);
        match len as usize <= LONGEST && end <= u64::from(geometry.area) {
            true => Ok(Self { offset, len }),
            false => Err(Violation::Descriptor { offset, len, area: geometry.area }),
        }
    }
}

/// Maximum length of a frame: an IP packet of 65,535 bytes with a MAC header and two tags.
pub const LONGEST: usize = 65_535 + 22;
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Each word has two cache lines of its own, because processors fetch cache lines in pairs.
const HEADER: usize = 6 * LINE;
const DESCRIPTOR: usize = 8;
const LEAST_DESCRIPTORS: u32 = 64;
const MOST_DESCRIPTORS: u32 = 1 << 16;
const LEAST_AREA: u32 = 256 << 10;
const MOST_AREA: u32 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_accepted_descriptor_is_within_the_frame_area(word: u64) {
            let geometry = Geometry::default();
            if let Ok(descriptor) = Descriptor::check(word, geometry) {
                prop_assert!(descriptor.len as usize <= LONGEST);
                prop_assert!(descriptor.offset + descriptor.len <= geometry.area);
                prop_assert_eq!(descriptor.to_word(), word);
            }
        }

        #[test]
        fn accepted_ring_indexes_stay_within_the_frames_in_flight(produced: u32, consumed: u32, in_flight in 0..4096_u32) {
            let geometry = Geometry::default();
            if let Ok(count) = waiting(produced, consumed, geometry) {
                prop_assert!(count <= geometry.descriptors);
            }
            if let Ok(count) = returned(produced, consumed, in_flight) {
                prop_assert!(count <= in_flight);
            }
        }
    }

    #[test]
    fn the_two_rings_fit_in_the_memory_and_do_not_overlap() {
        for descriptors in [LEAST_DESCRIPTORS, 4096, MOST_DESCRIPTORS] {
            for area in [LEAST_AREA, 4 << 20, MOST_AREA] {
                let geometry = Geometry { descriptors, area }.check().unwrap();
                let first = geometry.places(Direction::FromCreator);
                let second = geometry.places(Direction::ToCreator);
                assert!(first.area + area as usize <= second.produced);
                assert!(second.area + area as usize <= geometry.memory_len());
                assert!(first.descriptors.is_multiple_of(64) && second.produced.is_multiple_of(64));
            }
        }
        for (descriptors, area) in [(0, 1 << 20), (63, 1 << 20), (100, 1 << 20), (64, 0)] {
            assert!(Geometry { descriptors, area }.check().is_err());
        }
    }
}
