//! Applies the rules to a recording, and ranks the causes that hold.

mod advice;
mod two_ends;
mod verdict;

pub use two_ends::{EndReport, Observed, diagnose_both, unreached};

use crate::recording::{Drops, Origin, Period, Recording, Unseen};
use crate::rules::{Answer, Finding, Outcome, settled};
use crate::view::{self, Flow, View};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use units::{Rate, Span};

/// A diagnosis, which `--json` prints (`docs/reference/doctor.md`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The version of this document.
    pub weir_doctor: u32,
    pub verdict: Verdict,
    pub periods: Vec<PeriodReport>,
    pub not_seen: Vec<Unseen>,
    pub origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub kernel: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub kind: VerdictKind,
    /// The cause's name; `None` if no cause holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// One sentence.
    pub sentence: String,
    pub confidence: Confidence,
    /// The cause of the verdict, then the first causes of other connections and of the machine,
    /// then all other causes that limit a connection.
    pub causes: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    Limited,
    NothingWrong,
    NotEnoughEvidence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    Low,
    Medium,
    High,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeriodReport {
    pub label: String,
    pub observed: Span,
    /// The mean time between two samples. The observation takes fewer samples if they are
    /// expensive.
    pub sampled_every: Span,
    /// The share of a core that the observation itself took, with the start of the command and,
    /// for an observation of this command, with the judgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_cpu: Option<f64>,
    /// The flows that were judged, the busiest first.
    pub flows: Vec<FlowReport>,
    /// Connections that transferred less than a verdict needs.
    pub quiet: usize,
    /// The packets that the kernel dropped, by drop reason and location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<Drops>,
    /// Causes of the machine as a whole.
    pub machine: Vec<Found>,
    pub ruled_out: Vec<RuledOut>,
    pub not_seen: Vec<RuledOut>,
    /// Whether the period has more flows, threads or control groups than are judged.
    #[serde(skip)]
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowReport {
    pub from: String,
    pub to: String,
    pub processes: String,
    pub rate: Rate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Whether only one end of the connection was observed.
    pub one_sided: bool,
    /// Whether only the receiver was observed: the sender is another machine.
    pub receives_only: bool,
    /// Whether the flow belongs to a test, so that its sender had data all the time.
    #[serde(skip)]
    pub tested: bool,
    /// Whether the connection waits for its handshake.
    #[serde(skip)]
    pub opening: bool,
    /// The first program at an end on this machine, and the control group of the program.
    #[serde(skip)]
    pub program: String,
    #[serde(skip)]
    pub group: Option<String>,
    /// The far end of the socket on this machine.
    #[serde(skip)]
    pub peer: IpAddr,
    /// Each end of the connection, if both ends were observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<EndReport>,
    pub causes: Vec<Found>,
    pub ruled_out: Vec<RuledOut>,
    pub not_seen: Vec<RuledOut>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    pub cause: &'static str,
    /// The ends of the connection that saw the cause, if both ends were observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen_at: Vec<String>,
    #[serde(flatten)]
    pub finding: Finding,
}

impl Diagnosis {
    /// Adds the CPU time of the judgement to that of the observations, so that the share of a core
    /// in the output is the share that the whole command took.
    pub fn add_own_cpu(&mut self, judging: Span) {
        let observed: f64 = self.periods.iter().map(|period| period.observed.secs_f64()).sum();
        let more = judging.secs_f64() / observed.max(1e-9);
        for share in self.periods.iter_mut().filter_map(|period| period.observer_cpu.as_mut()) {
            *share += more;
        }
    }
}

impl Found {
    /// Whether the cause explains enough to be a verdict.
    pub(crate) fn limits_enough(&self) -> bool {
        self.finding.explains.is_some_and(|share| share >= LIMITS_FROM)
    }
}

impl VerdictKind {
    /// Returns the kind's name in the JSON document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::NothingWrong => "nothing_wrong",
            Self::NotEnoughEvidence => "not_enough_evidence",
        }
    }
}

/// A cause that does not hold or that could not be judged, with the deciding number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuledOut {
    pub cause: &'static str,
    pub words: &'static str,
    pub by: String,
}

/// The user's question, which decides whether a slow application is a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Is anything wrong with this machine?
    Machine,
    /// Which cause limits this flow?
    Flow,
}

