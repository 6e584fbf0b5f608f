//! Compares two runs of a lab.

use crate::LabError;
use crate::run::runs::Run;
use results::{Axes, Cell, metrics};
use serde::Serialize;
use stats::Direction;
use units::{Share, foreign};

/// Every cell that both runs contain, metric by metric.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub lab: String,
    pub before: String,
    pub after: String,
    pub threshold: Share,
    /// Differences between the runs besides the figures, and cells that could not be compared.
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub system: String,
    pub axes: Axes,
    pub metric: String,
    pub before: f64,
    pub after: f64,
    /// `after / before`.
    pub ratio: f64,
    pub ci95: Option<(f64, f64)>,
    pub verdict: stats::Verdict,
}

/// The runs were measured at different times, so no values are paired. This comparison finds coarse
/// changes; use `weir lab ab` for small ones.
pub fn runs(
    before: &Run,
    after: &Run,
    metrics: &[String],
    threshold: Share,
) -> Result<Compared, LabError> {
    let (a, b) = (&before.results, &after.results);
    if a.lab != b.lab {
        let text = format!("these are runs of different labs: {} and {}", a.lab, b.lab);
        return Err(LabError::Usage(text));
    }
    let metrics = match metrics {
        [] => vec![main_metric(before)],
        named => named.to_vec(),
    };
    let mut notes = differences(before, after);
    let mut rows = Vec::new();
    for old in &a.cells {
        let same = |cell: &&Cell| cell.system == old.system && cell.axes == old.axes;
        let Some(new) = b.cells.iter().find(same) else {
            notes.push(format!("{} is only in {}", name(old), before.path.display()));
            continue;
        };
        for (cell, run) in [(old, before), (new, after)] {
            if let Some(reason) = &cell.failed {
                notes.push(format!("{} failed in {}: {reason}", name(cell), run.path.display()));
            }
        }
        for metric in &metrics {
            match row(before, after, old, new, metric, threshold) {
                Ok(row) => rows.push(row),
                Err(reason) if old.failed.is_none() && new.failed.is_none() => {
                    notes.push(format!("{}, {metric}: {reason}", name(old)));
                }
                Err(_) => {}
            }
        }
    }
    for new in &b.cells {
        if !a.cells.iter().any(|old| old.system == new.system && old.axes == new.axes) {
            notes.push(format!("{} is only in {}", name(new), after.path.display()));
        }
    }
    if rows.is_empty() {
        let text = format!("nothing to compare: {}", notes.join("; "));
        return Err(LabError::Usage(text));
    }
    Ok(Compared {
        lab: a.lab.clone(),
        before: before.path.display().to_string(),
        after: after.path.display().to_string(),
        threshold,
        notes,
        rows,
    })
}

impl Compared {
    /// Text for the terminal.
    pub fn render(&self) -> String {
        use std::fmt::Write;
        let [lab, after, before] = [&self.lab, &self.after, &self.before].map(foreign);
        let mut text = format!("{lab}: {after} against {before}\n\n");
        let titles = ["cell", "metric", "before", "after", "ratio", "95 %", "verdict"];
        let mut lines: Vec<[String; 7]> = vec![titles.map(str::to_owned)];
        for row in &self.rows {
            let interval =
                row.ci95.map_or_else(String::new, |(low, high)| format!("{low:.3}–{high:.3}"));
            lines.push([
                cell_name(&row.system, &row.axes),
                foreign(&row.metric).to_string(),
                report::number::format(row.before),
                report::number::format(row.after),
                format!("{:.3}", row.ratio),
                interval,
                row.verdict.to_string(),
            ]);
        }
        let widths: Vec<usize> = (0..7)
            .map(|column| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0))
            .collect();
        for line in &lines {
            for (column, word) in line.iter().enumerate() {
                let _ = write!(text, "{word:<width$}  ", width = widths[column]);
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        let ratios: Vec<f64> = self.rows.iter().map(|row| row.ratio).collect();
        if let Ok(mean) = stats::geometric_mean(&ratios)
            && ratios.len() > 1
        {
            let _ = writeln!(text, "\ngeometric mean of the ratios: {mean:.3}");
        }
        let _ = writeln!(text, "differences below {} count as none", self.threshold);
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", foreign(note).up_to(LONGEST_NOTE));
        }
        text
    }
}

fn row(
    before: &Run,
    after: &Run,
    old: &Cell,
    new: &Cell,
    metric: &str,
    threshold: Share,
) -> Result<Row, String> {
    let median = |cell: &Cell| cell.metrics.get(metric).map(|metric| metric.median);
    let (was, is) = median(old).zip(median(new)).ok_or("not measured in both")?;
    let samples = |run: &Run, cell: &Cell| -> Vec<f64> {
        let rows = run.samples.rows.iter().filter(|row| {
            row.valid && row.metric == metric && row.system == cell.system && row.axes == cell.axes
        });
        rows.filter(|row| row.time_s.is_none()).map(|row| row.value).collect()
    };
    let (mut a, mut b) = (samples(after, new), samples(before, old));
    // Where only results.json was kept, only the medians are available.
    if a.is_empty() || b.is_empty() {
        (a, b) = (vec![is], vec![was]);
    }
    let direction = metrics::direction(metric).unwrap_or(Direction::HigherIsBetter);
    let judged = stats::compare_unpaired(&a, &b, direction, threshold, SEED)
        .map_err(|error| error.to_string())?;
    Ok(Row {
        system: old.system.clone(),
        axes: old.axes.clone(),
        metric: metric.to_owned(),
        before: was,
        after: is,
        ratio: judged.ratio.median,
        ci95: judged.ratio.ci95,
        verdict: judged.verdict,
    })
}

