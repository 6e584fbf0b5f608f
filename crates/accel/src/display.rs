//! Output of the status: as text and as JSON.

use crate::algorithm::NAME;
use crate::core_view::CoreView;
use crate::memory::Memory;
use crate::namespaces::NamespaceId;
use crate::pins::Presence;
use crate::rules::{Rule, Tunables};
use crate::status::{Flow, Status};
use crate::switches::KernelSwitch;
use crate::system::System;
use crate::table::{left_table, table};
use crate::{KernelAlgorithm, Module};
use serde_json::{Value, json};
use std::fmt::{self, Display, Write as _};
use std::net::SocketAddr;
use units::{Bytes, Rate, Share, Span};

impl Status {
    /// Formats the status as text, in lines of at most `width` characters unless the required
    /// columns are wider.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = self.answer() + "\n";
        let whose: Vec<_> = self.policy.rules.iter().map(Rule::whose).collect();
        let lengths = whose.iter().map(|whose| whose.chars().count());
        let widest = lengths.chain([ITSELF.len()]).max().unwrap_or_default();
        for ((number, rule), whose) in (1..).zip(&self.policy.rules).zip(&whose) {
            let _ = writeln!(text, "  {number:>2}  {whose:<widest$}  {}", rule.treatment());
        }
        if self.presence == Presence::Whole {
            let defaults = self.policy.defaults.to_text();
            let _ = writeln!(text, "      {ITSELF:<widest$}  {defaults}");
        }
        for (name, value) in self.policy.system.entries() {
            let _ = writeln!(text, "  {name} {value} while it is on");
        }
        if let Some(why) = &self.hidden {
            let _ = writeln!(text, "\nconnections are not shown: {why}");
        }
        if !self.flows.is_empty() {
            text.push('\n');
            text.push_str(&self.flows_text(width));
        }
        text
    }

    /// Formats the table of the modules. Rules that give only algorithms of the kernel do not use
    /// tcpa, so the text is then empty.
    pub fn modules_to_text(&self, width: usize) -> String {
        if self.presence != Presence::Whole || !self.on().contains(&NAME) {
            return String::new();
        }
        let heads = ["module", "carried by", "counters", "switches"].map(str::to_owned);
        let mut rows = vec![heads];
        rows.extend(self.modules().iter().map(Module::row));
        format!("\n{}", left_table(&rows, width))
    }

    /// Returns the first line of the status: the state, and the number of connections that use the
    /// algorithm.
    fn answer(&self) -> String {
        match self.presence {
            Presence::Nothing => "tcpa is off".to_owned(),
            Presence::Part => {
                let given = if self.gives { "given it" } else { "not given it" };
                format!(
                    "tcpa is half installed: a command that was killed left part of it, and new connections \
                     are {given}; `weir accel disable` removes it"
                )
            }
            Presence::Whole => self.users(),
        }
    }

    fn users(&self) -> String {
        let names = self.on();
        let (names, are) = (names.join(" and "), if names.len() > 1 { "are" } else { "is" });
        let (open, work) = (self.flows.len(), self.work());
        let ended = match work.connections {
            0 => String::new(),
            1 => ", 1 has ended".to_owned(),
            ended => format!(", {ended} have ended"),
        };
        if self.hidden.is_some() {
            return format!("{names} {are} on{ended}");
        }
        let rates = self.flows.iter().filter_map(|flow| Some(flow.rate?.bits_per_second()));
        let together = match rates.sum::<u64>() {
            0 => String::new(),
            sum => format!(" at {} together", Rate::from_bits_per_second(sum).shown()),
        };
        let what = if names.contains(" and ") { "them" } else { "it" };
        match open {
            0 => format!("{names} {are} on: no open connection uses {what}{ended}"),
            1 => format!("{names} {are} on: 1 connection uses {what}{together}{ended}"),
            _ => format!("{names} {are} on: {open} connections use {what}{together}{ended}"),
        }
    }

    /// Returns the names of the algorithms that connections get. `tcpa` is missing if all rules
    /// give other algorithms.
    fn on(&self) -> Vec<&str> {
        let others = self.policy.kernel_algorithms().into_iter().map(KernelAlgorithm::name);
        let all: Vec<&str> = others.collect();
        let has_tcpa = self.policy.rules.iter().any(|rule| rule.gives() == Some(NAME));
        let tcpa = (has_tcpa || all.is_empty()).then_some(NAME);
        tcpa.into_iter().chain(all).collect()
    }

    fn flows_text(&self, width: usize) -> String {
        let mut rows = vec![HEADER.map(str::to_owned)];
        rows.extend(self.flows.iter().map(Flow::row));
        let lines = table(&rows, width, &SPARE);
        let (header, lines) = lines.split_once('\n').unwrap_or_default();
        let mut text = format!("{header}\n");
        let mut inside = &None;
        for (line, flow) in lines.lines().zip(&self.flows) {
            if flow.inside != *inside {
                inside = &flow.inside;
                let _ = writeln!(
                    text,
                    "in {}",
                    inside.as_ref().map_or_else(String::new, NamespaceId::to_string)
                );
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }

    pub fn to_json(&self) -> Value {
        json!({
            "answer": self.answer(),
            "state": match self.presence {
                Presence::Nothing => "off",
                Presence::Part => "part",
                Presence::Whole => "on",
            },
            "gives": self.gives,
            "rules": self.policy.rules.iter().map(Rule::to_json).collect::<Vec<_>>(),
            "defaults": self.policy.defaults.to_json(),
            "system": self.policy.system.to_json(),
            "flows_hidden": self.hidden,
            "ended_connections": self.ended.connections,
            "modules": self.modules().iter().map(Module::to_json).collect::<Vec<_>>(),
            "flows": self.flows.iter().map(Flow::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Rule {
    /// Formats the rule's conditions as text.
    pub fn whose(&self) -> String {
        let mut words = Vec::new();
        words
            .extend(self.cgroup.as_ref().map(|cgroup| format!("cgroup {}", cgroup.path.display())));
        words.extend(self.to.map(|to| format!("to {to}")));
        words.extend(self.port.map(|port| format!("port {port}")));
        match words.as_slice() {
            [] => "all connections".to_owned(),
            words => words.join(", "),
        }
    }

    fn treatment(&self) -> String {
        match &self.tunables {
            None => "as they are".to_owned(),
            Some(tunables) => {
                let named =
                    if self.named_too { ", also where a program named another" } else { "" };
                match &self.algorithm {
                    None => format!("tcpa, {}{named}", tunables.to_text()),
                    Some(other) => format!("{other}{}{named}", tunables.timeouts_to_text()),
                }
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "cgroup": self.cgroup.as_ref().map(|cgroup| cgroup.path.display().to_string()),
            "to": self.to.map(|to| to.to_string()),
            "port": self.port,
            "accelerate": self.tunables.is_some(),
            "algorithm": self.gives(),
            "named_too": self.named_too,
            "tunables": self.tunables.map(|tunables| match self.algorithm {
                None => tunables.to_json(),
                Some(_) => tunables.timeouts_to_json(),
            }),
        })
    }
}

impl Tunables {
    fn to_text(self) -> String {
        let mut text =
            format!("init_cwnd {}, loss_init_cwnd {}", self.init_cwnd, self.loss_init_cwnd);
        match self.memory_age {
            Span::ZERO => text.push_str(", no memory"),
            age => {
                let _ = write!(text, ", memory_age {age}");
            }
        }
        let usual = Self::default();
        if self.min_window != usual.min_window {
            let _ = write!(text, ", min_window {}", self.min_window);
        }
        if !self.probe {
            text.push_str(", probe off");
        }
        if self.file_threshold != usual.file_threshold {
            let _ = write!(text, ", file_threshold {}", self.file_threshold);
        }
        text + &self.timeouts_to_text()
    }

    fn timeouts_to_text(self) -> String {
        let bounds = [("rto_min", self.rto_min), ("rto_max", self.rto_max)];
        let bounds = bounds.into_iter().filter_map(|(name, value)| Some((name, value?)));
        bounds.map(|(name, value)| format!(", {name} {value}")).collect()
    }

    fn to_json(self) -> Value {
        let mut json = self.timeouts_to_json();
        json["init_cwnd"] = json!(self.init_cwnd);
        json["loss_init_cwnd"] = json!(self.loss_init_cwnd);
        json["memory_age"] = json!(self.memory_age.to_string());
        json["min_window"] = json!(self.min_window);
        json["probe"] = json!(self.probe);
        json["file_threshold_bytes"] = json!(self.file_threshold.count());
        json
    }

    fn timeouts_to_json(self) -> Value {
        json!({
            "rto_min": self.rto_min.map(|span| span.to_string()),
            "rto_max": self.rto_max.map(|span| span.to_string()),
        })
    }
}

impl System {
    fn entries(&self) -> Vec<(&'static str, String)> {
        let three = |values: [u64; 3]| values.map(|value| value.to_string()).join(" ");
        let mut entries = Vec::new();
        entries.extend(self.wmem.map(|wmem| ("wmem", three(wmem))));
        entries.extend(self.mem.map(|mem| ("mem", three(mem))));
        entries.extend(self.wmem_max.map(|most| ("wmem_max", most.to_string())));
        entries.extend(self.timestamps.map(|on| ("timestamps", on.to_string())));
        let switches = self
            .switches
            .iter()
            .filter_map(|(key, value)| Some((*key, KernelSwitch::named(key)?.shown(*value))));
        entries.extend(switches);
        entries
    }

    fn to_json(&self) -> Value {
        json!({
            "wmem": self.wmem,
            "mem": self.mem,
            "wmem_max": self.wmem_max,
            "timestamps": self.timestamps,
            "switches": self.switches.iter().filter_map(|(key, value)| {
                Some(((*key).to_owned(), KernelSwitch::named(key)?.shown(*value).into()))
            }).collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl Flow {
    fn row(&self) -> [String; HEADER.len()] {
        let time = |span: Option<Span>| known(span.map(Span::shown));
        let rate = |rate: Option<Rate>| known(rate.map(Rate::shown));
        let percent = |share: Option<Share>| known(share.map(Share::shown));
        let core = self.core.as_ref();
        [
            format!("{} -> {}", self.local, self.remote),
            rate(self.rate),
            time(self.rtt),
            time(self.min_rtt),
            known(self.window.map(Bytes::shown)),
            percent(self.retransmitted),
            percent(core.map(|core| core.floor)),
            match core {
                None if self.algorithm != NAME => self.algorithm.clone(),
                None => "(earlier one)".to_owned(),
                Some(core) if core.contending => format!("{}, contending", core.mode.name()),
                Some(core) => core.mode.name().to_owned(),
            },
            known(
                self.remembered
                    .as_ref()
                    .map(|memory| format!("{}, {} ago", memory.rate.shown(), memory.age.shown())),
            ),
            self.limit.name().to_owned(),
        ]
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "algorithm": self.algorithm,
            "rate_mbit_s": self.rate.map(|rate| rate.mbit_per_second()),
            "pacing_mbit_s": self.pacing.map(|rate| rate.mbit_per_second()),
            "rtt_us": self.rtt.map(|rtt| rtt.micros_f64()),
            "min_rtt_us": self.min_rtt.map(|rtt| rtt.micros_f64()),
            "window_bytes": self.window.map(|bytes| bytes.count()),
            "retransmit_percent": self.retransmitted.map(|share| share.percent()),
            "acked_bytes": self.acked.map(|bytes| bytes.count()),
            "limited_by": self.limit.name(),
            "core": self.core.as_ref().map(CoreView::to_json),
            "remembered": self.remembered.as_ref().map(Memory::to_json),
        });
        add_addresses(&mut json, self.inside.as_ref(), self.local, self.remote);
        json
    }
}

/// Adds both ends of a connection, and its namespace unless it is this process's namespace.
pub(crate) fn add_addresses(
    connection: &mut Value,
    inside: Option<&NamespaceId>,
    local: SocketAddr,
    remote: SocketAddr,
) {
    let (pid, name) = match inside {
        Some(NamespaceId::Process(pid)) => (Some(pid), None),
        Some(NamespaceId::Named(name)) => (None, Some(name)),
        None => (None, None),
    };
    connection["namespace_of_pid"] = json!(pid);
    connection["namespace"] = json!(name);
    connection["local"] = json!(local.to_string());
    connection["remote"] = json!(remote.to_string());
}

impl CoreView {
    fn to_json(&self) -> Value {
        json!({
            "mode": self.mode.name(),
            "contending": self.contending,
            "rate_mbit_s": self.rate.map(|rate| rate.mbit_per_second()),
            "min_rtt_us": self.min_rtt.map(|rtt| rtt.micros_f64()),
            "window_bytes": self.window.map(|bytes| bytes.count()),
            "floor_percent": self.floor.percent(),
            "before": self.before,
        })
    }
}

impl Display for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "the network namespace of process {pid}"),
            Self::Named(name) => write!(f, "network namespace {name}"),
        }
    }
}

fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

const ITSELF: &str = "sockets that choose tcpa themselves";
const HEADER: [&str; 10] = [
    "connection",
    "rate",
    "rtt",
    "min rtt",
    "window",
    "sent again",
    "path loses",
    "core",
    "remembered",
    "limited by",
];
/// The columns that a narrow terminal omits, the least important column first: `remembered`,
/// `core`, `min rtt`, `path loses`, `window`.
const SPARE: [usize; 5] = [8, 7, 3, 6, 4];
