//! Lab files from others, and the bounds of `lab check`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = lab::LabFile::parse("fuzz.toml", text);
    let _ = lab::check::Bound::parse(text);
});
