use units::Share;

use super::*;
use crate::run;

/// A device that loses nothing, on a machine whose receiving port is full above a rate. The full
/// port may or may not lose packets.
struct Machine {
    takes: f64,
    loses: bool,
}

impl Tester for Machine {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let sent = (load.events() * duration.secs_f64()).round() as u64;
        let taken = sent.min((self.takes * duration.secs_f64()) as u64);
        let is_full = taken < sent;
        let received = if self.loses { taken } else { sent };
        let reached = Frequency::per_second(received as f64 / duration.secs_f64());
        Ok(Trial {
            load,
            duration,
            planned: sent,
            sent,
            ring_full: 0,
            received,
            late: 0,
            duplicates: 0,
            reordered: 0,
            returned: 0,
            foreign: 0,
            invalid: is_full.then_some(Invalid::SinkFull { times: 1, reached }),
            latency: run::new_histogram(),
        })
    }
}

/// If the receiving port is full, neither loss nor the absence of loss says anything about the
/// device.
#[test]
fn a_full_receiving_port_limits_the_search() {
    let bench = Bench {
        goals: vec![Goal::with_loss(Share::ZERO)],
        lowest: Some(Frequency::per_second(1e3)),
        highest: Some(Frequency::per_second(2e6)),
        latency: None,
        back_to_back: false,
    };
    let result = bench.run(&mut Machine { takes: 5e5, loses: true }, || false, |_| {}).unwrap();
    assert_eq!(result.stopped, None);
    assert!(!result.is_valid());
    let Verdict::GeneratorLimited { load } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((load.events() / 4.5e5 - 1.0).abs() < 1e-6, "{load}");
    assert_eq!(result.invalid_kinds, [("full receiving port", result.invalid_trials)].into());
    let text = super::super::text(&[("64".to_owned(), result)]);
    assert!(text.contains("invalid and repeated (full receiving port: "), "{text}");
    let first = format!("highest rate with no loss: ≥ {load} with frames of 64\n");
    assert!(text.starts_with(&first), "{text}");

    let result = bench.run(&mut Machine { takes: 5e5, loses: false }, || false, |_| {}).unwrap();
    assert!(
        result.goals.iter().all(|goal| goal.verdict != Verdict::AtMaximum { load: result.highest })
    );
    assert!(!result.is_valid() && result.invalid_trials > 0, "{result:?}");
}

/// A generator that sends at the rate `sends` into a device whose ring accepts the rate `takes`.
#[derive(Clone, Copy)]
struct SlowRing {
    sends: f64,
    takes: f64,
}

impl Tester for SlowRing {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let packets = |rate: f64| (rate.min(self.sends) * duration.secs_f64()).round() as u64;
        let (planned, sent) =
            ((load.events() * duration.secs_f64()) as u64, packets(load.events()));
        let received = sent.min(packets(self.takes));
        let is_slow = load.events() > self.sends;
        let reached = Frequency::per_second(self.sends);
        Ok(Trial {
            load,
            duration,
            planned,
            sent,
            ring_full: sent - received,
            received,
            late: 0,
            duplicates: 0,
            reordered: 0,
            returned: 0,
            foreign: 0,
            invalid: is_slow.then_some(Invalid::Generator { planned, sent, reached }),
            latency: run::new_histogram(),
        })
    }
}

fn lossless(lowest: Option<f64>, highest: Option<f64>) -> Bench {
    Bench {
        goals: vec![Goal::with_loss(Share::ZERO)],
        lowest: lowest.map(Frequency::per_second),
        highest: highest.map(Frequency::per_second),
        latency: None,
        back_to_back: false,
    }
}

/// A full device ring is a limit of the device, not of the generator. The result has the rate that
/// the ring accepts.
#[test]
fn a_full_device_ring_does_not_count_as_a_generator_limit() {
    let mut device = SlowRing { sends: 8e6, takes: 4e5 };
    let result = lossless(None, None).run(&mut device, || false, |_| {}).unwrap();
    let taken = result.taken.map(Frequency::events).unwrap_or_default();
    assert!((taken / 4e5 - 1.0).abs() < 1e-6, "{taken}");
    let Verdict::Found { lower, .. } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((lower.events() / 4e5 - 1.0).abs() < 0.01, "{lower}");
    let mut fast = SlowRing { sends: 8e5, takes: 1e9 };
    let result = lossless(None, None).run(&mut fast, || false, |_| {}).unwrap();
    assert_eq!(result.taken, None);
    assert!(matches!(result.goals[0].verdict, Verdict::GeneratorLimited { .. }));
}