impl Question {
    /// Returns the question that the recording was made for.
    pub fn of(recording: &Recording) -> Self {
        if recording.focus.is_some() { Self::Flow } else { Self::Machine }
    }
}

/// Applies every rule.
pub fn diagnose(recording: &Recording, question: Question) -> Diagnosis {
    let periods: Vec<_> =
        recording.periods.iter().filter_map(|period| report(recording, period)).collect();
    let mut not_seen = recording.unseen.clone();
    if periods.iter().any(|period| period.is_cut) {
        not_seen.push(view::cut_off());
    }
    Diagnosis {
        weir_doctor: 1,
        verdict: verdict::of(recording, &periods, question),
        periods,
        not_seen,
        origin: recording.origin,
        note: recording.note.clone(),
        kernel: recording.machine.kernel.clone(),
    }
}

fn report(recording: &Recording, period: &Period) -> Option<PeriodReport> {
    let view = View::of(recording, period)?;
    let busy: Vec<_> = view.flows.iter().filter(|flow| flow.is_busy()).collect();
    let shown: Vec<_> = busy.iter().take(MOST_FLOWS).copied().collect();
    let (answers, machine) = settled(&shown, &view);
    let mut machine = sorted(machine.into_iter().map(|one| within_saved(recording, one)));
    for found in &mut machine.causes {
        advice::name(&mut found.finding, None, &view);
    }
    let flows = shown.iter().zip(answers);
    Some(PeriodReport {
        label: period.label.clone(),
        observed: view.elapsed(),
        sampled_every: view.elapsed() / (view.samples().len() as u64 - 1).max(1),
        observer_cpu: period
            .own_cpu
            .map(|cpu| cpu.secs_f64() / view.elapsed().secs_f64().max(1e-9)),
        quiet: view.flows.len() - busy.len(),
        flows: flows.map(|(flow, answers)| of_flow(flow, answers, &view)).collect(),
        drops: period.drops.clone(),
        machine: machine.causes,
        ruled_out: machine.ruled_out,
        not_seen: machine.not_seen,
        is_cut: view.is_cut,
    })
}

fn of_flow(flow: &Flow<'_>, answers: Vec<Answer>, view: &View<'_>) -> FlowReport {
    let mut sorted = sorted(answers.into_iter().map(|one| within_saved(view.recording, one)));
    for found in &mut sorted.causes {
        advice::name(&mut found.finding, Some(flow), view);
    }
    described(flow, view, sorted)
}

fn described(flow: &Flow<'_>, view: &View<'_>, sorted: Sorted) -> FlowReport {
    let (from, to) = flow.addresses();
    let named = |end: SocketAddr| match view.machine().names.get(&end.ip()) {
        Some(name) => name.clone(),
        None => end.to_string(),
    };
    FlowReport {
        from: named(from),
        to: named(to),
        processes: flow.processes(),
        rate: flow.rate(),
        rtt: flow.rtt(),
        congestion: flow.sender.as_ref().and_then(|end| end.last().congestion.clone()),
        receives_only: flow.sender.is_none() && !flow.is_stalled(),
        tested: flow.tested,
        opening: flow.is_opening(),
        program: flow.holder().map(|holder| holder.name.clone()).unwrap_or_default(),
        group: flow.holder().and_then(|holder| holder.group.clone()),
        peer: flow.end().last().remote.ip(),
        one_sided: !flow.is_inside() && flow.far.is_none_or(|far| !far.weir),
        ends: Vec::new(),
        causes: sorted.causes,
        ruled_out: sorted.ruled_out,
        not_seen: sorted.not_seen,
    }
}

#[derive(Default)]
struct Sorted {
    causes: Vec<Found>,
    ruled_out: Vec<RuledOut>,
    not_seen: Vec<RuledOut>,
}

/// Marks a cause that was ruled out as not seen, if the recording lacks the signals of this cause,
/// as saved results and captures do.
fn within_saved(recording: &Recording, mut answer: Answer) -> Answer {
    let lacks = match recording.origin {
        Origin::Saved if !answer.row.is_saved => "signals that a saved result does not have",
        Origin::Captured if !answer.row.is_captured => "signals that a capture does not have",
        _ => return answer,
    };
    if matches!(answer.outcome, Outcome::RuledOut(_)) {
        answer.outcome = Outcome::not_seen(lacks);
    }
    answer
}

