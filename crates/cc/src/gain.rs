//! Gains in 1/256, the unit of Linux's BBR.

pub(crate) fn scaled(value: u64, gain: u64) -> u64 {
    let product = (u128::from(value) * u128::from(gain)) >> SCALE;
    u64::try_from(product).unwrap_or(u64::MAX)
}

pub(crate) const ONE: u64 = 1 << SCALE;
const SCALE: u32 = 8;
