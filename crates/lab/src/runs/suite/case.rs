use serde::{Deserialize, Serialize};

/// A case of a suite in a single run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    pub outcome: Outcome,
    /// The first line of the reason, if the suite gives a reason.
    pub reason: Option<String>,
    /// Whether the case is a part of another case, such as a subtest.
    pub is_part: bool,
    /// The counts of single checks within the case. The whole case also counts the checks of its
    /// parts.
    pub checks: Checks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    Failed,
    /// The case could not be set up, or did not end.
    Broken,
    Skipped,
}

/// Numbers of cases or of single checks, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    pub passed: u64,
    pub failed: u64,
    pub broken: u64,
    pub skipped: u64,
    pub warnings: u64,
}

/// The cases that a parser found in a suite's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    pub cases: Vec<Case>,
    /// Signs that the suite did not run to its end, each as a sentence for people.
    pub flaws: Vec<String>,
}

impl Case {
    pub(super) fn new(name: &str, outcome: Outcome) -> Self {
        Self {
            name: name.to_owned(),
            outcome,
            reason: None,
            is_part: false,
            checks: Checks::of(outcome),
        }
    }

    pub(super) fn because(mut self, reason: &str) -> Self {
        let line = reason.lines().map(str::trim).find(|line| !line.is_empty());
        self.reason = line.map(|line| line.chars().take(LONGEST_REASON).collect());
        self
    }
}

#[cfg(test)]
impl Parsed {
    /// Returns the name, the outcome and the reason of each case.
    pub(super) fn told(&self) -> Vec<(&str, Outcome, Option<&str>)> {
        let cases = self.cases.iter();
        cases.map(|case| (case.name.as_str(), case.outcome, case.reason.as_deref())).collect()
    }
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Broken => "broken",
            Self::Skipped => "skipped",
        }
    }

    /// Whether the case failed or broke.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Broken)
    }
}

impl Checks {
    pub(super) fn of(outcome: Outcome) -> Self {
        let mut one = Self::default();
        *match outcome {
            Outcome::Passed => &mut one.passed,
            Outcome::Failed => &mut one.failed,
            Outcome::Broken => &mut one.broken,
            Outcome::Skipped => &mut one.skipped,
        } = 1;
        one
    }

    pub(super) fn add(&mut self, more: Self) {
        self.passed = self.passed.saturating_add(more.passed);
        self.failed = self.failed.saturating_add(more.failed);
        self.broken = self.broken.saturating_add(more.broken);
        self.skipped = self.skipped.saturating_add(more.skipped);
        self.warnings = self.warnings.saturating_add(more.warnings);
    }
}

const LONGEST_REASON: usize = 200;
