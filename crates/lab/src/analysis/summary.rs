//! Computes `results.json` from the finished turns: medians and intervals per cell, ratios between
//! systems.

mod comparisons;
mod confusion;
mod correlations;
mod goals;
mod link_limit;
mod members;
mod states;

use super::check::Bound;
use super::{overall, spread};
use crate::bench::LabFile;
use crate::bench::machine::validity;
use crate::model::file::{HeatSpec, ViewSpec, axes};
use crate::model::plan::{Plan, PlannedCell};
use crate::model::{Flaw, Measurement, Outcome, Verdict};
use indexmap::IndexMap;
use results::{
    Axes, Cell, CpuLimit, Heat, Metric, Missing, NOT_RUN, Proportion, Ratio, Reason, Reference,
    Results, Sample, Samples, Series, View, metrics,
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
        also: view.also.iter().map(|metric| metric.get_ref().clone()).collect(),
        at: view.at.iter().map(named_values).collect(),
        columns: view.columns.iter().map(|metric| metric.get_ref().clone()).collect(),
        parts: view.parts.as_ref().map(|family| family.get_ref().clone()),
    });
    results.reference = lab.reference.iter().map(reference).collect();
    let one_start = lab.kind().keeps_cells();
    let mut flaws = Vec::new();
    for cell in &plan.cells {
        let steps: Vec<&Outcome> = outcomes.iter().filter(|outcome| is_of(cell, outcome)).collect();
        let (mut cell, flaw) = summarised(cell, &steps, one_start);
        link_limit::mark(lab, &mut cell);
        if let Some(view) = &lab.view {
            cell.rounds = rounds(view, &steps);
        }
        flaws.extend(flaw);
        lab.kind().judge(&mut cell);
        results.cells.push(cell);
    }
    let members = members::outcomes(lab, outcomes);
    for cell in members::cells(&members) {
        let steps: Vec<&Outcome> = members.iter().filter(|outcome| is_of(&cell, outcome)).collect();
        results.cells.push(summarised(&cell, &steps, one_start).0);
    }
    results.invalid_reasons = gathered(flaws.iter(), |count, flaw| {
        let cells = if count == 1 { "1 cell".to_owned() } else { format!("{count} cells") };
        format!("{} in {cells}, for example {}", flaw.what, flaw.detail)
    });
    results.notes.clone_from(&lab.notes);
    results.notes.extend(settings_of_systems(lab, &results.cells));
    results.notes.extend(repeats(outcomes));
    results.valid = results.cells.iter().all(|cell| cell.valid);
    results.comparisons = comparisons::comparisons(lab, plan, outcomes);
    results.states = states::states(lab, plan, outcomes, &results.comparisons);
    results.spreads = spread::spreads(lab, plan, outcomes);
    let bounds = lab.bounds.iter().filter_map(|text| Bound::read(text.get_ref()).ok());
    results.bounds = bounds.filter_map(|bound| bound.over(&results)).collect();
    results.confusion = confusion::confusion(outcomes);
    results.answer = confusion::answer(&results, outcomes).into_iter().collect();
    results.answer.extend(lab.kind().answer(&results));
    results.answer.extend(states::answer(&results));
    results.correlations = correlations::correlations(lab, plan, outcomes);
    results.warnings.extend(correlations::warnings(&results.correlations));
    // In a lab that judges verdicts, cells without data are expected: many of its cases let no data
    // pass.
    if results.confusion.is_none() {
        results.warnings.extend(nothing_arrived(lab, &results.cells));
    }
    results.method = method(lab, plan);
    if lab.kind().has_means() {
        results.overall = overall::means(&results);
        let over = lab.view.iter().flat_map(|view| &view.over).map(|axis| axis.get_ref().as_str());
        let over: Vec<&str> = over.collect();
        if !over.is_empty() {
            let usual = |axis: &String| Some((axis.clone(), axes::usual(lab, axis)?.to_owned()));
            let usual: Axes = lab.axes.keys().filter_map(usual).collect();
            results.groups = overall::groups(&results, &usual, &over);
        }
    }
    results.headline = lab.answer_of(&results);
    results
}

