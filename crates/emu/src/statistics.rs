use crate::{Lateness, QueueTrace};
use link::{Count, Drops, LinkStats};
use port::PortCounters;
use serde::{Deserialize, Serialize};
use units::{Bytes, Share, Span};

#[derive(Debug, Clone, Serialize)]
pub struct EmulatorStatistics {
    pub running: Span,
    /// Time spent on frames, without the time spent waiting for the next deadline.
    pub worked: Span,
    /// CPU time of the emulator's thread: work on frames, and spinning before deadlines.
    pub cpu: Span,
    /// Whether the kernel granted the real-time scheduling that the caller requested.
    pub real_time: bool,
    pub lateness: Lateness,
    pub cables: Vec<CableStatistics>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CableStatistics {
    pub name: String,
    pub forward: DirectionStatistics,
    pub backward: DirectionStatistics,
    /// The access link of each host of side `a`, if several hosts share that side.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<DirectionStatistics>,
}

/// One direction: the model's counts, the queue, and the ports' own losses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectionStatistics {
    pub arrived: Frames,
    pub delivered: Frames,
    pub dropped_overflow: Frames,
    pub dropped_early: Frames,
    pub dropped_loss: Frames,
    pub duplicated: Frames,
    pub corrupted: Frames,
    pub reordered: Frames,
    pub marked: Frames,
    pub queued: Frames,
    pub in_flight: u64,
    pub queue_bytes: Quantiles,
    pub sojourn_us: Quantiles,
    /// Frames lost outside the model, at the receiving or the sending port. Any value but 0 makes a
    /// measurement invalid.
    pub lost_outside_model: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tagged: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<QueueTrace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Frames {
    pub frames: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl DirectionStatistics {
    pub fn dropped(&self) -> u64 {
        self.dropped_overflow.frames + self.dropped_early.frames + self.dropped_loss.frames
    }

    pub(crate) fn new(
        stats: &LinkStats,
        queued: (usize, Bytes),
        in_flight: usize,
        (lost_outside_model, tagged): (u64, u64),
        trace: Option<QueueTrace>,
    ) -> Self {
        let Drops { overflow, early, loss, .. } = &stats.dropped;
        let occupancy = |percent| stats.occupancy.quantile(share(percent)).count() as f64;
        let sojourn = |percent| stats.sojourns.quantile(share(percent)).micros_f64();
        Self {
            arrived: frames(&stats.arrived),
            delivered: frames(&stats.delivered),
            dropped_overflow: frames(overflow),
            dropped_early: frames(early),
            dropped_loss: frames(loss),
            duplicated: frames(&stats.duplicated),
            corrupted: frames(&stats.corrupted),
            reordered: frames(&stats.reordered),
            marked: frames(&stats.marked),
            queued: Frames { frames: queued.0 as u64, bytes: queued.1.count() },
            in_flight: in_flight as u64,
            queue_bytes: Quantiles {
                mean: stats.occupancy.mean(),
                p50: occupancy(50.0),
                p95: occupancy(95.0),
                p99: occupancy(99.0),
                max: stats.occupancy.max().count() as f64,
            },
            sojourn_us: Quantiles {
                mean: stats.sojourns.mean().micros_f64(),
                p50: sojourn(50.0),
                p95: sojourn(95.0),
                p99: sojourn(99.0),
                max: stats.sojourns.max().micros_f64(),
            },
            lost_outside_model,
            tagged,
            trace,
        }
    }
}

/// Returns the number of frames that a port lost on reception, outside the model.
pub(crate) fn lost_receiving(counters: &PortCounters) -> u64 {
    counters.kernel_drops + counters.backlog_drops + counters.truncated + counters.unsegmentable
}

pub(crate) fn lost_sending(counters: &PortCounters) -> u64 {
    counters.dropped_queue_full + counters.dropped_too_long + counters.dropped_refused
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn share(percent: f64) -> Share {
    Share::from_percent(percent).unwrap_or(Share::ONE)
}

fn frames(count: &Count) -> Frames {
    Frames { frames: count.packets, bytes: count.bytes.count() }
}
