use crate::queue::backlog::Backlog;
use crate::queue::{Discipline, Limit, Queued, limit_only};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Time};

/// A full queue drops arriving packets.
#[derive(Debug)]
pub struct DropTail<P> {
    limit: Limit,
    backlog: Backlog<P>,
}

impl<P: Packet> Discipline<P> for DropTail<P> {
    type Config = Limit;

    fn new(limit: &Limit, _pace: Option<Rate>, _seed: u64) -> Self {
        Self { limit: *limit, backlog: Backlog::new() }
    }

    fn retune(&mut self, limit: &Limit, _pace: Option<Rate>) {
        self.limit = *limit;
    }

    #[inline]
    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    #[inline]
    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        if self.limit.has_room(self.backlog.packets(), self.backlog.bytes(), item.size) {
            self.backlog.push(item);
        } else {
            stats.dropped.overflow.add(item.size);
        }
    }

    #[inline]
    fn dequeue(&mut self, _now: Time, _stats: &mut LinkStats) -> Option<Queued<P>> {
        self.backlog.pop_head()
    }

    #[inline]
    fn packets(&self) -> usize {
        self.backlog.packets()
    }

    #[inline]
    fn bytes(&self) -> Bytes {
        self.backlog.bytes()
    }

    fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.backlog.for_each(see);
    }

    fn take_all(&mut self) -> Vec<Queued<P>> {
        self.backlog.take_all()
    }
}

pub(crate) fn parse(terms: &str) -> Result<Limit, LinkError> {
    limit_only("droptail", terms, DEFAULT)
}

/// About 15 MB of full frames, as deep as the queues that caused bufferbloat.
pub(crate) const DEFAULT: Limit = Limit::Packets(10_000);
