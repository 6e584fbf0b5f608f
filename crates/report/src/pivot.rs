//! One metric as a table: one axis in rows, systems in columns, one panel for each point of the
//! other axes.

use std::collections::{HashMap, HashSet};

use crate::interval::Around;
use crate::{axis, headline};
use results::{Axes, Cell, Metric, Missing, Reference, Results, metrics};

/// The table of one metric.
#[derive(Debug)]
pub struct Pivot<'a> {
    /// The metric's name in the results, for example `goodput_mbit_s`.
    pub metric: &'a str,
    /// The metric's label.
    pub label: String,
    /// The metric's unit; empty for a number without a unit.
    pub unit: String,
    /// The axis of the rows. Absent if the run has no axes.
    pub row_axis: Option<String>,
    /// The columns of every panel.
    pub columns: Vec<Column>,
    /// The panels that have at least one cell.
    pub panels: Vec<Panel<'a>>,
}

/// The contents of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// The measured values of this system, beside the published values that belong to the same
    /// cells.
    Measured(String),
    /// A published system without a measured system of the same row.
    Published(String),
}

/// The rows with the same values of the other axes.
#[derive(Debug)]
pub struct Panel<'a> {
    /// The values of the other axes.
    pub fixed: Axes,
    /// The rows with at least one cell.
    pub rows: Vec<Row<'a>>,
}

/// One value of the row axis. Entries are in the columns' order.
#[derive(Debug)]
pub struct Row<'a> {
    /// The value of the row axis; empty if the run has no axes.
    pub value: String,
    /// The results, in the order of [`Pivot::columns`].
    pub entries: Vec<Entry<'a>>,
}

/// The results of one system at one point.
#[derive(Debug, Default)]
pub struct Entry<'a> {
    /// The cell; `None` if the system was not measured at this point.
    pub cell: Option<&'a Cell>,
    /// The cell's value; `None` if the cell lacks the metric.
    pub metric: Option<&'a Metric>,
    /// The reason why the metric is missing, if the cell should have the metric.
    pub missing: Option<&'a Missing>,
    /// The published value and its origin; `None` without a published value.
    pub published: Option<(&'a Reference, f64)>,
}

impl<'a> Pivot<'a> {
    /// Builds the table of the lab's main metric; `None` if the metric is neither measured nor
    /// published.
    pub fn headline(results: &'a Results) -> Option<Self> {
        Some(Self::of(results, headline(results)?))
    }

    /// Returns the metric's label with its unit.
    pub(crate) fn title(&self) -> String {
        with_unit(&self.label, &self.unit)
    }

    pub(crate) fn intervals(&self) -> impl Iterator<Item = Around> {
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        rows.flat_map(|row| &row.entries).filter_map(|entry| Around::metric(entry.metric?))
    }

    /// Builds the table of `metric`, with the lab's row axis in the rows, or else the axis with the
    /// most values.
    pub fn of(results: &'a Results, metric: &'a str) -> Self {
        Self::along(results, metric, row_axis(results))
    }

    pub(crate) fn along(results: &'a Results, metric: &'a str, row_axis: Option<String>) -> Self {
        let columns = columns(results);
        let cells = Cells::of(results);
        let mut panels: Vec<Panel<'a>> = Vec::new();
        for fixed in fixed_points(results, row_axis.as_deref()) {
            let mut rows = Vec::new();
            for value in row_values(results, row_axis.as_deref()) {
                let mut point = fixed.clone();
                if let Some(axis) = &row_axis {
                    point.insert(axis.clone(), value.clone());
                }
                let key = axis::key(&point);
                let entries: Vec<Entry<'a>> = columns
                    .iter()
                    .map(|column| match column {
                        Column::Measured(system) => {
                            measured(results, cells.at(system, &key), metric)
                        }
                        Column::Published(system) => {
                            published_alone(results, system, &point, metric)
                        }
                    })
                    .collect();
                if entries.iter().any(|entry| entry.cell.is_some()) {
                    rows.push(Row { value, entries });
                }
            }
            if !rows.is_empty() {
                panels.push(Panel { fixed, rows });
            }
        }
        Self {
            metric,
            label: metrics::meaning(metric).label,
            unit: unit(results, metric),
            row_axis,
            columns,
            panels,
        }
    }

