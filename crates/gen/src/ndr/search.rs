use std::cmp::Ordering;

use units::Span;

use super::Goal;
use super::goal::Target;
use crate::Frequency;

/// The search returns the next trial to make, and takes the result of the trial. The search itself
/// sends no packets.
///
/// For each measured load the search keeps the durations of good and bad trials, and decides as
/// MLRsearch does. A load is an upper bound once the bad time exceeds the goal's share of bad time.
/// A load is a lower bound once bad results in all the remaining time would not exceed the same
/// share.
#[derive(Debug, Clone)]
pub struct Search {
    goals: Vec<Goal>,
    current: usize,
    lowest: f64,
    highest: f64,
    /// True once the highest load is the generator's rate instead of the load that the user asked
    /// for.
    is_limited: bool,
    loads: Vec<Load>,
    results: Vec<GoalResult>,
    /// The load under measurement, and the index of the target that needs its verdict.
    open: Option<(f64, usize)>,
    /// The number of steps in the current direction since the last change of direction.
    expansions: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    Measure { load: Frequency, duration: Span },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalResult {
    pub goal: Goal,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// `lower`: the highest load within the goal, as the generator sent it, and not as planned.
    /// `upper`: the lowest load beyond the goal. `forwarded`: the rate that the device forwarded at
    /// `lower`.
    Found { lower: Frequency, upper: Frequency, forwarded: Frequency },
    /// The highest load that the user asked for is within the goal.
    AtMaximum { load: Frequency },
    /// This load is within the goal, and the generator reached no higher load.
    GeneratorLimited { load: Frequency },
    /// The lowest load is already beyond the goal.
    BelowMinimum { load: Frequency },
}

#[derive(Debug, Clone)]
struct Load {
    load: f64,
    trials: Vec<Measured>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    duration: f64,
    offered: f64,
    loss: f64,
    forwarded: f64,
}

/// The rates of a valid trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// The rate at which the generator sent packets. This rate may be lower than the load by the
    /// generator's tolerance.
    pub offered: Frequency,
    pub loss: f64,
    pub forwarded: Frequency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Lower,
    Upper,
    Undecided,
}

impl Search {
    pub fn new(goals: &[Goal], lowest: Frequency, highest: Frequency) -> Self {
        let highest = highest.events().max(1.0);
        Self {
            goals: goals.to_vec(),
            current: 0,
            lowest: lowest.events().clamp(1e-3, highest),
            highest,
            is_limited: false,
            loads: Vec::new(),
            results: Vec::new(),
            open: None,
            expansions: 0,
        }
    }

    pub fn results(&self) -> &[GoalResult] {
        &self.results
    }

    pub fn highest(&self) -> Frequency {
        Frequency::per_second(self.highest)
    }

    pub fn lowest(&self) -> Frequency {
        Frequency::per_second(self.lowest)
    }

    /// Raises the lowest load. Must be called before any trial below the new lowest load.
    pub fn raise_lowest(&mut self, lowest: Frequency) {
        self.lowest = self.lowest.max(lowest.events().min(self.highest));
    }

    /// Lowers the highest load to the generator's rate, but not below the highest lower bound at
    /// which the generator has kept the load. Returns the new highest load.
    pub fn limit(&mut self, load: Frequency) -> Frequency {
        if load.events() <= self.highest {
            let kept = self.open_target().and_then(|target| self.bounds(&target).0);
            self.highest = load.events().max(self.lowest).max(kept.unwrap_or(0.0));
            self.is_limited = true;
            let highest = self.highest;
            self.loads.retain(|known| known.load <= highest);
            self.open = self.open.filter(|(load, _)| *load <= highest);
        }
        self.highest()
    }

    /// Raises the highest load again after [`Search::limit`]. Reopens the goals that the generator
    /// limited; the search for these goals continues at the new highest load.
    pub fn raise(&mut self, highest: Frequency) {
        if let Some(first) = self.results.iter().position(GoalResult::is_limited)
            && highest.events() > self.highest
        {
            self.highest = highest.events();
            self.results.truncate(first);
            self.current = first;
            self.open = Some((self.highest, 0));
            self.expansions = 0;
        }
    }

    fn open_target(&self) -> Option<Target> {
        let (_, number) = self.open?;
        self.goals.get(self.current)?.targets().get(number).copied()
    }

