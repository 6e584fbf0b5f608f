//! Turns finished turns into `results.json`: medians and intervals per cell, ratios between
//! systems.

mod goals;
mod members;

use super::overall;
use crate::file::{CompareSpec, HeatSpec, LabFile, WorkloadKind};
use crate::run::plan::{self, Plan, PlannedCell};
use crate::run::{Flaw, Measurement, Outcome, Verdict};
use indexmap::IndexMap;
use results::{
    Axes, Cell, Comparison, Heat, Metric, Ratio, Reference, Results, Sample, Samples, Series, View,
    metrics,
};
use stats::Direction;
use toml::Spanned;
use units::Share;

pub(crate) fn results(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Results {
    let mut results = Results::new(lab.name(), plan.form);
    results.title = lab.title.clone();
    results.question = lab.question.clone();
    results.view = lab.view.as_ref().map(|view| View {
        metric: view.metric.get_ref().clone(),
        rows: view.rows.as_ref().map(|rows| rows.get_ref().clone()),
        system: view.system.as_ref().map(|system| system.get_ref().clone()),
        against: view.against.iter().map(|system| system.get_ref().clone()).collect(),
        heat: lab.heat.iter().flat_map(|spec| heats(lab, spec)).collect(),
        beside: view.beside.iter().map(|metric| metric.get_ref().clone()).collect(),
        at: view.at.iter().map(named_values).collect(),
    });
    results.reference = lab.reference.iter().map(reference).collect();
    let mut flaws = Vec::new();
    for cell in &plan.cells {
        let steps: Vec<&Outcome> = outcomes.iter().filter(|outcome| is_of(cell, outcome)).collect();
        let (cell, flaw) = summarised(cell, &steps, lab.seed);
        flaws.extend(flaw);
        results.cells.push(cell);
    }
    let members = members::outcomes(lab, outcomes);
    for cell in members::cells(&members) {
        let steps: Vec<&Outcome> = members.iter().filter(|outcome| is_of(&cell, outcome)).collect();
        results.cells.push(summarised(&cell, &steps, lab.seed).0);
    }
    results.invalid_reasons = gathered(flaws.iter(), |count, flaw| {
        let cells = if count == 1 { "1 cell".to_owned() } else { format!("{count} cells") };
        format!("{} in {cells}, for example {}", flaw.what, flaw.detail)
    });
    let retried = outcomes.iter().filter_map(figures).flat_map(|measured| &measured.retried);
    results.notes.clone_from(&lab.notes);
    results.notes.extend(gathered(retried, |count, flaw| {
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        format!("measured again {times}: {}, for example {}", flaw.what, flaw.detail)
    }));
    results.valid = results.cells.iter().all(|cell| cell.valid);
    results.comparisons = comparisons(lab, plan, outcomes);
    results.method = method(lab, plan);
    if lab.workload.get_ref().kind == WorkloadKind::Flows {
        results.overall = overall::means(&results);
        let over = lab.view.iter().flat_map(|view| &view.over).map(|axis| axis.get_ref().as_str());
        let over: Vec<&str> = over.collect();
        if !over.is_empty() {
            let usual = |axis: &String| Some((axis.clone(), plan::usual(lab, axis)?.to_owned()));
            let usual: Axes = lab.axes.keys().filter_map(usual).collect();
            results.groups = overall::groups(&results, &usual, &over);
        }
    }
    results
}

/// Whether any of the simulator's figures lies outside its expected range.
pub fn has_case_outside(results: &Results) -> bool {
    let within = results.cells.iter().filter_map(|cell| cell.metrics.get("within"));
    within.into_iter().any(|within| within.median < 1.0)
}

/// A hash of all events in virtual time, in the order of the steps. Equal runs have equal hashes on
/// any number of threads. `None` if the steps ran on the machine's own clock.
pub(crate) fn hash(outcomes: &[Outcome]) -> Option<String> {
    let prints: Vec<&String> =
        outcomes.iter().filter_map(figures).filter_map(|m| m.fingerprint.as_ref()).collect();
    if prints.is_empty() {
        return None;
    }
    let hash = prints
        .iter()
        .flat_map(|print| print.bytes())
        .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    Some(format!("{hash:016x}"))
}

/// The algorithm of each system's measured connections, as read back from them.
pub(crate) fn algorithms(outcomes: &[Outcome]) -> IndexMap<String, String> {
    let mut read: IndexMap<String, Vec<&str>> = IndexMap::new();
    for outcome in outcomes {
        let Some(found) = figures(outcome).and_then(|m| m.congestion_control.as_deref()) else {
            continue;
        };
        let known = read.entry(outcome.system.clone()).or_default();
        if !known.contains(&found) {
            known.push(found);
        }
    }
    read.into_iter().map(|(system, found)| (system, found.join(", "))).collect()
}

/// Every figure of every step, and the curves.
pub(crate) fn samples(lab: &LabFile, outcomes: &[Outcome]) -> (Samples, Vec<Series>) {
    let mut samples = Samples::new(lab.name());
    let mut series = Vec::new();
    let members = members::outcomes(lab, outcomes);
    for outcome in outcomes.iter().chain(&members) {
        let Verdict::Measured(measured) = &outcome.verdict else { continue };
        for (metric, value) in &measured.metrics {
            samples.rows.push(Sample {
                system: outcome.system.clone(),
                axes: outcome.axes.clone(),
                repeat: outcome.block,
                block: outcome.block,
                time_s: None,
                metric: metric.clone(),
                value: value.value,
                unit: value.unit.clone(),
                valid: measured.invalid.is_empty(),
            });
        }
        series.extend(measured.series.iter().cloned().map(|curve| Series {
            repeat: outcome.block,
            block: outcome.block,
            valid: measured.invalid.is_empty(),
            ..curve
        }));
    }
    (samples, series)
}

pub(crate) fn verdict(verdict: stats::Verdict) -> results::Verdict {
    match verdict {
        stats::Verdict::Better => results::Verdict::Better,
        stats::Verdict::Worse => results::Verdict::Worse,
        stats::Verdict::NoDifference => results::Verdict::Same,
        stats::Verdict::Inconclusive => results::Verdict::Inconclusive,
    }
}

fn is_of(cell: &PlannedCell, outcome: &Outcome) -> bool {
    outcome.system == cell.system && outcome.axes == cell.axes
}

/// The cell, and the reason if it is invalid.
fn summarised(planned: &PlannedCell, steps: &[&Outcome], seed: u64) -> (Cell, Option<Flaw>) {
    let mut cell = Cell::new(&planned.system, planned.axes.clone());
    let measured: Vec<&Measurement> = steps.iter().filter_map(|step| figures(step)).collect();
    let failures: Vec<&String> = steps
        .iter()
        .filter_map(|step| match &step.verdict {
            Verdict::Failed(reason) => Some(reason),
            Verdict::Measured(_) => None,
        })
        .collect();
    if measured.is_empty() {
        let reason = failures.first().map_or("not measured", |reason| reason.as_str());
        cell.failed = Some(reason.to_owned());
        return (cell, None);
    }
    for (count, reason) in counted(failures.into_iter()) {
        cell.warnings.push(format!("{count} of {} repeats failed: {reason}", steps.len()));
    }
    let believable: Vec<&Measurement> =
        measured.iter().copied().filter(|measured| measured.invalid.is_empty()).collect();
    let flaw = match believable.is_empty() {
        true => measured.iter().flat_map(|measured| &measured.invalid).next().cloned(),
        false => None,
    };
    cell.valid = flaw.is_none();
    if !believable.is_empty() && believable.len() < measured.len() {
        let (left_out, of) = (measured.len() - believable.len(), steps.len());
        cell.warnings.push(format!("{left_out} of {of} repeats were not valid and are left out"));
    }
    let used = if believable.is_empty() { &measured } else { &believable };
    cell.cpu_limited = used.iter().any(|measured| measured.cpu_limited);
    cell.warnings.extend(
        counted(used.iter().flat_map(|measured| &measured.warnings))
            .map(|(_, warning)| warning.clone()),
    );
    let in_virtual_time = used.iter().any(|measured| measured.fingerprint.is_some());
    let mut values: IndexMap<&str, (Vec<f64>, &str)> = IndexMap::new();
    for (name, value) in used.iter().flat_map(|measured| &measured.metrics) {
        values.entry(name).or_insert_with(|| (Vec::new(), &value.unit)).0.push(value.value);
    }
    for (name, (values, unit)) in values {
        if let Ok(estimate) = stats::estimate(&values, seed) {
            let metric = Metric {
                median: estimate.median,
                ci95: estimate.ci95.map(|(low, high)| [low, high]),
                n: estimate.n as u64,
                unit: unit.to_owned(),
            };
            cell.metrics.insert(name.to_owned(), metric);
        }
        // Report outliers only of metrics where higher is better. For other metrics they would be
        // noise. In virtual time the machine's load cannot have caused them.
        let told = !in_virtual_time
            && matches!(metrics::direction(name), Some(Direction::HigherIsBetter))
            && name != IDLE;
        if let Some(warning) = stats::summary(&values).ok().and_then(|all| all.warning())
            && told
        {
            cell.warnings.push(format!("{name}: {warning}"));
        }
    }
    (cell, flaw)
}

fn figures(outcome: &Outcome) -> Option<&Measurement> {
    match &outcome.verdict {
        Verdict::Measured(measured) => Some(measured),
        Verdict::Failed(_) => None,
    }
}

/// One sentence for each kind of flaw, with its count and its first occurrence.
fn gathered<'a>(
    flaws: impl Iterator<Item = &'a Flaw>,
    sentence: impl Fn(usize, &Flaw) -> String,
) -> Vec<String> {
    let mut kinds: IndexMap<&str, (usize, &Flaw)> = IndexMap::new();
    for flaw in flaws {
        kinds.entry(&flaw.what).or_insert((0, flaw)).0 += 1;
    }
    kinds.into_values().map(|(count, flaw)| sentence(count, flaw)).collect()
}

