mod credit;

use crate::queue::backlog::{Backlog, of_backlog};
use crate::queue::{Discipline, Limit, Queued, droptail};
use crate::text::{Term, terms};
use crate::{LinkError, LinkStats, Packet};
use credit::{Credit, Law, Verdict};
use units::{Bytes, Rate, Share, Span, Switch, Time};

/// A port with Confined Active Queue Management. Data packets request window increases in their
/// tags. The port approves the increases that it can carry, and shrinks windows while the queue
/// exceeds the target. Packets without a tag pass as in [`DropTail`](crate::DropTail), except that
/// the port answers handshakes that ask for CAQM.
#[derive(Debug)]
pub struct Caqm<P> {
    config: CaqmConfig,
    backlog: Backlog<P>,
    /// `None` for a link without a rate, which needs no credit.
    credit: Option<Credit>,
    seed: u64,
}

/// Written `caqm:143KB`, the target alone, or
/// `caqm:target=143KB,limit=10000p,lambda=50%,p=25%,beta=512B,unit=8B,tpid=0x88a8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CaqmConfig {
    /// Capacity of the queue. Packets that find no room are dropped, tagged or not.
    pub limit: Limit,
    /// The queue size that the port accepts, so that bursts have room.
    pub target: Bytes,
    /// The update interval of the credit, ideally about one round trip. A grant takes effect after
    /// a round trip, and the credit includes only the grants of the previous period. With a
    /// shorter period the port therefore reacts to every byte above or below the target several
    /// times. `None` means the round trip of the path, or 200 µs (the hosts' standard round trip)
    /// if the path is unknown. The minimum is the time of ten frames of 1500 bytes.
    pub period: Option<Span>,
    /// The share of the available credit that the port approves in one period.
    pub lambda: Share,
    /// The probability that the port refuses a request if it could approve only a part of the
    /// request. The credit of a refused request goes to other requests, so this probability decides
    /// how quickly windows converge. With [`Self::spread`], the port refuses at random no more
    /// bytes than other requests need.
    pub chance: Share,
    /// The number of bytes by which a refusal shrinks a window.
    pub beta: Bytes,
    /// The unit of a hint in a data packet.
    pub unit: Bytes,
    /// Whether to spread the credit, or the refusals, of a period over all its requests. Otherwise
    /// the port serves requests in the order of their arrival, as CAQM defines.
    pub spread: bool,
    /// The TPID that identifies a tag; see [`wire::caqm::TPID`].
    pub tpid: u16,
}

impl CaqmConfig {
    pub(super) const EXAMPLES: &[&str] = &["caqm:143KB"];

