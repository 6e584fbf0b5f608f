use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::limit::limit_of;
use crate::queue::{Discipline, Limit, Queued};
use crate::random::Stream;
use crate::text::{Term, terms};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Span, Time};

/// Proportional Integral controller Enhanced (RFC 8033): drops arriving packets with a probability
/// that follows the queueing delay and its trend. Timestamps measure the delay, as in the kernel's
/// net/sched/sch_pie.c by default. The timer runs in logical time.
#[derive(Debug)]
pub struct Pie<P> {
    config: PieConfig,
    backlog: Backlog<P>,
    random: Stream,
    probability: f64,
    accumulated: f64,
    delay: Span,
    old_delay: Span,
    allowance: Span,
    /// The next update of the timer, which runs from the first arrival onwards.
    next_update: Option<Time>,
}

/// Written `pie:limit=1000p,target=15ms,update=15ms,burst=150ms`, with `ecn` as a flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PieConfig {
    /// Capacity of the queue; a packet that finds no room is dropped.
    pub limit: Limit,
    /// The queueing delay that PIE aims at (RFC 8033, QDELAY_REF); 15 ms by default.
    pub target: Span,
    /// The interval between two updates of the drop probability.
    pub update: Span,
    /// The time for which a burst may last before PIE drops packets (section 4.4).
    pub burst: Span,
    /// Whether to mark ECN-capable packets, up to a drop probability of 10 % (section 5.1).
    pub ecn: bool,
}

impl PieConfig {
    pub(super) const EXAMPLES: &[&str] = &["pie:limit=1000p,target=15ms,ecn"];

    /// Checks that limit, target and update interval are above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("pie's limit")?;
        if self.target == Span::ZERO || self.update == Span::ZERO {
            return Err(LinkError::invalid(
                "pie",
                "needs a target and an update interval above 0: the usual ones are target=15ms,update=15ms",
            ));
        }
        Ok(())
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        let mut config = Self::default();
        for term in terms(text) {
            match term {
                Term::Pair("target", value) => config.target = value.parse()?,
                Term::Pair("update", value) => config.update = value.parse()?,
                Term::Pair("burst", value) => config.burst = value.parse()?,
                Term::Word("ecn") => config.ecn = true,
                other => config.limit = limit_of(other, "pie", &SETTINGS)?,
            }
        }
        Ok(config)
    }
}

impl Default for PieConfig {
    /// Returns the defaults of RFC 8033, section 4 and appendix A.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(1000),
            target: Span::from_millis(15),
            update: Span::from_millis(15),
            burst: Span::from_millis(150),
            ecn: false,
        }
    }
}

impl std::fmt::Display for PieConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, target, update, burst, ecn } = self;
        let ecn = if *ecn { ",ecn" } else { "" };
        write!(f, "limit={limit},target={target},update={update},burst={burst}{ecn}")
    }
}

impl<P: Packet> Discipline<P> for Pie<P> {
    type Config = PieConfig;

    fn new(config: &PieConfig, _pace: Option<Rate>, seed: u64) -> Self {
        Self {
            config: *config,
            backlog: Backlog::new(),
            random: Stream::new(seed, "pie"),
            probability: 0.0,
            accumulated: 0.0,
            delay: Span::ZERO,
            old_delay: Span::ZERO,
            allowance: Span::ZERO,
            next_update: None,
        }
    }

    fn retune(&mut self, config: &PieConfig, _pace: Option<Rate>) {
        self.config = *config;
    }

    fn enqueue(&mut self, now: Time, mut item: Queued<P>, stats: &mut LinkStats) {
        self.catch_up(now);
        let calm = self.config.target / 2;
        if self.probability == 0.0 && self.delay < calm && self.old_delay < calm {
            self.allowance = self.config.burst;
        }
        if self.allowance == Span::ZERO && self.signals() {
            let may_mark = self.config.ecn && self.probability <= MOST_MARKED;
            if !(may_mark && item.packet.ecn_capable()) {
                stats.dropped.early.add(item.size);
                return;
            }
            if self.has_room(item.size) {
                item.packet.mark_congestion();
                stats.marked.add(item.size);
            }
        }
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        if self.has_room(item.size) {
            self.backlog.push(item);
        } else {
            self.accumulated = 0.0;
            stats.dropped.overflow.add(item.size);
        }
    }

    fn dequeue(&mut self, now: Time, _stats: &mut LinkStats) -> Option<Queued<P>> {
        self.catch_up(now);
        let item = self.backlog.pop_head()?;
        self.delay = if self.backlog.packets() == 0 { Span::ZERO } else { now.since(item.arrived) };
        Some(item)
    }

    of_backlog!();
}

impl<P: Packet> Pie<P> {
    fn has_room(&self, size: Bytes) -> bool {
        self.config.limit.has_room(self.backlog.packets(), self.backlog.bytes(), size)
    }

