//! A short transfer to a `weir perf server` or a stock iperf3, and another transfer back, while
//! this machine is observed. The far end reports its results over iperf3's protocol.

mod far;
mod refusal;
mod transfer;

use crate::DoctorError;
use crate::observe::{Focus, Observer, Plan};
use crate::recording::{Attempt, Machine, Recording};
use perf::event::Stop;
use probe::tree::Tree;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use transfer::{Transfer, Way};
use units::{Bytes, Span};

/// The test's far end and its bounds.
#[derive(Debug, Clone)]
pub struct TestPlan {
    pub host: String,
    pub port: u16,
    /// The duration of each direction.
    pub time: Span,
    /// Maximum number of bytes in each direction. A transfer that reaches this number ends early.
    pub most: Bytes,
    pub connect_within: Duration,
    /// The time for which the idle path is probed before the first transfer.
    pub idle: Span,
}

impl TestPlan {
    /// Plans a test of at most eight seconds.
    pub fn short(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            time: Span::from_millis(2_800),
            most: Bytes::new(4_000_000_000),
            connect_within: Duration::from_millis(3_500),
            idle: Span::from_millis(300),
        }
    }

    /// Plans a test of at most thirty seconds.
    pub fn thorough(host: impl Into<String>, port: u16) -> Self {
        Self {
            time: Span::from_millis(12_000),
            most: Bytes::new(16_000_000_000),
            connect_within: Duration::from_secs(8),
            idle: Span::from_millis(1_000),
            ..Self::short(host, port)
        }
    }

    /// Returns the text that announces the traffic.
    pub fn announcement(&self) -> String {
        format!(
            "sending to {} port {} for {}, then receiving from it for {}, at most {} in each direction",
            units::foreign(&self.host),
            self.port,
            crate::words::span(self.time),
            crate::words::span(self.time),
            crate::words::bytes(self.most),
        )
    }
}

/// Tests both directions. A failure to connect is part of the recording and no error. `stop` ends
/// the test early; the samples until then count.
pub fn run(plan: &TestPlan, stop: &Arc<AtomicBool>) -> Result<Recording, DoctorError> {
    let mut recording = Recording::new(Machine::default());
    recording.focus = Some(format!("a test with {}", plan.host));
    for way in [Way::Sending, Way::Receiving] {
        let attempt = one_way(plan, way, stop, &mut recording)?;
        let failed = attempt.refusal.is_some();
        if let Some(period) = recording.periods.last_mut() {
            period.attempt = Some(attempt);
        }
        if failed || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(recording)
}

fn one_way(
    plan: &TestPlan,
    way: Way,
    stop: &Arc<AtomicBool>,
    recording: &mut Recording,
) -> Result<Attempt, DoctorError> {
    let mut observer = Observer::begin(Tree::here(), Plan { focus: Focus::All, ..Plan::default() });
    let interval = crate::observe::INTERVAL.as_duration();
    let ending = Stop::default();
    let attempt = std::thread::scope(|scope| {
        let own = ending.clone();
        let running = scope.spawn(move || Transfer::new(plan, way, own).run());
        let mut next = Instant::now() + interval;
        while !running.is_finished() {
            if stop.load(Ordering::Relaxed) {
                ending.call();
            }
            std::thread::sleep(TICK);
            if Instant::now() >= next {
                observer.sample();
                next = Instant::now() + observer.pause().as_duration();
            }
        }
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    // Two samples are needed to judge counters, even if the far end refused at once.
    std::thread::sleep(interval);
    observer.sample();
    let label = match way {
        Way::Sending => format!("sending to {}", plan.host),
        Way::Receiving => format!("receiving from {}", plan.host),
    };
    observer.finish(units::foreign(label).to_string(), recording);
    if let Some(period) = recording.periods.last_mut() {
        drop_samples_around(period, &attempt);
    }
    Ok(attempt)
}

/// Keeps the samples in which the tested connections exist, so that the time before and after the
/// transfer does not count as time without data.
fn drop_samples_around(period: &mut crate::recording::Period, attempt: &Attempt) {
    let has = |sample: &crate::recording::Sample| {
        sample
            .connections
            .iter()
            .any(|connection| attempt.connections.contains(&(connection.local, connection.remote)))
    };
    if period.samples.iter().filter(|sample| has(sample)).count() >= LEAST_SAMPLES {
        period.samples.retain(has);
        let Some(start) = period.samples.first().map(|sample| sample.at) else { return };
        for sample in &mut period.samples {
            sample.at = sample.at - start;
        }
    }
}

const TICK: Duration = Duration::from_millis(5);
const LEAST_SAMPLES: usize = 3;
