use rand::RngExt;
use std::ops::Range;
use units::{Rate, Span};

/// Returns the time until the next probe. The time is random, so that the probes do not synchronise
/// with a timer, a queue or a periodic congestion control (RFC 2330 section 11.1.1). On a slow path
/// the time is longer, so that the probes do not become the load.
pub(super) fn pause(loaded: bool, load: Rate, random: &mut impl rand::Rng) -> Span {
    let usual = if loaded { LOADED } else { IDLE };
    let mean = (usual.start + usual.end) / 2;
    let affordable = if loaded && load > Rate::default() {
        PARTS * (PROBE_BITS * NANOS / load.bits_per_second())
    } else {
        0
    };
    let factor = affordable.min(LONGEST.nanos()).max(mean) as f64 / mean as f64;
    Span::from_nanos((random.random_range(usual) as f64 * factor) as u64)
}

/// Pause between probes without load, in nanoseconds.
const IDLE: Range<u64> = 10_000_000..30_000_000;
const LOADED: Range<u64> = 10_000_000..50_000_000;
const LONGEST: Span = Span::from_millis(500);
/// The probes may add this part of the load: 1/200.
const PARTS: u64 = 200;
/// Bits of a probe: headers of Ethernet, IPv6, and ICMP or UDP, and the echo.
const PROBE_BITS: u64 = (14 + 40 + 8 + 40) * 8;
const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn mean(loaded: bool, load: Rate) -> f64 {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        let pauses = (0..2000).map(|_| pause(loaded, load, &mut random));
        pauses.map(Span::millis_f64).sum::<f64>() / 2000.0
    }

    #[test]
    fn a_path_with_a_low_rate_is_probed_less_often() {
        let near = |mean: f64, millis: f64| assert!((mean / millis - 1.0).abs() < 0.05, "{mean}");
        near(mean(false, Rate::default()), 20.0);
        near(mean(true, Rate::default()), 30.0);
        near(mean(true, Rate::from_mbit(1000)), 30.0);
        near(mean(true, Rate::from_mbit(1)), 163.2);
        near(mean(true, Rate::from_bits_per_second(1)), 500.0);
        near(mean(true, Rate::from_bits_per_second(u64::MAX)), 30.0);
    }
}
