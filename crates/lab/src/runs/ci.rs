//! The results of `weir lab ab`, `commands`, `check` and `suite` for continuous integration: JUnit
//! XML, and a summary in Markdown.

use super::ab::Answer;
use super::suite::{self, CaseVerdict, Judged};
use crate::analysis::check::{Checked, CheckedBound, CheckedCell};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use report::markdown::escape;
use stats::Verdict;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use units::{foreign, visible};

/// The report for a CI system: judged cases, and their summary for people.
#[derive(Debug, Clone, PartialEq)]
pub struct CiReport {
    suite: String,
    cases: Vec<Case>,
    summary: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Case {
    name: String,
    outcome: CaseOutcome,
    /// The details of the case, which a CI system shows on demand.
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum CaseOutcome {
    Passed,
    /// The measured answer differs from the answer that the user expects.
    Failed(String),
    /// This machine could not run the case.
    Skipped(String),
    /// The measurement itself failed.
    Broken(String),
}

/// The answer that the user expects, and whether the measurement gave this answer.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub name: &'a str,
    pub is_met: bool,
}

impl CiReport {
    /// Reports a comparison. `verb` is the name of the command, and `text` its output.
    pub fn of_answer(
        verb: &str,
        answer: &Answer,
        expected: Option<Expected<'_>>,
        text: &str,
        figure: impl Fn(f64) -> String,
    ) -> Self {
        let decision = &answer.decision;
        let outcome = match expected {
            Some(Expected { name, is_met: false }) => {
                CaseOutcome::Failed(format!("expected {name}: {decision}"))
            }
            _ => CaseOutcome::Passed,
        };
        let mut summary = format!("### {verb}: {}\n\n", outcome.word());
        let _ = writeln!(summary, "{decision}\n");
        summary += "| | measured | median |\n| --- | --- | ---: |\n";
        let sides = [
            ("without the change", &answer.base, decision.base_median),
            ("with the change", &answer.change, decision.change_median),
        ];
        for (side, name, median) in sides {
            let _ = writeln!(summary, "| {side} | {} | {} |", escape(name), figure(median));
        }
        summary += "\n";
        if let Some(expected) = expected {
            let _ = write!(summary, "Expected: {}. ", expected.name);
        }
        if decision.verdict == Verdict::Undecided {
            summary += "An undecided answer is neither better nor worse. ";
        }
        summary += FALSE_ALARMS;
        let name = foreign(format_args!("{} against {}", answer.change, answer.base)).to_string();
        let case = Case { name, outcome, text: text.to_owned() };
        Self { suite: verb.to_owned(), cases: vec![case], summary }
    }

    /// Reports a measurement that gave no answer.
    pub fn of_failure(verb: &str, base: &str, change: &str, reason: &str) -> Self {
        let reason = foreign(reason).up_to(LONGEST_REASON).to_string();
        let summary = format!("### {verb}: not measured\n\n{}\n", escape(&reason));
        let name = foreign(format_args!("{change} against {base}")).to_string();
        let case = Case { name, outcome: CaseOutcome::Broken(reason), text: String::new() };
        Self { suite: verb.to_owned(), cases: vec![case], summary }
    }