    /// Checks the bounds of all settings, and that the TPID is free for tags.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.limit.validate("caqm's limit")?;
        let wrong = |what: &str| Err(LinkError::invalid("caqm", what.to_owned()));
        if self.period == Some(Span::ZERO) {
            return wrong("needs a period above 0, or none: then it follows the rate");
        }
        if self.unit == Bytes::ZERO || self.unit.count() > MOST_UNIT {
            return wrong("has a unit outside of 1B to 64KiB: the usual one is 8B");
        }
        if self.beta == Bytes::ZERO || self.beta.count() > MOST_UNIT {
            return wrong("has a beta outside of 1B to 64KiB: the usual one is 512B");
        }
        if self.target.count() > MOST_TARGET {
            return wrong("has a target above 1 TiB");
        }
        if self.lambda.is_zero() {
            return wrong("with a lambda of 0% approves nothing ever: the usual one is 50%");
        }
        if !wire::caqm::is_free(self.tpid) {
            return Err(LinkError::invalid(
                "caqm",
                format!(
                    "cannot have the tpid {:#06x}, which says something else: hosts on Linux can have 0x88a8, or \
                     0x8100 where there are no VLANs",
                    self.tpid
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn parse(text: &str) -> Result<Self, LinkError> {
        let mut config = Self::default();
        for term in terms(text) {
            match term {
                Term::Pair("target", value) => config.target = value.parse()?,
                Term::Pair("limit", value) => config.limit = value.parse()?,
                Term::Pair("period", value) => config.period = Some(value.parse()?),
                Term::Pair("lambda", value) => config.lambda = value.parse()?,
                Term::Pair("p", value) => config.chance = value.parse()?,
                Term::Pair("beta", value) => config.beta = value.parse()?,
                Term::Pair("unit", value) => config.unit = value.parse()?,
                Term::Pair("spread", value) => config.spread = spread(value)?,
                Term::Pair("tpid", value) => config.tpid = tpid(value)?,
                Term::Word(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                    config.target = word.parse()?;
                }
                other => return Err(other.unknown("caqm", &SETTINGS)),
            }
        }
        Ok(config)
    }

    /// Returns the settings with the period that suits a path of this round trip, unless a period
    /// is set.
    pub(super) fn on_path(self, rate: Option<Rate>, round_trip: Span) -> Self {
        let shortest = rate.map_or(Span::ZERO, |rate| rate.time_for(USUAL_PERIOD));
        let known = (round_trip > Span::ZERO).then(|| round_trip.max(shortest));
        Self { period: self.period.or(known), ..self }
    }

    /// Warns of a period far from the round trip. A port that serves requests in order, as CAQM
    /// defines, may have a short period.
    pub(super) fn warning(&self, round_trip: Span) -> Option<String> {
        let period = self.period?;
        let is_short = self.spread && period * FAR < round_trip;
        let is_far = period > round_trip * FAR || is_short;
        (round_trip > Span::ZERO && is_far).then(|| {
            format!(
                "the period {period} of the caqm queue is far from the round trip {round_trip}, so the port \
                 may lose throughput, and flows may get unequal shares over a full queue: leave `period` \
                 out, or set it near the round trip"
            )
        })
    }

    fn law(&self, rate: Rate) -> Law {
        let usual = || rate.time_for(USUAL_PERIOD).max(STANDARD_ROUND_TRIP);
        let period = self.period.unwrap_or_else(usual);
        Law {
            rate,
            period: period.max(SHORTEST_PERIOD),
            target: self.target,
            lambda: self.lambda,
            chance: self.chance,
            beta: self.beta,
            unit: self.unit,
            spread: self.spread,
        }
    }
}

impl Default for CaqmConfig {
    fn default() -> Self {
        Self {
            limit: droptail::DEFAULT,
            target: Bytes::new(15_000),
            period: None,
            lambda: Share::new(0.5).unwrap_or(Share::ONE),
            chance: Share::new(0.25).unwrap_or(Share::ZERO),
            beta: Bytes::new(512),
            unit: Bytes::new(8),
            spread: true,
            tpid: wire::caqm::TPID,
        }
    }
}

impl std::fmt::Display for CaqmConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, target, period, lambda, chance, beta, unit, spread, tpid } = self;
        write!(f, "target={target},limit={limit}")?;
        if let Some(period) = period {
            write!(f, ",period={period}")?;
        }
        if !spread {
            f.write_str(",spread=off")?;
        }
        write!(f, ",lambda={lambda},p={chance},beta={beta},unit={unit},tpid={tpid:#06x}")
    }
}

impl<P: Packet> Discipline<P> for Caqm<P> {
    type Config = CaqmConfig;

    fn new(config: &CaqmConfig, pace: Option<Rate>, seed: u64) -> Self {
        let credit = pace.map(|rate| Credit::new(config.law(rate), seed));
        Self { config: *config, backlog: Backlog::new(), credit, seed }
    }

    fn retune(&mut self, config: &CaqmConfig, pace: Option<Rate>) {
        self.config = *config;
        self.credit = pace.map(|rate| {
            let law = config.law(rate);
            let mut credit = self.credit.take().unwrap_or_else(|| Credit::new(law, self.seed));
            credit.retune(law);
            credit
        });
    }

    fn enqueue(&mut self, now: Time, item: Queued<P>, stats: &mut LinkStats) {
        if let Some(credit) = &mut self.credit {
            credit.advance(now, self.backlog.bytes());
        }
        self.admit(item, stats);
    }

    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
        self.backlog.admit(self.config.limit, item, stats);
    }

    fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>> {
        if let Some(credit) = &mut self.credit {
            credit.advance(now, self.backlog.bytes());
        }
        let mut item = self.backlog.pop_head()?;
        let Some(credit) = &mut self.credit else { return Some(item) };
        credit.send(item.size);
        let tpid = self.config.tpid;
        match item.packet.caqm(tpid) {
            Some(asked) if asked.is_request() => match credit.judge(asked) {
                Verdict::Passed => {}
                Verdict::Trimmed(info) => item.packet.set_caqm(tpid, info),
                Verdict::Refused(info) => {
                    item.packet.set_caqm(tpid, info);
                    stats.marked.add(item.size);
                }
            },
            Some(_) => {}
            None => item.packet.answer_caqm_offer(tpid),
        }
        Some(item)
    }

