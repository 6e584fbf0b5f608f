use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::limit::limit_of;
use crate::queue::{Discipline, Limit, Queued};
use crate::random::Stream;
use crate::text::{Term, terms};
use crate::{LinkError, LinkStats, Packet};
use units::{Bytes, Rate, Share, Time};

/// Random Early Detection: Floyd and Jacobson, "Random Early Detection Gateways for Congestion
/// Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993. Section numbers below refer to this
/// paper.
#[derive(Debug)]
pub struct Red<P> {
    config: RedConfig,
    pace: Option<Rate>,
    backlog: Backlog<P>,
    random: Stream,
    /// The average queue size, in the units of the limit.
    average: f64,
    /// Packets passed since the last drop or mark; `None` below the lower threshold.
    since_mark: Option<u64>,
    /// The time since which the queue has been empty.
    idle_since: Option<Time>,
}

/// Written `red:limit=1000p,min=83p,max=250p,p=10%,weight=0.2%`, with `gentle`, `ecn` and `step` as
/// flags. `min` and `max` default to a twelfth and a quarter of the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedConfig {
    /// Capacity of the queue. `min` and `max` count in its unit, bytes or packets.
    pub limit: Limit,
    /// The average below which RED drops no packet.
    pub min: Limit,
    /// The average at which RED drops a packet with probability `p`. Above this average RED drops
    /// every packet, unless `gentle` is set.
    pub max: Limit,
    /// The probability of a drop or mark when the average reaches `max` (max_p in the paper).
    pub p: Share,
    /// The weight of one arrival's sample in the average.
    pub weight: Share,
    /// Whether the probability rises from `p` to 1 between `max` and twice `max` (Floyd,
    /// "Recommendation on using the gentle_ variant of RED", 2000).
    pub gentle: bool,
    /// Whether to mark ECN-capable packets below the upper threshold (RFC 3168, section 7).
    pub ecn: bool,
    /// Whether to use a plain threshold: mark an ECN-capable packet that finds `min` or more in the
    /// queue, and let every packet pass (RFC 8257, section 3.1: DCTCP's K). Besides `min`, only the
    /// limit has an effect.
    pub step: bool,
}

impl RedConfig {
    pub(super) const EXAMPLES: &[&str] = &["red:limit=256KiB,min=20KB,max=60KB,p=10%,ecn"];

    /// Checks that `min`, `max` and `limit` have one unit and this order, and that `p` and `weight`
    /// are above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("red's limit")?;
        let (min, max, limit) = match (self.min, self.max, self.limit) {
            (Limit::Bytes(min), Limit::Bytes(max), Limit::Bytes(limit)) => {
                (min.count(), max.count(), limit.count())
            }
            (Limit::Packets(min), Limit::Packets(max), Limit::Packets(limit)) => (min, max, limit),
            _ => {
                return Err(LinkError::invalid(
                    "red",
                    "mixes bytes and packets: write limit, min and max all like `256KiB` or all like `100p`",
                ));
            }
        };
        if !(0 < min && min < max && max <= limit) {
            return Err(LinkError::invalid(
                "red",
                format!(
                    "needs 0 < min < max <= limit, but has min={}, max={}, limit={}",
                    self.min, self.max, self.limit
                ),
            ));
        }
        if self.p.is_zero() || self.weight.is_zero() {
            return Err(LinkError::invalid(
                "red",
                "needs p and weight above 0: the usual ones are p=10%,weight=0.2%",
            ));
        }
        Ok(())
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        let mut config = Self::default();
        let (mut min, mut max) = (None, None);
        for term in terms(text) {
            match term {
                Term::Pair("min", value) => min = Some(value.parse()?),
                Term::Pair("max", value) => max = Some(value.parse()?),
                Term::Pair("p", value) => config.p = value.parse()?,
                Term::Pair("weight", value) => config.weight = value.parse()?,
                Term::Word("gentle") => config.gentle = true,
                Term::Word("ecn") => config.ecn = true,
                Term::Word("step") => (config.step, config.ecn) = (true, true),
                other => config.limit = limit_of(other, "red", &SETTINGS)?,
            }
        }
        config.min = min.unwrap_or_else(|| part(config.limit, 12, 1));
        config.max = max.unwrap_or_else(|| match (config.step, config.limit) {
            (true, limit) => limit,
            (false, limit) => part(limit, 4, 2),
        });
        Ok(config)
    }
}

