//! Parses the output of a conformance suite, in each format that `weir lab suite` reads.
#![no_main]

use lab::suite::Parser;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let parser = Parser::ALL[usize::from(*first) % Parser::ALL.len()];
    let text = String::from_utf8_lossy(text);
    let Ok(parsed) = parser.parse(&text) else { return };
    let names: HashSet<&str> = parsed.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), parsed.cases.len(), "two cases have one name");
});