/// Returns the notes of the measured systems. Leaves out the states of `[state]`, whose
/// descriptions are in `states` of the results.
fn settings_of_systems(lab: &LabFile, cells: &[Cell]) -> Vec<String> {
    let described = lab.systems().filter(|system| !system.is_state && !system.note.is_empty());
    let measured = described.filter(|system| cells.iter().any(|cell| cell.system == system.name()));
    measured.map(|system| format!("{}: {}", system.name(), system.note)).collect()
}

/// Returns a warning about cells in which no data arrived, with the likely cause.
fn nothing_arrived(lab: &LabFile, cells: &[Cell]) -> Option<String> {
    let is_empty = |cell: &&Cell| {
        cell.is_measured() && cell.metrics.get(GOODPUT).is_some_and(|m| m.median <= 0.0)
    };
    let empty: Vec<&Cell> = cells.iter().filter(is_empty).collect();
    let first = empty.first()?;
    let axes: Vec<String> =
        first.axes.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    let links = lab.links_at(&first.axes).unwrap_or_default();
    let ways: Vec<_> = links.iter().filter_map(|link| link.ways()).collect();
    let loses = |share: f64| {
        ways.iter().any(|ways| {
            [&ways.forward, &ways.backward]
                .iter()
                .any(|way| way.config.loss.mean().fraction() >= share)
        })
    };
    let cause = if loses(1.0) {
        "a link of the lab loses every packet (`loss`)"
    } else if loses(0.2) {
        "a link of the lab loses so many packets (`loss`) that TCP waits for its timeouts"
    } else {
        "the queue holds less than a packet, packets are larger than a link's `mtu`, or the transfer ended within \
         `omit`"
    };
    let count =
        if empty.len() == 1 { "1 cell".to_owned() } else { format!("{} cells", empty.len()) };
    let at = if axes.is_empty() { String::new() } else { format!(" at {}", axes.join(", ")) };
    Some(format!(
        "no data arrived (0 Mbit/s) in {count}, for example {}{at}; likely cause: {cause}",
        first.system
    ))
}

/// Returns a hash of all events in virtual time, in the order of the steps. Equal runs have equal
/// hashes on any number of threads. `None` if the steps ran on the machine's own clock.
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

/// Returns the algorithm of each system's measured connections, as the kernel reported the
/// algorithm.
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

/// Returns the figures of every step, and the curves of the traced steps.
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

/// Returns one sentence for each kind of flaw for which turns were measured again, with the number
/// of turns by system.
fn repeats(outcomes: &[Outcome]) -> Vec<String> {
    let mut kinds: IndexMap<&str, (IndexMap<&str, usize>, &Flaw)> = IndexMap::new();
    for outcome in outcomes {
        for flaw in figures(outcome).iter().flat_map(|measured| &measured.retried) {
            let (counts, _) = kinds.entry(&flaw.what).or_insert((IndexMap::new(), flaw));
            *counts.entry(&outcome.system).or_default() += 1;
        }
    }
    let sentence = |(counts, flaw): (IndexMap<&str, usize>, &Flaw)| {
        let by_system: Vec<String> =
            counts.iter().map(|(system, count)| format!("{system} {count}")).collect();
        let times = match counts.values().sum() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let by_system = by_system.join(", ");
        format!("measured again {times} ({by_system}): {}, for example {}", flaw.what, flaw.detail)
    };
    kinds.into_values().map(sentence).collect()
}

fn is_of(cell: &PlannedCell, outcome: &Outcome) -> bool {
    outcome.system == cell.system && outcome.axes == cell.axes
}

