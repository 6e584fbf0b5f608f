use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hdrhistogram::Histogram;
use units::Span;

use super::others::Waits;
use super::search::Observed;
use crate::run::{self, Job, Lane, LateAfter, Outcome, Pace, StreamCounts};
use crate::{Frequency, GenError, Plan};

#[derive(Debug, Clone)]
pub struct Trial {
    pub load: Frequency,
    pub duration: Span,
    /// The number of packets that were due (`planned`), and the number of packets that left.
    pub planned: u64,
    pub sent: u64,
    /// Sent packets for which the device's ring had no room. These packets count as lost by the
    /// device.
    pub ring_full: u64,
    /// Distinct packets that came back, including late packets.
    pub received: u64,
    pub late: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Packets that came back at the port that had sent them. These packets count as lost.
    pub returned: u64,
    /// Arrived frames that do not belong to this trial.
    pub foreign: u64,
    /// The reason for which the trial does not measure the device; `None` for a valid trial.
    pub invalid: Option<Invalid>,
    /// Nanoseconds from sending to arrival.
    pub latency: Histogram<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Invalid {
    /// The generator sent too few packets.
    Generator { planned: u64, sent: u64, reached: Frequency },
    /// This machine dropped packets that had arrived.
    Sink { drops: u64 },
    /// The receiving port may have been full for a time. As with [`Self::Busy`], the trial is
    /// invalid whether or not packets are missing.
    SinkFull { times: u64, reached: Frequency },
    /// The ports refused packets.
    Port { refused: u64 },
    /// No packet arrived for a time, and a thread of another program, which may be the device,
    /// waited long for a CPU. Such a trial is invalid whether or not packets are missing. If the
    /// search repeated only trials with loss, it would repeat such trials until a trial has no
    /// loss.
    Busy { gap: Span, waited: Span },
}

pub trait Tester {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError>;
}

#[derive(Debug)]
pub struct PortTester<'a> {
    pub lanes: &'a mut [Lane],
    /// The plan of the packets. All of these packets carry a stamp.
    pub plan: Arc<Plan>,
    pub threads: usize,
    pub cancel: Arc<AtomicBool>,
    pub real_time: bool,
    trials: u16,
}

impl<'a> PortTester<'a> {
    pub fn new(
        lanes: &'a mut [Lane],
        plan: Arc<Plan>,
        threads: usize,
        cancel: Arc<AtomicBool>,
    ) -> Self {
        Self { lanes, plan, threads, cancel, real_time: true, trials: 0 }
    }
}

impl Tester for PortTester<'_> {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let of_one = self.plan.packet_rate(1.0);
        // Packets of the previous trial may still arrive, so each trial numbers its streams
        // differently.
        let streams = (self.plan.lanes().len() * self.threads.max(1)) as u16;
        self.trials = self.trials.wrapping_add(1);
        let job = Job {
            plan: Arc::clone(&self.plan),
            multiplier: load.share_of(of_one),
            duration,
            threads: self.threads,
            pace: Pace::OnTime { burst: burst(load) },
            drain: DRAIN,
            probes: Vec::new(),
            first_stream: self.trials.wrapping_mul(streams),
            late_after: Some(LateAfter { grace: grace(duration) }),
            real_time: self.real_time,
        };
        let before = Waits::read();
        let outcome = run::run(self.lanes, &job, &self.cancel, |_| {})?;
        let waited = Waits::read().longest_since(&before);
        if let Some(error) = outcome.error {
            return Err(GenError::PortFailed(error.to_string()));
        }
        Ok(trial(load, duration, &outcome, waited))
    }
}

impl Trial {
    pub fn loss(&self) -> f64 {
        let in_time = self.received.saturating_sub(self.late);
        match self.sent {
            0 => 1.0,
            sent => sent.saturating_sub(in_time) as f64 / sent as f64,
        }
    }

    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    pub(super) fn observed(&self) -> Observed {
        // Tolerate one packet that belongs to the time just before or just after the trial.
        let kept = self.sent.saturating_add(1) as f64 / self.planned.max(1) as f64;
        let offered = self.load.times(kept.min(1.0));
        Observed { offered, loss: self.loss(), forwarded: self.forwarded() }
    }

