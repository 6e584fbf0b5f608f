//! Sends traffic through the ports and counts the frames that come back.

mod breaks;
mod lane;
mod live;
mod receive;
mod send;
mod spec;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

pub use lane::Lane;
pub use live::{LaneCounts, Snapshot};
pub use send::Pace;
pub use spec::{PortKind, PortSpec};
pub use streams::StreamCounts;
pub(crate) use streams::new_histogram;
use units::{Span, Time};

use crate::{Frequency, GenError, Plan, Traffic};
use live::Live;
use receive::Receiver;
use send::{PartOutcome, Sender, Source};

#[derive(Debug, Clone)]
pub struct Job {
    pub plan: Arc<Plan>,
    pub multiplier: f64,
    pub duration: Span,
    pub threads: usize,
    pub pace: Pace,
    /// The time to wait for packets after the last packet has been sent.
    pub drain: Span,
    /// Streams that measure latency, in addition to the plan's packets.
    pub probes: Vec<Probe>,
    /// The number of the first stream: different numbers distinguish the packets of different runs.
    pub first_stream: u16,
    /// If set, packets that arrive after this limit are counted as late.
    pub late_after: Option<LateAfter>,
    /// Whether the sending threads get real-time priority (SCHED_FIFO), if the system permits this.
    pub real_time: bool,
}

/// A packet is late if it arrives after the run's planned end by more than `grace` plus the
/// shortest latency so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateAfter {
    pub grace: Span,
}

/// A latency probe: stamped packets at a low rate.
#[derive(Debug, Clone)]
pub struct Probe {
    pub plan: Arc<Plan>,
    /// For each lane of the plan, the index of the run's lane that carries it.
    pub lanes: Vec<usize>,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub lanes: Vec<LaneCounts>,
    pub streams: Vec<StreamCounts>,
    pub seconds: Vec<Second>,
    /// The planned and the actual duration of sending.
    pub planned: Span,
    pub actual: Span,
    pub packets_planned: u64,
    pub flows: u64,
    /// The maximum lateness of a sent packet.
    pub longest_lag: Span,
    /// The share of time in which the sending threads did not wait.
    pub busy: f64,
    /// Number of repeated attempts to send because a port had no room.
    pub retries: u64,
    pub cancelled: bool,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Second {
    pub planned: f64,
    pub sent: u64,
}

impl Job {
    /// Whether the only sending thread also receives, because the machine has only one CPU. On one
    /// CPU, two threads would alternate too slowly for the ports' rings.
    fn receives_between(&self) -> bool {
        self.threads <= 1 && host::online_cpus().len() == 1
    }
}

impl Outcome {
    pub fn sent(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.sent).sum()
    }

    pub fn received(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.received).sum()
    }

    /// Returns the seconds in which the sent rate differed from the planned rate by more than
    /// 0.5 %.
    pub fn missed(&self) -> Vec<usize> {
        missed(&self.seconds)
    }

    pub fn offered(&self) -> Frequency {
        match self.actual.secs_f64() {
            time if time > 0.0 => Frequency::per_second(self.sent() as f64 / time),
            _ => Frequency::ZERO,
        }
    }

    pub fn ring_full(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ring_full).sum()
    }

    pub fn sink_full(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.sink_full).sum()
    }

    pub fn sink_drops(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.sink_drops).sum()
    }
}

impl Second {
    /// Returns the number of packets that were sent beyond the plan. The number is negative if too
    /// few packets were sent.
    fn excess(&self) -> f64 {
        self.sent as f64 - self.planned
    }
}

/// Returns the seconds whose count differs from the plan by more than 0.5 %. A single packet may
/// belong to the second before or after, but such packets of several seconds add up.
fn missed(seconds: &[Second]) -> Vec<usize> {
    let mut missed = Vec::new();
    let mut borrowed = 0.0;
    for (number, second) in seconds.iter().enumerate() {
        let (excess, tolerated) = (second.excess(), second.planned * TOLERANCE);
        if excess.abs() > tolerated {
            borrowed += excess;
        }
        if excess.abs() > tolerated.max(1.0) || borrowed.abs() > tolerated + 1.0 {
            missed.push(number);
            borrowed = 0.0;
        }
    }
    missed
}