/// Summarises the repeats of a cell. Returns the cell, and the reason if the cell is invalid.
/// `one_start`: the repeats are windows of one start.
fn summarised(planned: &PlannedCell, steps: &[&Outcome], one_start: bool) -> (Cell, Option<Flaw>) {
    let mut cell = Cell::new(&planned.system, planned.axes.clone());
    let measured: Vec<&Measurement> = steps.iter().filter_map(|step| figures(step)).collect();
    let failures = steps.iter().filter_map(|step| match &step.verdict {
        Verdict::Failed(reason) => Some(reason.as_str()),
        Verdict::Measured(_) => None,
    });
    let (left_out, failures): (Vec<&str>, Vec<&str>) =
        failures.partition(|reason| reason.starts_with(NOT_RUN));
    let not_run = left_out.first().and_then(|reason| reason.strip_prefix(NOT_RUN));
    if measured.is_empty() {
        match (failures.first(), not_run) {
            (None, Some(reason)) => cell.not_run = Some(reason.to_owned()),
            (failure, _) => cell.failed = Some((*failure.unwrap_or(&"not measured")).to_owned()),
        }
        return (cell, None);
    }
    cell.repeats = steps.len() as u64;
    cell.failed_repeats = failures.len() as u64;
    for (count, reason) in counted(failures.into_iter()) {
        cell.warnings.push(format!("{count} of {} repeats failed: {reason}", steps.len()));
    }
    if let Some(reason) = not_run {
        let (count, of) = (left_out.len(), steps.len());
        cell.warnings.push(format!("{count} of {of} repeats were not run: {reason}"));
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
    cell.cpu_limit = usual_limit(used);
    let beside = used.iter().filter_map(|measured| measured.beside.as_ref());
    cell.beside = beside.max_by(|a, b| a.percent.total_cmp(&b.percent)).cloned();
    if !cell.valid {
        cell.invalid_reasons = reasons(measured.iter().flat_map(|measured| &measured.invalid));
    }
    cell.warnings.extend(
        counted(used.iter().flat_map(|measured| &measured.warnings).map(String::as_str))
            .map(|(_, warning)| warning.to_owned()),
    );
    let in_virtual_time = used.iter().any(|measured| measured.fingerprint.is_some());
    let mut values: IndexMap<&str, (Vec<f64>, &str)> = IndexMap::new();
    for (name, value) in used.iter().flat_map(|measured| &measured.metrics) {
        values.entry(name).or_insert_with(|| (Vec::new(), &value.unit)).0.push(value.value);
    }
    for (name, (values, unit)) in values {
        let share = metrics::is_proportion(name).then(|| proportion(&values)).flatten();
        if let Ok(estimate) = stats::estimate(&values) {
            let found = match (metric(&estimate, unit), share) {
                (found, Some(_)) => {
                    Metric { ci95: None, coverage: None, range: None, share, ..found }
                }
                (found, None) if one_start => of_one_start(found, &values),
                (found, None) => found,
            };
            cell.metrics.insert(name.to_owned(), found);
        }
        // Report outliers only of metrics where higher is better. Outliers of other metrics would
        // be noise. In virtual time the machine's load cannot have caused outliers.
        let told = !in_virtual_time
            && share.is_none()
            && matches!(metrics::direction(name), Some(Direction::HigherIsBetter))
            && name != IDLE;
        let meaning = metrics::meaning(name);
        let shown = |value: f64| {
            format!("{} {}", units::shown::significant(value), meaning.unit).trim_end().to_owned()
        };
        if let Some(warning) = stats::summary(&values).ok().and_then(|all| all.warning(shown))
            && told
        {
            cell.warnings.push(format!("{}: {warning}", meaning.label));
        }
    }
    cell.missing = missing(used, &cell.metrics);
    (cell, flaw)
}

/// Returns the metrics that no repeat measured, by reason. A metric that one repeat measured is not
/// missing: a search, for example, runs in one repeat.
fn missing(used: &[&Measurement], measured: &IndexMap<String, Metric>) -> Vec<Missing> {
    let mut found: Vec<Missing> = Vec::new();
    for missing in used.iter().flat_map(|measured| &measured.missing) {
        let mut missing = missing.clone();
        missing.metrics.retain(|name| {
            let is_known = |known: &Missing| known.metrics.contains(name);
            !measured.contains_key(name) && !found.iter().any(is_known)
        });
        if !missing.metrics.is_empty() {
            found.push(missing);
        }
    }
    found
}

/// Returns each kind of flaw once, with the extent of its first occurrence.
fn reasons<'a>(flaws: impl Iterator<Item = &'a Flaw>) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = Vec::new();
    for Flaw { what, detail } in flaws {
        if !reasons.iter().any(|known| known.what == *what) {
            let mend = validity::mend(what).to_owned();
            reasons.push(Reason { what: what.clone(), detail: detail.clone(), mend });
        }
    }
    reasons
}

