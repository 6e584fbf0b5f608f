//! The table of a report's first screen: the fields, the reference's fields in the same row,
//! and the verdicts.

use crate::{Column, Entry, Pivot, axis, columns, interval, method, pivot};
use results::{Axes, Comparison, Results, metrics};

#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) title: String,
    /// Heads of the leading columns, which name the row; `heads`: the heads of the value columns.
    pub(crate) names: Vec<String>,
    pub(crate) heads: Vec<Head>,
    pub(crate) rows: Vec<SummaryRow<'a>>,
    pub(crate) note: String,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) text: String,
    pub(crate) unit: String,
    pub(crate) published: bool,
    /// The column has comparisons with the system that its text names.
    pub(crate) verdicts: bool,
}

#[derive(Debug)]
pub(crate) struct SummaryRow<'a> {
    pub(crate) names: Vec<String>,
    pub(crate) fields: Vec<Field<'a>>,
    /// The row belongs to another point of the axes than the row above it.
    pub(crate) begins: bool,
}

#[derive(Debug)]
pub(crate) enum Field<'a> {
    /// A value, and the comparisons of its system with other systems.
    Value {
        entry: Entry<'a>,
        /// The metric is the lab's main metric.
        main: bool,
        verdicts: Vec<&'a Comparison>,
    },
    /// The comparison of the row's system with the column's system.
    Verdict(Option<&'a Comparison>),
}

impl<'a> Summary<'a> {
    /// Builds the table; `None` if the main metric is neither measured nor published.
    pub(crate) fn of(results: &'a Results) -> Option<Self> {
        let pivot = Pivot::headline(results)?;
        let columns = columns::measured(results);
        let mut summary = match columns.is_empty() {
            true => by_point(results, pivot),
            false => by_cell(results, &pivot, &columns),
        };
        summary.note = note(results, &summary);
        (!summary.rows.is_empty()).then_some(summary)
    }

    /// Whether the table has the columns of the report that the lab repeats.
    pub(crate) fn is_of_reference(results: &Results) -> bool {
        !columns::measured(results).is_empty()
    }

    fn values(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.rows.iter().flat_map(|row| &row.fields).filter_map(|figure| match figure {
            Field::Value { entry, .. } => Some(entry),
            Field::Verdict(_) => None,
        })
    }

    fn has_verdicts(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.fields).any(|figure| match figure {
            Field::Value { verdicts, .. } => !verdicts.is_empty(),
            Field::Verdict(one) => one.is_some(),
        })
    }
}

impl<'a> Field<'a> {
    pub(crate) fn verdict(&self) -> Option<&'a Comparison> {
        match self {
            Self::Verdict(one) => *one,
            Self::Value { .. } => None,
        }
    }
}

/// Returns the baselines of comparisons by the main metric, the baselines of primary comparisons
/// first.
pub(crate) fn baselines<'a>(results: &'a Results, metric: &str) -> Vec<&'a str> {
    let of = || results.comparisons.iter().filter(|one| one.metric == metric);
    let mut names: Vec<&str> = Vec::new();
    for one in of().filter(|one| one.primary).chain(of()) {
        if !names.contains(&one.b.as_str()) {
            names.push(&one.b);
        }
    }
    names
}

/// Finds the comparison of one system with another at a point.
pub(crate) fn comparison<'a>(
    results: &'a Results,
    metric: &str,
    (a, b): (&str, &str),
    axes: &Axes,
) -> Option<&'a Comparison> {
    let is_it =
        |one: &&Comparison| one.metric == metric && one.a == a && one.b == b && one.axes == *axes;
    results.comparisons.iter().find(is_it)
}

/// Builds a row for each cell, with the columns that the lab names: those of the report that the
/// lab repeats, or the metrics of its answer.
fn by_cell<'a>(results: &'a Results, pivot: &Pivot<'a>, columns: &[&'a str]) -> Summary<'a> {
    let places = Places::of(results);
    let main = pivot.metric;
    let mut shown: Vec<&str> = Vec::new();
    let is_measured = results.cells.iter().any(|cell| cell.metrics.contains_key(main));
    if !columns.contains(&main) && is_measured {
        shown.push(main);
    }
    shown.extend(columns);
    // A lab may compare another metric than its main metric.
    let against: Vec<Vec<&str>> = shown.iter().map(|name| baselines(results, name)).collect();
    let mut heads = Vec::new();
    for (name, against) in shown.iter().zip(&against) {
        let unit = pivot::unit(results, name);
        let text = metrics::meaning(name).label;
        heads.push(Head { text, unit, published: false, verdicts: false });
        heads.extend(against.iter().map(|b| Head {
            text: format!("against {b}"),
            unit: String::new(),
            published: false,
            verdicts: true,
        }));
    }
    let mut rows = Vec::new();
    for row in pivot.panels.iter().flat_map(|panel| &panel.rows) {
        let mut begins = true;
        for cell in row.entries.iter().filter_map(|entry| entry.cell) {
            let mut fields = Vec::new();
            for (name, against) in shown.iter().zip(&against) {
                let entry = pivot::measured(results, Some(cell), name);
                fields.push(Field::Value { entry, main: *name == main, verdicts: Vec::new() });
                fields.extend(against.iter().map(|b| {
                    let pair = (cell.system.as_str(), *b);
                    Field::Verdict(comparison(results, name, pair, &cell.axes))
                }));
            }
            let names = [cell.system.clone()].into_iter().chain(places.texts(&cell.axes)).collect();
            rows.push(SummaryRow { names, fields, begins });
            begins = false;
        }
    }
    let title = match results.reference.is_empty() {
        true => "By system",
        false => "In the columns of the reference report",
    };
    Summary {
        title: title.to_owned() + &places.fixed(),
        names: [SYSTEM.to_owned()].into_iter().chain(places.heads()).collect(),
        heads,
        rows,
        note: String::new(),
    }
}

