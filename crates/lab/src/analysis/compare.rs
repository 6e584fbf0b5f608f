//! Compares runs of a lab before and after a change.

mod differences;

use crate::model::LabError;
use differences::differences;
use results::{Axes, Cell, Results, Samples, metrics};
use serde::Serialize;
use stats::{Direction, Verdict};
use std::path::PathBuf;
use units::{Share, foreign};

/// Examples, printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab compare runs/before runs/after
  weir lab compare runs/b1 runs/a1 --before runs/b2 --after runs/a2

Runs differ by more than their repeats do. A run therefore counts as one sample, its median, and a
verdict needs at least two runs of each side; three or four show smaller differences. With one run
of each, the ratios are shown and nothing is decided. Use `weir lab ab` for small differences.";

/// A finished run, read back from disk.
#[derive(Debug)]
pub struct Run {
    pub path: PathBuf,
    pub results: Results,
    /// Every repeat's figures. Empty if only `results.json` was named or kept.
    pub samples: Samples,
    /// The text of the run's lab file. `None` if the run's directory has no lab file.
    pub lab_file: Option<String>,
}

/// The comparison of two groups of runs: every cell that all runs contain, metric by metric.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub lab: String,
    pub before: Vec<String>,
    pub after: Vec<String>,
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
    /// The geometric mean of the medians of the runs before the change.
    pub before: f64,
    pub after: f64,
    /// The ratio `after / before`.
    pub ratio: f64,
    /// The 95 % confidence interval of the ratio. The interval includes the variance between runs,
    /// and the intervals of all rows are simultaneous. `None` if a side has a single run.
    pub ci95: Option<(f64, f64)>,
    pub verdict: Verdict,
}

/// Compares runs from before and from after a change. No values are paired, because the runs were
/// measured at different times.
pub fn runs(
    before: &[Run],
    after: &[Run],
    metrics: &[String],
    threshold: Share,
) -> Result<Compared, LabError> {
    let all: Vec<&Run> = before.iter().chain(after).collect();
    let (Some(first), false) = (before.first(), after.is_empty()) else {
        return Err(LabError::Usage("name a run of each side".to_owned()));
    };
    if let Some(other) = all.iter().find(|run| run.results.lab != first.results.lab) {
        let (a, b) = (&first.results.lab, &other.results.lab);
        let text = format!("these are runs of different labs, {a} and {b}: name runs of one");
        return Err(LabError::Usage(text));
    }
    let metrics = match metrics {
        [] => vec![main_metric(first)],
        named => named.to_vec(),
    };
    let known =
        || all.iter().flat_map(|run| &run.results.cells).flat_map(|cell| cell.metrics.keys());
    if let Some(foreign) = metrics.iter().find(|metric| known().all(|name| name != *metric)) {
        let hint = units::did_you_mean(foreign, known().map(String::as_str));
        return Err(LabError::Usage(format!("--metrics: no run has a metric `{foreign}`{hint}")));
    }
    let mut notes = differences(&all);
    if before.len() < 2 || after.len() < 2 {
        notes.push(
            "a side has a single run: the variance between runs is unknown, so nothing is decided; \
             add runs with --before and --after"
                .to_owned(),
        );
    }
    let mut medians: Vec<Medians<'_>> = Vec::new();
    for old in &first.results.cells {
        let mut comparable = true;
        for run in &all {
            match cell_of(run, old) {
                None => notes.push(format!("{} is not in {}", name(old), run.path.display())),
                Some(Cell { failed: Some(reason), .. }) => {
                    let path = run.path.display();
                    notes.push(format!("{} failed in {path}: {reason}", name(old)));
                }
                Some(Cell { not_run: Some(reason), .. }) => {
                    let path = run.path.display();
                    notes.push(format!("{} was not run in {path}: {reason}", name(old)));
                }
                Some(_) => continue,
            }
            comparable = false;
        }
        for metric in metrics.iter().filter(|_| comparable) {
            match Medians::of(before, after, old, metric) {
                Some(row) => medians.push(row),
                None => notes.push(format!("{}, {metric}: not measured in all runs", name(old))),
            }
        }
    }
    for run in &all {
        let new = run.results.cells.iter().filter(|cell| cell_of(first, cell).is_none());
        notes.extend(new.map(|cell| format!("{} is only in {}", name(cell), run.path.display())));
    }
    let table = medians.len();
    let mut rows = Vec::new();
    for row in medians {
        match row.judged(threshold, table) {
            Ok(row) => rows.push(row),
            Err(reason) => notes.push(format!("{}, {}: {reason}", name(row.cell), row.metric)),
        }
    }
    if rows.is_empty() {
        let text = format!("nothing to compare: {}", notes.join("; "));
        return Err(LabError::Usage(text));
    }
    let paths = |runs: &[Run]| runs.iter().map(|run| run.path.display().to_string()).collect();
    Ok(Compared {
        lab: first.results.lab.clone(),
        before: paths(before),
        after: paths(after),
        threshold,
        notes,
        rows,
    })
}

