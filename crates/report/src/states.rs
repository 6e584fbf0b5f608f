//! The table of a lab with two states. Each end that had the change has three columns, as in the
//! report that the lab repeats: the values after and before, and the difference. On a terminal too
//! narrow for all ends in one row, each end has a table.

use crate::{missing, number, pivot};
use results::{Axes, Cell, Comparison, Metric, Results, States, metrics};
use stats::{Direction, Verdict};

pub(crate) const TITLE: &str = "Before and after";
/// A row with all ends has at least the columns up to this number of [`Head::drop`].
pub(crate) const NEEDED: u8 = 3;

/// A table: the heads, the number of leading columns with text, and the rows.
#[derive(Debug)]
pub(crate) struct StatesTable {
    pub(crate) names: usize,
    pub(crate) heads: Vec<Head>,
    pub(crate) rows: Vec<Vec<Entry>>,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) text: String,
    /// A narrow terminal leaves out columns with a larger number first, and never columns with 0.
    pub(crate) drop: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) verdict: Option<Verdict>,
}

impl Entry {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), verdict: None }
    }
}

/// Builds the table with all ends in one row; `None` if the lab has no states.
pub(crate) fn table(results: &Results) -> Option<StatesTable> {
    let states = results.states.as_ref()?;
    let ends = ends(results, states);
    Some(table_of(results, states.end.as_deref(), &ends, true))
}

/// Builds a table for each end that had the change, with its title.
pub(crate) fn tables_by_end(results: &Results) -> Vec<(String, StatesTable)> {
    let Some(states) = &results.states else { return Vec::new() };
    let end = states.end.as_deref();
    let of_end = |value: String| {
        let title = end.map_or_else(|| TITLE.to_owned(), |end| format!("{TITLE}, {end} {value}"));
        (title, table_of(results, end, &[value], false))
    };
    ends(results, states).into_iter().map(of_end).collect()
}

fn ends(results: &Results, states: &States) -> Vec<String> {
    match &states.end {
        Some(end) => crate::axis::values(results, end),
        None => vec![String::new()],
    }
}

