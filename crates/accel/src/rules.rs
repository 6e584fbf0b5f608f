//! The rules that select and configure connections, in order: the first matching rule decides.

use crate::algorithm::NAME;
use crate::cgroup::Cgroup;
use crate::names;
use crate::{AccelError, KernelAlgorithm, Prefix};
use units::{Bytes, Span, Switch};

/// A rule. A rule without conditions matches every connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    pub cgroup: Option<Cgroup>,
    /// The peer's address.
    pub to: Option<Prefix>,
    /// The local port.
    pub port: Option<u16>,
    /// Tunables of a matching connection; `None` leaves the connection unchanged.
    pub tunables: Option<Tunables>,
    /// The kernel's algorithm that a matching connection gets instead of tcpa. The bounds of the
    /// timeout are the only tunables of such a connection.
    pub algorithm: Option<KernelAlgorithm>,
    /// Whether the rule also matches connections whose program named an algorithm.
    pub named_too: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// The first window in segments, paced over the first round trip.
    pub init_cwnd: u32,
    /// The window in segments after a retransmission timeout.
    pub loss_init_cwnd: u32,
    /// The maximum age of a memory of the path; zero: use no memory.
    pub memory_age: Span,
    /// Minimum congestion window of tcpa, in segments.
    pub min_window: u32,
    /// Whether tcpa pauses at times, to measure the path without this host's flows.
    pub probe: bool,
    /// The bytes that a connection must at least deliver to leave a memory of its path.
    pub file_threshold: Bytes,
    /// The bounds of the retransmission timeout; `None` leaves the kernel's bound.
    pub rto_min: Option<Span>,
    pub rto_max: Option<Span>,
}

impl Default for Tunables {
    /// Returns the defaults of `cc`.
    fn default() -> Self {
        Self {
            init_cwnd: 48,
            loss_init_cwnd: 10,
            memory_age: Span::from_secs(600),
            min_window: 1,
            probe: true,
            file_threshold: Bytes::ZERO,
            rto_min: None,
            rto_max: None,
        }
    }
}

impl Rule {
    /// Returns the algorithm that a matching connection gets.
    pub fn gives(&self) -> Option<&str> {
        self.tunables.map(|_| self.algorithm.as_ref().map_or(NAME, KernelAlgorithm::name))
    }

    /// Whether every connection that matches `later` matches this rule too.
    pub(crate) fn covers(&self, later: &Self) -> bool {
        let cgroup = match (&self.cgroup, &later.cgroup) {
            (None, _) => true,
            (Some(mine), Some(theirs)) => theirs.path.starts_with(&mine.path),
            (Some(_), None) => false,
        };
        let to = match (self.to, later.to) {
            (None, _) => true,
            (Some(mine), Some(theirs)) => mine.covers(theirs),
            (Some(_), None) => false,
        };
        cgroup && to && (self.port.is_none() || self.port == later.port)
    }

