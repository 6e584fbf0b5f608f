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

/// The receiving side of all ports, on one thread. Its memory does not depend on what arrives.
pub(super) struct Receiver<'a> {
    lanes: &'a mut [Lane],
    first_stream: u16,
    streams: Vec<StreamCounts>,
    /// The planned end, and the time after it in which packets still count as in time.
    late: Option<(Time, Span)>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        lanes: &'a mut [Lane],
        first_stream: u16,
        streams: usize,
        late: Option<(Time, Span)>,
    ) -> Self {
        let numbers = 0..streams.min(MOST_STREAMS) as u16;
        Self { lanes, first_stream, streams: numbers.map(StreamCounts::new).collect(), late }
    }

    /// Counts until `stop`. A port that fails ends nothing: the counts of the others go on.
    pub(super) fn run(
        &mut self,
        live: &Live,
        stop: &AtomicBool,
        real_time: bool,
    ) -> (Vec<StreamCounts>, Option<String>) {
        let mut breaks = Breaks::begin(real_time);
        let before: Vec<u64> = self.lanes.iter_mut().map(Lane::sink_drops).collect();
        let mut failed: Vec<bool> = vec![false; self.lanes.len()];
        let rooms: Vec<Option<usize>> = self.lanes.iter().map(Lane::room).collect();
        // Frames taken in full batches, one after another.
        let mut waiting: Vec<usize> = vec![0; self.lanes.len()];
        // The sending threads have no other CPU.
        let every = if host::online_cpus().len() == 1 { EVERY_SHARED } else { EVERY };
        let mut error = None;
        let mut batch: Vec<Frame> = Vec::with_capacity(BATCH);
        // At the end what waits is still taken, and a flood ends nevertheless.
        let mut rounds_left = 1000usize;
        loop {
            let last = stop.load(Ordering::Relaxed);
            let mut any = false;
            for (number, failed) in failed.iter_mut().enumerate() {
                if *failed {
                    continue;
                }
                batch.clear();
                let received = self.lanes[number].receive(&mut batch, BATCH);
                let taken = received.and_then(|count| {
                    self.take(number, &batch, live)?;
                    Ok(count)
                });
                match taken {
                    Ok(count) => {
                        any |= count > 0;
                        let waiting = &mut waiting[number];
                        *waiting = if count == BATCH { *waiting + count } else { 0 };
                        if rooms[number].is_some_and(|room| *waiting >= room) {
                            add(&live.lanes[number].sink_full, 1);
                            *waiting = 0;
                        }
                    }
                    Err(problem) => {
                        *failed = true;
                        error.get_or_insert(problem.to_string());
                    }
                }
            }
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
        for (number, (lane, before)) in self.lanes.iter_mut().zip(before).enumerate() {
            let drops = lane.sink_drops().saturating_sub(before);
            add(&live.lanes[number].sink_drops, drops);
        }
        (std::mem::take(&mut self.streams), error)
    }

    fn take(&mut self, lane: usize, batch: &[Frame], live: &Live) -> Result<(), port::PortError> {
        let counts = &live.lanes[lane];
        let (mut received, mut bytes, mut errors, mut own, mut arps) = (0, 0, 0, 0, 0);
        for frame in batch {
            let bytes_of = frame.bytes();
            if let Some(stamp) = Stamp::read(bytes_of) {
                received += 1;
                bytes += bytes_of.len() as u64;
                let index = stamp.stream.wrapping_sub(self.first_stream);
                if let Some(stream) = self.streams.get_mut(usize::from(index)) {
                    stream.take(stamp, frame.arrival(), self.late);
                }
                continue;
            }
            if neighbour::is_housekeeping(bytes_of) {
                let is_arp = neighbour::is_arp(bytes_of);
                arps += u64::from(is_arp);
                own += 1;
                if self.lanes[lane].answer(bytes_of)? {
                    add(&counts.arp_sent, 1);
                } else if !is_arp && !is_ip(bytes_of) {
                    errors += 1;
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
        Ok(())
    }
}

fn is_ip(frame: &[u8]) -> bool {
    wire::Layout::parse(frame)
        .is_some_and(|layout| !matches!(layout.network, wire::Network::Other(_)))
}

const BATCH: usize = 256;
const MOST_STREAMS: usize = 4096;
/// The receive ring holds more than arrives in a break.
const EVERY: Span = Span::from_millis(2);
const EVERY_SHARED: Span = Span::from_micros(150);
const PATIENCE: Duration = Duration::from_millis(2);
