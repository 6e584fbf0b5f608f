//! Runs a suite several times in both states, and combines the results.

use super::answer::{Answer, CaseVerdict, Counts, RunRecord, Side};
use super::case::{Case, Parsed};
use super::judge::{Judged, Seen, comes_and_goes, is_doubtful, judge};

use super::program::{self, Bounds, Ended, told};
use super::states::{State, States};
use super::{Suite, page};
use crate::bench::environment::machine;
use crate::model::{Cancel, LabError};
use crate::runs::date::now;
use crate::runs::on_disk;
use indexmap::IndexMap;
use results::Form;
use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The run of the suite that is about to begin, for messages to the user.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub state: &'static str,
    pub number: u32,
    /// Doubtful cases that run again; `None` in a run of the whole suite.
    pub again: Option<usize>,
}

/// Runs the suite in both states and writes the run directory. Returns the answer and the
/// directory's path.
pub fn run(
    suite: &Suite,
    cancel: &Cancel,
    watch: &mut dyn FnMut(Progress),
) -> Result<(Answer, PathBuf), LabError> {
    check(suite)?;
    let folder = folder(suite)?;
    let started = now();
    let mark = format!("{}-{started}", std::process::id());
    let mut states = States::new(suite, &mark).map_err(LabError::not_measured)?;
    let mut runs = Runs {
        suite,
        folder: &folder,
        mark,
        cancel,
        here: std::env::current_dir().unwrap_or_default(),
        records: Vec::new(),
        cases: IndexMap::new(),
        numbers: [0, 0],
    };
    let measured = runs.all(&mut states, watch);
    let restored = states.restore();
    drop(states);
    let kept = |error: LabError| match error {
        LabError::Interrupted { .. } => LabError::Interrupted { directory: None },
        other => other,
    };
    // If the restore of the machine failed, report the failed restore first, and then the run's
    // error.
    restored.map_err(|failure| {
        let cause = measured.as_ref().err().map(|error| format!("; before, {error}"));
        let cause = cause.unwrap_or_default();
        LabError::NotMeasured {
            reason: format!("the machine may be in its state after the change: {failure}{cause}"),
        }
    })?;
    measured.map_err(kept)?;
    let answer = runs.answer(started);
    let unwritten = |error: std::io::Error| LabError::Unwritten {
        path: folder.clone(),
        reason: error.to_string(),
    };
    let json = serde_json::to_string_pretty(&answer).map_err(|error| unwritten(error.into()))?;
    write_new(&folder.join("suite.json"), &(json + "\n")).map_err(unwritten)?;
    write_new(&folder.join("report.md"), &page::markdown(&answer)).map_err(unwritten)?;
    Ok((answer, folder))
}

/// Writes a file that must not exist yet. The folder was empty at the start, and a symbolic link
/// with the file's name could lead anywhere.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::options().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn check(suite: &Suite) -> Result<(), LabError> {
    let usage = |text: &str| Err(LabError::Usage(text.to_owned()));
    if suite.command.is_empty() {
        return usage("name the suite's command behind --, as in -- ./run_all.py -S -v tcp/");
    }
    if suite.before.is_none() && suite.undo.is_none() {
        return usage(
            "no command undoes --after: name one with --undo, or with --before the command that sets the \
             first state",
        );
    }
    let names_results = |word: &String| word.contains(RESULTS);
    if let Some(again) = &suite.again {
        if !again.contains(CASES) && !again.contains(PATTERN) {
            return usage("--again needs {cases} or {pattern} where the names of the cases belong");
        }
        if suite.command.iter().any(names_results) != names_results(again) {
            return usage(
                "write {results} both in the suite's command and in --again, or in neither",
            );
        }
    }
    Ok(())
}