impl Default for RedConfig {
    fn default() -> Self {
        let limit = Limit::Packets(1000);
        Self {
            limit,
            min: part(limit, 12, 1),
            max: part(limit, 4, 2),
            p: Share::from_percent(10.0).unwrap_or_default(),
            weight: Share::from_percent(0.2).unwrap_or_default(),
            gentle: false,
            ecn: false,
            step: false,
        }
    }
}

impl std::fmt::Display for RedConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, min, max, p, weight, gentle, ecn, step } = self;
        write!(
            f,
            "limit={limit},min={min},max={max},p={p},weight={weight}{}{}{}",
            if *gentle { ",gentle" } else { "" },
            if *ecn { ",ecn" } else { "" },
            if *step { ",step" } else { "" }
        )
    }
}

impl<P: Packet> Discipline<P> for Red<P> {
    type Config = RedConfig;

    fn new(config: &RedConfig, pace: Option<Rate>, seed: u64) -> Self {
        Self {
            config: *config,
            pace,
            backlog: Backlog::new(),
            random: Stream::new(seed, "red"),
            average: 0.0,
            since_mark: None,
            idle_since: None,
        }
    }

    fn retune(&mut self, config: &RedConfig, pace: Option<Rate>) {
        self.config = *config;
        self.pace = pace;
    }

    fn enqueue(&mut self, now: Time, mut item: Queued<P>, stats: &mut LinkStats) {
        let verdict = if self.config.step {
            self.against_threshold()
        } else {
            self.observe(now);
            self.verdict()
        };
        match verdict {
            Verdict::Pass => {}
            Verdict::Mark if self.config.step && !item.packet.ecn_capable() => {}
            Verdict::Mark if self.config.ecn && item.packet.ecn_capable() => {
                if self.has_room(item.size) {
                    item.packet.mark_congestion();
                    stats.marked.add(item.size);
                }
            }
            Verdict::Mark | Verdict::Drop => {
                stats.dropped.early.add(item.size);
                return;
            }
        }
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        if self.has_room(item.size) {
            self.idle_since = None;
            self.backlog.push(item);
        } else {
            stats.dropped.overflow.add(item.size);
        }
    }

    fn dequeue(&mut self, now: Time, _stats: &mut LinkStats) -> Option<Queued<P>> {
        let item = self.backlog.pop_head();
        if item.is_none() {
            self.idle_since.get_or_insert(now);
        }
        item
    }

    of_backlog!();
}

enum Verdict {
    Pass,
    Mark,
    Drop,
}

impl<P: Packet> Red<P> {
    fn has_room(&self, size: Bytes) -> bool {
        self.config.limit.has_room(self.backlog.packets(), self.backlog.bytes(), size)
    }

    /// Updates the average (section 4): each arrival moves the average by `weight`. After an idle
    /// time, the average decays as if the link had sent small packets all the time.
    fn observe(&mut self, now: Time) {
        let weight = self.config.weight.fraction();
        if let Some(since) = self.idle_since {
            let typical = self.pace.map_or(0, |rate| rate.time_for(TYPICAL).nanos());
            let sent = now.since(since).nanos().checked_div(typical);
            self.average *= sent.map_or(0.0, |sent| power(1.0 - weight, sent));
            // Do not count this idle time again at the next arrival.
            self.idle_since = Some(now);
        } else {
            self.average += weight * (self.queue() as f64 - self.average);
        }
    }

