//! The names of tunables: Weir's keys, and the names in the report on TCPA, which are settings of a
//! kernel with that stack.

use crate::installation::in_force;
use crate::kernel::{self, Interface};
use crate::pins::{Pins, Presence};
use crate::rules::{Rule, Tunables};
use crate::switches::{KernelSwitch, SWITCHES};
use crate::system::{System, check_sysctl, read_sysctl};
use crate::{AccelError, Policy, algorithm};
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReportName {
    name: &'static str,
    key: &'static str,
    /// The unit of a bare number.
    unit: &'static str,
    how: &'static str,
}

const REPORT: [ReportName; 10] = [
    ReportName {
        name: "net.core.wmem_max",
        key: "wmem_max",
        unit: "",
        how: "applied: the same setting",
    },
    ReportName {
        name: "net.ipv4.tcp_fack",
        key: "fack",
        unit: "",
        how: "without effect: forward acknowledgement left Linux with 4.15, RACK replaces it",
    },
    ReportName {
        name: "net.ipv4.tcp_init_cwnd",
        key: "init_cwnd",
        unit: "",
        how: "mapped: of each rule; tcpa paces this window",
    },
    ReportName {
        name: "net.ipv4.tcp_loss_init_cwnd",
        key: "loss_init_cwnd",
        unit: "",
        how: "mapped: of each rule",
    },
    ReportName { name: "net.ipv4.tcp_mem", key: "mem", unit: "", how: "applied: the same setting" },
    ReportName {
        name: "net.ipv4.tcp_metrics_minrtt",
        key: "metrics_minrtt",
        unit: "",
        how: "mapped: 1 is memory_age=10m, 0 is memory_age=0s",
    },
    ReportName {
        name: "net.ipv4.tcp_rto_max",
        key: "rto_max",
        unit: "s",
        how: "mapped: of each rule, in seconds; Linux 6.15",
    },
    ReportName {
        name: "net.ipv4.tcp_rto_min",
        key: "rto_min",
        unit: "ms",
        how: "mapped: of each rule, in milliseconds",
    },
    ReportName {
        name: "net.ipv4.tcp_timestamps",
        key: "timestamps",
        unit: "",
        how: "applied: the same setting",
    },
    ReportName {
        name: "net.ipv4.tcp_wmem",
        key: "wmem",
        unit: "",
        how: "applied: the same setting",
    },
];

/// Tunables of rules that the report does not have.
const OF_RULES: [(&str, &str); 4] = [
    ("memory_age", "the oldest record of a path from which a connection starts"),
    ("min_window", "segments: no window is smaller"),
    ("probe", "pauses, in which the core looks at the path"),
    ("file_threshold", "bytes that a connection must deliver to leave a record of its path"),
];

/// Converts `NAME=VALUE` to Weir's key and unit. The second value is the report's name, if the text
/// uses a name of the report. Drops spaces around the sign, which `sysctl` prints.
pub(crate) fn in_own_words(text: &str) -> (Cow<'_, str>, Option<&'static str>) {
    let Some((name, value)) = text.split_once('=') else { return (text.into(), None) };
    let (name, value) = (name.trim(), value.trim());
    let short = |full: &'static str| full.rsplit_once('.').map_or(full, |(_, short)| short);
    // Without `tcp_`, most names are Weir's own keys, whose values have their own units.
    let is_of_report = |known: &&ReportName| name == known.name || name == short(known.name);
    let known = REPORT.iter().filter(|known| known.key != name).find(is_of_report);
    let Some(known) = known.or_else(|| REPORT.iter().find(|known| known.name == name)) else {
        let switch = SWITCHES.iter().find(|s| s.sysctl == name || short(s.sysctl) == name);
        return match switch {
            Some(switch) => {
                // Converts a number of the kernel to the value's text.
                let shown = value.parse().ok().and_then(|number| switch.of_kernel(number));
                let value = shown.unwrap_or_else(|| value.to_owned());
                (format!("{}={value}", switch.key).into(), Some(switch.sysctl))
            }
            None => (format!("{name}={value}").into(), None),
        };
    };
    let bare = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let unit = if bare { known.unit } else { "" };
    (format!("{}={value}{unit}", known.key).into(), Some(known.name))
}

