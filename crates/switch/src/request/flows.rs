use std::fmt;

use super::FlowEntry;

/// The rules of one answer: those that there were when it was asked for, each once. Their counters
/// and ages are read when a rule's turn comes, so that no request reads all of them at once.
pub struct Flows {
    newest: u64,
    left: usize,
    entries: Box<dyn Iterator<Item = FlowEntry> + Send>,
}

impl Flows {
    /// `newest` is the number of the last change of any of the rules.
    #[must_use]
    pub fn new(
        newest: u64,
        entries: impl ExactSizeIterator<Item = FlowEntry> + Send + 'static,
    ) -> Self {
        Self { newest, left: entries.len(), entries: Box::new(entries) }
    }

    /// No rule is left. This reads no rule.
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
        self.left = self.left.saturating_sub(1);
        self.entries.next()
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Flows").field("newest", &self.newest).finish_non_exhaustive()
    }
}
