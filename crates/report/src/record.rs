//! The page of a published run: the answer, the measurements that decide the answer, and their
//! origin. [`crate::archive`] has all other data of the run.

mod decisive;

use crate::markdown::{escape, fenced, line, table};
use crate::run::replace;
use crate::{ReportError, answer, method, missing, queue_and_fairness};
use decisive::Decisive;
use results::{Cell, Form, Results, Samples};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use units::{foreign, visible};

/// The reason why a run cannot be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The results do not name the commit of Weir.
    NoCommit,
    /// Weir was built from files that differ from their commit.
    Modified,
    /// The run is invalid beyond the cells that the lab disturbs on purpose. The value holds the
    /// reasons.
    Invalid(Vec<String>),
    /// A cell failed; the text names the first such cell and its reason.
    Failed(String),
    /// Other programs used much CPU; the text names the first such cell.
    Disturbed(String),
    /// The run has the smoke form, which only tests the lab.
    Smoke,
}

/// A run to publish.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The results with the texts of the file, not escaped.
    pub written: &'a Results,
    /// The name of the SVG file beside the page.
    pub chart: Option<&'a str>,
    /// The name of the lab file beside the page, of a lab that the commit does not contain.
    pub lab_file: Option<&'a str>,
    /// The run's archive; `None` for a run without an archive.
    pub archive: Option<Archived<'a>>,
    /// The planned time of the run's turns; `None` if the plan is not known.
    pub planned: Option<Duration>,
    /// Cells that the lab disturbs on purpose, and that a page may show although they are invalid.
    pub is_disturbed: &'a dyn Fn(&Cell) -> bool,
}

/// The file with the full data of a run.
#[derive(Debug, Clone, Copy)]
pub struct Archived<'a> {
    /// The name of the file.
    pub name: &'a str,
    /// The SHA-256 digest of the file, in hexadecimal.
    pub sha256: &'a str,
}

impl Record<'_> {
    /// Renders the page in Markdown, for `docs/results/LAB.md`. A table longer than the page loses
    /// the rows with the highest rank.
    pub fn page(&self) -> Result<String, Unfit> {
        let mut results = self.written.clone().shown();
        check(&results, self.is_disturbed)?;
        without_folders(&mut results);
        let disturbed = results.cells.iter().filter(|cell| !cell.valid).count();
        // `check` accepts invalid cells only if they were disturbed, so the run counts as valid.
        results.valid = true;
        let table = Decisive::of(&results);
        let mut rows = table.as_ref().map_or(0, |table| table.rows.len().min(MOST_ROWS));
        loop {
            let page = self.of_rows(&results, table.as_ref(), rows, disturbed);
            let fits =
                page.lines().count() <= MOST_LINES && page.split_whitespace().count() <= MOST_WORDS;
            if fits || rows == 0 {
                return Ok(page);
            }
            rows -= 1;
        }
    }

    fn of_rows(
        &self,
        results: &Results,
        decisive: Option<&Decisive>,
        rows: usize,
        disturbed: usize,
    ) -> String {
        let mut out = String::new();
        let title = if results.title.is_empty() { &results.lab } else { &results.title };
        line(&mut out, &format!("# {}\n", escape(&clip(title, 30))));
        if !results.question.is_empty() {
            let question = escape(&clip(&results.question, 60));
            line(&mut out, &format!("**Question:** {question}\n"));
        }
        let answer = escape(&clip(&answer::headline(results), 60));
        line(&mut out, &format!("**Answer:** {answer}\n"));
        if let Some(decisive) = decisive {
            table(&mut out, &decisive.heads, &decisive.first(rows));
            let mut notes = decisive.notes.clone();
            if rows < decisive.rows.len() {
                let all = decisive.rows.len();
                let place = self.place_of_data();
                let cut = format!("{rows} of {all} rows are shown. {place} has all rows.");
                notes.insert(0, cut);
            }
            let notes: Vec<String> = notes.iter().map(|note| clip(note, 45)).collect();
            line(&mut out, &format!("{}\n", escape(&notes.join(" "))));
        }
        if let Some(chart) = self.chart {
            line(&mut out, &format!("![Chart of the main metric]({chart})\n"));
        }
        line(&mut out, "## Conditions\n");
        for (name, text) in conditions(results, disturbed, self.planned) {
            line(&mut out, &format!("- **{name}:** {}", escape(&clip(&text, 45))));
        }
        if let Some(peers) = peers(self.written) {
            line(&mut out, &format!("- **Peers:** {}", escape(&clip(&peers, 80))));
        }
        line(&mut out, "\n## How to repeat it\n");
        let commit = text(results, "commit").unwrap_or_default();
        let command = of_build(&method::command(results));
        let commands =
            format!("git checkout {commit}\ncargo build --release --locked -p weir\n{command}");
        line(&mut out, &format!("{}\n", fenced(&commands, "sh")));
        if let Some(lab_file) = self.lab_file {
            line(&mut out, &format!("The lab file is [{lab_file}]({lab_file}).\n"));
        }
        line(&mut out, "## Not shown\n");
        line(&mut out, &self.not_shown(results));
        visible(&out)
    }

    fn place_of_data(&self) -> &'static str {
        match self.archive {
            Some(_) => "The archive",
            None => "results.json of the run",
        }
    }

    fn not_shown(&self, results: &Results) -> String {
        let cells = answer::counted(results.cells.len(), "cell");
        let comparisons = answer::counted(results.comparisons.len(), "comparison");
        let rest = format!(
            "The other metrics of {cells}, {comparisons}, every repeat, the method, the warnings and the environment"
        );
        match self.archive {
            Some(Archived { name, sha256 }) => {
                let name = name.replace('`', "'");
                format!("{rest} are in the archive `{}`, SHA-256 {sha256}.", foreign(name))
            }
            None => format!("{rest} are in the run's directory. The run has no archive."),
        }
    }
}