fn folder(suite: &Suite) -> Result<PathBuf, LabError> {
    let named = format!("suite-{}", suite.parser.name());
    let name = || on_disk::fresh(Path::new("runs"), &named, Form::Full);
    let path = suite.out.clone().unwrap_or_else(name);
    let wrong = |reason: String| LabError::RunDirectory { path: path.clone(), reason };
    fs::create_dir_all(&path)
        .map_err(|e| wrong(format!("cannot be created: {e}; name another with --out")))?;
    let mut entries = fs::read_dir(&path)
        .map_err(|e| wrong(format!("cannot be read: {e}; name another with --out")))?;
    match entries.next() {
        None => std::path::absolute(&path).map_err(|error| wrong(error.to_string())),
        Some(_) => Err(wrong("is not empty: name another with --out".to_owned())),
    }
}

struct Runs<'a> {
    suite: &'a Suite,
    folder: &'a Path,
    mark: String,
    cancel: &'a Cancel,
    here: PathBuf,
    records: Vec<RunRecord>,
    cases: IndexMap<String, Observed>,
    /// The number of finished runs in each state.
    numbers: [u32; 2],
}

/// The results of a case in all runs.
#[derive(Debug, Default)]
struct Observed {
    before: Vec<Seen>,
    after: Vec<Seen>,
    reason: Option<String>,
}