    pub fn next_step(&mut self) -> Step {
        while let Some(goal) = self.goals.get(self.current).copied() {
            let mut looser: Option<Target> = None;
            let mut decided = None;
            for (number, target) in goal.targets().into_iter().enumerate() {
                if let Some((load, _)) = self.open.filter(|(_, of)| *of == number) {
                    if self.bound(load, &target) == Bound::Undecided {
                        return self.measure(load, &target);
                    }
                    self.open = None;
                }
                match self.choose(&target, looser.as_ref()) {
                    Ok(verdict) => decided = Some(verdict),
                    Err(load) => {
                        self.open = Some((load, number));
                        return self.measure(load, &target);
                    }
                }
                looser = Some(target);
            }
            if let Some(verdict) = decided {
                self.results.push(GoalResult { goal, verdict });
            }
            self.current += 1;
            self.open = None;
            self.expansions = 0;
        }
        Step::Done
    }

    pub fn record(&mut self, load: Frequency, duration: Span, observed: Observed) {
        let load = load.events();
        let measured = Measured {
            duration: duration.secs_f64(),
            offered: observed.offered.events().min(load),
            loss: observed.loss.clamp(0.0, 1.0),
            forwarded: observed.forwarded.events(),
        };
        match self.loads.iter_mut().find(|known| known.load == load) {
            Some(known) => known.trials.push(measured),
            None => self.loads.push(Load { load, trials: vec![measured] }),
        }
    }

    fn measure(&self, load: f64, target: &Target) -> Step {
        Step::Measure {
            load: Frequency::per_second(load),
            duration: Span::from_secs_f64(target.trial),
        }
    }

    fn bound(&self, load: f64, target: &Target) -> Bound {
        match self.loads.iter().find(|known| known.load == load) {
            Some(known) => known.bound(target),
            None => Bound::Undecided,
        }
    }

    /// Returns the verdict of a target, or the next load to measure if the target has no verdict
    /// yet.
    fn choose(&mut self, target: &Target, looser: Option<&Target>) -> Result<Verdict, f64> {
        let (lower, upper) = self.bounds(target);
        // The bounds of the looser target are the first loads to try.
        let earlier = looser.map(|looser| self.bounds(looser));
        let (earlier_lower, earlier_upper) = earlier.unwrap_or((None, None));
        let between = |load: f64| {
            lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper)
        };
        match (lower, upper) {
            (Some(lower), _) if lower >= self.highest => {
                let load = self.offered(lower, target);
                Ok(match self.is_limited {
                    true => Verdict::GeneratorLimited { load },
                    false => Verdict::AtMaximum { load },
                })
            }
            (_, Some(upper)) if upper <= self.lowest => {
                Ok(Verdict::BelowMinimum { load: Frequency::per_second(upper) })
            }
            (Some(lower), Some(upper)) if (upper - lower) / upper <= target.width + ROUNDING => {
                self.expansions = 0;
                Ok(Verdict::Found {
                    lower: self.offered(lower, target),
                    upper: Frequency::per_second(upper),
                    forwarded: Frequency::per_second(self.forwarded(lower, target)),
                })
            }
            (Some(lower), Some(upper)) => {
                self.expansions = 0;
                let candidates = [earlier_lower, earlier_upper];
                let near = candidates.into_iter().flatten().find(|load| between(*load));
                Err(near.unwrap_or_else(|| split(lower, upper, target.width)))
            }
            (Some(lower), None) => {
                let wanted = earlier_upper.filter(|load| between(*load));
                Err(wanted.unwrap_or_else(|| {
                    let up = lower / self.step(target);
                    up.min(self.highest)
                }))
            }
            (None, Some(upper)) => {
                let forwarded = self.forwarded_at(upper);
                let wanted = earlier_lower.filter(|load| between(*load)).or_else(|| {
                    let is_useful = forwarded < upper * (1.0 - target.width)
                        && forwarded > self.lowest
                        && !self.loads.iter().any(|known| known.load == forwarded)
                        && self.expansions == 0;
                    is_useful.then_some(forwarded)
                });
                Err(wanted.unwrap_or_else(|| {
                    let down = upper * self.step(target);
                    down.max(self.lowest)
                }))
            }
            (None, None) => Err(earlier_lower.or(earlier_upper).unwrap_or(self.highest)),
        }
    }

    /// Returns the factor of the next step away from a bound. Each step is twice as wide as the
    /// previous step.
    fn step(&mut self, target: &Target) -> f64 {
        let factor = (1.0 - target.width).powi(1 << self.expansions.min(12));
        self.expansions += 1;
        factor.max(SMALLEST_STEP)
    }

    /// Returns `(lower, upper)`: the lowest upper bound, and the highest lower bound below it.
    fn bounds(&self, target: &Target) -> (Option<f64>, Option<f64>) {
        let of = |bound| {
            let is = move |known: &&Load| known.bound(target) == bound;
            self.loads.iter().filter(is).map(|known| known.load)
        };
        let upper = of(Bound::Upper).min_by(f64::total_cmp);
        let lower = of(Bound::Lower)
            .filter(|load| upper.is_none_or(|upper| *load < upper))
            .max_by(f64::total_cmp);
        (lower, upper)
    }

    fn forwarded_at(&self, load: f64) -> f64 {
        let Some(known) = self.loads.iter().find(|known| known.load == load) else { return load };
        let sum: f64 = known.trials.iter().map(|trial| trial.forwarded).sum();
        sum / known.trials.len().max(1) as f64
    }

    /// Returns the conditional throughput of MLRsearch: the load minus the loss, without the worst
    /// trials that the goal's share of bad time permits.
    fn forwarded(&self, load: f64, target: &Target) -> f64 {
        let by_loss = |a: &Measured, b: &Measured| a.loss.total_cmp(&b.loss);
        let trial = self.typical(load, target, by_loss, |_| true);
        trial.map_or(load, |trial| trial.offered * (1.0 - trial.loss))
    }

    /// Returns the rate that the generator sent in the good trials that make this load a lower
    /// bound.
    fn offered(&self, load: f64, target: &Target) -> Frequency {
        let by_rate = |a: &Measured, b: &Measured| b.offered.total_cmp(&a.offered);
        let trial = self.typical(load, target, by_rate, |trial| trial.loss <= target.loss);
        Frequency::per_second(trial.map_or(load, |trial| trial.offered))
    }

    /// Sorts the trials by `order`, and adds up their durations until the sum reaches the good time
    /// of the goal. Returns the trial that reaches this sum.
    fn typical(
        &self,
        load: f64,
        target: &Target,
        order: impl Fn(&Measured, &Measured) -> Ordering,
        counts: impl Fn(&Measured) -> bool,
    ) -> Option<&Measured> {
        let known = self.loads.iter().find(|known| known.load == load)?;
        let long = || known.trials.iter().filter(|trial| trial.is_long(target));
        let whole: f64 = long().map(|trial| trial.duration).sum();
        let wanted = whole.max(target.sum) * (1.0 - target.exceed);
        let mut trials: Vec<&Measured> = long().filter(|trial| counts(trial)).collect();
        trials.sort_by(|a, b| order(a, b));
        let mut passed = 0.0;
        let is_enough = |trial: &&&Measured| {
            passed += trial.duration;
            passed + ROUNDING >= wanted
        };
        trials.iter().find(is_enough).or(trials.last()).copied()
    }
}

