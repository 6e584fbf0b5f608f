use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{BitAnd, BitXor};

use flow::{Key, word};

/// The prefixes of a value that rules match, each with the number of its rules.
///
/// A search finds the longest prefix that a packet's value has in common with a prefix of the
/// rules. The bits of this common prefix and one more bit show which prefixes match the value. A
/// megaflow need not depend on the later bits.
#[derive(Debug, Default)]
pub(super) struct Prefixes<T> {
    /// Sorted by the prefix, padded with zeros, and then by its length: a prefix precedes all
    /// prefixes that extend it.
    rules: BTreeMap<(T, u8), u32>,
    /// The number of rules by the length of their prefix.
    lengths: BTreeMap<u8, u32>,
}

/// An IPv4 or IPv6 address, or both ports as one number.
pub(super) trait Value:
    Copy + Ord + Debug + BitAnd<Output = Self> + BitXor<Output = Self>
{
    const WIDTH: u8;

    /// Returns a value whose `length` highest bits are ones.
    fn ones(length: u8) -> Self;

    /// Returns the number of leading zero bits.
    fn zeros(self) -> u8;
}

impl Value for u32 {
    const WIDTH: u8 = 32;

    fn ones(length: u8) -> Self {
        Self::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
    }

    fn zeros(self) -> u8 {
        self.leading_zeros() as u8
    }
}

impl Value for u128 {
    const WIDTH: u8 = 128;

    fn ones(length: u8) -> Self {
        Self::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
    }

    fn zeros(self) -> u8 {
        self.leading_zeros() as u8
    }
}

/// The result of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// A bit for the length of each prefix that matches the value; bit 0 stands for length 1.
    lengths: u128,
    /// The number of leading bits of the value on which the result depends.
    pub(super) depth: u8,
}

impl<T: Value> Prefixes<T> {
    pub(super) fn add(&mut self, value: T, length: u8) {
        *self.rules.entry((value & T::ones(length), length)).or_insert(0) += 1;
        *self.lengths.entry(length).or_insert(0) += 1;
    }

    pub(super) fn remove(&mut self, value: T, length: u8) {
        let prefix = (value & T::ones(length), length);
        let Some(count) = self.rules.get_mut(&prefix) else { return };
        *count -= 1;
        if *count == 0 {
            self.rules.remove(&prefix);
        }
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    pub(super) fn search(&self, value: T) -> Found {
        // The longest common prefix belongs to the prefix just before or just after the value.
        let below = self.rules.range(..=(value, T::WIDTH)).next_back();
        let above = self.rules.range((value, T::WIDTH + 1)..).next();
        let mut common = 0;
        let mut depth = 0;
        for ((prefix, length), _) in below.into_iter().chain(above) {
            let same = (*prefix ^ value).zeros().min(*length);
            common = common.max(same);
            depth = depth.max(if same < *length { same + 1 } else { same });
        }
        let used = self.lengths.range(1..=common.max(1)).map(|(length, _)| *length);
        let has = |length: &u8| {
            *length <= common && self.rules.contains_key(&(value & T::ones(*length), *length))
        };
        let lengths = used.filter(has).fold(0, |bits, length| bits | 1 << (length - 1));
        Found { lengths, depth }
    }
}

impl Found {
    pub(super) fn has(self, length: u8) -> bool {
        length > 0 && self.lengths >> (length - 1) & 1 != 0
    }
}

/// The prefixes of addresses in a table's rules.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    v4: [Prefixes<u32>; 2],
    v6: [Prefixes<u128>; 2],
}

/// The address prefixes of a rule: IPv4, then IPv6, each with the source first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Values {
    pub(super) v4: [u32; 2],
    pub(super) v6: [u128; 2],
}

/// The lengths of a mask's prefixes, in the order of [`Values`]; 0 for a mask that is no prefix.
pub(super) type Lengths = [u8; 4];

impl Addresses {
    pub(super) fn lengths(mask: &Key) -> Lengths {
        let Values { v4: [a, b], v6: [c, d] } = Values::of(|index| mask.words[index]);
        [length_of(a), length_of(b), length_of(c), length_of(d)]
    }

    pub(super) fn add(&mut self, values: Values, lengths: Lengths) {
        for side in 0..2 {
            if lengths[side] > 0 {
                self.v4[side].add(values.v4[side], lengths[side]);
            }
            if lengths[side + 2] > 0 {
                self.v6[side].add(values.v6[side], lengths[side + 2]);
            }
        }
    }

    pub(super) fn remove(&mut self, values: Values, lengths: Lengths) {
        for side in 0..2 {
            if lengths[side] > 0 {
                self.v4[side].remove(values.v4[side], lengths[side]);
            }
            if lengths[side + 2] > 0 {
                self.v6[side].remove(values.v6[side], lengths[side + 2]);
            }
        }
    }

    fn search(&self, side: usize, value: Values) -> Found {
        match side {
            0 | 1 => self.v4[side].search(value.v4[side]),
            _ => self.v6[side - 2].search(value.v6[side - 2]),
        }
    }
}

impl Values {
    /// Reads the addresses from the words of a key.
    pub(super) fn of(word: impl Fn(usize) -> u64) -> Self {
        let v4 = word(word::IPV4);
        let v6 = |first| u128::from(word(first)) << 64 | u128::from(word(first + 1));
        Self { v4: [(v4 >> 32) as u32, v4 as u32], v6: [v6(word::IPV6_SRC), v6(word::IPV6_DST)] }
    }
}

/// Returns the length of a mask that is a prefix; returns 0 for any other mask.
fn length_of<T: Value>(mask: T) -> u8 {
    let length = (mask ^ T::ones(T::WIDTH)).zeros();
    if mask == T::ones(length) { length } else { 0 }
}