/// Builds a row for each point of the axes, and a column for each system.
fn by_point<'a>(results: &'a Results, pivot: Pivot<'a>) -> Summary<'a> {
    let places = Places::of(results);
    let main = pivot.metric;
    let against = baselines(results, main);
    let heads = pivot.columns.iter().map(|column| Head {
        text: column.system().to_owned(),
        unit: String::new(),
        published: matches!(column, Column::Published(_)),
        verdicts: false,
    });
    let heads = heads.collect();
    let row_axis = pivot.row_axis.clone();
    let mut rows = Vec::new();
    for panel in pivot.panels {
        let mut begins = true;
        for row in panel.rows {
            // Some cells of a lab measure other metrics.
            if row.entries.iter().all(is_empty) {
                continue;
            }
            let mut point = panel.fixed.clone();
            if let Some(axis) = &row_axis {
                point.insert(axis.clone(), row.value);
            }
            let fields = row.entries.into_iter().map(|entry| {
                let verdicts = entry.cell.map(|cell| {
                    let of = |b| comparison(results, main, (&cell.system, b), &cell.axes);
                    against.iter().filter_map(|b| of(b)).collect()
                });
                Field::Value { entry, main: true, verdicts: verdicts.unwrap_or_default() }
            });
            rows.push(SummaryRow { names: places.texts(&point), fields: fields.collect(), begins });
            begins = false;
        }
    }
    let title = pivot::with_unit(&pivot.label, &pivot.unit) + &places.fixed();
    Summary { title, names: places.heads(), heads, rows, note: String::new() }
}

fn is_empty(entry: &Entry<'_>) -> bool {
    let is_measured = entry.cell.is_none_or(|cell| cell.is_measured());
    is_measured && entry.metric.is_none() && entry.missing.is_none() && entry.published.is_none()
}

fn note(results: &Results, summary: &Summary<'_>) -> String {
    let main = summary.rows.iter().flat_map(|row| &row.fields).filter_map(|figure| match figure {
        Field::Value { entry, main: true, .. } => interval::Around::metric(entry.metric?),
        _ => None,
    });
    let mut notes = vec![interval::note(main, "in brackets")];
    if summary.values().any(|entry| entry.published.is_some()) {
        let sources = method::sources(results);
        notes.push(format!(
            "“ref” is the reference's figure ({sources}), the factor measured over reference."
        ));
    }
    if summary.has_verdicts() {
        notes.push(VERDICTS.to_owned());
    }
    notes.extend(method::marks(results));
    notes.join(" ")
}

/// The axes that name a row. If many axes vary, a row names only its unusual values.
#[derive(Debug)]
pub(crate) struct Places {
    shown: Vec<String>,
    /// The usual value of each axis that varies, if the axes share a column.
    usual: Option<Axes>,
    /// The axes that have a single value.
    fixed: Axes,
}

impl Places {
    pub(crate) fn of(results: &Results) -> Self {
        let usual = axis::usual(results);
        let varies = |name: &String| axis::values(results, name).len() > 1;
        let (mut shown, fixed): (Vec<String>, Vec<String>) =
            axis::names(results).into_iter().partition(varies);
        if let Some(place) = pivot::row_axis(results)
            .and_then(|row_axis| shown.iter().position(|name| *name == row_axis))
        {
            shown[..=place].rotate_right(1);
        }
        let value = |name: String| Some((name.clone(), usual.get(&name)?.clone()));
        let fixed = fixed.into_iter().filter_map(value).collect();
        let usual = (shown.len() > MOST_AXES).then_some(usual);
        Self { shown, usual, fixed }
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        match self.usual {
            Some(_) => vec!["at".to_owned()],
            None => self.shown.clone(),
        }
    }

    pub(crate) fn texts(&self, axes: &Axes) -> Vec<String> {
        let Some(usual) = &self.usual else {
            let value = |name| axes.get(name).cloned().unwrap_or_else(|| "–".to_owned());
            return self.shown.iter().map(value).collect();
        };
        let differs = |name: &&String| axes.get(*name) != usual.get(*name);
        let value = |name: &String| Some((name.clone(), axes.get(name)?.clone()));
        let unusual: Axes = self.shown.iter().filter(differs).filter_map(value).collect();
        vec![if unusual.is_empty() { "usual".to_owned() } else { axis::describe(&unusual) }]
    }

    /// Names the first axes that have a single value in all rows: ` at rate 600mbit`.
    fn fixed(&self) -> String {
        let few = (1..=MOST_AXES).contains(&self.fixed.len());
        if few { format!(" at {}", axis::describe(&self.fixed)) } else { String::new() }
    }
}

pub(crate) const VERDICTS: &str =
    "▲ better, ▼ worse, = the same, ? undecided: the ratio to the system named there.";
const SYSTEM: &str = "system";
const MOST_AXES: usize = 3;
