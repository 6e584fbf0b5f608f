use units::{Share, Span};

/// A goal of the search: MLRsearch's Search Goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// A trial with a higher loss ratio is bad.
    pub loss: Share,
    /// Duration of a final trial. Shorter trials decide nothing.
    pub final_trial: Span,
    /// Total duration of the trials at one load.
    pub duration_sum: Span,
    /// Maximum share of `duration_sum` that bad trials may take.
    pub exceed: Share,
    /// The relative distance between the bounds at which the search ends.
    pub width: Share,
}

impl Goal {
    /// Returns a goal with this loss ratio: final trials of 1 s, 20 s in total, of which half may
    /// be bad, and bounds 0.5 % apart.
    pub fn with_loss(loss: Share) -> Self {
        Self {
            loss,
            final_trial: Span::from_secs(1),
            duration_sum: Span::from_secs(20),
            exceed: share(0.5),
            width: share(0.005),
        }
    }

    /// Returns the goal of RFC 2544's throughput: no loss in 60 s.
    pub fn rfc_2544() -> Self {
        Self {
            loss: Share::ZERO,
            final_trial: Span::from_secs(60),
            duration_sum: Span::from_secs(60),
            exceed: Share::ZERO,
            width: share(0.005),
        }
    }

    pub fn name(&self) -> String {
        match (self.loss.is_zero(), self.exceed.is_zero()) {
            (true, true) => "RFC 2544 throughput".to_owned(),
            (true, false) => "no loss".to_owned(),
            (false, _) => format!("loss up to {}", self.loss),
        }
    }

    /// Returns the intermediate targets of the search for the goal. Earlier targets spend less time
    /// at each load and have wider bounds.
    pub(super) fn targets(&self) -> Vec<Target> {
        let sum = self.duration_sum.secs_f64();
        let trial = self.final_trial.secs_f64();
        let width = self.width.fraction().max(NARROWEST);
        let first = trial.min(SHORT);
        let target = |sum: f64, trial: f64, factor: f64| Target {
            loss: self.loss.fraction(),
            trial,
            sum: sum.max(trial),
            exceed: self.exceed.fraction(),
            width: (width * factor).min(0.5),
        };
        let mut targets = vec![target(first, first, 4.0)];
        if sum > 4.0 * first {
            targets.push(target(3.0 * first, first, 2.0));
        }
        targets.push(target(sum, trial, 1.0));
        targets
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    pub(super) loss: f64,
    pub(super) trial: f64,
    pub(super) sum: f64,
    pub(super) exceed: f64,
    pub(super) width: f64,
}

fn share(fraction: f64) -> Share {
    Share::new(fraction).unwrap_or(Share::ZERO)
}

/// Maximum duration of a trial for an intermediate target, in seconds.
const SHORT: f64 = 1.0;
const NARROWEST: f64 = 1e-4;