    /// Reports a check of bounds. `run` is the directory that was checked.
    pub fn of_check(verb: &str, checked: &Checked, run: &str) -> Self {
        let mut cases = vec![validity(checked)];
        for bound in &checked.bounds {
            cases.extend(bound.cells.iter().map(|cell| of_cell(bound, cell)));
            if bound.cells.iter().all(|cell| cell.not_run) {
                let reason = "this machine could run no cell of the bound".to_owned();
                let name = foreign(&bound.bound).to_string();
                let outcome = CaseOutcome::Failed(reason);
                cases.push(Case { name, outcome, text: String::new() });
            }
        }
        let word = if checked.holds() { "passed" } else { "failed" };
        let mut summary = format!("### {verb}: {word}\n\nRun: {}\n\n", escape(run));
        for reason in &checked.invalid {
            let _ = writeln!(summary, "The run is not valid: {}\n", escape(reason));
        }
        summary += "| bound | cell | value | |\n| --- | --- | ---: | --- |\n";
        let rows =
            checked.bounds.iter().flat_map(|bound| bound.cells.iter().map(move |c| (bound, c)));
        let all = rows.clone().count();
        for (bound, cell) in rows.take(MOST_ROWS) {
            let value = match (cell.value, &cell.reason) {
                (Some(value), _) => report::number::format(value),
                (None, reason) => escape(reason.as_deref().unwrap_or("–")),
            };
            let word = match (cell.not_run, cell.holds) {
                (true, _) => "not run",
                (_, true) => "holds",
                (_, false) => "**does not hold**",
            };
            let _ = writeln!(
                summary,
                "| {} | {} | {value} | {word} |",
                escape(&bound.bound),
                escape(&cell.cell)
            );
        }
        if all > MOST_ROWS {
            let _ = writeln!(summary, "\n{} more rows are left out.", all - MOST_ROWS);
        }
        Self { suite: verb.to_owned(), cases, summary }
    }

    /// Reports a conformance suite before and after a change. The report has the cases with a
    /// verdict: all other cases pass, or are skipped, in both states.
    pub fn of_suite(verb: &str, answer: &suite::Answer) -> Self {
        let ended = match answer.complete {
            true => CaseOutcome::Passed,
            false => {
                let reason = foreign(&answer.answer).up_to(LONGEST_REASON).to_string();
                CaseOutcome::Failed(reason)
            }
        };
        let name = "each run came to its end".to_owned();
        let ended = Case { name, outcome: ended, text: String::new() };
        let cases = std::iter::once(ended).chain(answer.cases.iter().map(of_suite_case));
        let word = match answer.complete && !answer.regression {
            true => "passed",
            false => "failed",
        };
        let mut summary = format!("### {verb}: {word}\n\n{}\n\n", escape(&answer.answer));
        summary += "| cases | before | after |\n| --- | ---: | ---: |\n";
        let (before, after) = (answer.counts.before.cases, answer.counts.after.cases);
        for (name, before, after) in [
            ("passed", before.passed, after.passed),
            ("failed", before.failed, after.failed),
            ("broken", before.broken, after.broken),
            ("skipped", before.skipped, after.skipped),
        ] {
            let _ = writeln!(summary, "| {name} | {before} | {after} |");
        }
        let broken = answer.cases.iter().filter(|case| case.verdict.is_regression());
        let all = broken.clone().count();
        for (place, case) in broken.take(MOST_ROWS).enumerate() {
            let gap = if place == 0 { "\n" } else { "" };
            let name = foreign(&case.name).to_string();
            let _ = writeln!(summary, "{gap}- {}: {}", escape(&name), case.tally());
        }
        if all > MOST_ROWS {
            let _ = writeln!(summary, "\n{} more cases are left out.", all - MOST_ROWS);
        }
        Self { suite: verb.to_owned(), cases: cases.collect(), summary }
    }

