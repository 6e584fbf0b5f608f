//! Applies the table of precedence to the results of the rules, and keeps the findings that stand.

use super::precedence::{Judge, Seen};
use super::{Finding, Outcome, Row, TABLE};
use crate::view::{Flow, View};
use crate::words;
use units::Rate;

/// The result of a cause's rule.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) row: &'static Row,
    pub(crate) outcome: Outcome,
    of_machine: bool,
}

impl Answer {
    /// Ranks the rule's finding by the row.
    fn new(row: &'static Row, outcome: Outcome, of_machine: bool) -> Self {
        let mut answer = Self { row, outcome, of_machine };
        if let Outcome::Holds(finding) = &mut answer.outcome
            && let Some(claim) = finding.claim
        {
            finding.explains = Some(row.rank(claim, of_machine).of(claim.measured));
        }
        answer
    }

    /// Returns the cause that must stand beside the finding.
    fn needs(&self) -> Option<&'static str> {
        let claim = limit(&self.outcome)?.claim?;
        self.row.rank(claim, self.of_machine).beside
    }
}

/// Returns the results for each flow and for the machine.
pub(crate) fn settled<'a>(flows: &[&Flow<'a>], view: &View<'a>) -> (Vec<Vec<Answer>>, Vec<Answer>) {
    let mut machine: Vec<Answer> = TABLE
        .iter()
        .filter_map(|row| Some(Answer::new(row, row.rule.machine?(view), true)))
        .collect();
    silence(&mut machine, None);
    // A cause with a rule for the machine alone also holds for the machine's flows.
    let above: Vec<&'static Row> =
        standing(&machine).filter(|row| row.rule.flow.is_none()).collect();
    let of_flow = |flow: &&Flow<'a>| {
        let answers = TABLE
            .iter()
            .filter_map(|row| Some(Answer::new(row, row.rule.flow?(flow, view), false)));
        let mut answers: Vec<Answer> = answers.collect();
        silence_everywhere(&mut answers, &above);
        let stalls = flow.is_stalled() || flow.is_opening();
        stand(&mut answers, Some((flow, view)), flow.rate(), stalls);
        answers
    };
    let flows: Vec<_> = flows.iter().map(of_flow).collect();
    for answers in &flows {
        let below: Vec<&'static Row> = standing(answers).collect();
        silence_everywhere(&mut machine, &below);
    }
    (flows, machine)
}

/// A flow that was observed at both ends, as the machine of this end sees the flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'s, 'a> {
    pub(crate) flow: &'s Flow<'a>,
    pub(crate) view: &'s View<'a>,
}

/// The end whose result about a cause was chosen. Names and figures of the result are those of this
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    /// The index of the end.
    pub(crate) end: usize,
    /// Whether the other end's result is of the same kind.
    pub(crate) is_both: bool,
}

/// Joins the results of both ends of one connection. Each result has the name of its end.
pub(crate) fn joined(sides: [Side<'_, '_>; 2], answers: [Vec<Answer>; 2]) -> Vec<(Answer, Source)> {
    let sender = usize::from(sides[0].flow.sender.is_none());
    let [near, far] = answers;
    // The answers of each end have every cause with a rule for flows, in the order of the table.
    let (mut all, sources): (Vec<Answer>, Vec<Source>) =
        near.into_iter().zip(far).map(|(near, far)| decided(near, far, sender)).unzip();
    let is_closed = all.iter().zip(&sources).any(|(answer, source)| {
        let share = limit(&answer.outcome).and_then(|fact| fact.explains).unwrap_or(0.0);
        let is_receiver = source.is_both || source.end != sender;
        answer.row.closes_window && share >= CLOSES_FROM && is_receiver
    });
    for answer in all.iter_mut().filter(|_| is_closed) {
        if answer.row.rule.cause == RECEIVER_WINDOW && limit(&answer.outcome).is_some() {
            let by = "the receiving end explains why its window is small";
            answer.outcome = Outcome::ruled_out(by);
        }
    }
    let side = sides[sender];
    silence(&mut all, Some((side.flow, side.view)));
    stand_together(&mut all);
    drop_estimates(&mut all);
    // The bound of a receiver may be below the rate that the sender's end measured.
    keep_bounds(&mut all, side.flow.rate());
    all.into_iter().zip(sources).collect()
}