/// Returns the largest user of the CPU in the repeat whose largest user has the median share.
fn usual_limit(used: &[&Measurement]) -> Option<CpuLimit> {
    let mut limits: Vec<&CpuLimit> =
        used.iter().filter_map(|measured| measured.cpu_limit.as_ref()).collect();
    limits.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    limits.get(limits.len() / 2).map(|limit| (*limit).clone())
}

/// Returns the figures of the first repeats, one map per repeat, with the columns of the view.
fn rounds(view: &ViewSpec, steps: &[&Outcome]) -> Vec<IndexMap<String, f64>> {
    let figures_of = |block: u32| {
        let step = steps.iter().find(|step| step.block == block);
        let figures = step.and_then(|step| figures(step));
        let value = |name: &Spanned<String>| {
            let value = figures?.metrics.get(name.get_ref())?.value;
            Some((name.get_ref().clone(), value))
        };
        view.columns.iter().filter_map(value).collect()
    };
    (0..view.rounds).map(figures_of).collect()
}

fn figures(outcome: &Outcome) -> Option<&Measurement> {
    match &outcome.verdict {
        Verdict::Measured(measured) => Some(measured),
        Verdict::Failed(_) => None,
    }
}

/// Returns one sentence for each kind of flaw, with its count and its first occurrence.
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

/// Returns each distinct text once, with its count.
fn counted<'a>(texts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (usize, &'a str)> {
    let mut counts: IndexMap<&str, usize> = IndexMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts.into_iter().map(|(text, count)| (count, text))
}

fn metric(estimate: &stats::Estimate, unit: &str) -> Metric {
    Metric {
        ci95: estimate.ci95.map(ends),
        coverage: estimate.coverage,
        range: estimate.range.map(ends),
        n: estimate.n as u64,
        ..Metric::single(estimate.median, unit)
    }
}

/// Removes the interval from a metric whose repeats are windows of one start: the repeats are one
/// sample of the system's starts.
fn of_one_start(metric: Metric, values: &[f64]) -> Metric {
    let range = range(values);
    Metric { ci95: None, coverage: None, range, one_start: true, ..metric }
}

/// Returns the smallest and the largest of several values.
fn range(values: &[f64]) -> Option<[f64; 2]> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (values.len() > 1).then_some([low, high])
}

/// Counts the repeats with the value 1. `None` if a repeat has a value other than 0 and 1, as in a
/// case that expects two verdicts.
fn proportion(values: &[f64]) -> Option<Proportion> {
    let count = values.iter().filter(|value| **value == 1.0).count() as u64;
    let is_counted = values.iter().all(|value| [0.0, 1.0].contains(value));
    let total = values.len() as u64;
    let level = Share::from_percent(95.0)?;
    let (low, high) = stats::binomial::clopper_pearson(count, total, level).ok()?;
    let ci95 = [low.fraction(), high.fraction()];
    (is_counted && total > 1).then_some(Proportion { count, total, ci95 })
}

fn ratio(estimate: &stats::Estimate) -> Ratio {
    Ratio {
        ci95: estimate.ci95.map(ends),
        coverage: estimate.coverage,
        range: estimate.range.map(ends),
        n: estimate.n as u64,
        ..Ratio::single(estimate.median)
    }
}

