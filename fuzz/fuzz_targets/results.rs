//! Shows results of other users on a terminal, as a page and as Markdown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use report::{html, markdown, terminal};
use results::{Results, Samples};
use std::path::Path;

fuzz_target!(|text: &str| {
    let Ok(results) = Results::from_json(text, Path::new("results.json")) else { return };
    let results = results.shown();
    let shown = terminal::render(&results, 100, false);
    assert!(shown.chars().all(|one| one == '\n' || !one.is_control()), "{shown:?}");
    let _ = terminal::lines(&results, 40, true);
    let _ = terminal::render(&results, 80, true);
    let _ = markdown::render(&results, "");
    let _ = html::render(&results, &Samples::new("fuzz"), &[], "");
});
