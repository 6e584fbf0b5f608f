//! The page of a run that is kept on record: its figures, and everything that names their origin.

use crate::markdown::{self, escape, fenced, line, table};
use crate::run::replace;
use crate::{ReportError, method, missing};
use results::{Cell, Form, Results};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use units::{foreign, visible};

/// The reason why a run cannot be put on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    NoCommit,
    Modified,
    Invalid(Vec<String>),
    Failed(String),
    /// Other programs used much CPU, with the first cell.
    Disturbed(String),
    Smoke,
}

/// The page in Markdown, for `docs/results/LAB.md`. `written` has texts as they stand in the file.
/// `lab_file` is the text of a lab that the commit does not contain. `is_disturbed` tells the cells
/// that the lab itself makes invalid, to show by how much that moves their figures.
pub fn page(
    written: &Results,
    lab_file: Option<&str>,
    is_disturbed: &dyn Fn(&Cell) -> bool,
) -> Result<String, Unfit> {
    let mut results = written.clone().shown();
    check(&results, is_disturbed)?;
    without_folders(&mut results);
    let invalid = results.cells.iter().filter(|cell| !cell.valid).count();
    // The others are valid, so that the run is.
    results.valid = true;
    let results = &results;
    let mut out = String::new();
    let title = if results.title.is_empty() { &results.lab } else { &results.title };
    line(&mut out, &format!("# {}\n", escape(title)));
    line(&mut out, &format!("`weir lab record` wrote this page. {}\n", escape(&origin(results))));
    if invalid > 0 {
        let cells = crate::answer::counted(invalid, "cell");
        let text = format!(
            "The lab disturbs its own link or CPUs. That made {cells} not valid, as it should, and they are marked."
        );
        line(&mut out, &format!("{text}\n"));
    }
    markdown::question_and_answer(&mut out, results);
    markdown::figures(&mut out, results);
    markdown::failures_and_warnings(&mut out, results);
    markdown::how_measured(&mut out, results);
    configurations(&mut out, written);
    line(&mut out, "## How to repeat it\n");
    let commit = text(results, "commit").unwrap_or_default();
    let commands = format!(
        "git checkout {commit}\ncargo build --release --locked -p weir\n{}",
        of_build(&method::command(results))
    );
    line(&mut out, &format!("{}\n", fenced(&commands, "sh")));
    if let Some(lab_file) = lab_file {
        line(&mut out, "The lab file:\n");
        line(&mut out, &format!("{}\n", fenced(lab_file.trim_end(), "toml")));
    }
    Ok(visible(&out))
}

/// The command with the program that the checkout builds.
fn of_build(command: &str) -> String {
    match command.strip_prefix("weir ") {
        Some(rest) => format!("target/release/weir {rest}"),
        None => command.to_owned(),
    }
}

/// A page is for others, to whom the folders of this machine say nothing.
fn without_folders(results: &mut Results) {
    if let Some(Value::Object(programs)) = results.environment.get_mut("programs") {
        for program in programs.values_mut() {
            let Some(Value::String(file)) = program.get_mut("file") else { continue };
            if let Some(name) = Path::new(file.as_str()).file_name() {
                *file = name.to_string_lossy().into_owned();
            }
        }
    }
}

/// Writes the page of a lab into `folder`, atomically.
pub fn write(folder: &Path, lab: &str, page: &str) -> Result<PathBuf, ReportError> {
    // The name comes from a file of somebody else, and must not lead out of the folder.
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = lab.chars().filter(plain).collect();
    let file = folder.join(format!("{name}.md"));
    std::fs::create_dir_all(folder)
        .map_err(|source| ReportError::Write { file: folder.to_owned(), source })?;
    replace(&file, page.as_bytes())?;
    Ok(file)
}

/// Only a valid run of a known program is a record.
fn check(results: &Results, is_disturbed: &dyn Fn(&Cell) -> bool) -> Result<(), Unfit> {
    if results.form == Form::Smoke {
        return Err(Unfit::Smoke);
    }
    if text(results, "commit").is_none() {
        return Err(Unfit::NoCommit);
    }
    if text(results, "tree") != Some("clean") {
        return Err(Unfit::Modified);
    }
    let mut invalid = results.cells.iter().filter(|cell| !cell.valid).peekable();
    if !results.valid && (invalid.peek().is_none() || !invalid.all(is_disturbed)) {
        return Err(Unfit::Invalid(results.invalid_reasons.clone()));
    }
    let busy = results.cells.iter().filter(|cell| !is_disturbed(cell));
    if let Some(user) = busy.into_iter().find_map(others) {
        return Err(Unfit::Disturbed(user));
    }
    let why = |cell: &Cell| {
        let part = missing::of(cell).find(|missing| missing.failed).map(missing::words);
        let whole = cell.failed.clone().filter(|_| cell.has_failed());
        let why = whole.or(part)?;
        Some(format!("{} at {}: {why}", cell.system, crate::axis::describe(&cell.axes)))
    };
    match results.cells.iter().find_map(why) {
        Some(failed) => Err(Unfit::Failed(failed)),
        None => Ok(()),
    }
}

