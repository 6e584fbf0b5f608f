//! A full port: the sending thread shares the only CPU with the program that empties the port.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use generator::run::{self, Job, Lane, Outcome, Pace};
use generator::{Capture, Plan, PlanOptions, Profile};
use port::RingPort;
use testing::Attempt;
use units::Span;

/// A real-time sending thread must sleep while it waits for room: otherwise the program that
/// empties the port would get the CPU for only 50 ms of each second.
#[test]
fn a_full_port_leaves_the_cpu_to_other_threads() {
    if std::thread::spawn(host::real_time).join().unwrap().is_err() {
        return testing::skip(testing::Need::RealTime);
    }
    testing::undisturbed("sleeps of a thread with precedence", |attempt| {
        let place = format!("gen-full-{}-{attempt}", std::process::id());
        let place = std::env::temp_dir().join(place).display().to_string();
        let nobody_reads = RingPort::create(&place).unwrap();
        let sleeps = AtomicU64::new(0);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| run_on_one_cpu(&format!("ring:{place}"), &sleeps)).join().unwrap()
        });
        drop(nobody_reads);
        let is_full = outcome.retries > 0 && outcome.sent() < outcome.packets_planned;
        // The thread sleeps once per 300 us of CPU time. On a busy machine, the thread gets only a
        // part of the CPU time.
        let has_slept = sleeps.load(Ordering::Relaxed) > 40;
        // The last packet leaves only when the run gives up on the full port.
        let is_late = outcome.longest_lag > Span::from_millis(100);
        match is_full && has_slept && is_late {
            true => Attempt::Right(()),
            false => Attempt::Wrong(format!("{sleeps:?} {outcome:?}")),
        }
    });
}

fn run_on_one_cpu(port: &str, sleeps: &AtomicU64) -> Outcome {
    let text = "- duration : 1\n  generator :\n    distribution : seq\n    clients_start : 16.0.0.1\n    \
         clients_end : 16.0.0.9\n    servers_start : 48.0.0.1\n    servers_end : 48.0.0.9\n  cap_info :\n   \
         - name : cap2/udp_64B.pcap\n     cps : 50000000\n     ipg : 1000\n     rtt : 5000\n     w : 1\n";
    let profile = Profile::parse("p.yaml", text).unwrap();
    let captures = [Capture::built_in("cap2/udp_64B.pcap").unwrap()];
    host::pin_to(&host::online_cpus()[..1]).unwrap();
    let cancel = AtomicBool::new(false);
    let mut lanes = Lane::open_all(&[port.parse().unwrap()], &cancel).unwrap();
    let addresses = [lanes[0].addresses()];
    let plan = Plan::new(&profile, &captures, &addresses, PlanOptions::default()).unwrap();
    let job = Job {
        plan: Arc::new(plan),
        multiplier: 1.0,
        duration: Span::from_millis(100),
        threads: 1,
        pace: Pace::Complete { at_most: Span::from_millis(400) },
        drain: Span::ZERO,
        probes: Vec::new(),
        first_stream: 0,
        late_after: None,
        real_time: true,
    };
    run::run(&mut lanes, &job, &cancel, |_| {
        sleeps.fetch_max(sleeps_of("send0").unwrap_or(0), Ordering::Relaxed);
    })
    .unwrap()
}

/// Returns the number of times that a thread of this process has slept, from `proc_pid_status(5)`.
fn sleeps_of(name: &str) -> Option<u64> {
    let mut tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let status = tasks.find_map(|task| {
        let is_it = std::fs::read_to_string(task.path().join("comm")).ok()?.trim() == name;
        is_it.then(|| std::fs::read_to_string(task.path().join("status")).ok())?
    })?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}
