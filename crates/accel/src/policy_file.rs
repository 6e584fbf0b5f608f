//! The file format of policies.

use crate::algorithm::{Algorithm, NAME};
use crate::caqm::{InterfaceName, Network};
use crate::cgroup::Cgroup;
use crate::installation::{self, Applied};
use crate::open::Reach;
use crate::pins::{self, Pins, Presence};
use crate::rules::{self, Rule, Tunables};
use crate::system::System;
use crate::{AccelError, KernelAlgorithm, Policy, Prefix, caqm, kernel};
use serde::Deserialize;
use serde::de::Unexpected;
use settings::{Mistakes, Node, Setting, leaves, table};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;
use units::{Bytes, Span, Switch};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyFile {
    pub tcpa: Policy,
    /// CAQM's part; `None` if no rule chooses CAQM.
    pub caqm: Option<CaqmPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaqmPart {
    /// CAQM's rules, and earlier rules that choose another algorithm. Connections of the earlier
    /// rules do not offer CAQM.
    pub rules: Vec<Rule>,
    /// Interfaces to add to the present interfaces. Without any interface, CAQM uses all interfaces
    /// of this network namespace.
    pub interfaces: Vec<InterfaceName>,
    pub network: Network,
}

impl PolicyFile {
    pub fn read(path: &Path) -> Result<Self, AccelError> {
        let text = host::read_regular_file(path)
            .map_err(|source| AccelError::NoPolicy { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks everything in the file, including the control groups it names. Interfaces are looked
    /// up when the policy is applied.
    pub fn parse(path: &Path, text: &str) -> Result<Self, AccelError> {
        let wrong = |at: usize, problem: String| AccelError::Policy {
            path: path.to_owned(),
            line: settings::line(text, at),
            problem,
        };
        let file: File = settings::parse(text).map_err(|mistake| {
            let at = mistake.place.start;
            wrong(at, bare_word(text, at).unwrap_or_else(|| mistake.what.to_string()))
        })?;
        let defaults = file.defaults.over(Tunables::default());
        let mut tcpa = Policy {
            rules: Vec::new(),
            defaults,
            system: System {
                wmem: file.system.wmem,
                mem: file.system.mem,
                wmem_max: file.system.wmem_max,
                timestamps: file.system.timestamps.map(|Switch(on)| on),
                switches: BTreeMap::new(),
            },
        };
        for (key, value) in file.system.switches() {
            let value = &value.0;
            tcpa.system.set(key, value).map_err(|error| wrong(0, error.to_string()))?;
        }
        tcpa.check().map_err(|error| wrong(0, error.to_string()))?;
        let mut chosen = CaqmRules::default();
        for table in file.rule {
            let at = table.span().start;
            let add = || {
                let table = table.into_inner();
                let treatment = table.algorithm.clone();
                let rule = table.rule(defaults)?;
                chosen.add(rule, treatment, &mut tcpa.rules)?;
                tcpa.check()
            };
            add().map_err(|error| match error {
                // A hidden mount is no mistake of the file.
                hidden @ AccelError::HiddenMount { .. } => hidden,
                error => wrong(at, error.to_string()),
            })?;
        }
        let at = file.caqm.as_ref().map_or(0, |table| table.span().start);
        let caqm = chosen.caqm(file.caqm.map(Spanned::into_inner));
        Ok(Self { tcpa, caqm: caqm.map_err(|error| wrong(at, error.to_string()))? })
    }

    /// Checks that this machine has all that [`PolicyFile::apply`] needs, and changes nothing.
    pub fn check_machine(&self, reach: Reach) -> Result<(), AccelError> {
        let kernel = kernel::interface()?;
        kernel.check(&self.tcpa, reach)?;
        let pins = Pins::open()?;
        if pins.presence() == Presence::Nothing && !self.is_caqm_alone() {
            Algorithm::check_name_is_free()?;
        }
        self.tcpa.system.check_here()?;
        let Some(caqm) = &self.caqm else { return Ok(()) };
        kernel.check_caqm()?;
        drop(pins);
        caqm::installation::check_interfaces(&caqm.interfaces)
    }

    /// Applies the file to connections from now on; the kernel's defaults hold for everything that
    /// the file does not name. On failure nothing has changed, or the error names the changes that
    /// remain. `None` if the file changes nothing of tcpa.
    pub fn apply(&self, reach: Reach) -> Result<Option<Applied>, AccelError> {
        let before = self.apply_caqm()?;
        if self.is_caqm_alone() && Pins::open()?.presence() == Presence::Nothing {
            return Ok(None);
        }
        installation::apply(&self.tcpa, reach).map(Some).map_err(|failure| {
            failure.after(match before {
                EarlierState::Untouched => Ok(()),
                EarlierState::Nothing => caqm::installation::remove().map(drop),
                EarlierState::Plan(plan) => caqm::installation::change(&[], |now| {
                    *now = plan;
                    Ok(())
                })
                .map(drop),
            })
        })
    }

    fn apply_caqm(&self) -> Result<EarlierState, AccelError> {
        let before = {
            // The open pins hold the lock, so that other commands wait.
            let pins = Pins::open_of(&pins::CAQM)?;
            let there = pins.presence() == Presence::Whole;
            there.then(|| caqm::installation::in_force(&pins)).transpose()?
        };
        match &self.caqm {
            None if before.as_ref().is_none_or(|plan| plan.rules.is_empty()) => {
                return Ok(EarlierState::Untouched);
            }
            None => caqm::installation::change(&[], |plan| {
                plan.rules.clear();
                Ok(())
            })?,
            Some(part) => caqm::installation::change(&part.interfaces, |plan| {
                plan.rules.clone_from(&part.rules);
                plan.network = part.network;
                Ok(())
            })?,
        };
        Ok(before.map_or(EarlierState::Nothing, EarlierState::Plan))
    }

    fn is_caqm_alone(&self) -> bool {
        let accelerates = self.tcpa.rules.iter().any(|rule| rule.tunables.is_some());
        self.caqm.is_some() && !accelerates && self.tcpa.system == System::default()
    }
}

#[derive(Debug)]
enum EarlierState {
    Untouched,
    Nothing,
    Plan(caqm::installation::Plan),
}

#[derive(Debug, Default)]
struct CaqmRules {
    rules: Vec<Rule>,
    /// The number of each rule in the file.
    numbers: Vec<usize>,
    count: usize,
    any: bool,
}

impl CaqmRules {
    /// Adds a rule to tcpa's rules or to CAQM's. If an end does not offer CAQM, the next matching
    /// rule decides, so tcpa ignores CAQM's rules.
    fn add(
        &mut self,
        rule: Rule,
        treatment: RuleAlgorithm,
        tcpa: &mut Vec<Rule>,
    ) -> Result<(), AccelError> {
        self.count += 1;
        let covered = self.rules.iter().position(|earlier| earlier.covers(&rule));
        let is_caqm = treatment == RuleAlgorithm::Caqm;
        match covered {
            Some(at) if is_caqm => {
                return Err(AccelError::HiddenRule {
                    earlier: self.numbers[at],
                    later: self.count,
                });
            }
            Some(_) => {}
            None => {
                let tunables = is_caqm.then(Tunables::default);
                self.rules.push(Rule { tunables, ..rule.clone() });
                self.numbers.push(self.count);
            }
        }
        self.any |= is_caqm;
        if !is_caqm {
            tcpa.push(rule);
        }
        Ok(())
    }

    fn caqm(mut self, table: Option<CaqmTable>) -> Result<Option<CaqmPart>, AccelError> {
        if !self.any {
            return match table {
                None => Ok(None),
                Some(_) => Err(AccelError::Usage(
                    "no rule chooses caqm: write algorithm = \"caqm\" into one, or leave [caqm] out".to_owned(),
                )),
            };
        }
        let last = self.rules.iter().rposition(|rule| rule.tunables.is_some());
        self.rules.truncate(last.map_or(0, |last| last + 1));
        let table = table.unwrap_or_default();
        if table.enable == Some(Switch(false)) {
            let problem = "enable = false beside rules that choose caqm: leave the rules out to turn CAQM off";
            return Err(AccelError::Usage(problem.to_owned()));
        }
        let mut interfaces =
            table.interface.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
        interfaces.extend(table.filter_nics.map(InterfaceName::of_bitmap).unwrap_or(Ok(vec![]))?);
        let part = CaqmPart { rules: self.rules, interfaces, network: table.network()? };
        rules::check(&part.rules)?;
        Ok(Some(part))
    }
}

table! {
    #[derive(Debug)]
    struct File {
        defaults: Values = Values::default(),
        rule: Vec<Spanned<RuleTable>> = vec![],
        system: SystemTable = SystemTable::default(),
        caqm: Option<Spanned<CaqmTable>>,
    }
}

table! {
    #[derive(Debug, Default, PartialEq)]
    struct Values {
        init_cwnd: Option<u32>,
        loss_init_cwnd: Option<u32>,
        memory_age: Option<Span>,
        /// The reference's name of the switch for the memory of paths.
        metrics_minrtt: Option<Switch>,
        min_window: Option<u32>,
        probe: Option<Switch>,
        file_threshold: Option<Bytes>,
        rto_min: Option<Span>,
        rto_max: Option<Span>,
    }
}

table! {
    #[derive(Debug)]
    struct RuleTable {
        algorithm: RuleAlgorithm = RuleAlgorithm::default(),
        cgroup: Option<PathBuf>,
        to: Option<String>,
        port: Option<u16>,
        init_cwnd: Option<u32>,
        loss_init_cwnd: Option<u32>,
        memory_age: Option<Span>,
        /// The reference's name of the switch for the memory of paths.
        metrics_minrtt: Option<Switch>,
        min_window: Option<u32>,
        probe: Option<Switch>,
        file_threshold: Option<Bytes>,
        rto_min: Option<Span>,
        rto_max: Option<Span>,
        named_too: Switch = Switch::default(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
enum RuleAlgorithm {
    #[default]
    Tcpa,
    /// CAQM, if the peer and the path support CAQM, too.
    Caqm,
    /// The connection stays unchanged.
    None,
    Kernel(KernelAlgorithm),
}

impl TryFrom<String> for RuleAlgorithm {
    type Error = AccelError;

    fn try_from(name: String) -> Result<Self, AccelError> {
        match name.as_str() {
            NAME => Ok(Self::Tcpa),
            caqm::NAME => Ok(Self::Caqm),
            "none" => Ok(Self::None),
            name => name.parse().map(Self::Kernel),
        }
    }
}

table! {
    #[derive(Debug, Default)]
    struct SystemTable {
        wmem: Option<[u64; 3]>,
        mem: Option<[u64; 3]>,
        wmem_max: Option<u64>,
        timestamps: Option<Switch>,
        /// Forward acknowledgement left the kernel with 4.15; RACK replaces forward
        /// acknowledgement.
        _fack: Option<Switch> as "fack",
        rack: Option<SwitchText>,
        tlp: Option<SwitchText>,
        reordering: Option<SwitchText>,
        max_reordering: Option<SwitchText>,
        sack: Option<SwitchText>,
        dsack: Option<SwitchText>,
        frto: Option<SwitchText>,
        rto_factor: Option<SwitchText>,
        mtu_probing: Option<SwitchText>,
        slow_start_after_idle: Option<SwitchText>,
    }
}

/// A number, a boolean or a text, as [`System::set`] takes it.
#[derive(Debug, Clone)]
struct SwitchText(String);

impl Setting for SwitchText {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        match settings::found(node.get_ref()) {
            Unexpected::Bool(on) => Some(Self(Switch(on).to_string())),
            Unexpected::Signed(number) => Some(Self(number.to_string())),
            Unexpected::Str(text) => Some(Self(text.to_owned())),
            _ => mistakes.unfit(node, "true, false or a number"),
        }
    }
}

leaves!(RuleAlgorithm);

impl SystemTable {
    fn switches(&self) -> impl Iterator<Item = (&'static str, &SwitchText)> {
        let all = [
            ("rack", &self.rack),
            ("tlp", &self.tlp),
            ("reordering", &self.reordering),
            ("max_reordering", &self.max_reordering),
            ("sack", &self.sack),
            ("dsack", &self.dsack),
            ("frto", &self.frto),
            ("rto_factor", &self.rto_factor),
            ("mtu_probing", &self.mtu_probing),
            ("slow_start_after_idle", &self.slow_start_after_idle),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }
}

table! {
    /// The interfaces, and the parameters that all hosts and ports of the network share, as
    /// [`Network::set`] takes them.
    #[derive(Debug, Default)]
    struct CaqmTable {
        interface: Vec<String> = vec![],
        alpha: Option<u32>,
        alpha_root: Option<u32>,
        beta: Option<u32>,
        min_cwnd: Option<u32>,
        max_cwnd: Option<u32>,
        mtu_unit: Option<u32>,
        data_hint_unit: Option<u32>,
        ack_hint_unit: Option<u32>,
        rtt_standard: Option<Span>,
        theta: Option<u32>,
        loss: Option<String>,
        negotiation: Option<String>,
        /// The reference's name of alpha.
        alpha_fx_8: Option<u32>,
        /// A setting of the reference kernel, which has no effect here.
        _debug_info: Option<u32> as "debug_info",
        /// The reference's switch, which has no effect here: rules turn CAQM on and off.
        enable: Option<Switch>,
        /// The reference's bitmap of interface numbers, in this network namespace.
        filter_nics: Option<u64>,
        cc_type: Option<u32>,
        tpid: Option<u16>,
        trusts_path: Option<Switch>,
    }
}

impl CaqmTable {
    /// Builds the parameters of the network; parameters that are not named have their defaults.
    fn network(&self) -> Result<Network, AccelError> {
        let mut network = Network::default();
        let numbers = [
            ("alpha", self.alpha),
            ("alpha_root", self.alpha_root),
            ("beta", self.beta),
            ("min_cwnd", self.min_cwnd),
            ("max_cwnd", self.max_cwnd),
            ("mtu_unit", self.mtu_unit),
            ("data_hint_unit", self.data_hint_unit),
            ("ack_hint_unit", self.ack_hint_unit),
            ("cc_type", self.cc_type),
            ("theta", self.theta),
            ("alpha_fx_8", self.alpha_fx_8),
        ];
        for (name, value) in numbers {
            value.map_or(Ok(()), |value| network.set(&format!("{name}={value}")))?;
        }
        for (name, value) in [("loss", &self.loss), ("negotiation", &self.negotiation)] {
            let set = value.as_ref().map(|value| network.set(&format!("{name}={value}")));
            set.unwrap_or(Ok(()))?;
        }
        if let Some(rtt) = self.rtt_standard {
            network.settings.set_rtt_standard(rtt);
        }
        network.tpid = self.tpid.unwrap_or(network.tpid);
        network.trusts_path = self.trusts_path.map_or(network.trusts_path, |Switch(on)| on);
        network.check()?;
        Ok(network)
    }
}

impl Values {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the tunables set only the bounds of the timeout, which apply to any algorithm.
    fn is_of_any_algorithm(&self) -> bool {
        *self == Self { rto_min: self.rto_min, rto_max: self.rto_max, ..Self::default() }
    }

    fn over(&self, usual: Tunables) -> Tunables {
        Tunables {
            init_cwnd: self.init_cwnd.unwrap_or(usual.init_cwnd),
            loss_init_cwnd: self.loss_init_cwnd.unwrap_or(usual.loss_init_cwnd),
            memory_age: match self.metrics_minrtt {
                Some(Switch(false)) => Span::ZERO,
                _ => self.memory_age.unwrap_or(usual.memory_age),
            },
            min_window: self.min_window.unwrap_or(usual.min_window),
            probe: self.probe.map_or(usual.probe, |Switch(on)| on),
            file_threshold: self.file_threshold.unwrap_or(usual.file_threshold),
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
            min_window: self.min_window,
            probe: self.probe,
            file_threshold: self.file_threshold,
            rto_min: self.rto_min,
            rto_max: self.rto_max,
        };
        if self.port == Some(0) {
            return Err(AccelError::Usage("port 0 is not a port: leave it out for all".to_owned()));
        }
        let Switch(named_too) = self.named_too;
        if named_too && [RuleAlgorithm::Caqm, RuleAlgorithm::None].contains(&self.algorithm) {
            let problem =
                "named_too belongs to a rule for tcpa or an algorithm of the kernel: leave it out";
            return Err(AccelError::Usage(problem.to_owned()));
        }
        if let RuleAlgorithm::Kernel(algorithm) = &self.algorithm
            && !values.is_of_any_algorithm()
        {
            return Err(AccelError::Usage(format!(
                "{algorithm} has none of tcpa's tunables: rto_min and rto_max are for all, leave the others out"
            )));
        }
        if self.algorithm == RuleAlgorithm::Caqm && !values.is_empty() {
            let problem = "caqm does not use the tunables of tcpa: set the parameters of its connections in [caqm]";
            return Err(AccelError::Usage(problem.to_owned()));
        }
        let to = self.to.as_deref().map(str::parse::<Prefix>).transpose();
        Ok(Rule {
            cgroup: self.cgroup.as_deref().map(Cgroup::named).transpose()?,
            to: to.map_err(AccelError::Usage)?,
            port: self.port,
            tunables: match self.algorithm {
                RuleAlgorithm::Tcpa | RuleAlgorithm::Kernel(_) => Some(values.over(defaults)),
                RuleAlgorithm::Caqm | RuleAlgorithm::None => None,
            },
            algorithm: match self.algorithm {
                RuleAlgorithm::Kernel(algorithm) => Some(algorithm),
                _ => None,
            },
            named_too,
        })
    }
}

/// Returns the unquoted word at a mistake, for a better message: TOML's own message about
/// `init_cwnd = ninety` asks for a literal.
fn bare_word(text: &str, at: usize) -> Option<String> {
    let before = &text.as_bytes()[..at.min(text.len())];
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (key, value) = text[start..].lines().next()?.split_once('=')?;
    let word = value.split('#').next()?.trim();
    let plain = word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:".contains(c));
    let key = key.trim();
    if plain && TEXTS.contains(&key) {
        return Some(format!("{key}: expected a text in quotes, as in {key} = \"{word}\""));
    }
    if plain && SWITCHES.contains(&key) && ["on", "off"].contains(&word) {
        return Some(format!("{key}: write {key} = \"{word}\" in quotes, or true or false"));
    }
    let is_word = plain && word.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_value = ["true", "false", "inf", "nan"].contains(&word);
    (is_word && !is_value).then(|| format!("{key}: expected a number, not `{word}`"))
}

/// Keys whose values are texts.
const TEXTS: [&str; 11] = [
    "algorithm",
    "cgroup",
    "to",
    "memory_age",
    "rto_min",
    "rto_max",
    "rtt_standard",
    "interface",
    "loss",
    "negotiation",
    "file_threshold",
];

/// Keys whose values are `on` or `off`.
const SWITCHES: [&str; 12] = [
    "metrics_minrtt",
    "named_too",
    "timestamps",
    "fack",
    "trusts_path",
    "probe",
    "rack",
    "tlp",
    "sack",
    "dsack",
    "frto",
    "slow_start_after_idle",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PolicyFile, String> {
        PolicyFile::parse(Path::new("accel.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_complete_policy_file_is_parsed() {
        let policy = parse(
            "[defaults]\ninit_cwnd = 30\n\n\
             [[rule]]\nport = 22\nalgorithm = \"none\"\n\n\
             [[rule]]\nto = \"203.0.113.0/24\"\ninit_cwnd = 90\nrto_min = \"50ms\"\n\n\
             [[rule]]\n\n[system]\nwmem = [4096, 16384, 8388608]\nfack = 0\ntimestamps = true\n",
        )
        .unwrap()
        .tcpa;
        assert_eq!(policy.rules.len(), 3);
        assert_eq!(policy.rules[0].tunables, None);
        assert_eq!(policy.rules[1].tunables.unwrap().rto_min, Some(Span::from_millis(50)));
        assert_eq!(policy.rules[2].tunables.unwrap().init_cwnd, 30);
        assert_eq!(policy.system.wmem, Some([4096, 16384, 8_388_608]));
        assert_eq!(parse("").unwrap(), PolicyFile::default());
    }

    #[test]
    fn a_boolean_has_the_same_spellings_under_every_key() {
        for (value, expected) in [
            ("true", true),
            ("1", true),
            ("\"on\"", true),
            ("\"true\"", true),
            ("false", false),
            ("0", false),
            ("\"off\"", false),
        ] {
            let text = format!(
                "[[rule]]\nport = 443\nnamed_too = {value}\n\
                 [[rule]]\nmetrics_minrtt = {value}\n\
                 [[rule]]\nport = 80\nalgorithm = \"caqm\"\n\
                 [caqm]\ntrusts_path = {value}\n[system]\ntimestamps = {value}\nfack = {value}\n"
            );
            // A rule for CAQM must not stand behind a rule that covers it.
            let text = text.replacen("[[rule]]\nmetrics", "[[rule]]\nport = 81\nmetrics", 1);
            let file = parse(&text).unwrap();
            let rules = &file.tcpa.rules;
            assert_eq!(file.tcpa.system.timestamps, Some(expected), "{value}");
            assert_eq!(rules[0].named_too, expected, "{value}");
            assert_eq!(rules[1].tunables.unwrap().memory_age > Span::ZERO, expected, "{value}");
            assert_eq!(file.caqm.unwrap().network.trusts_path, expected, "{value}");
        }
    }

    #[test]
    fn a_rule_may_choose_any_algorithm_of_the_kernel() {
        let text = "[[rule]]\nport = 443\nalgorithm = \"reno\"\nrto_min = \"50ms\"\n\n[[rule]]\n";
        let policy = parse(text).unwrap().tcpa;
        let given: Vec<_> = policy.rules.iter().map(Rule::gives).collect();
        assert_eq!(given, [Some("reno"), Some("tcpa")]);
        assert_eq!(policy.rules[0].tunables.unwrap().rto_min, Some(Span::from_millis(50)));
    }

    #[test]
    fn rules_for_caqm_may_stand_between_other_rules() {
        let file = parse(
            "[[rule]]\nport = 22\nalgorithm = \"none\"\n\n\
             [[rule]]\nto = \"10.0.0.0/8\"\nalgorithm = \"caqm\"\n\n\
             [[rule]]\nto = \"10.0.0.0/8\"\n\n[[rule]]\n\n\
             [caqm]\ninterface = [\"eth0\", \"left:eth0\"]\nrtt_standard = \"1ms\"\ntpid = 0x8100\n",
        )
        .unwrap();
        // The later rules apply to connections whose ends do not agree on CAQM.
        assert_eq!(file.tcpa.rules.len(), 3);
        let caqm = file.caqm.unwrap();
        assert_eq!(caqm.rules.len(), 2);
        assert_eq!((caqm.rules[0].port, caqm.rules[0].tunables), (Some(22), None));
        assert!(caqm.rules[1].tunables.is_some());
        assert_eq!(caqm.interfaces[1].to_string(), "left:eth0");
        let network = caqm.network;
        assert_eq!(network.settings.rtt_standard_us, 1000);
        assert_eq!((network.tpid, network.settings.alpha), (0x8100, 8));
    }

    #[test]
    fn the_error_of_a_policy_file_names_the_line() {
        for (text, line, message) in [
            ("[[rule]]\nprot = 80\n", 2, "did you mean `port`?"),
            ("[[rule]]\nport = 80\n\n[[rule]]\nto = \"10.0.0.1/8\"\n", 4, "behind the prefix"),
            ("[[rule]]\n[[rule]]\nport = 80\n", 2, "rule 2 never decides"),
            ("[[rule]]\ninit_cwnd = 0\n", 1, "init_cwnd"),
            ("[[rule]]\nport = 99999\n", 2, "99999"),
            ("[[rule]]\nalgorithm = \"tpca\"\n", 2, "did you mean `tcpa`?"),
            ("[defaults]\nrto_min = \"5\"\n", 2, "unit"),
            ("[system]\nwmem = [3, 2, 1]\n", 1, "wmem"),
            ("[[rule]]\nalgorithm = \"caqn\"\n", 2, "did you mean `caqm`?"),
            ("[[rule]]\nalgorithm = \"caqm\"\ninit_cwnd = 9\n", 1, "[caqm]"),
            ("[[rule]]\n[[rule]]\nport = 80\nalgorithm = \"caqm\"\n", 2, "rule 2 never decides"),
            ("[[rule]]\n\n[caqm]\nalpha = 8\n", 3, "no rule chooses caqm"),
            ("[[rule]]\nalgorithm = \"caqm\"\n[caqm]\nalpha = 99999\n", 3, "alpha"),
            (
                "[[rule]]\nalgorithm = \"caqm\"\n[caqm]\nloss = \"tcp\"\n",
                3,
                "announced or reference",
            ),
            ("[[rule]]\nalgorithm = \"caqm\"\n[caqm]\nenable = false\n", 3, "leave the rules out"),
            ("[system]\ntlp = 2\n", 1, "on or off"),
            ("[system]\nrto_factor = 1.5\n", 2, "a number"),
            ("[system]\nrto_factor = 3\n", 1, "thin streams"),
            ("[system]\ntpl = 0\n", 2, "did you mean `tlp`?"),
            ("[[rule]]\nmin_window = 0\n", 1, "min_window"),
            ("[[rule]]\nalgorithm = \"caqm\"\n[caqm]\nalfa = 9\n", 4, "did you mean `alpha`?"),
            (
                "[[rule]]\nalgorithm = \"caqm\"\n[caqm]\ninterface = [\":\"]\n",
                3,
                "is not an interface",
            ),
            ("[[rule]]\ninit_cwnd = ninety\n", 2, "expected a number"),
            ("[[rule]]\ninit_cwnd = \"ninety\"\n", 2, "expected a whole number"),
            ("[[rule]]\nport = http\n", 2, "expected a number"),
            ("[[rule]]\nrto_min = 50ms\n", 2, "expected a text in quotes"),
            ("[[rule]]\nalgorithm = none\n", 2, "expected a text in quotes"),
            ("[[rule]]\nport = 1\nalgorithm = \"none\"\nnamed_too = true\n", 1, "named_too"),
            ("[rule\n", 1, ""),
            ("[[rule]]\nalgorithm = \"reno\"\ninit_cwnd = 9\n", 1, "reno has none of"),
            ("[system]\ntimestamps = on\n", 2, "timestamps = \"on\" in quotes"),
            ("[system]\ntimestamps = 2\n", 2, "write on or off"),
            ("[system]\nfack = \"maybe\"\n", 2, "write on or off"),
            ("[[rule]]\nnamed_too = \"perhaps\"\n", 2, "write on or off"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("accel.toml:{line}: ")), "{text}: {error}");
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
