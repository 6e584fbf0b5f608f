//! Reads, judges and shows captures of other machines.
#![no_main]

use doctor::observe::Focus;
use doctor::{Question, capture, diagnose, output};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = capture::parse(bytes, &Focus::All) else { return };
    assert!(recording.periods.iter().all(|period| period.samples.len() <= 250));
    for question in [Question::Machine, Question::Flow] {
        let diagnosis = diagnose(&recording, question);
        let page = output::text(&diagnosis, 80, false);
        let rows: usize = page.lines().map(|line| line.chars().count().div_ceil(80).max(1)).sum();
        assert!(rows <= 12, "{page}");
        let _ = output::json(&diagnosis);
    }
});