/// A trial at a load that the generator nearly keeps is never valid, and must not end the test.
#[test]
fn a_load_just_above_the_generator_s_rate_limits_the_search() {
    let mut device = SlowRing { sends: 9.5e5, takes: 1e9 };
    let result = lossless(Some(1e3), Some(1e6)).run(&mut device, || false, |_| {}).unwrap();
    assert_eq!(result.stopped, None);
    let Verdict::GeneratorLimited { load } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((load.events() / 8.55e5 - 1.0).abs() < 1e-6, "{load}");
}

/// A machine whose generator is slow in some trials.
struct Slowed {
    device: SlowRing,
    trial: u32,
    is_slow: fn(u32) -> bool,
}

impl Tester for Slowed {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        self.trial += 1;
        let slowed = if (self.is_slow)(self.trial) { 5e4 } else { f64::INFINITY };
        let SlowRing { sends, takes } = self.device;
        SlowRing { sends: slowed.min(sends), takes }.trial(load, duration)
    }
}

/// The first two trials measure the highest rate of the generator.
#[test]
fn a_generator_that_is_slow_in_some_trials_does_not_limit_the_search() {
    for is_slow in
        [|trial| (5..8).contains(&trial), |trial| (3..6).contains(&trial)] as [fn(u32) -> bool; 2]
    {
        let device = SlowRing { sends: 1e6, takes: 4e5 };
        let mut machine = Slowed { device, trial: 0, is_slow };
        let mut told = 0;
        let tell = |event: Event<'_>| told += u32::from(matches!(event, Event::Goal(_)));
        let result = lossless(None, None).run(&mut machine, || false, tell).unwrap();
        let Verdict::Found { lower, .. } = result.goals[0].verdict else {
            panic!("{:?}", result.goals)
        };
        assert!((lower.events() / 4e5 - 1.0).abs() < 0.01, "{lower}");
        assert_eq!((told, result.goals.len()), (1, 1));
    }
}

#[test]
fn a_generator_that_stays_slow_limits_the_search() {
    let device = SlowRing { sends: 1e6, takes: 1e9 };
    let mut machine = Slowed { device, trial: 0, is_slow: |trial| trial > 2 };
    let result = lossless(Some(1e3), None).run(&mut machine, || false, |_| {}).unwrap();
    let Verdict::GeneratorLimited { load } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((load.events() / 4.5e4 - 1.0).abs() < 1e-6, "{load}");
    assert_eq!(result.invalid_trials, 3 * MOST_SLOW);
}

/// A bound that the search has found stays valid if no later trial on this machine is valid.
#[test]
fn a_lower_bound_stays_if_all_later_trials_are_invalid() {
    struct Worse(Slowed);
    impl Tester for Worse {
        fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
            let mut trial = self.0.trial(load, duration)?;
            let is_worse = self.0.trial > 5 && load.events() > 1e5;
            trial.invalid = trial.invalid.or(is_worse.then_some(Invalid::Sink { drops: 1 }));
            Ok(trial)
        }
    }
    let device = SlowRing { sends: 1e6, takes: 1e9 };
    let slowed = Slowed { device, trial: 0, is_slow: |trial| (3..6).contains(&trial) };
    let mut told = 0;
    let tell = |event: Event<'_>| told += u32::from(matches!(event, Event::Goal(_)));
    let bench = lossless(Some(1e3), None);
    let result = bench.run(&mut Worse(slowed), || false, tell).unwrap();
    assert!(result.invalid_trials >= MOST_INVALID, "{}", result.invalid_trials);
    assert_eq!(result.stopped, None);
    let Verdict::GeneratorLimited { load } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((load.events() / 4.5e4 - 1.0).abs() < 1e-6, "{load}");
    assert_eq!((told, result.goals.len()), (1, 1));
}

/// A device that loses nothing up to its rate, and whose port vanishes in a trial.
struct Vanishing {
    takes: f64,
    trials_left: u32,
}

