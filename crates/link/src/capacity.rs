use crate::text::name_and_terms;
use crate::trace::Trace;
use crate::{LinkError, TraceError};
use std::sync::Arc;
use units::{Bytes, Rate, Time};

/// The rate at which frames leave.
///
/// Written `unlimited`, a rate such as `600mbit`, or `trace:5,10,10,20` (milliseconds, see
/// [`Trace`]; traces of any length come from files through [`Trace::parse`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Capacity {
    /// Frames leave as soon as they arrive: serialisation takes no time and no queue forms.
    #[default]
    Unlimited,
    /// Frames leave at this constant rate, which must be above 0.
    Fixed(Rate),
    /// Frames leave at the opportunities of this trace, which repeats without end.
    Trace(Arc<Trace>),
}

impl Capacity {
    /// Checks the capacity; a fixed rate of 0 is invalid.
    pub fn validate(&self) -> Result<(), LinkError> {
        match self {
            Self::Fixed(rate) if rate.bits_per_second() == 0 => Err(LinkError::invalid(
                "rate",
                "is 0, and such a link delivers nothing: give a rate such as `10mbit`, or `unlimited`; to cut a link, lose 100%",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the long-term mean rate; `None` for an unlimited link.
    pub fn mean_rate(&self) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

impl std::str::FromStr for Capacity {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let capacity = match name_and_terms(text) {
            ("unlimited", "") => Self::Unlimited,
            ("trace", times) => {
                Self::Trace(Arc::new(Trace::parse(&times.replace(',', "\n")).map_err(
                    |problem| match problem {
                        TraceError::Empty => LinkError::invalid(
                            "rate",
                            "has an empty trace: write times in milliseconds, for example `trace:5,10,20`",
                        ),
                        other => other.into(),
                    },
                )?))
            }
            (rate, "") if rate.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c)) => {
                Self::Fixed(rate.parse()?)
            }
            (other, _) => {
                return Err(LinkError::UnknownForm {
                    what: "rate",
                    found: text.to_owned(),
                    hint: units::did_you_mean(other, ["unlimited", "trace"]),
                    known: "`600mbit`, `trace:5,10,20` (milliseconds) or `unlimited`",
                });
            }
        };
        capacity.validate()?;
        Ok(capacity)
    }
}

impl std::fmt::Display for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.pad("unlimited"),
            Self::Fixed(rate) => rate.fmt(f),
            Self::Trace(trace) => f.pad(&format!("trace:{trace}")),
        }
    }
}

units::as_text!(Capacity, "a rate such as \"600mbit\"");

/// The running state of a capacity, which decides when each frame starts and ends.
#[derive(Debug)]
pub(crate) enum Server {
    Unlimited,
    Fixed {
        rate: u64,
        /// The time at which the link is free, in whole nanoseconds; `rest` holds the remainder in
        /// units of 1/rate nanosecond. Rates that do not divide a nanosecond evenly therefore do
        /// not drift.
        free: Time,
        rest: u64,
    },
    Trace {
        trace: Arc<Trace>,
        start: Time,
        /// The index of the current opportunity, counted over all repetitions. `left` is the number
        /// of bytes that may still leave at this opportunity.
        opportunity: u64,
        left: u64,
    },
}

impl Server {
    pub(crate) fn new(capacity: &Capacity, start: Time) -> Self {
        match capacity {
            Capacity::Unlimited => Self::Unlimited,
            Capacity::Fixed(rate) => {
                Self::Fixed { rate: rate.bits_per_second().max(1), free: start, rest: 0 }
            }
            Capacity::Trace(trace) => Self::Trace {
                trace: trace.clone(),
                start,
                opportunity: 0,
                left: Trace::OPPORTUNITY.count(),
            },
        }
    }

    /// Handles the arrival of a frame at an idle link. Past opportunities that found no frame are
    /// lost, as is the remainder of an opportunity (`LinkQueue::rationalize` in mahimahi's
    /// link_queue.cc).
    #[inline]
    pub(crate) fn wake(&mut self, now: Time) {
        if let Self::Trace { trace, start, opportunity, left } = self {
            *opportunity = trace.first_after(now.since(*start));
            *left = Trace::OPPORTUNITY.count();
        }
    }

