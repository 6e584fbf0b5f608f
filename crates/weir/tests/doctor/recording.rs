//! Doctor must judge a recording like the machine that it comes from.

use crate::peer::{PORT, Pair};
use crate::support::Sandbox;
use serde_json::Value;
use testing::Attempt;

#[test]
fn a_recording_gives_the_same_diagnosis_as_the_live_run() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _pair = Pair::start(&sandbox, "20000,20", "65536,0");
    let flow = format!("127.0.0.1:{PORT}");
    let words = ["doctor", "--flow", &flow, "--json", "--record", "seen.json", "-t", "1"];
    let live = sandbox.weir(&words);
    assert!(live.status.success(), "{live:?}");
    assert!(live.stderr.contains("seen.json"), "{}", live.stderr);
    let later = sandbox.weir(&["doctor", "seen.json", "--json"]);
    // Only the live command has observed the machine, so only its diagnosis has the CPU time of an
    // observation.
    let without_cpu = |text: &str| {
        let mut diagnosis: Value = serde_json::from_str(text).unwrap();
        let cpu = diagnosis["periods"][0]["observer_cpu"].take().as_f64().unwrap();
        (diagnosis, cpu)
    };
    let (diagnosis, live_cpu) = without_cpu(&live.stdout);
    let (again, observing_cpu) = without_cpu(&later.stdout);
    assert_eq!(diagnosis, again);
    assert!(live_cpu >= observing_cpu, "{live_cpu} is below {observing_cpu}");
    assert_eq!(diagnosis["weir_doctor"], 1);
    assert_eq!(diagnosis["periods"][0]["flows"].as_array().unwrap().len(), 1, "{diagnosis}");
}

#[test]
fn the_text_shows_evidence_and_excluded_causes() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _pair = Pair::start(&sandbox, "20000,20", "65536,0");
    // A stalled machine may retransmit packets, and doctor then cannot rule out loss.
    let ended = testing::undisturbed("text of a diagnosis", |_| {
        let ended = sandbox.weir(&["doctor", "-t", "1", "--verbose"]);
        assert!(ended.status.success(), "{ended:?}");
        let flow = format!("127.0.0.1:{PORT}");
        let parts = [flow.as_str(), "Ruled out", "lost packets: "];
        match parts.iter().all(|part| ended.stdout.contains(*part)) {
            true => Attempt::Right(ended),
            false => Attempt::Wrong(ended.stdout),
        }
    });
    let ended = ended.unwrap();
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 120), "{}", ended.stdout);
}
