//! The verdict: the first cause, and the other causes after it.

use super::{Confidence, FlowReport, Found, PeriodReport, Question, Verdict, VerdictKind};
use crate::recording::{Origin, Recording, TCP_CONNECTIONS};
use crate::rules::{Finding, row_of};
use crate::words;
use std::collections::BTreeMap;

pub(super) fn of(recording: &Recording, periods: &[PeriodReport], question: Question) -> Verdict {
    let nothing = |kind, sentence: String, confidence| Verdict {
        kind,
        cause: None,
        sentence,
        confidence,
        causes: Vec::new(),
    };
    if periods.is_empty() {
        return nothing(
            VerdictKind::NotEnoughEvidence,
            "There is not enough evidence: the observation has less than two samples.".to_owned(),
            Confidence::Low,
        );
    }
    if recording.origin == Origin::Saved && periods.len() > 1 {
        return of_cells(recording, periods, question);
    }
    let flows = || periods.iter().flat_map(|period| &period.flows);
    // Other connections of the machine are no part of a test.
    let is_test = recording.origin != Origin::Saved
        && recording.periods.iter().any(|period| period.attempt.is_some());
    let mut limits: Vec<(&FlowReport, &Found)> = flows()
        .filter(|flow| !is_test || flow.tested || flow.opening)
        .filter_map(|flow| Some((flow, flow.causes.iter().find(|found| found.limits_enough())?)))
        .collect();
    // A slow application or a full link is no fault unless the user asked about a connection.
    let is_fault = |found: &Found| question == Question::Flow || !found.finding.healthy;
    // The verdict of a test is about its slower direction.
    let fastest = flows().filter(|flow| flow.tested).map(|flow| flow.rate).max();
    let fastest = fastest.unwrap_or_default();
    let is_slower = |flow: &FlowReport, times: u64| {
        let rate = flow.rate.bits_per_second().saturating_mul(times);
        is_test && flow.tested && rate < fastest.bits_per_second()
    };
    limits.sort_by_key(|(flow, found)| {
        (!is_fault(found), !is_slower(flow, SLOWER), is_test && !flow.tested)
    });
    let of_machine = periods
        .iter()
        .flat_map(|period| &period.machine)
        .filter(|found| found.limits_enough())
        .max_by(|a, b| {
            a.finding.explains.unwrap_or(0.0).total_cmp(&b.finding.explains.unwrap_or(0.0))
        });
    // A full core or link of the fast direction does not explain the slow direction.
    let unknown = flows()
        .find(|flow| is_slower(flow, MUCH_SLOWER) && !flow.causes.iter().any(Found::limits_enough));
    let is_of_direction =
        |found: &Found| row_of(found.cause).is_some_and(|row| row.is_of_direction);
    let is_used_up = |found: &Found| found.finding.healthy || is_of_direction(found);
    if let Some(flow) = unknown
        && of_machine.is_none()
        && limits.first().is_none_or(|(_, found)| is_used_up(found))
    {
        return nothing(
            VerdictKind::NotEnoughEvidence,
            format!(
                "There is not enough evidence: nothing that was seen limits {} → {} at {}, and the other direction moves {}.",
                flow.from,
                flow.to,
                words::rate(flow.rate),
                words::rate(fastest)
            ),
            Confidence::Low,
        );
    }
    let is_ruled_out_here =
        |flow: &FlowReport| flow.receives_only && !flow.tested && !is_blind(recording, periods);
    match (limits.first(), of_machine) {
        (Some((flow, found)), _) if is_fault(found) => {
            let kind = match found.finding.healthy && !is_of_application(found.cause) {
                true => VerdictKind::NothingWrong,
                false => VerdictKind::Limited,
            };
            Verdict {
                kind,
                cause: Some(found.cause),
                sentence: format!("{}.", capital(&found.finding.sentence)),
                confidence: confidence(&found.finding),
                causes: causes(found.cause, Some(flow), periods, question),
            }
        }
        (_, Some(found)) => Verdict {
            kind: VerdictKind::Limited,
            cause: Some(found.cause),
            sentence: format!("{}.", capital(&found.finding.sentence)),
            confidence: confidence(&found.finding),
            causes: causes(found.cause, None, periods, question),
        },
        (Some((flow, found)), None) => Verdict {
            kind: VerdictKind::NothingWrong,
            cause: Some(found.cause),
            sentence: format!(
                "Nothing is wrong: the busiest connection moves {}, and {}.",
                words::rate(flow.rate),
                found.finding.sentence
            ),
            confidence: confidence(&found.finding),
            causes: causes(found.cause, Some(flow), periods, question),
        },
        (None, None) => match flows().next() {
            // The far sender may be slow, which is no fault of this machine.
            Some(flow) if question == Question::Machine && flow.receives_only => nothing(
                VerdictKind::NothingWrong,
                format!(
                    "Nothing is wrong on this machine: it receives {} from {}, and nothing here holds that back.",
                    words::rate(flow.rate),
                    flow.from
                ),
                Confidence::Medium,
            ),
            Some(flow) if is_ruled_out_here(flow) => nothing(
                VerdictKind::NotEnoughEvidence,
                format!(
                    "There is not enough evidence here: nothing that was seen on this machine limits {} → {} at {}. \
                     Look at the sender and the path: run weir doctor on the sender.",
                    flow.from,
                    flow.to,
                    words::rate(flow.rate)
                ),
                Confidence::Low,
            ),
            Some(flow) => nothing(
                VerdictKind::NotEnoughEvidence,
                format!(
                    "There is not enough evidence: nothing that was seen limits {} → {} at {}.",
                    flow.from,
                    flow.to,
                    words::rate(flow.rate)
                ),
                Confidence::Low,
            ),
            None if question == Question::Flow => nothing(
                VerdictKind::NotEnoughEvidence,
                match has_short_lived(recording) {
                    false => "There is not enough evidence: no data moved, and none waits to be sent.",
                    true => "There is not enough evidence: only short connections moved data, and nothing \
                        that was seen limits them.",
                }
                .to_owned(),
                Confidence::Low,
            ),
            None if is_blind(recording, periods) => nothing(
                VerdictKind::NotEnoughEvidence,
                "There is not enough evidence: no connection could be read, or no counter of the \
                 machine."
                    .to_owned(),
                Confidence::Low,
            ),
            None => nothing(
                VerdictKind::NothingWrong,
                match has_short_lived(recording) {
                    false => "Nothing is wrong: no connection transfers data now, and interfaces, queues and \
                        limits are in order.",
                    true => "Nothing is wrong: connections are short, and interfaces, queues and limits are in \
                        order.",
                }
                .to_owned(),
                Confidence::High,
            ),
        },
    }
}

