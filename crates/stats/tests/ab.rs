//! Checks `stats::ab` on simulated machines whose truth is known. `cargo test -p weir-stats --test
//! ab -- --nocapture` prints the table of rates.

#![allow(clippy::unwrap_used)]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::ab::{Decider, Decision, Plan, State};
use stats::{Direction, StatsError, Verdict};
use units::Share;

/// The number of runs for each measured rate.
const RUNS: u64 = 100;
const FALSE_ALARMS: u64 = 3;
const FOUND: u64 = 90;

/// The noise on the values. Each value is a factor on a throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    /// Independent log-normal noise with this standard deviation.
    Independent(f64),
    /// Autocorrelated noise of 5 %: each turn keeps 0.9 of the previous disturbance.
    Remembering,
    /// A random walk of 1 % per turn under 3 % of independent noise.
    Wandering,
    /// 5 % of noise and a steady loss of a third over the run.
    Drifting,
    /// 5 % of noise, and one turn in fifty has five times the duration.
    Spiky,
    /// Two speeds 10 % apart, each of which lasts for 25 turns on average, with 2 % of noise.
    TwoSpeeds,
    /// Student's t with 3 degrees of freedom, scaled to 3 %.
    HeavyTailed,
    /// A disturbance of 5 % that repeats every four turns, in step with the order, and 3 % of
    /// noise.
    InStep,
}

const NOISES: [Noise; 10] = [
    Noise::Independent(0.02),
    STANDARD,
    Noise::Independent(0.08),
    Noise::Remembering,
    Noise::Wandering,
    Noise::Drifting,
    Noise::Spiky,
    Noise::TwoSpeeds,
    Noise::HeavyTailed,
    Noise::InStep,
];
const STANDARD: Noise = Noise::Independent(0.05);

struct Machine {
    noise: Noise,
    turns: f64,
    draw: Pcg64Mcg,
    turn: f64,
    level: f64,
}

impl Machine {
    fn new(noise: Noise, turns: usize, seed: u64) -> Self {
        Self {
            noise,
            turns: turns as f64,
            draw: Pcg64Mcg::seed_from_u64(seed ^ 0x5eed_0000),
            turn: 0.0,
            level: 0.0,
        }
    }

    /// Draws a standard normal value by Box & Muller.
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.draw.random(), self.draw.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn disturbance(&mut self) -> f64 {
        self.turn += 1.0;
        match self.noise {
            Noise::Independent(sd) => sd * self.normal(),
            Noise::Remembering => {
                self.level = 0.9 * self.level + 0.05 * f64::sqrt(1.0 - 0.81) * self.normal();
                self.level
            }
            Noise::Wandering => {
                self.level += 0.01 * self.normal();
                self.level + 0.03 * self.normal()
            }
            Noise::Drifting => 0.05 * self.normal() + (1.0 - self.turn / self.turns / 3.0).ln(),
            Noise::Spiky => {
                let spike = if self.draw.random_bool(0.02) { -f64::ln(5.0) } else { 0.0 };
                0.05 * self.normal() + spike
            }
            Noise::TwoSpeeds => {
                if self.draw.random_bool(0.04) {
                    self.level = -0.1 - self.level;
                }
                self.level + 0.02 * self.normal()
            }
            Noise::HeavyTailed => {
                let squares = (0..3).map(|_| self.normal().powi(2)).sum::<f64>();
                0.03 * self.normal() / (squares / 3.0).sqrt()
            }
            Noise::InStep => {
                let phase = (self.turn as u64 % 4) as f64;
                0.05 * f64::cos(phase * std::f64::consts::FRAC_PI_2) + 0.03 * self.normal()
            }
        }
    }

    fn throughput(&mut self, state: State, factor: f64) -> f64 {
        let effect = if state == State::Change { factor } else { 1.0 };
        500.0 * effect * self.disturbance().exp()
    }
}

fn run(plan: Plan, noise: Noise, factor: f64) -> Decision {
    let mut decider = Decider::new(plan).unwrap();
    let mut machine = Machine::new(noise, plan.turns(), plan.seed);
    while let Some(state) = decider.next_state() {
        decider.observe(state, machine.throughput(state, factor)).unwrap();
    }
    decider.decision().unwrap()
}

fn plan(seed: u64) -> Plan {
    Plan::new(Direction::HigherIsBetter, seed)
}

/// The frequency of each verdict, and the number of pairs used.
#[derive(Default)]
struct Rates {
    better: u64,
    worse: u64,
    same: u64,
    undecided: u64,
    pairs: usize,
    covered_95: u64,
    covered_99: u64,
}