    /// Returns the summary in Markdown.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Writes JUnit XML: one suite, one case for each comparison or each bound and cell.
    pub fn junit(&self) -> io::Result<String> {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let count = |is: fn(&CaseOutcome) -> bool| {
            self.cases.iter().filter(|case| is(&case.outcome)).count().to_string()
        };
        let counts = [
            ("tests", self.cases.len().to_string()),
            ("failures", count(|outcome| matches!(outcome, CaseOutcome::Failed(_)))),
            ("errors", count(|outcome| matches!(outcome, CaseOutcome::Broken(_)))),
            ("skipped", count(|outcome| matches!(outcome, CaseOutcome::Skipped(_)))),
        ];
        let counts = || counts.iter().map(|(name, value)| (*name, value.as_str()));
        writer.create_element("testsuites").with_attributes(counts()).write_inner_content(
            |writer| {
                let suite = writer.create_element("testsuite");
                let suite = suite.with_attribute(("name", self.suite.as_str()));
                suite.with_attributes(counts()).write_inner_content(|writer| {
                    self.cases.iter().try_for_each(|case| case.write(&self.suite, writer))
                })?;
                Ok(())
            },
        )?;
        writer.get_mut().write_all(b"\n")?;
        String::from_utf8(writer.into_inner()).map_err(io::Error::other)
    }
}

impl Case {
    fn write(&self, suite: &str, writer: &mut Writer<Vec<u8>>) -> io::Result<()> {
        let class = suite.replace(' ', ".");
        let attributes = [("classname", class), ("name", in_xml(&self.name))];
        let case = writer.create_element("testcase");
        let case = case.with_attributes(attributes.iter().map(|(name, v)| (*name, v.as_str())));
        let (element, message) = match &self.outcome {
            CaseOutcome::Passed => ("system-out", None),
            CaseOutcome::Failed(message) => ("failure", Some(message)),
            CaseOutcome::Skipped(message) => ("skipped", Some(message)),
            CaseOutcome::Broken(message) => ("error", Some(message)),
        };
        // GitLab shows the element's text and not the element's message.
        let parts = [message.map_or("", String::as_str), self.text.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let text = in_xml(&parts.join("\n\n"));
        if message.is_none() && text.is_empty() {
            case.write_empty()?;
            return Ok(());
        }
        case.write_inner_content(|writer| {
            let message = message.map(|message| in_xml(message));
            let child = writer.create_element(element);
            let child = child.with_attributes(message.iter().map(|m| ("message", m.as_str())));
            match text.is_empty() {
                true => child.write_empty()?,
                false => child.write_text_content(BytesText::new(&text))?,
            };
            Ok(())
        })?;
        Ok(())
    }
}

impl CaseOutcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::Broken(_) => "not measured",
        }
    }
}

fn validity(checked: &Checked) -> Case {
    let outcome = match checked.invalid.is_empty() {
        true => CaseOutcome::Passed,
        false => {
            let reasons = foreign(checked.invalid.join("; ")).up_to(LONGEST_REASON).to_string();
            CaseOutcome::Failed(reasons)
        }
    };
    Case { name: "the run is valid".to_owned(), outcome, text: String::new() }
}

fn of_cell(bound: &CheckedBound, cell: &CheckedCell) -> Case {
    let reason = || match (cell.value, &cell.reason) {
        (Some(value), _) => report::number::format(value),
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("the cell has no figure");
            foreign(reason).up_to(LONGEST_REASON).to_string()
        }
    };
    let outcome = match (cell.not_run, cell.holds) {
        (true, _) => CaseOutcome::Skipped(reason()),
        (_, true) => CaseOutcome::Passed,
        (_, false) => CaseOutcome::Failed(reason()),
    };
    let text = match cell.cpu_limited {
        true => "next to no CPU was idle, so the figure may be the machine's".to_owned(),
        false => String::new(),
    };
    let name = foreign(format_args!("{}: {}", bound.bound, cell.cell)).to_string();
    Case { name, outcome, text }
}

fn of_suite_case(case: &CaseVerdict) -> Case {
    let reason = case.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let told = format!("{}: {}{reason}", suite::meaning(case.verdict), case.tally());
    let told = foreign(told).up_to(LONGEST_REASON).to_string();
    let outcome = match case.verdict {
        verdict if verdict.is_regression() => CaseOutcome::Failed(told),
        Judged::Mended | Judged::Gained => CaseOutcome::Passed,
        _ => CaseOutcome::Skipped(told),
    };
    let name = foreign(&case.name).up_to(LONGEST_REASON).to_string();
    Case { name, outcome, text: String::new() }
}