    of_backlog!();
}

fn spread(text: &str) -> Result<bool, LinkError> {
    let wrong = |_| LinkError::invalid("caqm", format!("has spread={text}: it is on or off"));
    text.parse().map(|Switch(on)| on).map_err(wrong)
}

/// Parses a TPID in its usual hexadecimal notation.
fn tpid(text: &str) -> Result<u16, LinkError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| {
        LinkError::invalid("caqm", format!("has the tpid `{text}`: write it like 0x88a8"))
    })
}

/// The factor by which a period may exceed or fall below a round trip without a warning. 512 flows
/// at 10 Gbit/s and 1 ms have a Jain index of .06 with a period of three round trips, and of .93
/// with a period of one or two. A period of a fifth of a round trip costs 5 % of the throughput.
const FAR: u64 = 2;
const STANDARD_ROUND_TRIP: Span = Span::from_micros(200);
const USUAL_PERIOD: Bytes = Bytes::new(15_000);
/// The shortest period. With a shorter period, an emulated link with an absurd rate would update
/// its credit without end.
const SHORTEST_PERIOD: Span = Span::from_nanos(10);
const MOST_UNIT: u64 = 65_536;
const MOST_TARGET: u64 = 1 << 40;
const SETTINGS: [&str; 9] =
    ["target=", "limit=", "period=", "lambda=", "p=", "beta=", "unit=", "spread=", "tpid="];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_far_from_the_round_trip_is_warned_of() {
        let rtt = Span::from_millis(1);
        let warning = |text: &str| CaqmConfig::parse(text).unwrap().warning(rtt);
        for far in ["period=200us", "period=499us", "period=3ms", "period=1s,spread=off"] {
            let text = warning(far).unwrap();
            assert!(text.contains("is far from the round trip 1ms"), "{far}: {text}");
        }
        for near in ["143KB", "period=500us", "period=1ms", "period=2ms", "period=12us,spread=off"]
        {
            assert_eq!(warning(near), None, "{near}");
        }
        // A link without delay does not give the path's round trip, so there is no warning.
        assert_eq!(CaqmConfig::parse("period=1ms").unwrap().warning(Span::ZERO), None);
    }

    #[test]
    fn the_usual_period_is_the_round_trip_and_ten_frames_at_least() {
        let period = |text: &str, mbit: u64, rtt: Span| {
            let config = CaqmConfig::parse(text).unwrap();
            config.on_path(Some(Rate::from_mbit(mbit)), rtt).period
        };
        let rtt = Span::from_millis(5);
        assert_eq!(period("143KB", 1000, rtt), Some(rtt));
        assert_eq!(period("143KB", 1, rtt), Some(Span::from_millis(120)));
        assert_eq!(period("period=1ms", 1000, rtt), Some(Span::from_millis(1)));
        assert_eq!(period("143KB", 1000, Span::ZERO), None);
    }

    #[test]
    fn a_word_that_is_no_size_is_an_unknown_setting() {
        let refused = CaqmConfig::parse("targt").unwrap_err().to_string();
        assert!(refused.contains("targt") && refused.contains("target"), "{refused}");
    }

    #[test]
    fn a_printed_configuration_parses_to_itself() {
        let parse = |text: &str| {
            CaqmConfig::parse(text).and_then(|config| config.validate().map(|()| config))
        };
        let short = parse("143KB").unwrap();
        assert_eq!(short, CaqmConfig { target: Bytes::new(143_000), ..CaqmConfig::default() });
        let long = "target=0B,limit=64p,period=4us,spread=off,lambda=25%,p=5%,beta=1024B,unit=16B,tpid=0x88b5";
        let config = parse(long).unwrap();
        assert_eq!(parse(&config.to_string()).unwrap(), config);
        assert_eq!((config.tpid, config.target), (0x88b5, Bytes::ZERO));
        // A port accepts every TPID that hosts with a Linux kernel can use.
        assert_eq!([0x88a8, 0x8100].map(wire::caqm::is_free), [true; 2]);
        for (wrong, says) in [
            ("tpid=0x0800", "0x8100 where there are no VLANs"),
            ("tpid=88a8", "write it like 0x88a8"),
            ("period=0s", "above 0"),
            ("lambda=0%", "approves nothing"),
            ("unit=0B", "the usual one is 8B"),
            ("beta=1MB", "the usual one is 512B"),
            ("spread=yes", "on or off"),
            ("taget=3KB", "did you mean `target`"),
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