    fn queue(&self) -> u64 {
        match self.config.limit {
            Limit::Bytes(_) => self.backlog.bytes().count(),
            Limit::Packets(_) => self.backlog.packets() as u64,
        }
    }

    fn against_threshold(&self) -> Verdict {
        let threshold = match self.config.min {
            Limit::Bytes(bytes) => bytes.count(),
            Limit::Packets(packets) => packets,
        };
        if self.queue() >= threshold { Verdict::Mark } else { Verdict::Pass }
    }

    /// Decides on an arriving packet. Section 4 gives the probability from the average. Section 7
    /// (method 2) uses the count of packets since the last mark, which spreads marks evenly instead
    /// of geometrically.
    fn verdict(&mut self) -> Verdict {
        let (min, max) = (amount(self.config.min), amount(self.config.max));
        let p = self.config.p.fraction();
        if self.average < min {
            self.since_mark = None;
            return Verdict::Pass;
        }
        let chance = if self.average < max {
            p * (self.average - min) / (max - min)
        } else if self.config.gentle && self.average < 2.0 * max {
            p + (1.0 - p) * (self.average - max) / max
        } else {
            self.since_mark = Some(0);
            return Verdict::Drop;
        };
        let count = self.since_mark.unwrap_or(0);
        self.since_mark = Some(count + 1);
        let spread = 1.0 - count as f64 * chance;
        let even = if spread <= chance { 1.0 } else { chance / spread };
        if self.random.unit() < even {
            self.since_mark = Some(0);
            return Verdict::Mark;
        }
        Verdict::Pass
    }
}

fn amount(limit: Limit) -> f64 {
    match limit {
        Limit::Bytes(bytes) => bytes.count() as f64,
        Limit::Packets(packets) => packets as f64,
    }
}

fn part(limit: Limit, of: u64, least: u64) -> Limit {
    match limit {
        Limit::Bytes(bytes) => Limit::Bytes(Bytes::new((bytes.count() / of).max(least))),
        Limit::Packets(packets) => Limit::Packets((packets / of).max(least)),
    }
}

/// Computes a power by squaring and multiplying alone, because `powf` may round differently on
/// another platform.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    result
}

