//! The values in the columns of the report that a lab repeats. Each round of that report has a row,
//! and their mean follows.

use crate::{axis, method, missing, number, pivot};
use results::{Axes, Cell, Reference, Results, metrics};

/// The rows of one point of the axes; the rows themselves vary the axis of the rows.
pub(crate) struct ColumnsTable {
    pub(crate) at: String,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Builds the tables; empty if the lab repeats no report, or if the run measured none of its
/// columns.
pub(crate) fn tables(results: &Results) -> Vec<ColumnsTable> {
    let columns = measured(results);
    if columns.is_empty() {
        return Vec::new();
    }
    let with_rounds = results.cells.iter().any(|cell| !cell.rounds.is_empty());
    let row_axis = pivot::row_axis(results);
    let row_axis = row_axis.as_deref();
    let mut heads = vec!["system".to_owned()];
    heads.extend(row_axis.map(str::to_owned));
    if with_rounds {
        heads.push("round".to_owned());
    }
    heads.extend(columns.iter().map(|name| {
        let unit = pivot::unit(results, name);
        let label = metrics::meaning(name).label;
        if unit.is_empty() { label } else { format!("{label}, {unit}") }
    }));
    let points = pivot::fixed_points(results, row_axis);
    let table = |fixed: Axes| {
        let mut rows = Vec::new();
        for system in pivot::systems(results) {
            let of_system = |cell: &&Cell| cell.system == system && is_at(cell, &fixed, row_axis);
            let mut cells: Vec<&Cell> = results.cells.iter().filter(of_system).collect();
            let order = row_axis.map(|axis| axis::values(results, axis)).unwrap_or_default();
            cells.sort_by_key(|cell| {
                let value = row_axis.and_then(|axis| cell.axes.get(axis));
                value.and_then(|value| order.iter().position(|other| other == value))
            });
            for cell in cells {
                rows.extend(rows_of(results, cell, row_axis, with_rounds, &columns));
            }
        }
        ColumnsTable { at: axis::describe(&fixed), heads: heads.clone(), rows }
    };
    points.into_iter().map(table).collect()
}

/// Returns the columns of the report that the lab repeats, in the report's order, without the
/// columns that are no metrics of this run.
pub(crate) fn measured(results: &Results) -> Vec<&str> {
    let Some(view) = &results.view else { return Vec::new() };
    let known = |name: &&str| {
        let cells = &mut results.cells.iter();
        cells.any(|cell| cell.metrics.contains_key(*name) || cell.why_missing(name).is_some())
    };
    let columns: Vec<&str> = view.columns.iter().map(String::as_str).filter(known).collect();
    let is_measured =
        |name: &&str| results.cells.iter().any(|cell| cell.metrics.contains_key(*name));
    // If this form of the lab measures none of the columns, the report has no such table.
    if columns.iter().any(is_measured) { columns } else { Vec::new() }
}

pub(crate) fn note(results: &Results) -> String {
    let rounds = results.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0);
    match rounds {
        0 => "Medians of the repeats.".to_owned(),
        rounds => format!(
            "The first {rounds} repeats as rounds, and their mean, as the reference report has \
             them. All other tables have the medians of all repeats."
        ),
    }
}

fn rows_of(
    results: &Results,
    cell: &Cell,
    row_axis: Option<&str>,
    with_rounds: bool,
    columns: &[&str],
) -> Vec<Vec<String>> {
    let begin = |system: String, round: &str| {
        let mut row = vec![system];
        row.extend(row_axis.map(|axis| cell.axes.get(axis).cloned().unwrap_or_default()));
        if with_rounds {
            row.push(round.to_owned());
        }
        row
    };
    let row = |system: String, round: &str, shown: &dyn Fn(&str) -> Option<String>| {
        let text = |name: &&str| shown(name).unwrap_or_else(|| NONE.to_owned());
        let mut row = begin(system, round);
        row.extend(columns.iter().map(text));
        row
    };
    let measured = |name: &str, value: Option<f64>| {
        let why = || Some(missing::in_place(cell.why_missing(name)?).to_owned());
        value.map(number::format).or_else(why)
    };
    let name = format!("{}{}", cell.system, method::mark(cell));
    let mut rows = Vec::new();
    if let Some(word) = missing::in_a_word(cell) {
        rows.push(row(format!("{name} ({word})"), "", &|_| None));
    } else if cell.rounds.is_empty() {
        let median = |metric: &str| cell.metrics.get(metric).map(|metric| metric.value());
        rows.push(row(name, "median", &|metric| measured(metric, median(metric))));
    } else {
        for (number, round) in cell.rounds.iter().enumerate() {
            let value = |metric: &str| measured(metric, round.get(metric).copied());
            rows.push(row(name.clone(), &(number + 1).to_string(), &value));
        }
        let mean = |metric: &str| {
            let values: Option<Vec<f64>> =
                cell.rounds.iter().map(|round| round.get(metric).copied()).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        rows.push(row(name, "mean", &|metric| measured(metric, mean(metric))));
    }
    if let Some(reference) = reference_of(results, cell) {
        let value = |metric: &str| reference.metrics.get(metric).copied().map(number::format);
        rows.push(row(format!("{} (reference)", reference.system), "", &value));
    }
    rows
}

/// Returns the row of the reference that agrees with `cell` in the most axes.
pub(crate) fn reference_of<'a>(results: &'a Results, cell: &Cell) -> Option<&'a Reference> {
    let rows = results.reference.iter().filter(|row| row.belongs_to(cell));
    rows.rev().max_by_key(|row| row.axes.len())
}

