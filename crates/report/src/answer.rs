//! The answer in one or two sentences.

use crate::interval::Around;
use crate::{axis, comparison, method, missing, number, overall, pivot, queue_and_fairness};
use results::{Axes, Cell, Comparison, Metric, Results, metrics};
use stats::{Direction, Verdict};

/// Returns the first line of a report: the lab's own answer in one line, or else the first sentence
/// of [`sentences`].
pub(crate) fn headline(results: &Results) -> String {
    let first = || sentences(results).into_iter().next().unwrap_or_default();
    results.headline.clone().unwrap_or_else(first)
}

pub(crate) fn details(results: &Results) -> Vec<String> {
    let mut all = sentences(results);
    if results.headline.is_none() && !all.is_empty() {
        all.remove(0);
    }
    all
}

/// Returns the lab's own answer, or sentences about comparisons of the main metric, and about
/// missing values.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    let mut sentences = match results.answer.is_empty() {
        true => derived(results),
        false => results.answer.clone(),
    };
    sentences.extend(queue_and_fairness::sentences(results));
    sentences.extend(missing::sentences(results));
    sentences
}

fn derived(results: &Results) -> Vec<String> {
    let primaries: Vec<&Comparison> =
        results.comparisons.iter().filter(|one| one.primary).collect();
    let mut sentences = primary_sentences(results, &primaries);
    sentences.extend(behind(results, &primaries));
    sentences.extend(costs(results, &primaries));
    sentences.extend(bounds(results));
    for (a, b, comparisons) in pairs(results) {
        // With a primary comparison the other comparisons come second, and undecided comparisons
        // are only counted.
        let waits = |one: &&Comparison| one.primary || one.verdict == Verdict::Undecided;
        if primaries.is_empty() || !comparisons.iter().all(waits) {
            sentences.push(sentence(results, a, b, &comparisons));
        }
    }
    sentences.extend(overall::sentences(results));
    sentences.extend(undecided(results));
    if sentences.len() == results.bounds.len().min(1) {
        sentences.push(without_comparisons(results));
    }
    sentences
}

/// Builds a sentence about the bounds of the lab file, which names each bound that does not hold.
fn bounds(results: &Results) -> Option<String> {
    let all = counted(results.bounds.len(), "bound");
    let missed: Vec<_> = results.bounds.iter().filter(|bound| !bound.holds).collect();
    if results.bounds.is_empty() {
        return None;
    }
    if missed.is_empty() {
        let listed: Vec<&str> = results.bounds.iter().map(|bound| bound.bound.as_str()).collect();
        return Some(format!("{all} held in every cell: {}.", listed.join(", ")));
    }
    let clause = |bound: &&results::Bound| {
        let first = bound.missed.first().map(String::as_str).unwrap_or_default();
        let (missed, cells) = (bound.missed.len(), bound.cells);
        format!("`{}` does not hold in {missed} of {cells} cells, for example {first}", bound.bound)
    };
    let clauses: Vec<String> = missed.iter().map(clause).collect();
    Some(format!("{} of {all} missed: {}.", missed.len(), clauses.join("; ")))
}

/// Counts the cells by state: "12 cells measured, 1 failed, 3 incomplete, 2 short of CPU".
pub(crate) fn tally(results: &Results) -> String {
    let count = |test: fn(&Cell) -> bool| results.cells.iter().filter(|c| test(c)).count();
    let mut parts = vec![format!("{} measured", counted(count(Cell::is_measured), "cell"))];
    for (number, words) in [
        (count(|cell| cell.failed.is_some()), "failed"),
        (count(|cell| cell.not_run.is_some()), "not run"),
        (count(|cell| !cell.valid && cell.is_measured()), "not valid"),
        (count(|cell| missing::of(cell).next().is_some()), "incomplete"),
        (count(|cell| cell.cpu_limited), "short of CPU"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {words}"));
        }
    }
    parts.join(", ")
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

type Pair<'a> = (&'a str, &'a str, Vec<&'a Comparison>);

