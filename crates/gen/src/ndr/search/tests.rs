use super::*;
use units::Share;

struct Device {
    capacity: f64,
    random_loss: f64,
    /// The share by which the capacity changes over a thousand trials.
    drift: f64,
    /// The share of trials in which the device loses a few packets without a cause.
    hiccups: f64,
    /// The share of the load that the generator actually sends.
    sent: f64,
    /// Time after the end of a trial in which packets still count as in time, as a share of the
    /// trial's duration.
    grace: f64,
    random: u64,
    trials: u32,
}

impl Device {
    fn new(capacity: f64, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            capacity,
            random_loss: 0.0,
            drift: 0.0,
            hiccups: 0.0,
            sent: 1.0,
            grace: 0.0,
            random,
            trials: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the numbers of sent and lost packets of a trial. The random loss follows a Poisson
    /// distribution.
    fn lost(&mut self, load: f64, duration: f64) -> (f64, f64) {
        self.trials += 1;
        let capacity = self.capacity * (1.0 + self.drift * f64::from(self.trials) / 1000.0);
        let sent = (load * self.sent * duration).floor().max(1.0);
        let passed = sent.min((capacity * duration * (1.0 + self.grace)).ceil());
        let mean = passed * self.random_loss;
        // Draws a Poisson number by adding exponential intervals. For a large mean, the mean itself
        // is exact enough.
        let random = if mean > 500.0 {
            mean
        } else {
            let (mut count, mut time) = (0.0, 0.0);
            loop {
                time -= (1.0 - self.uniform()).ln();
                if time > mean {
                    break count;
                }
                count += 1.0;
            }
        };
        let hiccup = if self.uniform() < self.hiccups { 3.0f64.min(passed) } else { 0.0 };
        (sent, (sent - passed + random + hiccup).min(sent))
    }
}

fn search(device: &mut Device, goals: &[Goal], lowest: f64, highest: f64) -> Vec<GoalResult> {
    let mut search =
        Search::new(goals, Frequency::per_second(lowest), Frequency::per_second(highest));
    for _ in 0..2000 {
        match search.next_step() {
            Step::Done => return search.results().to_vec(),
            Step::Measure { load, duration } => {
                let (sent, lost) = device.lost(load.events(), duration.secs_f64());
                let forwarded = Frequency::per_second((sent - lost) / duration.secs_f64());
                let offered = load.times(device.sent);
                let observed = Observed { offered, loss: lost / sent, forwarded };
                search.record(load, duration, observed);
            }
        }
    }
    panic!("the search does not end: {:?}", search.loads);
}

fn lossless(load: Frequency) -> Observed {
    Observed { offered: load, loss: 0.0, forwarded: load }
}

fn goal(percent: f64) -> Goal {
    Goal::with_loss(Share::from_percent(percent).unwrap())
}

fn lower(result: &GoalResult) -> f64 {
    match result.verdict {
        Verdict::Found { lower, .. } => lower.events(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_known_capacity_is_found_within_one_percent() {
    for seed in 0..20 {
        for capacity in [12_345.0, 148_810.0, 1_234_567.0, 333.0] {
            for highest in [2e6, 1.5e7, capacity * 1.02] {
                let mut device = Device::new(capacity, seed + 1);
                let results = search(&mut device, &[goal(0.0), goal(0.5)], 100.0, highest);
                for result in &results {
                    let error = lower(result) / capacity - 1.0;
                    assert!(error.abs() < 0.01, "{capacity} at most {highest}: {result:?}");
                }
            }
        }
    }
}

#[test]
fn random_loss_leaves_no_lossless_rate_and_keeps_the_capacity() {
    for seed in 0..20 {
        let mut device = Device::new(12_345.0, seed + 1);
        device.random_loss = 0.001;
        let results = search(&mut device, &[goal(0.0), goal(0.5)], 2_000.0, 1e6);
        assert!(matches!(results[0].verdict, Verdict::BelowMinimum { .. }), "{results:?}");
        let found = lower(&results[1]);
        assert!((found / 12_345.0 - 1.0).abs() < 0.01, "{found}");
    }
}

#[test]
fn loss_in_a_fifth_of_the_trials_and_drift_do_not_move_the_result() {
    for seed in 0..20 {
        let mut device = Device::new(50_000.0, seed + 1);
        device.hiccups = 0.2;
        device.drift = 0.01;
        let results = search(&mut device, &[goal(0.0), goal(0.5)], 1_000.0, 1e6);
        for result in &results {
            let found = lower(result);
            assert!((found / 50_000.0 - 1.0).abs() < 0.01, "seed {seed}: {result:?}");
        }
    }
}

/// The sender may miss its load by half a percent, and the receiver waits half a percent longer for
/// late packets. The two errors must not add up.
#[test]
fn the_result_is_the_sent_rate_not_the_planned_load() {
    for goals in [[goal(0.0), goal(0.5)], [Goal::rfc_2544(), goal(0.0)]] {
        let mut device = Device::new(12_345.0, 7);
        (device.sent, device.grace) = (0.9951, 0.005);
        for result in search(&mut device, &goals, 100.0, 1e6) {
            let Verdict::Found { lower, forwarded, .. } = result.verdict else {
                panic!("{result:?}")
            };
            let allowed = 1.005 + result.goal.loss.fraction() + 1e-4;
            assert!(lower.events() <= 12_345.0 * allowed, "{result:?}");
            assert!(forwarded.events() <= 12_345.0 * 1.0051, "{result:?}");
        }
        let mut fast = Device::new(1e9, 7);
        fast.sent = 0.9951;
        let result = search(&mut fast, &goals[..1], 100.0, 1e6)[0];
        assert_eq!(result.verdict, Verdict::AtMaximum { load: Frequency::per_second(995_100.0) });
    }
}

#[test]
fn a_search_of_rfc_2544_makes_long_trials_only_near_the_result() {
    let mut device = Device::new(98_765.0, 3);
    let results = search(&mut device, &[Goal::rfc_2544()], 1_000.0, 1e6);
    assert!((lower(&results[0]) / 98_765.0 - 1.0).abs() < 0.01);
    assert!(device.trials < 40, "{}", device.trials);
}

#[test]
fn a_device_faster_than_the_maximum_load_is_reported_at_the_maximum() {
    let mut device = Device::new(1e9, 1);
    let results = search(&mut device, &[goal(0.0)], 100.0, 1e6);
    assert_eq!(results[0].verdict, Verdict::AtMaximum { load: Frequency::per_second(1e6) });
}

#[test]
fn a_load_beyond_the_generator_gives_the_verdict_generator_limited() {
    let goals = [goal(0.0)];
    let mut search = Search::new(&goals, Frequency::per_second(100.0), Frequency::per_second(1e6));
    loop {
        match search.next_step() {
            Step::Measure { load, .. } if load.events() > 5e5 => {
                search.limit(Frequency::per_second(5e5));
            }
            Step::Measure { load, duration } => search.record(load, duration, lossless(load)),
            Step::Done => break,
        }
    }
    let load = Frequency::per_second(5e5);
    assert_eq!(search.results()[0].verdict, Verdict::GeneratorLimited { load });
}

/// The generator keeps a load without loss, but reaches only a lower rate in the next trial.
#[test]
fn a_limit_of_the_generator_keeps_a_higher_lower_bound() {
    let per_second = Frequency::per_second;
    let mut search = Search::new(&[goal(0.0)], per_second(100.0), per_second(1e6));
    let mut limits = 0;
    loop {
        match search.next_step() {
            Step::Measure { load, duration } if load.events() == 1e6 => {
                let forwarded = per_second(6e5);
                search.record(load, duration, Observed { offered: load, loss: 0.4, forwarded });
            }
            Step::Measure { load, duration } if load.events() <= 6e5 => {
                search.record(load, duration, lossless(load));
            }
            Step::Measure { .. } => {
                limits += 1;
                assert_eq!(search.limit(per_second(5e5)), per_second(6e5));
            }
            Step::Done => break,
        }
    }
    let load = per_second(6e5);
    assert_eq!((search.results()[0].verdict, limits), (Verdict::GeneratorLimited { load }, 1));
}

#[test]
fn a_device_that_forwards_nothing_is_below_the_minimum_load() {
    let mut device = Device::new(0.0, 1);
    let results = search(&mut device, &[goal(0.0), goal(0.5)], 100.0, 1e6);
    for result in results {
        assert!(matches!(result.verdict, Verdict::BelowMinimum { .. }), "{result:?}");
    }
}

/// A device without any pattern: each trial loses a random number of packets.
#[test]
fn a_search_ends_for_a_device_with_random_results() {
    let goals = [goal(0.0), goal(0.5), Goal::rfc_2544()];
    for seed in 0..200 {
        let mut device = Device::new(1e9, seed + 1);
        let mut search =
            Search::new(&goals, Frequency::per_second(1.0), Frequency::per_second(1e9));
        let mut trials = 0;
        while let Step::Measure { load, duration } = search.next_step() {
            let loss = if device.uniform() < 0.5 { 0.0 } else { device.uniform() };
            let forwarded = load.times(device.uniform());
            search.record(load, duration, Observed { offered: load, loss, forwarded });
            trials += 1;
            assert!(trials < 3000, "seed {seed}: {:?}", search.results());
        }
        assert_eq!(search.results().len(), 3);
    }
}

/// The test has twenty trials of a second, each with one percent more loss than the trial before.
/// Half of the time may be bad, so the tenth trial completes the good time.
#[test]
fn the_forwarded_rate_comes_from_the_trial_that_completes_the_good_time() {
    let trials = (0..20).rev().map(|percent| Measured {
        duration: 1.0,
        offered: 1000.0,
        loss: f64::from(percent) / 100.0,
        forwarded: 0.0,
    });
    let per_second = Frequency::per_second;
    let mut search = Search::new(&[goal(0.0)], per_second(100.0), per_second(1e6));
    search.loads.push(Load { load: 1000.0, trials: trials.collect() });
    let target = goal(0.0).targets().pop().unwrap();
    let forwarded = search.forwarded(1000.0, &target);
    assert!((forwarded - 910.0).abs() < 1e-6, "{forwarded}");
}
