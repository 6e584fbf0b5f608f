//! Checks that tcpa's window stays within its bounds even if a host gives contradictory reports.

use cc::{Ack, CongestionControl, Path, Tcpa};
use proptest::prelude::*;
use units::{Bytes, Span, Time};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0_u64),
        1_u64..4,
        4_u64..100_000,
        any::<u32>().prop_map(u64::from),
        0_u64..1 << 60
    ]
}

proptest! {
    #[test]
    fn contradictory_reports_keep_the_window_in_bounds(
        mss in prop_oneof![1_u64..65_536, 65_536_u64..1 << 32],
        handshake in number(),
        acks in prop::collection::vec((prop::array::uniform8(number()), any::<bool>()), 1..200),
    ) {
        let mut tcpa = Tcpa::new(&Path {
            mss: Bytes::new(mss),
            initial_window: Bytes::new(10 * mss),
            handshake_rtt: (handshake > 0).then(|| Span::from_nanos(handshake)),
            now: Time::ZERO,
            seed: 7,
            memory: None,
            caqm: None,
        });
        for ([now, rtt, acked, lost, inflight, delivered, prior, interval], app_limited) in acks {
            tcpa.on_ack(&Ack {
                now: Time::from_nanos(now),
                rtt: (rtt > 0).then(|| Span::from_nanos(rtt)),
                min_rtt: None,
                acked: Bytes::new(acked),
                lost: Bytes::new(lost),
                marked: Bytes::new(0),
                inflight: Bytes::new(inflight),
                delivered: Bytes::new(delivered),
                prior_delivered: Bytes::new(prior),
                sent_inflight: Bytes::new(inflight),
                lost_since: Bytes::new(lost),
                interval: Span::from_nanos(interval),
                app_limited,
                window_limited: !app_limited,
                in_recovery: false,
            });
            // tcpa limits a segment to 64 KiB, whatever the host reports.
            prop_assert!(tcpa.cwnd().count() >= mss.min(65_536));
            prop_assert!(tcpa.cwnd().count() <= 1 << 31);
            prop_assert!(tcpa.pacing_rate().is_some_and(|rate| rate.bits_per_second() >= 8_000));
        }
    }
}
