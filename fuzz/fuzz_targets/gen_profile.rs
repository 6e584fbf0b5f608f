//! Parses profiles of the traffic generator, and makes the packets of a profile.
#![no_main]

use generator::{Capture, LaneAddresses, Plan, PlanOptions, Profile, Traffic};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use units::Time;

fuzz_target!(|text: &str| {
    let Ok(profile) = Profile::parse("fuzz.yaml", text) else { return };
    let captures: Option<Vec<Capture>> =
        profile.templates.iter().map(|template| Capture::built_in(&template.name)).collect();
    let Some(captures) = captures.filter(|captures| captures.len() <= 8) else { return };
    for stamped in [false, true] {
        let options = PlanOptions { ipv6: stamped, stamped, ..PlanOptions::default() };
        let Ok(plan) = Plan::new(&profile, &captures, &[LaneAddresses::default(); 2], options)
        else {
            continue;
        };
        let mut buffer = vec![0; plan.longest()];
        let mut traffic = Traffic::new(Arc::new(plan), 1.0, 0, 1);
        for _ in 0..100 {
            if traffic.take(Time::ZERO, &mut buffer).is_none() {
                break;
            }
        }
    }
});
