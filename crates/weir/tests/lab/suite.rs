//! `weir lab suite` with suites that are shell scripts: results, and scripts that misbehave.

use crate::support::{CommandOutput, Sandbox, await_some};
use serde_json::Value;
use testing::Attempt;

/// A suite in TAP whose second case fails if the file `changed` exists, and whose third case fails
/// at each second run.
const SUITE: &str = "\
echo run >>runs; count=$(wc -l <runs); echo 1..4; echo 'ok 1 - always'
[ -e changed ] && echo 'not ok 2 - breaks' || echo 'ok 2 - breaks'
[ $((count % 3)) = 2 ] && echo 'not ok 3 - flaky' || echo 'ok 3 - flaky'
echo 'not ok 4 - never'
";

fn suite(sandbox: &Sandbox, options: &[&str], script: &str) -> CommandOutput {
    sandbox.write("suite.sh", script);
    let words =
        ["lab", "suite", "--out", "run", "--after", "touch changed", "--undo", "rm changed"];
    let words: Vec<&str> =
        words.iter().chain(options).chain(&["--", "sh", "./suite.sh"]).copied().collect();
    sandbox.weir(&words)
}

fn answer(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn verdict<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let cases = answer["cases"].as_array().unwrap();
    cases.iter().find(|case| case["name"] == name).map_or(&Value::Null, |case| &case["verdict"])
}