/// Replaces the program of the command by the program that the checkout builds.
fn of_build(command: &str) -> String {
    match command.strip_prefix("weir ") {
        Some(rest) => format!("target/release/weir {rest}"),
        None => command.to_owned(),
    }
}

/// Returns the first `words` words of the text, without line breaks.
fn clip(text: &str, words: usize) -> String {
    let mut all = text.split_whitespace();
    let mut kept: Vec<&str> = all.by_ref().take(words).collect();
    if all.next().is_some() {
        kept.push("…");
    }
    kept.join(" ")
}

/// Removes folders of this machine, which mean nothing to the page's readers.
fn without_folders(results: &mut Results) {
    results.command = without_out(&results.command);
    if let Some(Value::Object(programs)) = results.environment.get_mut("programs") {
        for program in programs.values_mut() {
            let Some(Value::String(file)) = program.get_mut("file") else { continue };
            if let Some(name) = Path::new(file.as_str()).file_name() {
                *file = name.to_string_lossy().into_owned();
            }
        }
    }
}

/// Removes the option `--out` with its folder from a command. The words have the quotes of a shell.
fn without_out(command: &str) -> String {
    let (mut quoted, mut previous) = (false, ' ');
    let mut words = command.split(|letter: char| {
        if letter == '\'' && (quoted || previous != '\\') {
            quoted = !quoted;
        }
        previous = letter;
        letter == ' ' && !quoted
    });
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--out" => {
                words.next();
            }
            word if word.starts_with("--out=") => {}
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Draws the chart of the main metric as an SVG file. `None` if the report draws no chart, or if a
/// single cell was measured.
pub fn chart(results: &Results, samples: &Samples) -> Option<String> {
    if results.cells.iter().filter(|cell| cell.is_measured()).count() < 2 {
        return None;
    }
    let files = crate::export(results, samples).into_iter();
    let mut drawings = files.filter(|(name, _)| name.ends_with(".svg"));
    drawings.find(|(_, text)| text.len() <= LARGEST_CHART).map(|(_, text)| text)
}

/// Returns the path of a file of the lab in `folder`.
pub fn file_in(folder: &Path, lab: &str, extension: &str) -> PathBuf {
    // The name may come from another user's file, and must not lead out of the folder.
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = lab.chars().filter(plain).collect();
    folder.join(format!("{name}.{extension}"))
}

/// Writes a file of a page, atomically.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .map_err(|source| ReportError::Write { file: folder.to_owned(), source })?;
    replace(file, bytes)
}

/// Checks that the run is valid and its program is known.
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

/// Names a program that used much CPU beside the cell: `rustfmt used 72 % of CPU 0 in tcpa at rate
/// 500mbit`.
fn others(cell: &Cell) -> Option<String> {
    let user = crate::doubtful::disturber(cell)?;
    Some(format!("{user} in {}", crate::doubtful::place(cell)))
}

