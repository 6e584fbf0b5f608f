//! Frames that are truncated or changed, or whose header offsets are wrong.

use datapath::conntrack::{Headers, Settings};
use flow::Field;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::frames::{Frame, SYN, Tcp, echo, end, sctp, tcp, udp, unreachable};
use crate::tracking::{Tracker, commit, flags, snat, v4};

fn samples() -> Vec<Frame> {
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let (client6, server6) = (end("[fd00::1]:1000"), end("[fd00::2]:80"));
    let syn = Tcp { scale: Some(3), payload: 9, ..Tcp::new(SYN, 5, 0) };
    let mut samples = vec![
        udp(client, server),
        tcp(client, server, syn),
        sctp(client, server),
        echo(v4(1), v4(2), 8, 4),
        udp(client6, server6),
        tcp(client6, server6, syn),
        echo(client6.0, server6.0, 128, 4),
    ];
    for quoted in samples.clone() {
        let (router, to) = if quoted.is_v6() { (server6.0, client6.0) } else { (v4(9), v4(1)) };
        samples.push(unreachable(router, to, &quoted));
    }
    samples
}

fn lenient() -> Tracker {
    Tracker::with(&Settings { verify_checksums: false, ..Settings::default() })
}

#[test]
fn a_frame_truncated_inside_its_headers_is_invalid() {
    let tracker = lenient();
    for sample in samples() {
        tracker.track(&mut sample.clone(), &snat(0, "192.0.2.1", None));
        for length in 0..sample.bytes.len() {
            for is_end_right in [false, true] {
                let mut cut = sample.clone();
                cut.bytes.truncate(length);
                if is_end_right {
                    cut.headers.end = length;
                }
                tracker.track(&mut cut, &snat(0, "192.0.2.1", None));
                let is_short = length < sample.headers.transport + 8;
                if is_short || !is_end_right {
                    assert_eq!(flags(&cut), "inv|trk", "{length} bytes of {sample:?}");
                }
            }
        }
    }
}

#[test]
fn a_frame_with_any_value_at_any_byte_is_tracked_or_invalid() {
    let tracker = lenient();
    for sample in samples() {
        for at in 12..sample.bytes.len() {
            for value in 0..=255 {
                let mut changed = sample.clone();
                changed.bytes[at] = value;
                tracker.track(&mut changed, &snat(0, "192.0.2.1", None));
                let state = changed.key.read(Field::CtState);
                assert!(state == 0x30 || state & 0x10 == 0, "{state:#x}");
                assert_eq!(changed.bytes.len(), sample.bytes.len());
            }
        }
    }
}

#[test]
fn wrong_header_offsets_cause_no_panic() {
    let tracker = lenient();
    let mut random = Pcg64Mcg::seed_from_u64(6);
    let mut offset = |length: usize| match random.random_range(0..8) {
        0 => usize::MAX - random.random_range(0..100),
        1 => usize::MAX / 2,
        _ => random.random_range(0..length + 20),
    };
    for sample in samples() {
        for _ in 0..3000 {
            let mut frame = sample.clone();
            let length = frame.bytes.len();
            frame.headers =
                Headers { network: offset(length), transport: offset(length), end: offset(length) };
            tracker.track(&mut frame, &commit(0));
        }
    }
}

#[test]
fn random_bytes_cause_no_panic_and_use_little_memory() {
    let tracker = lenient();
    let mut random = Pcg64Mcg::seed_from_u64(7);
    for sample in samples() {
        for _ in 0..5000 {
            let mut frame = sample.clone();
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(14..frame.bytes.len());
                frame.bytes[at] = random.random();
            }
            frame.key.write(Field::NwProto, random.random_range(0..140u8).into());
            let track =
                if random.random_bool(0.5) { commit(0) } else { snat(0, "192.0.2.1", None) };
            tracker.track(&mut frame, &track);
        }
    }
    let bytes = tracker.table.statistics().bytes;
    assert!(bytes / u64::from(tracker.table.connections().max(1024)) < 192);
}
