use std::fmt;

use super::FlowEntry;

/// The rules of a reply: the rules at the time of the request, each once. The iterator checks a
/// rule, and reads its counters and ages, only when it reaches the rule. So a request never holds
/// up the bridge while it looks at all rules.
pub struct Flows {
    newest: u64,
    /// The number of rules that the iterator has not checked yet.
    left: usize,
    rules: Box<dyn Iterator<Item = Option<FlowEntry>> + Send>,
}

impl Flows {
    /// `newest`: the number of the latest change of these rules.
    #[must_use]
    pub fn new(
        newest: u64,
        entries: impl ExactSizeIterator<Item = FlowEntry> + Send + 'static,
    ) -> Self {
        Self::selected(newest, entries.map(Some))
    }

    /// Like [`Flows::new`], with `None` for each rule that the reply leaves out.
    #[must_use]
    pub fn selected(
        newest: u64,
        rules: impl ExactSizeIterator<Item = Option<FlowEntry>> + Send + 'static,
    ) -> Self {
        Self { newest, left: rules.len(), rules: Box::new(rules) }
    }

    /// Checks the next rule, and returns it if the rule is in the reply.
    pub fn look(&mut self) -> Option<FlowEntry> {
        self.left = self.left.saturating_sub(1);
        self.rules.next().flatten()
    }

    /// Whether no rule is left. Checks no rule.
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
