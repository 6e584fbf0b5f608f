//! Parses the JSON report of kirk (`kirk --json-report FILE`), LTP's present runner.

use super::super::case::{Case, Checks, Outcome, Parsed};
use super::plain;
use serde::Deserialize;

pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let report: Report = serde_json::from_str(text)
        .map_err(|error| format!("this is no JSON report of kirk: {error}"))?;
    let mut parsed = Parsed::default();
    for result in report.results {
        let status = result.status.as_ref().unwrap_or(&result.test.result);
        let (outcome, warned) = match status.as_str() {
            "pass" => (Outcome::Passed, false),
            "fail" => (Outcome::Failed, false),
            "warn" => (Outcome::Failed, true),
            "brok" => (Outcome::Broken, false),
            "conf" => (Outcome::Skipped, false),
            other => {
                let other = units::foreign(other);
                return Err(format!("the report has a test with the status `{other}`"));
            }
        };
        let mut case = Case::new(&result.test_fqn, outcome);
        let counted = result.test.checks();
        if counted != Checks::default() {
            case.checks = counted;
        }
        let reason = reason(&result.test.log).or_else(|| warned.then(|| "it warned".to_owned()));
        parsed.cases.push(match reason.filter(|_| outcome != Outcome::Passed) {
            Some(reason) => case.because(&reason),
            None => case,
        });
    }
    let passed = parsed.cases.iter().map(|case| case.checks.passed);
    let ended = passed.fold(0_u64, u64::saturating_add);
    if let Some(passed) = report.stats.and_then(|stats| stats.passed)
        && passed != ended
    {
        parsed
            .flaws
            .push(format!("kirk counts {passed} passed checks, and its tests have {ended}"));
    }
    Ok(parsed)
}

/// Finds the first line of a test's log that reports a failure, or else a skip or a warning.
fn reason(log: &str) -> Option<String> {
    let find = |kinds: &[&str]| {
        log.lines().map(plain).find_map(|line| {
            let at = kinds.iter().find_map(|kind| line.find(kind))?;
            Some(line[at..].to_owned())
        })
    };
    find(&["TFAIL", "TBROK"]).or_else(|| find(&["TCONF", "TWARN"]))
}

#[derive(Debug, Deserialize)]
struct Report {
    results: Vec<TestResult>,
    stats: Option<Stats>,
}

#[derive(Debug, Deserialize)]
struct Stats {
    passed: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct TestResult {
    test_fqn: String,
    /// The test's status. `None` in reports that have the result in `test`.
    status: Option<String>,
    #[serde(default)]
    test: Test,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Test {
    result: String,
    log: String,
    passed: u64,
    failed: u64,
    broken: u64,
    skipped: u64,
    warnings: u64,
}

impl Test {
    fn checks(&self) -> Checks {
        Checks {
            passed: self.passed,
            failed: self.failed,
            broken: self.broken,
            skipped: self.skipped,
            warnings: self.warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kirk_report_tests_are_cases() {
        let text = r#"{
    "results": [
        {"test_fqn": "accept01", "status": "pass", "test": {"command": "accept01", "arguments": [],
         "log": "accept01.c:78: TPASS: EBADF (9)\n", "retval": ["0"], "duration": 0.1, "failed": 0,
         "passed": 6, "broken": 0, "skipped": 0, "warnings": 0, "result": "pass"}},
        {"test_fqn": "sctp01", "status": "conf", "test": {"log": "x.c:1: TCONF: no sctp\n",
         "retval": ["32"], "skipped": 1}},
        {"test_fqn": "bind01", "status": "fail", "test": {"log":
         "b.c:1: TPASS: one\nb.c:9: \u001b[1;31mTFAIL: \u001b[0mtwo\n", "passed": 1, "failed": 1}}
    ],
    "stats": {"runtime": 1.5, "passed": 7, "failed": 1, "broken": 0, "skipped": 1, "warnings": 0},
    "environment": {"kernel": "6.6.0"}
}"#;
        let parsed = parse(text).unwrap();
        assert_eq!(
            parsed.told(),
            [
                ("accept01", Outcome::Passed, None),
                ("sctp01", Outcome::Skipped, Some("TCONF: no sctp")),
                ("bind01", Outcome::Failed, Some("TFAIL: two")),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn other_formats_and_unknown_kirk_statuses_are_refused() {
        assert!(parse("ok 1\n").unwrap_err().contains("no JSON report of kirk"));
        let odd = r#"{"results": [{"test_fqn": "a", "status": "odd"}]}"#;
        assert!(parse(odd).unwrap_err().contains("status `odd`"));
        let without = r#"{"results": [{"test_fqn": "a"}]}"#;
        assert!(parse(without).unwrap_err().contains("status ``"));
        let of_test = r#"{"results": [{"test_fqn": "a", "test": {"result": "conf"}}]}"#;
        assert_eq!(parse(of_test).unwrap().told(), [("a", Outcome::Skipped, None)]);
    }
}
