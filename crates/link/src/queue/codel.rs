use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::limit::limit_of;
use crate::queue::{Discipline, Limit, Queued};
use crate::text::{Term, terms};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Span, Time};

/// Controlled Delay (RFC 8289). Drops packets at the head while even the shortest wait of an
/// interval is above the target.
#[derive(Debug)]
pub struct CoDel<P> {
    config: CoDelConfig,
    backlog: Backlog<P>,
    control: Control,
}

/// Written `codel:limit=1000p,target=5ms,interval=100ms`, with `ecn` as a flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoDelConfig {
    /// Capacity of the queue; a packet that finds no room is dropped.
    pub limit: Limit,
    /// The standing queueing delay that CoDel accepts (RFC 8289, TARGET); 5 ms by default.
    pub target: Span,
    /// The time for which all waits must exceed the target before the first drop (RFC 8289,
    /// INTERVAL); 100 ms by default.
    pub interval: Span,
    /// Whether to mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl CoDelConfig {
    pub(super) const EXAMPLES: &[&str] = &["codel:limit=1000p,target=5ms,interval=100ms,ecn"];

    /// Checks that limit, target and interval are above 0, and that the target is at most the
    /// interval.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("codel's limit")?;
        validate_times("codel", self.target, self.interval)
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        let mut config = Self::default();
        for term in terms(text) {
            match term {
                Term::Pair("target", value) => config.target = value.parse()?,
                Term::Pair("interval", value) => config.interval = value.parse()?,
                Term::Word("ecn") => config.ecn = true,
                other => config.limit = limit_of(other, "codel", &SETTINGS)?,
            }
        }
        Ok(config)
    }
}

impl Default for CoDelConfig {
    fn default() -> Self {
        Self { limit: Limit::Packets(1000), target: TARGET, interval: INTERVAL, ecn: false }
    }
}

impl std::fmt::Display for CoDelConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, target, interval, ecn } = self;
        let ecn = if *ecn { ",ecn" } else { "" };
        write!(f, "limit={limit},target={target},interval={interval}{ecn}")
    }
}

impl<P: Packet> Discipline<P> for CoDel<P> {
    type Config = CoDelConfig;

    fn new(config: &CoDelConfig, _pace: Option<Rate>, _seed: u64) -> Self {
        Self { config: *config, backlog: Backlog::new(), control: Control::default() }
    }

    fn retune(&mut self, config: &CoDelConfig, _pace: Option<Rate>) {
        self.config = *config;
    }

    fn enqueue(&mut self, _now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        self.backlog.admit(self.config.limit, item, stats);
    }

    fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>> {
        let law = Law {
            target: self.config.target,
            interval: self.config.interval,
            ecn: self.config.ecn,
        };
        self.control.dequeue(law, now, &mut self.backlog, stats)
    }

    of_backlog!();
}

/// CoDel's parameters, for a single queue or for each of FQ-CoDel's queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Law {
    pub(super) target: Span,
    pub(super) interval: Span,
    pub(super) ecn: bool,
}

impl Law {
    /// Returns the time of the next drop (RFC 8289, section 5, `control_law`). The drop rate rises
    /// with the square root of the number of drops, which lowers a TCP's rate linearly. IEEE 754
    /// square roots and divisions round identically on every platform.
    fn next(self, from: Time, count: u32) -> Time {
        let interval = self.interval.nanos() as f64 / f64::from(count.max(1)).sqrt();
        from + Span::from_nanos(interval as u64)
    }
}

#[derive(Debug, Default)]
pub(super) struct Control {
    /// The time at which the wait will have been above the target for one interval; `None` while
    /// the wait is below the target.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// The largest packet so far. A queue of at most one packet is not a standing queue.
    largest: Bytes,
}

impl Control {
    /// Removes the next packet (RFC 8289, section 5, `deque`). With ECN, marks and sends a packet
    /// instead of dropping it, as codel_dequeue in the kernel's include/net/codel_impl.h does.
    pub(super) fn dequeue<P: Packet>(
        &mut self,
        law: Law,
        now: Time,
        backlog: &mut Backlog<P>,
        stats: &mut LinkStats,
    ) -> Option<Queued<P>> {
        let (mut item, mut above) = self.take(law, now, backlog)?;
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if law.ecn && item.packet.ecn_capable() {
                    mark(&mut item, stats);
                    self.drop_next = law.next(self.drop_next, self.count);
                    break;
                }
                stats.dropped.early.add(item.size);
                (item, above) = self.take(law, now, backlog)?;
                self.dropping = above;
                if above {
                    self.drop_next = law.next(self.drop_next, self.count);
                }
            }
        } else if above {
            self.enter(law, now);
            if law.ecn && item.packet.ecn_capable() {
                mark(&mut item, stats);
            } else {
                stats.dropped.early.add(item.size);
                (item, _) = self.take(law, now, backlog)?;
            }
        }
        Some(item)
    }

    /// Takes the head, and returns whether the wait has been above the target for an interval. An
    /// empty queue ends dropping.
    fn take<P>(
        &mut self,
        law: Law,
        now: Time,
        backlog: &mut Backlog<P>,
    ) -> Option<(Queued<P>, bool)> {
        let Some(item) = backlog.pop_head() else {
            self.first_above = None;
            self.dropping = false;
            return None;
        };
        self.largest = self.largest.max(item.size);
        if now.since(item.arrived) < law.target || backlog.bytes() <= self.largest {
            self.first_above = None;
            return Some((item, false));
        }
        let first_above = *self.first_above.get_or_insert(now + law.interval);
        Some((item, now >= first_above))
    }

    /// Begins dropping. If dropping ended recently, resumes near the drop rate that controlled the
    /// queue then.
    fn enter(&mut self, law: Law, now: Time) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < law.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = law.next(now, self.count);
    }
}