/// `rustfmt used 72 % of CPU 0 in tcpa at rate 500mbit`, if other programs used much CPU there.
fn others(cell: &Cell) -> Option<String> {
    let limit = cell.cpu_limit.iter().filter(|limit| cell.cpu_limited && limit.is_of_others());
    let users = cell.beside.iter().chain(limit);
    let user = users.max_by(|a, b| a.percent.total_cmp(&b.percent))?;
    let place = crate::doubtful::place(cell);
    (user.percent >= MUCH_PERCENT).then(|| format!("{user} in {place}"))
}

fn origin(results: &Results) -> String {
    let of = |name: &str| text(results, name).unwrap_or("unknown").to_owned();
    let started = results.started.as_deref().unwrap_or("at an unknown time");
    let took = results.duration_s.map(crate::number::duration);
    let took = took.unwrap_or_else(|| "a time that was not recorded".to_owned());
    format!(
        "It shows the {} form of the lab {}, begun {started}, which took {took}, with weir of commit {} (a clean tree) \
         on Linux {}, {}.",
        results.form.word(),
        results.lab,
        of("commit"),
        of("kernel_release"),
        of("cpu_model"),
    )
}

/// The commands and files of the external systems, in full: shown texts are cut, and a line break
/// in them looks like the two characters of its escape.
fn configurations(out: &mut String, written: &Results) {
    let Some(Value::Object(systems)) = written.environment.get("systems") else { return };
    line(out, "## Configuration of the external systems\n");
    for (name, settings) in systems.iter().filter(|(name, _)| measured(written, name)) {
        line(out, &format!("### {}\n", escape(name)));
        let Value::Object(settings) = settings else { continue };
        let rows = settings.iter().filter_map(|(key, value)| {
            value.as_str().map(|text| vec![key.clone(), text.to_owned()])
        });
        table(out, &["key", "value"].map(str::to_owned), &rows.collect::<Vec<_>>());
        line(out, "");
        let Some(Value::Object(files)) = settings.get("files") else { continue };
        for (file, content) in files {
            line(out, &format!("`{}`:\n", foreign(file.replace('`', "'"))));
            let content = content.as_str().unwrap_or_default().trim_end();
            line(out, &format!("{}\n", fenced(content, "yaml")));
        }
    }
}

fn measured(results: &Results, system: &str) -> bool {
    results.cells.iter().any(|cell| cell.system == system)
}

fn text<'a>(results: &'a Results, name: &str) -> Option<&'a str> {
    results.environment.get(name)?.as_str()
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommit => f.write_str(
                "the run names no commit: build weir in a git checkout and run the lab again",
            ),
            Self::Modified => f.write_str(
                "weir was built from files that differ from their commit: commit them, build and \
                 run the lab again",
            ),
            Self::Invalid(reasons) => {
                write!(f, "the run is not valid ({}): run the lab again", reasons.join("; "))
            }
            Self::Disturbed(user) => write!(
                f,
                "other programs used much CPU during the run ({user}): end them and run the lab again"
            ),
            Self::Failed(cell) => write!(f, "a cell failed ({cell}): run the lab again"),
            Self::Smoke => f.write_str("the smoke form only tests the lab: run another form"),
        }
    }
}

impl std::error::Error for Unfit {}

