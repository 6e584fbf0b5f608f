//! Files of others: experiments and results.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    let _ = lab::LabFile::parse("fuzz.toml", text);
    let _ = report::Results::from_json(text, Path::new("results.json"));
    let _ = lab::check::Bound::parse(text);
});
