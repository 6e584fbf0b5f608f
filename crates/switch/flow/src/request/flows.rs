use std::fmt;

use super::FlowEntry;

/// The rules of one answer: those that there were when it was asked for, each once. A rule is
/// selected, and its counters and ages are read, when its turn comes, so that no request looks at
/// all of them at once.
pub struct Flows {
    newest: u64,
    /// The rules that were not looked at.
    left: usize,
    rules: Box<dyn Iterator<Item = Option<FlowEntry>> + Send>,
}

impl Flows {
    /// `newest` is the number of the last change of any of the rules.
    #[must_use]
    pub fn new(
        newest: u64,
        entries: impl ExactSizeIterator<Item = FlowEntry> + Send + 'static,
    ) -> Self {
        Self::selected(newest, entries.map(Some))
    }

    /// As [`Flows::new`], with `None` for each rule that the answer leaves out.
    #[must_use]
    pub fn selected(
        newest: u64,
        rules: impl ExactSizeIterator<Item = Option<FlowEntry>> + Send + 'static,
    ) -> Self {
        Self { newest, left: rules.len(), rules: Box::new(rules) }
    }

    /// Looks at the next rule, and returns it if it is in the answer.
    pub fn look(&mut self) -> Option<FlowEntry> {
        self.left = self.left.saturating_sub(1);
        self.rules.next().flatten()
    }

    /// No rule is left. This looks at no rule.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    #[must_use]
    pub fn newest(&self) -> u64 {
        self.newest
    }
}

impl From<Vec<FlowEntry>> for Flows {
    fn from(entries: Vec<FlowEntry>) -> Self {
        let newest = entries.iter().map(|flow| flow.changed).max();
        Self::new(newest.unwrap_or(0), entries.into_iter())
    }
}

impl Iterator for Flows {
    type Item = FlowEntry;

    fn next(&mut self) -> Option<FlowEntry> {
        while !self.is_over() {
            let flow = self.look();
            if flow.is_some() {
                return flow;
            }
        }
        None
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Flows").field("newest", &self.newest).finish_non_exhaustive()
    }
}
