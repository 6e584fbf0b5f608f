//! The texts for a comparison.

use crate::interval::Around;
use crate::{method, missing, number};
use results::{Comparison, Results};
use stats::Verdict;

/// Names both systems with the marks of their cells: `tcp-bbr * / tcp-cubic`.
pub(crate) fn systems(results: &Results, one: &Comparison) -> String {
    format!("{} / {}", side(results, one, &one.a), side(results, one, &one.b))
}

/// Returns the mark and the verdict, or the reason for a missing verdict.
pub(crate) fn verdict(one: &Comparison) -> String {
    let words = match (one.verdict, one.more_blocks) {
        (Verdict::Undecided, _) if one.ratio.one_start => "one start".to_owned(),
        (Verdict::Undecided, Some(blocks)) => crate::answer::counted(blocks as usize, "more block"),
        (Verdict::Same, _) => format!("same{}", within(one)),
        (verdict, _) => verdict.word().to_owned(),
    };
    let text = format!("{} {words}", one.verdict.mark());
    if one.primary { format!("{text} (primary)") } else { text }
}

/// Formats the mark and the ratio: `▲ 1.05×`.
pub(crate) fn short(one: &Comparison) -> String {
    format!("{} {}", one.verdict.mark(), number::ratio(one.ratio.median))
}

/// Formats the smallest difference that matters: ` within 5 %`. Empty for results of older writers,
/// which stated no threshold.
pub(crate) fn within(one: &Comparison) -> String {
    // Rounds, because a share of 0.07 would give 7.000000000000001 %.
    let percent = |share: f64| format!(" within {} %", (share * 1e8).round() / 1e6);
    one.threshold.map(percent).unwrap_or_default()
}

pub(crate) fn intervals(results: &Results) -> impl Iterator<Item = Around> {
    results.comparisons.iter().filter_map(|one| Around::ratio(&one.ratio))
}

pub(crate) fn note(results: &Results) -> String {
    let mut text = "Ratio: the median over pairs of repeats of the same block.".to_owned();
    if results.comparisons.iter().any(|one| one.ratio.ci95.is_some()) {
        text += " The intervals hold together: in at least 95 % of runs each of them contains its ratio. \
                 ▲ better, ▼ worse: the interval excludes 1, and the ratio is at or beyond the smallest \
                 difference that matters. = the same: the interval lies within that difference. ? undecided.";
    }
    if results.comparisons.iter().any(|one| one.primary) {
        text += " The lab file named the primary ones before the run.";
    }
    if results.comparisons.iter().any(|one| one.more_blocks.is_some()) {
        text += " “More blocks”: the number of further repeats of every cell that would decide the \
                 comparison, if these are like the repeats so far.";
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