fn pairs(results: &Results) -> Vec<Pair<'_>> {
    let Some(headline) = pivot::headline(results) else {
        return Vec::new();
    };
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for comparison in results.comparisons.iter().filter(|one| one.metric == headline) {
        let (a, b) = (comparison.a.as_str(), comparison.b.as_str());
        match pairs.iter_mut().find(|(known_a, known_b, _)| (*known_a, *known_b) == (a, b)) {
            Some((.., comparisons)) => comparisons.push(comparison),
            None => pairs.push((a, b, vec![comparison])),
        }
    }
    pairs
}

/// Builds sentences such as `Goodput at loss 1%, rtt 20ms: weir-tunnel 505, tcp-cubic 1.9 Mbit/s.
/// weir-tunnel is better than tcp-cubic: 266× [250, 281] (96.9 % interval).` The verdicts at one
/// point follow the values at that point.
fn primary_sentences(results: &Results, primaries: &[&Comparison]) -> Vec<String> {
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    for one in primaries {
        let (figures, verdict) = (measured_at(results, one), verdict(results, one));
        match places.iter_mut().find(|(known, _)| *known == figures) {
            Some((_, verdicts)) => verdicts.push(verdict),
            None => places.push((figures, vec![verdict])),
        }
    }
    places.into_iter().map(|(figures, verdicts)| figures + " " + &verdicts.join(" ")).collect()
}

fn measured_at(results: &Results, one: &Comparison) -> String {
    sentence_at(results, &one.metric, &one.axes)
}

fn sentence_at(results: &Results, metric: &str, axes: &Axes) -> String {
    let label = metrics::meaning(metric).label;
    let place = varied(results, axes);
    let at = if place.is_empty() { place } else { format!(" at {place}") };
    format!("{label}{at}: {}.", figures(results, metric, axes))
}

/// Returns at most three sentences for a terminal, which shows them below the table of a lab whose
/// answer is one line: the systems that are ahead, the CPU time, queue and fairness.
pub(crate) fn beside_headline(results: &Results) -> Vec<String> {
    let primaries: Vec<&Comparison> =
        results.comparisons.iter().filter(|one| one.primary).collect();
    let simulated = queue_and_fairness::sentences(results);
    let mut facts: Vec<String> = Vec::new();
    if let Some((subject, metric)) = asked_about(&primaries) {
        // Queue and fairness take the place of a second metric.
        let second = compared_beside(results, subject, metric).filter(|_| simulated.is_empty());
        let names = std::iter::once(metric).chain(second);
        facts.extend(names.filter_map(|name| ahead(results, subject, name)));
    }
    facts.extend(costs(results, &primaries).into_iter().take(1));
    facts.extend(simulated);
    facts.truncate(MOST_BESIDE);
    facts
}

/// Returns the system and the metric that the lab asks about, if all primary comparisons have the
/// same system and metric.
fn asked_about<'a>(primaries: &[&'a Comparison]) -> Option<(&'a str, &'a str)> {
    let first = *primaries.first()?;
    let agrees = |one: &&Comparison| one.a == first.a && one.metric == first.metric;
    primaries.iter().all(agrees).then_some((first.a.as_str(), first.metric.as_str()))
}

/// Returns the first metric beside the main metric by which the lab compares the system. The CPU
/// time has a sentence of its own.
fn compared_beside<'a>(results: &'a Results, subject: &str, metric: &str) -> Option<&'a str> {
    let is_compared = |name: &&String| {
        results.comparisons.iter().any(|one| one.metric == **name && one.a == subject)
    };
    let mut also = results.view.iter().flat_map(|view| &view.also);
    let is_other = |name: &&String| name.as_str() != metric && !metrics::is_cpu(name);
    also.find(|name| is_other(name) && is_compared(name)).map(String::as_str)
}

/// The settings in which a system has a better median than the system that the lab asks about.
struct Lead {
    system: String,
    /// Number of settings with medians of both systems.
    shared: usize,
    /// Ratio of the medians, below 1 if more is better, and the setting.
    places: Vec<(f64, String)>,
}

