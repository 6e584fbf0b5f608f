use super::Latencies;
use super::timeouts::{Timeouts, TransferError};
use std::sync::Barrier;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct StartBarrier {
    barrier: Barrier,
    time: Duration,
}

#[derive(Debug)]
pub(super) struct Tally {
    /// Number of transactions, or of messages sent.
    pub(super) count: u64,
    /// Payload sent, in bytes.
    pub(super) bytes: u64,
    /// Number of transactions without a response, or with a failed connection.
    pub(super) lost: u64,
    /// Number of responses that arrived after their request counted as lost.
    pub(super) late: u64,
    pub(super) latencies: Latencies,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

impl StartBarrier {
    pub(super) fn new(threads: usize, time: Duration) -> Self {
        Self { barrier: Barrier::new(threads), time }
    }

    /// Waits until every thread has called this method. `prepared`: the result of the thread's
    /// preparations. Returns the tally to fill, and the time at which the measurement ends.
    pub(super) fn wait(
        &self,
        prepared: Result<(), TransferError>,
        timeouts: Timeouts<'_>,
    ) -> Result<(Tally, Instant), TransferError> {
        if prepared.is_err() {
            timeouts.end();
        }
        self.barrier.wait();
        prepared?;
        let began = Instant::now();
        let tally = Tally {
            count: 0,
            bytes: 0,
            lost: 0,
            late: 0,
            latencies: Latencies::default(),
            began,
            ended: began,
        };
        Ok((tally, began + self.time))
    }
}

impl Tally {
    /// Counts a sent message. Reads the clock once for several small messages, because a reading
    /// costs a tenth of sending a message of one byte.
    pub(super) fn send(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        if self.count.is_multiple_of((CLOCK_BYTES / bytes.max(1)).clamp(1, CLOCK_MESSAGES)) {
            self.ended = Instant::now();
        }
    }

    /// Counts a transaction that lasted from `began` to now; returns the present time.
    pub(super) fn transact(&mut self, began: Instant) -> Instant {
        let now = Instant::now();
        self.latencies.add(now - began);
        self.count += 1;
        self.ended = now;
        now
    }
}

const CLOCK_BYTES: u64 = 16 * 1024;
const CLOCK_MESSAGES: u64 = 64;