    pub(crate) fn to_bytes(&self) -> [u8; RULE_BYTES] {
        let (address, bits) = self.to.map_or(([0; 16], 0), Prefix::mapped);
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0).to_be_bytes();
        let tunables = self.tunables.unwrap_or_default();
        let micros = |span: Option<Span>| span.map_or(0, |span| (span.nanos() / 1000) as u32);
        let mut bytes = [0; RULE_BYTES];
        bytes[..16].copy_from_slice(&address);
        bytes[16..32].copy_from_slice(&mask);
        bytes[32..40].copy_from_slice(&self.cgroup.as_ref().map_or(0, |c| c.id).to_ne_bytes());
        bytes[40..42].copy_from_slice(&self.port.unwrap_or(0).to_ne_bytes());
        bytes[42] = self.tunables.is_some().into();
        bytes[43] = self.named_too.into();
        bytes[44..48].copy_from_slice(&micros(tunables.rto_min).to_ne_bytes());
        bytes[48..52].copy_from_slice(&(micros(tunables.rto_max) / 1000).to_ne_bytes());
        let name = self.algorithm.as_ref().map_or(NAME, KernelAlgorithm::name);
        bytes[56..56 + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    /// Parses a rule in the kernel's format. A control group that no longer exists appears with
    /// its number.
    pub(crate) fn from_bytes(bytes: &[u8; RULE_BYTES], settings: [u8; TUNABLES_BYTES]) -> Self {
        let word = |at: usize| number(bytes, at);
        let (mut cgroup, mut address, mut mask) = ([0; 8], [0; 16], [0; 16]);
        address.copy_from_slice(&bytes[..16]);
        mask.copy_from_slice(&bytes[16..32]);
        cgroup.copy_from_slice(&bytes[32..40]);
        let bits = u128::from_be_bytes(mask).leading_ones();
        let span = |micros: u64| (micros > 0).then(|| Span::from_micros(micros));
        let tunables = Tunables {
            rto_min: span(word(44).into()),
            rto_max: span(u64::from(word(48)) * 1000),
            ..Tunables::from_bytes(settings)
        };
        Self {
            cgroup: match u64::from_ne_bytes(cgroup) {
                0 => None,
                id => Some(Cgroup::numbered(id).unwrap_or_else(|| Cgroup {
                    path: format!("(removed, number {id})").into(),
                    id,
                })),
            },
            to: Some(bits).filter(|bits| *bits > 0).and_then(|b| Prefix::from_mapped(address, b)),
            port: Some(u16::from_ne_bytes([bytes[40], bytes[41]])).filter(|port| *port > 0),
            tunables: (bytes[42] != 0).then_some(tunables),
            algorithm: KernelAlgorithm::in_force(&String::from_utf8_lossy(
                bytes[56..].split(|byte| *byte == 0).next().unwrap_or_default(),
            )),
            named_too: bytes[43] & NAMED_TOO != 0,
        }
    }
}

impl Tunables {
    /// Refuses values that no connection can work with, before anything is changed.
    pub fn check(&self) -> Result<(), AccelError> {
        let refuse =
            |name, advice: &'static str| Err(AccelError::Tunable { name, advice: advice.into() });
        if !(1..=MOST_SEGMENTS).contains(&self.init_cwnd) {
            return refuse("init_cwnd", "a window holds 1 to 10000 segments; 10 to 120 is usual");
        }
        if !(1..=MOST_SEGMENTS).contains(&self.loss_init_cwnd) {
            return refuse(
                "loss_init_cwnd",
                "a window holds 1 to 10000 segments; 1 to 10 is usual",
            );
        }
        if self.memory_age > Span::from_secs(MOST_AGE)
            || !self.memory_age.nanos().is_multiple_of(1_000_000_000)
        {
            return refuse("memory_age", "whole seconds up to a week; 0s uses no memory");
        }
        if !(1..=MOST_LEAST).contains(&self.min_window) {
            return refuse("min_window", "1 to 100 segments; 1 is usual");
        }
        if self.file_threshold.count() > MOST_THRESHOLD {
            return refuse("file_threshold", "0B to 1GiB; 0B remembers the path of every file");
        }
        let (least, most) = (Span::from_millis(5), Span::from_millis(200));
        if self.rto_min.is_some_and(|rto| rto < least || rto > most) {
            return refuse(
                "rto_min",
                "the kernel takes 5ms to 200ms from a program; a route takes more, as in `ip route change \
                 203.0.113.0/24 via 192.0.2.1 rto_min 400ms`",
            );
        }
        let (least, most) = (Span::from_secs(1), Span::from_secs(120));
        if self.rto_max.is_some_and(|rto| rto < least || rto > most) {
            return refuse("rto_max", "the kernel takes 1s to 120s");
        }
        Ok(())
    }

