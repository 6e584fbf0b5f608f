use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn arrival(number: u64) -> Arrival {
    timed(number, 0, 0)
}

fn timed(number: u64, sent_micros: u64, nanos: i64) -> Arrival {
    let header = Header {
        seconds: (sent_micros / 1_000_000) as u32,
        micros: (sent_micros % 1_000_000) as u32,
        number,
    };
    Arrival { header: Some(header), bytes: 100, nanos }
}

fn after(numbers: impl IntoIterator<Item = u64>) -> Arrivals {
    let mut arrivals = Arrivals::new(true);
    numbers.into_iter().for_each(|number| arrivals.take(&[arrival(number)]));
    arrivals
}

/// Returns count, received, lost, reordered and duplicates.
fn figures(datagrams: Datagrams) -> [u64; 5] {
    let Datagrams { count, received, lost, reordered, duplicates, .. } = datagrams;
    [count, received, lost, reordered, duplicates]
}

#[test]
fn datagrams_in_order_are_not_counted_as_lost() {
    assert_eq!(figures(after(1..=1000).datagrams()), [1000, 1000, 0, 0, 0]);
    assert_eq!(after(1..=1000).bytes(), 100_000);
}

#[test]
fn an_impossible_sequence_number_is_never_confirmed() {
    let far = 1 << 60;
    let arrivals = after((1..=10).chain([far, far + 1, 11]));
    assert_eq!(figures(arrivals.datagrams()), [11, 11, 0, 0, 0]);
    assert_eq!(arrivals.foreign(), 2);
}

#[test]
fn a_late_datagram_is_not_lost_and_a_second_copy_is_not_received() {
    assert_eq!(figures(after([1, 2, 4, 5]).datagrams()), [5, 4, 1, 0, 0]);
    assert_eq!(figures(after([1, 2, 4, 5, 3]).datagrams()), [5, 5, 0, 1, 0]);
    assert_eq!(figures(after([1, 2, 2, 4, 4, 2, 3, 3]).datagrams()), [4, 4, 0, 1, 4]);
    assert_eq!(after([1, 2, 2, 4, 4, 2, 3, 3]).bytes(), 400);
}

#[test]
fn a_datagrams_number_decides_whether_it_is_omitted() {
    let mut arrivals = after([1, 2, 4]);
    arrivals.reset();
    arrivals.take(&[5, 3, 7, 7, 4].map(arrival));
    assert_eq!(figures(arrivals.omitted()), [4, 4, 0, 1, 1]);
    assert_eq!(figures(arrivals.datagrams()), [3, 2, 1, 0, 1]);
    assert_eq!((arrivals.omitted_bytes(), arrivals.bytes()), (400, 200));
}

#[test]
fn a_datagram_behind_the_window_stays_lost() {
    let mut arrivals = after((2..WINDOW).chain([WINDOW]));
    arrivals.take(&[arrival(1)]);
    assert_eq!((arrivals.datagrams().lost, arrivals.too_late()), (0, 0));
    arrivals.take(&[WINDOW + 2, 2, 3].map(arrival));
    assert_eq!((arrivals.datagrams().lost, arrivals.too_late()), (1, 1));
    assert_eq!(arrivals.datagrams().duplicates, 1);
}

#[test]
fn a_single_number_far_ahead_counts_as_foreign() {
    let arrivals = after([1, 2, u64::MAX, 3, 1 << 40, 4]);
    assert_eq!(figures(arrivals.datagrams()), [4, 4, 0, 0, 0]);
    assert_eq!(arrivals.foreign(), 2);
}

#[test]
fn after_a_long_outage_two_consecutive_numbers_are_accepted() {
    let far = 10 * WINDOW;
    let arrivals = after([1, 2, far + 1, far, far + 2]);
    assert_eq!(figures(arrivals.datagrams()), [far + 2, 5, far - 3, 1, 0]);
    assert_eq!(arrivals.foreign(), 0);
}

#[test]
fn the_highest_possible_sequence_numbers_count_as_foreign() {
    let mut arrivals = after([u64::MAX - 70, u64::MAX - 71, u64::MAX, u64::MAX, 0, 1]);
    assert_eq!(figures(arrivals.datagrams()), [1, 1, 0, 0, 0]);
    assert_eq!((arrivals.foreign(), arrivals.too_late()), (4, 1));
    arrivals.reset();
    arrivals.take(&[arrival(u64::MAX - 1)]);
    assert_eq!(figures(arrivals.datagrams()), [0, 0, 0, 0, 0]);
}

