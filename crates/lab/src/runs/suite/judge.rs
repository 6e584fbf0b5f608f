//! The verdict about one case, from its results in all runs of both states.

use super::case::Outcome;
use serde::{Serialize, Serializer};

/// The result of a case in one run. Runs that ended before the case have no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    As(Outcome),
    /// The run ended regularly and did not have the case.
    Missing,
}

/// The verdict about a case, from its results before and after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// Passed in each run before the change, failed in each run after the change.
    Broken,
    /// Passed in each run before the change, skipped or missing in each run after the change.
    Lost,
    /// Different results in several runs of the same state.
    Flaky,
    /// The case failed in each run of both states.
    FailsInBoth,
    /// Skipped or missing in each run before the change, failed in each run after the change.
    FailsNow,
    /// Failed in each run before the change, passed in each run after the change.
    Mended,
    /// Skipped or missing in each run before the change, passed in each run after the change.
    Gained,
    /// Failed in each run before the change, skipped or missing in each run after the change.
    NoLongerRun,
    /// No run of one state reached the case.
    NotReached,
    Skipped,
    Passes,
}

impl Judged {
    /// Whether a case that passed before the change no longer passes.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Broken | Self::Lost)
    }
}

pub(super) fn judge(before: &[Seen], after: &[Seen]) -> Judged {
    use Steady::{Bad, Gone, Good};
    let (before, after) = match (steady(before), steady(after)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(Unsteady::Unknown), _) | (_, Err(Unsteady::Unknown)) => return Judged::NotReached,
        _ => return Judged::Flaky,
    };
    match (before, after) {
        (Good, Good) => Judged::Passes,
        (Good, Bad) => Judged::Broken,
        (Good, Gone) => Judged::Lost,
        (Bad, Good) => Judged::Mended,
        (Bad, Bad) => Judged::FailsInBoth,
        (Bad, Gone) => Judged::NoLongerRun,
        (Gone, Good) => Judged::Gained,
        (Gone, Bad) => Judged::FailsNow,
        (Gone, Gone) => Judged::Skipped,
    }
}

/// Whether a case needs further runs, because the case failed in a run or its results differ.
pub(super) fn is_doubtful(before: &[Seen], after: &[Seen]) -> bool {
    !matches!(judge(before, after), Judged::Passes | Judged::Skipped)
}

/// Whether the case was present in some complete runs of a state and missing in other complete
/// runs.
pub(super) fn comes_and_goes(seen: &[Seen]) -> bool {
    let missing = seen.iter().filter(|seen| **seen == Seen::Missing).count();
    missing > 0 && missing < seen.len()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steady {
    Good,
    Bad,
    /// The case was skipped or missing in the run.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsteady {
    Unknown,
    Mixed,
}

fn steady(seen: &[Seen]) -> Result<Steady, Unsteady> {
    let kind = |seen: &Seen| match seen {
        Seen::As(Outcome::Passed) => Steady::Good,
        Seen::As(Outcome::Failed | Outcome::Broken) => Steady::Bad,
        Seen::As(Outcome::Skipped) | Seen::Missing => Steady::Gone,
    };
    let mut kinds = seen.iter().map(kind);
    let first = kinds.next().ok_or(Unsteady::Unknown)?;
    if kinds.all(|kind| kind == first) { Ok(first) } else { Err(Unsteady::Mixed) }
}

impl Serialize for Seen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::As(outcome) => outcome.word(),
            Self::Missing => "missing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Seen = Seen::As(Outcome::Passed);
    const F: Seen = Seen::As(Outcome::Failed);
    const B: Seen = Seen::As(Outcome::Broken);
    const S: Seen = Seen::As(Outcome::Skipped);
    const M: Seen = Seen::Missing;

    #[test]
    fn only_a_case_that_passes_in_all_runs_before_and_fails_in_all_after_is_broken() {
        assert_eq!(judge(&[P, P, P], &[F, B, F]), Judged::Broken);
        assert_eq!(judge(&[P, P, P], &[F, P, F]), Judged::Flaky);
        assert_eq!(judge(&[P, F, P], &[F, F, F]), Judged::Flaky);
        assert_eq!(judge(&[P], &[F]), Judged::Broken);
    }

    #[test]
    fn each_pair_of_steady_results_has_its_verdict() {
        for (before, after, verdict) in [
            (P, P, Judged::Passes),
            (P, S, Judged::Lost),
            (P, M, Judged::Lost),
            (F, P, Judged::Mended),
            (F, B, Judged::FailsInBoth),
            (F, M, Judged::NoLongerRun),
            (S, P, Judged::Gained),
            (M, F, Judged::FailsNow),
            (S, M, Judged::Skipped),
        ] {
            assert_eq!(judge(&[before, before], &[after, after]), verdict);
        }
        assert_eq!(judge(&[P], &[]), Judged::NotReached);
    }

    #[test]
    fn a_case_comes_and_goes_if_only_some_runs_contain_the_case() {
        assert!(comes_and_goes(&[P, M]) && !comes_and_goes(&[M, M]) && !comes_and_goes(&[P, F]));
    }
}