    /// Whether any entry has a published value.
    pub fn has_published(&self) -> bool {
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        rows.flat_map(|row| &row.entries).any(|entry| entry.published.is_some())
    }
}

impl Panel<'_> {
    /// Whether the column at `index` has an entry in this panel.
    pub fn shows(&self, index: usize) -> bool {
        let mut entries = self.rows.iter().filter_map(|row| row.entries.get(index));
        entries.any(|entry| entry.cell.is_some() || entry.published.is_some())
    }
}

impl Column {
    /// Returns the name of the column's system.
    pub fn system(&self) -> &str {
        match self {
            Self::Measured(system) | Self::Published(system) => system,
        }
    }
}

impl Entry<'_> {
    /// Returns the measured value divided by the published value.
    pub fn ratio(&self) -> Option<f64> {
        let (_, published) = self.published?;
        let ratio = self.metric?.value() / published;
        ratio.is_finite().then_some(ratio)
    }
}

/// Returns the main metric of the run: the lab's choice, or the best-known metric.
pub(crate) fn headline(results: &Results) -> Option<&str> {
    match &results.view {
        Some(view) => Some(&view.metric),
        None => headline::of(metric_names(results).into_iter()),
    }
}

/// Returns the run with only the cells that the lab's view names. `None` if the view names no
/// cells, or if the run measured none of these.
pub(crate) fn chosen(results: &Results) -> Option<Results> {
    let view = results.view.as_ref().filter(|view| !view.at.is_empty())?;
    let at = |cell: &&Cell| {
        let agrees = |(axis, values): (&String, &Vec<String>)| {
            cell.axes.get(axis).is_none_or(|value| values.contains(value))
        };
        view.at.iter().all(agrees)
    };
    let cells: Vec<Cell> = results.cells.iter().filter(at).cloned().collect();
    (!cells.is_empty()).then(|| Results { cells, ..results.clone() })
}

/// Returns every metric of the run, in the order of the cells, then the metrics that no cell has.
pub(crate) fn metric_names(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let measured = results.cells.iter().flat_map(|cell| cell.metrics.keys());
    let missing = results.cells.iter().flat_map(|cell| &cell.missing);
    for name in measured.chain(missing.flat_map(|missing| &missing.metrics)) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// Whether the cells differ in a metric. A missing value differs from every value, and a single
/// cell does not show that a metric is constant.
pub(crate) fn varies(results: &Results, metric: &str) -> bool {
    let cells = || results.cells.iter().filter(|cell| cell.is_measured());
    let missing = cells().any(|cell| cell.why_missing(metric).is_some());
    let values: Vec<f64> =
        cells().filter_map(|cell| Some(cell.metrics.get(metric)?.value())).collect();
    // Compares the bits of values, because by `==` NaN differs from NaN.
    let differs = values.iter().any(|value| value.to_bits() != values[0].to_bits());
    missing || differs || cells().count() < 2
}

pub(crate) fn labels(names: &[&str]) -> String {
    let labels: Vec<String> = names.iter().map(|name| metrics::meaning(name).label).collect();
    labels.join(", ")
}

pub(crate) const CONSTANT: &str = "Left out, with one value in every cell:";

pub(crate) fn systems(results: &Results) -> Vec<String> {
    let mut systems: Vec<String> = Vec::new();
    for cell in &results.cells {
        if !systems.contains(&cell.system) {
            systems.push(cell.system.clone());
        }
    }
    systems
}

/// Returns the unit that the cells state, or the unit that the metric's name implies.
pub(crate) fn unit(results: &Results, metric: &str) -> String {
    let mut stated = results.cells.iter().filter_map(|cell| cell.metrics.get(metric));
    let stated = stated.find(|metric| !metric.unit.is_empty());
    stated.map_or_else(|| metrics::meaning(metric).unit.to_owned(), |metric| metric.unit.clone())
}

/// Returns the label and the unit of a metric, for the head of a column.
pub(crate) fn head(results: &Results, metric: &str) -> String {
    with_unit(&metrics::meaning(metric).label, &unit(results, metric))
}

pub(crate) fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_owned() } else { format!("{label}, {unit}") }
}