/// Chooses between the results of both ends for one cause.
fn decided(near: Answer, far: Answer, sender: usize) -> (Answer, Source) {
    let one = |end| Source { end, is_both: false };
    let both = |end| Source { end, is_both: true };
    let judge = near.row.judge.map(|judge| match judge {
        Judge::Sender => sender,
        Judge::Receiver => 1 - sender,
    });
    let is_judged = |answer: &Answer| {
        let is_receiver = answer.row.judge == Some(Judge::Receiver);
        match answer.outcome {
            Outcome::NotSeen(_) => false,
            // If the reader lacks CPU time, the rule about CPU time explains the closed window.
            Outcome::Irrelevant => is_receiver,
            _ => true,
        }
    };
    match judge {
        Some(0) if is_judged(&near) => return (near, one(0)),
        Some(1) if is_judged(&far) => return (far, one(1)),
        _ => {}
    }
    let explains = |answer: &Answer| limit(&answer.outcome).and_then(|fact| fact.explains);
    // The sender's kernel counts the time that a window holds the sender; a receiver estimates.
    let is_far = match near.row.rule.cause == RECEIVER_WINDOW {
        true => sender == 1,
        false => explains(&far) > explains(&near),
    };
    match (weight(&near), weight(&far)) {
        (LIMITS, LIMITS) if is_far => (far, both(1)),
        (near_weight, far_weight) if near_weight == far_weight => (near, both(0)),
        (near_weight, far_weight) if near_weight > far_weight => (near, one(0)),
        _ => (far, one(1)),
    }
}

/// Orders results by what they tell about a cause.
fn weight(answer: &Answer) -> u8 {
    match &answer.outcome {
        Outcome::Holds(finding) if finding.is_limit() => LIMITS,
        Outcome::Holds(_) => 3,
        Outcome::RuledOut(_) => 2,
        Outcome::NotSeen(_) => 1,
        Outcome::Irrelevant => 0,
    }
}

/// Keeps the findings of one flow that may stand beside one another.
fn stand(answers: &mut [Answer], seen: Seen<'_, '_>, rate: Rate, stalls: bool) {
    if stalls {
        answers.iter_mut().for_each(needs_progress);
    }
    silence(answers, seen);
    stand_together(answers);
    drop_estimates(answers);
    keep_bounds(answers, rate);
}

/// Drops each bound below the observed rate.
fn keep_bounds(answers: &mut [Answer], rate: Rate) {
    for answer in answers {
        if let Outcome::Holds(finding) = &mut answer.outcome {
            let told = finding.allows.map(words::rate);
            finding.allows = finding.allows.and_then(|allows| bound(allows, rate));
            // Evidence repeats the allowed rate as text: remove the evidence if the rate was
            // dropped.
            if finding.allows.map(words::rate) != told {
                finding.evidence.retain(|one| Some(&one.value) != told.as_ref());
            }
        }
    }
}

/// Drops each cause that lets data pass from a connection without progress, which such a cause does
/// not explain.
fn needs_progress(answer: &mut Answer) {
    let Some(finding) = limit(&answer.outcome) else { return };
    let lets_pass = finding.allows.is_some_and(|allows| allows >= PROGRESS);
    if answer.row.moves_data || lets_pass {
        answer.outcome = Outcome::ruled_out("this cause lets data through, and no data arrives");
    }
}

fn silence(answers: &mut [Answer], seen: Seen<'_, '_>) {
    for at in 0..answers.len() {
        let row = answers[at].row;
        if !stands(&answers[at]) {
            continue;
        }
        for (other, answer) in answers.iter_mut().enumerate() {
            let cause = answer.row.rule.cause;
            let is_silenced =
                row.silences_cause(cause, seen) || row.silences_cause_everywhere(cause);
            if other != at && is_silenced {
                silenced(answer, row);
            }
        }
    }
}

