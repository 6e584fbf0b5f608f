//! The nine modules of the TCPA that the report describes, and the program that carries each
//! module: the kernel, tcpa's core, or both.

use crate::policy::Policy;
use crate::switches::KernelSwitch;
use crate::system::{self, read_sysctl};
use crate::work::Work;
use crate::{Rule, Tunables, algorithm};
use serde_json::{Map, Value, json};
use units::{Bytes, Rate, Span, Switch};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    pub name: &'static str,
    /// The code that implements the module: the kernel's own code, tcpa's C code, or both.
    pub carried_by: &'static str,
    /// Counts of all connections that had tcpa since it was installed, by name.
    pub counters: Vec<(&'static str, Counter)>,
    /// The keys of a policy that change the module, with their values.
    pub switches: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    Count(u64),
    Size(Bytes),
    /// The sum of the rates of the open connections.
    Rate(Rate),
}

/// Lists the modules in the order of the report's figure.
pub(crate) fn modules(policy: &Policy, work: &Work, pacing: Option<Rate>) -> Vec<Module> {
    let count = |name, value| (name, Counter::Count(value));
    let state = SwitchState::of(policy);
    let module = |name, carried_by, counters: Vec<_>, keys: &[&'static str]| Module {
        name,
        carried_by,
        counters,
        switches: keys.iter().filter_map(|key| Some((*key, state.of_key(key)?))).collect(),
    };
    let new = work.segments.saturating_sub(work.retransmitted);
    vec![
        module(
            "packet construction",
            "kernel",
            vec![("sent", Counter::Size(work.bytes))],
            &["wmem", "wmem_max", "mem", "timestamps"],
        ),
        module(
            "smooth sending",
            "kernel paces, core sets the rate",
            vec![("pacing", Counter::Rate(pacing.unwrap_or(Rate::from_bits_per_second(0))))],
            &["init_cwnd"],
        ),
        module(
            "timeout",
            "kernel, core sets the window after it",
            vec![count("timeouts", work.timeouts)],
            &["rto_min", "rto_max", "rto_factor", "frto", "loss_init_cwnd"],
        ),
        module(
            "probe",
            "kernel probes tails, core the path",
            vec![count("pauses", work.pauses)],
            &["tlp", "probe", "mtu_probing"],
        ),
        module("sack", "kernel", vec![count("arrived twice", work.duplicates)], &["sack", "dsack"]),
        module(
            "loss detection",
            "kernel (RACK)",
            vec![count("lost", work.lost), count("reordered", work.reordered)],
            &["rack", "reordering", "max_reordering"],
        ),
        module(
            "congestion control",
            "core",
            vec![
                count("recoveries", work.recoveries),
                count("restarts", work.restarts),
                count("recalled", work.recalled),
                count("remembered", work.remembered),
            ],
            &["min_window", "memory_age", "file_threshold"],
        ),
        module("retransmission", "kernel", vec![count("sent again", work.retransmitted)], &[]),
        module("new data", "kernel", vec![count("segments", new)], &[]),
    ]
}

struct SwitchState<'a> {
    policy: &'a Policy,
    /// The tunables of tcpa's rules; without such a rule, the tunables of programs that choose tcpa
    /// themselves.
    tunables: Vec<Tunables>,
}

impl<'a> SwitchState<'a> {
    fn of(policy: &'a Policy) -> Self {
        let is_tcpa = |rule: &&Rule| rule.gives() == Some(algorithm::NAME);
        let mut tunables: Vec<_> =
            policy.rules.iter().filter(is_tcpa).filter_map(|rule| rule.tunables).collect();
        if tunables.is_empty() {
            tunables.push(policy.defaults);
        }
        Self { policy, tunables }
    }

    /// Returns the value in each rule; if rules differ, their values as `1/2`.
    fn each(&self, shown: impl Fn(&Tunables) -> String) -> String {
        let mut values: Vec<_> = self.tunables.iter().map(shown).collect();
        values.dedup();
        values.join("/")
    }

    /// Returns the value of a setting by its key; `None` if the kernel lacks the setting.
    fn of_key(&self, key: &str) -> Option<String> {
        if let Some(switch) = KernelSwitch::named(key) {
            let wanted = self.policy.system.switches.get(switch.key);
            return wanted.map(|value| switch.shown(*value)).or_else(|| switch.now());
        }
        let bound =
            |span: Option<Span>, usual: &str| span.map_or(usual.to_owned(), |s| s.to_string());
        Some(match key {
            "wmem" => read_sysctl(system::WMEM)?,
            "mem" => read_sysctl(system::MEM)?,
            "wmem_max" => read_sysctl(system::WMEM_MAX)?,
            "timestamps" => Switch(read_sysctl(system::TIMESTAMPS)? != "0").to_string(),
            "init_cwnd" => self.each(|t| t.init_cwnd.to_string()),
            "loss_init_cwnd" => self.each(|t| t.loss_init_cwnd.to_string()),
            "min_window" => self.each(|t| t.min_window.to_string()),
            "memory_age" => self.each(|t| t.memory_age.to_string()),
            "file_threshold" => self.each(|t| t.file_threshold.to_string()),
            "probe" => self.each(|t| Switch(t.probe).to_string()),
            // TCP_RTO_MIN and TCP_RTO_MAX of include/net/tcp.h
            "rto_min" => self.each(|t| bound(t.rto_min, "200ms")),
            "rto_max" => self.each(|t| bound(t.rto_max, "120s")),
            _ => return None,
        })
    }
}

impl Module {
    pub(crate) fn row(&self) -> [String; 4] {
        let counters = self.counters.iter().map(|(name, counter)| match counter {
            Counter::Count(count) => format!("{name} {count}"),
            Counter::Size(bytes) => format!("{name} {}", bytes.shown()),
            Counter::Rate(rate) => format!("{name} {}", rate.shown()),
        });
        let switches = self.switches.iter().map(|(key, value)| format!("{key} {value}"));
        [
            self.name.to_owned(),
            self.carried_by.to_owned(),
            counters.collect::<Vec<_>>().join(", "),
            switches.collect::<Vec<_>>().join(", "),
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        let counters: Map<_, _> = self
            .counters
            .iter()
            .map(|(name, counter)| {
                let name = name.replace(' ', "_");
                match counter {
                    Counter::Count(count) => (name, json!(count)),
                    Counter::Size(bytes) => (format!("{name}_bytes"), json!(bytes.count())),
                    Counter::Rate(rate) => {
                        (format!("{name}_mbit_s"), json!(rate.mbit_per_second()))
                    }
                }
            })
            .collect();
        let switches: Map<_, _> =
            self.switches.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        json!({
            "name": self.name,
            "carried_by": self.carried_by,
            "counters": counters,
            "switches": switches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_nine_modules_has_a_carrier_and_a_counter() {
        let work = Work { segments: 10, retransmitted: 3, ..Work::default() };
        let modules = modules(&Policy::default(), &work, None);
        assert_eq!(modules.len(), 9);
        for module in &modules {
            assert!(!module.carried_by.is_empty() && !module.counters.is_empty(), "{module:?}");
        }
        let counters: Vec<_> = modules.iter().flat_map(|module| &module.counters).collect();
        assert!(counters.contains(&&("segments", Counter::Count(7))), "{counters:?}");
        let names: Vec<_> = modules.iter().map(|module| module.name).collect();
        assert!(names.is_sorted_by(|a, b| a != b), "{names:?}");
    }
}