    pub fn forwarded(&self) -> Frequency {
        let in_time = self.received.saturating_sub(self.late);
        Frequency::per_second(in_time as f64 / self.duration.secs_f64().max(1e-9))
    }
}

impl Invalid {
    /// Names the reason without its numbers, to count invalid trials by reason.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Generator { .. } => "slow generator",
            Self::Sink { .. } => "drops by this machine",
            Self::SinkFull { .. } => "full receiving port",
            Self::Port { .. } => "packets refused by a port",
            Self::Busy { .. } => "pause on a busy machine",
        }
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Generator { planned, sent, reached } => write!(
                f,
                "the generator sent {sent} of {planned} packets ({reached}): it did not keep its own \
                 load"
            ),
            Self::Sink { drops } => {
                write!(f, "this machine dropped {drops} packets before they were counted")
            }
            Self::SinkFull { times, reached } => write!(
                f,
                "this machine took {reached}, and its receiving port may have been full {times} \
                 times: a loss may not be the device's"
            ),
            Self::Port { refused } => write!(
                f,
                "the ports refused {refused} packets: the other end of one may be gone, or its MTU \
                 too small"
            ),
            Self::Busy { gap, waited } => write!(
                f,
                "no packet arrived for {} ms, and another program of this machine waited {} ms for a \
                 CPU: it may be the device",
                gap.nanos() / 1_000_000,
                waited.nanos() / 1_000_000
            ),
        }
    }
}

fn trial(load: Frequency, duration: Span, outcome: &Outcome, waited: Span) -> Trial {
    let sum = |of: fn(&StreamCounts) -> u64| outcome.streams.iter().map(of).sum::<u64>();
    let (sent, planned) = (outcome.sent(), outcome.packets_planned);
    let received = sum(StreamCounts::unique);
    let refused: u64 = outcome.lanes.iter().map(|lane| lane.send_errors).sum();
    let is_planned = |count: u64| {
        (planned as f64 - count as f64).abs() <= (planned as f64 * run::TOLERANCE).max(1.0)
    };
    let missed = !is_planned(sent);
    let reached = Frequency::per_second(sent as f64 / duration.secs_f64().max(1e-9));
    let invalid = if let drops @ 1.. = outcome.sink_drops() {
        Some(Invalid::Sink { drops })
    } else if let times @ 1.. = outcome.sink_full() {
        let reached = Frequency::per_second(received as f64 / duration.secs_f64().max(1e-9));
        Some(Invalid::SinkFull { times, reached })
    } else if refused > 0 && is_planned(sent + refused) {
        Some(Invalid::Port { refused })
    } else if missed || !outcome.missed().is_empty() {
        Some(Invalid::Generator { planned, sent, reached })
    } else if refused > 0 {
        Some(Invalid::Port { refused })
    } else {
        stalled(duration, outcome, waited)
    };
    let mut latency: Option<Histogram<u64>> = None;
    for stream in &outcome.streams {
        match &mut latency {
            // The histograms have equal bounds, so the sum always fits.
            Some(sum) => {
                let _ = sum.add(&stream.latency);
            }
            None => latency = Some(stream.latency.clone()),
        }
    }
    let stamped = sum(|stream| stream.received + stream.returned);
    Trial {
        load,
        duration,
        planned,
        sent,
        ring_full: outcome.ring_full(),
        received,
        late: sum(|stream| stream.late),
        duplicates: sum(|stream| stream.duplicates),
        reordered: sum(|stream| stream.reordered),
        returned: sum(|stream| stream.returned),
        foreign: outcome.received().saturating_sub(stamped),
        invalid,
        latency: latency.unwrap_or_else(run::new_histogram),
    }
}

