//! JUnit XML, as pytest, gtest, ctest, go-junit-report and others write it.

use super::super::case::{Case, Outcome, Parsed};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let mut reader = Reader::from_str(text);
    let mut parsed = Parsed::default();
    let mut is_report = false;
    let mut open: Option<Case> = None;
    let wrong = |error: &dyn std::fmt::Display| format!("this is no JUnit XML: {error}");
    loop {
        let event = reader.read_event().map_err(|error| wrong(&error))?;
        let (element, is_empty) = match &event {
            Event::Start(element) => (element, false),
            Event::Empty(element) => (element, true),
            Event::End(element) => {
                if element.local_name().as_ref() == b"testcase" {
                    parsed.cases.extend(open.take());
                }
                continue;
            }
            Event::Eof => break,
            _ => continue,
        };
        match element.local_name().as_ref() {
            b"testsuites" | b"testsuite" => is_report = true,
            b"testcase" => {
                let case = Case::new(&name(element)?, status(element)?);
                match is_empty {
                    true => parsed.cases.push(case),
                    false => open = Some(case),
                }
            }
            kind @ (b"failure" | b"error" | b"skipped") => {
                let Some(case) = open.take() else { continue };
                let outcome = match kind {
                    b"failure" => Outcome::Failed,
                    b"error" => Outcome::Broken,
                    _ => Outcome::Skipped,
                };
                open = Some(judged(case, outcome, &attribute(element, b"message")?));
            }
            _ => {}
        }
    }
    if let Some(case) = open {
        parsed.flaws.push(format!("the report ends within {}", units::foreign(&case.name)));
        parsed.cases.push(Case::new(&case.name, Outcome::Broken).because("it did not end"));
    }
    match is_report {
        true => Ok(parsed),
        false => Err(wrong(&"it has no <testsuite>")),
    }
}

/// Applies a further result to the case. A failure stays if a skip follows.
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

/// Reads the result from an attribute, as ctest and gtest also write it.
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
        Some(one) => one
            .unescape_value()
            .map(|value| value.into_owned())
            .map_err(|error| format!("this is no JUnit XML: {error}")),
    }
}

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
    fn a_truncated_junit_report_is_a_flaw_and_other_formats_are_refused() {
        assert!(parse("TAP version 13\nok 1\n").is_err());
        assert!(parse("<html><body/></html>").is_err());
        let cut = parse("<testsuite><testcase name=\"a\"/><testcase name=\"b\">");
        let parsed = cut.unwrap();
        assert!(parsed.flaws[0].contains("ends within b"), "{parsed:?}");
        assert_eq!(parsed.cases[1].outcome, Outcome::Broken);
    }
}