impl Load {
    /// Decides whether the load is an upper bound, a lower bound or neither for a target, as
    /// MLRsearch does.
    fn bound(&self, target: &Target) -> Bound {
        let (mut good_long, mut bad_long, mut good_short, mut bad_short) = (0.0, 0.0, 0.0, 0.0);
        for trial in &self.trials {
            let sum = match (trial.is_long(target), trial.loss > target.loss) {
                (true, false) => &mut good_long,
                (true, true) => &mut bad_long,
                (false, false) => &mut good_short,
                (false, true) => &mut bad_short,
            };
            *sum += trial.duration;
        }
        // Short bad trials count unless short good trials outweigh them.
        let outweighed = match target.exceed {
            exceed if exceed < 1.0 => good_short * exceed / (1.0 - exceed),
            _ => f64::INFINITY,
        };
        let bad = bad_long + (bad_short - outweighed).max(0.0);
        let whole = (good_long + bad).max(target.sum);
        let allowed = whole * target.exceed;
        let left = whole - good_long - bad;
        if bad > allowed + ROUNDING {
            Bound::Upper
        } else if bad + left <= allowed + ROUNDING {
            Bound::Lower
        } else {
            Bound::Undecided
        }
    }
}

impl Measured {
    fn is_long(&self, target: &Target) -> bool {
        self.duration + ROUNDING >= target.trial
    }
}

/// Returns the load half way between the bounds, in whole steps of `width`, so that the last
/// interval has about the width of one step.
fn split(lower: f64, upper: f64, width: f64) -> f64 {
    let steps = ((lower / upper).ln() / (1.0 - width).ln()).ceil().max(2.0);
    let half = (steps / 2.0).floor().max(1.0);
    upper * (lower / upper).powf(half / steps)
}

const ROUNDING: f64 = 1e-9;
const SMALLEST_STEP: f64 = 0.25;

#[cfg(test)]
mod tests;
