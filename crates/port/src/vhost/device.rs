use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wire::virtio::GsoKind;

use super::device_ring::{DeviceRing, LONGEST, RingError};
use super::device_session::Session;
use super::message::features;
use crate::bell::{Bell, Watched};
use crate::clock::monotonic;
use crate::tally::Tally;
use crate::unix_peer::{Attendant, Meeting, StopSignal, Wake, failed};
use crate::{Accepted, DuplexPort, Frame, Offload, PortCounters, PortError, Refusal, lock};

/// The back end of vhost-user: a network device for a virtual machine or another driver.
#[derive(Debug)]
pub struct VhostDevice {
    place: PathBuf,
    listens: bool,
    rings: Arc<Rings>,
    _attendant: Attendant,
}

/// The rings of all queues. The driver receives from rings with even numbers, and sends to rings
/// with odd numbers.
#[derive(Debug)]
pub(super) struct Rings {
    slots: Vec<Mutex<Slot>>,
    is_connected: AtomicBool,
    features: AtomicU64,
    changes: AtomicU64,
    tally: Tally,
    problem: Mutex<Option<String>>,
    /// The socket of the connection, stored so that any thread can close the connection.
    stream: Mutex<Option<UnixStream>>,
}

#[derive(Debug)]
struct Slot {
    bell: Bell,
    ring: Option<DeviceRing>,
    empty_calls: u32,
    /// Whether the driver has disconnected. The device still receives the frames that the driver
    /// left in the rings.
    has_ended: bool,
}

impl VhostDevice {
    /// Listens at a path, and serves front ends one after another.
    pub fn listen(path: &Path, queues: usize) -> Result<Self, PortError> {
        let meeting = Meeting::at(path).map_err(|error| failed(path, "listening at", error))?;
        Self::start(path, meeting, queues)
    }

    /// Connects to a front end that listens at a path, now or later, and connects again when the
    /// front end returns.
    pub fn connect(path: &Path, queues: usize) -> Result<Self, PortError> {
        Self::start(path, Meeting::with_any(path), queues)
    }

    fn start(path: &Path, meeting: Meeting, queues: usize) -> Result<Self, PortError> {
        let queues = queues.clamp(1, MOST_QUEUES);
        let slot = |_| Slot::new().map(Mutex::new);
        let slots = (0..2 * queues).map(slot).collect::<io::Result<_>>();
        let rings = Arc::new(Rings {
            slots: slots.map_err(|error| failed(path, "making a bell for", error))?,
            is_connected: AtomicBool::new(false),
            features: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            tally: Tally::default(),
            problem: Mutex::default(),
            stream: Mutex::default(),
        });
        let listens = meeting.listens();
        let work = {
            let (rings, place) = (rings.clone(), path.to_owned());
            move |stop: StopSignal| attend(&rings, &place, &meeting, &stop)
        };
        let attendant = Attendant::start("vhost-user", work)
            .map_err(|error| failed(path, "starting a thread for", error))?;
        Ok(Self { place: path.to_owned(), listens, rings, _attendant: attendant })
    }

    /// Ends the connection with a driver that broke a rule. The attendant thread sees the
    /// disconnection.
    fn accuse(&self, error: RingError) {
        tracing::warn!("vhost-user {}: the driver is disconnected: {error}", self.place.display());
        *lock(&self.rings.problem) = Some(format!("disconnected, because {error}"));
        if let Some(stream) = lock(&self.rings.stream).as_ref() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the ring for a packet to the driver. All packets of a flow go through the same ring.
    fn ring_of(&self, packet: &[u8], running: usize) -> usize {
        match running {
            0 | 1 => 0,
            count => 2 * (wire::flow::hash(packet, 0) % count as u64) as usize,
        }
    }

    /// Sends packets to the driver through a ring. `offloads`: the offload of each packet; empty if
    /// all packets are finished.
    fn send_to(&self, ring: usize, packets: &[&[u8]], offloads: &[Offload]) -> Accepted {
        let absent = Accepted { sent: 0, refusal: Some(Refusal::NoPeer) };
        let Some(slot) = self.rings.slots.get(ring) else { return absent };
        let mut slot = lock(slot);
        let Some(running) = slot.ring.as_mut() else { return absent };
        match running.send(packets, offloads) {
            Ok(accepted) => accepted,
            Err(error) => {
                slot.ring = None;
                drop(slot);
                self.accuse(error);
                absent
            }
        }
    }
}

impl DuplexPort for VhostDevice {
    fn queues(&self) -> usize {
        self.rings.slots.len() / 2
    }