/// Returns the leads of other systems. The primary comparisons show only a few points.
fn leads(results: &Results, subject: &str, metric: &str) -> Vec<Lead> {
    let less = metrics::direction(metric) == Some(Direction::LowerIsBetter);
    let limit = 1.0 + NEAR;
    let value = |cell: &Cell| cell.metrics.get(metric).map(Metric::value);
    let own: Vec<(&Cell, f64)> = results
        .cells
        .iter()
        .filter(|cell| cell.system == subject && cell.valid)
        .filter_map(|cell| Some((cell, value(cell)?)))
        .collect();
    // The sentences about the primary comparisons already name a single point.
    if own.len() < 2 {
        return Vec::new();
    }
    let lead = |system: String| {
        let (mut places, mut shared) = (Vec::new(), 0);
        for (cell, own) in &own {
            let there =
                |other: &&Cell| other.system == system && other.axes == cell.axes && other.valid;
            let Some(other) = results.cells.iter().find(there).and_then(value) else { continue };
            shared += 1;
            let lag = if less { own / other } else { other / own };
            if lag >= limit {
                places.push((own / other, varied(results, &cell.axes)));
            }
        }
        (!places.is_empty()).then_some(Lead { system, shared, places })
    };
    let others = pivot::systems(results).into_iter().filter(|system| system != subject);
    others.filter_map(lead).collect()
}

/// Names the points where another system has a better median than the system that the lab asks
/// about.
fn behind(results: &Results, primaries: &[&Comparison]) -> Vec<String> {
    let Some((subject, metric)) = asked_about(primaries) else { return Vec::new() };
    let sentence = |lead: Lead| {
        let places: Vec<String> = lead
            .places
            .iter()
            .map(|(ratio, place)| format!("{} at {place}", number::ratio(*ratio)))
            .collect();
        format!(
            "By its medians {subject} is behind {} in {} of {}: {}.",
            lead.system,
            places.len(),
            counted(lead.shared, "setting"),
            places.join("; ")
        )
    };
    leads(results, subject, metric).into_iter().map(sentence).collect()
}

/// Names the systems with most leads, each with its largest lead: `Goodput: by its medians tunnel
/// is behind bbr in 2 of 9 settings (worst 0.900× at loss 0%).`
fn ahead(results: &Results, subject: &str, metric: &str) -> Option<String> {
    let mut leads = leads(results, subject, metric);
    leads.sort_by_key(|lead| std::cmp::Reverse(lead.places.len()));
    let clause = |lead: &Lead| {
        let size = |ratio: f64| ratio.ln().abs();
        let largest = lead.places.iter().max_by(|a, b| size(a.0).total_cmp(&size(b.0)));
        let (ratio, place) = largest?;
        let (count, settings) = (lead.places.len(), counted(lead.shared, "setting"));
        let worst = number::ratio(*ratio);
        Some(format!("{} in {count} of {settings} (worst {worst} at {place})", lead.system))
    };
    let mut clauses: Vec<String> = leads.iter().take(MOST_AHEAD).filter_map(clause).collect();
    if let Some(more @ 1..) = leads.len().checked_sub(MOST_AHEAD) {
        clauses.push(counted(more, "more system"));
    }
    let label = metrics::meaning(metric).label;
    let list = clauses.join(", ");
    (!list.is_empty()).then(|| format!("{label}: by its medians {subject} is behind {list}."))
}

/// Names the CPU time at the axis values of the first primary comparison, if the lab names CPU time
/// beside its main metric.
fn costs(results: &Results, primaries: &[&Comparison]) -> Vec<String> {
    let Some(first) = primaries.first() else { return Vec::new() };
    let also = results.view.iter().flat_map(|view| &view.also);
    let is_shown = |metric: &&String| {
        let here = |cell: &&Cell| cell.axes == first.axes;
        let mut cells = results.cells.iter().filter(here);
        metrics::is_cpu(metric) && cells.any(|cell| cell.metrics.contains_key(metric.as_str()))
    };
    also.filter(is_shown).map(|metric| sentence_at(results, metric, &first.axes)).collect()
}