/// Percent of one CPU. A run beside such a program shows the program, too.
const MUCH_PERCENT: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, CpuLimit, Metric, Missing};
    use serde_json::json;

    fn page(results: &Results, lab_file: Option<&str>) -> Result<String, Unfit> {
        super::page(results, lab_file, &|_| false)
    }

    fn run() -> Results {
        let mut results = Results::new("quic-tun", Form::Quick);
        results.command = "weir lab run quic-tun --quick".to_owned();
        results.environment.insert("commit".to_owned(), json!("0123abcd"));
        results.environment.insert("tree".to_owned(), json!("clean"));
        results.environment.insert(
            "systems".to_owned(),
            json!({
                "peer": {"server": "peer --listen", "files": {"a.yaml": "window: 64\n"}},
                "absent": {"server": "absent --listen"},
            }),
        );
        let programs = json!({"peer": {"file": "/opt/some where/peer", "sha256": "12ab"}});
        results.environment.insert("programs".to_owned(), programs);
        let mut cell = Cell::new("peer", Axes::new());
        cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(505.0, "Mbit/s"));
        results.cells.push(cell);
        results
    }

    #[test]
    fn a_page_has_files_line_by_line_and_no_folder_of_this_machine() {
        let mut run = run();
        // The peer's own notation for a line break stays as its author wrote it.
        run.environment["systems"]["peer"]["files"]["a.yaml"] = json!("a: 1\nb: \"2\\n\"\n");
        let page = page(&run, None).unwrap();
        assert!(page.contains("\na: 1\nb: \"2\\n\"\n```"), "{page}");
        assert!(page.contains("| programs.peer.file | peer |") && !page.contains("/opt"), "{page}");
    }

    #[test]
    fn a_page_names_the_commit_and_the_peers_configuration() {
        let page = page(&run(), Some("name = 1")).unwrap();
        for text in [
            "commit 0123abcd",
            "quick form",
            "```toml\nname = 1\n```",
            "505",
            "peer --listen",
            "window: 64",
            "git checkout 0123abcd\ncargo build --release --locked -p weir\ntarget/release/weir lab run quic-tun --quick",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        assert!(!page.contains("absent"), "{page}");
    }

    #[test]
    fn a_long_file_is_whole_and_a_command_is_one_line() {
        let mut run = run();
        let long = "x: 1\n".repeat(2000);
        run.environment["systems"]["peer"]["files"]["a.yaml"] = json!(format!("{long}end: 1"));
        run.command = "weir lab run a\nrm -r b".to_owned();
        let page = page(&run, None).unwrap();
        assert!(page.contains("\nx: 1\nend: 1\n"), "{page}");
        assert!(page.contains("weir lab run a\\nrm -r b"), "{page}");
    }

    #[test]
    fn names_between_backticks_are_code() {
        let mut run = run();
        run.question = "Does `weir doctor` find the cause?".to_owned();
        let page = page(&run, None).unwrap();
        assert!(page.contains("**Question:** Does `weir doctor` find the cause?"), "{page}");
    }

    #[test]
    fn cells_that_the_lab_disturbs_itself_need_not_be_valid() {
        let mut run = run();
        run.valid = false;
        run.invalid_reasons = vec!["late in 1 cell".to_owned()];
        let mut late = run.cells[0].clone();
        late.axes.insert("stalls".to_owned(), "8ms".to_owned());
        late.valid = false;
        run.cells.push(late);
        let is_disturbed = |cell: &Cell| cell.axes.contains_key("stalls");
        let page = super::page(&run, None, &is_disturbed).unwrap();
        assert!(page.contains("made 1 cell not valid, as it should"), "{page}");
        assert!(!page.contains("run is not valid"), "{page}");
        run.cells[0].valid = false;
        let unfit = super::page(&run, None, &is_disturbed).unwrap_err();
        assert_eq!(unfit, Unfit::Invalid(vec!["late in 1 cell".to_owned()]));
    }

    #[test]
    fn a_run_beside_other_programs_is_no_record() {
        let user = |by: &str, percent| CpuLimit { by: by.to_owned(), cpus: vec![0], percent };
        let mut run = run();
        run.cells[0].beside = Some(user("cc1plus", 6.0));
        assert!(page(&run, None).is_ok());
        run.cells[0].beside = Some(user("cc1plus", 38.0));
        let unfit = page(&run, None).unwrap_err();
        let told = "other programs used much CPU during the run (cc1plus used 38 % of CPU 0 in peer): end \
                    them and run the lab again";
        assert_eq!(unfit.to_string(), told);
        // A run of an older weir names the largest user only.
        run.cells[0].beside = None;
        run.cells[0].cpu_limited = true;
        for (by, is_fit) in [
            ("rustfmt", false),
            ("other programs", false),
            ("peer (server)", true),
            ("softirqs", true),
            ("weir's emulator", true),
        ] {
            run.cells[0].cpu_limit = Some(user(by, 72.0));
            assert_eq!(page(&run, None).is_ok(), is_fit, "{by}");
        }
    }

    #[test]
    fn a_run_of_unknown_origin_is_no_record() {
        let unfit = |change: fn(&mut Results)| {
            let mut results = run();
            change(&mut results);
            page(&results, None).unwrap_err()
        };
        assert_eq!(unfit(|run| drop(run.environment.shift_remove("commit"))), Unfit::NoCommit);
        assert_eq!(unfit(|run| drop(run.environment.shift_remove("tree"))), Unfit::Modified);
        assert_eq!(
            unfit(|run| drop(run.environment.insert("tree".to_owned(), json!("modified")))),
            Unfit::Modified
        );
        assert_eq!(unfit(|run| run.valid = false), Unfit::Invalid(Vec::new()));
        assert_eq!(unfit(|run| run.form = Form::Smoke), Unfit::Smoke);
        let part = unfit(|run| {
            run.cells[0].missing.push(Missing {
                metrics: vec!["ndr_pps".to_owned()],
                reason: "it ended".to_owned(),
                failed: true,
            });
        });
        assert!(part.to_string().contains("not measured: it ended"), "{part}");
        let failed = unfit(|run| run.cells[0].failed = Some("it broke".to_owned()));
        assert!(failed.to_string().contains("it broke"), "{failed}");
        // A limit of the machine is no reason to measure again.
        let mut small = run();
        small.cells[0].not_run = Some("needs 3 CPUs".to_owned());
        assert!(page(&small, None).is_ok());
    }
}