#[test]
fn broken_cases_are_distinguished_from_flaky_cases() {
    let Some(sandbox) = Sandbox::new() else { return };
    let files = ["--junit", "suite.xml", "--summary", "suite.md"];
    let output = suite(&sandbox, &[&["--parser", "tap", "--json"][..], &files].concat(), SUITE);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer = answer(&output);
    assert_eq!(answer["regression"], true);
    assert_eq!(answer["complete"], true);
    assert_eq!(verdict(&answer, "breaks"), "broken");
    assert_eq!(verdict(&answer, "flaky"), "flaky");
    assert_eq!(verdict(&answer, "never"), "fails_in_both");
    assert_eq!(verdict(&answer, "always"), &Value::Null);
    // The order is ABBA, then three further runs in each state.
    let order: Vec<&str> = answer["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["state"].as_str().unwrap())
        .collect();
    let expected = ["before", "after", "after", "before", "before", "after", "after", "before"];
    assert_eq!(order, expected);
    assert!(!sandbox.path("changed").exists(), "the change is taken back");
    assert!(sandbox.read("run/report.md").contains("Pass before and fail after"));
    let xml = sandbox.read("suite.xml");
    assert!(xml.contains(r#"tests="4" failures="1" errors="0" skipped="2""#), "{xml}");
    assert!(sandbox.read("suite.md").starts_with("### weir lab suite: failed\n"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_change_without_effect_ends_with_status_0() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "echo 1..2; echo ok 1 - a; echo ok 2 - b '# SKIP no root'";
    let output = suite(&sandbox, &["--parser", "tap"], script);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.contains("No case of 2 passes before and fails after."), "{output:?}");
    assert!(output.stdout.contains("Skipped cases"), "{output:?}");
    assert_eq!(sandbox.read("run/suite.json").matches("\"number\"").count(), 2, "no retries");
}

#[test]
fn only_doubtful_cases_run_again_if_the_suite_supports_it() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write(
        "again.sh",
        "echo \"$@\" >>asked; [ -e changed ] && echo 'not ok - b' || echo 'ok - b'",
    );
    let script = "echo ok - a; [ -e changed ] && echo 'not ok - b' || echo 'ok - b'";
    let options = ["--parser", "tap", "--json", "--retries", "1", "--again", "sh again.sh {cases}"];
    let answer = answer(&suite(&sandbox, &options, script));
    assert_eq!(verdict(&answer, "b"), "broken");
    assert_eq!(sandbox.read("asked"), "b\nb\n");
}

#[test]
fn results_may_come_from_a_file_of_the_suite() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox
        .write("suite.sh", "echo noise; echo '<testsuite><testcase name=\"a\"/></testsuite>' >$1");
    let output = sandbox.weir(&[
        "lab",
        "suite",
        "--parser",
        "junit",
        "--before",
        "true",
        "--after",
        "true",
        "--",
        "sh",
        "suite.sh",
        "{results}",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.contains("No case of 1 passes"), "{output:?}");
}

#[test]
fn a_case_that_is_gone_after_the_change_is_a_regression() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "echo ok - a; [ -e changed ] || echo 'ok - b'";
    let output = suite(&sandbox, &["--parser", "tap", "--json", "--retries", "1"], script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(verdict(&answer(&output), "b"), "lost");
}

#[test]
fn a_suite_that_exceeds_its_limit_is_killed_and_its_cases_count() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "echo ok - a; [ -e changed ] && { setsid sleep 1000 & sleep 1000; }; echo ok - b";
    let options = ["--parser", "tap", "--json", "--limit", "2s", "--retries", "0"];
    // On a stalled machine even a suite of two lines takes longer than its limit.
    let output = testing::undisturbed("suite with a limit", |_| {
        let _ = std::fs::remove_dir_all(sandbox.path("run"));
        let output = suite(&sandbox, &options, script);
        match answer(&output)["runs"][0]["flaws"][0].is_null() {
            true => Attempt::Right(output),
            false => Attempt::Wrong(format!("{output:?}")),
        }
    });
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer = answer(&output);
    assert_eq!(answer["complete"], false);
    assert_eq!(verdict(&answer, "b"), "not_reached");
    assert!(answer["runs"][1]["flaws"][0].as_str().unwrap().contains("its limit of 2s"));
    assert!(!sandbox.path("changed").exists());
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_suite_that_prints_without_end_is_killed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let options = ["--parser", "tap", "--json", "--most-output", "1MiB", "--retries", "0"];
    let output = suite(&sandbox, &options, "echo ok - a; exec yes");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let flaw = answer(&output)["runs"][0]["flaws"][0].to_string();
    assert!(flaw.contains("printed more than"), "{flaw}");
}

#[test]
fn a_run_whose_suite_was_killed_is_incomplete() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "echo ok - a; [ -e changed ] && kill -9 $$; echo ok - b";
    let output = suite(&sandbox, &["--parser", "tap", "--json", "--retries", "0"], script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer = answer(&output);
    assert_eq!(verdict(&answer, "b"), "not_reached");
    assert_eq!(answer["runs"][1]["flaws"][0], "it ended with signal 9");
}

#[test]
fn case_names_that_change_with_each_run_are_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let script = "for n in 1 2 3; do echo ok - case $n of $$; done";
    let output = suite(&sandbox, &["--parser", "tap"], script);
    let said = output.stdout.clone() + &output.stderr;
    assert!(said.contains("must name its cases alike"), "{output:?}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn an_output_without_cases_gives_an_error_with_advice() {
    let Some(sandbox) = Sandbox::new() else { return };
    let wrong = suite(&sandbox, &["--parser", "kirk"], "echo 1..1; echo ok 1 - a");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("looks like that of --parser tap"), "{wrong:?}");
    for (script, says) in [
        ("echo hello", "its last line is: hello"),
        ("true", "the suite printed nothing"),
        ("exit 3", "the suite ended with status 3"),
    ] {
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
        let output = suite(&sandbox, &["--parser", "tap"], script);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
    }
    assert!(!sandbox.path("changed").exists());
}

#[test]
fn wrong_options_are_reported_before_anything_runs() {
    let Some(sandbox) = Sandbox::new() else { return };
    let refused = |words: &[&str], says: &str| {
        let all: Vec<&str> =
            ["lab", "suite", "--parser", "tap"].iter().chain(words).copied().collect();
        let output = sandbox.weir(&all);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
    };
    refused(
        &["--after", "touch x", "--", "true"],
        "no command undoes --after: name one with --undo",
    );
    refused(&["--after", "true", "--undo", "true", "--limit", "long", "--", "true"], "--limit");
    let again = ["--after", "true", "--undo", "true", "--again", "x", "--", "true"];
    refused(&again, "--again needs {cases}");
    assert!(!sandbox.path("x").exists());
}

/// However the command ends, the change is taken back and no process of the suite is left.
#[test]
fn an_interrupted_or_killed_comparison_takes_the_change_back() {
    for signal in ["INT", "TERM", "KILL"] {
        let Some(sandbox) = Sandbox::new() else { return };
        sandbox.write(
            "suite.sh",
            "echo ok - a; [ -e changed ] && { setsid sleep 1000 & sleep 1000; }",
        );
        let running = sandbox.start(&[
            "lab",
            "suite",
            "--parser",
            "tap",
            "--after",
            "touch changed",
            "--undo",
            "rm changed",
            "--",
            "sh",
            "./suite.sh",
        ]);
        sandbox.await_process("sleep");
        running.signal(signal);
        let output = running.end();
        if signal != "KILL" {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
        }
        await_some("the end of the change", || (!sandbox.path("changed").exists()).then_some(()));
        assert_eq!(sandbox.leftovers(), [""; 0], "{signal}");
    }
}
