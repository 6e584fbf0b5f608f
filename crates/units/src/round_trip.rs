//! The printed form of a quantity parses to the same quantity.

use crate::{Bytes, Rate, Share, Span};
use proptest::prelude::*;

proptest! {
    #[test]
    fn rates(bits in 0u64..1_000_000_000_000_000) {
        let rate = Rate::from_bits_per_second(bits);
        prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
    }

    #[test]
    fn sizes(count in 0u64..1_000_000_000_000_000) {
        let size = Bytes::new(count);
        prop_assert_eq!(size.to_string().parse::<Bytes>().unwrap(), size);
    }

    #[test]
    fn spans(nanos in 0u64..1_000_000_000_000_000) {
        let span = Span::from_nanos(nanos);
        prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
    }

    #[test]
    fn shares(millionths in 0u32..=1_000_000) {
        let share = Share::new(f64::from(millionths) / 1e6).unwrap();
        let again: Share = share.to_string().parse().unwrap();
        prop_assert!((again.fraction() - share.fraction()).abs() < 1e-12);
    }

    #[test]
    fn garbage_never_panics(text in ".*") {
        let _ = text.parse::<Rate>();
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Span>();
        let _ = text.parse::<Share>();
    }
}
