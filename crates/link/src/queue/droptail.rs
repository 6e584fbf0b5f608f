use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::limit::limit_only;
use crate::queue::{Discipline, Limit, Queued};
use crate::{LinkError, LinkStats, Packet};
use units::{Rate, Time};

/// A queue that drops arriving packets when it is full.
#[derive(Debug)]
pub struct DropTail<P> {
    config: DropTailConfig,
    backlog: Backlog<P>,
}

/// Written `droptail:10000p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropTailConfig {
    /// Capacity of the queue; 10,000 packets by default.
    pub limit: Limit,
}

impl DropTailConfig {
    pub(super) const EXAMPLES: &[&str] = &["droptail:256KiB", "droptail:100p"];

    /// Checks that the limit is above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("the queue's limit")
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        Ok(Self { limit: limit_only("droptail", text, DEFAULT)? })
    }
}

impl Default for DropTailConfig {
    fn default() -> Self {
        Self { limit: DEFAULT }
    }
}

impl std::fmt::Display for DropTailConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.limit.fmt(f)
    }
}

impl<P: Packet> Discipline<P> for DropTail<P> {
    type Config = DropTailConfig;

    fn new(config: &DropTailConfig, _pace: Option<Rate>, _seed: u64) -> Self {
        Self { config: *config, backlog: Backlog::new() }
    }

    fn retune(&mut self, config: &DropTailConfig, _pace: Option<Rate>) {
        self.config = *config;
    }

    #[inline]
    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    #[inline]
    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        self.backlog.admit(self.config.limit, item, stats);
    }

    #[inline]
    fn dequeue(&mut self, _now: Time, _stats: &mut LinkStats) -> Option<Queued<P>> {
        self.backlog.pop_head()
    }

    of_backlog!();
}

/// The default limit: about 15 MB of full frames, as deep as the queues that caused bufferbloat.
pub(crate) const DEFAULT: Limit = Limit::Packets(10_000);