/// Finds the published number that belongs beside `cell`: the row that agrees on most axes.
pub(crate) fn published<'a>(
    results: &'a Results,
    cell: &Cell,
    metric: &str,
) -> Option<(&'a Reference, f64)> {
    let rows = results.reference.iter().filter(|row| row.belongs_to(cell));
    let known = rows.filter_map(|row| Some((row, *row.metrics.get(metric)?)));
    // `max_by_key` returns the last of equal rows, and the file's first row should win.
    known.rev().max_by_key(|(row, _)| row.axes.len())
}

pub(crate) fn row_axis(results: &Results) -> Option<String> {
    let names = axis::names(results);
    let wished = results.view.as_ref().and_then(|view| view.rows.clone());
    if let Some(wished) = wished.filter(|wished| names.contains(wished)) {
        return Some(wished);
    }
    names.into_iter().rev().max_by_key(|name| axis::values(results, name).len())
}

fn row_values(results: &Results, row_axis: Option<&str>) -> Vec<String> {
    match row_axis {
        Some(axis) => axis::values(results, axis),
        None => vec![String::new()],
    }
}

pub(crate) fn fixed_points(results: &Results, row_axis: Option<&str>) -> Vec<Axes> {
    let mut points: Vec<Axes> = Vec::new();
    let mut known = HashSet::new();
    for cell in &results.cells {
        let mut point = cell.axes.clone();
        if let Some(axis) = row_axis {
            point.shift_remove(axis);
        }
        if known.insert(axis::key(&point)) {
            points.push(point);
        }
    }
    let names = axis::names(results);
    let orders: Vec<Vec<String>> = names.iter().map(|name| axis::values(results, name)).collect();
    points.sort_by_key(|point| {
        let place = |(name, order): (&String, &Vec<String>)| {
            point.get(name).and_then(|value| order.iter().position(|other| other == value))
        };
        names.iter().zip(&orders).map(place).collect::<Vec<_>>()
    });
    points
}

fn columns(results: &Results) -> Vec<Column> {
    let mut columns: Vec<Column> = systems(results).into_iter().map(Column::Measured).collect();
    for row in &results.reference {
        let column = Column::Published(row.system.clone());
        let beside_one = results.reference.iter().any(|other| {
            other.system == row.system && results.cells.iter().any(|cell| other.belongs_to(cell))
        });
        if !beside_one && !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

/// Cells by system and point. A simulated sweep has thousands.
struct Cells<'a>(HashMap<(&'a str, String), &'a Cell>);

impl<'a> Cells<'a> {
    fn of(results: &'a Results) -> Self {
        let keyed = results.cells.iter().rev();
        Self(keyed.map(|cell| ((cell.system.as_str(), axis::key(&cell.axes)), cell)).collect())
    }

    fn at(&self, system: &str, key: &str) -> Option<&'a Cell> {
        self.0.get(&(system, key.to_owned())).copied()
    }
}

pub(crate) fn measured<'a>(
    results: &'a Results,
    cell: Option<&'a Cell>,
    metric: &str,
) -> Entry<'a> {
    let Some(cell) = cell else {
        return Entry::default();
    };
    Entry {
        cell: Some(cell),
        metric: cell.metrics.get(metric).filter(|_| cell.is_measured()),
        missing: cell.why_missing(metric),
        published: published(results, cell, metric),
    }
}

fn published_alone<'a>(
    results: &'a Results,
    system: &str,
    point: &Axes,
    metric: &str,
) -> Entry<'a> {
    let agrees = |row: &&Reference| {
        row.system == system && row.axes.iter().all(|(name, value)| point.get(name) == Some(value))
    };
    let mut rows = results.reference.iter().filter(agrees);
    Entry {
        published: rows.find_map(|row| Some((row, *row.metrics.get(metric)?))),
        ..Entry::default()
    }
}