impl Tester for Vanishing {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let gone = || GenError::PortFailed("receiving: no such device".to_owned());
        self.trials_left = self.trials_left.checked_sub(1).ok_or_else(gone)?;
        SlowRing { sends: 1e9, takes: self.takes }.trial(load, duration)
    }
}

#[test]
fn a_port_that_vanishes_ends_the_test_and_keeps_its_results() {
    let mut bench = lossless(Some(1e3), Some(1e6));
    bench.goals.push(Goal::with_loss(Share::new(0.1).unwrap()));
    let mut device = Vanishing { takes: 1e5, trials_left: u32::MAX };
    let (mut whole, mut of_first) = (0, 0);
    bench
        .run(
            &mut device,
            || false,
            |event| match event {
                Event::Trial(_) => whole += 1,
                Event::Goal(_) => of_first = if of_first == 0 { whole } else { of_first },
                _ => {}
            },
        )
        .unwrap();
    assert!(of_first > 0 && of_first < whole, "{of_first} of {whole}");
    for trials_left in [1, of_first - 1, of_first, whole - 1] {
        let mut device = Vanishing { takes: 1e5, trials_left };
        let result = bench.run(&mut device, || false, |_| {}).unwrap();
        let Some(Stop::Failed(problem)) = &result.stopped else { panic!("{:?}", result.stopped) };
        assert!(problem.contains("no such device") && !result.is_valid());
        assert_eq!(result.trials, trials_left);
        assert_eq!(result.goals.len(), usize::from(trials_left >= of_first), "{trials_left}");
    }
    // No trial succeeded, so the command fails.
    let mut device = Vanishing { takes: 1e5, trials_left: 0 };
    assert!(bench.run(&mut device, || false, |_| {}).is_err());
}

/// A device that forwards nothing in some of its trials.
struct Dying {
    takes: f64,
    trial: u32,
    is_dead: fn(u32) -> bool,
}

impl Tester for Dying {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        self.trial += 1;
        let takes = if (self.is_dead)(self.trial) { 0.0 } else { self.takes };
        SlowRing { sends: 1e9, takes }.trial(load, duration)
    }
}

#[test]
fn a_device_that_stopped_forwarding_has_no_rate() {
    let bench = lossless(Some(1e3), Some(1e6));
    for is_dead in
        [|trial| trial > 1, |trial| trial > 12, |trial| trial > 25] as [fn(u32) -> bool; 3]
    {
        let mut device = Dying { takes: 1e5, trial: 0, is_dead };
        let result = bench.run(&mut device, || false, |_| {}).unwrap();
        assert!(matches!(result.stopped, Some(Stop::Silent { times: 3, .. })), "{result:?}");
        assert!(result.goals.is_empty() && !result.is_valid());
        let text = super::super::text(&[("64".to_owned(), result)]);
        assert!(text.contains("INVALID: the device forwards nothing any more"), "{text}");
    }
}

/// Two trials without packets are a pause of the device, which counts as loss.
#[test]
fn a_device_that_forwards_again_is_measured() {
    let mut device = Dying { takes: 1e5, trial: 0, is_dead: |trial| trial % 10 < 2 };
    let result = lossless(Some(1e3), Some(1e6)).run(&mut device, || false, |_| {}).unwrap();
    let Verdict::Found { lower, .. } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((lower.events() / 1e5 - 1.0).abs() < 0.01, "{lower}");
}

/// A device may forward nothing under a load that is too high, and forward everything under a lower
/// load.
#[test]
fn a_device_that_collapses_under_load_has_a_rate() {
    struct Collapsing;
    impl Tester for Collapsing {
        fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
            let takes = if load.events() > 1e5 { 0.0 } else { 1e5 };
            SlowRing { sends: 1e9, takes }.trial(load, duration)
        }
    }
    let result = lossless(Some(1e3), Some(1e6)).run(&mut Collapsing, || false, |_| {}).unwrap();
    let Verdict::Found { lower, .. } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((lower.events() / 1e5 - 1.0).abs() < 0.01, "{lower}");
}

/// A device that loses all packets above its rate, and at random one in a thousand of the other
/// packets.
struct Lossy {
    takes: f64,
    random: u64,
}

impl Tester for Lossy {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let mut trial = SlowRing { sends: 1e9, takes: self.takes }.trial(load, duration)?;
        for _ in 0..trial.received {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            trial.received -= u64::from(self.random.is_multiple_of(1000));
        }
        Ok(trial)
    }
}

