//! The answer in one or two sentences.

use crate::{axis, comparison, number, overall, pivot};
use results::{Comparison, Results, Verdict, metrics};

/// The lab's own answer, or sentences about the comparisons of the main metric.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    if !results.answer.is_empty() {
        return results.answer.clone();
    }
    let mut sentences: Vec<String> =
        results.comparisons.iter().filter(|one| one.primary).map(primary).collect();
    sentences
        .extend(pairs(results).into_iter().map(|(a, b, comparisons)| sentence(a, b, &comparisons)));
    sentences.extend(overall::sentences(results));
    if sentences.is_empty() {
        sentences.push(without_comparisons(results));
    }
    sentences
}

/// "12 cells measured, 1 failed, 2 short of CPU"
pub(crate) fn tally(results: &Results) -> String {
    let count = |test: fn(&results::Cell) -> bool| results.cells.iter().filter(|c| test(c)).count();
    let failed = count(|cell| cell.failed.is_some());
    let mut parts = vec![format!("{} measured", counted(results.cells.len() - failed, "cell"))];
    for (number, words) in [
        (failed, "failed"),
        (count(|cell| !cell.valid && cell.failed.is_none()), "not valid"),
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

/// `Primary: a against b, by goodput at loss 1%: better (9.80×).`
fn primary(one: &Comparison) -> String {
    let label = metrics::meaning(&one.metric).label.to_lowercase();
    let place = axis::describe(&one.axes);
    let at = if place.is_empty() { place } else { format!(" at {place}") };
    let verdict = comparison::verdict_alone(one);
    let ratio = number::ratio(one.ratio.median);
    format!("Primary: {} against {}, by {label}{at}: {verdict} ({ratio}).", one.a, one.b)
}

fn sentence(a: &str, b: &str, comparisons: &[&Comparison]) -> String {
    let label = metrics::meaning(&comparisons[0].metric).label.to_lowercase();
    let clauses: Vec<String> =
        [Verdict::Better, Verdict::Worse, Verdict::Same, Verdict::Inconclusive]
            .into_iter()
            .filter_map(|verdict| clause(verdict, comparisons))
            .collect();
    format!("{a} against {b}, by {label}: {}.", clauses.join("; "))
}

fn clause(verdict: Verdict, comparisons: &[&Comparison]) -> Option<String> {
    let those: Vec<&&Comparison> =
        comparisons.iter().filter(|one| one.verdict == verdict).collect();
    let all = comparisons.len();
    let least = those.iter().min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))?;
    let most = those.iter().max_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))?;
    let what = match verdict {
        Verdict::Same => "no difference that matters",
        other => other.word(),
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
    let range = match verdict {
        Verdict::Inconclusive => {
            let most = those.iter().filter_map(|one| one.needs_repeats).max();
            most.map_or_else(String::new, |repeats| format!(" (up to {repeats} repeats needed)"))
        }
        Verdict::Same => String::new(),
        _ if those.len() == 1 => format!(" ({})", ratio(least)),
        _ => format!(" (from {} to {})", ratio(least), ratio(most)),
    };
    Some(format!("{what}{count}{range}"))
}

fn without_comparisons(results: &Results) -> String {
    match results.overall.is_empty() {
        true => format!("{}; there are no comparisons.", tally(results)),
        false => format!("{}.", tally(results)),
    }
}
