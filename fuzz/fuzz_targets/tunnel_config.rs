//! Parses the tunnel's file, rules, pins and targets, from any author. The configuration names key
//! files, which this target does not read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tunnel::Target;
use tunnel::access::Rule;
use tunnel::config::{File, Forward, MetricsAddress};
use tunnel::identity::Pin;

fuzz_target!(|text: &str| {
    let _ = File::parse(Path::new("fuzz.toml"), text);
    if let Ok(rule) = text.parse::<Rule>() {
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule));
    }
    if let Ok(pin) = text.parse::<Pin>() {
        assert_eq!(pin.to_string().parse::<Pin>().ok(), Some(pin));
    }
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse::<Target>().as_ref(), Ok(&target));
    }
    let _ = (text.parse::<Forward>(), text.parse::<MetricsAddress>());
});