/// Removes the characters that XML 1.0 excludes (section 2.2).
fn in_xml(text: &str) -> String {
    visible(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

const FALSE_ALARMS: &str =
    "In at most 1 % of the runs of two equal states the answer is better or worse.\n";
/// Maximum number of rows of a summary: GitHub refuses more than 1 MiB.
const MOST_ROWS: usize = 500;
const LONGEST_REASON: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::suite::Parser;

    fn checked() -> Checked {
        let cell = |name: &str, value, holds, not_run| CheckedCell {
            cell: name.to_owned(),
            value,
            holds,
            reason: value.is_none().then(|| "it broke: <a> & \"b\" \u{1b}[2J".to_owned()),
            not_run,
            cpu_limited: false,
        };
        Checked {
            invalid: Vec::new(),
            bounds: vec![
                CheckedBound {
                    bound: "goodput_mbit_s[new/old] >= 0.95".to_owned(),
                    holds: false,
                    cells: vec![
                        cell("new/old [loss=0%]", Some(0.97), true, false),
                        cell("new/old [loss=1%]", Some(0.94), false, false),
                        cell("new/old [loss=5%]", None, false, false),
                        cell("new/old [loss=9%]", None, false, true),
                    ],
                },
                CheckedBound {
                    bound: "jain >= 0.9".to_owned(),
                    holds: false,
                    cells: vec![cell("a|b", None, false, true)],
                },
            ],
        }
    }

    #[test]
    fn each_bound_and_cell_is_a_junit_case() {
        let report = CiReport::of_check("weir lab check", &checked(), "runs/x");
        let xml = report.junit().unwrap();
        assert!(
            xml.contains(r#"<testsuites tests="7" failures="3" errors="0" skipped="2">"#),
            "{xml}"
        );
        assert!(xml.contains("&lt;a&gt; &amp; &quot;b&quot; \\x1b[2J"), "{xml}");
        assert!(!xml.contains('\u{1b}'), "{xml}");
        let read = Parser::Junit.parse(&xml).unwrap();
        let outcomes: Vec<String> =
            read.cases.iter().map(|case| format!("{:?} {}", case.outcome, case.name)).collect();
        assert_eq!(outcomes.len(), 7, "{outcomes:?}");
        assert!(
            outcomes[2].starts_with("Failed") && outcomes[2].contains("loss=1%"),
            "{outcomes:?}"
        );
        assert!(outcomes[4].starts_with("Skipped"), "{outcomes:?}");
        assert!(outcomes[6].starts_with("Failed"), "a bound over no cell: {outcomes:?}");
        let summary = report.summary();
        assert!(summary.starts_with("### weir lab check: failed\n"), "{summary}");
        assert!(summary.contains("| 0.940 | **does not hold** |"), "{summary}");
        assert!(summary.contains(r"a\|b"), "{summary}");
    }

    #[test]
    fn a_failed_measurement_is_an_error_of_its_junit_case() {
        let report =
            CiReport::of_failure("weir lab ab", "old", "new", "turn 3 of `new`: no number");
        let xml = report.junit().unwrap();
        assert!(
            xml.contains(r#"<testcase classname="weir.lab.ab" name="new against old">"#),
            "{xml}"
        );
        let error =
            "<error message=\"turn 3 of `new`: no number\">turn 3 of `new`: no number</error>";
        assert!(xml.contains(error), "{xml}");
        assert!(report.summary().contains("not measured"));
    }

    fn answer(factor: f64) -> Answer {
        let plan = stats::ab::Plan::new(stats::Direction::HigherIsBetter, 1);
        let mut decider = stats::ab::Decider::new(plan).unwrap();
        while let Some(state) = decider.next_state() {
            let value = if state == stats::ab::State::Base { 100.0 } else { 100.0 * factor };
            decider.observe(state, value).unwrap();
        }
        Answer {
            base: "old".to_owned(),
            change: "new".to_owned(),
            decision: decider.decision().unwrap(),
            repeated: super::super::ab::Repeated::default(),
            observations: Vec::new(),
        }
    }

    #[test]
    fn a_junit_case_passes_unless_another_answer_is_expected() {
        let of = |expected| {
            let figure = |value| format!("{value} Mbit/s");
            CiReport::of_answer("weir lab ab", &answer(0.5), expected, "the output", figure)
        };
        let expected = |is_met| Some(Expected { name: "not worse", is_met });
        for (expected, word) in [(None, "passed"), (expected(true), "passed")] {
            let report = of(expected);
            assert_eq!(report.cases[0].outcome, CaseOutcome::Passed);
            assert!(report.summary().starts_with(&format!("### weir lab ab: {word}\n")));
        }
        let report = of(expected(false));
        let CaseOutcome::Failed(reason) = &report.cases[0].outcome else { panic!("{report:?}") };
        assert!(reason.starts_with("expected not worse: ▼ worse: -50.00 %"), "{reason}");
        let summary = report.summary();
        for part in [
            "### weir lab ab: failed\n",
            "| without the change | old | 100 Mbit/s |\n| with the change | new | 50 Mbit/s |\n",
            "Expected: not worse. In at most 1 %",
        ] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
        let mut open = answer(1.0);
        open.decision.verdict = Verdict::Undecided;
        let report = CiReport::of_answer("weir lab ab", &open, None, "", |value| value.to_string());
        assert!(report.summary().contains("An undecided answer is neither"), "{report:?}");
    }

    #[test]
    fn only_a_case_that_the_change_broke_fails_in_the_report_of_a_suite() {
        use crate::runs::suite::{Checks, Counts, Outcome, Seen, Side};
        let case = |name: &str, verdict, after| CaseVerdict {
            name: name.to_owned(),
            verdict,
            before: vec![Seen::As(Outcome::Passed)],
            after: vec![after],
            reason: Some("1 < 2".to_owned()),
        };
        let side = |passed| {
            let cases = Checks { passed, ..Checks::default() };
            Side { cases, checks: cases }
        };
        let mut answer = suite::Answer {
            answer: "1 of 9 cases passes before and fails after.".to_owned(),
            regression: true,
            complete: true,
            parser: "tap",
            command: String::new(),
            suite: Vec::new(),
            before: None,
            after: String::new(),
            undo: None,
            started: String::new(),
            environment: serde_json::Value::Null,
            counts: Counts { before: side(9), after: side(8) },
            runs: Vec::new(),
            cases: vec![
                case("breaks", Judged::Broken, Seen::As(Outcome::Failed)),
                case("gone", Judged::Lost, Seen::Missing),
                case("flaky", Judged::Flaky, Seen::As(Outcome::Failed)),
                case("mended", Judged::Mended, Seen::As(Outcome::Passed)),
            ],
        };
        let report = CiReport::of_suite("weir lab suite", &answer);
        let xml = report.junit().unwrap();
        let counts = r#"<testsuites tests="5" failures="2" errors="0" skipped="1">"#;
        assert!(xml.contains(counts), "{xml}");
        let reason = "Pass before and fail after: passed 1 of 1 before, 0 of 1 after: 1 &lt; 2";
        assert!(xml.contains(reason), "{xml}");
        let summary = report.summary();
        assert!(summary.starts_with("### weir lab suite: failed\n\n1 of 9 cases"), "{summary}");
        assert!(summary.contains("| passed | 9 | 8 |"), "{summary}");
        assert!(summary.contains("\n- breaks: passed 1 of 1 before"), "{summary}");
        assert!(!summary.contains("flaky"), "{summary}");
        (answer.complete, answer.regression) = (false, false);
        answer.cases.clear();
        let report = CiReport::of_suite("weir lab suite", &answer);
        assert!(report.summary().starts_with("### weir lab suite: failed"));
        assert!(report.junit().unwrap().contains(r#"failures="1""#));
    }

    #[test]
    fn a_summary_has_at_most_500_rows() {
        let summary = |rows: usize| {
            let mut checked = checked();
            checked.bounds.truncate(1);
            let cell = || CheckedCell {
                cell: "x".to_owned(),
                value: Some(1.0),
                holds: true,
                reason: None,
                not_run: false,
                cpu_limited: false,
            };
            checked.bounds[0].cells = (0..rows).map(|_| cell()).collect();
            CiReport::of_check("weir lab check", &checked, "runs/x").summary().to_owned()
        };
        for (rows, listed, more) in [(500, 500, None), (503, 500, Some("3 more rows are left out"))]
        {
            let text = summary(rows);
            assert_eq!(text.matches("| holds |").count(), listed);
            assert_eq!(text.contains("left out"), more.is_some(), "{rows}");
            assert!(more.is_none_or(|more| text.contains(more)), "{rows}");
        }
    }
}
