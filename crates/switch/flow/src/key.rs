use super::field::{Field, Place};

/// The number of words of a [`Key`].
pub const WORDS: usize = 37;

/// All fields of a packet, and its metadata, at fixed positions. A mask has the same layout.
///
/// Values are in host order. A field lies within one word, except fields of 128 bits, which take
/// two words, the more significant one first. So masking, hashing and comparing process whole
/// words, and only the words that a mask uses ([`Key::used_words`]).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub words: [u64; WORDS],
}

/// The indices of the words of a [`Key`]. [`Field::place`] has the bits of a field within its word.
pub mod word {
    pub const IN_PORT: usize = 0;
    pub const METADATA: usize = 1;
    pub const TUN_ID: usize = 2;
    pub const PKT_MARK: usize = 3;
    pub const ACTSET_OUTPUT: usize = 4;
    pub const REGISTERS: usize = 5;
    pub const CT: usize = 13;
    pub const CT_LABEL: usize = 14;
    pub const CT_NW: usize = 16;
    pub const CT_IPV6_SRC: usize = 17;
    pub const CT_IPV6_DST: usize = 19;
    pub const CT_TP: usize = 21;
    pub const ETH_SRC: usize = 22;
    pub const ETH_DST: usize = 23;
    pub const VLAN_TPID: usize = 24;
    pub const MPLS: usize = 25;
    pub const IPV4: usize = 26;
    pub const IPV6_SRC: usize = 27;
    pub const IPV6_DST: usize = 29;
    pub const NW: usize = 31;
    pub const TP: usize = 32;
    pub const ARP_SHA: usize = 33;
    pub const ARP_THA: usize = 34;
    pub const ND_TARGET: usize = 35;

    /// Whether a word is part of an IP or ARP header. The word of the IPv6 flow label does not
    /// count, because it also holds MPLS entries.
    #[inline]
    #[must_use]
    pub const fn is_network(index: usize) -> bool {
        matches!(index, IPV4..=NW | ARP_SHA | ARP_THA)
    }
}

impl Key {
    pub const ZERO: Self = Self { words: [0; WORDS] };

    /// The packet's egress queue, printed as `skb_priority`. Rules cannot match the queue, and a
    /// packet arrives with queue 0.
    pub const PRIORITY: Place = Place { word: word::VLAN_TPID as u8, shift: 32, width: 32 };

    /// The type of the outer VLAN tag; 0 without a tag.
    pub const TAG_TYPE: Place = Place { word: word::VLAN_TPID as u8, shift: 0, width: 16 };

    /// The VLAN tag under the outer tag, in the form of `vlan_tci`; 0 if there is no second tag.
    /// Rules cannot match this tag.
    pub const INNER_TCI: Place = Place { word: word::VLAN_TPID as u8, shift: 16, width: 16 };

    #[inline]
    #[must_use]
    pub fn read(&self, field: Field) -> u128 {
        self.read_at(field.place())
    }

    /// Stores the low bits of `value` that fit the field.
    #[inline]
    pub fn write(&mut self, field: Field, value: u128) {
        self.write_at(field.place(), value);
    }

    #[inline]
    #[must_use]
    pub fn read_at(&self, place: Place) -> u128 {
        let word = usize::from(place.word);
        if place.width > 64 {
            return u128::from(self.words[word]) << 64 | u128::from(self.words[word + 1]);
        }
        u128::from(self.words[word] >> place.shift) & place.all_ones()
    }

    #[inline]
    pub fn write_at(&mut self, place: Place, value: u128) {
        let word = usize::from(place.word);
        if place.width > 64 {
            self.words[word] = (value >> 64) as u64;
            self.words[word + 1] = value as u64;
            return;
        }
        let ones = (place.all_ones() as u64) << place.shift;
        self.words[word] = self.words[word] & !ones | (value as u64) << place.shift & ones;
    }

    /// Returns a bit mask of the words that are not zero.
    #[inline]
    #[must_use]
    pub fn used_words(&self) -> u64 {
        let mut used = 0;
        for (index, word) in self.words.iter().enumerate() {
            used |= u64::from(*word != 0) << index;
        }
        used
    }

    /// Returns a copy of the key in which all bits outside `mask` are 0.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &Key) -> Key {
        let mut masked = Key::ZERO;
        for index in 0..WORDS {
            masked.words[index] = self.words[index] & mask.words[index];
        }
        masked
    }

    /// Removes the registers and other metadata of the pipeline from a mask, because these fields
    /// are 0 in every packet that the datapath looks up. `dp_hash`, which the datapath writes,
    /// stays.
    #[inline]
    pub fn remove_metadata(&mut self) {
        let hash = self.read(Field::DpHash);
        self.words[word::METADATA..word::CT].fill(0);
        self.write(Field::DpHash, hash);
    }

    /// Adds the bits of `other` to this mask.
    #[inline]
    pub fn unite(&mut self, other: &Key) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Whether `other` has every bit of this mask.
    #[inline]
    #[must_use]
    pub fn is_within(&self, other: &Key) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & !other == 0)
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::ZERO
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        f.debug_map().entries(used.map(|(index, word)| (index, format!("{word:#018x}")))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_field_changes_only_that_field() {
        for field in Field::ALL {
            let ones = field.place().all_ones();
            let mut key = Key::ZERO;
            key.write(*field, u128::MAX);
            assert_eq!(key.read(*field), ones, "{field:?}");
            let set: u32 = key.words.iter().map(|word| word.count_ones()).sum();
            assert_eq!(set, u32::from(field.place().width), "{field:?}");
            key.words = [u64::MAX; WORDS];
            key.write(*field, 0);
            let clear: u32 = key.words.iter().map(|word| word.count_zeros()).sum();
            assert_eq!(clear, u32::from(field.place().width), "{field:?}");
        }
    }
}