/// Sorts limits by the share that each explains, before findings that limit nothing. The sort is
/// stable: the order of the table of precedence decides between equal causes.
fn sorted(answers: impl Iterator<Item = Answer>) -> Sorted {
    let mut sorted = Sorted::default();
    answers.for_each(|answer| sorted.add(answer));
    sorted.by_share();
    sorted
}

impl Sorted {
    fn add(&mut self, answer: Answer) {
        let (cause, words) = (answer.row.rule.cause, answer.row.rule.words);
        match answer.outcome {
            Outcome::Holds(finding) => {
                self.causes.push(Found { cause, seen_at: Vec::new(), finding: *finding });
            }
            Outcome::RuledOut(by) => self.ruled_out.push(RuledOut { cause, words, by }),
            Outcome::NotSeen(by) => self.not_seen.push(RuledOut { cause, words, by }),
            Outcome::Irrelevant => {}
        }
    }

    fn by_share(&mut self) {
        let score = |found: &Found| found.finding.explains.unwrap_or(-1.0);
        self.causes.sort_by(|a, b| rounded(score(b)).total_cmp(&rounded(score(a))));
    }
}

/// Rounds a share to a multiple of 1/20, so that noise does not decide the order.
fn rounded(share: f64) -> f64 {
    (share * 20.0).round()
}