    fn receive(
        &self,
        queue: usize,
        batch: &mut Vec<Frame>,
        limit: usize,
    ) -> Result<usize, PortError> {
        let Some(slot) = self.rings.slots.get(2 * queue + 1) else { return Ok(0) };
        let mut slot = lock(slot);
        let before = batch.len();
        match slot.take(batch, limit) {
            Ok(malformed) => self.rings.tally.refused(malformed),
            Err(error) => {
                slot.ring = None;
                drop(slot);
                self.accuse(error);
            }
        }
        if batch.len() > before {
            self.rings.tally.received(&batch[before..]);
        }
        Ok(batch.len() - before)
    }

    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError> {
        self.send_unfinished(packets, &[])
    }

    fn takes(&self, offload: Offload) -> bool {
        let virtio = offload.virtio();
        let segmentation = match virtio.gso.map(|gso| gso.kind) {
            None => 0,
            Some(GsoKind::TcpV4) => features::GUEST_TSO4,
            Some(GsoKind::TcpV6) => features::GUEST_TSO6,
            Some(_) => features::GUEST_USO4 | features::GUEST_USO6,
        };
        let ecn = if virtio.gso.is_some_and(|gso| gso.ecn) { features::GUEST_ECN } else { 0 };
        let needed = features::GUEST_CHECKSUM | segmentation | ecn;
        self.rings.features.load(Ordering::Relaxed) & needed == needed
    }

    fn send_unfinished(
        &self,
        packets: &[&[u8]],
        offloads: &[Offload],
    ) -> Result<Accepted, PortError> {
        if !self.is_connected() {
            return Ok(Accepted { sent: 0, refusal: Some(Refusal::NoPeer) });
        }
        let running = match self.rings.slots.len() {
            2 => 1,
            _ => self.rings.running_pairs(),
        };
        let mut done = 0;
        let mut refusal = None;
        while done < packets.len() && refusal.is_none() {
            let ring = self.ring_of(packets[done], running);
            let same = packets[done..]
                .iter()
                .take_while(|packet| running < 2 || self.ring_of(packet, running) == ring);
            let end = done + same.count();
            let offloads = offloads.get(done..end).unwrap_or_default();
            let accepted = self.send_to(ring, &packets[done..end], offloads);
            done += accepted.sent;
            refusal = accepted.refusal;
        }
        self.rings.tally.sent(&packets[..done], offloads);
        Ok(Accepted { sent: done, refusal })
    }

    fn fd(&self, queue: usize) -> Option<OwnedFd> {
        lock(self.rings.slots.get(2 * queue + 1)?).bell.fd()
    }

    fn is_connected(&self) -> bool {
        self.rings.is_connected.load(Ordering::Acquire)
    }

