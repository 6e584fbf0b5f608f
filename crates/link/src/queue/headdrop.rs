use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::limit::limit_only;
use crate::queue::{Discipline, Limit, Queued, droptail};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Time};

/// A queue that drops its oldest packet when it is full, so that the sender sees the loss one
/// queueing delay earlier (Lakshman, Neidhardt, Ott: "The Drop from Front Strategy in TCP and in
/// TCP over ATM", 1996).
#[derive(Debug)]
pub struct HeadDrop<P> {
    config: HeadDropConfig,
    backlog: Backlog<P>,
}

/// Written `headdrop:10000p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadDropConfig {
    /// Capacity of the queue; 10,000 packets by default.
    pub limit: Limit,
}

impl HeadDropConfig {
    pub(super) const EXAMPLES: &[&str] = &["headdrop:256KiB"];

    /// Checks that the limit is above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("the queue's limit")
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        Ok(Self { limit: limit_only("headdrop", text, droptail::DEFAULT)? })
    }
}

impl std::fmt::Display for HeadDropConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.limit.fmt(f)
    }
}

impl<P: Packet> Discipline<P> for HeadDrop<P> {
    type Config = HeadDropConfig;

    fn new(config: &HeadDropConfig, _pace: Option<Rate>, _seed: u64) -> Self {
        Self { config: *config, backlog: Backlog::new() }
    }

    fn retune(&mut self, config: &HeadDropConfig, _pace: Option<Rate>) {
        self.config = *config;
    }

    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        // Do not empty the queue for a packet that is too large even for the empty queue.
        if !self.config.limit.has_room(0, Bytes::ZERO, item.size) {
            stats.dropped.overflow.add(item.size);
            return;
        }
        while !self.config.limit.has_room(self.backlog.packets(), self.backlog.bytes(), item.size) {
            let Some(oldest) = self.backlog.pop_head() else {
                break;
            };
            stats.dropped.overflow.add(oldest.size);
        }
        self.backlog.push(item);
    }

    fn dequeue(&mut self, _now: Time, _stats: &mut LinkStats) -> Option<Queued<P>> {
        self.backlog.pop_head()
    }

    of_backlog!();
}
