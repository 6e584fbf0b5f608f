//! The work of tcpa's connections, as the kernel and the core count it (bpf/work.h).

use crate::AccelError;
use crate::counters::counters;
use crate::object::with_libbpf_log;
use crate::pins::{self, Pins};
use libbpf_rs::{MapCore, MapFlags};

counters! {
    /// The work of one connection or of several; `struct work` of bpf/flow.h.
    Work {
        /// Bytes of new data.
        bytes: Bytes,
        /// Segments of data, retransmissions included.
        segments,
        retransmitted,
        /// Segments that loss detection marked as lost.
        lost,
        /// Segments that arrived twice, as DSACK reports.
        duplicates,
        /// Acknowledgements that showed reordering.
        reordered,
        timeouts,
        recoveries,
        /// Round trips in which tcpa paused to measure the path.
        pauses,
        /// Transmissions after an idle period.
        restarts,
        /// Connections that began at a remembered rate.
        recalled,
        /// Connections that left a memory of their path.
        remembered,
        /// Connections that have ended.
        connections,
    }
}

impl Work {
    /// Reads the work of the connections that have ended since the algorithm was installed.
    pub(crate) fn of_ended(pins: &Pins) -> Result<Self, AccelError> {
        let map = pins.map(pins::ENDED)?;
        let cpus = with_libbpf_log(pins::ENDED, || {
            map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        })?;
        Ok(cpus.unwrap_or_default().iter().map(|bytes| Self::from_bytes(bytes)).sum())
    }
}

pub(crate) const WORK_BYTES: usize = 104;
