//! Everything that `weir accel` can be told, and the file it is written in.

use crate::cgroup::Cgroup;
use crate::rules::{self, Rule, Tunables};
use crate::system::System;
use crate::{AccelError, Prefix};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use toml::Spanned;
use units::Span;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The first that fits decides.
    pub rules: Vec<Rule>,
    /// For sockets that choose the algorithm by themselves.
    pub defaults: Tunables,
    pub system: System,
}

impl Policy {
    pub fn check(&self) -> Result<(), AccelError> {
        rules::check(&self.rules)?;
        self.defaults.check()?;
        self.system.check()
    }

    pub fn read(path: &Path) -> Result<Self, AccelError> {
        let text =
            fs::read_to_string(path).map_err(|source| AccelError::file("reading", path, source))?;
        Self::parse(path, &text)
    }

    /// Everything in it is checked, the control groups it names included.
    pub fn parse(path: &Path, text: &str) -> Result<Self, AccelError> {
        let wrong = |at: usize, problem: String| AccelError::Policy {
            path: path.to_owned(),
            line: 1 + text[..at.min(text.len())].matches('\n').count(),
            problem,
        };
        let file: File = toml::from_str(text).map_err(|error| {
            wrong(error.span().map_or(0, |span| span.start), nearest(error.message()))
        })?;
        let defaults = file.defaults.over(Tunables::default());
        let mut policy = Self {
            rules: Vec::new(),
            defaults,
            system: System {
                wmem: file.system.wmem,
                mem: file.system.mem,
                wmem_max: file.system.wmem_max,
                timestamps: file.system.timestamps,
            },
        };
        policy.check().map_err(|error| wrong(0, error.to_string()))?;
        for table in file.rule {
            let at = table.span().start;
            let rule = table.into_inner().rule(defaults);
            policy.rules.push(rule.map_err(|error| wrong(at, error.to_string()))?);
            policy.check().map_err(|error| wrong(at, error.to_string()))?;
        }
        Ok(policy)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: Values,
    #[serde(default)]
    rule: Vec<Spanned<RuleTable>>,
    #[serde(default)]
    system: SystemTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    init_cwnd: Option<u32>,
    loss_init_cwnd: Option<u32>,
    memory_age: Option<Span>,
    /// The reference's name for whether there is a memory at all.
    metrics_minrtt: Option<bool>,
    rto_min: Option<Span>,
    rto_max: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    #[serde(default)]
    algorithm: Treatment,
    cgroup: Option<PathBuf>,
    to: Option<String>,
    port: Option<u16>,
    init_cwnd: Option<u32>,
    loss_init_cwnd: Option<u32>,
    memory_age: Option<Span>,
    /// The reference's name for whether there is a memory at all.
    metrics_minrtt: Option<bool>,
    rto_min: Option<Span>,
    rto_max: Option<Span>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Treatment {
    #[default]
    Tcpa,
    /// As the kernel would have it.
    None,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemTable {
    wmem: Option<[u64; 3]>,
    mem: Option<[u64; 3]>,
    wmem_max: Option<u64>,
    timestamps: Option<bool>,
    /// Forward acknowledgement left the kernel with 4.15; RACK does its work.
    #[serde(rename = "fack")]
    _fack: Option<u8>,
}

impl Values {
    fn over(&self, usual: Tunables) -> Tunables {
        Tunables {
            init_cwnd: self.init_cwnd.unwrap_or(usual.init_cwnd),
            loss_init_cwnd: self.loss_init_cwnd.unwrap_or(usual.loss_init_cwnd),
            memory_age: match self.metrics_minrtt {
                Some(false) => Span::ZERO,
                _ => self.memory_age.unwrap_or(usual.memory_age),
            },
            rto_min: self.rto_min.or(usual.rto_min),
            rto_max: self.rto_max.or(usual.rto_max),
        }
    }
}

impl RuleTable {
    fn rule(self, defaults: Tunables) -> Result<Rule, AccelError> {
        let values = Values {
            init_cwnd: self.init_cwnd,
            loss_init_cwnd: self.loss_init_cwnd,
            memory_age: self.memory_age,
            metrics_minrtt: self.metrics_minrtt,
            rto_min: self.rto_min,
            rto_max: self.rto_max,
        };
        if self.port == Some(0) {
            return Err(AccelError::Usage("port 0 is no port: leave it out for all".to_owned()));
        }
        let to = self.to.as_deref().map(str::parse::<Prefix>).transpose();
        Ok(Rule {
            cgroup: self.cgroup.as_deref().map(Cgroup::named).transpose()?,
            to: to.map_err(AccelError::Usage)?,
            port: self.port,
            tunables: match self.algorithm {
                Treatment::Tcpa => Some(values.over(defaults)),
                Treatment::None => None,
            },
        })
    }
}

/// serde names the unknown word and those it knows: which of them was meant?
fn nearest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(word) = quoted.next().filter(|_| message.starts_with("unknown ")) else {
        return message.to_owned();
    };
    let near = quoted
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, _)| *distance <= 3)
        .min();
    match near {
        Some((_, known)) => format!("{message}; did you mean `{known}`?"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Policy, String> {
        Policy::parse(Path::new("accel.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_policy() {
        let policy = parse(
            "[defaults]\ninit_cwnd = 30\n\n\
             [[rule]]\nport = 22\nalgorithm = \"none\"\n\n\
             [[rule]]\nto = \"203.0.113.0/24\"\ninit_cwnd = 90\nrto_min = \"50ms\"\n\n\
             [[rule]]\n\n[system]\nwmem = [4096, 16384, 8388608]\nfack = 0\ntimestamps = true\n",
        )
        .unwrap();
        assert_eq!(policy.rules.len(), 3);
        assert_eq!(policy.rules[0].tunables, None);
        assert_eq!(policy.rules[1].tunables.unwrap().rto_min, Some(Span::from_millis(50)));
        assert_eq!(policy.rules[2].tunables.unwrap().init_cwnd, 30);
        assert_eq!(policy.system.wmem, Some([4096, 16384, 8_388_608]));
        assert_eq!(parse("").unwrap(), Policy::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, told) in [
            ("[[rule]]\nprot = 80\n", 2, "did you mean `port`?"),
            ("[[rule]]\nport = 80\n\n[[rule]]\nto = \"10.0.0.1/8\"\n", 4, "behind the prefix"),
            ("[[rule]]\n[[rule]]\nport = 80\n", 2, "rule 2 never decides"),
            ("[[rule]]\ninit_cwnd = 0\n", 1, "init_cwnd"),
            ("[[rule]]\nport = 99999\n", 2, "99999"),
            ("[[rule]]\nalgorithm = \"tpca\"\n", 2, "did you mean `tcpa`?"),
            ("[defaults]\nrto_min = \"5\"\n", 2, "unit"),
            ("[system]\nwmem = [3, 2, 1]\n", 1, "wmem"),
            ("[rule\n", 1, ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("accel.toml:{line}: ")), "{text}: {error}");
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
