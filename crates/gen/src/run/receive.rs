use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::Frame;
use units::{Span, Time};

use super::breaks::Breaks;
use super::lane::Lane;
use super::live::{Live, add};
use super::monotonic;
use super::streams::StreamCounts;
use crate::neighbour;
use crate::traffic::Stamp;

/// Receives from all ports in one thread. The size of the receiver's memory does not depend on the
/// packets that arrive.
pub(super) struct Receiver<'a> {
    lanes: &'a mut [Lane],
    live: &'a Live,
    first_stream: u16,
    streams: Vec<StreamCounts>,
    /// For each stream, the index of the lane that sends it.
    origins: Vec<usize>,
    /// The planned end of the run, and the time after this end in which packets still count as in
    /// time.
    late: Option<(Time, Span)>,
    progress: Vec<Progress>,
    error: Option<String>,
    batch: Vec<Frame>,
}

struct Progress {
    has_failed: bool,
    /// The lane's count of `sink_drops` before the run.
    drops_before: u64,
    /// The share of the lane's room that the last batch took.
    occupancy: f64,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        lanes: &'a mut [Lane],
        live: &'a Live,
        (first_stream, origins): (u16, Vec<usize>),
        late: Option<(Time, Span)>,
    ) -> Self {
        let numbers = 0..origins.len().min(MOST_STREAMS) as u16;
        let progress = lanes.iter_mut().map(|lane| Progress {
            has_failed: false,
            drops_before: lane.sink_drops(),
            occupancy: 0.0,
        });
        Self {
            progress: progress.collect(),
            lanes,
            live,
            first_stream,
            streams: numbers.map(StreamCounts::new).collect(),
            origins,
            late,
            error: None,
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Counts frames until `stop`, and then the frames that are in the ports' queues at that time.
    pub(super) fn run(
        mut self,
        stop: &AtomicBool,
        real_time: bool,
    ) -> (Vec<StreamCounts>, Option<String>) {
        let mut breaks = Breaks::begin(real_time);
        // If the machine has a single CPU, the sending threads need this thread's CPU.
        let every = if host::online_cpus().len() == 1 { EVERY_SHARED } else { EVERY };
        // Limits the rounds after `stop`, so that the loop ends even during a flood.
        let mut rounds_left = 1000usize;
        loop {
            let last = stop.load(Ordering::Relaxed);
            let any = self.poll();
            rounds_left -= usize::from(last);
            if last && (!any || rounds_left == 0) {
                break;
            }
            if any {
                breaks.take(every, &mut monotonic());
            } else {
                Lane::wait(self.lanes, PATIENCE);
                breaks.slept();
            }
        }
        for (number, (lane, progress)) in self.lanes.iter_mut().zip(self.progress).enumerate() {
            let drops = lane.sink_drops().saturating_sub(progress.drops_before);
            add(&self.live.lanes[number].sink_drops, drops);
        }
        (self.streams, self.error)
    }

    /// Takes a batch from each lane. Returns true if any frame arrived. If a port fails, the other
    /// ports' frames are still counted.
    pub(super) fn poll(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let mut any = false;
        for number in 0..self.lanes.len() {
            if self.progress[number].has_failed {
                continue;
            }
            batch.clear();
            let (received, occupancy) = self.lanes[number].take(&mut batch, BATCH);
            // A port that fails may have returned frames first.
            self.take(number, &batch);
            let progress = &mut self.progress[number];
            match received {
                Ok(count) => {
                    any |= count > 0;
                    let is_full = may_have_been_full(progress.occupancy, occupancy);
                    add(&self.live.lanes[number].sink_full, u64::from(is_full));
                    progress.occupancy = if is_full { 0.0 } else { occupancy };
                }
                Err(problem) => {
                    progress.has_failed = true;
                    self.error.get_or_insert(problem.to_string());
                }
            }
        }
        batch.clear();
        self.batch = batch;
        any
    }

    /// Counts every frame. Continues after a failed ARP reply, because the port may still receive
    /// frames.
    fn take(&mut self, lane: usize, batch: &[Frame]) {
        let counts = &self.live.lanes[lane];
        let (mut received, mut bytes, mut errors, mut own, mut arps) = (0, 0, 0, 0, 0);
        for frame in batch {
            let bytes_of = frame.bytes();
            if let Some(stamp) = Stamp::read(bytes_of) {
                received += 1;
                bytes += bytes_of.len() as u64;
                let index = usize::from(stamp.stream.wrapping_sub(self.first_stream));
                if let Some(stream) = self.streams.get_mut(index) {
                    // If there is only one port, the port sends packets into the device and
                    // receives packets from it, so no packet counts as returned.
                    if self.lanes.len() > 1 && self.origins[index] == lane {
                        stream.returned += 1;
                    } else {
                        stream.take(stamp, frame.arrival(), self.late);
                    }
                }
                continue;
            }
            if neighbour::is_housekeeping(bytes_of) {
                let is_arp = neighbour::is_arp(bytes_of);
                arps += u64::from(is_arp);
                own += 1;
                match self.lanes[lane].answer(bytes_of) {
                    Ok(true) => add(&counts.arp_sent, 1),
                    Ok(false) => errors += u64::from(!is_arp && !is_ip(bytes_of)),
                    Err(problem) => {
                        self.error.get_or_insert(problem.to_string());
                    }
                }
                continue;
            }
            received += 1;
            bytes += bytes_of.len() as u64;
        }
        add(&counts.received, received);
        add(&counts.received_bytes, bytes);
        add(&counts.receive_errors, errors);
        add(&counts.housekeeping, own);
        add(&counts.arp_received, arps);
    }
}

/// Whether a ring that is read in batches may have been full at some time. The frames of the last
/// batch still occupied the ring while they were copied. The frames of this batch may have arrived
/// in that time.
fn may_have_been_full(last: f64, this: f64) -> bool {
    last + this >= 1.0
}

fn is_ip(frame: &[u8]) -> bool {
    wire::Layout::parse(frame)
        .is_some_and(|layout| !matches!(layout.network, wire::Network::Other(_)))
}

/// Number of frames in a batch, for a port that does not show how full a device's ring was.
const BATCH: usize = 256;
const MOST_STREAMS: usize = 4096;
/// Time between sleeps. The receive ring holds more frames than arrive during a sleep.
const EVERY: Span = Span::from_millis(2);
const EVERY_SHARED: Span = Span::from_micros(150);
const PATIENCE: Duration = Duration::from_millis(2);
