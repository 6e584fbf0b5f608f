//! Parses recordings of links: capacities and losses.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(trace) = link::Trace::parse(text) {
        let _ = (trace.mean_rate(), trace.length());
    }
    let _ = link::LossTrace::parse(text);
    if let Ok(loss) = text.parse::<link::Loss>() {
        // The printed form has twelve digits of a share.
        let shown = loss.to_string();
        assert_eq!(shown.parse::<link::Loss>().unwrap().to_string(), shown);
    }
});
