use std::collections::BTreeMap;

use crate::flow::{Key, word};

/// The prefixes of a field of 32 bits that rules require, with the number of rules.
///
/// A packet's value has a longest common start with one of them. That start and one bit more say
/// which prefixes the value has, so that a megaflow need not depend on the bits behind.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// By the prefix, zeros behind it, and its length: a prefix is before what it is a prefix of.
    rules: BTreeMap<(u32, u8), u32>,
}

/// The result of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The lengths of the prefixes that the value has, as bits.
    lengths: u64,
    /// The bits of the value that this depends on, from the highest down.
    pub(super) depth: u8,
}

impl Prefixes {
    pub(super) fn add(&mut self, value: u32, length: u8) {
        *self.rules.entry((value & ones(length), length)).or_insert(0) += 1;
    }

    pub(super) fn remove(&mut self, value: u32, length: u8) {
        let prefix = (value & ones(length), length);
        if let Some(count) = self.rules.get_mut(&prefix) {
            *count -= 1;
            if *count == 0 {
                self.rules.remove(&prefix);
            }
        }
    }

    pub(super) fn search(&self, value: u32) -> Found {
        // The two neighbours have the longest common starts.
        let below = self.rules.range(..=(value, 32)).next_back();
        let above = self.rules.range((value, 33)..).next();
        let mut common = 0;
        let mut depth = 0;
        for ((prefix, length), _) in below.into_iter().chain(above) {
            let same = ((prefix ^ value).leading_zeros() as u8).min(*length);
            common = common.max(same);
            depth = depth.max(if same < *length { same + 1 } else { same });
        }
        let has = |length: &u8| self.rules.contains_key(&(value & ones(*length), *length));
        let lengths = (1..=common).filter(has).fold(0, |bits, length| bits | 1 << length);
        Found { lengths, depth }
    }
}

impl Found {
    pub(super) fn has(self, length: u8) -> bool {
        self.lengths >> length & 1 != 0
    }
}

/// The tables of prefixes of a table's rules: source addresses of IPv4, then destinations.
#[derive(Debug, Default)]
pub(super) struct Addresses([Prefixes; 2]);

/// The lengths of the prefixes of a mask; 0 for what is none.
pub(super) type Lengths = [u8; 2];

impl Addresses {
    pub(super) fn lengths(mask: &Key) -> Lengths {
        SHIFTS.map(|shift| {
            let bits = (mask.words[word::IPV4] >> shift) as u32;
            let length = bits.leading_ones();
            if bits == ones(length as u8) { length as u8 } else { 0 }
        })
    }

    pub(super) fn add(&mut self, value: u64, lengths: Lengths) {
        for ((prefixes, shift), length) in self.0.iter_mut().zip(SHIFTS).zip(lengths) {
            if length > 0 {
                prefixes.add((value >> shift) as u32, length);
            }
        }
    }

    pub(super) fn remove(&mut self, value: u64, lengths: Lengths) {
        for ((prefixes, shift), length) in self.0.iter_mut().zip(SHIFTS).zip(lengths) {
            if length > 0 {
                prefixes.remove((value >> shift) as u32, length);
            }
        }
    }
}

/// The searches for the addresses of one packet, made when they are needed.
#[derive(Debug)]
pub(super) struct Searches<'a> {
    addresses: &'a Addresses,
    found: [Option<Found>; 2],
}

impl<'a> Searches<'a> {
    pub(super) fn new(addresses: &'a Addresses) -> Self {
        Self { addresses, found: [None; 2] }
    }

    /// Whether prefixes of these lengths rule a packet out. Adds to `mask` what that depends on, if
    /// it is no more than the prefixes themselves.
    pub(super) fn exclude(&mut self, lengths: Lengths, key: &Key, mask: &mut Key) -> bool {
        for (side, length) in lengths.into_iter().enumerate() {
            if length == 0 {
                continue;
            }
            let shift = SHIFTS[side];
            let value = (key.words[word::IPV4] >> shift) as u32;
            let search = || self.addresses.0[side].search(value);
            let found = *self.found[side].get_or_insert_with(search);
            if found.has(length) {
                continue;
            }
            let bits = u64::from(ones(found.depth)) << shift;
            let is_known = mask.words[word::IPV4] & bits == bits;
            if found.depth <= length || is_known {
                mask.words[word::IPV4] |= bits;
                return true;
            }
        }
        false
    }
}

pub(super) fn ones(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

/// The places of the addresses in their word.
const SHIFTS: [u32; 2] = [32, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_the_prefixes_of_a_value_and_how_deep_it_looked() {
        let mut prefixes = Prefixes::default();
        let empty = prefixes.search(0x0a01_0203);
        assert_eq!((empty.lengths, empty.depth), (0, 0));
        for (value, length) in [(0x0a01_0000, 16), (0x0a01_020f, 32), (0xc0a8_0000, 16)] {
            prefixes.add(value, length);
        }
        for (value, lengths, depth) in [
            (0x0a01_020f, 1 << 16 | 1 << 32, 32),
            // The next prefix parts from it at the 29th bit.
            (0x0a01_0200, 1 << 16, 29),
            (0x0b01_020f, 0, 8),
            (0xc0a8_0002, 1 << 16, 16),
            (0x8000_0000, 0, 2),
        ] {
            let found = prefixes.search(value);
            assert_eq!((found.lengths, found.depth), (lengths, depth), "{value:x}");
        }
        prefixes.remove(0x0a01_020f, 32);
        let found = prefixes.search(0x0a01_020f);
        assert_eq!((found.lengths, found.depth), (1 << 16, 16));
    }

    #[test]
    fn the_bits_that_a_search_looked_at_decide_it() {
        let mut state = 1_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        let mut prefixes = Prefixes::default();
        for _ in 0..200 {
            let length = (next() >> 8) % 33;
            prefixes.add(next(), length.max(1) as u8);
        }
        for _ in 0..2000 {
            let value = next();
            let found = prefixes.search(value);
            let other = value & ones(found.depth) | next() & !ones(found.depth);
            assert_eq!(prefixes.search(other).lengths, found.lengths, "{value:x} {other:x}");
        }
    }
}
