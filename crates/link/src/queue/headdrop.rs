use crate::queue::backlog::Backlog;
use crate::queue::{Discipline, Limit, Queued, droptail, limit_only};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Time};

/// A full queue drops its oldest packet, so that the sender sees the loss one queueing delay
/// earlier (Lakshman, Neidhardt, Ott: "The Drop from Front Strategy in TCP and in TCP over ATM",
/// 1996).
#[derive(Debug)]
pub struct HeadDrop<P> {
    limit: Limit,
    backlog: Backlog<P>,
}

impl<P: Packet> Discipline<P> for HeadDrop<P> {
    type Config = Limit;

    fn new(limit: &Limit, _pace: Option<Rate>, _seed: u64) -> Self {
        Self { limit: *limit, backlog: Backlog::new() }
    }

    fn retune(&mut self, limit: &Limit, _pace: Option<Rate>) {
        self.limit = *limit;
    }

    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        // A packet too large for even the empty queue must not empty the queue.
        if !self.limit.has_room(0, Bytes::ZERO, item.size) {
            stats.dropped.overflow.add(item.size);
            return;
        }
        while !self.limit.has_room(self.backlog.packets(), self.backlog.bytes(), item.size) {
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

    fn packets(&self) -> usize {
        self.backlog.packets()
    }

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
    limit_only("headdrop", terms, droptail::DEFAULT)
}