fn conditions(
    results: &Results,
    disturbed: usize,
    planned: Option<Duration>,
) -> [(&'static str, String); 5] {
    let of = |name: &str| text(results, name).unwrap_or("unknown").to_owned();
    let started = results.started.as_deref().unwrap_or("an unknown time");
    let took = results.duration_s.map(crate::number::duration);
    let planned = planned.map(|planned| crate::number::duration(planned.as_secs_f64()));
    let planned = planned.map_or_else(String::new, |planned| format!(", planned {planned}"));
    let took = took.map_or_else(
        || "no time was recorded".to_owned(),
        |took| format!("the run took {took}{planned}"),
    );
    [
        ("Date", format!("{started}; {took}")),
        ("Form", form(results)),
        ("Commit", format!("{} (a clean tree)", of("commit"))),
        ("Machine", format!("{}, Linux {}", of("cpu_model"), of("kernel_release"))),
        ("Disturbance", disturbance(results, disturbed)),
    ]
}

fn form(results: &Results) -> String {
    let place = match text(results, "world") {
        _ if results.environment.contains_key(queue_and_fairness::OF_VIRTUAL_TIME) => {
            "in virtual time"
        }
        Some("real machines") => "between real machines",
        _ => "on one machine",
    };
    let mut text = format!("the {} form of the lab {}; {place}", results.form.word(), results.lab);
    // The text after the comma describes the order of the turns.
    if let Some(repeats) = results.method.get("repeats").and_then(|text| text.split(',').next()) {
        text += &format!("; repeats: {repeats}");
    }
    let left_out: Vec<&str> = results
        .notes
        .iter()
        .filter_map(|note| Some(note.split_once(" is left out: ")?.0))
        .collect();
    if !left_out.is_empty() {
        text += &format!("; left out: {}", left_out.join(", "));
    }
    text
}

fn disturbance(results: &Results, disturbed: usize) -> String {
    let mut parts = vec![answer::tally(results)];
    if disturbed > 0 {
        let cells = answer::counted(disturbed, "cell");
        parts.push(format!(
            "the lab disturbs its own link or CPUs, which made {cells} not valid, as intended"
        ));
    }
    let warnings = method::warnings_by_cause(results);
    match warnings.first() {
        Some(first) => {
            let text = match warnings.len() {
                1 => format!("a warning: {first}"),
                kinds => format!("{kinds} kinds of warnings, the first: {first}"),
            };
            parts.push(text);
        }
        None => parts.push("no warnings".to_owned()),
    }
    parts.join("; ")
}

/// Names the external systems with the versions of their programs. The lab file has their commands
/// and files.
fn peers(written: &Results) -> Option<String> {
    let of = |name: &str| written.environment.get(name)?.as_object();
    let version = |command: &str| {
        let program = Path::new(command.split_whitespace().next()?).file_name()?;
        of("programs")?.get(program.to_str()?)?.get("version")?.as_str()
    };
    let measured = of("systems")?.iter().filter(|(name, _)| measured(written, name));
    let name = |(name, settings): (&String, &Value)| {
        let text = |key: &str| settings.get(key).and_then(Value::as_str);
        let version = ["client", "server"].into_iter().filter_map(text).find_map(version);
        match text("settings").or(version) {
            Some(known) => format!("{} ({})", clip(name, 3), clip(known, 12)),
            None => clip(name, 3),
        }
    };
    let names: Vec<String> = measured.map(name).take(MOST_PEERS).collect();
    (!names.is_empty()).then(|| format!("{}; the lab file has the settings", names.join(", ")))
}

fn measured(results: &Results, system: &str) -> bool {
    results.cells.iter().any(|cell| cell.system == system)
}

fn text<'a>(results: &'a Results, name: &str) -> Option<&'a str> {
    results.environment.get(name)?.as_str()
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("lab", &self.written.lab).finish_non_exhaustive()
    }
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