fn cell_of<'a>(run: &'a Run, like: &Cell) -> Option<&'a Cell> {
    run.results.cells.iter().find(|cell| cell.system == like.system && cell.axes == like.axes)
}

impl Compared {
    /// Renders the comparison as text for the terminal.
    pub fn render(&self) -> String {
        use std::fmt::Write;
        let [after, before] = [&self.after, &self.before].map(|runs| runs.join(", "));
        let [lab, after, before] = [&self.lab, &after, &before].map(foreign);
        let mut text = format!("{}\n{lab}: {after} against {before}\n\n", self.answer());
        let titles = ["cell", "metric", "before", "after", "ratio", "95 % interval", "verdict"];
        let mut lines: Vec<[String; 7]> = vec![titles.map(str::to_owned)];
        for row in &self.rows {
            // With two runs on a side the upper limit may be huge. Print `over` and the largest
            // useful limit instead.
            let high = |high: f64| match high < WIDEST {
                true => format!("{high:.3}"),
                false => format!("over {WIDEST}"),
            };
            let interval =
                row.ci95.map_or_else(String::new, |(low, end)| format!("{low:.3}–{}", high(end)));
            lines.push([
                cell_name(&row.system, &row.axes),
                foreign(&row.metric).to_string(),
                report::number::format(row.before),
                report::number::format(row.after),
                format!("{:.3}", row.ratio),
                interval,
                format!("{} {}", row.verdict.mark(), row.verdict),
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
        let _ = writeln!(text, "the same: the whole interval lies within {}", self.within());
        if self.rows.iter().any(|row| row.ci95.is_some()) {
            text.push_str(
                "a run counts as one sample; intervals count the variance between runs, and hold \
                 for all rows together\n",
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", foreign(note).up_to(LONGEST_NOTE));
        }
        text
    }

    /// Returns a sentence with the number of rows of each verdict.
    fn answer(&self) -> String {
        let all = [
            (Verdict::Better, "better".to_owned()),
            (Verdict::Worse, "worse".to_owned()),
            (Verdict::Same, format!("the same within {}", self.within())),
            (Verdict::Undecided, "undecided".to_owned()),
        ];
        let counts = all.into_iter().filter_map(|(verdict, words)| {
            let count = self.rows.iter().filter(|row| row.verdict == verdict).count();
            (count > 0).then(|| format!("{count} {words}"))
        });
        let rows = self.rows.len();
        let noun = if rows == 1 { "comparison" } else { "comparisons" };
        format!("{rows} {noun}: {}", counts.collect::<Vec<_>>().join(", "))
    }

    fn within(&self) -> String {
        self.threshold.to_string().replace('%', " %")
    }
}

/// The medians of one cell's metric in all runs.
struct Medians<'a> {
    cell: &'a Cell,
    metric: &'a str,
    before: Vec<f64>,
    after: Vec<f64>,
}

impl<'a> Medians<'a> {
    /// Collects the medians of the metric. `None` if a run has not measured the metric.
    fn of(before: &[Run], after: &[Run], cell: &'a Cell, metric: &'a str) -> Option<Self> {
        let medians = |runs: &[Run]| -> Option<Vec<f64>> {
            let median = |run| Some(cell_of(run, cell)?.metrics.get(metric)?.median);
            runs.iter().map(median).collect()
        };
        Some(Self { cell, metric, before: medians(before)?, after: medians(after)? })
    }

    /// Compares the medians before and after the change. `table`: the number of rows of the table.
    fn judged(&self, threshold: Share, table: usize) -> Result<Row, stats::StatsError> {
        let direction = metrics::direction(self.metric).unwrap_or(Direction::HigherIsBetter);
        let judged = stats::compare_runs(&self.after, &self.before, direction, threshold, table)?;
        let mean = |medians: &[f64]| stats::geometric_mean(medians).unwrap_or(f64::NAN);
        Ok(Row {
            system: self.cell.system.clone(),
            axes: self.cell.axes.clone(),
            metric: self.metric.to_owned(),
            before: mean(&self.before),
            after: mean(&self.after),
            ratio: judged.ratio.median,
            ci95: judged.ratio.ci95,
            verdict: judged.verdict,
        })
    }
}

fn main_metric(run: &Run) -> String {
    let view = run.results.view.as_ref().map(|view| view.metric.clone());
    let first = || run.results.cells.iter().find_map(|cell| cell.metrics.keys().next().cloned());
    view.or_else(first).unwrap_or_else(|| "goodput_mbit_s".to_owned())
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

const WIDEST: f64 = 1_000.0;
/// Maximum length of a printed note: a failed cell's reason may contain a program's last output.
pub(crate) const LONGEST_NOTE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Metric, Results, Sample, Samples};
    use std::path::PathBuf;

    fn run(path: &str, lab: &str, values: &[f64]) -> Run {
        let mut results = Results::new(lab, Form::Full);
        let mut cell = Cell::new("tcp-bbr", Axes::from([("loss".to_owned(), "1%".to_owned())]));
        let median = stats::median(values).unwrap();
        let metric = Metric { n: values.len() as u64, ..Metric::single(median, "Mbit/s") };
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
        Run { path: PathBuf::from(path), results, samples, lab_file: None }
    }

    fn one(run: Run) -> [Run; 1] {
        [run]
    }

    fn threshold() -> Share {
        Share::from_percent(3.0).unwrap()
    }

    #[test]
    fn a_large_change_has_the_verdict_worse_and_equal_runs_have_the_verdict_same() {
        let of = |medians: [f64; 3]| medians.map(|median| run("a", "x", &[median; 7]));
        let before = of([100.0, 100.6, 99.5]);
        let compared = runs(&before, &of([80.0, 80.4, 79.7]), &[], threshold()).unwrap();
        assert_eq!(compared.rows[0].verdict, Verdict::Worse);
        assert!(compared.render().starts_with("1 comparison: 1 worse\n"), "{}", compared.render());
        assert!(compared.render().contains("tcp-bbr [loss=1%]"), "{}", compared.render());
        let same = runs(&before, &before, &[], threshold()).unwrap();
        assert_eq!(same.rows[0].verdict, Verdict::Same);
        let answer = "1 comparison: 1 the same within 3 %\n";
        assert!(same.render().starts_with(answer), "{}", same.render());
    }

    #[test]
    fn a_side_with_a_single_run_is_noted_and_several_rows_have_a_mean() {
        let pair = || [run("a", "x", &[100.0; 6]), run("b", "x", &[101.0; 6])];
        let single = || one(run("c", "x", &[50.0; 6]));
        let told = |before: &[Run], after: &[Run]| {
            let compared = runs(before, after, &[], threshold()).unwrap();
            compared.render().contains("a side has a single run")
        };
        assert!(told(&single(), &pair()) && told(&pair(), &single()));
        assert!(!told(&pair(), &pair()));
        let two_cells = |factor: f64| {
            let mut both = run("a", "x", &[100.0 * factor; 6]);
            let mut other = both.results.cells[0].clone();
            other.system = "tcp-cubic".to_owned();
            let mut rows = both.samples.rows.clone();
            rows.iter_mut().for_each(|row| row.system.clone_from(&other.system));
            both.samples.rows.extend(rows);
            both.results.cells.push(other);
            both
        };
        let text =
            |before: &[Run], after: &[Run]| runs(before, after, &[], threshold()).unwrap().render();
        let mean = "geometric mean of the ratios: 0.500";
        assert!(text(&one(two_cells(1.0)), &one(two_cells(0.5))).contains(mean));
        assert!(!text(&single(), &single()).contains("geometric mean"));
    }

    #[test]
    fn an_invalid_run_is_named_and_a_valid_run_is_not() {
        let mut bad = run("bad", "x", &[1.0]);
        bad.results.valid = false;
        let good = one(run("good", "x", &[1.0]));
        let text = runs(&good, &one(bad), &[], threshold()).unwrap().render();
        assert!(text.contains("bad is marked invalid"), "{text}");
        assert!(!text.contains("good is marked invalid"), "{text}");
    }

    /// The repeats within a run differ far less than runs of the same build differ from one
    /// another.
    #[test]
    fn variance_between_runs_widens_the_interval() {
        let before = one(run("a", "x", &[100.0, 100.1, 99.9, 100.0, 100.1, 99.9]));
        let after = one(run("b", "x", &[90.0, 90.1, 89.9, 90.0, 90.1, 89.9]));
        let compared = runs(&before, &after, &[], threshold()).unwrap();
        let row = &compared.rows[0];
        assert_eq!((row.verdict, row.ci95), (Verdict::Undecided, None));
        assert!(compared.render().contains("nothing is decided"), "{}", compared.render());
        let of = |medians: [f64; 2]| medians.map(|median| run("a", "x", &[median; 6]));
        let compared = runs(&of([100.0, 90.0]), &of([90.0, 99.0]), &[], threshold()).unwrap();
        assert_eq!(compared.rows[0].verdict, Verdict::Undecided);
        assert!(compared.rows[0].ci95.unwrap().0 < 0.8);
    }

    #[test]
    fn differing_environments_and_lab_files_are_named() {
        let with = |path: &str, build: &str, kernel: &str, version: &str, file: &str| {
            let mut run = run(path, "x", &[1.0]);
            let facts = [("weir_build", build), ("kernel_release", kernel), ("tree", "clean")];
            for (name, value) in facts {
                run.results.environment.insert(name.to_owned(), value.into());
            }
            let programs = serde_json::json!({
                "hysteria": { "version": version, "sha256": "0123456789abcdef" },
                "nginx": { "sha256": "ff" },
            });
            run.results.environment.insert("programs".to_owned(), programs);
            let settings = serde_json::json!({ "net.ipv4.tcp_rmem": version });
            run.results.environment.insert("host_sysctls".to_owned(), settings);
            run.lab_file = Some(file.to_owned());
            one(run)
        };
        let file = "name = \"x\"\nrepeats = 6\n";
        let before = with("a", "1f", "6.1", "v2.6", file);
        let after = with("b", "2f", "6.12", "v2.7", "name = \"x\"\nrepeats = 9\n");
        let notes = runs(&before, &after, &[], threshold()).unwrap().notes;
        for expected in [
            "the build of weir differs: 1f in a; 2f in b",
            "the kernel differs: 6.1 in a; 6.12 in b",
            "the program hysteria differs: v2.6 sha256 0123456789ab… in a; v2.7 sha256 0123456789ab… in b",
            "the hosts' net.ipv4.tcp_rmem differs: v2.6 in a; v2.7 in b",
            "the lab file differs, first in line 2: `repeats = 6` in a; `repeats = 9` in b",
        ] {
            assert!(notes.iter().any(|note| note == expected), "{expected}: {notes:?}");
        }
        assert!(!notes.iter().any(|note| note.contains("nginx")), "{notes:?}");
        let same = runs(&before, &before, &[], threshold()).unwrap().notes;
        assert!(!same.iter().any(|note| note.contains("differ")), "{same:?}");
        let mut older = with("c", "1f", "6.1", "", file);
        older[0].results.environment.insert("programs".to_owned(), "hysteria 2.6".into());
        older[0].results.environment.insert("tree".to_owned(), "modified".into());
        let notes = runs(&before, &older, &[], threshold()).unwrap().notes;
        assert!(notes.iter().any(|note| note.starts_with("the program differs: {")), "{notes:?}");
        let built = "c ran a build of files that differ from its commit";
        assert!(notes.iter().any(|note| note == built), "{notes:?}");
    }

    #[test]
    fn different_labs_do_not_compare() {
        let (a, b) = (one(run("a", "x", &[1.0])), one(run("b", "y", &[1.0])));
        let error = runs(&a, &b, &[], threshold());
        assert!(error.unwrap_err().to_string().contains("different labs"));
    }

    #[test]
    fn control_characters_in_result_files_are_escaped() {
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
        let read = crate::runs::read(&file).unwrap();
        let bound = crate::analysis::check::Bound::parse("goodput_mbit_s >= 2").unwrap();
        for run in [&before, &read] {
            let run = std::slice::from_ref(run);
            let compared = runs(run, run, &[], threshold()).unwrap();
            let checked =
                crate::analysis::check::check(&run[0].results, std::slice::from_ref(&bound), false)
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
    fn a_failed_cell_is_noted_without_a_ratio() {
        let before = run("a", "x", &[1.0]);
        let mut after = run("b", "x", &[1.0]);
        after.results.cells[0].metrics.clear();
        after.results.cells[0].failed = Some("it broke".to_owned());
        let (before, after) = (one(before), one(after));
        let error = runs(&before, &after, &[], threshold()).unwrap_err().to_string();
        assert!(error.contains("failed in b: it broke"), "{error}");
    }

    #[test]
    fn equal_axes_of_two_systems_give_two_rows() {
        let with = |path: &str, bbr: f64, cubic: f64| {
            let mut run = run(path, "x", &[bbr; 6]);
            let mut other = run.results.cells[0].clone();
            other.system = "tcp-cubic".to_owned();
            other.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(cubic, "Mbit/s"));
            run.results.cells.push(other);
            run
        };
        let before = [with("a", 100.0, 10.0), with("b", 100.0, 10.0)];
        let after = [with("c", 100.0, 20.0), with("d", 100.0, 20.0)];
        let found = runs(&before, &after, &[], threshold()).unwrap();
        let ratios: Vec<(&str, f64)> =
            found.rows.iter().map(|row| (row.system.as_str(), row.ratio)).collect();
        assert_eq!(ratios[0], ("tcp-bbr", 1.0));
        assert!(ratios[1].0 == "tcp-cubic" && (ratios[1].1 - 2.0).abs() < 1e-9, "{ratios:?}");
        assert!(found.render().contains("1.000–1.000"), "{}", found.render());
        let only = one(run("e", "x", &[100.0]));
        let notes = runs(&before, &only, &[], threshold()).unwrap().notes;
        assert!(notes.contains(&"tcp-cubic [loss=1%] is not in e".to_owned()), "{notes:?}");
        let notes = runs(&only, &before, &[], threshold()).unwrap().notes;
        assert!(notes.contains(&"tcp-cubic [loss=1%] is only in a".to_owned()), "{notes:?}");
    }

    /// Two runs on a side that differ by a factor of e say little about the variance between runs:
    /// Student's t for 2 degrees of freedom is 4.3.
    #[test]
    fn an_interval_limit_above_1000_is_not_printed() {
        let of = |medians: [f64; 2]| medians.map(|median| run("a", "x", &[median; 6]));
        let wide = of([1.0, 20.0]);
        let text = runs(&wide, &wide, &[], threshold()).unwrap().render();
        assert!(text.contains("–over 1000  "), "{text}");
        let narrow = of([1.0, std::f64::consts::E]);
        let text = runs(&narrow, &narrow, &[], threshold()).unwrap().render();
        // The upper limit: e^(4.3027 / sqrt(2)) = 20.95.
        assert!(text.contains("–20.95"), "{text}");
    }

    #[test]
    fn comparing_a_full_and_a_quick_run_is_noted() {
        let mut quick = run("b", "x", &[1.0]);
        quick.results.form = Form::Quick;
        let full = || one(run("a", "x", &[1.0]));
        let notes = |after: &[Run]| runs(&full(), after, &[], threshold()).unwrap().notes;
        let told = "one run is of another form: fewer repeats, shorter cells".to_owned();
        assert!(notes(&one(quick)).contains(&told));
        assert!(!notes(&full()).contains(&told));
    }
}