fn mark<P: Packet>(item: &mut Queued<P>, stats: &mut LinkStats) {
    item.packet.mark_congestion();
    stats.marked.add(item.size);
}

pub(super) fn validate_times(
    name: &'static str,
    target: Span,
    interval: Span,
) -> Result<(), LinkError> {
    if target == Span::ZERO || interval == Span::ZERO {
        return Err(LinkError::invalid(
            name,
            "needs a target and an interval above 0: the usual ones are target=5ms,interval=100ms",
        ));
    }
    if target > interval {
        return Err(LinkError::invalid(
            name,
            format!(
                "has a target of {target}, longer than its interval of {interval}: the target is usually a twentieth of it"
            ),
        ));
    }
    Ok(())
}

/// The default target (RFC 8289, section 4), derived from typical Internet round-trip times.
pub(super) const TARGET: Span = Span::from_millis(5);
pub(super) const INTERVAL: Span = Span::from_millis(100);
const SETTINGS: [&str; 4] = ["limit=", "target=", "interval=", "ecn"];

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { target: TARGET, interval: INTERVAL, ecn: false };

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// RFC 8289, section 5.5: the rate resumes if dropping ended less than 16 intervals ago.
    #[test]
    fn the_drop_rate_resumes_if_dropping_ended_recently() {
        let entered = |count, last_count, now: Time| {
            let mut control =
                Control { count, last_count, drop_next: at(1000), ..Control::default() };
            control.enter(LAW, now);
            assert!(control.dropping && control.last_count == control.count);
            (control.count, control.drop_next.since(now))
        };
        let (third, whole) = (Span::from_nanos(33_333_333), INTERVAL);
        assert_eq!(entered(10, 1, at(2599)), (9, third));
        assert_eq!(entered(10, 1, at(2600)), (1, whole), "16 intervals later");
        assert_eq!(entered(10, 9, at(1000)), (1, whole), "there was a single drop");
        assert_eq!(entered(10, 8, at(1000)).0, 2);
        assert_eq!(entered(1, 5, at(1000)).0, 1);
    }

    #[test]
    fn dropping_begins_after_a_whole_interval_above_the_target() {
        let mut control = Control::default();
        let mut backlog = Backlog::new();
        let push = |backlog: &mut Backlog<()>, arrived, size| {
            backlog.push(Queued { packet: (), size: Bytes::new(size), arrived: at(arrived) });
        };
        let mut take = |backlog: &mut Backlog<()>, now| {
            control.take(LAW, at(now), backlog).map(|(_, above)| above)
        };
        // A queue of one packet as large as the sent packet is no standing queue. A queue of one
        // byte more is a standing queue.
        push(&mut backlog, 0, 1000);
        push(&mut backlog, 0, 1000);
        assert_eq!(take(&mut backlog, 5), Some(false));
        push(&mut backlog, 0, 1);
        push(&mut backlog, 1, 1000);
        assert_eq!(take(&mut backlog, 5), Some(false), "the interval begins at 5 ms");
        push(&mut backlog, 0, 1000);
        assert_eq!(take(&mut backlog, 104), Some(false));
        push(&mut backlog, 0, 1000);
        push(&mut backlog, 0, 1000);
        assert_eq!(take(&mut backlog, 105), Some(true));
        (0..4).for_each(|_| push(&mut backlog, 200, 1000));
        assert_eq!([203, 203, 203].map(|now| take(&mut backlog, now)), [Some(true); 3]);
        assert_eq!(take(&mut backlog, 203), Some(false), "a wait of 3 ms ends it");
        assert_eq!(take(&mut backlog, 300), Some(false), "a new interval begins");
        assert_eq!(take(&mut backlog, 301), Some(false));
        assert_eq!(take(&mut backlog, 302), Some(false));
        assert_eq!(take(&mut backlog, 303), None);
    }

    #[test]
    fn a_target_is_at_most_its_interval() {
        let is_valid = |target, interval| {
            validate_times("codel", Span::from_millis(target), Span::from_millis(interval)).is_ok()
        };
        assert!(is_valid(5, 100) && is_valid(5, 5));
        assert!(!is_valid(6, 5) && !is_valid(0, 5) && !is_valid(5, 0));
    }
}