fn verdict(results: &Results, one: &Comparison) -> String {
    if without_figures(results, one) {
        return format!("{} cannot be compared with {}.", one.a, one.b);
    }
    let around = Around::ratio(&one.ratio).map(|around| format!(" {}", around.labelled()));
    let ratio = number::ratio(one.ratio.median) + &around.unwrap_or_default();
    let is_invalid = |cell: &Cell| {
        !cell.valid && cell.axes == one.axes && [&one.a, &one.b].contains(&&cell.system)
    };
    let (a, b) = (&one.a, &one.b);
    match one.verdict {
        Verdict::Better | Verdict::Worse => {
            format!("{a} is {} than {b}: {ratio}.", one.verdict.word())
        }
        Verdict::Same => format!("{a} is the same as {b}{}: {ratio}.", comparison::within(one)),
        Verdict::Undecided if results.cells.iter().any(is_invalid) => {
            format!("Undecided: {a} / {b} is {ratio}, and a cell of them is not valid.")
        }
        Verdict::Undecided => format!("Undecided: {a} / {b} is {ratio}."),
    }
}

/// Lists the values of all systems at the axis values of a comparison, the best first: `weir-tunnel
/// 505, tcp-bbr 466, tcp-cubic 1.9 Mbit/s`.
fn figures(results: &Results, metric: &str, axes: &Axes) -> String {
    let here = results.cells.iter().filter(|cell| cell.axes == *axes);
    let mut known: Vec<(&Cell, Option<&Metric>)> =
        here.map(|cell| (cell, cell.metrics.get(metric))).collect();
    known.retain(|(cell, metric)| metric.is_some() || !cell.is_measured());
    let less = metrics::direction(metric) == Some(Direction::LowerIsBetter);
    let unit = pivot::unit(results, metric);
    let rank = |metric: Option<&Metric>| match metric {
        None => f64::INFINITY,
        Some(metric) if less => metric.value(),
        Some(metric) => -metric.value(),
    };
    known.sort_by(|(_, a), (_, b)| rank(*a).total_cmp(&rank(*b)));
    let (mut measured, mut failed) = (Vec::new(), String::new());
    for (cell, metric) in known {
        match metric {
            Some(metric) => {
                let figure = number::format(metric.value());
                measured.push(format!("{} {figure}{}", cell.system, method::mark(cell)));
            }
            None => {
                let why = missing::in_a_word(cell).unwrap_or(missing::WORD);
                failed += &format!("; {} {why}", cell.system);
            }
        }
    }
    measured.join(", ") + &with_unit(unit) + &failed
}