pub(crate) fn unknown(name: &str) -> String {
    let rules = REPORT.iter().map(|known| known.key).chain(OF_RULES.map(|(key, _)| key));
    let all: Vec<_> = rules.chain(SWITCHES.map(|switch| switch.key)).collect();
    let hint = units::did_you_mean(name, all.iter().copied());
    format!(
        "no tunable is called `{name}`{hint}. There are {}; `weir accel set --list` explains them",
        all.join(", ")
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTunable {
    /// The name in the report, if the report has the tunable.
    pub report: Option<&'static str>,
    pub key: &'static str,
    /// The current value; `None` if the kernel lacks the setting.
    pub value: Option<String>,
    pub state: TunableState,
    /// The way in which Weir applies the tunable.
    pub how: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunableState {
    InForce,
    /// No policy set the tunable.
    Usual,
    /// Weir accepts the tunable, which has no effect.
    WithoutEffect,
    /// This machine refuses the tunable, for this reason.
    Refused(String),
}

impl ListedTunable {
    pub fn to_json(&self) -> Value {
        json!({
            "report": self.report,
            "key": self.key,
            "value": self.value,
            "state": self.state.name(),
            "refused": match &self.state {
                TunableState::Refused(why) => Some(why),
                _ => None,
            },
            "how": self.how,
        })
    }
}

impl TunableState {
    fn name(&self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Usual => "default",
            Self::WithoutEffect => "no effect",
            Self::Refused(_) => "refused",
        }
    }
}

/// Lists all tunables of tcpa and of the kernel's TCP, the tunables of the report first.
pub fn list() -> Result<Vec<ListedTunable>, AccelError> {
    let interface = kernel::interface()?;
    let pins = Pins::open_if_any()?;
    let is_on = pins.as_ref().is_some_and(|pins| pins.presence() == Presence::Whole);
    let policy = match &pins {
        Some(pins) => in_force(pins)?,
        None => Policy::default(),
    };
    let report = REPORT.iter().map(|known| (Some(known.name), known.key, known.how));
    let rules = OF_RULES.iter().map(|(key, how)| (None, *key, *how));
    let switches = SWITCHES.iter().map(|switch| (None, switch.key, switch.effect));
    let one = |(report, key, how)| {
        let (value, state) = state_of(key, &policy, interface, is_on);
        ListedTunable { report, key, value, state, how }
    };
    Ok(report.chain(rules).chain(switches).map(one).collect())
}

pub fn to_text(listed: &[ListedTunable], width: usize) -> String {
    let heads = ["name in the report", "key", "value", "state", "how"].map(str::to_owned);
    let mut rows = vec![heads];
    rows.extend(listed.iter().map(|one| {
        let how = match &one.state {
            TunableState::Refused(why) => why.clone(),
            _ => one.how.to_owned(),
        };
        [
            one.report.unwrap_or("-").to_owned(),
            one.key.to_owned(),
            one.value.clone().unwrap_or_else(|| "-".to_owned()),
            one.state.name().to_owned(),
            how,
        ]
    }));
    crate::table::left_table(&rows, width)
}

fn state_of(
    key: &str,
    policy: &Policy,
    interface: Interface,
    is_on: bool,
) -> (Option<String>, TunableState) {
    if let Some(switch) = KernelSwitch::named(key) {
        let wanted = policy.system.switches.get(switch.key);
        let state = match (key, wanted) {
            ("rack", _) if !interface.rack_is_optional => {
                TunableState::Refused("this kernel always detects losses by RACK".to_owned())
            }
            _ => state_of_setting(switch.sysctl, wanted.is_some()),
        };
        return (switch.now(), state);
    }
    let set = |is_set: bool| if is_set { TunableState::InForce } else { TunableState::Usual };
    if let Some((sysctl, is_set)) = policy.system.setting(key) {
        return (read_sysctl(sysctl), state_of_setting(sysctl, is_set));
    }
    if key == "fack" {
        return (None, TunableState::WithoutEffect);
    }
    if key == "rto_max" && !interface.rto_max {
        let why = "this kernel sets no bound for a socket: Linux 6.15 does";
        return (None, TunableState::Refused(why.to_owned()));
    }
    let usual = Tunables::default();
    let ours = policy.rules.iter().filter(|rule| rule.gives() == Some(algorithm::NAME));
    let mut values: Vec<String> = ours
        .filter_map(|rule: &Rule| rule.tunables)
        .chain((!key.starts_with("rto_")).then_some(policy.defaults))
        .map(|tunables| tunables.value_of(key))
        .collect();
    if values.is_empty() {
        values.push(usual.value_of(key));
    }
    let is_set = is_on && values.iter().any(|value| *value != usual.value_of(key));
    values.dedup();
    (Some(values.join(", ")), set(is_set))
}

fn state_of_setting(sysctl: &str, is_set: bool) -> TunableState {
    match check_sysctl(sysctl) {
        _ if is_set => TunableState::InForce,
        Err(error) => TunableState::Refused(error.to_string()),
        Ok(()) => TunableState::Usual,
    }
}

impl Tunables {
    /// Returns the value of a tunable, as `set` takes it.
    fn value_of(&self, key: &str) -> String {
        let kernels =
            |bound: Option<units::Span>| bound.map_or("kernel's".to_owned(), |b| b.to_string());
        match key {
            "init_cwnd" => self.init_cwnd.to_string(),
            "loss_init_cwnd" => self.loss_init_cwnd.to_string(),
            "metrics_minrtt" => u8::from(self.memory_age > units::Span::ZERO).to_string(),
            "memory_age" => self.memory_age.to_string(),
            "min_window" => self.min_window.to_string(),
            "probe" => units::Switch(self.probe).to_string(),
            "file_threshold" => self.file_threshold.to_string(),
            "rto_min" => kernels(self.rto_min),
            "rto_max" => kernels(self.rto_max),
            _ => String::new(),
        }
    }
}

impl System {
    /// Returns the kernel's name of a setting, and whether this policy sets it.
    fn setting(&self, key: &str) -> Option<(&'static str, bool)> {
        match key {
            "wmem" => Some((crate::system::WMEM, self.wmem.is_some())),
            "mem" => Some((crate::system::MEM, self.mem.is_some())),
            "wmem_max" => Some((crate::system::WMEM_MAX, self.wmem_max.is_some())),
            "timestamps" => Some((crate::system::TIMESTAMPS, self.timestamps.is_some())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_in_the_table_of_the_report_is_accepted() {
        let text = "\
            net.core.wmem_max = 3276800\n\
            net.ipv4.tcp_fack = 0\n\
            net.ipv4.tcp_init_cwnd = 10\n\
            net.ipv4.tcp_loss_init_cwnd = 1\n\
            net.ipv4.tcp_mem = 379479      505972  758958\n\
            net.ipv4.tcp_metrics_minrtt = 0\n\
            net.ipv4.tcp_rto_max = 120\n\
            net.ipv4.tcp_rto_min = 200\n\
            net.ipv4.tcp_timestamps = 1\n\
            net.ipv4.tcp_wmem = 4096       16384   4194304";
        let (mut tunables, mut system) = (Tunables::default(), System::default());
        for line in text.lines() {
            let (own, name) = in_own_words(line);
            assert!(line.starts_with(name.unwrap()), "{line}");
            let (key, value) = own.split_once('=').unwrap();
            if !system.set(key, value).unwrap() {
                tunables.set(&own).unwrap();
            }
        }
        tunables.check().unwrap();
        system.check().unwrap();
        assert_eq!((tunables.init_cwnd, tunables.loss_init_cwnd), (10, 1));
        assert_eq!(tunables.memory_age, units::Span::ZERO);
        assert_eq!(tunables.rto_max, Some(units::Span::from_secs(120)));
        assert_eq!(tunables.rto_min, Some(units::Span::from_millis(200)));
        assert_eq!(system.wmem_max, Some(3_276_800));
        assert_eq!(system.mem, Some([379_479, 505_972, 758_958]));
        assert_eq!(system.wmem, Some([4096, 16384, 4_194_304]));
        assert_eq!(system.timestamps, Some(true));
    }

    #[test]
    fn a_value_gets_the_unit_that_its_sysctl_implies() {
        for (text, own, name) in [
            ("tcp_rto_min=50", "rto_min=50ms", Some("net.ipv4.tcp_rto_min")),
            ("rto_min=50ms", "rto_min=50ms", None),
            // Weir's own keys need a unit.
            ("rto_min=50", "rto_min=50", None),
            ("tcp_rto_max=2s", "rto_max=2s", Some("net.ipv4.tcp_rto_max")),
            ("wmem_max=4608", "wmem_max=4608", None),
            ("net.ipv4.tcp_recovery=1", "rack=on", Some("net.ipv4.tcp_recovery")),
            ("tcp_early_retrans = 0", "tlp=off", Some("net.ipv4.tcp_early_retrans")),
            // The kernel lacks this value, or Weir does not support the value.
            ("tcp_early_retrans=9", "tlp=9", Some("net.ipv4.tcp_early_retrans")),
            ("init_cwnd", "init_cwnd", None),
            ("tcp_init_cwnd=", "init_cwnd=", Some("net.ipv4.tcp_init_cwnd")),
        ] {
            assert_eq!(in_own_words(text), (own.into(), name), "{text}");
        }
        assert!(unknown("init_cwmd").contains("did you mean `init_cwnd`?"));
        assert!(unknown("speed").contains("weir accel set --list"));
    }
}