/// Runs a job to its end, or until `cancel` is set. `watch` is called about ten times a second.
pub fn run(
    lanes: &mut [Lane],
    job: &Job,
    cancel: &AtomicBool,
    mut watch: impl FnMut(&Snapshot),
) -> Result<Outcome, GenError> {
    let threads = job.threads.max(1);
    // For each stream, the index of the lane that sends it.
    let mut origins: Vec<usize> = (0..threads).flat_map(|_| 0..job.plan.lanes().len()).collect();
    origins.extend(job.probes.iter().flat_map(|probe| &probe.lanes));
    let live = Live::new(lanes.len());
    let mut senders = Vec::with_capacity(threads);
    for part in 0..threads {
        let mut sources = vec![Source {
            traffic: Traffic::new(Arc::clone(&job.plan), job.multiplier, part, threads)
                .with_streams_from(job.first_stream),
            lanes: (0..lanes.len()).collect(),
            counts: true,
        }];
        if part == 0 {
            let own = (job.plan.lanes().len() * threads) as u16;
            let mut first = job.first_stream.wrapping_add(own);
            for probe in &job.probes {
                sources.push(Source {
                    traffic: Traffic::new(Arc::clone(&probe.plan), 1.0, 0, 1)
                        .with_streams_from(first),
                    lanes: probe.lanes.clone(),
                    counts: false,
                });
                first = first.wrapping_add(probe.lanes.len() as u16);
            }
        }
        senders.push(Sender::open(lanes, sources, job)?);
    }
    for (lane, counts) in lanes.iter_mut().zip(&live.lanes) {
        lane.discard_arrivals()?;
        let arps = lane.take_arps();
        live::add(&counts.arp_sent, arps.sent);
        live::add(&counts.arp_received, arps.received);
    }
    let stop = AtomicBool::new(false);
    let start = monotonic() + LEAD;
    let late = job.late_after.map(|late| (start + job.duration, late.grace));
    let receiver = Receiver::new(lanes, &live, (job.first_stream, origins), late);
    let ended = AtomicUsize::new(0);
    let outcomes = std::thread::scope(|scope| {
        let thread = |name: String| std::thread::Builder::new().name(name);
        let (live, stop, ended) = (&live, &stop, &ended);
        let mut receiver = Some(receiver);
        let mut receiving = None;
        if !job.receives_between() {
            let receiver = receiver.take();
            let work = move || (None, receiver.map(|receiver| receiver.run(stop, job.real_time)));
            receiving = thread("receive".to_owned()).spawn_scoped(scope, work).ok();
        }
        let mut sending = Vec::new();
        for (number, sender) in senders.into_iter().enumerate() {
            let mut receiver = receiver.take();
            let work = move || {
                let part = sender.run(start, job, (live, cancel), receiver.as_mut());
                ended.fetch_add(1, Ordering::Relaxed);
                (Some(part), receiver.map(|receiver| receiver.run(stop, job.real_time)))
            };
            sending.extend(thread(format!("send{number}")).spawn_scoped(scope, work));
        }
        while ended.load(Ordering::Relaxed) < sending.len()
            && sending.iter().any(|thread| !thread.is_finished())
        {
            std::thread::sleep(WATCH);
            watch(&live.snapshot(monotonic().since(start), job));
        }
        drain(job, live, cancel);
        stop.store(true, Ordering::Relaxed);
        let threads = receiving.into_iter().chain(sending);
        threads.map(ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    if outcomes.len() < threads + usize::from(!job.receives_between()) {
        return Err(GenError::Thread(NO_THREAD));
    }
    let ended_early = || GenError::Thread("a thread ended early: report it");
    let mut parts = Vec::with_capacity(threads);
    let mut received = None;
    for outcome in outcomes {
        let (part, receiver) = outcome.map_err(|_| ended_early())?;
        parts.extend(part);
        received = received.or(receiver);
    }
    let (streams, error) = received.ok_or_else(ended_early)?;
    let unwritten = lanes.iter_mut().filter_map(|lane| lane.finish().err()).last();
    let error = error.or(unwritten.map(|problem| problem.to_string()));
    Ok(collect(lanes, job, &live, &parts, streams, error, cancel))
}

/// Waits before a run, or until `cancel` is set, so that the peers of the ports become ready.
pub fn settle(span: Span, cancel: &AtomicBool) {
    let end = monotonic() + span;
    while monotonic() < end && !cancel.load(Ordering::Relaxed) {
        let left = end.since(monotonic()).nanos();
        std::thread::sleep(Duration::from_nanos(left).min(WATCH));
    }
}

/// Waits for packets in flight: at least the time that the job sets, and longer while packets still
/// arrive.
fn drain(job: &Job, live: &Live, cancel: &AtomicBool) {
    let arrived =
        || -> u64 { live.lanes.iter().map(|lane| lane.received.load(Ordering::Relaxed)).sum() };
    let end = monotonic();
    let mut quiet_since = end;
    let mut before = arrived();
    while job.drain > Span::ZERO && !cancel.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(2));
        let now = monotonic();
        if before != arrived() {
            (before, quiet_since) = (arrived(), now);
        }
        let is_quiet = now.since(quiet_since) >= QUIET;
        if now.since(end) >= LONGEST_DRAIN || (now.since(end) >= job.drain && is_quiet) {
            break;
        }
    }
}

fn collect(
    lanes: &[Lane],
    job: &Job,
    live: &Live,
    parts: &[PartOutcome],
    mut streams: Vec<StreamCounts>,
    receive_error: Option<String>,
    cancel: &AtomicBool,
) -> Outcome {
    let names = lanes.iter().map(Lane::name);
    let counts = names.enumerate().map(|(number, name)| live.counts(number, name)).collect();
    let length = parts.iter().map(|part| part.seconds.len()).max().unwrap_or(0);
    let mut seconds = vec![Second::default(); length];
    for part in parts {
        for (second, own) in seconds.iter_mut().zip(&part.seconds) {
            second.planned += own.planned;
            second.sent += own.sent;
        }
        for (stream, sent) in &part.streams {
            let index = stream.wrapping_sub(job.first_stream);
            if let Some(counts) = streams.get_mut(usize::from(index)) {
                counts.sent += sent;
            }
        }
    }
    streams.retain(|stream| stream.sent > 0 || stream.received > 0 || stream.returned > 0);
    let span = |of: fn(&PartOutcome) -> Span| parts.iter().map(of).max().unwrap_or_default();
    let actual = span(|part| part.actual);
    let busy: f64 = parts.iter().map(|part| part.busy.secs_f64()).sum();
    let available = actual.secs_f64() * parts.len() as f64;
    Outcome {
        lanes: counts,
        streams,
        seconds,
        planned: job.duration,
        actual,
        packets_planned: parts.iter().map(|part| part.planned).sum::<f64>().round() as u64,
        flows: parts.iter().map(|part| part.flows).sum(),
        longest_lag: span(|part| part.longest_lag),
        busy: if available > 0.0 { busy / available } else { 0.0 },
        retries: parts.iter().map(|part| part.retries).sum(),
        cancelled: cancel.load(Ordering::Relaxed),
        error: parts.iter().find_map(|part| part.error.clone()).or(receive_error),
    }
}

pub(crate) fn monotonic() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Largest difference between the sent and the planned rate, as a share.
pub const TOLERANCE: f64 = 0.005;
/// The time between the start of the threads and the first packet.
const LEAD: Span = Span::from_millis(10);
/// If no packet arrives for this time, no packet is in flight.
const QUIET: Span = Span::from_millis(50);
const LONGEST_DRAIN: Span = Span::from_secs(2);
const WATCH: Duration = Duration::from_millis(20);
const NO_THREAD: &str = "a thread cannot be started: end other programs, or raise `ulimit -u`";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_missed(seconds: &[(f64, u64)], expected: &[usize]) {
        let second = |(planned, sent): &(f64, u64)| Second { planned: *planned, sent: *sent };
        assert_eq!(missed(&seconds.iter().map(second).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_second_is_not_missed_if_its_packets_leave_in_the_next_second() {
        assert_missed(&[(2.0, 1), (2.0, 3), (2.0, 1), (2.0, 3)], &[]);
        assert_missed(&[(2.0, 2), (2.0, 1), (2.0, 1), (2.0, 1), (2.0, 1)], &[2, 4]);
        assert_missed(&[(1.0, 0), (0.5, 1), (1.0, 1)], &[]);
        assert_missed(&[(10.0, 8), (10.0, 12), (10.0, 10)], &[0, 1]);
    }

    #[test]
    fn second_by_second_differences_within_half_a_percent_do_not_add_up() {
        assert_missed(&[(1000.0, 996); 9], &[]);
        assert_missed(&[(1000.0, 994), (1000.0, 1005), (1000.0, 1006)], &[0, 2]);
    }
}
