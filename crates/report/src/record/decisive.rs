//! The table of a published run's page: the measurements that decide the answer.

use crate::interval::Around;
use crate::{Column, Entry, Pivot};
use crate::{axis, columns, confusion, interval, method, missing, number, overall, pivot};
use results::{Axes, Cell, Results};
use std::fmt::Write as _;

/// A table whose rows have a rank. If not all rows fit, the rows with the lowest rank stay.
#[derive(Debug)]
pub(crate) struct Decisive {
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<(Rank, Vec<String>)>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The row has a comparison that the lab file names.
    Primary,
    /// A reference report has values for the row's axis values.
    Published,
    /// A comparison in the row has a verdict.
    Decided,
    Other,
}

impl Decisive {
    /// Builds the first table of this list that the run has: verdicts by case, the columns that the
    /// lab names, the means of a run with more points than a page has rows, the main metric. If the
    /// lab's view names cells, the table has only these.
    pub(crate) fn of(results: &Results) -> Option<Self> {
        if let Some(told) = &results.confusion {
            let (heads, rows) = confusion::lines(told);
            let rows = rows.into_iter().map(|row| (Rank::Other, row)).collect();
            return Some(Self { heads, rows, notes: Vec::new() });
        }
        let chosen = pivot::chosen(results);
        let whole = results;
        let results = chosen.as_ref().unwrap_or(results);
        if let Some(columns) = Self::of_the_columns(results) {
            return Some(columns);
        }
        let main = Self::of_the_main_metric(results)?;
        match overall::table(whole) {
            Some(means) if main.rows.len() > super::MOST_ROWS => {
                let texts = |row: Vec<overall::Figure>| {
                    (Rank::Other, row.iter().map(|figure| figure.line(false)).collect())
                };
                let rows = means.rows.into_iter().map(texts).collect();
                let notes = vec![overall::note(false).to_owned()];
                Some(Self { heads: means.heads, rows, notes })
            }
            _ => Some(main),
        }
    }

    /// Returns the rows to show, in the order of the whole table.
    pub(crate) fn first(&self, count: usize) -> Vec<Vec<String>> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|place| self.rows[*place].0);
        order.truncate(count);
        order.sort_unstable();
        order.into_iter().map(|place| self.rows[place].1.clone()).collect()
    }

    /// Builds a row for each cell, with the main metric and the columns that the lab names, and the
    /// reference report's value beside the measured value.
    fn of_the_columns(results: &Results) -> Option<Self> {
        let view = results.view.as_ref()?;
        let is_measured =
            |name: &&String| results.cells.iter().any(|cell| figure(cell, name).is_some());
        let mut columns: Vec<&String> = view.columns.iter().filter(is_measured).collect();
        if columns.is_empty() {
            return None;
        }
        if !columns.contains(&&view.metric) && is_measured(&&view.metric) {
            columns.insert(0, &view.metric);
        }
        columns.truncate(MOST_COLUMNS);
        let places = Places::of(results);
        let mut heads = vec!["system".to_owned()];
        heads.extend(places.heads());
        heads.extend(columns.iter().map(|name| pivot::head(results, name)));
        let row = |cell: &Cell| {
            let reference = columns::reference_of(results, cell);
            let mut row = vec![format!("{}{}", cell.system, method::mark(cell))];
            row.extend(places.texts(&cell.axes));
            row.extend(columns.iter().map(|name| {
                let none = || cell.why_missing(name).map_or("–", missing::in_place).to_owned();
                // The main metric has the interval, as room is short.
                let shown = |metric: &results::Metric| match **name == view.metric {
                    true => number::with_interval(metric),
                    false => number::format(metric.value()),
                };
                let mut text = figure(cell, name).map_or_else(none, shown);
                if let Some(value) = reference.and_then(|row| row.metrics.get(name.as_str())) {
                    let _ = write!(text, " (ref {})", number::format(*value));
                }
                text
            }));
            let own = rank(results, &cell.axes, Some(&cell.system));
            (if reference.is_some() { own.min(Rank::Published) } else { own }, row)
        };
        let mut rows = Vec::new();
        for system in pivot::systems(results) {
            let cells = results.cells.iter().filter(|cell| cell.system == system);
            rows.extend(cells.map(row));
        }
        let main = |cell: &Cell| Around::metric(figure(cell, &view.metric)?);
        let intervals = results.cells.iter().filter_map(main);
        let mut notes = vec![interval::note(intervals, "in brackets")];
        notes.extend(places.note());
        if !results.reference.is_empty() {
            notes.push(format!("“ref” is the reference's figure: {}.", method::sources(results)));
        }
        notes.extend(method::marks(results));
        Some(Self { heads, rows, notes })
    }

    fn of_the_main_metric(results: &Results) -> Option<Self> {
        let pivot = Pivot::headline(results)?;
        let places = Places::of(results);
        let columns = &pivot.columns[..pivot.columns.len().min(MOST_COLUMNS)];
        let mut heads = places.heads();
        heads.extend(columns.iter().map(|column| match column {
            Column::Measured(system) => system.clone(),
            Column::Published(system) => format!("{system} (reference)"),
        }));
        // A table of a single system has room for other metrics.
        let also: Vec<&String> = match columns {
            [_] => results.view.iter().flat_map(|view| &view.also).take(MOST_BESIDE).collect(),
            _ => Vec::new(),
        };
        heads.extend(also.iter().map(|name| pivot::head(results, name)));
        let mut rows = Vec::new();
        for panel in &pivot.panels {
            for row in &panel.rows {
                let mut point = panel.fixed.clone();
                if let Some(axis) = &pivot.row_axis {
                    point.insert(axis.clone(), row.value.clone());
                }
                let mut texts = places.texts(&point);
                texts.extend(row.entries.iter().take(columns.len()).map(entry));
                let cell = row.entries.first().and_then(|entry| entry.cell);
                texts.extend(also.iter().map(|name| {
                    let figure = cell.and_then(|cell| figure(cell, name));
                    figure.map_or_else(|| "–".to_owned(), |metric| number::format(metric.value()))
                }));
                rows.push((rank(results, &point, None), texts));
            }
        }
        let label = pivot::head(results, pivot.metric);
        let mut notes =
            vec![format!("{label}. {}", interval::note(pivot.intervals(), "in brackets"))];
        if columns.len() < pivot.columns.len() {
            notes.push(format!("{} of {} systems.", columns.len(), pivot.columns.len()));
        }
        notes.extend(places.note());
        if pivot.has_published() {
            notes.push(format!("“ref” is the reference's figure: {}.", method::sources(results)));
        }
        notes.extend(method::marks(results));
        (!rows.is_empty()).then_some(Self { heads, rows, notes })
    }
}

