//! Reads captures that a profile names, makes packets from the captures, and handles any received
//! frame.
#![no_main]

use generator::traffic::Stamp;
use generator::{Capture, LaneAddresses, Plan, PlanOptions, Profile, Traffic, neighbour};
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;
use std::sync::Arc;
use units::Time;

fuzz_target!(|bytes: &[u8]| {
    let _ = Stamp::read(bytes);
    let own: IpAddr = [192, 168, 10, 2].into();
    let _ = neighbour::answer(bytes, own);
    let _ = neighbour::reply(bytes, [2, 0, 0, 0, 0, 1], &[own]);
    let _ = neighbour::is_housekeeping(bytes);
    let Ok(capture) = Capture::parse("fuzz.pcap", bytes) else { return };
    let Ok(profile) = Profile::parse("fuzz.yaml", PROFILE) else { return };
    for ipv6 in [false, true] {
        let options = PlanOptions { ipv6, ..PlanOptions::default() };
        let lanes = [LaneAddresses::default(); 2];
        let Ok(plan) = Plan::new(&profile, std::slice::from_ref(&capture), &lanes, options) else {
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

const PROFILE: &str = "
- duration : 1
  cap_ipg : true
  generator :
    distribution : seq
    clients_start : 16.0.0.1
    clients_end : 16.0.0.9
    servers_start : 48.0.0.1
    servers_end : 48.0.0.9
  cap_info :
    - { name : x, cps : 1000, ipg : 10, rtt : 10, w : 1 }
";