    fn changes(&self) -> u64 {
        self.rings.changes.load(Ordering::Acquire)
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn counters(&self) -> PortCounters {
        self.rings.tally.counters()
    }

    fn describe(&self) -> String {
        let role = if self.listens { "listens at" } else { "connects to" };
        let state = match (self.is_connected(), lock(&self.rings.problem).as_deref()) {
            (true, _) => {
                let features = self.rings.features.load(Ordering::Relaxed);
                let passes = if features & OFFLOADS != 0 { ", offloads pass" } else { "" };
                format!("connected, {} queues{passes}", self.rings.running_pairs())
            }
            (false, None) => "no driver".to_owned(),
            (false, Some(problem)) => format!("no driver: {problem}"),
        };
        format!("vhost-user device, {role} {}: {state}", self.place.display())
    }
}

impl Rings {
    pub(super) fn agree(&self, features: u64) {
        self.features.store(features, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn start(&self, index: usize, ring: DeviceRing) {
        let Some(slot) = self.slots.get(index) else { return };
        {
            let mut slot = lock(slot);
            slot.ring = Some(ring);
            slot.empty_calls = BEFORE_SLEEP;
            slot.has_ended = false;
        }
        self.refresh();
    }

    /// Makes a descriptor wake the thread that receives from a ring.
    pub(super) fn watch(&self, index: usize, fd: OwnedFd) -> io::Result<Watched> {
        let slot = self.slots.get(index).ok_or(io::ErrorKind::NotFound)?;
        lock(slot).bell.watch(fd)
    }

    /// Stops a ring and returns the index of its next entry.
    pub(super) fn stop(&self, index: usize) -> u16 {
        let Some(slot) = self.slots.get(index) else { return 0 };
        let ring = lock(slot).ring.take();
        if ring.is_some() {
            self.refresh();
        }
        ring.map_or(0, |ring| ring.base())
    }

    /// Updates whether both rings of the first queue run, so that frames can pass.
    fn refresh(&self) {
        let runs =
            |index: usize| self.slots.get(index).is_some_and(|slot| lock(slot).ring.is_some());
        let is_connected = runs(0) && runs(1);
        if is_connected {
            *lock(&self.problem) = None;
        }
        self.is_connected.store(is_connected, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of leading queues whose driver can receive.
    fn running_pairs(&self) -> usize {
        let receiving = self.slots.iter().step_by(2);
        receiving.take_while(|slot| lock(slot).ring.is_some()).count()
    }

    /// Updates the port's state when the driver's connection has ended.
    fn end(&self) {
        self.is_connected.store(false, Ordering::Release);
        self.features.store(0, Ordering::Relaxed);
        for (index, slot) in self.slots.iter().enumerate() {
            let mut slot = lock(slot);
            match index % 2 {
                0 => slot.ring = None,
                _ => slot.has_ended = true,
            }
        }
        *lock(&self.stream) = None;
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl Slot {
    fn new() -> io::Result<Self> {
        Ok(Self { bell: Bell::new()?, ring: None, empty_calls: 0, has_ended: false })
    }

    /// Appends received frames. Returns the number of malformed frames.
    fn take(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<u64, RingError> {
        let Some(ring) = self.ring.as_mut() else { return Ok(0) };
        let received = ring.receive(batch, limit, monotonic)?;
        if received.entries > 0 {
            if self.empty_calls >= BEFORE_SLEEP {
                ring.ask_for_kicks(false);
            }
            self.empty_calls = 0;
            return Ok(received.malformed);
        }
        if self.has_ended {
            self.ring = None;
            return Ok(0);
        }
        self.empty_calls = self.empty_calls.saturating_add(1);
        if self.empty_calls == BEFORE_SLEEP && !ring.prepare_to_sleep()? {
            ring.ask_for_kicks(false);
            self.empty_calls = 0;
        }
        Ok(0)
    }
}

/// Connects to a front end, serves it until it disconnects, and connects to the next front end.
fn attend(rings: &Rings, place: &Path, meeting: &Meeting, stop: &StopSignal) {
    loop {
        let outcome = match meeting.next(stop) {
            Ok(None) => return,
            Ok(Some(stream)) => {
                *lock(&rings.stream) = stream.try_clone().ok();
                let outcome = Session::new(&stream, rings).run(stop);
                rings.end();
                outcome.map_err(|error| error.to_string())
            }
            Err(problem) => Err(problem),
        };
        if let Err(problem) = outcome {
            tracing::debug!("vhost-user {}: {problem}", place.display());
            *lock(&rings.problem) = Some(problem);
        }
        if stop.wait(None, Some(if meeting.listens() { Duration::ZERO } else { PAUSE }))
            == Wake::Stop
        {
            return;
        }
    }
}

/// Maximum number of queues, as in Open vSwitch.
const MOST_QUEUES: usize = 64;
const OFFLOADS: u64 = features::CHECKSUM | features::GUEST_CHECKSUM;
const BEFORE_SLEEP: u32 = 32;
const PAUSE: Duration = Duration::from_millis(100);