fn main_metric(run: &Run) -> String {
    let view = run.results.view.as_ref().map(|view| view.metric.clone());
    let first = || run.results.cells.iter().find_map(|cell| cell.metrics.keys().next().cloned());
    view.or_else(first).unwrap_or_else(|| "goodput_mbit_s".to_owned())
}

/// Facts that may explain a difference better than the intended change.
fn differences(before: &Run, after: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    for fact in ["weir", "kernel_release", "cpu_model", "cores_online", "iperf3", "privilege"] {
        let of = |run: &Run| run.results.environment.get(fact).map(ToString::to_string);
        let (old, new) = (of(before), of(after));
        if old != new {
            let shown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
            notes.push(format!("{fact} differs: {} and {}", shown(old), shown(new)));
        }
    }
    for run in [before, after] {
        if !run.results.valid {
            notes.push(format!("{} is marked invalid", run.path.display()));
        }
    }
    if before.results.form != after.results.form {
        notes.push("one run is of another form: fewer repeats, shorter cells".to_owned());
    }
    notes
}

fn name(cell: &Cell) -> String {
    cell_name(&cell.system, &cell.axes)
}

pub(crate) fn cell_name(system: &str, axes: &Axes) -> String {
    let at: Vec<String> = axes.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    let name =
        if at.is_empty() { system.to_owned() } else { format!("{system} [{}]", at.join(", ")) };
    foreign(name).to_string()
}

/// A failed cell's reason may contain a program's last output.
pub(crate) const LONGEST_NOTE: usize = 1024;

/// A fixed seed: comparing the same two runs always gives the same result.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Metric, Results, Sample, Samples};
    use std::path::PathBuf;

    fn run(path: &str, lab: &str, values: &[f64]) -> Run {
        let mut results = Results::new(lab, Form::Full);
        let mut cell = Cell::new("tcp-bbr", Axes::from([("loss".to_owned(), "1%".to_owned())]));
        let median = stats::median(values).unwrap();
        let metric =
            Metric { median, ci95: None, n: values.len() as u64, unit: "Mbit/s".to_owned() };
        cell.metrics.insert("goodput_mbit_s".to_owned(), metric);
        let mut samples = Samples::new(lab);
        for (repeat, value) in values.iter().enumerate() {
            samples.rows.push(Sample {
                system: cell.system.clone(),
                axes: cell.axes.clone(),
                repeat: repeat as u32,
                block: repeat as u32,
                time_s: None,
                metric: "goodput_mbit_s".to_owned(),
                value: *value,
                unit: "Mbit/s".to_owned(),
                valid: true,
            });
        }
        results.cells.push(cell);
        Run { path: PathBuf::from(path), results, samples }
    }

    fn threshold() -> Share {
        Share::from_percent(3.0).unwrap()
    }

    #[test]
    fn a_clear_change_is_distinguished_from_none() {
        let before = run("a", "x", &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]);
        let slower = run("b", "x", &[80.0, 81.0, 79.0, 80.5, 79.5, 80.2, 79.8]);
        let compared = runs(&before, &slower, &[], threshold()).unwrap();
        assert_eq!(compared.rows[0].verdict, stats::Verdict::Worse);
        assert!(compared.render().contains("tcp-bbr [loss=1%]"), "{}", compared.render());
        let same = runs(&before, &before, &[], threshold()).unwrap();
        assert_eq!(same.rows[0].verdict, stats::Verdict::NoDifference);
    }

    #[test]
    fn different_labs_do_not_compare() {
        let error = runs(&run("a", "x", &[1.0]), &run("b", "y", &[1.0]), &[], threshold());
        assert!(error.unwrap_err().to_string().contains("different labs"));
    }

    #[test]
    fn texts_of_a_file_are_escaped_for_the_terminal() {
        let hostile = "a\n\x1b]0;owned\x07\u{202e}";
        let obeyed = ['\x1b', '\x07', '\u{202e}'];
        let mut before = run("a", hostile, &[1.0]);
        before.results.cells[0].system = hostile.to_owned();
        before.results.environment.insert("weir".to_owned(), hostile.into());
        before.results.invalid_reasons = vec![hostile.to_owned()];
        before.results.valid = false;
        let mut failed = before.results.cells[0].clone();
        failed.axes.insert(hostile.to_owned(), hostile.to_owned());
        failed.failed = Some(hostile.to_owned());
        before.results.cells.push(failed);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        std::fs::write(&file, before.results.to_json().unwrap()).unwrap();
        let read = crate::run::runs::read(&file).unwrap();
        let bound = crate::analysis::check::Bound::parse("goodput_mbit_s >= 2").unwrap();
        for run in [&before, &read] {
            let compared = runs(run, run, &[], threshold()).unwrap();
            let checked =
                crate::analysis::check::check(&run.results, std::slice::from_ref(&bound), false)
                    .unwrap();
            for text in [compared.render(), checked.render()] {
                assert!(text.contains(r"\x1b]0;owned\x07\u{202e}"), "{text:?}");
                assert!(!text.contains(obeyed), "{text:?}");
                assert!(!text.contains("\n\x1b") && !text.contains("a\n\\x1b"), "{text:?}");
            }
        }
        assert!(!serde_json::to_string(&read.results).unwrap().contains("\\u001b"));
    }

    #[test]
    fn a_failed_cell_is_a_note_and_not_a_number() {
        let before = run("a", "x", &[1.0]);
        let mut after = run("b", "x", &[1.0]);
        after.results.cells[0].metrics.clear();
        after.results.cells[0].failed = Some("it broke".to_owned());
        let error = runs(&before, &after, &[], threshold()).unwrap_err().to_string();
        assert!(error.contains("failed in b: it broke"), "{error}");
    }
}
