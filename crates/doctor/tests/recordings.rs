//! Recordings from elsewhere, and their verdicts.
#![allow(clippy::unwrap_used)]

use doctor::{Question, Recording, VerdictKind, diagnose};
use std::path::Path;

#[test]
fn the_board_with_one_core_is_limited_by_its_cpu() {
    let recording = read("am335x-receives.json");
    let diagnosis = diagnose(&recording, Question::of(&recording));
    let verdict = &diagnosis.verdict;
    assert_eq!((verdict.kind, verdict.cause), (VerdictKind::Limited, Some("cpu")), "{verdict:?}");
    for part in ["the only core", "63 % system", "36 % softirq", "439 Mbit/s of a 1 Gbit/s link"] {
        assert!(verdict.sentence.contains(part), "{part}: {}", verdict.sentence);
    }
    let text = doctor::output::text(&diagnosis, 100, true);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("RPS, RFS, XPS and more queues do not help"), "{text}");
    assert!(words.contains("Transcribed from the reference report"), "{text}");
    // The report's own counters show no errors.
    assert!(diagnosis.periods[0].machine.is_empty(), "{:?}", diagnosis.periods[0].machine);
}

fn read(name: &str) -> Recording {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    Recording::read(&folder.join(name)).unwrap()
}
