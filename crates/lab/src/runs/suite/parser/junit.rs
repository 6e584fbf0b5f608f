//! Parses JUnit XML of pytest, gtest, ctest, go-junit-report and other programs.

use super::super::case::{Case, Outcome, Parsed};
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use std::fmt::Display;

pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let mut reader = Reader::from_str(text);
    let mut report = Report::default();
    loop {
        match reader.read_event().map_err(|error| wrong(&error))? {
            Event::Start(element) => report.start(&element, false)?,
            Event::Empty(element) => report.start(&element, true)?,
            Event::End(element) => report.end(element.local_name().as_ref()),
            Event::Text(text) => report.text(&text.decode().map_err(|error| wrong(&error))?),
            Event::CData(text) => report.text(&text.decode().map_err(|error| wrong(&error))?),
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|error| wrong(&error))?;
                let written = format!("&{name};");
                report.text(unescape(&written).as_deref().unwrap_or(written.as_str()));
            }
            Event::Eof => return report.finish(),
            _ => {}
        }
    }
}

/// The parser's state after the elements read so far.
#[derive(Debug, Default)]
struct Report {
    parsed: Parsed,
    is_report: bool,
    /// Number of suites that have begun and not ended.
    suites: usize,
    open: Option<Case>,
    /// The text so far of a failure, an error or a skip without a message.
    told: Option<String>,
}

impl Report {
    fn start(&mut self, element: &BytesStart<'_>, is_empty: bool) -> Result<(), String> {
        match element.local_name().as_ref() {
            b"testsuites" | b"testsuite" => {
                self.is_report = true;
                self.suites += usize::from(!is_empty);
            }
            b"testcase" => {
                let case = Case::new(&name(element)?, status(element)?);
                match is_empty {
                    true => self.parsed.cases.push(case),
                    false => self.open = Some(case),
                }
            }
            kind @ (b"failure" | b"error" | b"skipped") => {
                let Some(case) = self.open.take() else { return Ok(()) };
                let outcome = match kind {
                    b"failure" => Outcome::Failed,
                    b"error" => Outcome::Broken,
                    _ => Outcome::Skipped,
                };
                let case = judged(case, outcome, &attribute(element, b"message")?);
                self.told = (case.reason.is_none() && !is_empty).then(String::new);
                self.open = Some(case);
            }
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if let Some(told) = self.told.as_mut().filter(|told| told.len() < LONGEST_TEXT) {
            told.push_str(text);
        }
    }

    fn end(&mut self, element: &[u8]) {
        match element {
            b"testsuites" | b"testsuite" => self.suites = self.suites.saturating_sub(1),
            b"testcase" => self.parsed.cases.extend(self.open.take()),
            b"failure" | b"error" | b"skipped" => {
                if let Some(text) = self.told.take() {
                    self.open = self.open.take().map(|case| case.because(&text));
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Result<Parsed, String> {
        if let Some(case) = self.open {
            let name = units::foreign(&case.name);
            self.parsed.flaws.push(format!("the report ends within {name}"));
            let broken = Case::new(&case.name, Outcome::Broken).because("it did not end");
            self.parsed.cases.push(broken);
        } else if self.suites > 0 {
            self.parsed.flaws.push("the report ends within a suite".to_owned());
        }
        match self.is_report {
            true => Ok(self.parsed),
            false => Err(wrong(&"it has no <testsuite>")),
        }
    }
}

fn wrong(error: &dyn Display) -> String {
    format!("this is no JUnit XML: {error}")
}

/// Applies a further result to the case. A failed case stays failed after a skip.
fn judged(case: Case, outcome: Outcome, message: &str) -> Case {
    if case.outcome.is_bad() && outcome == Outcome::Skipped {
        return case;
    }
    Case::new(&case.name, outcome).because(message)
}

fn name(element: &BytesStart<'_>) -> Result<String, String> {
    let (class, name) = (attribute(element, b"classname")?, attribute(element, b"name")?);
    Ok(match (class.is_empty(), name.is_empty()) {
        (true, true) => "a case without a name".to_owned(),
        (true, false) => name,
        (false, true) => class,
        (false, false) => format!("{class}.{name}"),
    })
}

/// Reads the result from the attribute `status`, which ctest and gtest write.
fn status(element: &BytesStart<'_>) -> Result<Outcome, String> {
    Ok(match attribute(element, b"status")?.as_str() {
        "notrun" | "disabled" | "skipped" => Outcome::Skipped,
        "fail" | "failed" => Outcome::Failed,
        _ => Outcome::Passed,
    })
}

fn attribute(element: &BytesStart<'_>, name: &[u8]) -> Result<String, String> {
    let found = element.attributes().flatten().find(|one| one.key.local_name().as_ref() == name);
    match found {
        None => Ok(String::new()),
        Some(one) => {
            one.unescape_value().map(|value| value.into_owned()).map_err(|error| wrong(&error))
        }
    }
}

/// Maximum length of a text in bytes, with some excess: only its first line is the reason.
const LONGEST_TEXT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_cases_have_their_results_and_messages() {
        let text = r#"<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
<testcase classname="net.test_tcp" name="test_open" time="0.1"/>
<testcase classname="net.test_tcp" name="test_read[&lt;1&gt;]" time="0.2">
<failure message="assert 1 == 2&#10;more">trace &amp; more</failure></testcase>
<testcase name="alone"><skipped type="pytest.skip" message="no root"/></testcase>
<testcase name="breaks"><error message="fixture failed">text</error><system-out>x</system-out>
</testcase>
<testcase name="off" status="notrun"/>
</testsuite></testsuites>"#;
        let parsed = parse(text).unwrap();
        assert_eq!(
            parsed.told(),
            [
                ("net.test_tcp.test_open", Outcome::Passed, None),
                ("net.test_tcp.test_read[<1>]", Outcome::Failed, Some("assert 1 == 2")),
                ("alone", Outcome::Skipped, Some("no root")),
                ("breaks", Outcome::Broken, Some("fixture failed")),
                ("off", Outcome::Skipped, None),
            ]
        );
    }

    #[test]
    fn the_text_of_a_junit_failure_without_a_message_is_its_reason() {
        let text = "<testsuite><testsuite><testcase name=\"a\"><failure>\n  1 &lt; 2 &amp;&amp; more\nsecond\
                    </failure></testcase><testcase name=\"b\"><error type=\"x\"><![CDATA[no <disk>]]></error>\
                    </testcase></testsuite><testcase name=\"c\"><skipped/></testcase>\
                    <testcase><failure message=\"short\">long</failure></testcase></testsuite>";
        let parsed = parse(text).unwrap();
        assert_eq!(
            parsed.told(),
            [
                ("a", Outcome::Failed, Some("1 < 2 && more")),
                ("b", Outcome::Broken, Some("no <disk>")),
                ("c", Outcome::Skipped, None),
                ("a case without a name", Outcome::Failed, Some("short")),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn a_truncated_junit_report_is_a_flaw_and_other_formats_are_refused() {
        assert!(parse("TAP version 13\nok 1\n").is_err());
        assert!(parse("<html><body/></html>").is_err());
        let cut = parse("<testsuite><testcase name=\"a\"/><testcase name=\"b\">");
        let parsed = cut.unwrap();
        assert!(parsed.flaws[0].contains("ends within b"), "{parsed:?}");
        assert_eq!(parsed.cases[1].outcome, Outcome::Broken);
        let cut = parse("<testsuites><testsuite><testcase name=\"a\"/></testsuite>").unwrap();
        assert_eq!(cut.flaws, ["the report ends within a suite"]);
    }
}