fn is_at(cell: &Cell, fixed: &Axes, row_axis: Option<&str>) -> bool {
    let others = cell.axes.iter().filter(|(axis, _)| Some(axis.as_str()) != row_axis);
    others.clone().count() == fixed.len()
        && others.into_iter().all(|(axis, value)| fixed.get(axis) == Some(value))
}

const NONE: &str = "–";

#[cfg(test)]
mod tests {
    use super::*;
    use indexmap::IndexMap;
    use results::{Form, Metric, Missing, View};

    fn run(rounds: usize) -> Results {
        let mut results = Results::new("x", Form::Quick);
        results.view = Some(View {
            metric: "goodput_mbit_s".to_owned(),
            rows: Some("loss".to_owned()),
            columns: ["sender_mbit_s", "goodput_mbit_s", "cpu_percent.client"]
                .map(str::to_owned)
                .to_vec(),
            ..View::default()
        });
        for (loss, goodput) in [("5%", 10.0), ("0%", 500.0)] {
            let axes = [("loss", loss), ("rtt", "1ms")]
                .map(|(axis, value)| (axis.to_owned(), value.to_owned()));
            let mut cell = Cell::new("tcp", Axes::from(axes));
            for name in ["goodput_mbit_s", "sender_mbit_s"] {
                cell.metrics.insert(name.to_owned(), Metric::single(goodput, "Mbit/s"));
            }
            cell.rounds = (0..rounds)
                .map(|number| {
                    IndexMap::from([("goodput_mbit_s".to_owned(), goodput + number as f64)])
                })
                .collect();
            results.cells.push(cell);
        }
        results.reference.push(Reference {
            system: "tcp".to_owned(),
            systems: Vec::new(),
            axes: Axes::from([("loss".to_owned(), "5%".to_owned())]),
            metrics: IndexMap::from([("sender_mbit_s".to_owned(), 13.0)]),
            source: "a report".to_owned(),
        });
        results
    }

    #[test]
    fn the_columns_are_in_the_order_of_the_report() {
        let tables = tables(&run(0));
        assert_eq!(tables.len(), 1);
        // The run measured nothing in the third column, and no number is published.
        assert_eq!(tables[0].heads, ["system", "loss", "Sent, Mbit/s", "Goodput, Mbit/s"]);
        assert_eq!(tables[0].at, "rtt 1ms");
        assert_eq!(
            tables[0].rows,
            [
                ["tcp", "0%", "500", "500"],
                ["tcp", "5%", "10.0", "10.0"],
                ["tcp (reference)", "5%", "13.0", "–"]
            ]
        );
    }

    #[test]
    fn rounds_have_separate_rows_before_their_mean() {
        let rows = &tables(&run(2))[0].rows;
        let shown: Vec<_> = rows[..3].iter().map(|row| [&row[2], &row[4]]).collect();
        assert_eq!(shown, [["1", "500"], ["2", "501"], ["mean", "500"]]);
        assert!(note(&run(2)).contains("first 2 repeats"));
    }

    #[test]
    fn a_missing_value_differs_from_an_unmeasured_metric() {
        let mut run = run(0);
        run.cells[0].missing.push(Missing {
            metrics: vec!["cpu_percent.client".to_owned()],
            reason: "it ended early".to_owned(),
            failed: true,
        });
        let table = &tables(&run)[0];
        // The run measured nothing in the column, and the table says so.
        assert_eq!(table.heads.len(), 5);
        assert_eq!(table.rows[1], ["tcp", "5%", "10.0", "10.0", "not measured"]);
        assert_eq!(table.rows[0][4], "–");
        assert_eq!(table.rows[2], ["tcp (reference)", "5%", "13.0", "–", "–"]);
    }

    #[test]
    fn a_run_that_measures_no_column_of_the_report_has_no_such_table() {
        let mut run = run(0);
        if let Some(view) = &mut run.view {
            view.columns = vec!["sender_mbit_s".to_owned(), "actual_s".to_owned()];
        }
        assert!(!tables(&run).is_empty());
        run.cells.iter_mut().for_each(|cell| drop(cell.metrics.shift_remove("sender_mbit_s")));
        assert!(tables(&run).is_empty());
    }

    #[test]
    fn a_lab_that_repeats_no_report_has_no_such_table() {
        assert!(tables(&Results::new("x", Form::Full)).is_empty());
    }
}