/// Builds the table of `ends`. `named`: the heads name the end.
fn table_of(results: &Results, end: Option<&str>, ends: &[String], named: bool) -> StatesTable {
    let axes: Vec<String> =
        crate::axis::names(results).into_iter().filter(|name| Some(name.as_str()) != end).collect();
    let mut heads: Vec<Head> =
        axes.iter().map(|text| Head { text: text.clone(), drop: 0 }).collect();
    heads.push(Head { text: "unit".to_owned(), drop: 3 });
    let names = heads.len();
    let has_reference = !results.reference.is_empty();
    for value in ends {
        let value = if named { value } else { "" };
        let of =
            |text: &str, drop| Head { text: format!("{text} {value}").trim_end().to_owned(), drop };
        heads.extend([of("after", 1), of("before", 1), of("diff. %", 0)]);
        heads.extend([of("interval", 2), of("verdict", 5)]);
        if has_reference {
            heads.extend([of("ref. after", 6), of("ref. before", 6), of("ref. %", 4)]);
        }
    }
    let is_of_end = |cell: &&Cell| {
        end.and_then(|end| cell.axes.get(end)).is_none_or(|value| ends.contains(value))
    };
    let mut places: Vec<Axes> = Vec::new();
    for cell in results.cells.iter().filter(is_of_end) {
        let place = without(&cell.axes, end);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let rows = places.iter().map(|place| {
        let values = axes.iter().map(|axis| place.get(axis).cloned().unwrap_or_default());
        let mut row: Vec<Entry> = values.map(Entry::new).collect();
        let metric = metric_of(results, place, end);
        let unit = metric.map(|name| metrics::meaning(name).unit).unwrap_or_default();
        // The table of one end is for narrow terminals.
        let unit = if !named && unit == "requests/s" { "req/s" } else { unit };
        row.push(Entry::new(unit));
        for value in ends {
            let mut axes = place.clone();
            if let Some(end) = end {
                axes.insert(end.to_owned(), value.clone());
            }
            row.extend(of_end(results, &axes, metric, has_reference));
        }
        row
    });
    StatesTable { names, rows: rows.collect(), heads }
}

pub(crate) fn note(results: &Results) -> String {
    let Some(states) = &results.states else { return String::new() };
    let mut text = format!("Before: {}. After: {}. ", states.before, states.after);
    text += "A positive difference is better: more of a rate, less of a latency. ";
    text += &mean(states);
    text += "Figures are medians of the repeats, differences medians over the blocks. ▲ better, ▼ worse, = the same, ? undecided.";
    let sources = crate::method::sources(results);
    if !results.reference.is_empty() {
        text += &format!(" “ref.” is {sources}.");
    }
    text
}

fn mean(states: &States) -> String {
    let Some(mean) = &states.mean else { return String::new() };
    let interval =
        mean.ci95.map(|[low, high]| format!(" [{}, {}]", signed(low - 1.0), signed(high - 1.0)));
    format!(
        "The geometric mean of {} differences is {} %{}. ",
        states.rows,
        signed(mean.median - 1.0),
        interval.unwrap_or_default()
    )
}

fn of_end(results: &Results, axes: &Axes, metric: Option<&str>, references: bool) -> Vec<Entry> {
    let cell = |system: &str| {
        results.cells.iter().find(|cell| cell.system == system && cell.axes == *axes)
    };
    let cells = [cell("after"), cell("before")];
    let value = |cell: &Option<&Cell>| match cell {
        None => String::new(),
        Some(cell) => {
            match (missing::in_a_word(cell), metric.and_then(|name| cell.metrics.get(name))) {
                (Some(word), _) => word.to_owned(),
                (None, Some(found)) => number::format(Metric::value(found)),
                (None, None) => "–".to_owned(),
            }
        }
    };
    let mut row: Vec<Entry> = cells.iter().map(|cell| Entry::new(value(cell))).collect();
    let compared = results.comparisons.iter().find(|one| {
        one.axes == *axes
            && one.a == "after"
            && one.b == "before"
            && Some(one.metric.as_str()) == metric
    });
    row.extend(difference(compared));
    if references {
        let published = |cell: &Option<&Cell>| {
            let found =
                cell.zip(metric).and_then(|(cell, name)| pivot::published(results, cell, name));
            found.map(|(_, value)| value)
        };
        let [after, before] = cells.each_ref().map(published);
        let text = |value: Option<f64>| Entry::new(value.map(number::format).unwrap_or_default());
        row.extend([text(after), text(before)]);
        let ratio = after.zip(before).map(|(after, before)| after / before);
        row.push(Entry::new(ratio.map(|ratio| signed(turned(ratio, metric))).unwrap_or_default()));
    }
    row
}

/// Returns the entries of a comparison: difference, interval and verdict.
fn difference(compared: Option<&Comparison>) -> [Entry; 3] {
    let Some(one) = compared else { return [Entry::default(), Entry::default(), Entry::default()] };
    let verdict = Some(one.verdict);
    let of = |ratio: f64| turned(ratio, Some(&one.metric));
    let interval = one.ratio.ci95.map(|[low, high]| {
        let (low, high) = (of(low), of(high));
        format!("[{}, {}]", roughly(low.min(high)), roughly(low.max(high)))
    });
    let words = match one.verdict {
        Verdict::Same => "the same".to_owned(),
        other => other.word().to_owned(),
    };
    [
        Entry { text: format!("{} {}", one.verdict.mark(), signed(of(one.ratio.median))), verdict },
        Entry::new(interval.unwrap_or_default()),
        Entry { text: words, verdict },
    ]
}

/// Returns the difference as a share, with the reference report's sign: positive is better.
fn turned(ratio: f64, metric: Option<&str>) -> f64 {
    match metric.and_then(metrics::direction) {
        Some(Direction::LowerIsBetter) => 1.0 - ratio,
        _ => ratio - 1.0,
    }
}

/// Formats a share in percent, with its sign: `+1.25`.
fn signed(share: f64) -> String {
    format!("{:+.2}", share * 100.0)
}

/// Formats the end of an interval: `+1.3`.
fn roughly(share: f64) -> String {
    format!("{:+.1}", share * 100.0)
}

fn metric_of<'a>(results: &'a Results, place: &Axes, end: Option<&str>) -> Option<&'a str> {
    let mut here = results.comparisons.iter().filter(|one| without(&one.axes, end) == *place);
    here.next().map(|one| one.metric.as_str())
}

