use super::*;
use crate::tests::{MSS, ack, path};

const RTT: Span = Span::from_millis(40);

fn in_state(state: State) -> Bbr3 {
    let mut bbr = Bbr3::new(&path(RTT));
    bbr.state = state;
    bbr
}

#[test]
fn samples_of_an_idle_application_can_only_raise_the_bandwidth() {
    let mut bbr = in_state(State::Cruise);
    let full = ack(Time::ZERO + RTT, RTT);
    let limited = Ack { app_limited: true, ..full };
    bbr.update_bandwidth(&full, 1000);
    bbr.update_bandwidth(&limited, 2000);
    assert_eq!(bbr.bandwidth.max(), 2000);
    // In a later cycle the newest sample that counts replaces the older samples.
    bbr.cycles += 2;
    bbr.update_bandwidth(&limited, 1999);
    assert_eq!(bbr.bandwidth.max(), 2000);
    bbr.update_bandwidth(&full, 0);
    assert_eq!(bbr.bandwidth.max(), 2000);
    bbr.update_bandwidth(&full, 1500);
    assert_eq!(bbr.bandwidth.max(), 1500);
}

#[test]
fn a_phase_of_feedback_lasts_a_round() {
    let mut bbr = in_state(State::Cruise);
    let ack = ack(Time::ZERO + RTT, RTT);
    bbr.feedback = Feedback::ProbeStarting;
    bbr.adapt_long_term(&ack, false);
    assert_eq!(bbr.feedback, Feedback::ProbeStarting);
    bbr.adapt_long_term(&ack, true);
    assert_eq!(bbr.feedback, Feedback::Probe);
    bbr.feedback = Feedback::ProbeStopping;
    bbr.bounds.probing = true;
    bbr.adapt_long_term(&ack, false);
    assert_eq!((bbr.feedback, bbr.cycles), (Feedback::ProbeStopping, 0));
    assert!(bbr.bounds.probing);
    bbr.adapt_long_term(&ack, true);
    assert_eq!((bbr.feedback, bbr.cycles), (Feedback::Nothing, 1));
    assert!(!bbr.bounds.probing);
}

#[test]
fn a_probe_of_an_idle_application_or_of_the_rtt_ends_no_cycle() {
    let ack = ack(Time::ZERO + RTT, RTT);
    for (state, app_limited) in [(State::Down, true), (State::ProbeRtt, false)] {
        let mut bbr = in_state(state);
        bbr.feedback = Feedback::ProbeStopping;
        bbr.adapt_long_term(&Ack { app_limited, ..ack }, true);
        assert_eq!((bbr.feedback, bbr.cycles), (Feedback::Nothing, 0), "{state:?}");
    }
}

/// The gains are in units of 1/256.
#[test]
fn each_state_has_the_gains_of_the_draft() {
    let gains = [
        (State::Startup, (709, 512)),
        (State::Drain, (128, 512)),
        (State::Down, (230, 512)),
        (State::Cruise, (256, 512)),
        (State::Refill, (256, 512)),
        (State::Up, (320, 576)),
        (State::ProbeRtt, (256, 128)),
    ];
    for (state, expected) in gains {
        assert_eq!(in_state(state).gains(), expected, "{state:?}");
    }
}

/// A burst is a millisecond of data, from two segments to 64 KiB.
#[test]
fn the_flight_has_room_for_three_bursts_and_two_segments_more_in_a_probe() {
    let of = |state, pacing, inflight| {
        let mut bbr = in_state(state);
        bbr.pacing = pacing;
        bbr.quantized(inflight)
    };
    assert_eq!(of(State::Cruise, 1, 0), 6 * MSS);
    assert_eq!(of(State::Up, 1, 0), 8 * MSS);
    assert_eq!(of(State::Cruise, 12_500_000, 0), 37_500);
    assert_eq!(of(State::Cruise, 12_500_000, 37_501), 37_501);
    assert_eq!(of(State::Cruise, 1_000_000_000, 0), 3 * 64 * 1024);
}

#[test]
fn a_flight_within_two_segments_of_the_window_is_limited_by_the_window() {
    let mut bbr = in_state(State::Up);
    bbr.cwnd = 100 * MSS;
    let flight = |bytes| Ack { sent_inflight: Bytes::new(bytes), ..ack(Time::ZERO + RTT, RTT) };
    assert!(!bbr.is_window_limited(&flight(98 * MSS)));
    assert!(bbr.is_window_limited(&flight(98 * MSS + 1)));
}
