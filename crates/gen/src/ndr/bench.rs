use std::collections::BTreeMap;

use units::Span;

use super::Goal;
use super::search::{GoalResult, Observed, Search, Step, Verdict};
use super::tester::{Invalid, Tester, Trial};
use crate::{Frequency, GenError};

/// A complete test with frames of one size.
#[derive(Debug, Clone)]
pub struct Bench {
    pub goals: Vec<Goal>,
    pub lowest: Option<Frequency>,
    pub highest: Option<Frequency>,
    /// Duration of each latency measurement; `None` turns the measurements off.
    pub latency: Option<Span>,
    pub back_to_back: bool,
}

#[derive(Debug, Clone)]
pub struct SizeResult {
    pub goals: Vec<GoalResult>,
    pub highest: Frequency,
    pub lowest: Frequency,
    /// The rate that the device's rings accepted at the generator's highest rate, if the rings were
    /// full. The figure matters because a refused packet costs the generator less than an accepted
    /// packet.
    pub taken: Option<Frequency>,
    pub latency: Vec<LatencyAt>,
    pub back_to_back: Option<BackToBack>,
    pub trials: u32,
    pub invalid_trials: u32,
    /// The number of invalid trials by reason.
    pub invalid_kinds: BTreeMap<&'static str, u32>,
    /// Number of duplicate packets in all valid trials. The following counts also cover all valid
    /// trials.
    pub duplicates: u64,
    pub reordered: u64,
    pub returned: u64,
    pub foreign: u64,
    /// Number of distinct packets that arrived.
    pub received: u64,
    pub stopped: Option<Stop>,
}

#[derive(Debug, Clone, Copy)]
struct Calibrated {
    highest: Frequency,
    /// Whether the generator's rate determines `highest`. False if the user sets `highest`.
    limited: bool,
    /// The rate at which the device's rings accepted frames, if the rings were full.
    taken: Option<Frequency>,
}

/// The trials in which no packet came back, although the device has forwarded packets at this or a
/// higher load. The search records these trials only after the device forwards packets again,
/// because a device that has failed has no rate.
#[derive(Debug, Default)]
struct Silence {
    trials: Vec<(Frequency, Span, Observed)>,
    /// The highest load at which packets came back.
    forwarded: Option<Frequency>,
}

impl Silence {
    /// Keeps a valid trial in which no packet came back, if the device has forwarded packets at the
    /// trial's load before. Returns true if the trial was kept.
    fn begins(&mut self, load: Frequency, duration: Span, trial: &Trial) -> bool {
        if trial.received > 0 {
            self.forwarded = self.forwarded.filter(|before| *before > load).or(Some(load));
            return false;
        }
        let is_one =
            trial.sent >= TELLING_PACKETS && self.forwarded.is_some_and(|before| load <= before);
        if is_one {
            self.trials.push((load, duration, trial.observed()));
        }
        is_one
    }
}

/// The reason for which a test ended early.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// `times` trials, consecutive or in total, were invalid.
    Invalid {
        load: Frequency,
        reason: Invalid,
        times: u32,
        in_sequence: bool,
    },
    /// The device forwarded packets before, but forwarded none in `times` consecutive trials at the
    /// same or lower loads. The last trial was at `load`.
    Silent {
        load: Frequency,
        times: usize,
    },
    /// A trial failed, for example because an interface vanished.
    Failed(String),
    Cancelled,
}

/// Latency (RFC 2544) at `percent` % of the rate that the search found.
#[derive(Debug, Clone)]
pub struct LatencyAt {
    pub percent: u32,
    pub trial: Trial,
}

/// Result of the back-to-back test (RFC 9004).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackToBack {
    /// The length of the longest burst without loss, as the mean over the repeats.
    pub frames: f64,
    /// The rate at which the generator sent the frames.
    pub rate: Frequency,
    /// True if even the longest burst of the test lost no frame.
    pub at_maximum: bool,
    /// The capacity of the device's buffer as a time, corrected for the frames that leave the
    /// buffer during the burst.
    pub buffer: Span,
}

