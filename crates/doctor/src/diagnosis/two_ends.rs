//! Joins the observations of the client and of the server of a test into a diagnosis.
//!
//! The rules judge each end by the signals of its own machine. The findings about one connection
//! are then joined: the table of precedence applies to the findings of both ends together, and each
//! finding names the end that saw the cause.

use super::{
    Diagnosis, PeriodReport, Question, Sorted, advice, described, report, verdict, within_saved,
};
use crate::recording::{Attempt, Connection, Machine, Period, Recording, Sample, Unseen};
use crate::rules::{Answer, Outcome, Side, joined, settled};
use crate::view::{self, Flow, View};
use crate::words;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use units::{Bytes, Rate, Span, foreign};

/// The recording of one end of a test.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The name of the end in the output.
    pub name: &'a str,
    pub recording: &'a Recording,
}

/// The figures of one end of a connection, by the signals of the machine at that end.
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

/// Returns an empty recording for the far end if the test was refused or had no answer: no
/// connection was observed there. `None` after a test. `reason`: the far end's error message.
pub fn unreached(near: &Recording, reason: String) -> Option<Recording> {
    let mut attempts = near.periods.iter().filter_map(|period| period.attempt.as_ref());
    attempts.any(|attempt| attempt.refusal.is_some()).then(|| {
        let kernel = near.machine.kernel.clone();
        let mut far = Recording::new(Machine { kernel, ..Machine::default() });
        far.unseen.push(Unseen { what: CONNECTIONS.to_owned(), reason });
        far
    })
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
                what: at(far.name, CONNECTIONS),
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
    if periods.iter().any(|period| period.is_cut) {
        not_seen.push(view::cut_off());
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
    // The far end's own signals replace the signals that the test's protocol reports about that
    // end.
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
            machine.add_seen(answer, (names[end], &names[end..=end]), (None, side.view));
        }
    }
    machine.by_share();
    let mut sorted = Sorted::default();
    for (answer, source) in joined(sides, answers) {
        let (end, side) = (source.end, sides[source.end]);
        let seen_at = if source.is_both { &names[..] } else { &names[end..=end] };
        sorted.add_seen(answer, (names[end], seen_at), (Some(side.flow), side.view));
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
        is_cut: views.iter().any(|view| view.is_cut),
    })
}

/// Returns the far end's samples with the test's connections, as a period of the same test.
fn seen_from_there(recording: &Recording, attempt: &Attempt) -> Option<Period> {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    // The recording of another machine may have any number of connections.
    let tested: BTreeSet<_> =
        attempt.connections.iter().map(|(local, remote)| (plain(*local), plain(*remote))).collect();
    let is_tested = |connection: &Connection| {
        tested.contains(&(plain(connection.remote), plain(connection.local)))
    };
    let has = |sample: &Sample| sample.connections.iter().any(is_tested);
    let is_seen = |period: &&Period| period.samples.iter().filter(|sample| has(sample)).count() > 1;
    let mut period = recording.periods.iter().find(is_seen)?.clone();
    period.samples.retain(has);
    let start = period.samples.first()?.at;
    for sample in &mut period.samples {
        sample.at = sample.at - start;
    }
    let seen = period.samples.iter().flat_map(|sample| &sample.connections);
    let connections: BTreeSet<(SocketAddr, SocketAddr)> =
        seen.filter(|one| is_tested(one)).map(|one| (one.local, one.remote)).collect();
    let connections = connections.into_iter().collect();
    let sends = !attempt.sends;
    period.attempt = Some(Attempt { connections, sends, far: None, ..attempt.clone() });
    Some(period)
}