/// Whether a word holds addresses. All such words are in the same stage of a lookup.
pub(super) fn has_addresses(index: u8) -> bool {
    (word::IPV4..word::IPV6_DST + 2).contains(&usize::from(index))
}

/// The prefix searches for the addresses of one packet. Each search runs at its first use.
#[derive(Debug)]
pub(super) struct Searches<'a> {
    addresses: &'a Addresses,
    found: [Option<Found>; 4],
}

impl<'a> Searches<'a> {
    pub(super) fn new(addresses: &'a Addresses) -> Self {
        Self { addresses, found: [None; 4] }
    }

    /// Whether no rule whose prefixes have these lengths matches the packet's addresses. If so,
    /// adds to `mask` the bits that show the mismatch. Returns false if the mismatch takes more
    /// bits than the prefixes have.
    pub(super) fn exclude(&mut self, lengths: Lengths, key: &Key, mask: &mut Key) -> bool {
        for (side, length) in lengths.into_iter().enumerate() {
            if length == 0 {
                continue;
            }
            let search = || self.addresses.search(side, Values::of(|index| key.words[index]));
            let found = *self.found[side].get_or_insert_with(search);
            if found.has(length) {
                continue;
            }
            let bits = bits_of(side, found.depth);
            let is_known = bits.iter().all(|(index, bits)| mask.words[*index] & bits == *bits);
            if found.depth <= length || is_known {
                for (index, bits) in bits {
                    mask.words[index] |= bits;
                }
                return true;
            }
        }
        false
    }
}

/// Returns the leading bits of an address, as bits of its words.
fn bits_of(side: usize, depth: u8) -> [(usize, u64); 2] {
    if side < 2 {
        let bits = u64::from(u32::ones(depth)) << (32 * (1 - side));
        return [(word::IPV4, bits), (word::IPV4, 0)];
    }
    let first = [word::IPV6_SRC, word::IPV6_DST][side - 2];
    let bits = u128::ones(depth);
    [(first, (bits >> 64) as u64), (first + 1, bits as u64)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Field;

    #[test]
    fn a_prefix_search_returns_the_matching_prefixes_and_the_depth() {
        let mut prefixes = Prefixes::<u32>::default();
        let empty = prefixes.search(0x0a01_0203);
        assert_eq!((empty.lengths, empty.depth), (0, 0));
        for (value, length) in [(0x0a01_0000, 16), (0x0a01_020f, 32), (0xc0a8_0000, 16)] {
            prefixes.add(value, length);
        }
        for (value, lengths, depth) in [
            (0x0a01_020f, 1 << 15 | 1 << 31, 32),
            // The value differs from the next prefix in the 29th bit.
            (0x0a01_0200, 1 << 15, 29),
            (0x0b01_020f, 0, 8),
            (0xc0a8_0002, 1 << 15, 16),
            (0x8000_0000, 0, 2),
        ] {
            let found = prefixes.search(value);
            assert_eq!((found.lengths, found.depth), (lengths, depth), "{value:x}");
        }
        prefixes.remove(0x0a01_020f, 32);
        let found = prefixes.search(0x0a01_020f);
        assert_eq!((found.lengths, found.depth), (1 << 15, 16));
    }

    #[test]
    fn values_with_equal_bits_up_to_the_depth_have_equal_results() {
        let mut state = 1_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        let mut short = Prefixes::<u32>::default();
        let mut long = Prefixes::<u128>::default();
        // Values and prefixes share leading bits, so that common prefixes of all lengths occur.
        let wide = |value: u32| u128::from(value) << 96 | u128::from(value.swap_bytes());
        for _ in 0..200 {
            let length = (next() >> 8) % 33;
            short.add(next(), length.max(1) as u8);
            let length = (next() >> 8) % 129;
            long.add(wide(next()), length.max(1) as u8);
        }
        for _ in 0..2000 {
            let value = next();
            let found = short.search(value);
            let other = value & u32::ones(found.depth) | next() & !u32::ones(found.depth);
            assert_eq!(short.search(other).lengths, found.lengths, "{value:x} {other:x}");
            let value = wide(value);
            let found = long.search(value);
            let other = value & u128::ones(found.depth) | wide(next()) & !u128::ones(found.depth);
            assert_eq!(long.search(other).lengths, found.lengths, "{value:x} {other:x}");
        }
    }

    #[test]
    fn the_mask_of_an_address_has_the_bits_that_distinguish_the_address_from_all_prefixes() {
        let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().to_bits();
        let mut addresses = Addresses::default();
        for (source, length) in [("2001:db8:3c4d:1:2:3:4:5", 128), ("2001:db8:1::", 48)] {
            let v6 = [address(source), 0];
            addresses.add(Values { v6, ..Values::default() }, [0, 0, length, 0]);
        }
        for (source, lengths, depth) in [
            ("2001:db8:3c4d:5:4:3:2:1", [0, 0, 128, 0], 62),
            ("2001:db8:3c4d:5:4:3:2:1", [0, 0, 48, 0], 0),
            ("2001:db8:2::1", [0, 0, 48, 0], 47),
            ("fe80::1", [0, 0, 48, 0], 1),
        ] {
            let mut key = Key::ZERO;
            key.write(Field::Ipv6Src, address(source));
            let mut mask = Key::ZERO;
            let excludes = Searches::new(&addresses).exclude(lengths, &key, &mut mask);
            // The search would depend on 62 bits, which is more than the prefix itself has.
            assert_eq!(excludes, depth > 0, "{source}");
            assert_eq!(mask.read(Field::Ipv6Src), u128::ones(depth), "{source}");
        }
    }
}
