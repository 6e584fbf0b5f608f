//! Parses datagrams from any sender: headers, the opening exchange, probes, and the receiver's
//! counts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf::observe::echo::{Echo, respond};
use perf::udp::{Arrival, Arrivals, Counter, Header, answer, is_answer, is_hello};

fuzz_target!(|bytes: &[u8]| {
    if let Some(hello) = is_hello(bytes) {
        assert!(is_answer(&answer(hello)));
    }
    if let Some(echo) = Echo::parse(bytes) {
        assert_eq!(echo.encode(), bytes);
    }
    // A sender gets back only its own bytes, and no further bytes.
    assert!(respond(bytes, |_| true).is_none_or(|back| back == bytes));
    for wide in [false, true] {
        let counter = Counter::of(wide);
        if let Some(header) = Header::read(bytes, counter) {
            let mut again = bytes.to_vec();
            header.write(&mut again, counter);
            assert_eq!(again, bytes);
        }
        count(bytes, wide);
    }
});

/// Counts a sequence of datagrams, whose arbitrary numbers come from the bytes.
fn count(bytes: &[u8], wide: bool) {
    let mut arrivals = Arrivals::new(wide);
    let (mut came, mut nanos) = (0, 0_i64);
    for piece in bytes.chunks(17) {
        let length = u64::from(piece[0]);
        nanos += i64::from(piece[0]) * 1_000_003;
        let header = Header::read(&piece[1..], Counter::of(wide));
        arrivals.take(&[Arrival { header, bytes: length, nanos }]);
        came += 1;
        if length == 77 {
            arrivals.reset();
        }
    }
    let (now, omitted) = (arrivals.datagrams(), arrivals.omitted());
    let seen = |d: perf::event::Datagrams| d.received + d.duplicates;
    assert!(seen(now) + seen(omitted) + arrivals.too_late() + arrivals.foreign() <= came);
    for datagrams in [now, omitted] {
        assert_eq!(datagrams.count, datagrams.received + datagrams.lost);
        assert!(datagrams.reordered <= datagrams.received);
    }
}
