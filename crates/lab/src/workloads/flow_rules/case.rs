//! The settings of one cell, parsed from the keys of `[workload]`.

use super::rule_set::{RULE_SETS, RuleSet};
use crate::model::file::{Document, FileError, Key, bounded};
use generator::Addressing;
use results::{Axes, NOT_RUN};
use units::Span;

/// The settings of a cell of `flow_rules`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(super) set: RuleSet,
    /// Number of rules in addition to the common rules. If the set has one rule for all traffic:
    /// number of five-tuples.
    pub(super) rules: u32,
    /// Number of packet threads.
    pub(super) pmds: usize,
    pub(super) order: Addressing,
    /// The ports of the highest rate without loss and of the fixed load, in the full form.
    pub(super) ports: PushedPorts,
    /// Sum of the durations of a search's trials at one load, in the full form.
    pub(super) search: Span,
    /// The planned time of a fixed load, in the full form.
    pub(super) load: Span,
}

/// The kind of ports into which a generator sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PushedPorts {
    #[default]
    VhostUser,
    /// The ports are veth pairs with packet sockets.
    Veth,
    /// The ports are TAP devices of the switch, with packet sockets on the kernel's side of the
    /// devices.
    Tap,
}

pub(super) const KEYS: &[Key] = &[SET, RULES, PMDS, ORDER, PORTS, SEARCH, LOAD];

impl Case {
    pub(super) fn parse(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        let set = document.workload_key(axes, SET, |text| {
            let found = RULE_SETS.iter().find(|(name, _)| *name == text);
            found.map(|(_, set)| *set).ok_or_else(|| {
                let names = RULE_SETS.map(|(name, _)| name);
                let hint = units::did_you_mean(text, names);
                format!("`{text}` is no set of rules{hint}; there are {}", names.join(", "))
            })
        })?;
        let order = document.workload_key(axes, ORDER, |text| {
            text.parse::<Addressing>().map_err(|error| error.to_string())
        })?;
        let ports = document.workload_key(axes, PORTS, |text| match text {
            "vhost-user" => Ok(PushedPorts::VhostUser),
            "veth" => Ok(PushedPorts::Veth),
            "tap" => Ok(PushedPorts::Tap),
            _ => {
                let hint = units::did_you_mean(text, ["vhost-user", "veth", "tap"]);
                Err(format!(
                    "`{text}` is no kind of port{hint}; there are vhost-user, veth and tap"
                ))
            }
        })?;
        let span = |key: Key| {
            document.workload_key(axes, key, |text| {
                bounded(text, SHORTEST..=LONGEST, || {
                    format!("`{}` is from {SHORTEST} to {LONGEST}", key.name)
                })
            })
        };
        let missing = |key: Key| {
            let message = format!("`{}` is missing here", key.name);
            document.source.error(document.workload.span(), message)
        };
        Ok(Self {
            set: set.ok_or_else(|| missing(SET))?,
            rules: document
                .workload_count(axes, RULES, 1..=MOST_RULES)?
                .ok_or_else(|| missing(RULES))?,
            pmds: document.workload_count(axes, PMDS, 1..=64)?.unwrap_or(1) as usize,
            order: order.unwrap_or_default(),
            ports: ports.unwrap_or_default(),
            search: span(SEARCH)?.unwrap_or(Span::from_secs(5)),
            load: span(LOAD)?.unwrap_or(Span::from_secs(10)),
        })
    }

    /// Returns the minimum number of CPUs with which a window of the cell can be valid. Two or more
    /// packet threads never leave their CPUs: the switch's other threads, the generator and the lab
    /// share one more CPU.
    pub(super) fn least_cpus(&self) -> usize {
        match self.pmds {
            0 | 1 => 1,
            pmds => pmds + 1,
        }
    }

    /// Returns the reason why a machine with `online` CPUs cannot run the cell.
    pub(super) fn not_run(&self, online: usize) -> Option<String> {
        let needs = self.least_cpus();
        (needs > online).then(|| format!("{NOT_RUN}needs {needs} CPUs, this machine has {online}"))
    }
}

const SET: Key = Key::text("set");
const RULES: Key = Key::count("rules");
const PMDS: Key = Key::count("pmds");
const ORDER: Key = Key::text("order");
const PORTS: Key = Key::text("ports");
const SEARCH: Key = Key::text("search");
const LOAD: Key = Key::text("load");
/// Maximum number of rules. The translated addresses of more rules would not fit into
/// 48.128.0.0/13.
const MOST_RULES: u32 = 500_000;
const SHORTEST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_packet_threads_need_one_more_cpu() {
        let case = |pmds| Case {
            set: RuleSet::Raw,
            rules: 1,
            pmds,
            order: Addressing::Lockstep,
            ports: PushedPorts::VhostUser,
            search: Span::from_secs(1),
            load: Span::from_secs(1),
        };
        let told = "not run: needs 3 CPUs, this machine has 2";
        assert_eq!(case(2).not_run(2).as_deref(), Some(told));
        assert_eq!(case(2).not_run(3), None);
        assert_eq!(case(1).not_run(1), None);
        assert!(case(4).not_run(4).is_some());
    }
}
