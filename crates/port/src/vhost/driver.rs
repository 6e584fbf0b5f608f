use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::PollFlags;

use super::driver_rings::{DeviceFault, LONGEST, ReceiveRing, TransmitRing, occupancy};
use super::driver_session::{Negotiated, negotiate};
use crate::bell::{Bell, Watched};
use crate::clock::monotonic;
use crate::tally::Tally;
use crate::unix_peer::{Attendant, Meeting, StopSignal, Wake, failed};
use crate::{Accepted, DuplexPort, Frame, PortCounters, PortError, Refusal, lock};

/// The front end of vhost-user: a driver that uses a virtio device of another process.
#[derive(Debug)]
pub struct VhostDriver {
    place: PathBuf,
    state: Arc<State>,
    _attendant: Attendant,
}

#[derive(Debug)]
struct State {
    bell: Bell,
    receiving: Mutex<Option<Receiving>>,
    transmitting: Mutex<Option<TransmitRing>>,
    is_connected: AtomicBool,
    changes: AtomicU64,
    tally: Tally,
    problem: Mutex<Option<String>>,
    /// Whether a device broke a rule, so that the connection must end.
    is_accused: AtomicBool,
}

#[derive(Debug)]
struct Receiving {
    ring: ReceiveRing,
    call: Watched,
    empty_calls: u32,
    /// Whether the device has disconnected. The driver still receives the frames that the device
    /// left in the rings.
    has_ended: bool,
}

impl VhostDriver {
    /// Connects to a device that listens at a path, now or later, and connects again when the
    /// device returns.
    pub fn connect(path: &Path) -> Result<Self, PortError> {
        Self::start(path, Meeting::with(path))
    }

    /// Listens at a path, and uses devices one after another.
    pub fn listen(path: &Path) -> Result<Self, PortError> {
        let meeting = Meeting::at(path).map_err(|error| failed(path, "listening at", error))?;
        Self::start(path, meeting)
    }

    fn start(path: &Path, meeting: Meeting) -> Result<Self, PortError> {
        let bell = Bell::new().map_err(|error| failed(path, "making a bell for", error))?;
        let state = Arc::new(State {
            bell,
            receiving: Mutex::default(),
            transmitting: Mutex::default(),
            is_connected: AtomicBool::default(),
            changes: AtomicU64::default(),
            tally: Tally::default(),
            problem: Mutex::default(),
            is_accused: AtomicBool::default(),
        });
        let work = {
            let (state, place) = (state.clone(), path.to_owned());
            move |stop: StopSignal| attend(&state, &place, &meeting, &stop)
        };
        let attendant = Attendant::start("virtio-user", work)
            .map_err(|error| failed(path, "starting a thread for", error))?;
        Ok(Self { place: path.to_owned(), state, _attendant: attendant })
    }

    fn accuse(&self, fault: DeviceFault) {
        tracing::warn!("vhost-user {}: the device is left: {fault}", self.place.display());
        *lock(&self.state.problem) = Some(format!("left, because {fault}"));
        self.state.is_accused.store(true, Ordering::Release);
    }
}

impl DuplexPort for VhostDriver {
    fn receive(&self, _: usize, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let mut guard = lock(&self.state.receiving);
        let Some(receiving) = guard.as_mut() else { return Ok(0) };
        let before = batch.len();
        let outcome = receiving.take(batch, limit);
        self.state.tally.received(&batch[before..]);
        match outcome {
            Ok(0) if receiving.has_ended => *guard = None,
            Ok(_) => {}
            Err(fault) => {
                *guard = None;
                drop(guard);
                self.accuse(fault);
            }
        }
        Ok(batch.len() - before)
    }

