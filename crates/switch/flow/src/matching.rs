use super::{Field, Key};

/// The packets that a rule applies to: those whose key, under `mask`, equals `value`.
///
/// Bits of `value` outside `mask` are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Match {
    pub value: Key,
    pub mask: Key,
}

impl Match {
    /// Returns a match of all packets.
    #[inline]
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    #[inline]
    pub fn set(&mut self, field: Field, value: u128) {
        self.set_masked(field, value, u128::MAX);
    }

    /// Adds a condition on the field to the match.
    #[inline]
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.place().all_ones();
        let former = self.value.read(field) & !mask;
        self.value.write(field, former | value & mask);
        self.mask.write(field, self.mask.read(field) | mask);
    }

    #[inline]
    pub fn clear(&mut self, field: Field) {
        self.value.write(field, 0);
        self.mask.write(field, 0);
    }

    #[inline]
    #[must_use]
    pub fn is_set(&self, field: Field) -> bool {
        self.mask.read(field) != 0
    }

    #[inline]
    #[must_use]
    pub fn is_exact(&self, field: Field) -> bool {
        self.mask.read(field) == field.place().all_ones()
    }

    #[inline]
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        let masked = key.words.iter().zip(&self.mask.words);
        masked.zip(&self.value.words).all(|((word, mask), value)| word & mask == *value)
    }

    /// Whether `wider` matches every packet that this match matches.
    #[inline]
    #[must_use]
    pub fn is_within(&self, wider: &Match) -> bool {
        wider.mask.is_within(&self.mask) && self.value.masked(&wider.mask) == wider.value
    }

    /// Whether a packet can satisfy both matches.
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &Match) -> bool {
        let values = self.value.words.iter().zip(&other.value.words);
        let masks = self.mask.words.iter().zip(&other.mask.words);
        values.zip(masks).all(|((a, b), (m, n))| (a ^ b) & m & n == 0)
    }
}
