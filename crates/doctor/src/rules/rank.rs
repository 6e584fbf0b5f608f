//! The rank of a finding: the share of the missing speed that the finding explains.

/// A case of a cause that the table ranks apart from the cause's other findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case(&'static str);

impl Case {
    /// Names a case. `words`: the sign by which it differs from the other findings.
    pub(super) const fn new(words: &'static str) -> Self {
        Self(words)
    }
}

/// A share of the missing speed, from 0 to 1: a constant, or a line over the rule's measured share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rank {
    base: f64,
    /// The weight of the measured share; `None`: the measured share does not count.
    times: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    /// The finding stands only beside the cause with this name.
    pub(super) beside: Option<&'static str>,
}

/// A cause that never limits a connection or the machine by itself.
pub(super) const NEVER: Rank = always(0.0);

/// Ranks each finding with the same share.
pub(super) const fn always(share: f64) -> Rank {
    Rank { base: share, times: None, least: None, most: None, beside: None }
}

/// Ranks a finding with the share that the rule measured.
pub(super) const fn measured() -> Rank {
    Rank { times: Some(1.0), ..always(0.0) }
}

impl Rank {
    pub(super) const fn times(self, factor: f64) -> Self {
        Self { times: Some(factor), ..self }
    }

    pub(super) const fn plus(self, base: f64) -> Self {
        Self { base, ..self }
    }

    pub(super) const fn at_least(self, least: f64) -> Self {
        Self { least: Some(least), ..self }
    }

    pub(super) const fn at_most(self, most: f64) -> Self {
        Self { most: Some(most), ..self }
    }

    pub(super) const fn beside(self, cause: &'static str) -> Self {
        Self { beside: Some(cause), ..self }
    }

    /// Returns the share that a finding explains: zero if a measured share is NaN.
    pub(super) fn of(&self, measured: [f64; 2]) -> f64 {
        let [first, second] = measured;
        let line = |times| self.base + times * first + times * second;
        let share = self.times.map_or(self.base, line);
        let share = self.least.map_or(share, |least| share.max(least));
        let share = self.most.map_or(share, |most| share.min(most));
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_a_bounded_line_over_the_measured_share() {
        let near = |rank: Rank, measured: f64, share: f64| {
            assert!((rank.of([measured, 0.0]) - share).abs() < 1e-12, "{rank:?} {measured}");
        };
        near(always(0.7), 0.1, 0.7);
        near(always(0.7), f64::NAN, 0.7);
        near(measured(), 0.4, 0.4);
        near(measured(), 7.0, 1.0);
        near(measured(), -1.0, 0.0);
        near(measured(), f64::NAN, 0.0);
        near(measured(), f64::INFINITY, 0.0);
        let line = measured().times(0.35).plus(0.5).at_least(0.6).at_most(0.85);
        near(line, 0.0, 0.6);
        near(line, 0.8, 0.78);
        near(line, 2.0, 0.85);
        assert!((measured().times(5.0).of([0.05, 0.1]) - 0.75).abs() < 1e-12);
    }
}