/// Formats axis values as `loss 1%, rtt 20ms`. Leaves out axes that have one value in the whole
/// run, except the axis that the lab is about.
fn varied(results: &Results, axes: &Axes) -> String {
    let rows = results.view.as_ref().and_then(|view| view.rows.as_deref());
    let varies = |name: &str| axis::values(results, name).len() > 1 || rows == Some(name);
    let parts = axes.iter().filter(|(name, _)| varies(name));
    parts.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Builds the sentence `4 of 12 comparisons are undecided; 3 more blocks would decide 2 of them.`
fn undecided(results: &Results) -> Option<String> {
    let more = results.more_blocks()?;
    let all = results.comparisons.len();
    let open = match (more.undecided, all) {
        (1, 1) => "The comparison is undecided".to_owned(),
        (1, all) => format!("1 of {all} comparisons is undecided"),
        (2, 2) => "Both comparisons are undecided".to_owned(),
        (some, all) if some == all => format!("All {all} comparisons are undecided"),
        (some, all) => format!("{some} of {all} comparisons are undecided"),
    };
    let decides = match more.decides {
        all if all == more.undecided && all == 1 => "it".to_owned(),
        all if all == more.undecided => "them".to_owned(),
        some => format!("{some} of them"),
    };
    Some(format!("{open}; {} would decide {decides}.", counted(more.blocks as usize, "more block")))
}

/// Whether one of the two systems failed and the comparison is undecided, so that the comparison
/// has no valid ratio.
fn without_figures(results: &Results, one: &Comparison) -> bool {
    let compared = |cell: &Cell| {
        cell.axes == one.axes && [&one.a, &one.b].into_iter().any(|name| *name == cell.system)
    };
    one.verdict == Verdict::Undecided
        && results.cells.iter().any(|cell| compared(cell) && cell.failed.is_some())
}

fn sentence(results: &Results, a: &str, b: &str, comparisons: &[&Comparison]) -> String {
    let label = metrics::meaning(&comparisons[0].metric).label.to_lowercase();
    let (failed, measured): (Vec<&Comparison>, Vec<&Comparison>) =
        comparisons.iter().partition(|one| without_figures(results, one));
    let mut clauses: Vec<String> =
        [Verdict::Better, Verdict::Worse, Verdict::Same, Verdict::Undecided]
            .into_iter()
            .filter_map(|verdict| clause(verdict, &measured))
            .collect();
    clauses.extend(match failed.len() {
        0 => None,
        all if measured.is_empty() && all == 1 => Some("failed".to_owned()),
        some => Some(format!("failed in {some} of {} settings", comparisons.len())),
    });
    format!("{a} against {b}, by {label}: {}.", clauses.join("; "))
}

fn clause(verdict: Verdict, comparisons: &[&Comparison]) -> Option<String> {
    let those: Vec<&&Comparison> =
        comparisons.iter().filter(|one| one.verdict == verdict).collect();
    let all = comparisons.len();
    let least = those.iter().min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))?;
    let most = those.iter().max_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))?;
    let what = match verdict {
        Verdict::Same => format!("the same{}", comparison::within(least)),
        other => other.word().to_owned(),
    };
    let ratio = |one: &Comparison| {
        let place = axis::describe(&one.axes);
        let ratio = number::ratio(one.ratio.median);
        if place.is_empty() { ratio } else { format!("{ratio} at {place}") }
    };
    let count = match (those.len(), all) {
        (1, 1) => String::new(),
        (some, all) if some == all => format!(" in all {all} settings"),
        (some, all) => format!(" in {some} of {all} settings"),
    };
    let ratios = match those.len() {
        1 => ratio(least),
        _ => format!("from {} to {}", ratio(least), ratio(most)),
    };
    let range = if verdict == Verdict::Same { String::new() } else { format!(" ({ratios})") };
    Some(format!("{what}{count}{range}"))
}

/// Describes the results of a lab with one system.
fn without_comparisons(results: &Results) -> String {
    let measured = tally(results);
    if !results.overall.is_empty() {
        return format!("{measured}.");
    }
    let judged: Vec<&Cell> =
        results.cells.iter().filter(|cell| cell.metrics.contains_key(WITHIN)).collect();
    if !judged.is_empty() {
        let outside: Vec<&&Cell> =
            judged.iter().filter(|cell| cell.metrics[WITHIN].value() < 1.0).collect();
        let all = counted(judged.len(), "figure");
        return match outside.first() {
            None => format!("{all}, each within its tolerance; {measured}."),
            Some(first) => format!(
                "{all}, {} outside of the tolerance, for example {} at {}; {measured}.",
                outside.len(),
                first.system,
                axis::describe(&first.axes)
            ),
        };
    }
    let Some(headline) = pivot::headline(results) else { return format!("{measured}.") };
    let figure = |cell: &Cell| cell.metrics.get(headline).map(|metric| metric.value());
    let known: Vec<(&Cell, f64)> =
        results.cells.iter().filter_map(|cell| Some((cell, figure(cell)?))).collect();
    let least = known.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let most = known.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((least, most)) = least.zip(most) else { return format!("{measured}.") };
    let label = metrics::meaning(headline).label;
    let unit = with_unit(pivot::unit(results, headline));
    let [low, high] = [least.1, most.1].map(number::format);
    if known.len() == 1 {
        return format!("{label}: {high}{unit}; {measured}.");
    }
    let alone = |one: fn(&Cell) -> String| known.iter().all(|(cell, _)| one(cell) == one(most.0));
    let (one_system, one_place) =
        (alone(|cell| cell.system.clone()), alone(|cell| axis::describe(&cell.axes)));
    if one_place {
        let mut ranked = known.clone();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let each =
            |(cell, figure): &(&Cell, f64)| format!("{} {}", cell.system, number::format(*figure));
        let all: Vec<String> = ranked.iter().map(each).collect();
        return format!("{label}: {}{unit}; {measured}.", all.join(", "));
    }
    let place = axis::describe(&most.0.axes);
    let of = if one_system { String::new() } else { format!("of {} ", most.0.system) };
    format!("{label}: {low} to {high}{unit}, most {of}at {place}; {measured}.")
}