/// The columns with the axis values of a row. Many axes share one column, which shows unusual
/// values only.
struct Places {
    varied: Vec<String>,
    usual: Axes,
}

impl Places {
    fn of(results: &Results) -> Self {
        let mut varied = axis::names(results);
        varied.retain(|name| axis::values(results, name).len() > 1);
        let mut usual = Axes::new();
        if varied.len() > MOST_AXES {
            for name in &varied {
                let values = results.cells.iter().filter_map(|cell| cell.axes.get(name));
                let count = |value: &String| values.clone().filter(|other| *other == value).count();
                let most = axis::values(results, name).into_iter().rev().max_by_key(count);
                usual.extend(most.map(|value| (name.clone(), value)));
            }
        }
        Self { varied, usual }
    }

    fn heads(&self) -> Vec<String> {
        if self.usual.is_empty() { self.varied.clone() } else { vec!["at".to_owned()] }
    }

    fn texts(&self, at: &Axes) -> Vec<String> {
        if self.usual.is_empty() {
            let text = |name| at.get(name).cloned().unwrap_or_default();
            return self.varied.iter().map(text).collect();
        }
        let unusual = |(name, value): &(&String, &String)| {
            self.usual.get(*name).is_some_and(|usual| usual != *value)
        };
        let unusual = at.iter().filter(unusual);
        let text = axis::describe(&unusual.map(|(a, b)| (a.clone(), b.clone())).collect());
        vec![if text.is_empty() { "the usual path".to_owned() } else { text }]
    }

    fn note(&self) -> Option<String> {
        let usual = axis::describe(&self.usual);
        (!usual.is_empty()).then(|| format!("The usual path: {usual}."))
    }
}

fn rank(results: &Results, at: &Axes, system: Option<&String>) -> Rank {
    let here = results.comparisons.iter().filter(|one| {
        one.axes == *at && system.is_none_or(|system| [&one.a, &one.b].contains(&system))
    });
    let of = |one: &results::Comparison| match (one.primary, one.verdict) {
        (true, _) => Rank::Primary,
        (_, stats::Verdict::Better | stats::Verdict::Worse) => Rank::Decided,
        _ => Rank::Other,
    };
    here.map(of).min().unwrap_or(Rank::Other)
}

/// Returns the metric `name` of a measured cell, as the answer has it: the median over the repeats,
/// or the share.
fn figure<'a>(cell: &'a Cell, name: &str) -> Option<&'a results::Metric> {
    cell.metrics.get(name).filter(|_| cell.is_measured())
}