const MOST_FLOWS: usize = 8;
/// Minimum share that a cause must explain to be the verdict. A cause with a smaller share is named
/// beside the verdict.
pub(crate) const LIMITS_FROM: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Group, ShortLived, TCP_CONNECTIONS};
    use crate::rules::sketch::Sketch;
    use units::Bytes;

    fn judged(sketch: &Sketch, question: Question) -> Verdict {
        diagnose(sketch.recording(), question).verdict
    }

    #[test]
    fn the_cause_that_explains_most_is_the_verdict() {
        let verdict = judged(&Sketch::closed_window(), Question::Machine);
        assert_eq!((verdict.kind, verdict.cause), (VerdictKind::Limited, Some("receiver-window")));
        assert_eq!(verdict.confidence, Confidence::High);
        assert!(verdict.sentence.starts_with("The receiver's window is the limit"));
    }

    #[test]
    fn lists_of_a_period_that_are_cut_are_named() {
        let mut recording = Sketch::idle().recording().clone();
        let is_named = |recording: &Recording| {
            diagnose(recording, Question::Machine).not_seen.contains(&view::cut_off())
        };
        assert!(!is_named(&recording));
        for sample in &mut recording.periods[0].samples {
            let group = |at: u32| Group { path: format!("/{at}"), ..Group::default() };
            sample.groups = (0..1025).map(group).collect();
        }
        assert!(is_named(&recording));
    }

    #[test]
    fn two_causes_that_limit_a_flow_are_both_named() {
        let both = Sketch::closed_window().sender(|at, sender| {
            sender.tcp.buffer_limited = Some(Span::from_millis(500 * at));
        });
        let verdict = judged(&both, Question::Flow);
        assert_eq!(verdict.causes[..2], ["receiver-window", "send-buffer"]);
    }

    /// The recording passes through its file format, and the order is that of the document.
    #[test]
    fn the_causes_of_a_recording_stand_in_the_order_of_their_shares() {
        let named = ["receiver-window", "send-buffer", "udp-buffer"];
        let order = |window: u64, buffer: u64| {
            let sketch = Sketch::closed_window().tcp(move |at, tcp| {
                tcp.window_limited = Some(Span::from_millis(window * at));
                tcp.buffer_limited = Some(Span::from_millis(buffer * at));
            });
            let sketch = sketch.counter("UdpRcvbufErrors", 500).counter("UdpInDatagrams", 1_000);
            let text = serde_json::to_string(sketch.recording()).unwrap();
            let recording = Recording::parse(&text).unwrap();
            let document = crate::output::json(&diagnose(&recording, Question::Machine));
            let document: serde_json::Value = serde_json::from_str(&document).unwrap();
            let verdict = &document["verdict"];
            assert_eq!(verdict["cause"], verdict["causes"][0], "{verdict}");
            let causes = verdict["causes"].as_array().unwrap().iter();
            let causes = causes.filter_map(|cause| cause.as_str().map(str::to_owned));
            causes.filter(|cause| named.contains(&cause.as_str())).collect::<Vec<_>>()
        };
        // The cause of the verdict is first, then the cause of the machine, then the other causes
        // of the connection.
        assert_eq!(order(900, 600), ["receiver-window", "udp-buffer", "send-buffer"]);
        assert_eq!(order(600, 900), ["send-buffer", "udp-buffer", "receiver-window"]);
    }

    #[test]
    fn an_idle_machine_has_nothing_wrong() {
        let verdict = judged(&Sketch::idle(), Question::Machine);
        assert_eq!((verdict.kind, verdict.cause), (VerdictKind::NothingWrong, None));
        let mut unread = Sketch::idle().recording().clone();
        let (what, reason) = (TCP_CONNECTIONS.to_owned(), "refused".to_owned());
        unread.unseen.push(Unseen { what, reason });
        let verdict = diagnose(&unread, Question::Machine).verdict;
        assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence);
        let asked = judged(&Sketch::idle(), Question::Flow);
        assert_eq!(asked.kind, VerdictKind::NotEnoughEvidence);
        assert!(asked.sentence.contains("no data moved"), "{asked:?}");
        let mut short = Sketch::idle().recording().clone();
        short.periods[0].short_lived = Some(ShortLived { connections: 1, bytes: Bytes::new(900) });
        let asked = diagnose(&short, Question::Flow).verdict;
        assert_eq!(asked.kind, VerdictKind::NotEnoughEvidence);
        assert!(asked.sentence.contains("only short connections"), "{asked:?}");
    }

    #[test]
    fn a_slow_application_is_a_verdict_only_about_a_connection() {
        let slow = Sketch::new().tcp(|at, tcp| {
            tcp.busy = Some(Span::from_millis(100 * at));
            tcp.bytes_acked = Some(Bytes::new(at * 1_250_000));
            (tcp.unsent, tcp.unacked) = (Some(Bytes::ZERO), Some(0));
        });
        let machine = judged(&slow, Question::Machine);
        assert_eq!(machine.kind, VerdictKind::NothingWrong);
        assert!(machine.sentence.starts_with("Nothing is wrong: "), "{}", machine.sentence);
        let flow = judged(&slow, Question::Flow);
        assert_eq!((flow.kind, flow.cause), (VerdictKind::Limited, Some("application")));
    }

    #[test]
    fn the_verdict_about_an_unlimited_receiver_advises_to_observe_the_sender() {
        let receives = Sketch::new().receiving(|_, receiver| {
            receiver.tcp.own_window = Some(Bytes::new(9_000_000));
        });
        let asked = judged(&receives, Question::Flow);
        assert_eq!(asked.kind, VerdictKind::NotEnoughEvidence, "{asked:?}");
        assert!(asked.sentence.ends_with("run weir doctor on the sender."), "{asked:?}");
    }

    /// Diagnoses a test of two directions, one sketch each.
    fn directions(sending: &Sketch, receiving: &Sketch) -> Verdict {
        let mut recording = sending.recording().clone();
        recording.focus = Some("a test with far".to_owned());
        recording.periods.extend(receiving.recording().periods.clone());
        for (sends, period) in [true, false].into_iter().zip(&mut recording.periods) {
            let one = &period.samples[0].connections[0];
            let connections = vec![(one.local, one.remote)];
            period.attempt =
                Some(crate::recording::Attempt { connections, sends, ..Default::default() });
        }
        diagnose(&recording, Question::Flow).verdict
    }

    #[test]
    fn the_slow_direction_of_a_test_has_the_verdict() {
        let fast = || {
            Sketch::new().task(7, 99).core(0, [60, 37, 2, 0]).tcp(|_, tcp| {
                tcp.unsent = Some(Bytes::ZERO);
            })
        };
        let back = |mbit: u64, window: u64| {
            Sketch::new().receiving(move |at, receiver| {
                receiver.tcp.bytes_received = Some(Bytes::new(at * mbit * 125_000));
                receiver.tcp.own_window = Some(Bytes::new(window));
            })
        };
        // 20 Mbit/s at a round trip of 20 ms need a window of 50 kB.
        let slow = directions(&fast(), &back(20, 52_000));
        assert_eq!(slow.cause, Some("receiver-window"), "{slow:?}");
        let alike = directions(&fast(), &back(200, 520_000));
        assert_eq!(alike.cause, Some("cpu"), "{alike:?}");
        let unknown = directions(&fast(), &back(20, 3_000_000));
        assert_eq!(unknown.kind, VerdictKind::NotEnoughEvidence, "{unknown:?}");
        assert!(unknown.sentence.contains("20 Mbit/s"), "{unknown:?}");
    }

    /// A user's own connection to the machine says nothing about the test.
    #[test]
    fn another_connection_is_no_verdict_about_a_test() {
        let other = Sketch::new().tcp(|at, tcp| {
            tcp.busy = Some(Span::from_millis(100 * at));
            tcp.bytes_acked = Some(Bytes::new(at * 90_000));
            (tcp.unsent, tcp.unacked) = (Some(Bytes::ZERO), Some(0));
        });
        let refusal = Some(crate::recording::Refusal::Refused);
        let attempt = crate::recording::Attempt { refusal, ..Default::default() };
        let mut recording = other.attempt(attempt).recording().clone();
        recording.focus = Some("a test with far".to_owned());
        let verdict = diagnose(&recording, Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("refused"), "{verdict:?}");
    }

    #[test]
    fn a_full_link_gives_the_verdict_nothing_wrong() {
        let full = Sketch::new().each(|at, sample| {
            let eth0 = sample.interfaces.get_mut("eth0").unwrap();
            eth0.sent = Bytes::new(at * 120_000_000);
            eth0.sent_packets = at * 79_000;
        });
        for question in [Question::Machine, Question::Flow] {
            let verdict = judged(&full, question);
            assert_eq!((verdict.kind, verdict.cause), (VerdictKind::NothingWrong, Some("link")));
        }
    }

    #[test]
    fn one_sample_or_no_known_cause_is_too_little_evidence() {
        let mut single = Sketch::new().recording().clone();
        single.periods[0].samples.truncate(1);
        let verdict = diagnose(&single, Question::Machine).verdict;
        assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence);
        let unknown = Sketch::new().tcp(|_, tcp| tcp.unacked = Some(100));
        let verdict = judged(&unknown, Question::Flow);
        assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence, "{verdict:?}");
    }

    #[test]
    fn a_fault_of_the_machine_gives_a_verdict_without_any_flow() {
        let flaps = Sketch::idle().each(|at, sample| {
            sample.interfaces.get_mut("eth0").unwrap().carrier_changes = Some(1 + at);
        });
        let verdict = judged(&flaps, Question::Machine);
        assert_eq!(verdict.cause, Some("interface-errors"));
    }

    #[test]
    fn a_recording_without_signals_is_judged_without_a_verdict() {
        let empty = Sketch::new().each(|at, sample| {
            *sample = crate::recording::Sample { at: Span::from_secs(at), ..Default::default() };
        });
        let diagnosis = diagnose(empty.recording(), Question::Machine);
        assert!(diagnosis.periods[0].machine.is_empty());
        assert!(!diagnosis.periods[0].not_seen.is_empty());
        assert_eq!(diagnosis.verdict.kind, VerdictKind::NotEnoughEvidence);
    }

    /// 200 bytes each 30 ms are less than a transfer, but enough for a question about the
    /// connection.
    #[test]
    fn a_slow_connection_is_judged_if_the_user_asks_about_it() {
        let trickle = Sketch::new().tcp(|at, tcp| {
            let messages = at as u32 * 33;
            tcp.rtt = Some(Span::from_millis(30));
            tcp.data_segments_out = Some(messages);
            tcp.data_segments_in = Some(messages);
            tcp.bytes_acked = Some(Bytes::new(u64::from(messages) * 200));
            tcp.bytes_received = Some(Bytes::new(u64::from(messages)));
            tcp.unsent = Some(Bytes::ZERO);
        });
        assert_eq!(judged(&trickle, Question::Machine).kind, VerdictKind::NothingWrong);
        let mut asked = trickle.recording().clone();
        asked.focus = Some("port 5201".to_owned());
        let verdict = diagnose(&asked, Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("request-response"), "{verdict:?}");
    }
}
