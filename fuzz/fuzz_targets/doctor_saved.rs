//! Reads, judges and shows recordings and saved results of other machines. The journal of a lab's
//! run follows the results behind a zero byte, which no JSON contains.
#![no_main]

use doctor::{Question, diagnose, output, saved};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (text, journal) = match text.split_once('\0') {
        Some((text, journal)) => (text, Some(journal)),
        None => (text, None),
    };
    let Ok(recording) = saved::parse(text, journal) else { return };
    for question in [Question::Machine, Question::Flow] {
        let diagnosis = diagnose(&recording, question);
        for all in [false, true] {
            let shown = output::text(&diagnosis, 80, all);
            assert!(shown.chars().all(|one| one == '\n' || !one.is_control()), "{shown:?}");
        }
        let _ = output::json(&diagnosis);
    }
    let _ = output::series(&recording);
});
