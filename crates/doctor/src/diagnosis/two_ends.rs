//! One diagnosis of a test that was observed at both of its ends.
//!
//! The rules judge each end by the signals of its own machine. The findings about one connection
//! are then joined: the table of precedence applies to the findings of both ends together, and each
//! finding names the end that saw the cause.

use super::{
    Diagnosis, PeriodReport, Question, Sorted, advice, described, report, verdict, within_saved,
};
use crate::recording::{Attempt, Connection, Period, Recording, Sample, Unseen};
use crate::rules::{Answer, Outcome, Side, joined, settled};
use crate::view::{Flow, View};
use crate::words;
use serde::Serialize;
use std::fmt::Write;
use std::net::SocketAddr;
use units::{Bytes, Rate, Span, foreign};

/// The recording of one end of a test.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The name of the end for people.
    pub name: &'a str,
    pub recording: &'a Recording,
}

/// One end of a connection, by the signals of its own machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndReport {
    pub name: String,
    pub address: SocketAddr,
    pub sends: bool,
    pub processes: String,
    pub rate: Rate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    /// The sender's congestion window, or the window that the receiver offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// The share of the sender's segments that were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<f64>,
    /// Data that the sender has not sent yet, or that the receiver's program has not read yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Bytes>,
    /// The busy share of the busiest core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_core: Option<f64>,
}

