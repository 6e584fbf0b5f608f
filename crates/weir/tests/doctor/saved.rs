//! Doctor judges results that other verbs saved.

use crate::support::{Sandbox, await_some};
use serde_json::Value;
use testing::Attempt;

#[test]
fn a_report_of_perf_is_judged() {
    let Some(sandbox) = Sandbox::new() else { return };
    // A stalled machine itself limits the transfer.
    let judged = testing::undisturbed("diagnosis of a saved transfer", |attempt| {
        let run = format!("run-{attempt}");
        let diagnosis = judged_transfer(&sandbox, &run);
        match diagnosis["verdict"]["cause"] == "application" {
            true => Attempt::Right((run, diagnosis)),
            false => Attempt::Wrong(diagnosis.to_string()),
        }
    });
    let (run, diagnosis) = judged.unwrap();
    assert_eq!(diagnosis["origin"], "saved");
    let text = sandbox.weir(&["doctor", &run, "--verbose"]);
    assert!(text.stdout.contains("interfaces and queueing disciplines"), "{}", text.stdout);
}

/// Makes a transfer at 20 Mbit/s with its report in this directory, and returns doctor's diagnosis.
fn judged_transfer(sandbox: &Sandbox, run: &str) -> Value {
    let mut server = sandbox.start(&["perf", "server", "-p", "5301", "--one-off"]);
    await_some("the server", || server.listens(5301).then_some(()));
    let client = ["perf", "client", "127.0.0.1", "-p", "5301", "-t", "2", "-b", "20mbit"];
    let ended = sandbox.weir(&[&client[..], &["--report", run]].concat());
    assert!(ended.status.success(), "{ended:?}");
    let _ = server.child.kill();
    let _ = server.child.wait();
    let judged = sandbox.weir(&["doctor", run, "--json"]);
    assert!(judged.status.success(), "{judged:?}");
    eprintln!("{run}: {}", judged.stdout);
    serde_json::from_str(&judged.stdout).unwrap()
}

#[test]
fn a_directory_without_results_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let ended = sandbox.weir(&["doctor", "./empty"]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the directory of a run"), "{}", ended.stderr);
}
