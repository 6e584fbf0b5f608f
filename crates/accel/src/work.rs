//! The work of tcpa's connections, as the kernel and the core count it (bpf/work.h).

use crate::AccelError;
use crate::object::with_libbpf_log;
use crate::pins::{self, Pins};
use libbpf_rs::{MapCore, MapFlags};
use units::Bytes;

/// The work of one connection or of several; `struct work` of bpf/flow.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Bytes of new data.
    pub bytes: Bytes,
    /// Segments of data, retransmissions included.
    pub segments: u64,
    pub retransmitted: u64,
    /// Segments that loss detection marked as lost.
    pub lost: u64,
    /// Segments that arrived twice, as DSACK reports.
    pub duplicates: u64,
    /// Acknowledgements that showed reordering.
    pub reordered: u64,
    pub timeouts: u64,
    pub recoveries: u64,
    /// Round trips in which tcpa paused to measure the path.
    pub pauses: u64,
    /// Transmissions after an idle period.
    pub restarts: u64,
    /// Connections that began at a remembered rate.
    pub recalled: u64,
    /// Connections that left a memory of their path.
    pub remembered: u64,
    /// Connections that have ended.
    pub connections: u64,
}

impl Work {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let word = bytes.get(8 * index..).and_then(<[u8]>::first_chunk);
            word.map_or(0, |word| u64::from_ne_bytes(*word))
        };
        Self {
            bytes: Bytes::new(word(0)),
            segments: word(1),
            retransmitted: word(2),
            lost: word(3),
            duplicates: word(4),
            reordered: word(5),
            timeouts: word(6),
            recoveries: word(7),
            pauses: word(8),
            restarts: word(9),
            recalled: word(10),
            remembered: word(11),
            connections: word(12),
        }
    }

    /// Reads the work of the connections that have ended since the algorithm was installed.
    pub(crate) fn of_ended(pins: &Pins) -> Result<Self, AccelError> {
        let map = pins.map(pins::ENDED)?;
        let cpus = with_libbpf_log(pins::ENDED, || {
            map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        })?;
        Ok(cpus.unwrap_or_default().iter().map(|bytes| Self::from_bytes(bytes)).sum())
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            bytes: sum.bytes + one.bytes,
            segments: sum.segments + one.segments,
            retransmitted: sum.retransmitted + one.retransmitted,
            lost: sum.lost + one.lost,
            duplicates: sum.duplicates + one.duplicates,
            reordered: sum.reordered + one.reordered,
            timeouts: sum.timeouts + one.timeouts,
            recoveries: sum.recoveries + one.recoveries,
            pauses: sum.pauses + one.pauses,
            restarts: sum.restarts + one.restarts,
            recalled: sum.recalled + one.recalled,
            remembered: sum.remembered + one.remembered,
            connections: sum.connections + one.connections,
        })
    }
}

pub(crate) const WORK_BYTES: usize = 104;
