//! `weir lab validate`: the mistakes of a lab file, or the flaws of a run.

use crate::exit::Ending;
use crate::output;
use lab::{FileError, LabError, builtin, runs};
use results::{Cell, Results};
use serde_json::json;
use std::path::Path;
use units::visible;

pub(super) fn run(labs: &[String], json: bool) -> anyhow::Result<Ending> {
    let (mut found, mut outcome) = (Found::default(), Ok(()));
    for lab in labs {
        outcome = match run_at(lab) {
            Some(run) => run.and_then(|run| found.add_run(lab, &run, json)),
            None => found.add_file(lab, json),
        };
        if outcome.is_err() {
            break;
        }
    }
    let Found { mistakes, lacking, warnings, again } = found;
    if json {
        outcome?;
        let each = |key: &str, all: &[(String, String)]| -> Vec<_> {
            all.iter().map(|(file, text)| json!({ "file": file, key: text })).collect()
        };
        let document = json!({
            "valid": mistakes.is_empty(),
            "mistakes": each("mistake", &mistakes),
            "lacking": each("lacks", &lacking),
            "warnings": each("warning", &warnings),
        });
        output::print(format_args!("{document:#}\n"))?;
    } else {
        let all = mistakes.iter().chain(&warnings).chain(&lacking);
        all.for_each(|(_, text)| output::note(visible(text)));
        for directory in again {
            let directory = super::quoted(&directory);
            output::note(format_args!(
                "to measure these turns again once the cause is mended: {} --resume {directory} --again",
                super::MEASURES
            ));
        }
        outcome?;
    }
    Ok(if mistakes.is_empty() { Ending::Fine } else { Ending::Failed })
}

/// The findings, each with the name of its file.
#[derive(Debug, Default)]
struct Found {
    mistakes: Vec<(String, String)>,
    /// Programs and settings that this machine lacks to run a lab. The lab file is still valid.
    lacking: Vec<(String, String)>,
    /// Reasons why a valid file may give no answer, and marks and warnings of a run's cells.
    warnings: Vec<(String, String)>,
    /// Directories of runs with mistakes that this machine can measure again.
    again: Vec<String>,
}

impl Found {
    fn add_run(&mut self, path: &str, results: &Results, json: bool) -> anyhow::Result<()> {
        let flaws = flaws_of(results);
        let shortfalls = lab::shortfalls::of_valid_cells(results);
        if flaws.is_empty() && !json {
            let ending = match shortfalls.is_empty() {
                true => "",
                false => "; its command ended with status 1 nevertheless",
            };
            output::print(format_args!("{path}: a valid run of `{}`{ending}\n", results.lab))?;
        }
        if !flaws.is_empty() && results.command.starts_with(super::MEASURES) {
            self.again.push(directory_of(path));
        }
        let named = |text: String| (path.to_owned(), format!("{path}: {text}"));
        self.mistakes.extend(flaws.into_iter().map(named));
        let shortfalls =
            shortfalls.into_iter().map(|reason| format!("status 1 of the run: {reason}"));
        self.warnings.extend(shortfalls.chain(remarks_on(results)).map(named));
        Ok(())
    }