fn without(axes: &Axes, end: Option<&str>) -> Axes {
    let kept = axes.iter().filter(|(name, _)| Some(name.as_str()) != end);
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Ratio, Reference};

    fn results() -> Results {
        let mut results = Results::new("x", Form::Quick);
        let states = States {
            before: "as it is".to_owned(),
            after: "changed".to_owned(),
            ..States::default()
        };
        results.states = Some(States { end: Some("role".to_owned()), ..states });
        for (test, metric, role, before, after, verdict) in [
            ("rr", "requests_s", "client", 100.0, 90.0, Verdict::Worse),
            ("rr", "requests_s", "server", 100.0, 101.0, Verdict::Same),
            ("lat", "latency_us.mean", "client", 10.0, 9.0, Verdict::Better),
        ] {
            let axes = Axes::from(
                [("role", role), ("test", test)].map(|(a, b)| (a.to_owned(), b.to_owned())),
            );
            for (system, value) in [("before", before), ("after", after)] {
                let mut cell = Cell::new(system, axes.clone());
                cell.metrics.insert(metric.to_owned(), Metric::single(value, ""));
                results.cells.push(cell);
                let metrics = [(metric.to_owned(), value * 2.0)].into_iter().collect();
                let reference = Reference {
                    system: system.to_owned(),
                    axes: axes.clone(),
                    metrics,
                    ..Reference::default()
                };
                results.reference.push(reference);
            }
            let ratio = Ratio { ci95: Some([0.8, 1.1]), ..Ratio::single(after / before) };
            results.comparisons.push(Comparison {
                metric: metric.to_owned(),
                axes,
                a: "after".to_owned(),
                b: "before".to_owned(),
                ratio,
                verdict,
                threshold: Some(0.03),
                primary: false,
                more_blocks: None,
                goal: None,
            });
        }
        results
    }

    #[test]
    fn both_ends_are_in_one_row_with_the_signs_of_the_reference() {
        let table = table(&results()).unwrap();
        let texts = |row: &[Entry]| row.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>();
        assert_eq!(table.heads[2].text, "after client");
        assert_eq!(
            texts(&table.rows[0]),
            [
                "rr",
                "requests/s",
                "90.0",
                "100",
                "▼ -10.00",
                "[-20.0, +10.0]",
                "worse",
                "180",
                "200",
                "-10.00",
                "101",
                "100",
                "= +1.00",
                "[-20.0, +10.0]",
                "the same",
                "202",
                "200",
                "+1.00"
            ]
        );
        let latency = texts(&table.rows[1]);
        assert_eq!(
            &latency[..7],
            ["lat", "µs", "9.00", "10.0", "▲ +10.00", "[-10.0, +20.0]", "better"]
        );
        assert!(latency[10..].iter().all(String::is_empty), "{latency:?}");
    }

    #[test]
    fn a_narrow_terminal_has_a_table_for_each_end_with_values_and_intervals() {
        let results = results();
        let wide = crate::terminal::render(&results, 200, false);
        assert!(wide.contains("after client"), "{wide}");
        let narrow = crate::terminal::render(&results, 80, false);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let (client, server) = narrow.split_once("Before and after, role server\n").unwrap();
        assert!(client.contains("Before and after, role client\n"), "{narrow}");
        let client: Vec<Vec<&str>> =
            client.lines().map(|line| line.split_whitespace().collect()).collect();
        let row = ["rr", "req/s", "90.0", "100", "▼", "-10.00", "[-20.0,", "+10.0]", "worse"];
        assert!(client.iter().any(|line| line.starts_with(&row)), "{narrow}");
        let latency = ["lat", "µs", "9.00", "10.0", "▲", "+10.00", "[-10.0,", "+20.0]", "better"];
        assert!(client.iter().any(|line| line.starts_with(&latency)), "{narrow}");
        // Latency has no figures of a changed server.
        assert!(!server.contains("\nlat "), "{narrow}");
    }

    #[test]
    fn a_terminal_of_80_columns_has_the_columns_of_a_real_lab() {
        let mut results = results();
        let texts = [("size", "65536"), ("pinned", "yes")];
        let texts = texts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let longer = |axes: &mut Axes| {
            axes.insert("test".to_owned(), "https_short".to_owned());
            axes.extend(texts.clone());
        };
        results.cells.truncate(2);
        results.comparisons.truncate(1);
        results.cells.iter_mut().for_each(|cell| {
            cell.metrics.insert("requests_s".to_owned(), Metric::single(106_872.0, ""));
            longer(&mut cell.axes);
        });
        results.comparisons.iter_mut().for_each(|one| longer(&mut one.axes));
        let shown = crate::terminal::render(&results, 80, false);
        let row = "https_short  65536  yes     req/s  106,872  106,872  ▼ -10.00  [-20.0, +10.0]\n";
        assert!(shown.contains(row), "{shown}");
    }
}
