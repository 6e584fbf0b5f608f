use crate::bench::machine::PORT;
use crate::model::Failure;
use host::Namespace;
use units::Time;

/// The bytes that the receiving host's sockets had received at one moment. A program may compute
/// its own figure from the bytes up to its last message and the time of its first message. Over a
/// long path with a full queue such a figure exceeds the link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) at: Time,
    pub(super) bytes: u64,
}

impl Arrived {
    pub(super) fn read(far: &Namespace) -> Result<Self, Failure> {
        let filter = probe::tcp::Filter::established().local_port(PORT);
        let sockets = far.run(|| Ok(probe::tcp::sockets(&filter)))??;
        let at = probe::clock::now();
        let counts = sockets.iter().filter_map(|s| Some(s.info.as_ref()?.bytes_received?.count()));
        Ok(Self { at, bytes: counts.sum() })
    }

    /// Returns the rate in Mbit/s. `None` if no time passed, or if the count decreased, which means
    /// that sockets were closed in between.
    pub(super) fn rate_since(&self, earlier: &Self) -> Option<f64> {
        let elapsed = self.at.since(earlier.at).secs_f64();
        let bytes = self.bytes.checked_sub(earlier.bytes)?;
        (elapsed > 0.0).then(|| bytes as f64 * 8e-6 / elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    fn at(millis: u64, bytes: u64) -> Arrived {
        Arrived { at: Time::default() + Span::from_millis(millis), bytes }
    }

    #[test]
    fn goodput_is_the_bits_between_two_samples_over_their_time() {
        // 12.5 MB in a second are 100 Mbit in a second, whatever arrived before.
        assert_eq!(at(1_000, 12_500_000).rate_since(&at(0, 0)), Some(100.0));
        assert_eq!(at(5_500, 112_500_000).rate_since(&at(4_500, 100_000_000)), Some(100.0));
        // A sample over half the time has half the bytes and the same rate.
        assert_eq!(at(500, 6_250_000).rate_since(&at(0, 0)), Some(100.0));
        assert_eq!(at(1_000, 7).rate_since(&at(0, 7)), Some(0.0));
    }

    #[test]
    fn samples_without_elapsed_time_or_with_fewer_bytes_have_no_goodput() {
        let early = at(1_000, 5_000);
        assert_eq!(early.rate_since(&early), None, "no time has passed");
        assert_eq!(at(2_000, 4_999).rate_since(&early), None, "a socket was closed");
        assert_eq!(early.rate_since(&at(2_000, 0)), None, "the time has decreased");
    }
}