fn ends((low, high): (f64, f64)) -> [f64; 2] {
    [low, high]
}

fn heats<'a>(lab: &'a LabFile, spec: &'a HeatSpec) -> impl Iterator<Item = Heat> + 'a {
    let drawn = [spec.x.get_ref(), spec.y.get_ref()];
    let open = move |axis: &&String| !drawn.contains(axis) && !spec.at.contains_key(axis.as_str());
    let usual = move || lab.axes.keys().filter(open);
    let usual = move || {
        usual()
            .filter_map(|axis| Some((axis.clone(), axes::usual(lab, axis)?.to_owned())))
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

fn reference(spec: &crate::model::file::ReferenceSpec) -> Reference {
    Reference {
        system: spec.system.clone(),
        systems: spec.systems.iter().map(|system| system.get_ref().clone()).collect(),
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
    let order = match lab.kind().keeps_cells() {
        false => "in randomised blocks with every cell once",
        true => "cell after cell; the systems of a place follow one another in a random order",
    };
    say("repeats", format!("{}, {order}", plan.repeats));
    for (what, how) in lab.kind().method() {
        say(what, how);
    }
    let set = |settings: &IndexMap<Spanned<String>, Spanned<String>>| {
        let each = settings
            .iter()
            .map(|(name, value)| format!("{} = {}", name.get_ref(), value.get_ref()));
        each.collect::<Vec<_>>().join("; ")
    };
    for system in lab.systems().filter(|system| !system.sysctl.is_empty()) {
        say(&format!("kernel settings of {}", system.name()), set(&system.sysctl));
    }
    method
}

/// The metric of the machine's idle time, which does not describe the system under test.
const IDLE: &str = "idle_percent";
const GOODPUT: &str = "goodput_mbit_s";
/// Offset basis of the hash function FNV-1a, which gives the same value on every platform.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

#[cfg(test)]
mod whole_run;

#[cfg(test)]
mod equal_states;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_missing_only_if_no_repeat_has_it() {
        let mut searched = Measurement::default();
        searched.record("capacity_pps", Some(2e6));
        searched.record("offered_pps", Some(1e6));
        searched.miss(&["ndr_pps"], "the generator ended".to_owned(), true);
        let mut other = Measurement::default();
        other.record("capacity_pps", Some(2e6));
        other.miss(&["ndr_pps", "offered_pps"], "no CPU is free".to_owned(), false);
        let outcome = |block, measured| Outcome::measured("a", Axes::new(), block, measured);
        let cell = cell(&[outcome(0, searched), outcome(1, other)], false);
        assert_eq!(cell.missing.len(), 1, "{:?}", cell.missing);
        assert!(cell.missing[0].failed && cell.has_failed());
        assert_eq!(cell.why_missing("ndr_pps").unwrap().reason, "the generator ended");
        assert_eq!(cell.why_missing("offered_pps"), None);
    }

    #[test]
    fn only_virtual_time_runs_have_the_fnv_hash_of_their_events() {
        let outcome = |fingerprint: Option<&str>| {
            let fingerprint = fingerprint.map(str::to_owned);
            let measured = Measurement { fingerprint, ..Measurement::default() };
            Outcome::measured("a", Axes::new(), 0, measured)
        };
        // The published FNV-1a hash of "foobar".
        let both = [outcome(Some("foo")), outcome(Some("bar"))];
        assert_eq!(hash(&both).as_deref(), Some("85944171f73967e8"));
        assert_eq!(hash(&[outcome(None)]), None);
    }

    #[test]
    fn retried_turns_are_counted_by_system_and_failed_repeats_stay_in_the_cell() {
        let flaw = Flaw { what: "the link was late".to_owned(), detail: "310 µs".to_owned() };
        let outcome = |system: &str, block, flaws: usize| {
            let retried = vec![flaw.clone(); flaws];
            let measured = Measurement { retried, ..Measurement::default() };
            Outcome::measured(system, Axes::new(), block, measured)
        };
        let mut all = vec![outcome("bbr", 0, 2), outcome("cubic", 0, 0), outcome("tcpa", 0, 1)];
        assert_eq!(
            repeats(&all),
            ["measured again 3 times (bbr 2, tcpa 1): the link was late, for example 310 µs"]
        );
        all.truncate(1);
        all.push(Outcome {
            verdict: Verdict::Failed("no route".to_owned()),
            ..outcome("bbr", 1, 0)
        });
        let planned = PlannedCell { system: "bbr".to_owned(), axes: Axes::new() };
        let (cell, _) = summarised(&planned, &all.iter().collect::<Vec<_>>(), false);
        assert_eq!((cell.repeats, cell.failed_repeats), (2, 1));
    }

    fn step(block: u32, figures: &[(&str, f64)]) -> Outcome {
        let mut measured = Measurement::default();
        figures.iter().for_each(|(name, value)| measured.record(name, Some(*value)));
        Outcome::measured("a", Axes::new(), block, measured)
    }

    /// Applies `change` to the measurement of each step. `change` receives the number of the step.
    fn changed(steps: Vec<Outcome>, change: impl Fn(usize, &mut Measurement)) -> Vec<Outcome> {
        let change = |(number, mut step): (usize, Outcome)| {
            if let Verdict::Measured(measured) = &mut step.verdict {
                change(number, measured);
            }
            step
        };
        steps.into_iter().enumerate().map(change).collect()
    }

    fn cell(steps: &[Outcome], one_start: bool) -> Cell {
        let planned = PlannedCell { system: "a".to_owned(), axes: Axes::new() };
        summarised(&planned, &steps.iter().collect::<Vec<_>>(), one_start).0
    }

    fn steps(metric: &str, values: &[f64]) -> Vec<Outcome> {
        values.iter().zip(0..).map(|(value, block)| step(block, &[(metric, *value)])).collect()
    }

    /// Delays, shares of repeats and the machine's idle time also scatter in healthy runs.
    #[test]
    fn outliers_of_a_throughput_give_a_warning_unless_time_is_virtual() {
        let run = || -> Vec<Outcome> {
            let one = |block| {
                let far = block < 2;
                step(
                    block,
                    &[
                        ("goodput_mbit_s", if far { 50.0 } else { 100.0 }),
                        ("fct_ms.p50", if far { 9.0 } else { 3.0 }),
                        ("idle_percent", if far { 20.0 } else { 90.0 }),
                        ("first_verdict_right", if far { 0.0 } else { 1.0 }),
                        ("downloads", if far { 1.0 } else { 8.0 }),
                    ],
                )
            };
            (0..14).map(one).collect()
        };
        let told = cell(&run(), false).warnings;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("Goodput: 2 of 14 samples lie far from the rest"), "{told:?}");
        assert!(told[0].contains("median 100 Mbit/s, 50.0 Mbit/s to 100 Mbit/s"), "{told:?}");
        let simulated = changed(run(), |_, measured| measured.fingerprint = Some("f".to_owned()));
        assert_eq!(cell(&simulated, false).warnings, [""; 0]);
    }

    #[test]
    fn left_out_repeats_are_counted() {
        let late = || Flaw { what: "late".to_owned(), detail: "2 ms".to_owned() };
        let mut run = changed(steps("jain", &[0.9; 8]), |number, measured| {
            if number < 2 {
                measured.invalid.push(late());
            }
        });
        for (number, reason) in [(6, "it broke"), (7, "not run: needs 3 CPUs")] {
            run[number].verdict = Verdict::Failed(reason.to_owned());
        }
        let found = cell(&run, false);
        assert_eq!(
            found.warnings,
            [
                "1 of 8 repeats failed: it broke",
                "1 of 8 repeats were not run: needs 3 CPUs",
                "2 of 8 repeats were not valid and are left out",
            ]
        );
        assert_eq!((found.metrics["jain"].n, found.valid), (4, true));
        assert_eq!((found.repeats, found.failed_repeats), (8, 1));
        let all = changed(steps("jain", &[0.9; 8]), |_, measured| measured.invalid.push(late()));
        let found = cell(&all, false);
        assert!(!found.valid && found.warnings.is_empty(), "{found:?}");
    }

    #[test]
    fn the_largest_cpu_user_comes_from_the_median_repeat() {
        let shares = [70.0, 95.0, 80.0, 60.0, 90.0];
        let run = changed(steps("jain", &[1.0; 5]), |number, measured| {
            let percent = shares[number];
            let by = format!("program {number}");
            measured.cpu_limit = Some(CpuLimit { by, cpus: vec![1], percent });
        });
        assert_eq!(cell(&run, false).cpu_limit.unwrap().by, "program 2");
    }

    #[test]
    fn windows_of_one_start_and_single_repeats_have_no_interval() {
        let values = [5.0, 3.0, 9.0, 4.0, 6.0, 7.0, 8.0];
        let of = |values: &[f64], one_start| {
            cell(&steps("capacity_pps", values), one_start).metrics["capacity_pps"].clone()
        };
        let windows = of(&values, true);
        assert_eq!((windows.range, windows.ci95, windows.coverage), (Some([3.0, 9.0]), None, None));
        assert_eq!((of(&[5.0], true).range, of(&[5.0], false).range), (None, None));
        let starts = of(&values, false);
        assert_eq!((starts.range, starts.ci95), (None, Some([3.0, 9.0])));
        let few = of(&values[..3], false);
        assert_eq!((few.range, few.ci95, few.n), (Some([3.0, 9.0]), None, 3));
    }

    #[test]
    fn a_proportion_needs_two_repeats_and_has_no_median_interval() {
        let of = |values: &[f64]| cell(&steps("within", values), false).metrics["within"].clone();
        for repeats in [3, 6] {
            let found = of(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0][..repeats]);
            assert_eq!((found.coverage, found.range, found.ci95), (None, None, None));
            assert_eq!(found.share.unwrap().total, repeats as u64);
        }
        assert_eq!(of(&[1.0]).share, None);
    }

    #[test]
    fn each_algorithm_of_a_system_is_named_once() {
        let run = changed(steps("jain", &[1.0; 4]), |number, measured| {
            let found = ["bbr", "cubic", "bbr"].get(number);
            measured.congestion_control = found.map(|name| (*name).to_owned());
        });
        let found = algorithms(&run);
        assert_eq!(found.len(), 1);
        assert_eq!(found["a"], "bbr, cubic");
        assert!(algorithms(&run[3..]).is_empty());
    }

    #[test]
    fn every_metric_and_curve_has_samples_with_block_and_validity() {
        let curve = || Series {
            name: "cwnd".to_owned(),
            system: "a".to_owned(),
            axes: Axes::new(),
            repeat: 0,
            block: 0,
            valid: false,
            shape: Default::default(),
            time_s: vec![0.0, 1.0],
            lines: Vec::new(),
        };
        let mut run = changed(steps("jain", &[0.7, 0.8, 0.9]), |number, measured| {
            measured.series.push(curve());
            if number == 2 {
                measured.invalid.push(Flaw { what: "late".to_owned(), detail: String::new() });
            }
        });
        run[0].verdict = Verdict::Failed("no route".to_owned());
        let lab = crate::builtin::open("quic-tun").unwrap();
        let (samples, series) = samples(&lab, &run);
        let rows: Vec<(u32, f64, bool)> =
            samples.rows.iter().map(|row| (row.block, row.value, row.valid)).collect();
        assert_eq!(rows, [(1, 0.8, true), (2, 0.9, false)]);
        let curves: Vec<(u32, u32, bool)> =
            series.iter().map(|curve| (curve.repeat, curve.block, curve.valid)).collect();
        assert_eq!(curves, [(1, 1, true), (2, 2, false)]);
        assert_eq!(series[0].time_s, [0.0, 1.0]);
    }
}