    pub fn set(&mut self, text: &str) -> Result<(), AccelError> {
        let wrong = |problem: String| AccelError::Usage(format!("`{text}`: {problem}"));
        let (name, value) =
            text.split_once('=').ok_or_else(|| wrong("write NAME=VALUE".to_owned()))?;
        let segments =
            || value.parse::<u32>().map_err(|_| wrong("expected a number of segments".to_owned()));
        let span = || value.parse::<Span>().map(Some).map_err(|error| wrong(error.to_string()));
        match name {
            "init_cwnd" => self.init_cwnd = segments()?,
            "loss_init_cwnd" => self.loss_init_cwnd = segments()?,
            "memory_age" => self.memory_age = span()?.unwrap_or_default(),
            "metrics_minrtt" => match value.parse() {
                Ok(Switch(false)) => self.memory_age = Span::ZERO,
                Ok(Switch(true)) => self.memory_age = Self::default().memory_age,
                Err(_) => return Err(wrong("choose on or off".to_owned())),
            },
            "min_window" => self.min_window = segments()?,
            "probe" => match value.parse() {
                Ok(Switch(on)) => self.probe = on,
                Err(_) => return Err(wrong("choose on or off".to_owned())),
            },
            "file_threshold" => {
                self.file_threshold =
                    value.parse().map_err(|error: units::UnitError| wrong(error.to_string()))?;
            }
            "rto_min" => self.rto_min = span()?,
            "rto_max" => self.rto_max = span()?,
            _ => return Err(wrong(names::unknown(name))),
        }
        Ok(())
    }

