//! The answer as text for a terminal and for `report.md`.

use super::answer::{Answer, CaseVerdict, RunRecord};
use super::case::Checks;
use super::judge::Judged;
use std::fmt::Write;
use units::{foreign, shown};

/// The examples in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab suite --parser packetdrill \\
      --after 'weir accel enable tcpa --all' --undo 'weir accel disable' \\
      --again './again {cases}' \\
      -- ./packetdrill/run_all.py -S -v -l tcp/
  weir lab suite --parser kirk --before 'sysctl -w net.ipv4.tcp_ecn=2' \\
      --after 'sysctl -w net.ipv4.tcp_ecn=1' \\
      -- kirk --framework ltp --run-suite net.ipv6 --json-report {results}
  weir lab suite --parser tap --before true --after true -- ./my-suite

--before, --after and --undo are lines for the shell. The suite runs in both states, in the order
before, after, after, before … where it is repeated. Cases that failed or changed run again in both
states: only they with --again, otherwise the whole suite. A case is broken if it passed in each run
before and failed in each run after, and flaky if its result differs within one state. {results} is
a new file for the suite's results, {cases} are the names of the cases for the shell, and {pattern}
is a regular expression for them. Exit status 1: a case that passes before fails, is skipped or is
missing after, or a run did not come to its end. However the command ends, --undo and --before bring
the machine into its first state.";

/// Renders the answer for a terminal.
pub fn text(answer: &Answer) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", answer.answer);
    for row in table(answer) {
        let _ = writeln!(out, "{:<18}{:>10}{:>10}", row[0], row[1], row[2]);
    }
    let _ = writeln!(out);
    for run in &answer.runs {
        let _ = writeln!(out, "{}", told(run));
    }
    for (verdict, title) in SECTIONS {
        let cases: Vec<&CaseVerdict> = answer.of(*verdict).collect();
        if cases.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{title} ({})", cases.len());
        for case in cases.iter().take(MOST_SHOWN) {
            let _ = writeln!(out, "  {}", line(case));
        }
        if cases.len() > MOST_SHOWN {
            let _ = writeln!(out, "  and {} more in suite.json", cases.len() - MOST_SHOWN);
        }
    }
    out
}

/// Renders the answer as Markdown, with all cases.
pub(super) fn markdown(answer: &Answer) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# Conformance\n\n{}\n", answer.answer);
    let _ = writeln!(out, "| | before | after |\n|---|---:|---:|");
    for [name, before, after] in table(answer).iter().skip(1) {
        let _ = writeln!(out, "| {name} | {before} | {after} |");
    }
    let code = |text: &str| format!("`{}`", foreign(text).up_to(1_000));
    let _ = writeln!(out, "\n- suite: {}", code(&answer.suite.join(" ")));
    if let Some(before) = &answer.before {
        let _ = writeln!(out, "- before: {}", code(before));
    }
    let _ = writeln!(out, "- after: {}", code(&answer.after));
    if let Some(undo) = &answer.undo {
        let _ = writeln!(out, "- undo: {}", code(undo));
    }
    let _ = writeln!(out, "- started: {}\n- command: {}\n", answer.started, code(&answer.command));
    let _ = writeln!(out, "## Runs\n");
    for run in &answer.runs {
        let _ = writeln!(out, "- {} ({})", told(run), run.output);
    }
    for (verdict, title) in SECTIONS {
        let mut cases = answer.of(*verdict).peekable();
        if cases.peek().is_some() {
            let _ = writeln!(out, "\n## {title}\n");
        }
        for case in cases {
            let _ = writeln!(out, "- {}", line(case));
        }
    }
    out
}

/// Builds the table with the counts of the first run in each state, in the rows of the CAQM report.
fn table(answer: &Answer) -> Vec<[String; 3]> {
    let (before, after) = (&answer.counts.before, &answer.counts.after);
    let mut rows = vec![["", "before", "after"].map(str::to_owned)];
    let mut put = |name: &str, of: fn(&Checks) -> u64, sides: [&Checks; 2], always: bool| {
        let [left, right] = sides.map(of);
        if always || left > 0 || right > 0 {
            rows.push([name.to_owned(), left.to_string(), right.to_string()]);
        }
    };
    let cases = [&before.cases, &after.cases];
    put("Passed cases", |one| one.passed, cases, true);
    put("Failed cases", |one| one.failed, cases, true);
    put("Broken cases", |one| one.broken, cases, false);
    put("Skipped cases", |one| one.skipped, cases, true);
    if before.checks != before.cases || after.checks != after.cases {
        let checks = [&before.checks, &after.checks];
        put("Passed checks", |one| one.passed, checks, true);
        put("Failed checks", |one| one.failed, checks, true);
        put("Broken checks", |one| one.broken, checks, false);
        put("Skipped checks", |one| one.skipped, checks, true);
        put("Warnings", |one| one.warnings, checks, false);
    }
    rows
}

fn told(run: &RunRecord) -> String {
    let RunRecord { state, number, counts, .. } = run;
    let again = if run.again { ", the doubtful cases" } else { "" };
    let bad = counts.cases.failed + counts.cases.broken;
    let mut text = format!(
        "{state}, run {number}{again}: {} passed, {bad} failed, {} skipped in {}; the suite {}",
        counts.cases.passed,
        counts.cases.skipped,
        shown::seconds(run.seconds),
        run.ended
    );
    for flaw in &run.flaws {
        let _ = write!(text, "; {}", foreign(flaw));
    }
    text
}

fn line(case: &CaseVerdict) -> String {
    let mut text = format!("{}: {}", foreign(&case.name).up_to(1_000), case.tally());
    let is_told = !matches!(case.verdict, Judged::Mended | Judged::Gained);
    if let Some(reason) = case.reason.as_ref().filter(|_| is_told) {
        let _ = write!(text, " ({})", foreign(reason));
    }
    text
}

/// Returns the meaning of a verdict. Empty for a case that passes, or is skipped, in both states.
pub(in crate::runs) fn meaning(verdict: Judged) -> &'static str {
    SECTIONS.iter().find(|(one, _)| *one == verdict).map_or("", |(_, title)| title)
}

const SECTIONS: &[(Judged, &str)] = &[
    (Judged::Broken, "Pass before and fail after"),
    (Judged::Lost, "Pass before, are skipped or missing after"),
    (Judged::NotReached, "Not reached in one state"),
    (Judged::Flaky, "Flaky"),
    (Judged::FailsNow, "Skipped or missing before, fail after"),
    (Judged::FailsInBoth, "Fail before and after"),
    (Judged::NoLongerRun, "Fail before, are skipped or missing after"),
    (Judged::Mended, "Fail before and pass after"),
    (Judged::Gained, "Skipped or missing before, pass after"),
];
const MOST_SHOWN: usize = 30;
