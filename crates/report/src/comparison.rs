//! The words for a comparison.

use crate::interval::Around;
use crate::{method, missing};
use results::{Comparison, Results, Verdict};

/// `tcp-bbr * / tcp-cubic`: the systems with the marks of their cells.
pub(crate) fn systems(results: &Results, one: &Comparison) -> String {
    format!("{} / {}", side(results, one, &one.a), side(results, one, &one.b))
}

/// The verdict, or the reason why there is none.
pub(crate) fn verdict(one: &Comparison) -> String {
    let word = match (one.verdict, one.needs_repeats) {
        (Verdict::Inconclusive, _) if one.ratio.one_start => "one start".to_owned(),
        (Verdict::Inconclusive, Some(repeats)) => format!("needs {repeats} repeats"),
        (verdict, _) => verdict.word().to_owned(),
    };
    if one.primary { format!("{word} (primary)") } else { word }
}

/// `0.031`, `< 0.001`, `–` if the run stated none.
pub(crate) fn adjusted_p(one: &Comparison) -> String {
    match one.adjusted_p {
        None => "–".to_owned(),
        Some(p) if p < 0.001 => "< 0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

pub(crate) fn intervals(results: &Results) -> impl Iterator<Item = Around> {
    results.comparisons.iter().filter_map(|one| Around::ratio(&one.ratio))
}

/// Explains the table.
pub(crate) fn note(results: &Results) -> String {
    let count = results.comparisons.len();
    let mut text = "Ratio: the median over pairs of repeats of the same block.".to_owned();
    if results.comparisons.iter().any(|one| one.adjusted_p.is_some()) {
        text += &format!(
            " p is adjusted for the {} of this table; a difference is shown at 0.05 or less.",
            crate::answer::counted(count, "comparison")
        );
    }
    if results.comparisons.iter().any(|one| one.primary) {
        text += " The lab file named the primary ones before the run.";
    }
    if results.comparisons.iter().any(|one| one.needs_repeats.is_some()) {
        text += " “needs” is the number of repeats below which no difference can be shown.";
    }
    if results.comparisons.iter().any(|one| one.ratio.one_start) {
        text += " “one start”: the repeats are windows of one start of each system, which decide \
                 nothing about another start.";
    }
    text
}

fn side(results: &Results, one: &Comparison, system: &str) -> String {
    let cell = results.cells.iter().find(|cell| cell.system == system && cell.axes == one.axes);
    let mark = match cell {
        Some(cell) => match missing::in_a_word(cell) {
            Some(word) => format!(" ({word})"),
            None => method::mark(cell),
        },
        None => String::new(),
    };
    format!("{system}{mark}")
}