/// Each distinct text once, with its count.
fn counted<'a>(
    texts: impl Iterator<Item = &'a String>,
) -> impl Iterator<Item = (usize, &'a String)> {
    let mut counts: IndexMap<&String, usize> = IndexMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts.into_iter().map(|(text, count)| (count, text))
}

fn comparisons(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Vec<Comparison> {
    lab.compare.iter().flat_map(|compare| compared_by(compare, lab, plan, outcomes)).collect()
}

fn compared_by(
    compare: &CompareSpec,
    lab: &LabFile,
    plan: &Plan,
    outcomes: &[Outcome],
) -> Vec<Comparison> {
    let baseline = compare.baseline.get_ref();
    let threshold =
        compare.threshold.as_ref().map_or_else(stats::default_threshold, |share| *share.get_ref());
    let wanted = |system: &String| match compare.systems.as_slice() {
        [] => system != baseline,
        named => named.iter().any(|one| one.get_ref() == system),
    };
    let mut comparisons = Vec::new();
    for metric in compare.metrics.iter().map(Spanned::get_ref) {
        let Some(direction) = metrics::direction(metric) else { continue };
        for cell in plan.cells.iter().filter(|cell| wanted(&cell.system)) {
            let value = |system: &str, block: u32| {
                outcomes
                    .iter()
                    .find(|o| o.system == system && o.axes == cell.axes && o.block == block)
                    .and_then(figures)
                    .filter(|measured| measured.invalid.is_empty())
                    .and_then(|measured| measured.metrics.get(metric))
                    .map(|value| value.value)
                    .filter(|value| *value > 0.0)
            };
            let pairs: Vec<(f64, f64)> = (0..plan.repeats)
                .filter_map(|block| Some((value(&cell.system, block)?, value(baseline, block)?)))
                .collect();
            let judged = compared(metric, cell, baseline, &pairs, direction, threshold, lab.seed);
            comparisons.extend(judged.map(|mut one| {
                one.goal = goals::goal(compare, lab, &one, outcomes);
                one
            }));
        }
    }
    comparisons
}

fn compared(
    metric: &str,
    cell: &PlannedCell,
    baseline: &str,
    pairs: &[(f64, f64)],
    direction: Direction,
    threshold: Share,
    seed: u64,
) -> Option<Comparison> {
    let judged = stats::compare_paired(pairs, direction, threshold, seed).ok()?;
    Some(Comparison {
        metric: metric.to_owned(),
        axes: Axes::clone(&cell.axes),
        a: cell.system.clone(),
        b: baseline.to_owned(),
        ratio: Ratio {
            median: judged.ratio.median,
            ci95: judged.ratio.ci95.map(|(low, high)| [low, high]),
        },
        verdict: verdict(judged.verdict),
        threshold: Some(threshold.fraction()),
        goal: None,
    })
}

fn heats<'a>(lab: &'a LabFile, spec: &'a HeatSpec) -> impl Iterator<Item = Heat> + 'a {
    let drawn = [spec.x.get_ref(), spec.y.get_ref()];
    let open = move |axis: &&String| !drawn.contains(axis) && !spec.at.contains_key(axis.as_str());
    let usual = move || lab.axes.keys().filter(open);
    let usual = move || {
        usual()
            .filter_map(|axis| Some((axis.clone(), plan::usual(lab, axis)?.to_owned())))
            .collect()
    };
    spec.metrics.iter().map(move |metric| Heat {
        metric: metric.get_ref().clone(),
        x: spec.x.get_ref().clone(),
        y: spec.y.get_ref().clone(),
        at: spec.at.iter().map(named_values).collect(),
        usual: usual(),
    })
}

fn named_values(
    (axis, values): (&Spanned<String>, &Vec<Spanned<String>>),
) -> (String, Vec<String>) {
    (axis.get_ref().clone(), values.iter().map(|value| value.get_ref().clone()).collect())
}

fn reference(spec: &crate::file::ReferenceSpec) -> Reference {
    Reference {
        system: spec.system.clone(),
        beside: spec.beside.iter().map(|system| system.get_ref().clone()).collect(),
        axes: spec
            .axes
            .iter()
            .map(|(axis, value)| (axis.get_ref().clone(), value.get_ref().clone()))
            .collect(),
        metrics: spec
            .metrics
            .iter()
            .map(|(name, value)| (name.get_ref().clone(), *value))
            .collect(),
        source: spec.source.clone(),
    }
}

fn method(lab: &LabFile, plan: &Plan) -> IndexMap<String, String> {
    let mut method = IndexMap::new();
    let mut say = |what: &str, how: String| method.insert(what.to_owned(), how);
    say("measured for", plan.duration.to_string());
    say("left out at the start", plan.omit.to_string());
    say("repeats", format!("{}, in randomised blocks with every cell once", plan.repeats));
    if lab.workload.get_ref().kind == WorkloadKind::Flows {
        for (what, how) in METHOD_OF_FLOWS {
            say(what, (*how).to_owned());
        }
    }
    if lab.workload.get_ref().kind == WorkloadKind::Download {
        for (what, how) in METHOD_OF_DOWNLOADS {
            say(what, (*how).to_owned());
        }
    }
    let of_tunnels = match lab.workload.get_ref().kind {
        WorkloadKind::Messages => METHOD_OF_MESSAGES,
        WorkloadKind::Crowd => METHOD_OF_CROWDS,
        _ => &[],
    };
    for (what, how) in of_tunnels {
        say(what, (*how).to_owned());
    }
    if lab.workload.get_ref().kind == WorkloadKind::Validate {
        for case in sim::validate::cases() {
            say(case.name, format!("{}: {}; in {}", case.layer, case.note, case.unit));
        }
    }
    method
}

const METHOD_OF_DOWNLOADS: &[(&str, &str)] = &[
    (
        "a download",
        "connect, GET, read to the end, by our client in the path's own network namespace. The client \
         checks the status, the length and a checksum of the body. A path's figure is the mean over \
         its downloads, that of several paths the mean over the paths",
    ),
    (
        "download rate",
        "the file's size over the time from before the connection is opened to its last byte",
    ),
    (
        "availability",
        "the share of started downloads that arrived complete and undamaged. Failed downloads do not \
         count in the rates, but a path without any complete download counts as 0",
    ),
    (
        "retransmitted",
        "share of all bytes the server's connections sent, as its kernel counts them",
    ),
    (
        "queue",
        "the data that waits at the path's bottleneck during a download, as time at the bottleneck's rate",
    ),
    (
        "the algorithm",
        "set on the web server's listening socket, and read back from every connection. `tcpa` is in \
         the kernel only for the turn, under a unique name",
    ),
    ("warm", "the file is downloaded once on each path before the measurement"),
];

const METHOD_OF_MESSAGES: &[(&str, &str)] = &[
    (
        "first byte",
        "from before a new connection is opened to the first byte of the answer to its first message. New \
         connections come one after the other, for the first third of the time",
    ),
    (
        "first message",
        "the same from when the first message is sent: without the opening of the connection, which in \
         a tunnel only reaches its near end",
    ),
    (
        "messages",
        "from a message to the last byte of its answer, which is as long, over an open connection. The \
         next is sent once the previous one is answered, for the other two thirds of the time",
    ),
    (
        "warm",
        "before the measurement one connection is opened and some messages are sent over it, so that a \
         tunnel's ends are connected",
    ),
];

const METHOD_OF_CROWDS: &[(&str, &str)] = &[
    (
        "new connections",
        "rate of opening the idle connections by 32 threads. Each counts once a byte has reached the far end \
         and come back. One connection is opened beforehand",
    ),
    (
        "memory",
        "the RAM of the program at each end once the idle connections are open and before others send. \
         `each` is its growth over their number, `peak` its maximum. The kernel's own memory for sockets \
         is not included",
    ),
    (
        "goodput and fairness",
        "of the data that arrived at the far end over the busy connections, while the idle ones are open. \
         Jain's index over the connections' shares",
    ),
];

const METHOD_OF_FLOWS: &[(&str, &str)] = &[
    (
        "begins",
        "one flow after the other by the lab's stagger, each delayed by up to a round trip at random. The time left out at the start counts from the last flow's start. For flows that have an end the whole time counts",
    ),
    (
        "share of ideal",
        "the total that all flows deliver to applications, over the ideal: the rate without headers times 1 - loss, less cross traffic, and at most the policer's rate or the applications' demand",
    ),
    (
        "part of fair share",
        "the mean goodput of a flow under test, over an equal part of the ideal for each flow on the link. 1 is fair",
    ),
    (
        "harm",
        "1 - the goodput of the competing flows, over their goodput when the flows under test use the same algorithm as they do: after Ware, Mukerjee, Seshan and Sherry 2019, with their own algorithm as the measure. 0 or less: no more harm than a flow of their own algorithm",
    ),
    (
        "convergence",
        "round trips from the start of the last flow until its goodput, averaged over four of them, is first within a tenth of its fair share. If it never is, all the remaining time",
    ),
    (
        "after a rate step",
        "round trips until the goodput of all flows, averaged over four of them, is within a tenth of what the new rate allows. The longest of all steps. If it never is, all the remaining time",
    ),
    (
        "queue at start-up",
        "the longest queue at the bottleneck in the first 20 round trips of a single flow, as the time the link takes to send it",
    ),
    (
        "slowdown",
        "a flow's completion time over the time of a single flow on an empty link without a window: a handshake, the path delay, and the transmission time",
    ),
    (
        "retransmitted",
        "retransmitted payload over sent payload of the flows under test, in the measured time",
    ),
    ("round trip", "the path's propagation and the time packets waited at the bottleneck"),
    ("queue", "at the bottleneck with the longest queue, by its 95th percentile"),
];

/// This metric describes the machine, not the system under test.
const IDLE: &str = "idle_percent";
/// FNV-1a gives the same value on every platform.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