fn entry(entry: &Entry<'_>) -> String {
    let published = entry.published.map(|(_, value)| number::format(value));
    match (entry.cell, entry.metric) {
        (Some(cell), _) if !cell.is_measured() => {
            missing::in_a_word(cell).unwrap_or_default().to_owned()
        }
        (Some(cell), Some(metric)) => {
            let mut text = number::with_interval(metric) + &method::mark(cell);
            if let Some(value) = published {
                let _ = write!(text, " (ref {value})");
            }
            text
        }
        _ => {
            let none = entry.missing.map_or("–", missing::in_place);
            published.unwrap_or_else(|| none.to_owned())
        }
    }
}

/// Maximum number of axes with a column of their own; more axes share a column.
const MOST_AXES: usize = 4;
const MOST_COLUMNS: usize = 12;
const MOST_BESIDE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use indexmap::IndexMap;
    use results::{Form, Metric, Reference, View};

    fn run() -> Results {
        let mut results = Results::new("x", Form::Quick);
        for loss in ["0%", "5%"] {
            let axes = Axes::from([("loss".to_owned(), loss.to_owned())]);
            let mut cell = Cell::new("tcp", axes.clone());
            cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(13.0, "Mbit/s"));
            results.cells.push(cell);
        }
        results.reference.push(Reference {
            system: "tcp".to_owned(),
            systems: Vec::new(),
            axes: Axes::from([("loss".to_owned(), "5%".to_owned())]),
            metrics: IndexMap::from([("goodput_mbit_s".to_owned(), 12.8)]),
            source: "a report".to_owned(),
        });
        results
    }

    #[test]
    fn the_figure_of_the_reference_is_in_the_row_of_the_measured_figure() {
        let mut run = run();
        run.view = Some(View {
            metric: "goodput_mbit_s".to_owned(),
            columns: vec!["goodput_mbit_s".to_owned(), "absent".to_owned()],
            ..View::default()
        });
        let table = Decisive::of(&run).unwrap();
        assert_eq!(table.heads, ["system", "loss", "Goodput, Mbit/s"]);
        // The row with a reference is kept first.
        assert_eq!(table.first(1), [["tcp", "5%", "13.0 (ref 12.8)"]]);
        assert_eq!(table.first(9)[0], ["tcp", "0%", "13.0"]);
        assert!(table.notes.concat().contains("a report"), "{table:?}");
    }

    #[test]
    fn the_table_has_the_medians_of_the_answer_and_only_the_cells_of_the_view() {
        let mut run = run();
        run.cells[1].metrics.insert("jain".to_owned(), Metric::single(0.9, ""));
        run.cells[1].rounds = vec![IndexMap::from([("goodput_mbit_s".to_owned(), 99.0)])];
        run.view = Some(View {
            metric: "goodput_mbit_s".to_owned(),
            columns: vec!["jain".to_owned()],
            at: IndexMap::from([("loss".to_owned(), vec!["5%".to_owned()])]),
            ..View::default()
        });
        let table = Decisive::of(&run).unwrap();
        assert_eq!(table.heads, ["system", "Goodput, Mbit/s", "Jain fairness"]);
        assert_eq!(table.first(9), [["tcp", "13.0 (ref 12.8)", "0.900"]]);
        assert_eq!(table.notes[0], "Median of the repeats.");
        let main = run.cells[1].metrics.get_mut("goodput_mbit_s").unwrap();
        (main.ci95, main.coverage) = (Some([12.0, 14.0]), Some(0.96875));
        let table = Decisive::of(&run).unwrap();
        assert_eq!(table.first(9), [["tcp", "13.0 [12.0, 14.0] (ref 12.8)", "0.900"]]);
        assert_eq!(table.notes[0], "Median of the repeats, its 96.9 % interval in brackets.");
    }

    #[test]
    fn the_main_metric_has_axes_in_rows_and_systems_in_columns() {
        let mut run = run();
        run.cells[1].above_link_mbit_s = Some(12.0);
        let table = Decisive::of(&run).unwrap();
        assert_eq!(table.heads, ["loss", "tcp"]);
        assert_eq!(table.first(9), [["0%", "13.0"], ["5%", "13.0 ^ (ref 12.8)"]]);
        assert!(table.notes.concat().contains("^ above the link"), "{table:?}");
    }

    #[test]
    fn a_run_without_cells_has_no_table() {
        let mut run = run();
        (run.cells, run.reference) = (Vec::new(), Vec::new());
        assert!(Decisive::of(&run).is_none());
    }

    #[test]
    fn many_axes_share_a_column_with_their_unusual_values() {
        let mut run = run();
        for number in 0..3 {
            let mut cell = run.cells[0].clone();
            for axis in 0..5 {
                let value = if number == 0 { "odd" } else { "usual" };
                cell.axes.insert(format!("axis{axis}"), format!("{value}{}", number * axis));
            }
            run.cells.push(cell);
        }
        let places = Places::of(&run);
        assert_eq!(places.heads(), ["at"]);
        assert_eq!(places.texts(&places.usual), ["the usual path"]);
    }
}