fn rates(noise: Noise, factor: f64) -> Rates {
    let mut rates = Rates::default();
    for seed in 0..RUNS {
        let decision = run(plan(seed), noise, factor);
        match decision.verdict {
            Verdict::Better => rates.better += 1,
            Verdict::Worse => rates.worse += 1,
            Verdict::Same => rates.same += 1,
            Verdict::Undecided => rates.undecided += 1,
        }
        let holds = |(low, high): (f64, f64)| (low <= factor && factor <= high) as u64;
        rates.covered_95 += holds(decision.ci95.unwrap());
        rates.covered_99 += holds(decision.ci99.unwrap());
        rates.pairs += decision.pairs;
    }
    rates
}

#[test]
fn equal_states_rarely_differ_and_a_slowdown_of_3_percent_is_found() {
    eprintln!(
        "{:<18} {:>6} | {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}",
        "noise", "change", "better", "worse", "same", "incon.", "pairs", "in ci95", "in ci99"
    );
    for noise in NOISES {
        for factor in [1.0, 0.97] {
            let r = rates(noise, factor);
            eprintln!(
                "{:<18} {:>5.0}% | {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}",
                format!("{noise:?}"),
                (factor - 1.0) * 100.0,
                r.better,
                r.worse,
                r.same,
                r.undecided,
                r.pairs / RUNS as usize,
                r.covered_95,
                r.covered_99
            );
            assert!(r.covered_99 >= RUNS - FALSE_ALARMS, "{noise:?} {factor}: 99 % interval");
            assert!(r.covered_95 >= 90, "{noise:?} {factor}: 95 % interval");
            if factor == 1.0 {
                assert!(r.better + r.worse <= FALSE_ALARMS, "{noise:?}: false alarms");
            } else {
                assert_eq!(r.better + r.same, 0, "{noise:?}: a slowdown taken for less");
                assert!(r.worse >= FOUND, "{noise:?}: found {} of {RUNS}", r.worse);
            }
        }
    }
}

/// Measures the rates in the table of docs/guides/ci.md: a gate of 5 % over 60 pairs.
#[test]
fn a_gate_of_5_percent_rarely_fails_an_equal_state_and_finds_8_percent() {
    let threshold = Share::from_percent(5.0).unwrap();
    let fails = |noise: f64, factor: f64| {
        let failed = |seed: &u64| {
            let plan = Plan { pairs: 60, threshold, ..plan(*seed) };
            run(plan, Noise::Independent(noise), factor).verdict == Verdict::Worse
        };
        (0..10 * RUNS).filter(failed).count() as f64 / 10.0
    };
    eprintln!("noise of a turn | runs that fail, in %: equal, -2 %, -4 %, -6 %, -8 %");
    for noise in [0.01, 0.02, 0.05] {
        let rates = [1.0, 0.98, 0.96, 0.94, 0.92].map(|factor| fails(noise, factor));
        eprintln!("{:>14}% | {rates:?}", noise * 100.0);
        assert!(rates[0] <= 1.0, "{noise}: {rates:?}");
        assert!(rates[1] <= 1.0, "{noise}: {rates:?}");
        assert!(rates[3] >= 70.0 && rates[4] >= 95.0, "{noise}: {rates:?}");
    }
}

#[test]
fn a_speedup_is_better_and_less_latency_is_better() {
    assert_eq!(run(plan(1), STANDARD, 1.03).verdict, Verdict::Better);
    let lower = Plan { direction: Direction::LowerIsBetter, ..plan(1) };
    assert_eq!(run(lower, STANDARD, 1.03).verdict, Verdict::Worse);
    assert_eq!(run(lower, STANDARD, 0.97).verdict, Verdict::Better);
}

#[test]
fn equal_states_with_little_noise_have_the_verdict_same_at_an_early_look() {
    for seed in 0..RUNS {
        let decision = run(plan(seed), Noise::Independent(0.005), 1.0);
        assert_eq!(decision.verdict, Verdict::Same);
        assert!(decision.early && decision.pairs < decision.planned_pairs);
        assert!(decision.detectable.unwrap() < 0.01);
        assert_eq!(decision.pairs_needed, None);
    }
}

#[test]
fn a_difference_too_small_to_matter_has_the_verdict_same() {
    let decision = run(plan(3), Noise::Independent(0.005), 0.997);
    assert_eq!(decision.verdict, Verdict::Same);
    assert!(decision.ci99.unwrap().1 < 1.0, "it is seen, though: {decision}");
}

