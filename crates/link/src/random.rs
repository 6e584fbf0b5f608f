use rand_pcg::{Pcg64, rand_core::Rng};
use units::Share;

/// A stream of random numbers for one component.
///
/// PCG XSL RR 128/64 (O'Neill 2014) is a documented algorithm that uses only integers. The same
/// seed therefore gives the same decisions on every platform and in every version.
#[derive(Debug, Clone)]
pub struct Stream(Pcg64);

impl Stream {
    /// Creates the stream of the component `name`. Streams of different names are independent, so
    /// that enabling one component does not change the decisions of the other components.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut state = mix(seed) ^ fnv1a(name);
        let mut word = || {
            state = state.wrapping_add(GOLDEN_RATIO);
            u128::from(mix(state))
        };
        let first = word() << 64 | word();
        let second = word() << 64 | word();
        Self(Pcg64::new(first, second))
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number uniform in [0, 1), with all 53 bits of a double's precision.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws a value from `least` to `most`, both included. Each order of magnitude is equally
    /// likely.
    pub fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = ((least + 1) as f64, (most + 2) as f64);
        let drawn = low * (high / low).powf(self.unit());
        (drawn as u64 - 1).clamp(least, most)
    }

    /// Returns true with a probability of 1 in `count`, which must be above 0.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.bits().is_multiple_of(count)
    }

    /// Returns true with the probability `chance`; never for 0 %, always for 100 %.
    #[inline]
    pub fn happens(&mut self, chance: Share) -> bool {
        self.unit() < chance.fraction()
    }
}

/// Hashes a 64-bit value with the finaliser of SplitMix64 (Steele, Lea, Flood 2014). Zero maps to
/// zero.
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_streams_have_fixed_first_values() {
        let mut stream = Stream::new(1, "loss");
        let first: Vec<u64> = (0..3).map(|_| stream.bits()).collect();
        assert_eq!(first, PINNED);
    }

    #[test]
    fn names_and_seeds_make_different_streams() {
        let first = |seed, name| Stream::new(seed, name).bits();
        assert_ne!(first(1, "loss"), first(1, "jitter"));
        assert_ne!(first(1, "loss"), first(2, "loss"));
    }

    #[test]
    fn probabilities_of_zero_and_one_are_exact() {
        let mut stream = Stream::new(7, "loss");
        assert!((0..10_000).all(|_| stream.happens(Share::ONE)));
        assert!((0..10_000).all(|_| !stream.happens(Share::ZERO)));
    }

    #[test]
    fn each_order_of_magnitude_is_equally_likely() {
        let mut stream = Stream::new(3, "rate");
        let mut decades = [0_u32; 3];
        for _ in 0..30_000 {
            let drawn = stream.log_uniform(1_000, 999_999);
            decades[drawn.ilog10() as usize - 3] += 1;
        }
        assert!(decades.iter().all(|count| (9_500..10_500).contains(count)), "{decades:?}");
    }

    /// With the bounds 0 and 1, a value is 0 with a probability of ln 2 / ln 3.
    #[test]
    fn both_bounds_are_drawn() {
        let mut stream = Stream::new(3, "size");
        let zeros = (0..10_000).filter(|_| stream.log_uniform(0, 1) == 0).count();
        assert!((6_150..6_470).contains(&zeros), "{zeros}");
        let drawn: Vec<u64> = (0..1_000).map(|_| stream.log_uniform(5, 8)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&8)));
    }

    #[test]
    fn one_in_four_happens_in_a_quarter_of_draws() {
        let mut stream = Stream::new(3, "turn");
        let count = (0..10_000).filter(|_| stream.one_in(4)).count();
        assert!((2_370..2_630).contains(&count), "{count}");
    }

    const PINNED: [u64; 3] =
        [4_235_962_533_230_121_547, 8_243_243_526_963_018_458, 1_198_929_198_566_493_071];
}
