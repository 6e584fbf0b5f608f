//! Paths, ACKs and losses for the unit tests of the algorithms.

use crate::caqm::CaqmSettings;
use crate::{Ack, Algorithm, Loss, Path};
use units::{Bytes, Span, Time};

pub(crate) const MSS: u64 = 1000;

pub(crate) fn path(rtt: Span) -> Path {
    Path {
        mss: Bytes::new(MSS),
        initial_window: Bytes::new(10 * MSS),
        handshake_rtt: Some(rtt),
        now: Time::ZERO,
        seed: 1,
        memory: None,
        caqm: None,
    }
}

/// An ACK of one segment of a flow that uses its window, one round trip after the segment left.
pub(crate) fn ack(now: Time, rtt: Span) -> Ack {
    Ack {
        now,
        rtt: Some(rtt),
        min_rtt: Some(rtt),
        acked: Bytes::new(MSS),
        lost: Bytes::new(0),
        marked: Bytes::new(0),
        inflight: Bytes::new(MSS),
        delivered: Bytes::new(now.nanos()),
        prior_delivered: Bytes::new(now.nanos().saturating_sub(rtt.nanos())),
        sent_inflight: Bytes::new(MSS),
        lost_since: Bytes::new(0),
        interval: rtt,
        app_limited: false,
        window_limited: true,
        in_recovery: false,
    }
}

pub(crate) const LOSS: Loss =
    Loss { now: Time::ZERO, lost: Bytes::new(MSS), inflight: Bytes::new(MSS), repeated: false };

/// All variants of CUBIC have the name `cubic`.
#[test]
fn an_algorithm_calls_itself_by_the_name_that_users_write() {
    for algorithm in Algorithm::ALL {
        let started = algorithm.start(&path(Span::from_millis(40)));
        let written = algorithm.name();
        assert_eq!(started.name(), written.split('-').next().unwrap_or(written));
    }
}

/// Each of the two algorithms reports the largest number as its threshold.
#[test]
fn bbr_and_tcpa_have_no_threshold() {
    for algorithm in [Algorithm::Bbr, Algorithm::Bbr3, Algorithm::Tcpa] {
        let mut started = algorithm.start(&path(Span::from_millis(40)));
        started.on_loss(&LOSS);
        assert_eq!(started.ssthresh(), Bytes::new(u64::MAX), "{algorithm}");
    }
}

#[test]
fn caqm_begins_with_the_initial_window_of_the_path() {
    let path = Path { caqm: Some(CaqmSettings::default()), ..path(Span::from_millis(40)) };
    assert_eq!(Algorithm::Caqm.start(&path).cwnd(), path.initial_window);
}

#[test]
fn only_caqm_offers_caqm() {
    let offer: Vec<_> = Algorithm::ALL.iter().filter(|one| one.offers_caqm()).collect();
    assert_eq!(offer, [&Algorithm::Caqm]);
}

#[test]
fn neither_an_ack_in_recovery_nor_an_unused_window_grows_the_window() {
    let ack = ack(Time::ZERO + Span::from_millis(40), Span::from_millis(40));
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::CubicRfc9438] {
        let mut started = algorithm.start(&path(Span::from_millis(40)));
        let before = started.cwnd();
        started.on_ack(&Ack { in_recovery: true, ..ack });
        started.on_ack(&Ack { window_limited: false, ..ack });
        assert_eq!(started.cwnd(), before, "{algorithm}");
        started.on_ack(&ack);
        assert!(started.cwnd() > before, "{algorithm}");
    }
}