#[test]
fn a_run_with_too_much_noise_is_undecided_and_names_the_pairs_it_needs() {
    for seed in 0..RUNS {
        let decision = run(plan(seed), Noise::Independent(0.30), 1.0);
        assert!(matches!(decision.verdict, Verdict::Undecided), "{decision}");
        assert!(decision.detectable.unwrap() > 0.05);
        assert!(decision.pairs_needed.unwrap() > 3_000);
        assert!(!decision.early);
    }
}

#[test]
fn the_named_pairs_decide_an_undecided_run() {
    let noise = Noise::Independent(0.08);
    let tried = run(plan(5), noise, 1.0);
    let needed = tried.pairs_needed.expect("8 % is too noisy for 300 pairs");
    let longer = Plan { pairs: needed, ..plan(6) };
    let decided = |seed| run(Plan { seed, ..longer }, noise, 1.0).verdict == Verdict::Same;
    let count = (0..20).filter(|seed| decided(*seed)).count();
    assert!(count >= 13, "{count} of 20 with {needed} pairs");
}

/// The text "smallest change that shows: 0.8 %" names the change that is detected in about 80 of
/// 100 runs.
#[test]
fn the_detectable_change_is_detected_8_times_in_10() {
    let fixed = |seed| Plan {
        early_stop: false,
        threshold: Share::from_percent(0.01).unwrap(),
        ..plan(seed)
    };
    let usual = run(fixed(999), STANDARD, 1.0).detectable.unwrap();
    assert!((0.01..0.02).contains(&usual), "{usual}");
    let seen = (0..200)
        .filter(|seed| run(fixed(*seed), STANDARD, 1.0 - usual).verdict == Verdict::Worse)
        .count();
    assert!((130..=185).contains(&seen), "{seen} of 200 at {usual}");
}

/// Without early stopping, a steady drift of any steepness leaves an exactly constant ratio.
#[test]
fn a_steady_drift_cancels_exactly() {
    let plan = plan(7);
    let mut decider = Decider::new(plan).unwrap();
    let mut value: f64 = 1e6;
    while let Some(state) = decider.next_state() {
        value *= 0.99;
        let factor = if state == State::Change { 0.97 } else { 1.0 };
        decider.observe(state, value * factor).unwrap();
    }
    let decision = decider.decision().unwrap();
    assert_eq!(decision.verdict, Verdict::Worse);
    assert!((decision.ratio - 0.97).abs() < 1e-12, "{decision:?}");
    assert!(decision.noise < 1e-12);
}

#[test]
fn outlier_fours_are_counted_and_kept() {
    let decision = run(plan(11), Noise::Spiky, 1.0);
    assert!((1..30).contains(&decision.outliers), "{decision:?}");
    assert!((0.04..0.065).contains(&decision.noise), "{decision:?}");
}

#[test]
fn fours_are_balanced_and_warm_up_values_are_discarded() {
    let plan = plan(17);
    let mut decider = Decider::new(plan).unwrap();
    let mut order = Vec::new();
    while let Some(state) = decider.next_state() {
        let warming = order.len() < plan.warm_up;
        order.push(state);
        // A warm-up a thousand times slower must have no effect. 40 % of noise keeps the run from
        // ending early.
        let noisy = if order.len().is_multiple_of(3) { 1.4 } else { 1.0 };
        decider.observe(state, if warming { 0.001 } else { noisy }).unwrap();
    }
    assert_eq!(order.len(), plan.turns());
    assert_eq!(decider.progress(), (plan.turns(), plan.turns()));
    let mut base_outside = 0;
    for four in order[plan.warm_up..].chunks(4) {
        assert_eq!(four[0], four[3]);
        assert_eq!(four[1], four[2]);
        assert_ne!(four[0], four[1]);
        base_outside += (four[0] == State::Base) as usize;
    }
    assert!((50..100).contains(&base_outside), "a fair coin: {base_outside} of 150");
    assert!(decider.decision().unwrap().base_median >= 1.0);
}

#[test]
fn the_same_seed_and_values_give_the_same_decision() {
    assert_eq!(run(plan(4), Noise::Wandering, 0.99), run(plan(4), Noise::Wandering, 0.99));
}

#[test]
fn a_wrong_observation_is_an_error_and_changes_nothing() {
    let mut decider = Decider::new(plan(1)).unwrap();
    let state = decider.next_state().unwrap();
    assert!(matches!(decider.observe(state.other(), 1.0), Err(StatsError::OutOfTurn { .. })));
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = decider.observe(state, wrong).unwrap_err();
        assert!(
            matches!(error, StatsError::NotFinite { .. } | StatsError::NotPositive { .. }),
            "{error}"
        );
    }
    assert_eq!(decider.progress().0, 0);
    assert_eq!(decider.next_state(), Some(state));
    assert!(matches!(decider.decision(), Err(StatsError::Empty { .. })));
}

