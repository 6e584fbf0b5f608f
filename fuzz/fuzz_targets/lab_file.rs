//! Parses lab files of other users, and bounds of `lab check`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = lab::LabFile::parse("fuzz.toml", text);
    let _ = lab::check::Bound::parse(text);
});