/// Returns the reason for which a trial is invalid, if this machine may have stalled the device:
/// the packet thread of a device forwards nothing while the thread waits for its CPU. Packets lost
/// in a pause without such a wait count as the device's loss.
fn stalled(duration: Span, outcome: &Outcome, waited: Span) -> Option<Invalid> {
    let paused = |stream: &StreamCounts| {
        let bound = SHORTEST_STALL + duration / stream.received.max(1) * STALL_PACKETS;
        Some(stream.longest_gap).filter(|gap| *gap > bound)
    };
    let gap = outcome.streams.iter().filter_map(paused).max()?;
    let bound = Span::from_secs_f64(duration.secs_f64() * MOST_WAITED);
    (waited > bound).then_some(Invalid::Busy { gap, waited })
}

/// Returns the delay after a trial's end up to which a packet still counts: the share of the trial
/// that equals the width of the bounds. Later packets count as lost, because a device whose queue
/// grows forwards less than its load.
fn grace(duration: Span) -> Span {
    Span::from_secs_f64(duration.secs_f64() * run::TOLERANCE).max(SHORTEST_GRACE)
}

/// Returns the maximum duration of a burst after this machine stalled: a longer burst would
/// overflow the device's queue.
fn burst(load: Frequency) -> Span {
    let packets = Span::from_secs_f64(BURST_PACKETS / load.events().max(1.0));
    packets.clamp(SHORTEST_BURST, LONGEST_BURST)
}

/// Minimum stall of a thread that loses its CPU to other threads, which run for a slice of some
/// milliseconds.
const SHORTEST_STALL: Span = Span::from_millis(2);
const STALL_PACKETS: u64 = 20;
/// Maximum share of a trial for which a thread may wait for a CPU. Above this share, the machine is
/// too busy.
const MOST_WAITED: f64 = 0.2;
const BURST_PACKETS: f64 = 10.0;
const SHORTEST_BURST: Span = Span::from_micros(300);
const LONGEST_BURST: Span = Span::from_millis(50);
pub(super) const DRAIN: Span = Span::from_millis(150);
const SHORTEST_GRACE: Span = Span::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::LaneCounts;

    fn outcome(sent: u64, received: u64, gap: Span) -> Outcome {
        let mut stream = StreamCounts::new(1);
        (stream.sent, stream.received, stream.longest_gap) = (sent, received, gap);
        Outcome {
            lanes: vec![LaneCounts { sent, received, ..LaneCounts::default() }],
            streams: vec![stream],
            seconds: Vec::new(),
            planned: SECOND,
            actual: SECOND,
            packets_planned: sent,
            flows: 1,
            longest_lag: Span::ZERO,
            busy: 0.5,
            retries: 0,
            cancelled: false,
            error: None,
        }
    }

    #[test]
    fn packets_count_until_half_a_percent_of_the_trial_or_2_ms_after_its_end() {
        assert_eq!(grace(Span::from_secs(2)), Span::from_millis(10));
        assert_eq!(grace(Span::from_millis(100)), Span::from_millis(2));
    }

    #[test]
    fn a_trial_on_a_busy_machine_is_invalid_with_and_without_loss() {
        let is_busy = |received, gap, waited| {
            let outcome = outcome(100_000, received, gap);
            let trial = trial(Frequency::per_second(1e5), SECOND, &outcome, waited);
            matches!(trial.invalid, Some(Invalid::Busy { .. }))
        };
        let (long, short) = (Span::from_millis(50), Span::from_millis(1));
        for received in [100_000, 99_999, 50_000] {
            assert!(is_busy(received, long, Span::from_millis(300)), "{received}");
            assert!(!is_busy(received, short, Span::from_millis(300)), "{received}");
            assert!(!is_busy(received, long, Span::from_millis(100)), "{received}");
        }
    }

    #[test]
    fn a_full_port_invalidates_a_trial_with_and_without_loss() {
        for received in [100_000, 99_999, 50_000] {
            let mut outcome = outcome(100_000, received, Span::ZERO);
            let of = |outcome: &Outcome| {
                trial(Frequency::per_second(1e5), SECOND, outcome, Span::ZERO).invalid
            };
            assert_eq!(of(&outcome), None, "{received}");
            outcome.lanes[0].sink_full = 1;
            let invalid = of(&outcome);
            assert!(matches!(invalid, Some(Invalid::SinkFull { times: 1, .. })), "{invalid:?}");
        }
    }

    const SECOND: Span = Span::from_secs(1);
}