const MOST_LINES: usize = 80;
const MOST_WORDS: usize = 800;
const MOST_ROWS: usize = 40;
const MOST_PEERS: usize = 8;
/// Maximum size of a chart, in bytes.
const LARGEST_CHART: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, CpuLimit, Metric, Missing};
    use serde_json::json;

    fn record(results: &Results) -> Record<'_> {
        let (chart, lab_file, archive, planned) = (None, None, None, None);
        Record { written: results, chart, lab_file, archive, planned, is_disturbed: &|_| false }
    }

    fn page(results: &Results) -> Result<String, Unfit> {
        record(results).page()
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
        let programs = json!({"peer": {"file": "/opt/some where/peer", "version": "v2.6.0"}});
        results.environment.insert("programs".to_owned(), programs);
        let mut cell = Cell::new("peer", Axes::new());
        cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(505.0, "Mbit/s"));
        results.cells.push(cell);
        results
    }

    #[test]
    fn the_command_of_a_page_has_no_folder_for_the_run() {
        for (command, repeated) in [
            (
                "weir lab run tcpa --quick --out /srv/runs/a --seed 7",
                "weir lab run tcpa --quick --seed 7",
            ),
            ("weir lab run tcpa --out=/srv/runs/a", "weir lab run tcpa"),
            ("weir lab run tcpa --out '/srv/my runs' --quick", "weir lab run tcpa --quick"),
            (r"weir lab run tcpa --out '/srv/it'\''s b' --quick", "weir lab run tcpa --quick"),
            ("weir lab run 'my lab.toml' --outer x", "weir lab run 'my lab.toml' --outer x"),
        ] {
            assert_eq!(without_out(command), repeated);
        }
        let mut run = run();
        run.command.push_str(" --out /srv/runs/a");
        assert!(!page(&run).unwrap().contains("/srv"));
    }

    #[test]
    fn a_page_names_the_commit_the_peers_the_chart_and_the_archive() {
        let mut run = run();
        run.method.insert("repeats".to_owned(), "6, in randomised blocks".to_owned());
        run.notes.push("absent is left out: it is not installed".to_owned());
        run.duration_s = Some(300.0);
        let archive = Some(Archived { name: "q.tar.gz", sha256: "00ff" });
        let (chart, lab_file) = (Some("q.svg"), Some("q.toml"));
        let planned = Some(Duration::from_millis(162_750));
        let record = Record { chart, lab_file, archive, planned, ..record(&run) };
        let page = record.page().unwrap();
        for text in [
            "**Commit:** 0123abcd (a clean tree)",
            "the quick form of the lab quic-tun; on one machine; repeats: 6; left out: absent",
            "; the run took 5 min, planned 2 min 43 s",
            "| 505",
            "- **Peers:** peer (v2.6.0); the lab file has the settings\n",
            "![Chart of the main metric](q.svg)",
            "[q.toml](q.toml)",
            "archive `q.tar.gz`, SHA-256 00ff",
            "git checkout 0123abcd\ncargo build --release --locked -p weir\ntarget/release/weir lab run quic-tun --quick",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        assert!(!page.contains(", absent") && !page.contains("/opt"), "{page}");
    }

    #[test]
    fn a_page_has_at_most_80_lines_and_800_words() {
        let mut run = run();
        run.title = "long ".repeat(3000);
        run.question = "long | <b> ".repeat(3000);
        run.command = "weir lab run a\nrm -r b".to_owned();
        run.cells.clear();
        let words = ["a b"; 40].join(" ");
        for loss in 0..300 {
            for system in 0..30 {
                let axes = Axes::from([("loss".to_owned(), format!("{loss}%"))]);
                let mut cell = Cell::new(format!("s{system}"), axes);
                cell.warnings.push(words.clone());
                let figure = Metric::single(f64::from(loss), "Mbit/s");
                cell.metrics.insert("goodput_mbit_s".to_owned(), figure);
                run.cells.push(cell);
            }
        }
        let page = page(&run).unwrap();
        assert!(page.lines().count() <= MOST_LINES, "{page}");
        assert!(page.split_whitespace().count() <= MOST_WORDS, "{page}");
        assert!(page.contains(" of 300 rows are shown") && page.contains("| 0% |"), "{page}");
        assert!(page.contains("weir lab run a\\nrm -r b"), "{page}");
        assert!(page.contains("long \\| &lt;b&gt;"), "{page}");
    }

    #[test]
    fn a_page_names_where_the_lab_ran() {
        let mut run = run();
        run.environment.insert("world".to_owned(), json!("real machines"));
        assert!(page(&run).unwrap().contains("; between real machines\n"));
        run.environment.insert("result_hash".to_owned(), json!("0"));
        assert!(page(&run).unwrap().contains("; in virtual time\n"));
    }

    #[test]
    fn names_between_backticks_are_code() {
        let mut run = run();
        run.question = "Does `weir doctor` find the cause?".to_owned();
        let page = page(&run).unwrap();
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
        let page = Record { is_disturbed: &is_disturbed, ..record(&run) }.page().unwrap();
        assert!(page.contains("made 1 cell not valid, as intended"), "{page}");
        assert!(!page.contains("run is not valid"), "{page}");
        run.cells[0].valid = false;
        let unfit = Record { is_disturbed: &is_disturbed, ..record(&run) }.page().unwrap_err();
        assert_eq!(unfit, Unfit::Invalid(vec!["late in 1 cell".to_owned()]));
    }

    #[test]
    fn a_run_beside_other_programs_is_not_recorded() {
        let user = |by: &str, percent| CpuLimit { by: by.to_owned(), cpus: vec![0], percent };
        let mut run = run();
        run.cells[0].beside = Some(user("cc1plus", 6.0));
        assert!(page(&run).is_ok());
        run.cells[0].beside = Some(user("cc1plus", 38.0));
        let unfit = page(&run).unwrap_err();
        let told = "other programs used much CPU during the run (cc1plus used 38 % of CPU 0 in peer): end \
                    them and run the lab again";
        assert_eq!(unfit.to_string(), told);
        // A run of an older weir names only the largest user.
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
            assert_eq!(page(&run).is_ok(), is_fit, "{by}");
        }
    }

    #[test]
    fn a_run_of_unknown_origin_is_not_recorded() {
        let unfit = |change: fn(&mut Results)| {
            let mut results = run();
            change(&mut results);
            page(&results).unwrap_err()
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
        // A cell that this machine cannot measure does not keep the run from the record.
        let mut small = run();
        small.cells[0].not_run = Some("needs 3 CPUs".to_owned());
        assert!(page(&small).is_ok());
    }
}
