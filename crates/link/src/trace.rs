use crate::TraceError;
use units::{Bytes, Rate, Span};

/// A recorded link capacity: mahimahi's packet-delivery trace (Netravali et al., "Mahimahi:
/// Accurate Record-and-Replay for HTTP", USENIX ATC 2015, section 4.1; the semantics are those of
/// src/frontend/link_queue.cc).
///
/// Each line is an opportunity: a time in milliseconds at which 1504 bytes may leave. The trace
/// repeats after its last time. A frame leaves the queue at the first opportunity after its
/// arrival. A larger frame takes several opportunities, and the next frames use the remainder of
/// the last opportunity. If the queue is empty, an opportunity or its remainder is lost.
///
/// Mahimahi counts an IP packet plus 4 bytes of TUN header, so that a packet of 1500 bytes takes
/// one opportunity. Frames here count from the MAC addresses onwards; with an overhead of `-10`
/// a link counts as mahimahi does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The times of the opportunities: sorted and not empty; the last time is above 0.
    milliseconds: Box<[u64]>,
}

impl Trace {
    /// Bytes that may leave at each opportunity.
    pub const OPPORTUNITY: Bytes = Bytes::new(1504);

    /// Parses one time per line. Ignores empty lines and lines that begin with `#`.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut milliseconds: Vec<u64> = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let (line, content) = (index + 1, content.trim());
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let found: u64 = content.parse().map_err(|_| TraceError::NotANumber {
                line,
                found: content.chars().take(40).collect(),
            })?;
            if found > LONGEST_MS {
                return Err(TraceError::TooLate { line, found });
            }
            let before = milliseconds.last().copied().unwrap_or(0);
            if found < before {
                return Err(TraceError::Backwards { line, found, before });
            }
            milliseconds.push(found);
        }
        match milliseconds.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoLength),
            Some(_) => Ok(Self { milliseconds: milliseconds.into_boxed_slice() }),
        }
    }

    /// Builds a trace that plays the rates one after another. Each rate lasts for its time in whole
    /// milliseconds.
    pub fn of_rates(rates: &[(Rate, Span)]) -> Result<Self, TraceError> {
        // Count in bits per second times milliseconds, so that no rounding is needed.
        const EACH: u128 = Trace::OPPORTUNITY.count() as u128 * 8 * 1000;
        let length: u64 =
            rates.iter().fold(0, |sum, (_, span)| sum.saturating_add(span.nanos() / 1_000_000));
        let sent = rates.iter().map(|(rate, span)| {
            u128::from(rate.bits_per_second()) * u128::from(span.nanos() / 1_000_000) / EACH
        });
        if length > LONGEST_MS || sent.sum::<u128>() > MOST_OPPORTUNITIES {
            return Err(TraceError::TooLong);
        }
        let (mut milliseconds, mut at, mut owed) = (Vec::new(), 0, 0u128);
        for (rate, span) in rates {
            for _ in 0..span.nanos() / 1_000_000 {
                at += 1;
                owed += u128::from(rate.bits_per_second());
                while owed >= EACH {
                    owed -= EACH;
                    milliseconds.push(at);
                }
            }
        }
        match milliseconds.last() {
            None => Err(TraceError::NothingSent),
            Some(last) => {
                // A trace ends with its length: add the length if the last opportunity is earlier.
                if *last < length {
                    milliseconds.push(length);
                }
                Ok(Self { milliseconds: milliseconds.into_boxed_slice() })
            }
        }
    }

    /// Returns the duration of the trace before it repeats.
    pub fn length(&self) -> Span {
        Span::from_millis(self.length_ms())
    }

    /// Returns the number of opportunities before the trace repeats.
    pub fn opportunities(&self) -> usize {
        self.milliseconds.len()
    }

    /// Returns the rate of a queue that is never empty, averaged over the whole trace; at least 1
    /// bit/s.
    pub fn mean_rate(&self) -> Rate {
        let bits = Self::OPPORTUNITY.count() as u128 * 8 * self.milliseconds.len() as u128;
        let rate = bits * 1000 / u128::from(self.length_ms());
        Rate::from_bits_per_second(rate.clamp(1, i64::MAX as u128) as u64)
    }

    /// Returns the time of the opportunity `index`, counted over all repetitions.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> Span {
        let count = self.milliseconds.len() as u64;
        let within = self.milliseconds[(index % count) as usize];
        let repeated = (index / count).saturating_mul(self.length_ms());
        Span::from_millis(repeated.saturating_add(within))
    }

    /// Returns the index of the first opportunity later than `passed`.
    pub(crate) fn first_after(&self, passed: Span) -> u64 {
        let count = self.milliseconds.len() as u64;
        let milliseconds = passed.nanos() / 1_000_000;
        let (repeated, within) = (milliseconds / self.length_ms(), milliseconds % self.length_ms());
        let skipped = self.milliseconds.partition_point(|at| *at <= within) as u64;
        // The last opportunity of the previous repetition falls on time 0 of this repetition, and
        // has passed.
        repeated * count + skipped
    }

    fn length_ms(&self) -> u64 {
        self.milliseconds.last().copied().unwrap_or(1)
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, at) in self.milliseconds.iter().enumerate() {
            write!(f, "{}{at}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Maximum length of a trace, a year.
const LONGEST_MS: u64 = 365 * 24 * 3600 * 1000;
/// Maximum number of opportunities, which take 64 MB.
const MOST_OPPORTUNITIES: u128 = 8_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_invalid_trace_line_names_the_line() {
        let error = |text: &str| Trace::parse(text).unwrap_err();
        assert_eq!(error("# nothing\n\n"), TraceError::Empty);
        assert_eq!(error("0\n0\n"), TraceError::NoLength);
        assert_eq!(error("1\n5\n3\n"), TraceError::Backwards { line: 3, found: 3, before: 5 });
        assert_eq!(error("1\n5.5\n"), TraceError::NotANumber { line: 2, found: "5.5".to_owned() });
        assert_eq!(
            error("99999999999999999"),
            TraceError::TooLate { line: 1, found: 99_999_999_999_999_999 }
        );
        assert!(error("1\nfive").to_string().contains("line 2"));
        // The longest trace lasts a year.
        assert_eq!(Trace::parse("31536000000").map(|trace| trace.opportunities()), Ok(1));
        assert!(matches!(error("31536000001"), TraceError::TooLate { line: 1, .. }));
    }

    #[test]
    fn a_trace_repeats_after_its_last_time() {
        let trace = Trace::parse("2\n5\n5\n10\n").unwrap();
        let at: Vec<u64> = (0..9).map(|i| trace.at(i).nanos() / 1_000_000).collect();
        assert_eq!(at, [2, 5, 5, 10, 12, 15, 15, 20, 22]);
        assert_eq!(trace.mean_rate().bits_per_second(), 1504 * 8 * 4 * 100);
    }

    #[test]
    fn rates_become_opportunities() {
        let rate = |mbit: u64| Rate::from_bits_per_second(mbit * 12_032_000);
        let second = Span::from_secs(1);
        let trace = Trace::of_rates(&[(rate(3), second), (rate(0), second), (rate(1), second)]);
        let trace = trace.unwrap();
        assert_eq!(trace.length(), Span::from_secs(3));
        assert_eq!(trace.opportunities(), 4000);
        assert_eq!(trace.first_after(second), 3000);
        assert_eq!(trace.at(3000), Span::from_millis(2001));
        // If no opportunity falls on the end, the end itself becomes an opportunity.
        let trace = Trace::of_rates(&[(rate(1), second), (rate(0), second)]).unwrap();
        assert_eq!((trace.length(), trace.opportunities()), (Span::from_secs(2), 1001));
        assert_eq!(Trace::of_rates(&[(rate(0), second)]), Err(TraceError::NothingSent));
        assert_eq!(Trace::of_rates(&[]), Err(TraceError::NothingSent));
        let year = Span::from_secs(365 * 24 * 3600);
        assert_eq!(Trace::of_rates(&[(rate(1), year)]), Err(TraceError::TooLong));
        assert_eq!(
            Trace::of_rates(&[(rate(0), year), (rate(1), second)]),
            Err(TraceError::TooLong)
        );
    }

    #[test]
    fn the_first_opportunity_after_any_time_is_found() {
        for text in ["2\n5\n5\n10", "0\n0\n3", "1"] {
            let trace = Trace::parse(text).unwrap();
            for tenth in 0..400u64 {
                let passed = Span::from_micros(tenth * 100);
                let expected = (0..).find(|i| trace.at(*i) > passed).unwrap();
                assert_eq!(trace.first_after(passed), expected, "{text:?} at {passed}");
            }
        }
    }
}