    /// Parses the tunables without the bounds of the timeout, which belong to a rule.
    pub(crate) fn from_bytes(bytes: [u8; TUNABLES_BYTES]) -> Self {
        Self {
            init_cwnd: number(&bytes, 0),
            loss_init_cwnd: number(&bytes, 4),
            memory_age: Span::from_secs(number(&bytes, 8).into()),
            min_window: number(&bytes, 12).max(1),
            file_threshold: Bytes::new(u64::from_ne_bytes(
                bytes[16..].first_chunk().copied().unwrap_or_default(),
            )),
            probe: number(&bytes, 24) == 0,
            rto_min: None,
            rto_max: None,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; TUNABLES_BYTES] {
        let mut bytes = [0; TUNABLES_BYTES];
        bytes[..4].copy_from_slice(&self.init_cwnd.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.loss_init_cwnd.to_ne_bytes());
        let seconds = (self.memory_age.nanos() / 1_000_000_000) as u32;
        bytes[8..12].copy_from_slice(&seconds.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.min_window.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.file_threshold.count().to_ne_bytes());
        bytes[24..28].copy_from_slice(&u32::from(!self.probe).to_ne_bytes());
        bytes
    }
}

/// Checks that all values are in bounds and no rule is hidden behind an earlier rule.
pub fn check(rules: &[Rule]) -> Result<(), AccelError> {
    if rules.len() > MOST_RULES {
        return Err(AccelError::TooManyRules { count: rules.len(), most: MOST_RULES });
    }
    for (later, rule) in rules.iter().enumerate() {
        rule.tunables.map_or(Ok(()), |tunables| tunables.check())?;
        if let Some(earlier) = rules[..later].iter().position(|earlier| earlier.covers(rule)) {
            return Err(AccelError::HiddenRule { earlier: earlier + 1, later: later + 1 });
        }
    }
    Ok(())
}

/// Replaces the rule with the same conditions, or inserts the rule before the first rule that
/// covers the new rule.
pub fn insert(rules: &mut Vec<Rule>, rule: Rule) {
    let same = |other: &Rule| other.covers(&rule) && rule.covers(other);
    if let Some(at) = rules.iter().position(same) {
        rules[at] = rule;
        return;
    }
    let at = rules.iter().position(|other| other.covers(&rule)).unwrap_or(rules.len());
    rules.insert(at, rule);
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The flags of a rule: RULE_NAMED_TOO and RULE_AFTER_CAQM of bpf/rules.h.
const NAMED_TOO: u8 = 1;
pub(crate) const AFTER_CAQM: u8 = 2;
pub(crate) const FLAGS_AT: usize = 43;
/// Maximum number of rules: ACCEL_RULES of bpf/flow.h.
pub(crate) const MOST_RULES: usize = 64;
/// The size of `struct rule` of bpf/rules.h.
pub(crate) const RULE_BYTES: usize = 72;
/// The size of `struct tunables` of bpf/flow.h.
pub(crate) const TUNABLES_BYTES: usize = 32;
/// Maximum `memory_age`: a week.
const MOST_AGE: u64 = 7 * 24 * 3600;
const MOST_SEGMENTS: u32 = 10_000;
/// Maximum `min_window` in segments. A larger window would flood a path that loses packets.
const MOST_LEAST: u32 = 100;
const MOST_THRESHOLD: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(to: Option<&str>, port: Option<u16>) -> Rule {
        let to = to.map(|to| to.parse().unwrap());
        Rule { to, port, tunables: Some(Tunables::default()), ..Rule::default() }
    }

    #[test]
    fn a_rule_behind_a_rule_that_covers_it_is_refused() {
        let wide = rule(Some("10.0.0.0/8"), None);
        let narrow = rule(Some("10.1.0.0/16"), Some(443));
        assert!(check(&[narrow.clone(), wide.clone()]).is_ok());
        let error = check(&[wide, narrow]).unwrap_err().to_string();
        assert!(error.contains("rule 2") && error.contains("rule 1"), "{error}");
        let error = check(&[rule(None, None), rule(None, None)]).unwrap_err().to_string();
        assert!(error.contains("never"), "{error}");
    }

    #[test]
    fn an_added_rule_goes_before_rules_that_would_hide_it() {
        let mut rules = vec![rule(None, Some(80)), rule(None, None)];
        insert(&mut rules, rule(Some("10.0.0.0/8"), None));
        insert(&mut rules, Rule { tunables: None, ..rule(None, Some(80)) });
        insert(&mut rules, rule(None, Some(443)));
        assert!(check(&rules).is_ok(), "{rules:?}");
        assert_eq!(rules.len(), 4);
        assert_eq!(rules[0].tunables, None);
        assert_eq!(rules[3], rule(None, None));
    }

    #[test]
    fn a_rule_from_the_kernel_is_parsed() {
        let tunables = Tunables {
            init_cwnd: 90,
            min_window: 4,
            probe: false,
            file_threshold: Bytes::new(5 << 30),
            rto_min: Some(Span::from_millis(50)),
            rto_max: Some(Span::from_secs(3)),
            ..Tunables::default()
        };
        let rule = Rule { tunables: Some(tunables), ..rule(Some("2001:db8::/32"), Some(80)) };
        assert_eq!(Rule::from_bytes(&rule.to_bytes(), tunables.to_bytes()), rule);
        let reno = Rule { algorithm: Some("reno".parse().unwrap()), ..rule.clone() };
        assert_eq!(Rule::from_bytes(&reno.to_bytes(), tunables.to_bytes()), reno);
        assert_eq!((rule.gives(), reno.gives()), (Some("tcpa"), Some("reno")));
        let leave = Rule { tunables: None, ..rule };
        assert_eq!(Rule::from_bytes(&leave.to_bytes(), tunables.to_bytes()), leave);
        assert_eq!(leave.gives(), None);
    }

    #[test]
    fn an_impossible_tunable_is_reported() {
        let usual = Tunables::default();
        for (tunables, name) in [
            (Tunables { init_cwnd: 0, ..usual }, "init_cwnd"),
            (Tunables { loss_init_cwnd: 1 << 20, ..usual }, "loss_init_cwnd"),
            (Tunables { min_window: 0, ..usual }, "min_window"),
            (Tunables { min_window: 101, ..usual }, "min_window"),
            (Tunables { file_threshold: Bytes::new(2 << 30), ..usual }, "file_threshold"),
            (Tunables { rto_min: Some(Span::from_secs(1)), ..usual }, "rto_min"),
            (Tunables { rto_max: Some(Span::from_millis(1)), ..usual }, "rto_max"),
        ] {
            let error = tunables.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
