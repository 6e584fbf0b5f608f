//! Which system is ahead over all cells, metric by metric.

use crate::results::{Overall, Results};
use crate::{metrics, number, pivot};

/// Heads and rows of a table: a metric a row, a system a column; what is ahead is marked.
#[derive(Debug)]
pub(crate) struct OverallTable {
    pub(crate) heads: Vec<String>,
    /// The text, and whether its system is ahead.
    pub(crate) rows: Vec<Vec<(String, bool)>>,
}

pub(crate) fn table(results: &Results) -> Option<OverallTable> {
    if results.overall.is_empty() {
        return None;
    }
    let systems = pivot::systems(results);
    let mut heads = vec!["metric".to_owned(), "mean".to_owned(), "cells".to_owned()];
    heads.extend(systems.iter().cloned());
    let rows = results.overall.iter().map(|one| row(one, &systems)).collect();
    Some(OverallTable { heads, rows })
}

pub(crate) fn note() -> &'static str {
    "Means over the cells in which every system has the metric; the best is marked with ◂, and in \
     parentheses stands in how many cells a system was the best."
}

fn row(one: &Overall, systems: &[String]) -> Vec<(String, bool)> {
    let label = metrics::meaning(&one.metric).label;
    let name = if one.unit.is_empty() { label } else { format!("{label}, {}", one.unit) };
    let mut row =
        vec![(name, false), (one.mean.word().to_owned(), false), (one.cells.to_string(), false)];
    row.extend(systems.iter().map(|system| {
        let Some(mean) = one.systems.get(system) else { return ("–".to_owned(), false) };
        let ahead = one.best.as_ref() == Some(system);
        let wins = one.ahead.get(system).map(|wins| format!(" ({wins})")).unwrap_or_default();
        let mark = if ahead { " ◂" } else { "" };
        (format!("{}{wins}{mark}", number::format(*mean)), ahead)
    }));
    row
}