/// Short trials have enough packets to show this loss, because the search raises its lowest load.
#[test]
fn random_loss_leaves_no_lossless_rate_in_short_trials() {
    let brief = |millis| Goal {
        final_trial: Span::from_millis(millis),
        duration_sum: Span::from_millis(20 * millis),
        ..Goal::with_loss(Share::ZERO)
    };
    for (millis, lowest) in [(50, 6_172.5), (200, 6_172.5), (400, 5_000.0), (1_000, 2_000.0)] {
        for number in 1..=10 {
            let mut device = Lossy { takes: 12_345.0, random: number << 20 | 1 };
            let bench = Bench { goals: vec![brief(millis)], ..lossless(None, Some(4e4)) };
            let result = bench.run(&mut device, || false, |_| {}).unwrap();
            let off = (result.lowest.events() / lowest - 1.0).abs();
            assert!(off < 0.01, "{millis} ms: {}", result.lowest);
            // A trial of 50 ms has 300 packets and usually loses none.
            let is_none = matches!(result.goals[0].verdict, Verdict::BelowMinimum { .. });
            assert!(is_none || millis < 400, "{millis} ms: {:?}", result.goals);
        }
    }
}

/// A machine that disturbs every second trial.
struct Busy(SlowRing, bool);

impl Tester for Busy {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let mut trial = self.0.trial(load, duration)?;
        self.1 = !self.1;
        trial.invalid = self.1.then_some(Invalid::Sink { drops: 1 });
        Ok(trial)
    }
}

#[test]
fn a_test_whose_every_second_trial_is_invalid_ends_with_the_count_of_invalid_trials() {
    let long = Goal { duration_sum: Span::from_secs(1000), ..Goal::with_loss(Share::ZERO) };
    let bench = Bench { goals: vec![long], ..lossless(Some(1e3), Some(1e6)) };
    let mut machine = Busy(SlowRing { sends: 1e9, takes: 4e5 }, false);
    let result = bench.run(&mut machine, || false, |_| {}).unwrap();
    assert_eq!(result.invalid_trials, MOST_INVALID_IN_ALL);
    let text = super::super::text(&[("64".to_owned(), result)]);
    let (_, told) = text.split_once("INVALID: ").unwrap();
    assert!(told.starts_with("80 trials say nothing about the device;"), "{told}");
    assert!(told.contains("Free this machine's CPUs"), "{told}");
}

struct Alone;

impl Tester for Alone {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let mut trial = SlowRing { sends: 1e9, takes: 0.0 }.trial(load, duration)?;
        trial.invalid = Some(Invalid::Port { refused: trial.planned });
        Ok(trial)
    }
}

#[test]
fn a_port_without_a_peer_gives_advice_about_the_peer_and_not_about_cpus() {
    let result = lossless(Some(1e3), Some(1e6)).run(&mut Alone, || false, |_| {}).unwrap();
    let text = super::super::text(&[("64".to_owned(), result)]);
    let (_, told) = text.split_once("INVALID: ").unwrap();
    assert!(told.starts_with("12 trials in sequence say nothing"), "{told}");
    assert!(told.contains("Check the other ends") && !told.contains("CPUs"), "{told}");
}

/// A device that forwards 100,000 packets per second and can hold 1,000 packets.
struct Buffered;

impl Tester for Buffered {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let trial = Machine { takes: f64::INFINITY, loses: false }.trial(load, duration)?;
        let passes = (1e5 * duration.secs_f64()).floor() as u64 + 1_000;
        Ok(Trial { received: trial.sent.min(passes), ..trial })
    }
}

/// If a burst arrives at twice the device's rate, half of its packets wait in the buffer, so 2,000
/// packets fill the buffer. The search is exact to one percent.
#[test]
fn the_longest_burst_without_loss_gives_the_buffer_of_a_device() {
    let rate = Frequency::per_second;
    let on = |of| back_to_back(&mut Buffered, rate(of), rate(1e5), &mut || false).unwrap();
    let found = on(2e5).unwrap();
    assert!((1_960.0..=2_000.0).contains(&found.frames), "{found:?}");
    assert!(!found.at_maximum && (found.buffer.millis_f64() - 5.0).abs() < 0.1, "{found:?}");
    assert_eq!(on(1.02e5), None);
}
