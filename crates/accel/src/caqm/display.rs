//! Output of CAQM's status: as text and as JSON.

use super::status::{CaqmFlow, CaqmStatus, CpuTotals};
use crate::display::add_addresses;
use crate::namespaces::NamespaceId;
use crate::pins::Presence;
use crate::rules::Rule;
use crate::table::table;
use serde_json::{Value, json};
use std::fmt::Write as _;
use units::{Bytes, Rate, Span};

impl CaqmStatus {
    /// Whether nothing is installed.
    pub fn is_off(&self) -> bool {
        self.presence == Presence::Nothing
    }

    /// Formats the status as text, in lines of at most `width` characters unless the required
    /// columns are wider.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = self.answer() + "\n";
        if self.presence != Presence::Whole {
            return text;
        }
        for (number, rule) in (1..).zip(&self.plan.rules) {
            let without = if rule.tunables.is_some() { "" } else { "  without caqm" };
            let _ = writeln!(text, "  {number:>2}  {}{without}", rule.whose());
        }
        for interface in &self.interfaces {
            let _ = match interface {
                Some(interface) => writeln!(text, "  at {interface}"),
                None => writeln!(text, "  at an interface that has gone"),
            };
        }
        let network: Vec<_> = self
            .plan
            .network
            .entries()
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let _ = writeln!(text, "  {}", network.join(", "));
        text.push_str(&sum_text(&self.totals.sum()));
        if let Some(why) = &self.hidden {
            let _ = writeln!(text, "\nconnections are not shown: {why}");
        }
        if !self.flows.is_empty() {
            text.push('\n');
            text.push_str(&self.flows_text(width));
        }
        text
    }

    /// Returns the first line of the status: the state, and the number of ends that use CAQM.
    fn answer(&self) -> String {
        match self.presence {
            Presence::Nothing => return "caqm is off".to_owned(),
            Presence::Part => {
                let negotiate = if self.gives { "negotiate" } else { "do not negotiate" };
                return format!(
                    "caqm is half installed: a command that was killed left part of it, and new connections \
                     {negotiate}; `weir accel disable caqm` removes it"
                );
            }
            Presence::Whole if self.hidden.is_some() => return "caqm is on".to_owned(),
            Presence::Whole => {}
        }
        let asking = self.flows.iter().filter(|flow| flow.view.sending).count();
        match self.flows.len() {
            0 => "caqm is on: no open connection uses it".to_owned(),
            1 => format!("caqm is on: 1 end uses it, {asking} with requests"),
            ends => {
                format!("caqm is on: {ends} ends of connections use it, {asking} with requests")
            }
        }
    }

    fn flows_text(&self, width: usize) -> String {
        let mut rows = vec![HEADER.map(str::to_owned)];
        rows.extend(self.flows.iter().map(CaqmFlow::row));
        table(&rows, width, &SPARE)
    }

    pub fn to_json(&self) -> Value {
        let network: serde_json::Map<_, _> = self
            .plan
            .network
            .entries()
            .into_iter()
            .map(|(name, v)| (name.to_owned(), v.into()))
            .collect();
        json!({
            "answer": self.answer(),
            "state": match self.presence {
                Presence::Nothing => "off",
                Presence::Part => "part",
                Presence::Whole => "on",
            },
            "gives": self.gives,
            "rules": self.plan.rules.iter().map(Rule::to_json).collect::<Vec<_>>(),
            "interfaces": self.interfaces.iter().map(|p| p.as_ref().map(ToString::to_string)).collect::<Vec<_>>(),
            "network": network,
            "totals": totals_json(&self.totals.sum()),
            "cpus": self.totals.cpus.iter().map(totals_json).collect::<Vec<_>>(),
            "flows_hidden": self.hidden,
            "flows": self.flows.iter().map(CaqmFlow::to_json).collect::<Vec<_>>(),
        })
    }
}

