use super::{Decision, Plan, State};
use crate::stats::error::positive;
use crate::stats::{StatsError, Verdict};

/// Says which state to run next, takes one value at a time and ends when the answer is clear or
/// the plan is used up.
///
/// It holds no clock and no hidden randomness: feeding the recorded values of an interrupted run
/// to a new decider with the same plan continues that run.
#[derive(Debug, Clone)]
pub struct Decider {
    plan: Plan,
    /// Which state is on the outside of each four.
    outer: Vec<State>,
    looks: Vec<(usize, f64)>,
    warmed_up: usize,
    /// Values of the four that is running.
    running: Vec<f64>,
    kept: Kept,
    ended: Option<Decision>,
}

/// What complete fours leave behind.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    pub(super) contrasts: Vec<f64>,
    pub(super) base: Vec<f64>,
    pub(super) change: Vec<f64>,
}

impl Decider {
    pub fn new(plan: Plan) -> Result<Self, StatsError> {
        plan.check()?;
        Ok(Self {
            outer: plan.outer_states(),
            looks: plan.looks(),
            plan,
            warmed_up: 0,
            running: Vec::with_capacity(4),
            kept: Kept::default(),
            ended: None,
        })
    }

    /// The state of the next turn; `None` once the run has ended.
    pub fn next_state(&self) -> Option<State> {
        if self.ended.is_some() {
            return None;
        }
        if self.warmed_up < self.plan.warm_up {
            let even = self.warmed_up.is_multiple_of(2);
            return Some(if even { State::Base } else { State::Change });
        }
        let outer = *self.outer.get(self.kept.contrasts.len())?;
        let inside = matches!(self.running.len(), 1 | 2);
        Some(if inside { outer.other() } else { outer })
    }

    /// Takes the value that was measured in the turn [`Self::next_state`] named. After an error
    /// nothing has changed and the same turn may be run again.
    pub fn observe(&mut self, state: State, value: f64) -> Result<(), StatsError> {
        let expected = self.next_state().ok_or(StatsError::Ended)?;
        if state != expected {
            return Err(StatsError::OutOfTurn { expected: expected.name(), given: state.name() });
        }
        positive(&[value], "observation").map_err(|error| self.placed(error))?;
        if self.warmed_up < self.plan.warm_up {
            self.warmed_up += 1;
            return Ok(());
        }
        self.running.push(value);
        if self.running.len() == 4 {
            self.complete_four();
            self.look()?;
        }
        Ok(())
    }

    /// Turns taken, the warm-up included, and turns planned at most.
    pub fn progress(&self) -> (usize, usize) {
        let taken = self.warmed_up + 4 * self.kept.contrasts.len() + self.running.len();
        (taken, self.plan.turns())
    }

    /// The answer. Of a run that has not ended (interrupted, say), what the complete fours so far
    /// allow, at the confidence of the look that would have come next: ask once, as asking until
    /// the answer pleases spoils the error rate. An error before the first four.
    pub fn decision(&self) -> Result<Decision, StatsError> {
        if let Some(decision) = self.ended {
            return Ok(decision);
        }
        let fours = self.kept.contrasts.len();
        let next = self.looks.iter().find(|(at, _)| *at > fours);
        Decision::of(&self.plan, &self.kept, next.map_or(1.0, |(_, part)| *part))
    }

    fn complete_four(&mut self) {
        let values = &self.running;
        let outside = [values[0], values[3]];
        let inside = [values[1], values[2]];
        let (base, change) = match self.outer[self.kept.contrasts.len()] {
            State::Base => (outside, inside),
            State::Change => (inside, outside),
        };
        let log = |pair: [f64; 2]| pair[0].ln() + pair[1].ln();
        self.kept.contrasts.push((log(change) - log(base)) / 2.0);
        self.kept.base.extend(base);
        self.kept.change.extend(change);
        self.running.clear();
    }

    fn look(&mut self) -> Result<(), StatsError> {
        let fours = self.kept.contrasts.len();
        let Some((_, part)) = self.looks.iter().find(|(at, _)| *at == fours) else {
            return Ok(());
        };
        let decision = Decision::of(&self.plan, &self.kept, *part)?;
        if fours == self.plan.fours() || decision.verdict != Verdict::Inconclusive {
            self.ended = Some(decision);
        }
        Ok(())
    }

    /// The error of the one value checked, with its place in the run.
    fn placed(&self, error: StatsError) -> StatsError {
        let index = self.progress().0;
        match error {
            StatsError::NotFinite { value, .. } => StatsError::NotFinite { index, value },
            StatsError::NotPositive { value, .. } => StatsError::NotPositive { index, value },
            other => other,
        }
    }
}