    /// Returns whether to drop or mark the packet (section 4.1). The de-randomisation of section
    /// 5.4 bounds the distance of two drops or marks on both sides.
    fn signals(&mut self) -> bool {
        let calm = self.old_delay < self.config.target / 2 && self.probability < 0.2;
        if calm || self.backlog.bytes() <= TWO_FRAMES {
            return false;
        }
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        if self.accumulated < 0.85 {
            return false;
        }
        if self.accumulated >= 8.5 || self.random.unit() < self.probability {
            self.accumulated = 0.0;
            return true;
        }
        false
    }

    /// Runs the timer updates that are due. The input of the updates does not change between two
    /// packets, so late updates make no difference.
    fn catch_up(&mut self, now: Time) {
        let update = self.config.update;
        let mut next = *self.next_update.get_or_insert(now + update);
        while next <= now {
            self.calculate();
            next += update;
            let at_rest = self.probability == 0.0
                && self.delay == Span::ZERO
                && self.old_delay == Span::ZERO
                && self.allowance == Span::ZERO;
            if at_rest && next <= now {
                let missed = now.since(next).nanos() / update.nanos() + 1;
                next += update * missed;
            }
        }
        self.next_update = Some(next);
    }

    /// Updates the drop probability (section 4.2 and appendix A, with the cap of section 5.5).
    fn calculate(&mut self) {
        let (delay, old) = (self.delay.secs_f64(), self.old_delay.secs_f64());
        let change = ALPHA * (delay - self.config.target.secs_f64()) + BETA * (delay - old);
        // Autotuning: the smaller the probability, the smaller its steps.
        let divisor = match self.probability {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        let mut change = change / divisor;
        if self.probability >= 0.1 {
            change = change.min(0.02);
        }
        self.probability += change;
        if self.delay == Span::ZERO && self.old_delay == Span::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.old_delay = self.delay;
        self.allowance = self.allowance - self.config.update;
    }
}

/// The weight of the delay's distance from the target, per second (section 4.2 and appendix A).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
const MOST_MARKED: f64 = 0.1;
/// The smallest backlog that counts as a queue, two full frames.
const TWO_FRAMES: Bytes = Bytes::new(2 * 1514);
const SETTINGS: [&str; 5] = ["limit=", "target=", "update=", "burst=", "ecn"];

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct Full;

    impl Packet for Full {
        fn size(&self) -> Bytes {
            Bytes::new(1514)
        }
        fn flow(&self) -> u64 {
            0
        }
        fn ecn_capable(&self) -> bool {
            false
        }
        fn mark_congestion(&mut self) {}
        fn corrupt(&mut self, _random: u64) {}
    }

    fn pie(probability: f64, delay_ms: u64, old_delay_ms: u64) -> Pie<Full> {
        let mut pie = Pie::new(&PieConfig::default(), None, 3);
        pie.probability = probability;
        pie.delay = Span::from_millis(delay_ms);
        pie.old_delay = Span::from_millis(old_delay_ms);
        pie
    }

    /// The probability grows by 0.125 * (35 - 15) ms + 1.25 * (35 - 25) ms = 0.015, divided by a
    /// factor that depends on the probability.
    #[test]
    fn small_probabilities_change_in_small_steps() {
        for (probability, divisor) in [
            (0.0, 2048.0),
            // Each factor holds below its bound (RFC 8033, section 5.2).
            (0.000_001, 512.0),
            (0.000_01, 128.0),
            (0.000_1, 32.0),
            (0.001, 8.0),
            (0.01, 2.0),
            (0.1, 1.0),
            (0.000_005, 512.0),
            (0.000_05, 128.0),
            (0.000_5, 32.0),
            (0.005, 8.0),
            (0.05, 2.0),
            (0.5, 1.0),
        ] {
            let mut pie = pie(probability, 35, 25);
            pie.calculate();
            let change = pie.probability - probability;
            assert!((change - 0.015 / divisor).abs() < 1e-12, "{probability}: {change}");
            assert_eq!(pie.old_delay, Span::from_millis(35));
        }
    }

    #[test]
    fn probability_steps_are_capped_and_the_probability_decays_in_an_idle_queue() {
        let mut rising = pie(0.3, 500, 100);
        rising.calculate();
        assert!((rising.probability - 0.32).abs() < 1e-12);
        let mut idle = pie(0.3, 0, 0);
        idle.calculate();
        assert!((idle.probability - (0.3 - 0.125 * 0.015) * 0.98).abs() < 1e-12);
        let mut certain = pie(0.99, 500, 100);
        certain.calculate();
        assert_eq!(certain.probability, 1.0);
    }