impl Sorted {
    /// Adds a result of the end `name`. `ends`: the ends that saw the cause. `flow`: as the end
    /// `name` sees the flow.
    fn add_seen(
        &mut self,
        answer: Answer,
        (name, ends): (&str, &[&str]),
        (flow, view): (Option<&Flow<'_>>, &View<'_>),
    ) {
        let mut answer = within_saved(view.recording, answer);
        match &mut answer.outcome {
            Outcome::Holds(finding) => {
                advice::name(finding, flow, view);
                for command in finding.advice.iter_mut().flat_map(|one| &mut one.commands) {
                    if !command.contains("(on ") {
                        let _ = write!(command, "   (on {})", foreign(name));
                    }
                }
                finding.sentence = at(name, &finding.sentence);
            }
            Outcome::RuledOut(by) | Outcome::NotSeen(by) => *by = at(name, by),
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
            add(format!("{} of segments lost", words::percent(share)));
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

const CONNECTIONS: &str = "the connections of the test";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::VerdictKind;
    use crate::rules::sketch::Sketch;

    /// Makes the recordings of a test whose two ends are on different machines.
    fn recordings(sending: &Sketch, receiving: &Sketch) -> [Recording; 2] {
        let mut both = [sending.recording().clone(), receiving.recording().clone()];
        let one = &both[0].periods[0].samples[0].connections[0];
        let (local, remote) = (one.local, one.remote);
        both[0].focus = Some("a test with far".to_owned());
        let connections = vec![(local, remote)];
        both[0].periods[0].attempt =
            Some(Attempt { connections, sends: true, ..Attempt::default() });
        for sample in &mut both[1].periods[0].samples {
            for connection in &mut sample.connections {
                (connection.local, connection.remote) = (remote, local);
            }
        }
        both
    }

    fn judged([near, far]: &[Recording; 2]) -> Diagnosis {
        diagnose_both([
            Observed { name: "root@a", recording: near },
            Observed { name: "root@b", recording: far },
        ])
    }

    /// A receiver that gets what the sender of [`Sketch::new`] sends.
    fn receiver() -> Sketch {
        Sketch::new().receiving(|at, receiver| {
            receiver.tcp.bytes_received = Some(Bytes::new(at * 12_500_000));
            receiver.tcp.own_window = Some(Bytes::new(3_000_000));
            receiver.receive_limit = Some(Bytes::new(4_000_000));
        })
    }

    #[test]
    fn a_cause_that_one_end_sees_is_the_verdict_with_the_name_of_that_end() {
        let diagnosis = judged(&recordings(&Sketch::closed_window(), &receiver()));
        let verdict = &diagnosis.verdict;
        assert_eq!(verdict.cause, Some("receiver-window"), "{diagnosis:#?}");
        assert!(verdict.sentence.starts_with("At root@a: the receiver's window"), "{verdict:?}");
        let flow = &diagnosis.periods[0].flows[0];
        assert_eq!((flow.from.as_str(), flow.to.as_str()), ("root@a", "root@b"));
        assert!(!flow.one_sided);
        assert_eq!(flow.causes[0].seen_at, ["root@a"]);
        assert_eq!(flow.ends.iter().map(|end| end.sends).collect::<Vec<_>>(), [true, false]);
        assert_eq!(diagnosis.periods[0].label, "root@a to root@b");
        let page = crate::output::text(&diagnosis, 80, false);
        assert!(page.lines().count() <= 12, "{page}");
        assert!(page.contains("root@a sends") && page.contains("root@b receives"), "{page}");
    }

    /// Makes a receiver into whose window of 250 kB 100 Mbit/s arrive, in round trips of 20 ms.
    fn full_window() -> Sketch {
        receiver().sender(|_, end| end.tcp.own_window = Some(Bytes::new(250_000)))
    }

    #[test]
    fn a_cause_that_both_ends_see_has_the_name_of_the_end_whose_figures_are_shown() {
        let diagnosis = judged(&recordings(&Sketch::closed_window(), &full_window()));
        let found = &diagnosis.periods[0].flows[0].causes[0];
        assert_eq!(found.cause, "receiver-window", "{diagnosis:#?}");
        assert_eq!(found.seen_at, ["root@a", "root@b"]);
        let sentence = &found.finding.sentence;
        assert!(sentence.starts_with("at root@a: the receiver's window"), "{sentence}");
    }

    /// The sender's end measures 400 Mbit/s.
    #[test]
    fn no_bound_of_the_receiving_end_is_below_the_rate_of_the_sending_end() {
        let diagnosis = judged(&recordings(&Sketch::new(), &full_window()));
        let causes = &diagnosis.periods[0].flows[0].causes;
        let found = causes.iter().find(|found| found.cause == "receiver-window");
        let found = found.unwrap_or_else(|| panic!("{diagnosis:#?}"));
        assert_eq!(found.seen_at, ["root@b"]);
        assert_eq!(found.finding.allows, None, "{found:?}");
    }

    #[test]
    fn each_command_names_the_machine_on_which_it_runs() {
        let diagnosis = judged(&recordings(&Sketch::new(), &full_window()));
        let causes = &diagnosis.periods[0].flows[0].causes;
        let found = causes.iter().find(|found| found.cause == "receiver-window").unwrap();
        let commands = &found.finding.advice[0].commands;
        assert!(commands.len() > 1, "{commands:?}");
        let names_machine = |command: &String| command.ends_with("   (on root@b)");
        assert!(commands.iter().all(names_machine), "{commands:?}");
    }

    #[test]
    fn a_reader_that_the_far_end_sees_explains_the_small_window() {
        let slow = receiver().each(|_, sample| {
            for connection in &mut sample.connections {
                connection.receive_queue = Bytes::new(3_900_000);
            }
        });
        let diagnosis = judged(&recordings(&Sketch::closed_window(), &slow));
        assert_eq!(diagnosis.verdict.cause, Some("slow-reader"), "{diagnosis:#?}");
        assert!(diagnosis.verdict.sentence.starts_with("At root@b: "), "{:?}", diagnosis.verdict);
        let causes = &diagnosis.periods[0].flows[0].causes;
        assert!(!causes.iter().any(|found| found.cause == "receiver-window"), "{causes:?}");
    }

    #[test]
    fn a_reader_without_cpu_time_explains_the_small_window() {
        let starved = receiver().each(|_, sample| {
            for connection in &mut sample.connections {
                connection.receive_queue = Bytes::new(90_000);
            }
        });
        let starved = starved.task(7, 1).task(8, 99).core(0, [50, 49, 1, 0]);
        let diagnosis = judged(&recordings(&Sketch::closed_window(), &starved));
        assert_eq!(diagnosis.verdict.cause, Some("cpu"), "{diagnosis:#?}");
        assert!(diagnosis.verdict.sentence.starts_with("At root@b: "), "{:?}", diagnosis.verdict);
        let causes = &diagnosis.periods[0].flows[0].causes;
        assert!(!causes.iter().any(|found| found.cause == "receiver-window"), "{causes:?}");
    }

    #[test]
    fn a_far_end_without_the_connection_is_reported_and_the_near_end_is_judged() {
        let mut both = recordings(&Sketch::closed_window(), &receiver());
        for sample in &mut both[1].periods[0].samples {
            sample.connections.clear();
        }
        let diagnosis = judged(&both);
        assert_eq!(diagnosis.verdict.cause, Some("receiver-window"), "{diagnosis:#?}");
        assert!(diagnosis.periods[0].flows[0].ends.is_empty());
        let unseen = &diagnosis.not_seen;
        assert!(unseen.iter().any(|one| one.what == "at root@b: the connections of the test"));
        assert_eq!(diagnosis.verdict.kind, VerdictKind::Limited);
    }

    #[test]
    fn a_test_that_does_not_reach_the_far_end_is_judged_at_the_near_end() {
        let [mut near, _] = recordings(&Sketch::new(), &receiver());
        assert_eq!(unreached(&near, "no TCP connection".to_owned()), None);
        for sample in &mut near.periods[0].samples {
            sample.connections.clear();
        }
        near.periods[0].attempt = Some(Attempt {
            host: "10.0.0.2".to_owned(),
            port: 5201,
            sends: true,
            refusal: Some(crate::recording::Refusal::Silent),
            ..Attempt::default()
        });
        let far = unreached(&near, "no TCP connection".to_owned()).unwrap();
        let diagnosis = judged(&[near, far]);
        assert_eq!(diagnosis.verdict.cause, Some("no-answer"), "{diagnosis:#?}");
        let unseen = diagnosis.not_seen.iter().find(|one| one.reason == "no TCP connection");
        assert_eq!(unseen.unwrap().what, "at root@b: the connections of the test");
    }

    #[test]
    fn an_end_behind_a_dual_stack_socket_has_its_mapped_address() {
        let mut both = recordings(&Sketch::closed_window(), &receiver());
        let mapped = |end: SocketAddr| match end.ip() {
            std::net::IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
            _ => end,
        };
        for sample in &mut both[1].periods[0].samples {
            for connection in &mut sample.connections {
                connection.local = mapped(connection.local);
                connection.remote = mapped(connection.remote);
            }
        }
        assert_eq!(judged(&both).periods[0].flows[0].ends.len(), 2);
    }
}
