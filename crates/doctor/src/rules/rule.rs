use super::Outcome;
use crate::view::{Flow, View};

/// A cause and the functions that look for it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The cause's stable name, in `--json` and in labs.
    pub cause: &'static str,
    /// The description of the cause, for the list of causes that are ruled out.
    pub words: &'static str,
    pub flow: Option<fn(&Flow<'_>, &View<'_>) -> Outcome>,
    pub machine: Option<fn(&View<'_>) -> Outcome>,
}

impl Rule {
    pub(super) const fn new(cause: &'static str, words: &'static str) -> Self {
        Self { cause, words, flow: None, machine: None }
    }

    pub(super) const fn flow(self, judge: fn(&Flow<'_>, &View<'_>) -> Outcome) -> Self {
        Self { flow: Some(judge), ..self }
    }

    pub(super) const fn machine(self, judge: fn(&View<'_>) -> Outcome) -> Self {
        Self { machine: Some(judge), ..self }
    }
}