impl Runs<'_> {
    fn all(
        &mut self,
        states: &mut States<'_>,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<(), LabError> {
        for round in 0..self.suite.repeats {
            for state in order(round) {
                self.one(states, state, None, watch)?;
            }
        }
        let doubtful = self.doubtful();
        if doubtful.is_empty() {
            return Ok(());
        }
        // The kernel refuses a word of [`LONGEST_LINE`] bytes: the whole suite then runs again.
        let place = self.folder.join("results");
        let is_short = self
            .words(Some(doubtful.as_slice()), &place)
            .iter()
            .all(|word| word.len() < LONGEST_LINE);
        let asked = self.suite.again.as_ref().filter(|_| is_short).map(|_| doubtful.as_slice());
        for round in 0..self.suite.retries {
            for state in order(self.suite.repeats + round) {
                self.one(states, state, asked, watch)?;
            }
        }
        Ok(())
    }

    fn doubtful(&self) -> Vec<String> {
        let doubtful = |(_, seen): &(&String, &Observed)| is_doubtful(&seen.before, &seen.after);
        let names = self.cases.iter().filter(doubtful).map(|(name, _)| name);
        let mut seen = HashSet::new();
        names
            .map(|name| selector(name))
            .filter(|name| seen.insert(*name))
            .map(str::to_owned)
            .collect()
    }

    fn one(
        &mut self,
        states: &mut States<'_>,
        state: State,
        asked: Option<&[String]>,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<(), LabError> {
        if self.cancel.is_cancelled() {
            return Err(LabError::Interrupted { directory: None });
        }
        states.switch_to(state, self.cancel).map_err(LabError::not_measured)?;
        let number = &mut self.numbers[usize::from(state == State::After)];
        *number += 1;
        let number = *number;
        watch(Progress { state: state.word(), number, again: asked.map(<[String]>::len) });
        let name = format!("{}-{number}", state.word());
        let output = self.folder.join(format!("{name}.log"));
        let results = self.folder.join(format!("{name}.results"));
        let command = program::prepare(&self.words(asked, &results));
        let begun = Instant::now();
        let bounds = Bounds {
            limit: self.suite.limit,
            most_output: self.suite.most_output,
            cancel: Some(self.cancel),
        };
        let ended =
            program::run(command, &self.mark, &output, bounds).map_err(LabError::not_measured)?;
        let seconds = begun.elapsed().as_secs_f64();
        let (place, text) = self.results(&output, &results, ended)?;
        let parsed = self.parsed(&text, &name, ended, asked)?;
        let counts = Side::of(&parsed.cases);
        self.records.push(RunRecord {
            state: state.word(),
            number,
            again: asked.is_some(),
            seconds,
            ended: self.words_about(ended),
            flaws: parsed.flaws.clone(),
            output: place,
            counts,
        });
        self.take(state, parsed, asked);
        Ok(())
    }

    /// Returns the words of the suite's command, with the placeholders `{results}`, `{cases}` and
    /// `{pattern}` filled.
    fn words(&self, asked: Option<&[String]>, results: &Path) -> Vec<String> {
        let results = results.display().to_string();
        match (asked, &self.suite.again) {
            (Some(asked), Some(again)) => {
                let cases: Vec<String> = asked.iter().map(|name| quoted(name)).collect();
                let line = again
                    .replace(RESULTS, &quoted(&results))
                    .replace(CASES, &cases.join(" "))
                    .replace(PATTERN, &quoted(&pattern(asked)));
                vec!["sh".to_owned(), "-c".to_owned(), line]
            }
            _ => {
                let words = &self.suite.command;
                // A single word with blanks is a line for the shell (`program::prepare`).
                let is_line = matches!(&words[..], [line] if line.contains(char::is_whitespace));
                let results = if is_line { quoted(&results) } else { results };
                words.iter().map(|word| word.replace(RESULTS, &results)).collect()
            }
        }
    }

    /// Returns the text with the results: the file that the suite wrote, or else its output.
    fn results(
        &self,
        output: &Path,
        results: &Path,
        ended: Ended,
    ) -> Result<(String, String), LabError> {
        let asks = self.suite.command.iter().any(|word| word.contains(RESULTS));
        let path = if asks { results } else { output };
        let name = path.file_name().unwrap_or_default().display().to_string();
        let most = self.suite.most_output;
        let length = match fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            // A suite that Weir ended may not have written its results.
            Err(_) if !matches!(ended, Ended::Alone(_)) => return Ok((name, String::new())),
            Err(_) => {
                let last = program::last_line_of(output);
                let how = self.words_about(ended);
                let words = if last.is_empty() { "it printed nothing" } else { &last };
                let reason =
                    format!("the suite {how} and wrote no results to {{results}}: {words}");
                return Err(LabError::NotMeasured { reason });
            }
        };
        // The output may exceed its bound a little before Weir ends the suite.
        if length > most.count().saturating_mul(2) {
            return Ok((name, String::new()));
        }
        let bytes = fs::read(path).map_err(|error| LabError::NotMeasured {
            reason: format!("reading {}: {error}", path.display()),
        })?;
        Ok((name, String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn parsed(
        &self,
        text: &str,
        name: &str,
        ended: Ended,
        asked: Option<&[String]>,
    ) -> Result<Parsed, LabError> {
        let parser = self.suite.parser;
        let is_first = self.records.is_empty();
        let parsed = parser.parse(text);
        let was_ended = !matches!(ended, Ended::Alone(_));
        let empty = parsed.as_ref().map_or(true, |parsed| parsed.cases.is_empty());
        if empty && (is_first || asked.is_some()) && !was_ended {
            return Err(self.without_cases(text, name, ended, parsed));
        }
        let mut parsed = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => Parsed { cases: Vec::new(), flaws: vec![reason] },
        };
        if empty && parsed.flaws.is_empty() && !was_ended {
            parsed.flaws.push("the suite reports no case".to_owned());
        }
        for case in &mut parsed.cases {
            case.name = named(&case.name, &self.here);
        }
        match ended {
            Ended::AtTheLimit => parsed.flaws.push(format!(
                "it was ended at its limit of {}: raise --limit if it needs more",
                self.suite.limit
            )),
            Ended::WithTooMuchOutput => parsed.flaws.push(format!(
                "it was ended because it printed more than {}: let it print less, or raise \
                 --most-output",
                self.suite.most_output.shown()
            )),
            Ended::Alone(status) if status.code().is_none() => {
                parsed.flaws.push(format!("it ended with {}", told(status)));
            }
            Ended::Alone(_) => {}
        }
        Ok(parsed)
    }

    /// Builds the error of a run in which the parser found nothing.
    fn without_cases(
        &self,
        text: &str,
        name: &str,
        ended: Ended,
        parsed: Result<Parsed, String>,
    ) -> LabError {
        let parser = self.suite.parser;
        if let Some(other) = parser.guess(text) {
            let (parser, other) = (parser.name(), other.name());
            return LabError::Usage(format!(
                "the output has no case for --parser {parser}, and looks like that of --parser \
                 {other}"
            ));
        }
        let reason = match parsed {
            Err(reason) => reason,
            Ok(parsed) => parsed.flaws.into_iter().next().unwrap_or_else(|| {
                let output = self.folder.join(format!("{name}.log"));
                let last = program::last_line_of(&output);
                match last.as_str() {
                    "" => "the suite printed nothing".to_owned(),
                    last => format!("its last line is: {last}"),
                }
            }),
        };
        let (parser, how) = (parser.name(), self.words_about(ended));
        let folder = self.folder.display();
        LabError::NotMeasured {
            reason: format!(
                "the suite {how}, and --parser {parser} found no case ({reason}); its output is in \
                 {folder}/{name}.log"
            ),
        }
    }

    fn words_about(&self, ended: Ended) -> String {
        match ended {
            Ended::Alone(status) => format!("ended with {}", told(status)),
            Ended::AtTheLimit => format!("was ended after {}", self.suite.limit),
            Ended::WithTooMuchOutput => {
                format!("was ended after {} of output", self.suite.most_output.shown())
            }
        }
    }

    /// Records the cases of a run. In a complete run, known cases that did not appear are recorded
    /// as missing.
    fn take(&mut self, state: State, parsed: Parsed, asked: Option<&[String]>) {
        let is_complete = parsed.flaws.is_empty();
        let mut seen = HashSet::with_capacity(parsed.cases.len());
        for Case { name, outcome, reason, .. } in parsed.cases {
            let is_new = !self.cases.contains_key(&name);
            let observed = self.cases.entry(name.clone()).or_default();
            if is_new && asked.is_none() {
                observed.miss(&self.records);
            }
            observed.of(state).push(Seen::As(outcome));
            observed.reason = reason.or(observed.reason.take());
            seen.insert(name);
        }
        if !is_complete {
            return;
        }
        let asked: Option<HashSet<&str>> =
            asked.map(|asked| asked.iter().map(String::as_str).collect());
        for (name, observed) in &mut self.cases {
            let could_show = asked.as_ref().is_none_or(|asked| asked.contains(selector(name)));
            if could_show && !seen.contains(name) {
                observed.of(state).push(Seen::Missing);
            }
        }
    }

    fn answer(self, started: String) -> Answer {
        let suite = self.suite;
        let first = |state: State| {
            let run = self.records.iter().find(|run| run.state == state.word());
            run.map(|run| run.counts).unwrap_or_default()
        };
        let counts = Counts { before: first(State::Before), after: first(State::After) };
        let mut cases: Vec<CaseVerdict> = self
            .cases
            .into_iter()
            .map(|(name, seen)| CaseVerdict {
                verdict: judge(&seen.before, &seen.after),
                name,
                before: seen.before,
                after: seen.after,
                reason: seen.reason,
            })
            .collect();
        let ended = self.records.iter().all(|run| run.flaws.is_empty());
        let regression = cases.iter().any(|case| case.verdict.is_regression());
        let restless =
            cases.iter().filter(|case| comes_and_goes(&case.before) || comes_and_goes(&case.after));
        let restless = Some(restless.count()).filter(|count| *count > 1 && count * 4 > cases.len());
        let complete = ended && restless.is_none();
        let answer = sentence(&cases, restless, ended);
        cases.retain(|case| !matches!(case.verdict, Judged::Passes | Judged::Skipped));
        Answer {
            answer,
            regression,
            complete,
            parser: suite.parser.name(),
            command: suite.line.clone(),
            suite: suite.command.clone(),
            before: suite.before.clone(),
            after: suite.after.clone(),
            undo: suite.undo.clone(),
            started,
            environment: serde_json::to_value(machine()).unwrap_or_default(),
            counts,
            runs: self.records,
            cases,
        }
    }
}

impl Observed {
    fn of(&mut self, state: State) -> &mut Vec<Seen> {
        match state {
            State::Before => &mut self.before,
            State::After => &mut self.after,
        }
    }

    /// Records a new case as missing in the earlier complete runs.
    fn miss(&mut self, records: &[RunRecord]) {
        // The last record is the record of this run.
        let earlier = records.len().saturating_sub(1);
        for run in records[..earlier].iter().filter(|run| run.flaws.is_empty() && !run.again) {
            let state = if run.state == "before" { State::Before } else { State::After };
            self.of(state).push(Seen::Missing);
        }
    }
}

/// Builds the answer in a sentence. `restless`: the number of cases that are missing in some runs,
/// if there are many of these cases.
fn sentence(cases: &[CaseVerdict], restless: Option<usize>, ended: bool) -> String {
    let count = |verdict: Judged| cases.iter().filter(|case| case.verdict == verdict).count();
    let (broken, lost, flaky) = (count(Judged::Broken), count(Judged::Lost), count(Judged::Flaky));
    let all = cases.len();
    let mut parts = Vec::new();
    if !ended {
        parts.push("A run did not come to its end, so that cases may be absent.".to_owned());
    }
    if let Some(restless) = restless {
        parts.push(format!(
            "{restless} of {all} names of cases are missing in some runs: the suite must name its \
             cases alike in each run."
        ));
    }
    match (broken, lost) {
        (0, 0) => parts.push(format!("No case of {all} passes before and fails after.")),
        (broken, 0) => parts.push(format!("{broken} of {all} cases pass before and fail after.")),
        (0, lost) => parts
            .push(format!("{lost} of {all} cases pass before and are skipped or missing after.")),
        (broken, lost) => parts.push(format!(
            "{broken} of {all} cases pass before and fail after, and {lost} are skipped or missing \
             after."
        )),
    }
    if flaky > 0 && restless.is_none() {
        parts.push(format!("{flaky} are flaky: their result differs within one state."));
    }
    parts.join(" ")
}

/// Returns the order of the two states in the round `round`. Two successive rounds have the order
/// ABBA.
fn order(round: u32) -> [State; 2] {
    match round % 2 {
        0 => [State::Before, State::After],
        _ => [State::After, State::Before],
    }
}

/// Returns the name of a case for `--again`: without its variant, and for a part the name of the
/// whole case.
fn selector(name: &str) -> &str {
    let whole = name.split(" / ").next().unwrap_or(name);
    match whole.split_once(".pkt (") {
        Some((script, _)) => &whole[..script.len() + ".pkt".len()],
        None => whole,
    }
}

/// Returns the name without the working directory in front.
fn named(name: &str, here: &Path) -> String {
    let rest = here.to_str().filter(|here| here.len() > 1).and_then(|here| name.strip_prefix(here));
    rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(name).to_owned()
}

/// Builds a regular expression that matches only these names.
fn pattern(names: &[String]) -> String {
    let escaped = |name: &String| -> String {
        let escape = |char: char| match char {
            char if ".^$*+?()[]{}|\\".contains(char) => vec!['\\', char],
            char => vec![char],
        };
        name.chars().flat_map(escape).collect()
    };
    format!("^({})$", names.iter().map(escaped).collect::<Vec<_>>().join("|"))
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Maximum length of a command line: below the kernel's MAX_ARG_STRLEN of 128 KiB, with room for
/// the number of a run.
const LONGEST_LINE: usize = 120_000;
const RESULTS: &str = "{results}";
const CASES: &str = "{cases}";
const PATTERN: &str = "{pattern}";