    /// Returns the time at which a frame that has waited since `since` may start.
    #[inline]
    pub(crate) fn ready(&self, since: Time) -> Time {
        match self {
            Self::Unlimited => since,
            Self::Fixed { free, .. } => since.max(*free),
            Self::Trace { trace, start, opportunity, .. } => {
                since.max(*start + trace.at(*opportunity))
            }
        }
    }

    /// Serialises a frame of `size` from `at` on; returns the time at which the serialisation
    /// ends.
    #[inline]
    pub(crate) fn serve(&mut self, at: Time, size: Bytes) -> Time {
        match self {
            Self::Unlimited => at,
            Self::Fixed { rate, free, rest } => {
                if *free < at {
                    *free = at;
                    *rest = 0;
                }
                let (nanos, remainder) = nanos_for(size, *rate, *rest);
                *free = Time::from_nanos(free.nanos().saturating_add(nanos));
                *rest = remainder;
                *free
            }
            Self::Trace { trace, start, opportunity, left } => {
                let each = Trace::OPPORTUNITY.count();
                // The frame's last byte leaves with the opportunity that holds byte `last`, counted
                // from the beginning of the current opportunity.
                let last = (each - *left) + size.count() - 1;
                let finish = *start + trace.at(*opportunity + last / each);
                *opportunity += (last + 1) / each;
                *left = each - (last + 1) % each;
                finish.max(at)
            }
        }
    }

    /// Returns the bytes of a frame of `size` that are unsent at `now`, if the frame ends at
    /// `finish`. A trace does not track partial frames, so the whole frame counts as unsent.
    pub(crate) fn unsent(&self, now: Time, finish: Time, size: Bytes) -> Bytes {
        match self {
            Self::Fixed { rate, .. } => {
                let bits = u128::from(finish.since(now).nanos()) * u128::from(*rate);
                let bytes = bits.div_ceil(8 * NANOS_PER_SECOND);
                Bytes::new(u64::try_from(bytes).map_or(size.count(), |b| b.min(size.count())))
            }
            Self::Unlimited | Self::Trace { .. } => size,
        }
    }
}