/// Returns the verdict on the cells of a lab: for each cause, the number of cells that it limits.
fn of_cells(recording: &Recording, periods: &[PeriodReport], question: Question) -> Verdict {
    let each: Vec<Verdict> = periods
        .iter()
        .map(|period| of(recording, std::slice::from_ref(period), question))
        .collect();
    let mut counts: BTreeMap<Option<&'static str>, usize> = BTreeMap::new();
    for one in &each {
        *counts.entry(one.cause).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(cause, count)| (std::cmp::Reverse(*count), *cause));
    let words = |cause: &str| row_of(cause).map(|row| row.rule.words);
    let told: Vec<String> = counts
        .iter()
        .map(|(cause, count)| {
            let cause = cause.map_or(Some("no cause that was saved"), words).unwrap_or("another");
            format!("{cause} {count}")
        })
        .collect();
    let causes: Vec<&'static str> = counts.iter().filter_map(|(cause, _)| *cause).collect();
    let first = each.iter().find(|one| one.cause == causes.first().copied());
    Verdict {
        kind: first.map_or(VerdictKind::NotEnoughEvidence, |one| one.kind),
        cause: causes.first().copied(),
        sentence: format!("The limits of the {} cells: {}.", periods.len(), told.join(", ")),
        confidence: each.iter().map(|one| one.confidence).min().unwrap_or(Confidence::Low),
        causes,
    }
}

fn has_short_lived(recording: &Recording) -> bool {
    let short = recording.periods.iter().filter_map(|period| period.short_lived);
    short.map(|short| short.connections).any(|count| count > 0)
}

/// Whether the recording lacks the list of connections, or the signals of every cause. Such a
/// recording cannot show that nothing is wrong.
fn is_blind(recording: &Recording, periods: &[PeriodReport]) -> bool {
    recording.unseen.iter().any(|unseen| unseen.what == TCP_CONNECTIONS)
        || periods.iter().all(|period| period.ruled_out.is_empty())
}

/// Returns the causes, the cause of the verdict first. `of`: the flow that the verdict is about.
fn causes(
    first: &'static str,
    of: Option<&FlowReport>,
    periods: &[PeriodReport],
    question: Question,
) -> Vec<&'static str> {
    let flows = || periods.iter().flat_map(|period| &period.flows);
    let is_other = |flow: &&FlowReport| of.is_none_or(|of| !std::ptr::eq(*flow, of));
    let is_fault = |found: &&Found| question == Question::Flow || !found.finding.healthy;
    let leading =
        |flow: &'_ FlowReport| Some(flow.causes.iter().find(|one| one.limits_enough())?.clone());
    let others: Vec<Found> = flows().filter(is_other).filter_map(leading).collect();
    let others = others.iter().filter(is_fault).map(|found| found.cause);
    let mut machine: Vec<&Found> = periods
        .iter()
        .flat_map(|period| &period.machine)
        .filter(|found| found.limits_enough())
        .collect();
    let share = |found: &Found| found.finding.explains.unwrap_or(0.0);
    machine.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let machine = machine.into_iter().map(|found| found.cause);
    let rest = of.into_iter().chain(flows().filter(is_other)).flat_map(|flow| &flow.causes);
    let rest = rest.filter(|found| found.finding.explains.is_some()).map(|found| found.cause);
    let mut causes = vec![first];
    for cause in others.chain(machine).chain(rest) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes
}

/// Whether the cause is a limit by the application, which is a verdict if the user asks about the
/// connection.
fn is_of_application(cause: &str) -> bool {
    row_of(cause).is_some_and(|row| row.is_application)
}

fn confidence(finding: &Finding) -> Confidence {
    match finding.explains.unwrap_or(0.0) {
        _ if !finding.against.is_empty() => Confidence::Low,
        share if share >= 0.8 => Confidence::High,
        _ => Confidence::Medium,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A direction of a test counts as slower if the other direction's rate is more than this multiple
/// of its own rate.
const SLOWER: u64 = 2;
const MUCH_SLOWER: u64 = 3;