    fn occupancy(&self, frames: &[Frame]) -> f64 {
        occupancy(frames)
    }

    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError> {
        let mut guard = lock(&self.state.transmitting);
        let absent = Accepted { sent: 0, refusal: Some(Refusal::NoPeer) };
        let Some(ring) = guard.as_mut() else { return Ok(absent) };
        match ring.send(packets) {
            Ok(accepted) => {
                self.state.tally.sent(&packets[..accepted.sent], &[]);
                Ok(accepted)
            }
            Err(fault) => {
                *guard = None;
                drop(guard);
                self.accuse(fault);
                Ok(absent)
            }
        }
    }

    fn fd(&self, _: usize) -> Option<OwnedFd> {
        self.state.bell.fd()
    }

    fn is_connected(&self) -> bool {
        self.state.is_connected.load(Ordering::Acquire)
    }

    fn changes(&self) -> u64 {
        self.state.changes.load(Ordering::Acquire)
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn counters(&self) -> PortCounters {
        self.state.tally.counters()
    }

    fn describe(&self) -> String {
        let state = match (self.is_connected(), lock(&self.state.problem).as_deref()) {
            (true, _) => "connected".to_owned(),
            (false, None) => "no device".to_owned(),
            (false, Some(problem)) => format!("no device: {problem}"),
        };
        format!("vhost-user driver of {}: {state}", self.place.display())
    }
}

impl Receiving {
    fn take(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, DeviceFault> {
        let count = self.ring.receive(batch, limit, monotonic)?;
        if count > 0 {
            if self.empty_calls >= BEFORE_SLEEP {
                self.ring.ask_for_calls(false);
            }
            self.empty_calls = 0;
            return Ok(count);
        }
        self.empty_calls = self.empty_calls.saturating_add(1);
        if self.empty_calls == BEFORE_SLEEP {
            let _ = rustix::io::read(&self.call, &mut [0; 8]);
            if !self.ring.prepare_to_sleep()? {
                self.ring.ask_for_calls(false);
                self.empty_calls = 0;
            }
        }
        Ok(0)
    }
}

impl State {
    fn connect(&self, negotiated: Negotiated) -> io::Result<()> {
        let Negotiated { receive, transmit, call } = negotiated;
        let call = self.bell.watch(call)?;
        // Ask for calls now, because the receiving thread may already be asleep.
        receive.ask_for_calls(true);
        let receiving =
            Receiving { ring: receive, call, empty_calls: BEFORE_SLEEP, has_ended: false };
        self.is_accused.store(false, Ordering::Release);
        *lock(&self.receiving) = Some(receiving);
        *lock(&self.transmitting) = Some(transmit);
        *lock(&self.problem) = None;
        self.is_connected.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn disconnect(&self) {
        self.is_connected.store(false, Ordering::Release);
        *lock(&self.transmitting) = None;
        if let Some(receiving) = lock(&self.receiving).as_mut() {
            receiving.has_ended = true;
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// Connects to a device, waits until it disconnects, and connects to the next device.
fn attend(state: &State, place: &Path, meeting: &Meeting, stop: &StopSignal) {
    loop {
        let met = match meeting.next(stop) {
            Ok(None) => return,
            Ok(Some(stream)) => negotiate(&stream)
                .map_err(|error| error.to_string())
                .and_then(|negotiated| state.connect(negotiated).map_err(|e| e.to_string()))
                .map(|()| stream),
            Err(problem) => Err(problem),
        };
        match met {
            Ok(stream) => {
                loop {
                    let watched = (stream.as_fd(), PollFlags::empty());
                    match stop.wait(Some(watched), Some(PAUSE)) {
                        Wake::Stop => return,
                        Wake::Timeout if !state.is_accused.load(Ordering::Acquire) => {}
                        _ => break,
                    }
                }
                state.disconnect();
            }
            Err(problem) => {
                tracing::debug!("vhost-user {}: {problem}", place.display());
                *lock(&state.problem) = Some(problem);
            }
        }
        if stop.wait(None, Some(PAUSE)) == Wake::Stop {
            return;
        }
    }
}

const BEFORE_SLEEP: u32 = 32;
const PAUSE: Duration = Duration::from_millis(100);