fn sum_text(sum: &CpuTotals) -> String {
    let mut text = format!(
        "  sent: {} segments of data with a tag in {} packets ({} of them super-packets), {} answers\n  \
         received: {} segments in {} packets ({}), {} answers\n  \
         connections: {} negotiated, {} whose peer does not use it\n",
        sum.sent_segments,
        sum.sent_packets,
        sum.sent_super,
        sum.sent_answers,
        sum.heard_segments,
        sum.heard_packets,
        sum.heard_super,
        sum.heard_answers,
        sum.negotiated,
        sum.declined,
    );
    if sum.by_bits > 0 {
        let _ = writeln!(text, "  {} of them were negotiated by reserved bits", sum.by_bits);
    }
    if sum.gave_up > 0 {
        let _ = writeln!(
            text,
            "  {} ends found no CAQM port on the path of their data: they use Reno, without tags",
            sum.gave_up
        );
    }
    if sum.alone > 0 {
        let _ = writeln!(text, "  {} tags of another cc_type were left alone", sum.alone);
    }
    if sum.implausible > 0 {
        let _ = writeln!(
            text,
            "  {} tags had no effect: the numbers of their segments do not fit the connection (forged?)",
            sum.implausible
        );
    }
    text
}

fn totals_json(totals: &CpuTotals) -> Value {
    totals
        .entries()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect()
}

impl CaqmFlow {
    fn row(&self) -> [String; HEADER.len()] {
        let view = &self.view;
        let inside = match &self.inside {
            None => String::new(),
            Some(NamespaceId::Named(name)) => format!("{name}: "),
            Some(NamespaceId::Process(pid)) => format!("pid {pid}: "),
        };
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            format!("{inside}{} -> {}", self.local, self.remote),
            known(self.rate.map(Rate::shown)),
            known(self.rtt.map(Span::shown)),
            known(self.window.map(Bytes::shown)),
            view.asked.shown(),
            view.granted.shown(),
            view.refused.shown(),
            view.sent.segments.to_string(),
            view.sent.packets.to_string(),
            view.sent.answers.to_string(),
            view.received.segments.to_string(),
            match (view.sending, view.start) {
                (false, _) => format!("{}, without a tag", self.algorithm),
                (true, true) => "start".to_owned(),
                (true, false) => "avoid".to_owned(),
            },
        ]
    }

    fn to_json(&self) -> Value {
        let view = &self.view;
        let mut json = json!({
            "algorithm": self.algorithm,
            "rate_mbit_s": self.rate.map(|rate| rate.mbit_per_second()),
            "rtt_us": self.rtt.map(|rtt| rtt.micros_f64()),
            "window_bytes": self.window.map(|bytes| bytes.count()),
            "window_segments": view.window,
            "asked_bytes": view.asked.count(),
            "granted_bytes": view.granted.count(),
            "refused_bytes": view.refused.count(),
            "approved_bytes": view.approved.count(),
            "denied_bytes": view.denied.count(),
            "owed_more_bytes": view.owed.0.count(),
            "owed_fewer_bytes": view.owed.1.count(),
            "sent_packets": view.sent.packets,
            "sent_segments": view.sent.segments,
            "sent_answers": view.sent.answers,
            "heard_packets": view.received.packets,
            "heard_segments": view.received.segments,
            "heard_answers": view.received.answers,
            "start": view.start,
            "sending": view.sending,
            "heard": view.heard,
        });
        add_addresses(&mut json, self.inside.as_ref(), self.local, self.remote);
        json
    }
}

const HEADER: [&str; 12] = [
    "connection",
    "rate",
    "rtt",
    "window",
    "asked",
    "granted",
    "taken",
    "segments",
    "packets",
    "answers",
    "heard",
    "state",
];
/// The columns that a narrow terminal omits, the least important column first: `answers`,
/// `packets`, `heard`, `segments`, `window`.
const SPARE: [usize; 5] = [9, 8, 10, 7, 3];