#[test]
fn an_ended_run_takes_no_further_observation() {
    let mut decider = Decider::new(Plan { pairs: 20, ..plan(1) }).unwrap();
    while let Some(state) = decider.next_state() {
        decider.observe(state, 1.0).unwrap();
    }
    assert_eq!(decider.decision().unwrap().verdict, Verdict::Same);
    assert_eq!(decider.observe(State::Base, 1.0), Err(StatsError::Ended));
}

#[test]
fn an_interrupted_run_is_decided_by_its_complete_fours() {
    let mut decider = Decider::new(plan(1)).unwrap();
    for _ in 0..8 + 4 * 5 + 2 {
        let state = decider.next_state().unwrap();
        decider.observe(state, if state == State::Base { 1.0 } else { 0.5 }).unwrap();
    }
    let decision = decider.decision().unwrap();
    assert_eq!((decision.pairs, decision.ci99), (10, None));
    assert_eq!(decision.verdict, Verdict::Undecided, "five fours have no 99 % interval");
    assert!((decision.ratio - 0.5).abs() < 1e-12);
}

#[test]
fn a_plan_out_of_range_is_refused() {
    for pairs in [0, 1, 19, 8001] {
        assert!(Decider::new(Plan { pairs, ..plan(1) }).is_err());
    }
    let threshold = Share::ZERO;
    assert!(Decider::new(Plan { threshold, ..plan(1) }).is_err());
    let threshold = Share::from_percent(50.0).unwrap();
    assert!(Decider::new(Plan { threshold, ..plan(1) }).is_ok());
    let threshold = Share::from_percent(51.0).unwrap();
    assert!(Decider::new(Plan { threshold, ..plan(1) }).is_err());
    assert!(Decider::new(Plan { warm_up: 8000, ..plan(1) }).is_ok());
    assert!(Decider::new(Plan { warm_up: 8001, ..plan(1) }).is_err());
}

#[test]
fn an_interrupted_run_has_the_wider_interval_of_its_next_look() {
    let widths = [true, false].map(|early_stop| {
        let mut decider = Decider::new(Plan { early_stop, warm_up: 0, ..plan(1) }).unwrap();
        // Interrupt the run after more than half and less than three quarters.
        let taken = decider.progress().1 * 5 / 8 / 4 * 4;
        let mut machine = Machine::new(STANDARD, taken, 1);
        for _ in 0..taken {
            let state = decider.next_state().unwrap();
            decider.observe(state, machine.throughput(state, 1.0)).unwrap();
        }
        let (low, high) = decider.decision().unwrap().ci95.unwrap();
        high - low
    });
    // The third look spends a fifth of the error budget; the single look of the other plan
    // spends all of it.
    assert!(widths[0] > 1.2 * widths[1], "{widths:?}");
}

#[test]
fn a_printed_decision_has_its_numbers_in_percent() {
    let text = run(plan(1), Noise::Independent(0.02), 0.9).to_string();
    assert!(text.contains(&Verdict::Worse.to_string()) && text.contains("pairs"), "{text}");
    let seen =
        text.split("smallest change that shows: ").nth(1).unwrap().split(' ').next().unwrap();
    let seen: f64 = seen.parse().unwrap();
    assert!((0.1..10.0).contains(&seen), "{text}");
    let effect = text.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    let effect: f64 = effect.parse().unwrap();
    assert!((-12.0..-8.0).contains(&effect), "{text}");
}

#[test]
fn a_printed_decision_names_no_number_of_pairs_that_no_run_can_have() {
    let decision = run(plan(1), Noise::Independent(0.30), 1.0);
    let few = Decision { pairs_needed: Some(8_000), ..decision }.to_string();
    assert!(few.ends_with("; about 8000 pairs would decide"), "{few}");
    let many = Decision { pairs_needed: Some(8_002), ..decision }.to_string();
    assert!(many.ends_with("; more than 8000 pairs would decide: make each turn longer"), "{many}");
}

#[test]
fn huge_and_tiny_values_give_finite_ratios() {
    let mut decider = Decider::new(plan(1)).unwrap();
    while let Some(state) = decider.next_state() {
        let value = if state == State::Base { f64::MIN_POSITIVE } else { f64::MAX };
        decider.observe(state, value).unwrap();
    }
    let decision = decider.decision().unwrap();
    assert_eq!(decision.verdict, Verdict::Better);
    let (low, high) = decision.ci99.unwrap();
    assert!(decision.ratio.is_finite() && low.is_finite() && high.is_finite());
}

