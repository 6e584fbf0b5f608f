//! Measures the time that the generator takes to write a packet into memory, without a port.
//!
//! `cargo bench -p weir-gen --bench packets`.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use generator::{Capture, LaneAddresses, Plan, PlanOptions, Profile, Traffic};
use units::Time;

fn main() -> Result<(), Box<dyn Error>> {
    println!("nanoseconds a packet, the median of {ROUNDS} rounds");
    for (name, files, limit) in [
        ("one UDP packet of 64 bytes a flow", &["cap2/udp_64B.pcap"][..], ""),
        ("the same, 262,144 flows again and again", &["cap2/udp_64B.pcap"], "limit : 262144"),
        (
            "three sizes, as many of each",
            &["cap2/udp_64B.pcap", "cap2/udp_594B.pcap", "cap2/udp_1518B.pcap"],
            "",
        ),
        ("HTTP, both directions", &["cap2/http_get.pcap"], ""),
    ] {
        let plan = Arc::new(plan(files, limit)?);
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| nanoseconds(&plan)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("{:8.1}  {name}", rounds[ROUNDS / 2]);
    }
    Ok(())
}

fn plan(files: &[&str], limit: &str) -> Result<Plan, Box<dyn Error>> {
    let mut text = "- duration : 1\n  generator :\n    distribution : seq\n    \
                    clients_start : 16.0.0.1\n    clients_end : 16.0.255.255\n    \
                    servers_start : 48.0.0.1\n    servers_end : 48.3.255.255\n    \
                    dual_port_mask : 1.0.0.0\n  cap_info :\n"
        .to_owned();
    for file in files {
        text += &format!(
            "   - name : {file}\n     cps : 100000\n     ipg : 10\n     rtt : 10\n     w : 1\n"
        );
        if !limit.is_empty() {
            text += &format!("     {limit}\n");
        }
    }
    let profile = Profile::parse("bench.yaml", &text)?;
    let captures: Option<Vec<_>> = files.iter().map(|file| Capture::built_in(file)).collect();
    let captures = captures.ok_or("a capture is not built in")?;
    Ok(Plan::new(&profile, &captures, &[LaneAddresses::default()], PlanOptions::default())?)
}

fn nanoseconds(plan: &Arc<Plan>) -> f64 {
    let mut traffic = Traffic::new(Arc::clone(plan), 100.0, 0, 1);
    let slot = plan.longest().next_multiple_of(64);
    let mut slots = vec![0; slot * 64];
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < ROUND {
        for place in slots.chunks_exact_mut(slot) {
            black_box(traffic.take(Time::ZERO, place));
        }
        black_box(&mut slots);
        count += 64;
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);