#[derive(Debug)]
pub enum Event<'a> {
    Trial(&'a Trial),
    Goal(&'a GoalResult),
    Latency(u32),
    BackToBack,
}

impl Bench {
    /// Measures until every goal is decided, or too many trials are invalid.
    pub fn run(
        &self,
        tester: &mut dyn Tester,
        mut is_cancelled: impl FnMut() -> bool,
        mut tell: impl FnMut(Event<'_>),
    ) -> Result<SizeResult, GenError> {
        let Calibrated { highest, limited, taken } = self.highest(tester)?;
        let lowest = self.lowest.unwrap_or(Frequency::per_second(1.0));
        let asked = self.highest.unwrap_or(highest);
        let mut search = Search::new(&self.goals, lowest, asked);
        if limited {
            search.limit(highest);
        }
        let mut result = SizeResult {
            goals: Vec::new(),
            highest,
            lowest,
            taken,
            latency: Vec::new(),
            back_to_back: None,
            trials: 0,
            invalid_trials: 0,
            invalid_kinds: BTreeMap::new(),
            duplicates: 0,
            reordered: 0,
            returned: 0,
            foreign: 0,
            received: 0,
            stopped: None,
        };
        let mut in_sequence = 0;
        // Becomes true when the generator has failed to keep a load that it nearly reached.
        let mut is_near = false;
        let mut is_first = self.lowest.is_none();
        let mut silence = Silence::default();
        let mut raises = 0;
        // The number of verdicts before the last raise of the highest load, and the verdicts that
        // the raise reopened.
        let mut opened = (0, Vec::new());
        loop {
            let step = search.next_step();
            // The machine may have been slow for some seconds, so that the search was limited to
            // less than the generator usually reaches. In this case, raise the limit again.
            if raises < MOST_RAISES
                && search.highest() < highest.times(SLOWED)
                && search.results()[result.goals.len()..].iter().any(GoalResult::is_limited)
            {
                raises += 1;
                (in_sequence, is_near) = (0, false);
                let told = result.goals.len();
                opened = (told, search.results()[told..].to_vec());
                search.raise(highest);
                continue;
            }
            for goal in &search.results()[result.goals.len()..] {
                tell(Event::Goal(goal));
                result.goals.push(*goal);
            }
            let Step::Measure { load, duration } = step else { break };
            if is_cancelled() {
                result.stopped = Some(Stop::Cancelled);
                break;
            }
            let trial = match tester.trial(load, duration) {
                Ok(trial) => trial,
                // Earlier trials gave results, so keep these results.
                Err(problem) if result.trials > 0 => {
                    result.stopped = Some(Stop::Failed(problem.to_string()));
                    break;
                }
                Err(problem) => return Err(problem),
            };
            if is_cancelled() {
                result.stopped = Some(Stop::Cancelled);
                break;
            }
            tell(Event::Trial(&trial));
            result.trials += 1;
            let Some(reason) = trial.invalid.clone() else {
                in_sequence = 0;
                result.duplicates += trial.duplicates;
                result.reordered += trial.reordered;
                result.returned += trial.returned;
                result.foreign += trial.foreign;
                result.received += trial.received;
                if silence.begins(load, duration, &trial) {
                    if let times @ MOST_SILENT.. = silence.trials.len() {
                        result.stopped = Some(Stop::Silent { load, times });
                        break;
                    }
                    continue;
                }
                for (load, duration, observed) in silence.trials.drain(..) {
                    search.record(load, duration, observed);
                }
                search.record(load, duration, trial.observed());
                if std::mem::take(&mut is_first) {
                    result.lowest = default_lowest(trial.forwarded(), self.shortest_trial());
                    search.raise_lowest(result.lowest);
                }
                continue;
            };
            result.invalid_trials += 1;
            *result.invalid_kinds.entry(reason.kind()).or_default() += 1;
            in_sequence += 1;
            let limit = match &reason {
                // If the rate is far below the load, the generator is not fast enough. If the rate
                // is close to the load, something interrupted the generator, and the trial should
                // be repeated. If many repeats fail, the load is just above the generator's rate.
                Invalid::Generator { reached, .. } | Invalid::SinkFull { reached, .. } => {
                    let is_far = reached.events() < load.events() * SAFE;
                    let is_enough = match is_far {
                        true => in_sequence >= MOST_SLOW,
                        false => {
                            in_sequence >= MOST_INVALID && !std::mem::replace(&mut is_near, true)
                        }
                    };
                    let limit = reached.times(SAFE);
                    (is_enough && limit > search.lowest()).then_some(limit)
                }
                _ => None,
            };
            match limit {
                Some(limit) if result.invalid_trials < MOST_INVALID_IN_ALL => {
                    // A load that the generator kept in a short trial may still be too high for
                    // longer trials.
                    is_near &= search.limit(limit) <= limit;
                    in_sequence = 0;
                }
                _ if in_sequence >= MOST_INVALID
                    || result.invalid_trials >= MOST_INVALID_IN_ALL =>
                {
                    let is_sequence = in_sequence >= MOST_INVALID;
                    let times = if is_sequence { in_sequence } else { result.invalid_trials };
                    let stop = Stop::Invalid { load, reason, times, in_sequence: is_sequence };
                    result.stopped = Some(stop);
                    break;
                }
                _ => {}
            }
        }
        let mut last = search.results()[result.goals.len()..].to_vec();
        let decided = result.goals.len() + last.len();
        if matches!(result.stopped, Some(Stop::Invalid { .. })) {
            // The machine has not become faster, so the verdicts before the raise are valid.
            let (told, verdicts) = opened;
            last.extend(verdicts.get(decided - told..).unwrap_or_default());
            if result.goals.len() + last.len() == self.goals.len() {
                result.stopped = None;
            }
        }
        for goal in last {
            tell(Event::Goal(&goal));
            result.goals.push(goal);
        }
        result.highest = search.highest();
        if result.stopped.is_none()
            && let Err(problem) = self.after(tester, &mut result, &mut is_cancelled, &mut tell)
        {
            result.stopped = Some(Stop::Failed(problem.to_string()));
        }
        Ok(result)
    }

    /// Determines the highest load: the user's, or the rate that the generator reaches.
    ///
    /// Packets that a full device ring refused also count. Otherwise, the limit of the device would
    /// look like a limit of the generator.
    fn highest(&self, tester: &mut dyn Tester) -> Result<Calibrated, GenError> {
        if let Some(highest) = self.highest {
            return Ok(Calibrated { highest, limited: false, taken: None });
        }
        let mut best = Frequency::ZERO;
        let mut taken = None;
        for _ in 0..2 {
            let trial = tester.trial(BEYOND_ALL, CALIBRATION)?;
            let rate =
                |packets: u64| Frequency::per_second(packets as f64 / CALIBRATION.secs_f64());
            if rate(trial.sent) >= best {
                best = rate(trial.sent);
                let accepted = rate(trial.sent.saturating_sub(trial.ring_full));
                taken = (trial.ring_full > 0).then_some(accepted);
            }
        }
        if best.events() < 1.0 {
            return Err(GenError::Usage(
                "no packet could be sent: check that the ports are up".to_owned(),
            ));
        }
        Ok(Calibrated { highest: best.times(SAFE), limited: true, taken })
    }

    fn shortest_trial(&self) -> Span {
        let trials = self.goals.iter().map(|goal| goal.final_trial);
        trials.fold(Span::from_secs(1), Span::min)
    }

    /// Measures latency and back-to-back frames, at the rate of the first goal.
    fn after(
        &self,
        tester: &mut dyn Tester,
        result: &mut SizeResult,
        is_cancelled: &mut impl FnMut() -> bool,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), GenError> {
        let Some(rate) = result.goals.iter().find_map(GoalResult::load) else { return Ok(()) };
        if let Some(duration) = self.latency {
            for percent in [50, 90, 99] {
                if is_cancelled() {
                    result.stopped = Some(Stop::Cancelled);
                    return Ok(());
                }
                tell(Event::Latency(percent));
                let load = rate.times(f64::from(percent) / 100.0);
                let mut trial = tester.trial(load, duration)?;
                for _ in 0..2 {
                    if trial.invalid.is_none() {
                        break;
                    }
                    trial = tester.trial(load, duration)?;
                }
                result.latency.push(LatencyAt { percent, trial });
            }
        }
        if self.back_to_back {
            tell(Event::BackToBack);
            result.back_to_back = back_to_back(tester, result.highest, rate, is_cancelled)?;
        }
        Ok(())
    }
}

impl GoalResult {
    /// Returns the load that the device forwards within the goal; `None` if no load is within the
    /// goal.
    pub fn load(&self) -> Option<Frequency> {
        match self.verdict {
            Verdict::Found { lower, .. } => Some(lower),
            Verdict::AtMaximum { load } | Verdict::GeneratorLimited { load } => Some(load),
            Verdict::BelowMinimum { .. } => None,
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        matches!(self.verdict, Verdict::GeneratorLimited { .. })
    }
}

impl SizeResult {
    /// True if the results describe the device, and not the limits of this machine.
    pub fn is_valid(&self) -> bool {
        self.stopped.is_none() && !self.goals.iter().any(GoalResult::is_limited)
    }
}

/// Finds the longest burst without loss, by bisection (RFC 9004 section 5).
fn back_to_back(
    tester: &mut dyn Tester,
    rate: Frequency,
    found: Frequency,
    is_cancelled: &mut impl FnMut() -> bool,
) -> Result<Option<BackToBack>, GenError> {
    if rate.events() <= found.events() * 1.02 {
        // The generator is not faster than the device, so no burst fills the device's buffer.
        return Ok(None);
    }
    let longest = rate.events() * LONGEST_BURST.secs_f64();
    let mut sum = 0.0;
    let mut at_maximum = true;
    for _ in 0..REPEATS {
        let (mut good, mut bad) = (0.0, longest);
        let mut frames = longest;
        for _ in 0..MOST_HALVINGS {
            if is_cancelled() {
                return Ok(None);
            }
            let span = Span::from_secs_f64(frames / rate.events());
            let mut trial = tester.trial(rate, span)?;
            // A burst that this machine interrupted or dropped does not measure the device's
            // buffer: repeat the burst.
            for _ in 0..2 {
                if trial.invalid.is_none() || is_cancelled() {
                    break;
                }
                trial = tester.trial(rate, span)?;
            }
            if trial.sent == trial.received {
                good = frames;
            } else {
                bad = frames;
            }
            if bad - good <= (bad * 0.01).max(1.0) || good == longest {
                break;
            }
            frames = ((good + bad) / 2.0).floor();
        }
        at_maximum &= good == longest;
        sum += good;
    }
    let frames = sum / f64::from(REPEATS);
    let implied = frames / rate.events();
    let corrected = implied * (1.0 - found.share_of(rate)).max(0.0);
    let buffer = Span::from_secs_f64(corrected);
    Ok(Some(BackToBack { frames, rate, at_maximum, buffer }))
}

/// Returns the lowest load if the user gives none: a tenth of the rate that the device forwarded
/// under the highest load. At this load, even a short trial is unlikely to miss a loss of one
/// packet in a thousand.
fn default_lowest(forwarded: Frequency, trial: Span) -> Frequency {
    let forwarded = forwarded.events();
    let enough = ENOUGH_PACKETS / trial.secs_f64().max(1e-3);
    Frequency::per_second((forwarded / 10.0).max((forwarded / 2.0).min(enough)).max(1.0))
}

/// A packet rate above the rate of any port.
const BEYOND_ALL: Frequency = Frequency::of(1e8);
pub(super) const CALIBRATION: Span = Span::from_millis(300);
/// The share of the generator's highest rate that the generator can keep over a long time.
const SAFE: f64 = 0.9;
/// If the generator limits a search to less than this share of its first highest load, the search
/// tries the first highest load again.
const SLOWED: f64 = 0.8;
const MOST_RAISES: u32 = 2;
/// Number of consecutive invalid trials that show that the generator is too slow, or that the
/// machine is too busy.
const MOST_SLOW: u32 = 3;
const MOST_INVALID: u32 = 12;
const MOST_INVALID_IN_ALL: u32 = 80;
const MOST_SILENT: usize = 3;
/// Minimum number of packets in a trial for the conclusion that a device that loses all of these
/// packets forwards nothing.
const TELLING_PACKETS: u64 = 20;
/// Number of packets with which a trial rarely misses a loss of one packet in a thousand.
const ENOUGH_PACKETS: f64 = 2_000.0;
const LONGEST_BURST: Span = Span::from_secs(2);
const REPEATS: u32 = 3;
const MOST_HALVINGS: u32 = 20;

#[cfg(test)]
mod tests;