fn with_unit(unit: String) -> String {
    if unit.is_empty() { unit } else { format!(" {unit}") }
}

const WITHIN: &str = "within";
/// Relative difference below which medians count as equal: the emulated link itself is accurate to
/// 0.5 % of its rate.
const NEAR: f64 = 0.01;
/// Maximum number of sentences below the table of a terminal.
const MOST_BESIDE: usize = 3;
const MOST_AHEAD: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Ratio};

    fn cell(system: &str, loss: &str, goodput: Option<f64>) -> Cell {
        let axes = Axes::from(
            [("loss", loss), ("rate", "600mbit")]
                .map(|(axis, value)| (axis.to_owned(), value.to_owned())),
        );
        let mut cell = Cell::new(system, axes);
        match goodput {
            None => cell.failed = Some("it broke".to_owned()),
            Some(goodput) => {
                let metric = Metric::single(goodput, "Mbit/s");
                cell.metrics.insert("goodput_mbit_s".to_owned(), metric);
            }
        }
        cell
    }

    fn comparison(loss: &str, a: &str, primary: bool) -> Comparison {
        let ratio = Ratio {
            ci95: Some([250.0, 281.0]),
            coverage: Some(0.96875),
            n: 6,
            ..Ratio::single(266.0)
        };
        Comparison {
            metric: "goodput_mbit_s".to_owned(),
            axes: cell(a, loss, None).axes,
            a: a.to_owned(),
            b: "cubic".to_owned(),
            ratio,
            verdict: if primary { Verdict::Better } else { Verdict::Undecided },
            threshold: None,
            primary,
            more_blocks: (!primary).then_some(2),
            goal: None,
        }
    }

    /// A run in which bbr is ahead at one point, with CPU times.
    fn behind_at_one_point() -> Results {
        let mut run = run();
        run.comparisons = vec![comparison("5%", "tunnel", true)];
        run.view = Some(results::View {
            metric: "goodput_mbit_s".to_owned(),
            also: vec!["cpu_seconds_per_gbit.system".to_owned(), "queue_kbyte.p95".to_owned()],
            ..results::View::default()
        });
        for cell in &mut run.cells {
            let faster = cell.system == "bbr" && cell.axes["loss"] == "0%";
            let goodput = if faster { 561.0 } else { cell.metrics["goodput_mbit_s"].median };
            cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(goodput, "Mbit/s"));
            let cost = if cell.system == "tunnel" { 1.5 } else { 0.5 };
            let cost = Metric::single(cost, "core-seconds per Gbit");
            cell.metrics.insert("cpu_seconds_per_gbit.system".to_owned(), cost);
        }
        run
    }

    const COST: &str = "CPU per Gbit system at loss 5%: cubic 0.500, bbr 0.500, tunnel 1.50 core-seconds per \
                        Gbit.";

    #[test]
    fn the_answer_names_points_where_other_systems_are_faster_and_the_cpu_time() {
        let told = sentences(&behind_at_one_point());
        let behind = "By its medians tunnel is behind bbr in 1 of 2 settings: 0.900× at loss 0%.";
        assert!(told.iter().any(|one| one == behind), "{told:?}");
        assert!(told.iter().any(|one| one == COST), "{told:?}");
    }

    #[test]
    fn a_terminal_names_points_behind_and_the_cpu_time_below_an_answer_in_one_line() {
        let mut run = behind_at_one_point();
        run.headline = Some("The tunnel carries 505 Mbit/s.".to_owned());
        let behind = "Goodput: by its medians tunnel is behind bbr in 1 of 2 settings (worst 0.900× at \
                      loss 0%).";
        assert_eq!(beside_headline(&run), [behind, COST]);
        let terminal = crate::terminal::render(&run, 200, false);
        for sentence in [behind, COST] {
            assert_eq!(terminal.lines().filter(|line| *line == sentence).count(), 1, "{terminal}");
        }
        // The lab compares a second metric.
        for cell in run.cells.iter_mut().filter(|cell| cell.system != "cubic") {
            let slower = cell.system == "tunnel" && cell.axes["loss"] == "5%";
            let rate = Metric::single(if slower { 1e6 } else { 2e6 }, "packets/s");
            cell.metrics.insert("ndr_pps".to_owned(), rate);
        }
        let second =
            Comparison { metric: "ndr_pps".to_owned(), ..comparison("5%", "tunnel", false) };
        run.comparisons.push(second);
        run.view.as_mut().unwrap().also.push("ndr_pps".to_owned());
        let without_loss = "Highest without loss: by its medians tunnel is behind bbr in 1 of 2 settings \
                            (worst 0.500× at loss 5%).";
        assert_eq!(beside_headline(&run), [behind, without_loss, COST]);
    }

    #[test]
    fn a_terminal_names_two_of_many_systems_that_are_ahead() {
        let mut run = run();
        run.comparisons = vec![comparison("5%", "tunnel", true)];
        for loss in ["5%", "0%"] {
            let faster = [("slow", 500.0), ("fast", 600.0), ("faster", 700.0), ("fastest", 800.0)];
            run.cells.extend(faster.map(|(system, goodput)| cell(system, loss, Some(goodput))));
        }
        run.cells.push(cell("slow", "1%", Some(500.0)));
        run.cells.push(cell("tunnel", "1%", Some(505.0)));
        run.cells.push(cell("faster", "1%", Some(1010.0)));
        let ahead = "Goodput: by its medians tunnel is behind faster in 3 of 3 settings (worst 0.500× at \
                     loss 1%), fast in 2 of 2 settings (worst 0.842× at loss 0%), 1 more system.";
        assert_eq!(beside_headline(&run), [ahead]);
    }

    fn run() -> Results {
        let mut results = Results::new("x", Form::Quick);
        for loss in ["5%", "0%"] {
            for (system, goodput) in
                [("cubic", Some(1.9)), ("bbr", Some(466.0)), ("tunnel", Some(505.0))]
            {
                results.cells.push(cell(system, loss, goodput));
            }
        }
        results.comparisons = vec![
            comparison("5%", "tunnel", true),
            comparison("0%", "tunnel", false),
            comparison("5%", "bbr", false),
        ];
        results
    }

    #[test]
    fn the_answer_names_the_values_of_the_primary_comparison() {
        assert_eq!(
            sentences(&run()),
            [
                "Goodput at loss 5%: tunnel 505, bbr 466, cubic 1.90 Mbit/s. tunnel is better than cubic: \
                 266× [250, 281] (96.9 % interval).",
                "2 of 3 comparisons are undecided; 2 more blocks would decide them."
            ]
        );
    }

    #[test]
    fn the_answer_in_one_line_comes_first_and_the_sentences_come_below_the_tables() {
        let mut results = run();
        results.headline = Some("The tunnel carries 505 Mbit/s.".to_owned());
        let sentence = "266× [250, 281] (96.9 % interval).";
        let terminal = crate::terminal::render(&results, 100, false);
        assert_eq!(terminal.lines().nth(1), results.headline.as_deref(), "{terminal}");
        assert!(!terminal.contains(sentence), "{terminal}");
        let page = crate::markdown::render(&results, "");
        let (before, behind) = page.split_once("## In more words").unwrap();
        assert!(before.contains("**Answer:** The tunnel carries 505 Mbit/s."), "{page}");
        assert!(!before.contains(sentence) && behind.contains(sentence), "{page}");
        let html = crate::html::render(&results, &results::Samples::default(), &[], "");
        let (before, behind) = html.split_once("In more words").unwrap();
        assert!(before.contains("The tunnel carries 505") && behind.contains(sentence));
    }

    #[test]
    fn values_of_one_point_are_named_once() {
        let mut results = run();
        let mut second = comparison("5%", "tunnel", true);
        second.b = "bbr".to_owned();
        results.comparisons = vec![comparison("5%", "tunnel", true), second];
        let answer = sentences(&results);
        assert_eq!(answer.len(), 1, "{answer:?}");
        assert_eq!(answer[0].matches("Goodput at loss 5%").count(), 1, "{answer:?}");
        assert!(answer[0].contains("tunnel is better than bbr"), "{answer:?}");
    }

    #[test]
    fn a_failed_system_and_an_undecided_comparison_are_named_as_such() {
        let mut results = run();
        results.cells[1] = cell("bbr", "5%", None);
        results.cells[2].cpu_limited = true;
        results.comparisons.truncate(1);
        results.comparisons[0].verdict = Verdict::Undecided;
        let answer = &sentences(&results)[0];
        let expected = "Goodput at loss 5%: tunnel 505 *, cubic 1.90 Mbit/s; bbr failed. Undecided: tunnel / cubic is ";
        assert!(answer.starts_with(expected), "{answer}");
        results.cells[2].valid = false;
        let answer = &sentences(&results)[0];
        assert!(answer.contains("Undecided: tunnel / cubic is "), "{answer}");
        assert!(answer.ends_with(", and a cell of them is not valid."), "{answer}");
        results.cells[2].valid = true;
        (results.cells[1].failed, results.cells[1].not_run) =
            (None, Some("needs 3 CPUs".to_owned()));
        let answer = &sentences(&results)[0];
        assert!(answer.contains("; bbr not run. "), "{answer}");
        results.comparisons[0].more_blocks = Some(1);
        let told = &sentences(&results);
        let expected = "The comparison is undecided; 1 more block would decide it.";
        assert_eq!(told.last().unwrap(), expected, "{told:?}");
    }

    #[test]
    fn a_comparison_with_a_failed_system_has_no_ratio() {
        let mut results = run();
        results.cells[2] = cell("tunnel", "5%", None);
        results.comparisons.truncate(1);
        results.comparisons[0].verdict = Verdict::Undecided;
        let primary = "Goodput at loss 5%: bbr 466, cubic 1.90 Mbit/s; tunnel failed. \
                       tunnel cannot be compared with cubic.";
        assert_eq!(sentences(&results)[0], primary);
        results.comparisons[0].primary = false;
        assert_eq!(sentences(&results)[0], "tunnel against cubic, by goodput: failed.");
        let mut other = comparison("0%", "tunnel", false);
        other.more_blocks = Some(8);
        results.comparisons.push(other);
        let both = [
            "tunnel against cubic, by goodput: undecided (266× at loss 0% · rate 600mbit); failed in 1 \
             of 2 settings.",
            "Both comparisons are undecided; 8 more blocks would decide 1 of them.",
        ];
        assert_eq!(sentences(&results)[..2], both);
    }

    #[test]
    fn systems_without_a_comparison_are_listed_by_descending_value() {
        let mut results = Results::new("x", Form::Smoke);
        results.cells = vec![cell("cubic", "1%", Some(70.0)), cell("bbr", "1%", Some(94.5))];
        assert_eq!(
            sentences(&results),
            ["Goodput: bbr 94.5, cubic 70.0 Mbit/s; 2 cells measured."]
        );
        results.cells.push(cell("bbr", "5%", Some(80.0)));
        assert_eq!(
            sentences(&results),
            [
                "Goodput: 70.0 to 94.5 Mbit/s, most of bbr at loss 1% · rate 600mbit; 3 cells measured."
            ]
        );
    }

    #[test]
    fn the_answer_of_a_lab_with_one_system_has_its_values() {
        let mut results = Results::new("x", Form::Full);
        results.cells = vec![cell("emu", "0%", Some(0.5)), cell("emu", "5%", Some(0.25))];
        assert_eq!(
            sentences(&results),
            ["Goodput: 0.250 to 0.500 Mbit/s, most at loss 0% · rate 600mbit; 2 cells measured."]
        );
        for (place, within) in [1.0, 0.0].into_iter().enumerate() {
            results.cells[place].metrics.insert(WITHIN.to_owned(), Metric::single(within, ""));
        }
        assert_eq!(
            sentences(&results),
            [
                "2 figures, 1 outside of the tolerance, for example emu at loss 5% · rate 600mbit; 2 cells measured."
            ]
        );
    }
}
