use super::*;
use crate::tests::{LOSS, MSS, ack, path};

const RTT: Span = Span::from_millis(40);

/// Returns BBR with a model of 100 Mbit/s and 40 ms.
fn on_a_known_path() -> Bbr {
    let mut bbr = Bbr::new(&path(RTT));
    bbr.pacing = 12_500_000;
    bbr.bandwidth.offer(0, 12_500_000);
    bbr
}

fn at_phase(mode: Mode, phase: usize) -> Bbr {
    let mut bbr = on_a_known_path();
    (bbr.mode, bbr.cycle.phase) = (mode, phase);
    bbr
}

/// The bandwidth-delay product is 500,000 bytes, and a burst is 12,207 bytes.
#[test]
fn the_flight_has_room_for_three_bursts_in_an_even_number_of_segments() {
    assert_eq!(at_phase(Mode::ProbeBandwidth, 1).inflight(ONE), 538 * MSS);
    assert_eq!(at_phase(Mode::Startup, 0).inflight(ONE), 538 * MSS);
    assert_eq!(at_phase(Mode::ProbeBandwidth, 0).inflight(ONE), 540 * MSS);
    assert_eq!(at_phase(Mode::ProbeBandwidth, 1).inflight(2 * ONE), 1038 * MSS);
}

#[test]
fn a_burst_has_one_segment_below_1_2_mbit_s_and_a_millisecond_of_data_above() {
    let mut bbr = on_a_known_path();
    for (pacing, burst) in
        [(149_999, MSS), (150_000, 2 * MSS), (12_500_000, 12_207), (1_000_000_000, 64 * 1024)]
    {
        bbr.pacing = pacing;
        assert_eq!(bbr.burst(), burst, "{pacing} bytes a second");
    }
}

/// The gains are 2.885, 1/2.885, 5/4, 3/4, 1 and 2, in units of 1/256.
#[test]
fn each_mode_has_the_gains_of_linux() {
    assert_eq!(at_phase(Mode::Startup, 0).gains(), (739, 739));
    assert_eq!(at_phase(Mode::Drain, 0).gains(), (88, 739));
    assert_eq!(at_phase(Mode::ProbeRtt, 0).gains(), (256, 256));
    let gains = [320, 192, 256, 256, 256, 256, 256, 256];
    for (phase, gain) in gains.into_iter().enumerate() {
        assert_eq!(at_phase(Mode::ProbeBandwidth, phase).gains(), (gain, 512), "phase {phase}");
    }
}

#[test]
fn start_up_goes_on_as_long_as_the_bandwidth_grows_by_a_quarter() {
    let mut bbr = Bbr::new(&path(RTT));
    let ack = ack(Time::ZERO + RTT, RTT);
    for (round, bandwidth) in [(1, 1000), (2, 1250), (3, 1562), (4, 1562)] {
        bbr.bandwidth.offer(round, bandwidth);
        bbr.check_full(&ack, true);
    }
    // 1562 is a quarter more than 1250.
    assert_eq!((bbr.full.bandwidth, bbr.full.rounds), (1562, 1));
    bbr.check_full(&ack, false);
    bbr.check_full(&Ack { app_limited: true, ..ack }, true);
    assert_eq!(bbr.full.rounds, 1);
    bbr.check_full(&ack, true);
    assert!(!bbr.full.reached);
    bbr.check_full(&ack, true);
    assert!(bbr.full.reached);
}

#[test]
fn a_recovery_keeps_the_flight_and_its_end_restores_the_window() {
    let mut bbr = on_a_known_path();
    bbr.cwnd = 100 * MSS;
    bbr.on_loss(&LOSS);
    let ack = Ack { inflight: Bytes::new(50 * MSS), lost: Bytes::new(MSS), ..ack(Time::ZERO, RTT) };
    assert!(bbr.follow_recovery(&ack), "the window conserves packets");
    assert_eq!(bbr.cwnd, 51 * MSS);
    // In a recovery that directly follows another recovery, the window does not conserve packets.
    bbr.conserves = false;
    bbr.on_loss(&LOSS);
    assert!(!bbr.follow_recovery(&ack));
    assert_eq!(bbr.cwnd, 50 * MSS);
    bbr.on_recovered(Time::ZERO);
    assert!(!bbr.follow_recovery(&Ack { lost: Bytes::ZERO, ..ack }));
    assert_eq!(bbr.cwnd, 100 * MSS);
}

#[test]
fn an_idle_time_longer_than_probe_rtt_ends_probe_rtt() {
    let after = |millis| {
        let mut bbr = at_phase(Mode::ProbeRtt, 0);
        bbr.probe_rtt_done = Some(Time::ZERO + Span::from_millis(200));
        bbr.on_idle(Time::ZERO + Span::from_millis(millis), Span::from_millis(millis));
        bbr.mode
    };
    assert_eq!((after(200), after(201)), (Mode::ProbeRtt, Mode::Startup));
}

#[test]
fn samples_of_an_idle_application_can_only_raise_bbrs_bandwidth() {
    let mut bbr = Bbr::new(&path(RTT));
    let at_rate = |rate| Ack {
        delivered: Bytes::new(rate),
        prior_delivered: Bytes::ZERO,
        interval: Span::from_secs(1),
        ..ack(Time::ZERO + RTT, RTT)
    };
    let limited = |rate| Ack { app_limited: true, ..at_rate(rate) };
    bbr.update_bandwidth(&at_rate(1000), false);
    bbr.update_bandwidth(&limited(2000), false);
    assert_eq!(bbr.bandwidth.max(), 2000);
    // Ten rounds later the newest sample that counts replaces the older samples.
    for round in 1..=11 {
        bbr.rounds.on_ack(&Ack { prior_delivered: Bytes::new(round), ..at_rate(round) });
    }
    bbr.update_bandwidth(&limited(1999), false);
    assert_eq!(bbr.bandwidth.max(), 2000);
    bbr.update_bandwidth(&at_rate(1500), false);
    assert_eq!(bbr.bandwidth.max(), 1500);
}