#[test]
fn a_32_bit_sequence_number_wraps() {
    let mut arrivals = Arrivals::new(false);
    let wrap = 1u64 << 32;
    arrivals.highest = wrap - 3;
    arrivals.reset();
    for number in [wrap - 2, wrap - 1, wrap + 1, wrap, wrap + 2] {
        arrivals.take(&[arrival(number as u32 as u64)]);
    }
    assert_eq!(arrivals.highest, wrap + 2);
    assert_eq!(figures(arrivals.datagrams()), [5, 5, 0, 1, 0]);
}

#[test]
fn a_datagram_without_a_header_counts_as_foreign() {
    let mut arrivals = after([1]);
    arrivals.take(&[Arrival { header: None, bytes: 3, nanos: 0 }]);
    assert_eq!((arrivals.foreign(), arrivals.bytes()), (1, 100));
}

#[test]
fn jitter_is_computed_as_in_rfc_3550() {
    let mut arrivals = Arrivals::new(true);
    // Transit times of 5000, 5000 and 5160 µs: J = (160 − 0) / 16.
    arrivals.take(&[timed(1, 0, 5_000_000), timed(2, 1000, 6_000_000), timed(3, 2000, 7_160_000)]);
    assert_eq!(arrivals.datagrams().jitter, Span::from_micros(10));
    arrivals.take(&[timed(4, 3000, 8_160_000)]);
    assert_eq!(arrivals.datagrams().jitter, Span::from_nanos(9_375));
}

/// Generates numbers in order of arrival: each number has a random delay and random copies.
fn mixed() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0u64..5, 0u64..200), 1..600).prop_map(|fates| {
        let mut coming: Vec<(u64, u64)> = Vec::new();
        for (number, (copies, delay)) in (1..).zip(fates) {
            // Each number is lost, arrives once (three in five), or arrives twice.
            for copy in 0..[0, 1, 1, 1, 2][copies as usize] {
                coming.push((number + delay * (1 + copy), number));
            }
        }
        coming.sort_by_key(|(at, _)| *at);
        coming.into_iter().map(|(_, number)| number).collect()
    })
}

/// Counts with unlimited memory, as a reference: the omitted and the later datagrams.
fn reference(numbers: &[u64], kept: usize) -> [[u64; 5]; 2] {
    let boundary = numbers[..kept].iter().max().copied().unwrap_or(0);
    let mut counts = [[0; 5]; 2];
    let mut seen = BTreeSet::new();
    let mut highest = 0;
    for number in numbers {
        let [_, received, _, reordered, duplicates] = &mut counts[usize::from(*number > boundary)];
        if !seen.insert(*number) {
            *duplicates += 1;
            continue;
        }
        *received += 1;
        *reordered += u64::from(*number < highest);
        highest = highest.max(*number);
    }
    for (count, total) in counts.iter_mut().zip([boundary, highest - boundary]) {
        count[0] = total;
        count[2] = total - count[1];
    }
    counts
}

proptest! {
    #[test]
    fn any_order_with_losses_and_copies_is_counted_exactly(
        numbers in mixed(),
        kept: prop::sample::Index,
        wide: bool,
        base in prop::option::of(0u64..5 * WINDOW),
    ) {
        let kept = kept.index(numbers.len() + 1);
        let base = base.unwrap_or(0);
        let mut arrivals = Arrivals::new(wide);
        // Let all numbers up to `base` arrive first, so that the window's edges are at random
        // numbers.
        (1..=base).for_each(|number| arrivals.take(&[arrival(number)]));
        let shifted: Vec<_> = numbers.iter().map(|number| arrival(number + base)).collect();
        arrivals.take(&shifted[..kept]);
        arrivals.reset();
        arrivals.take(&shifted[kept..]);
        let [mut omitted, current] = reference(&numbers, kept);
        omitted[0] += base;
        omitted[1] += base;
        prop_assert_eq!(figures(arrivals.omitted()), omitted);
        prop_assert_eq!(figures(arrivals.datagrams()), current);
        prop_assert_eq!(arrivals.bytes(), current[1] * 100);
    }

    #[test]
    fn hostile_sequence_numbers_keep_the_counts_consistent(
        numbers in prop::collection::vec(
            prop_oneof![any::<u64>(), 0u64..1000, Just(u64::MAX), Just(1 << 63)], 0..200),
        stamps in prop::collection::vec(any::<(u32, u32, i64)>(), 200),
        wide: bool,
    ) {
        let mut arrivals = Arrivals::new(wide);
        let count = numbers.len() as u64;
        for (number, (seconds, micros, nanos)) in numbers.into_iter().zip(stamps) {
            let header = Some(Header { seconds, micros, number });
            arrivals.take(&[Arrival { header, bytes: 100, nanos }]);
        }
        let now = arrivals.datagrams();
        prop_assert_eq!(now.count, now.received + now.lost);
        prop_assert_eq!(
            now.received + now.duplicates + arrivals.too_late() + arrivals.foreign(), count);
    }
}
