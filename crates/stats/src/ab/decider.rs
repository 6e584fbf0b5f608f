use super::{Decision, Plan, State};
use crate::error::positive;
use crate::{StatsError, Verdict};

/// Chooses the state of each turn and takes one value at a time. The run ends when the verdict is
/// clear or the plan is complete.
///
/// The decider contains no clock and no hidden randomness. To continue an interrupted run, feed its
/// recorded values to a new decider with the same plan.
#[derive(Debug, Clone)]
pub struct Decider {
    plan: Plan,
    /// The state that begins and ends each four.
    outer: Vec<State>,
    looks: Vec<(usize, f64)>,
    warmed_up: usize,
    /// Values of the current four.
    running: Vec<f64>,
    kept: Kept,
    ended: Option<Decision>,
}

/// Results of the complete fours.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    pub(super) contrasts: Vec<f64>,
    pub(super) base: Vec<f64>,
    pub(super) change: Vec<f64>,
}

impl Decider {
    /// Creates a decider before the first turn. Returns an error if the plan's pairs, warm-up or
    /// threshold is out of range.
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

    /// Returns the state of the next turn; `None` once the run has ended.
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

    /// Takes the value measured in the turn that [`Self::next_state`] named. After an error the
    /// decider is unchanged, and the same turn may run again.
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

    /// Returns the number of finished turns including the warm-up, and the planned maximum.
    pub fn progress(&self) -> (usize, usize) {
        let taken = self.warmed_up + 4 * self.kept.contrasts.len() + self.running.len();
        (taken, self.plan.turns())
    }

    /// Returns the decision. For a run that has not ended (after an interruption, for example) this
    /// method uses the complete fours so far, at the confidence of the next look. Call this method
    /// once: repeated calls until a wanted verdict raise the error rate. Returns an error before
    /// the first four.
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
        if fours == self.plan.fours() || decision.verdict != Verdict::Undecided {
            self.ended = Some(decision);
        }
        Ok(())
    }

    /// Replaces the index in a value's error by the value's position in the run.
    fn placed(&self, error: StatsError) -> StatsError {
        let index = self.progress().0;
        match error {
            StatsError::NotFinite { value, .. } => StatsError::NotFinite { index, value },
            StatsError::NotPositive { value, .. } => StatsError::NotPositive { index, value },
            other => other,
        }
    }
}