    fn add_file(&mut self, lab: &str, json: bool) -> anyhow::Result<()> {
        let texts = |errors: &[FileError]| -> Vec<_> {
            errors.iter().map(|error| (lab.to_owned(), error.to_string())).collect()
        };
        match builtin::open(lab) {
            Ok(opened) => {
                if !json {
                    let name = opened.name();
                    output::print(format_args!("{lab}: no mistakes found in `{name}`\n"))?;
                }
                self.lacking.extend(texts(&opened.lacking()));
                self.warnings.extend(texts(opened.too_few_repeats(None).as_slice()));
                self.warnings.extend(texts(&opened.unsuited_queues()));
                self.warnings.extend(texts(opened.refused_between_machines().as_slice()));
            }
            Err(LabError::File(error)) if !error.is_unreadable() => {
                self.mistakes.extend(texts(error.each()))
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Reads the results of the run, if the path is a directory or a results.json.
pub(super) fn run_at(path: &str) -> Option<anyhow::Result<Results>> {
    let path = Path::new(path);
    let is_file = path.file_name().is_some_and(|name| name == RESULTS);
    if path.is_dir() && !path.join(RESULTS).exists() {
        let text = format!(
            "{} has no {RESULTS}: name a lab file, or the directory of a finished run",
            path.display()
        );
        return Some(Err(LabError::Usage(text).into()));
    }
    (is_file || path.is_dir()).then(|| Ok(runs::read(path)?.results))
}

/// Returns the directory of a run, given its directory or its results.json.
pub(super) fn directory_of(run: &str) -> String {
    let parent = Path::new(".").join(run).parent().map(|parent| parent.display().to_string());
    parent.filter(|_| Path::new(run).ends_with(RESULTS)).unwrap_or_else(|| run.to_owned())
}

/// Returns a line for each failed or invalid cell, with advice.
fn flaws_of(results: &Results) -> Vec<String> {
    let mut flaws = Vec::new();
    for cell in &results.cells {
        let place = place(cell);
        flaws.extend(cell.failed.as_ref().map(|reason| format!("{place}: failed: {reason}")));
        for missing in cell.missing.iter().filter(|missing| missing.failed) {
            let names = missing.metrics.join(", ");
            flaws.push(format!("{place}: {names}: not measured: {}", missing.reason));
        }
        for reason in &cell.invalid_reasons {
            let mend = match reason.mend.as_str() {
                "" => String::new(),
                mend => format!("; to mend it: {mend}"),
            };
            flaws.push(format!("{place}: {reason}{mend}"));
        }
    }
    if flaws.is_empty() && !results.valid {
        // Older runs recorded no reasons of single cells.
        flaws.extend(results.invalid_reasons.iter().cloned());
    }
    flaws
}

/// Returns a line for each mark and warning of a cell, and for each cell that this machine cannot
/// measure. A mark or a warning makes no run invalid.
fn remarks_on(results: &Results) -> Vec<String> {
    let mut remarks = Vec::new();
    for cell in &results.cells {
        let place = place(cell);
        let not_run = cell.not_run.as_ref();
        remarks.extend(not_run.map(|reason| format!("{place}: not run: {reason}")));
        if cell.cpu_limited {
            let user = cell.cpu_limit.as_ref().map(|user| format!(": {user}")).unwrap_or_default();
            remarks.push(format!(
                "{place}: next to no CPU was idle, so the figure may be the machine's (*){user}"
            ));
        }
        remarks.extend(cell.warnings.iter().map(|warning| format!("{place}: {warning}")));
    }
    remarks
}

fn place(cell: &Cell) -> String {
    let axes = cell.axes.iter().map(|(name, value)| format!(" {name}={value}"));
    format!("{}{}", cell.system, axes.collect::<String>())
}

const RESULTS: &str = "results.json";
pub(super) const EXAMPLES: &str = "\
Examples:
  weir lab validate ./my-lab.toml
  weir lab validate --json labs/*.toml
  weir lab validate runs/quic-tun-20261121-030000

`weir lab run` does this first. Programs that a lab needs and this machine lacks are named, too. Of
a run, each failed or invalid cell is printed with its reason and how to mend it, and figures whose
measurement failed. Exit status 1 if a file has a mistake, or a run one of these. Cells that the
CPU may limit, warnings of cells, bounds of the file that do not hold and figures that differ from
the simulator's are printed too and do not change the status: they say nothing against the run, but
the command that made it ended with status 1 for the latter two.";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, CpuLimit, Form, Missing, Reason};

    #[test]
    fn each_invalid_cell_is_named_with_advice() {
        let mut results = Results::new("x", Form::Quick);
        let axes = Axes::from([("loss".to_owned(), "1%".to_owned())]);
        let mut late = Cell::new("bbr", axes.clone());
        late.valid = false;
        late.invalid_reasons = vec![Reason {
            what: "the link was late".to_owned(),
            detail: "310 µs".to_owned(),
            mend: "end other programs".to_owned(),
        }];
        let mut failed = Cell::new("cubic", axes);
        failed.failed = Some("no route".to_owned());
        let mut part = Cell::new("reno", Axes::new());
        let missing = |metric: &str, failed| Missing {
            metrics: vec![metric.to_owned()],
            reason: "it ended early".to_owned(),
            failed,
        };
        part.missing = vec![missing("ndr_pps", true), missing("actual_s", false)];
        results.cells = vec![late, failed, part];
        assert_eq!(
            flaws_of(&results),
            [
                "bbr loss=1%: the link was late: 310 µs; to mend it: end other programs",
                "cubic loss=1%: failed: no route",
                "reno: ndr_pps: not measured: it ended early",
            ]
        );
        assert_eq!(remarks_on(&results), [""; 0]);
        results.cells.clear();
        assert_eq!(flaws_of(&results), [""; 0]);
        results.valid = false;
        results.invalid_reasons = vec!["late in 1 cell".to_owned()];
        assert_eq!(flaws_of(&results), ["late in 1 cell"]);
    }

    #[test]
    fn the_directory_of_a_run_follows_from_its_results_file() {
        assert_eq!(directory_of("runs/x"), "runs/x");
        assert_eq!(directory_of("results.json"), ".");
        assert_eq!(directory_of("/tmp/x/results.json"), "/tmp/x");
    }

    #[test]
    fn runs_whose_cells_have_only_marks_and_warnings_are_valid() {
        let mut results = Results::new("x", Form::Quick);
        let mut busy = Cell::new("bbr", Axes::new());
        busy.cpu_limited = true;
        let (by, cpus) = ("weir (client)".to_owned(), vec![1]);
        busy.cpu_limit = Some(CpuLimit { by, cpus, percent: 97.0 });
        busy.warnings = vec!["1 of 6 repeats failed: no answer".to_owned()];
        let mut small = Cell::new("cubic", Axes::new());
        small.not_run = Some("needs 3 CPUs".to_owned());
        results.cells = vec![busy, small];
        assert_eq!(flaws_of(&results), [""; 0]);
        assert_eq!(
            remarks_on(&results),
            [
                "bbr: next to no CPU was idle, so the figure may be the machine's (*): weir (client) used 97 % of \
                 CPU 1",
                "bbr: 1 of 6 repeats failed: no answer",
                "cubic: not run: needs 3 CPUs",
            ]
        );
    }
}