/// Applies every rule at both ends. The first end is the client of the test.
pub fn diagnose_both(ends: [Observed<'_>; 2]) -> Diagnosis {
    let [near, far] = ends;
    let mut not_seen = Vec::new();
    for end in ends {
        not_seen.extend(end.recording.unseen.iter().map(|unseen| Unseen {
            what: at(end.name, &unseen.what),
            reason: unseen.reason.clone(),
        }));
    }
    let mut periods: Vec<PeriodReport> = Vec::new();
    for period in &near.recording.periods {
        let both = of_both(ends, period);
        if both.is_none() && period.attempt.as_ref().is_some_and(|one| one.refusal.is_none()) {
            not_seen.push(Unseen {
                what: at(far.name, "the connections of the test"),
                reason: "no connection there has the addresses that the first end saw; a translation of addresses \
                         between the ends changes them"
                    .to_owned(),
            });
        }
        let label = label(ends, period);
        periods.extend(
            both.or_else(|| report(near.recording, period)).map(|one| PeriodReport {
                label: label.unwrap_or_else(|| one.label.clone()),
                ..one
            }),
        );
    }
    not_seen.sort();
    not_seen.dedup();
    let kernels = [&near.recording.machine.kernel, &far.recording.machine.kernel];
    Diagnosis {
        weir_doctor: 1,
        verdict: verdict::of(near.recording, &periods, Question::Flow),
        periods,
        not_seen,
        origin: near.recording.origin,
        note: None,
        kernel: match kernels {
            [one, other] if one == other => one.clone(),
            [one, other] => format!("{one}; {other}"),
        },
    }
}

fn label([near, far]: [Observed<'_>; 2], period: &Period) -> Option<String> {
    let sends = period.attempt.as_ref()?.sends;
    let (from, to) = if sends { (near.name, far.name) } else { (far.name, near.name) };
    Some(format!("{from} to {to}"))
}

/// Joins a period of a test with the samples of the far end. `None` if an end did not see the
/// test's connection.
fn of_both([near, far]: [Observed<'_>; 2], period: &Period) -> Option<PeriodReport> {
    let attempt = period.attempt.as_ref()?;
    let theirs = seen_from_there(far.recording, attempt)?;
    // The far end's own signals replace those that the test's protocol reports about that end.
    let ours = Period { attempt: Some(Attempt { far: None, ..attempt.clone() }), ..period.clone() };
    let views = [View::of(near.recording, &ours)?, View::of(far.recording, &theirs)?];
    let [near_flow, far_flow] =
        [0, 1].map(|end: usize| views[end].flows.iter().find(|flow| flow.tested));
    let sides =
        [Side { flow: near_flow?, view: &views[0] }, Side { flow: far_flow?, view: &views[1] }];
    if sides[0].flow.sender.is_some() == sides[1].flow.sender.is_some() {
        return None;
    }
    let names = [near.name, far.name];
    let mut answers = [Vec::new(), Vec::new()];
    let mut machine = Sorted::default();
    for (end, side) in sides.iter().enumerate() {
        let (flows, of_machine) = settled(&[side.flow], side.view);
        answers[end] = flows.into_iter().next().unwrap_or_default();
        for answer in of_machine {
            machine.add_seen(answer, &[names[end]], (None, side.view));
        }
    }
    machine.by_share();
    let mut sorted = Sorted::default();
    for (answer, owner) in joined(sides, answers) {
        let side = sides[owner.unwrap_or(0)];
        let seen_at = owner.map_or(&names[..], |end| &names[end..=end]);
        sorted.add_seen(answer, seen_at, (Some(side.flow), side.view));
    }
    sorted.by_share();
    let sender = usize::from(sides[0].flow.sender.is_none());
    let flow = super::FlowReport {
        from: names[sender].to_owned(),
        to: names[1 - sender].to_owned(),
        processes: String::new(),
        receives_only: false,
        one_sided: false,
        ends: [0, 1].map(|end| EndReport::of(names[end], sides[end].flow, sides[end].view)).into(),
        ..described(sides[sender].flow, sides[sender].view, sorted)
    };
    let view = &views[0];
    Some(PeriodReport {
        label: period.label.clone(),
        observed: view.elapsed(),
        sampled_every: view.elapsed() / (view.samples().len() as u64 - 1).max(1),
        observer_cpu: period
            .own_cpu
            .map(|cpu| cpu.secs_f64() / view.elapsed().secs_f64().max(1e-9)),
        quiet: 0,
        flows: vec![flow],
        drops: period.drops.clone(),
        machine: machine.causes,
        ruled_out: machine.ruled_out,
        not_seen: machine.not_seen,
    })
}

/// Returns the far end's samples with the test's connections, as a period of the same test.
fn seen_from_there(recording: &Recording, attempt: &Attempt) -> Option<Period> {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    let is_tested = |connection: &Connection| {
        let ends = (plain(connection.remote), plain(connection.local));
        attempt.connections.iter().any(|(local, remote)| ends == (plain(*local), plain(*remote)))
    };
    let has = |sample: &Sample| sample.connections.iter().any(is_tested);
    let is_seen = |period: &&Period| period.samples.iter().filter(|sample| has(sample)).count() > 1;
    let mut period = recording.periods.iter().find(is_seen)?.clone();
    period.samples.retain(has);
    let start = period.samples.first()?.at;
    for sample in &mut period.samples {
        sample.at = sample.at - start;
    }
    let tested = period.samples.iter().flat_map(|sample| &sample.connections);
    let mut connections: Vec<(SocketAddr, SocketAddr)> =
        tested.filter(|one| is_tested(one)).map(|one| (one.local, one.remote)).collect();
    connections.sort_unstable();
    connections.dedup();
    let sends = !attempt.sends;
    period.attempt = Some(Attempt { connections, sends, far: None, ..attempt.clone() });
    Some(period)
}

impl Sorted {
    /// Adds a result, and names the ends that saw the cause. `flow`: as those ends see the flow.
    fn add_seen(
        &mut self,
        answer: Answer,
        ends: &[&str],
        (flow, view): (Option<&Flow<'_>>, &View<'_>),
    ) {
        let name = ends.join(" and ");
        let mut answer = within_saved(view.recording, answer);
        match &mut answer.outcome {
            Outcome::Holds(finding) => {
                advice::name(finding, flow, view);
                finding.sentence = at(&name, &finding.sentence);
            }
            Outcome::RuledOut(by) | Outcome::NotSeen(by) => *by = at(&name, by),
            Outcome::Irrelevant => return,
        }
        let causes = self.causes.len();
        self.add(answer);
        for found in &mut self.causes[causes..] {
            found.seen_at = ends.iter().map(|end| (*end).to_owned()).collect();
        }
    }
}

impl EndReport {
    fn of(name: &str, flow: &Flow<'_>, view: &View<'_>) -> Self {
        let end = flow.end();
        let sends = flow.sender.is_some();
        let last = end.last();
        let window = |connection: &Connection| match sends {
            true => {
                let (segments, size) = connection.tcp.cwnd.zip(connection.tcp.mss)?;
                Some(Bytes::new(u64::from(segments).saturating_mul(size.count())))
            }
            false => connection.tcp.own_window,
        };
        let waiting = |connection: &Connection| match sends {
            true => connection.tcp.unsent,
            false => Some(connection.receive_queue),
        };
        Self {
            name: name.to_owned(),
            address: last.local,
            sends,
            processes: flow.processes(),
            rate: if sends { end.acked() } else { end.received() }.unwrap_or_default(),
            rtt: flow.rtt(),
            window: end.median(window),
            retransmitted: end.loss().filter(|_| sends),
            waiting: end.median(waiting),
            busiest_core: view.busiest_core().map(|(_, core)| core.busy()),
        }
    }

    /// Returns the end's figures as one sentence without its full stop.
    pub(crate) fn line(&self) -> String {
        let does = if self.sends { "sends" } else { "receives" };
        let mut text = format!("{} {does} {}", foreign(&self.name), words::rate(self.rate));
        let mut add = |figure: String| {
            let _ = write!(text, ", {figure}");
        };
        if let Some(window) = self.window {
            add(format!("window {}", words::bytes(window)));
        }
        if let Some(share) = self.retransmitted {
            add(format!("{} lost", words::percent(share)));
        }
        if let Some(waiting) = self.waiting {
            add(format!(
                "{} {}",
                words::bytes(waiting),
                if self.sends { "unsent" } else { "unread" }
            ));
        }
        if let Some(share) = self.busiest_core {
            add(format!("busiest core {}", words::percent(share)));
        }
        text
    }
}

fn at(end: &str, text: &str) -> String {
    format!("at {}: {text}", foreign(end))
}
