//! Opening of ports, and captures that a run writes.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use generator::run::{self, Job, Lane, Outcome, Pace};
use generator::{Capture, GenError, Plan, PlanOptions, Profile};
use units::Span;

fn run(ports: [&str; 2]) -> Result<Outcome, GenError> {
    let text = "- duration : 1\n  generator :\n    distribution : seq\n    clients_start : 16.0.0.1\n    \
         clients_end : 16.0.0.9\n    servers_start : 48.0.0.1\n    servers_end : 48.0.0.9\n    \
         dual_port_mask : 1.0.0.0\n  cap_info :\n   - name : cap2/udp_64B.pcap\n     cps : 1000\n     \
         ipg : 1000\n     rtt : 5000\n     w : 1\n";
    let profile = Profile::parse("p.yaml", text).unwrap();
    let captures = [Capture::built_in("cap2/udp_64B.pcap").unwrap()];
    let specs: Vec<_> = ports.iter().map(|port| port.parse().unwrap()).collect();
    let mut lanes = Lane::open_all(&specs, &AtomicBool::new(false))?;
    let addresses: Vec<_> = lanes.iter().map(Lane::addresses).collect();
    let plan = Plan::new(&profile, &captures, &addresses, PlanOptions::default()).unwrap();
    let job = Job {
        plan: Arc::new(plan),
        multiplier: 1.0,
        duration: Span::from_millis(50),
        threads: 1,
        pace: Pace::Complete { at_most: Span::from_secs(20) },
        drain: Span::ZERO,
        probes: Vec::new(),
        first_stream: 0,
        late_after: None,
        real_time: false,
    };
    run::run(&mut lanes, &job, &AtomicBool::new(false), |_| {})
}

/// The last part of a capture stays in a buffer until the run ends, so the write of this part may
/// still fail.
#[test]
fn a_capture_file_that_cannot_be_written_completely_is_an_error() {
    let outcome = run(["pcap:/dev/full", "null"]).unwrap();
    let error = outcome.error.unwrap();
    assert!(error.contains("cannot write /dev/full"), "{error}");
}

#[test]
fn two_ports_cannot_write_the_same_capture_file() {
    let folder = std::env::temp_dir().join(format!("gen-captures-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("other")).unwrap();
    let port = |name: &str| format!("pcap:{}", folder.join(name).display());
    let error = run([&port("a.pcap"), &port("other/../a.pcap")]).unwrap_err().to_string();
    let outcome = run([&port("a.pcap"), &port("b.pcap")]).unwrap();
    assert_eq!(run(["pcap:/dev/null", "pcap:/dev/null"]).unwrap().error, None);
    std::fs::remove_dir_all(folder).unwrap();
    assert!(error.contains("another port writes this file"), "{error}");
    assert_eq!((outcome.error.as_deref(), outcome.sent()), (None, 50));
}

/// A cancelled run does not wait for the peers of its ports.
#[test]
fn a_cancelled_run_opens_no_port() {
    let specs = ["ring:/nonexistent/ring".parse().unwrap(), "null".parse().unwrap()];
    let error = Lane::open_all(&specs, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, GenError::Cancelled), "{error}");
}