#[inline]
fn nanos_for(size: Bytes, rate: u64, rest: u64) -> (u64, u64) {
    // Up to this size 64 bits suffice: 2^29 bytes are 2^32 bits, or less than 2^62
    // bit-nanoseconds, and rates are below 2^63.
    if size.count() < 1 << 29 {
        let bit_nanos = size.count() * 8 * NANOS_PER_SECOND as u64 + rest;
        (bit_nanos / rate, bit_nanos % rate)
    } else {
        let bit_nanos = u128::from(size.count()) * 8 * NANOS_PER_SECOND + u128::from(rest);
        let nanos = u64::try_from(bit_nanos / u128::from(rate)).unwrap_or(u64::MAX);
        (nanos, (bit_nanos % u128::from(rate)) as u64)
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After any number of back-to-back frames, the link is free at the time that exact
        /// arithmetic gives.
        #[test]
        fn a_fixed_rate_adds_up_no_rounding_error(
            rate in 1u64..400_000_000_000,
            sizes in prop::collection::vec(1u64..70_000, 1..200),
        ) {
            let capacity = Capacity::Fixed(Rate::from_bits_per_second(rate));
            let mut server = Server::new(&capacity, Time::ZERO);
            let mut bits = 0u128;
            for size in sizes {
                let at = server.ready(Time::ZERO);
                let finish = server.serve(at, Bytes::new(size));
                bits += u128::from(size) * 8;
                prop_assert_eq!(u128::from(finish.nanos()), bits * 1_000_000_000 / u128::from(rate));
            }
        }
    }

    #[test]
    fn a_hundred_thousand_frames_take_the_exact_time() {
        let mut server = Server::new(&"7mbit".parse().unwrap(), Time::ZERO);
        let mut finish = Time::ZERO;
        for _ in 0..100_000 {
            finish = server.serve(server.ready(finish), Bytes::new(1514));
        }
        let exact = 1514u64 * 8 * 100_000 * 1000 / 7;
        assert_eq!(finish.nanos(), exact);
    }

    #[test]
    fn an_idle_link_starts_at_the_arrival() {
        let mut server = Server::new(&"8gbit".parse().unwrap(), Time::ZERO);
        let first = server.serve(Time::ZERO, Bytes::new(1000));
        assert_eq!(first.nanos(), 1000);
        let later = Time::from_nanos(5000);
        assert_eq!(server.ready(later), later);
        assert_eq!(server.serve(later, Bytes::new(1000)).nanos(), 6000);
    }

    #[test]
    fn an_idle_link_drops_the_fraction_of_a_nanosecond() {
        // At 3 Gbit/s a byte takes 2 2/3 ns.
        let mut server = Server::new(&"3gbit".parse().unwrap(), Time::ZERO);
        let byte = Bytes::new(1);
        assert_eq!(server.serve(Time::ZERO, byte).nanos(), 2);
        assert_eq!(server.serve(Time::from_nanos(2), byte).nanos(), 5);
        assert_eq!(server.serve(Time::from_nanos(100), byte).nanos(), 102);
    }

    #[test]
    fn the_error_for_an_invalid_rate_names_a_valid_syntax() {
        let message = |text: &str| text.parse::<Capacity>().unwrap_err().to_string();
        assert!(message("0mbit").contains("rate is 0"));
        assert!(message("600").contains("has no unit"));
        assert!(message("unlimitd").contains("did you mean `unlimited`?"));
        assert!(message("trace:").contains("empty trace"));
        assert!(message("trace:1,x").contains("line 2"));
    }

    /// 2^30 bytes are 2^33 bits: 8,589,934,592 bit-seconds over 3 Gbit/s.
    #[test]
    fn a_frame_of_a_gigabyte_takes_its_exact_time() {
        let found = nanos_for(Bytes::new(1 << 30), 3_000_000_000, 5);
        assert_eq!(found, (2_863_311_530, 2_000_000_005));
        // The computation uses 64 bits below 2^29 bytes, and 128 bits from there on.
        for size in [(1 << 29) - 1, 1 << 29, (1 << 29) + 1] {
            let bits = u128::from(size) * 8 * NANOS_PER_SECOND + 7;
            let (nanos, rest) = nanos_for(Bytes::new(size), 1_000_003, 7);
            assert_eq!(u128::from(nanos) * 1_000_003 + u128::from(rest), bits, "{size}");
            assert!(rest < 1_000_003);
        }
        assert_eq!(nanos_for(Bytes::new(u64::MAX), 1, 0).0, u64::MAX);
    }

    /// 1250 bytes at 10 Mbit/s take a millisecond.
    #[test]
    fn the_unsent_part_of_a_frame_is_rounded_up_to_whole_bytes() {
        let server = Server::new(&"10mbit".parse().unwrap(), Time::ZERO);
        let finish = Time::from_nanos(1_000_000);
        let unsent = |now| server.unsent(Time::from_nanos(now), finish, Bytes::new(1250)).count();
        assert_eq!(
            [0, 800, 801, 500_000, 999_999, 1_000_000].map(unsent),
            [1250, 1249, 1249, 625, 1, 0]
        );
        let longer = server.unsent(Time::ZERO, finish, Bytes::new(100));
        assert_eq!(longer, Bytes::new(100), "never more than the frame");
        let trace = Server::new(&"trace:5".parse().unwrap(), Time::ZERO);
        assert_eq!(trace.unsent(Time::ZERO, finish, Bytes::new(100)), Bytes::new(100));
    }

    /// A trace that begins at 100 ms, with two opportunities of 1504 bytes after 5 and 10 ms.
    #[test]
    fn frames_leave_with_the_opportunity_that_holds_their_last_byte() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut server = Server::new(&"trace:5,10".parse().unwrap(), at(100));
        assert_eq!(server.ready(at(100)), at(105));
        let mut serve = |size| server.serve(at(100), Bytes::new(size));
        assert_eq!([1504, 1, 1503, 3008].map(&mut serve), [at(105), at(110), at(110), at(120)]);
        // The second frame ends with the first byte of the next opportunity.
        assert_eq!([1500, 5].map(&mut serve), [at(125), at(130)]);
        server.wake(at(131));
        assert_eq!(server.ready(at(131)), at(135), "the rest of an opportunity is lost");
    }

    #[test]
    fn the_mean_rate_matches_the_configured_rate_or_trace() {
        let mean = |text: &str| text.parse::<Capacity>().unwrap().mean_rate();
        assert_eq!(mean("unlimited"), None);
        assert_eq!(mean("7mbit"), Some(Rate::from_mbit(7)));
        // The trace carries 1504 bytes in 2 ms.
        assert_eq!(mean("trace:2"), Some(Rate::from_bits_per_second(1504 * 8 * 500)));
    }
}