    /// At a probability of 10 %, at least 0.85 / 0.1 and at most 8.5 / 0.1 packets arrive between
    /// two drops.
    #[test]
    fn the_distance_of_two_drops_is_bounded_on_both_sides() {
        let mut pie = pie(0.1, 100, 100);
        let mut stats = LinkStats::new(Time::ZERO);
        for _ in 0..10 {
            let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
            pie.admit(item, &mut stats);
        }
        let (mut gap, mut shortest, mut longest) = (0, u32::MAX, 0);
        for _ in 0..1_000_000 {
            gap += 1;
            if pie.signals() {
                (shortest, longest) = (shortest.min(gap), longest.max(gap));
                gap = 0;
            }
        }
        assert!((9..=10).contains(&shortest), "{shortest}");
        assert!((85..=86).contains(&longest), "{longest}");
    }

    #[test]
    fn pie_drops_no_packet_of_a_short_queue() {
        let signals = |probability, old_delay_ms, packets| {
            let mut pie = pie(probability, 100, old_delay_ms);
            let mut stats = LinkStats::new(Time::ZERO);
            for _ in 0..packets {
                let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
                pie.admit(item, &mut stats);
            }
            (0..1000).any(|_| pie.signals())
        };
        assert!(signals(0.1, 8, 3));
        assert!(!signals(0.1, 7, 3), "the delay is below half the target");
        assert!(signals(0.3, 7, 3), "but the probability is high");
        assert!(!signals(0.3, 100, 2), "two frames are not a queue");
    }

    /// A long idle time takes the same processing time as a short idle time, and the timer keeps
    /// its phase.
    #[test]
    fn the_update_timer_keeps_its_period_while_the_queue_is_idle() {
        let mut pie = pie(0.5, 0, 0);
        let start = Time::from_nanos(7);
        pie.catch_up(start);
        let beat = Span::from_millis(15);
        for silence in [1, 2, 1000, 1_000_000_000] {
            let now = start + beat * silence;
            pie.catch_up(now);
            assert_eq!(pie.next_update, Some(now + beat));
        }
        assert_eq!(pie.probability, 0.0);
    }

    /// RFC 8033, section 4.4: the allowance returns while nothing is dropped and both delays are
    /// below half of the target of 15 ms.
    #[test]
    fn the_burst_allowance_returns_only_to_a_calm_queue() {
        let allowance = |probability, delay, old_delay| {
            let mut pie = pie(probability, 0, 0);
            pie.delay = Span::from_micros(delay);
            pie.old_delay = Span::from_micros(old_delay);
            let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
            pie.enqueue(Time::ZERO, item, &mut LinkStats::new(Time::ZERO));
            pie.allowance
        };
        let whole = Span::from_millis(150);
        assert_eq!(allowance(0.0, 7_499, 7_499), whole);
        assert_eq!(allowance(0.0, 7_500, 0), Span::ZERO);
        assert_eq!(allowance(0.0, 0, 7_500), Span::ZERO);
        assert_eq!(allowance(0.1, 0, 0), Span::ZERO);
    }

    #[test]
    fn a_calm_queue_is_below_half_the_target_and_20_percent() {
        let signals = |probability, old_delay_us| {
            (0..100).any(|seed| {
                let mut pie: Pie<Full> = Pie::new(&PieConfig::default(), None, seed);
                pie.probability = probability;
                pie.old_delay = Span::from_micros(old_delay_us);
                let mut stats = LinkStats::new(Time::ZERO);
                for _ in 0..3 {
                    let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
                    pie.admit(item, &mut stats);
                }
                (0..100).any(|_| pie.signals())
            })
        };
        assert!(signals(0.1, 7_500) && !signals(0.1, 7_499));
        assert!(signals(0.2, 0) && !signals(0.199, 0));
        // An accumulated probability of just 0.85 may drop (RFC 8033, section 5.4).
        let first = |seed| {
            let mut pie: Pie<Full> = Pie::new(&PieConfig::default(), None, seed);
            pie.probability = 0.85;
            let mut stats = LinkStats::new(Time::ZERO);
            for _ in 0..3 {
                let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
                pie.admit(item, &mut stats);
            }
            pie.signals()
        };
        let count = (0..200).filter(|seed| first(*seed)).count();
        assert!((150..190).contains(&count), "{count} of 200 at a probability of 85 %");
    }

    #[test]
    fn a_queue_with_room_for_more_packets_keeps_its_probability() {
        let mut pie = pie(0.3, 20, 20);
        let larger = PieConfig { limit: Limit::Packets(2), ..PieConfig::default() };
        pie.retune(&larger, None);
        assert_eq!((pie.probability, pie.config.limit), (0.3, Limit::Packets(2)));
        assert!(pie.has_room(Full.size()));
        let mut stats = LinkStats::new(Time::ZERO);
        for _ in 0..3 {
            let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
            pie.admit(item, &mut stats);
        }
        assert_eq!((pie.packets(), stats.dropped.overflow.packets), (2, 1));
        assert_eq!(pie.take_all().len(), 2);
    }
}