/// Returns the contrast of a four in an endless run: contrasts have both signs around zero.
fn contrast(four: usize) -> f64 {
    (four * 37 % 101) as f64 / 101.0 - 0.5
}

/// Feeds `fours` fours with these contrasts to a decider of 300 pairs.
fn fed(fours: usize, early_stop: bool) -> Decider {
    let mut decider = Decider::new(Plan { warm_up: 0, early_stop, ..plan(1) }).unwrap();
    for turn in 0..4 * fours {
        let state = decider.next_state().unwrap();
        let factor = if state == State::Change { contrast(turn / 4).exp() } else { 1.0 };
        decider.observe(state, factor).unwrap();
    }
    decider
}

/// The module's budget: the looks after 37, 75, 112 and 150 fours spend 2, 8, 20 and 70 % of it.
#[test]
fn a_decision_has_the_error_of_its_look_or_of_the_next_look() {
    for (fours, part) in [(20, 0.02), (36, 0.02), (37, 0.08), (75, 0.2), (112, 0.7), (150, 0.7)] {
        let decision = fed(fours, true).decision().unwrap();
        let contrasts: Vec<f64> = (0..fours).map(contrast).collect();
        let mut located = stats::signed_rank::hodges_lehmann(&contrasts).unwrap();
        for (error, found) in [(0.05, decision.ci95), (0.01, decision.ci99)] {
            let level = Share::new(1.0 - error * part).unwrap();
            let (low, high) = located.interval(level).unwrap().unwrap();
            let (found_low, found_high) = found.unwrap();
            assert!((found_low.ln() - low).abs() < 1e-9, "{fours} {error}");
            assert!((found_high.ln() - high).abs() < 1e-9, "{fours} {error}");
        }
        assert_eq!((decision.pairs, decision.early), (2 * fours, fours < 150));
    }
}

#[test]
fn a_clear_answer_ends_the_run_at_the_first_look_unless_the_plan_forbids_an_early_stop() {
    for (early_stop, pairs) in [(true, 74), (false, 300)] {
        let mut decider = Decider::new(Plan { early_stop, ..plan(1) }).unwrap();
        while let Some(state) = decider.next_state() {
            decider.observe(state, if state == State::Base { 1.0 } else { 0.5 }).unwrap();
        }
        let decision = decider.decision().unwrap();
        assert_eq!((decision.verdict, decision.pairs), (Verdict::Worse, pairs));
        assert_eq!((decision.base_median, decision.change_median), (1.0, 0.5));
        assert_eq!((decision.early, decision.planned_pairs), (early_stop, 300));
    }
}

/// The textbook's sample size: (1.96 + 1.2816)^2 times the variance, over the squared threshold.
#[test]
fn the_detectable_change_and_the_pairs_needed_follow_from_the_width_of_the_intervals() {
    let decision = fed(150, false).decision().unwrap();
    assert_eq!(decision.verdict, Verdict::Undecided);
    let half = |ends: Option<(f64, f64)>| {
        let (low, high) = ends.unwrap();
        (high / low).ln() / 2.0
    };
    let deviation = half(decision.ci99) / 2.575_829;
    let detectable = ((2.575_829 + 0.841_621) * deviation).exp() - 1.0;
    assert!((decision.detectable.unwrap() / detectable - 1.0).abs() < 1e-5, "{decision:?}");
    let deviation = half(decision.ci95) / 1.959_964;
    let ratio = (1.959_964 + 1.281_552) * deviation / 0.01_f64.ln_1p();
    let needed = decision.pairs_needed.unwrap();
    assert!((needed as f64 / (300.0 * ratio * ratio) - 1.0).abs() < 1e-3, "{needed}");
    assert!(needed.is_multiple_of(2), "fours are two pairs each: {needed}");
}

#[test]
fn the_error_for_an_invalid_value_names_its_turn() {
    let mut decider = fed(5, true);
    let state = decider.next_state().unwrap();
    decider.observe(state, 1.0).unwrap();
    assert_eq!(decider.progress(), (21, 600));
    let state = decider.next_state().unwrap();
    let refused = |decider: &mut Decider, value| decider.observe(state, value).unwrap_err();
    let place = |error| match error {
        StatsError::NotFinite { index, .. } | StatsError::NotPositive { index, .. } => index,
        other => panic!("{other}"),
    };
    assert_eq!(place(refused(&mut decider, f64::INFINITY)), 21);
    assert_eq!(place(refused(&mut decider, 0.0)), 21);
}