/// The assumed packet size during an idle time: tc-red's usual `avpkt`.
const TYPICAL: Bytes = Bytes::new(1000);
const SETTINGS: [&str; 8] = ["limit=", "min=", "max=", "p=", "weight=", "gentle", "ecn", "step"];

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    #[derive(Debug, Clone)]
    struct Full;

    impl Packet for Full {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
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

    /// Sends packets that each find `queue` other packets. Returns true for each dropped packet.
    fn drops(config: &str, queue: usize, packets: usize) -> Vec<bool> {
        let config = RedConfig::parse(config).unwrap();
        let mut red: Red<Full> = Red::new(&config, None, 5);
        let mut stats = LinkStats::new(Time::ZERO);
        let item = || Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
        (0..queue).for_each(|_| red.admit(item(), &mut stats));
        let mut one = || {
            let before = stats.dropped.early.packets;
            red.enqueue(Time::ZERO, item(), &mut stats);
            if red.packets() > queue {
                red.dequeue(Time::ZERO, &mut stats);
            }
            stats.dropped.early.packets > before
        };
        (0..packets).map(|_| one()).collect()
    }

    fn gaps(drops: &[bool]) -> Vec<usize> {
        let at: Vec<usize> = (0..drops.len()).filter(|index| drops[*index]).collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Half way between the thresholds the probability is p / 2, and gaps are uniform from 1 to the
    /// inverse of this probability.
    #[test]
    fn gaps_between_random_drops_are_uniform() {
        let drops = drops("limit=100p,min=10p,max=40p,p=10%,weight=100%", 25, 200_000);
        let gaps = gaps(&drops);
        let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
        assert!((mean - 10.5).abs() < 0.2, "{mean}");
        assert_eq!(gaps.iter().max(), Some(&20));
        for gap in 1..=20 {
            let share = gaps.iter().filter(|g| **g == gap).count() as f64 / gaps.len() as f64;
            assert!((share - 0.05).abs() < 0.01, "{share} are {gap}");
        }
    }

    #[test]
    fn above_the_upper_threshold_red_drops_all_packets_or_ramps_up_if_gentle() {
        let share = |config: &str, queue| {
            let drops = drops(config, queue, 10_000);
            drops.iter().filter(|dropped| **dropped).count() as f64 / 10_000.0
        };
        let steep = "limit=100p,min=10p,max=40p,p=10%,weight=100%";
        let gentle = "limit=100p,min=10p,max=40p,p=10%,weight=100%,gentle";
        assert_eq!(share(steep, 40), 1.0);
        assert_eq!(share(gentle, 80), 1.0);
        // At 50 packets the probability of a drop is 0.1 + 0.9 / 4. Gaps are 1 with probability
        // 0.325, 2 with probability 0.325, and otherwise 3 or 4.
        let (at_50, at_60) = (share(gentle, 50), share(gentle, 60));
        // The mean gap is 0.325 (1 + 2 + 3) + 0.025 * 4 = 2.05.
        assert!((at_50 - 1.0 / 2.05).abs() < 0.012, "{at_50}");
        assert!(at_60 > at_50 && at_60 < 0.8, "{at_60}");
    }

    #[test]
    fn the_average_decays_while_the_link_is_idle() {
        let config = RedConfig::parse("weight=10%").unwrap();
        let mut red: Red<Full> = Red::new(&config, Some(Rate::from_mbit(8)), 5);
        red.average = 100.0;
        red.idle_since = Some(Time::ZERO);
        // At the link's rate, 1000 bytes take 1 ms.
        red.observe(Time::ZERO + Span::from_millis(5));
        assert!((red.average - 100.0 * 0.9f64.powi(5)).abs() < 1e-9);
        red.observe(Time::ZERO + Span::from_millis(7));
        assert!((red.average - 100.0 * 0.9f64.powi(7)).abs() < 1e-9);
        red.pace = None;
        red.observe(Time::ZERO + Span::from_millis(7));
        assert_eq!(red.average, 0.0, "an unlimited link drains at once");
    }

    #[test]
    fn min_is_above_zero_and_below_max_within_the_limit() {
        let is_valid = |text: &str| RedConfig::parse(text).unwrap().validate().is_ok();
        assert!(is_valid("limit=100p,min=1p,max=2p"));
        assert!(is_valid("limit=100p,min=10p,max=100p"));
        assert!(is_valid("limit=100KB,min=10KB,max=100KB"));
        assert!(!is_valid("limit=100p,min=0p,max=10p"));
        assert!(!is_valid("limit=100p,min=10p,max=10p"));
        assert!(!is_valid("limit=100p,min=10p,max=101p"));
        assert!(!is_valid("limit=0p,min=10p,max=20p"));
        assert!(!is_valid("limit=100p,min=10p,max=20p,p=0"));
        assert!(!is_valid("limit=100p,min=10p,max=20p,weight=0"));
    }

    /// The average avg becomes (1 - w) avg + w q, with queue size q and weight w (section 4).
    #[test]
    fn an_arrival_moves_the_average_by_its_weight() {
        let config = RedConfig::parse("weight=10%").unwrap();
        let mut red: Red<Full> = Red::new(&config, None, 5);
        let mut stats = LinkStats::new(Time::ZERO);
        for _ in 0..20 {
            let item = Queued { packet: Full, size: Full.size(), arrived: Time::ZERO };
            red.admit(item, &mut stats);
        }
        red.average = 40.0;
        red.observe(Time::ZERO);
        assert!((red.average - 38.0).abs() < 1e-12, "{}", red.average);
    }
}
