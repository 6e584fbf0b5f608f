//! The printed form of a quantity parses to the same quantity.

use crate::{Bytes, Rate, Share, Span};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_printed_rate_parses_to_itself(bits in 0u64..1_000_000_000_000_000) {
        let rate = Rate::from_bits_per_second(bits);
        prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
    }

    #[test]
    fn a_printed_size_parses_to_itself(count in 0u64..1_000_000_000_000_000) {
        let size = Bytes::new(count);
        prop_assert_eq!(size.to_string().parse::<Bytes>().unwrap(), size);
    }

    #[test]
    fn a_printed_span_parses_to_itself(nanos in 0u64..1_000_000_000_000_000) {
        let span = Span::from_nanos(nanos);
        prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
    }

    #[test]
    fn a_printed_share_parses_to_itself(millionths in 0u32..=1_000_000) {
        let share = Share::new(f64::from(millionths) / 1e6).unwrap();
        let again: Share = share.to_string().parse().unwrap();
        prop_assert!((again.fraction() - share.fraction()).abs() < 1e-12);
    }

    #[test]
    fn the_parsers_of_quantities_never_panic(text in ".*") {
        let _ = text.parse::<Rate>();
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Span>();
        let _ = text.parse::<Share>();
    }
}