fn silence_everywhere(answers: &mut [Answer], by: &[&'static Row]) {
    for row in by {
        for answer in answers.iter_mut() {
            if row.silences_cause_everywhere(answer.row.rule.cause) {
                silenced(answer, row);
            }
        }
    }
}

fn silenced(answer: &mut Answer, by: &Row) {
    let Outcome::Holds(finding) = &mut answer.outcome else { return };
    match finding.when_silenced.clone() {
        Some(sentence) if finding.is_limit() => demote(finding, sentence, Some(by)),
        Some(_) => {}
        None => {
            answer.outcome = Outcome::ruled_out(format!("{} explains these signs", by.rule.words))
        }
    }
}

fn demote(finding: &mut Finding, sentence: String, by: Option<&Row>) {
    finding.sentence = sentence;
    finding.explains = None;
    finding.advice.clear();
    if let Some(by) = by {
        finding.against.push(format!("{} explains these signs", by.rule.words));
    }
}

/// Drops each finding that needs another cause if that cause does not stand.
fn stand_together(answers: &mut [Answer]) {
    let limits: Vec<&'static str> = answers
        .iter()
        .filter(|answer| limit(&answer.outcome).is_some())
        .map(|answer| answer.row.rule.cause)
        .collect();
    for answer in answers {
        if answer.needs().is_none_or(|needed| limits.contains(&needed)) {
            continue;
        }
        let Outcome::Holds(finding) = &mut answer.outcome else { continue };
        match finding.when_silenced.take() {
            Some(sentence) => demote(finding, sentence, None),
            None => answer.outcome = Outcome::Irrelevant,
        }
    }
}

/// Drops an estimate that follows from the rate if another cause explains more.
fn drop_estimates(answers: &mut [Answer]) {
    let facts = answers.iter().filter_map(|answer| limit(&answer.outcome));
    let most = facts.filter(|fact| !fact.is_estimate).filter_map(|fact| fact.explains);
    let most = most.fold(0.0, f64::max);
    for answer in answers {
        let explains = limit(&answer.outcome).filter(|fact| fact.is_estimate);
        if explains.and_then(|fact| fact.explains).is_some_and(|share| share <= most) {
            answer.outcome = Outcome::ruled_out(
                "the sender's estimate follows from the rate that other causes allow",
            );
        }
    }
}

/// Drops a bound below the rate. A bound within the error of measurement becomes the rate.
fn bound(allows: Rate, rate: Rate) -> Option<Rate> {
    let near = allows.bits_per_second() as f64 >= rate.bits_per_second() as f64 * MEASURED;
    near.then(|| allows.max(rate))
}

fn standing(answers: &[Answer]) -> impl Iterator<Item = &'static Row> + '_ {
    answers.iter().filter(|answer| stands(answer)).map(|answer| answer.row)
}

/// Whether the cause explains enough to silence other causes.
fn stands(answer: &Answer) -> bool {
    limit(&answer.outcome)
        .and_then(|fact| fact.explains)
        .is_some_and(|share| share >= answer.row.silences_from)
}

fn limit(outcome: &Outcome) -> Option<&Finding> {
    outcome.finding().filter(|finding| finding.is_limit())
}

const LIMITS: u8 = 4;
/// Minimum share of a cause that explains a small window: a smaller share leaves room for a small
/// buffer.
const CLOSES_FROM: f64 = 0.5;
const RECEIVER_WINDOW: &str = "receiver-window";
/// A cause that allows this rate lets data pass: a stalled connection is much slower.
const PROGRESS: Rate = Rate::from_bits_per_second(64_000);
/// Minimum bound, as a share of the observed rate: measurement error explains this much.
const MEASURED: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The index of a cause in the table, the share that it explains, its bound, and whether it is
    /// an estimate.
    type Fact = (usize, Option<f64>, Option<u64>, bool);

    fn answers(facts: &[Fact]) -> Vec<Answer> {
        let answer = |(at, explains, allows, estimate): &Fact| {
            let mut finding = Finding::new("a fact");
            finding.explains = *explains;
            finding.allows = allows.map(Rate::from_bits_per_second);
            finding.is_estimate = *estimate;
            Answer::new(&TABLE[at % TABLE.len()], finding.holds(), false)
        };
        facts.iter().map(answer).collect()
    }

    fn fact() -> impl Strategy<Value = Fact> {
        let rate = 0_u64..10_000_000_000;
        (any::<usize>(), prop::option::of(0.0..=1.0), prop::option::of(rate), any::<bool>())
    }

    #[test]
    fn own_datagrams_override_the_path_only_from_half_on_and_the_cpu_also_below_half() {
        let place = |cause| TABLE.iter().position(|row| row.rule.cause == cause).unwrap();
        let path_stands = |cause, share| {
            let mut answers = answers(&[
                (place(cause), Some(share), None, false),
                (place("path"), Some(0.6), None, false),
            ]);
            stand(&mut answers, None, Rate::default(), false);
            limit(&answers[1].outcome).is_some()
        };
        assert!(!path_stands("cpu", 0.45));
        assert!(path_stands("own-datagrams", 0.45) && !path_stands("own-datagrams", 0.5));
    }

    proptest! {
        #[test]
        fn no_allowed_rate_is_below_the_observed_rate(
            facts in prop::collection::vec(fact(), 0..20),
            rate in 0_u64..10_000_000_000,
            stalls in any::<bool>(),
        ) {
            let mut answers = answers(&facts);
            let rate = Rate::from_bits_per_second(rate);
            stand(&mut answers, None, rate, stalls);
            for finding in answers.iter().filter_map(|answer| answer.outcome.finding()) {
                prop_assert!(finding.allows.is_none_or(|allows| allows >= rate), "{finding:?}");
            }
        }

        #[test]
        fn a_stalled_connection_has_no_limit_that_lets_data_through(
            facts in prop::collection::vec(fact(), 0..20),
        ) {
            let mut answers = answers(&facts);
            stand(&mut answers, None, Rate::default(), true);
            for answer in answers.iter().filter(|answer| limit(&answer.outcome).is_some()) {
                prop_assert!(!answer.row.moves_data, "{answer:?}");
                let allows = limit(&answer.outcome).and_then(|fact| fact.allows);
                prop_assert!(allows.is_none_or(|allows| allows < PROGRESS), "{answer:?}");
            }
        }

        #[test]
        fn an_estimate_stands_only_if_it_explains_most_of_the_rate(
            facts in prop::collection::vec(fact(), 0..20),
        ) {
            let mut answers = answers(&facts);
            stand(&mut answers, None, Rate::default(), false);
            let limits = || answers.iter().filter_map(|answer| limit(&answer.outcome));
            for one in limits().filter(|one| one.is_estimate) {
                let explains = one.explains;
                prop_assert!(limits().all(|fact| fact.is_estimate || fact.explains < explains));
            }
        }
    }
}
