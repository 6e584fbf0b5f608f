use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use host::Namespace;
use port::{
    DuplexPort, Frame, PacketPort, PacketSender, Port, PortError, RingPort, TapKind, TapPort,
    VhostDriver, XdpPort,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{Span, Time};
use wire::headers::{MAC_HEADER, TAG};

use super::spec::{PortKind, PortSpec};
use crate::capture::CaptureWriter;
use crate::{GenError, LaneAddresses, neighbour};

#[derive(Debug)]
pub struct Lane {
    name: String,
    kind: Kind,
    addresses: LaneAddresses,
    own: Vec<IpAddr>,
    /// The ARP packets that left and arrived before a run.
    arps: Arps,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arps {
    pub(super) sent: u64,
    pub(super) received: u64,
}

#[derive(Debug)]
enum Kind {
    Interface {
        namespace: Option<Namespace>,
        name: String,
        receiver: Box<PacketPort>,
    },
    /// A port that all threads use, one thread at a time.
    Shared(SharedPort),
    /// A port that all threads use at the same time.
    Duplex {
        port: Arc<dyn DuplexPort>,
        /// True if the port's peer is a device, false if it is the kernel.
        is_device: bool,
    },
    Capture(Arc<Mutex<CaptureWriter>>),
    Null,
}

pub(super) type SharedPort = Arc<Mutex<Box<dyn Port>>>;

/// The sending half of a lane. Each thread has its own half.
#[derive(Debug)]
pub(super) enum LaneSender {
    Packet(PacketSender),
    Shared(SharedPort),
    Duplex {
        port: Arc<dyn DuplexPort>,
        /// True if the port's peer is a device: a full port then means that the device does not
        /// keep up.
        is_device: bool,
    },
    Capture(Arc<Mutex<CaptureWriter>>),
    Null,
}

impl Lane {
    /// Opens ports in the order of a profile and resolves the gateways' addresses. A port without a
    /// gateway sends to the other port of its pair. `cancel` ends the wait for the peers of the
    /// ports.
    pub fn open_all(specs: &[PortSpec], cancel: &AtomicBool) -> Result<Vec<Self>, GenError> {
        let mut lanes = Vec::with_capacity(specs.len());
        for (number, spec) in specs.iter().enumerate() {
            if specs[..number].iter().any(|other| spec.writes_file_of(other)) {
                return Err(GenError::Usage(format!(
                    "port `{spec}`: another port writes this file: name one file for each port"
                )));
            }
            lanes.push(Self::open(spec, number, cancel)?);
        }
        let sources: Vec<[u8; 6]> = lanes.iter().map(|lane| lane.addresses.source).collect();
        for (number, (lane, spec)) in lanes.iter_mut().zip(specs).enumerate() {
            let peer = sources.get(number ^ 1).copied().unwrap_or([0xff; 6]);
            lane.addresses.destination = match (spec.destination_mac, spec.ip, spec.gateway) {
                (Some(mac), ..) => mac,
                (None, Some(ip), Some(gateway)) => lane.resolve(ip, gateway, cancel)?,
                _ => peer,
            };
        }
        Ok(lanes)
    }

    /// Creates a lane over a port of any type, for tests and for other crates.
    pub fn over(name: &str, port: Box<dyn Port>, addresses: LaneAddresses) -> Self {
        let kind = Kind::Shared(Arc::new(Mutex::new(port)));
        Self { name: name.to_owned(), kind, addresses, own: Vec::new(), arps: Arps::default() }
    }

    /// Replies to ARP requests and neighbour solicitations for the addresses `own`.
    #[must_use]
    pub fn answering(mut self, own: IpAddr) -> Self {
        self.own.push(own);
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn addresses(&self) -> LaneAddresses {
        self.addresses
    }

    pub fn receives(&self) -> bool {
        matches!(self.kind, Kind::Interface { .. } | Kind::Shared(_) | Kind::Duplex { .. })
    }

    fn open(spec: &PortSpec, number: usize, cancel: &AtomicBool) -> Result<Self, GenError> {
        let name = spec.to_string();
        let made_up = [2, 0x57, 0, 0, 0, number as u8];
        let (kind, source) = match &spec.kind {
            PortKind::Interface { namespace, name } => {
                let namespace = namespace.as_deref().map(Namespace::named).transpose()?;
                let receiver = inside(namespace.as_ref(), || PacketPort::open(name))?;
                if !receiver.interface().running {
                    return Err(PortError::InterfaceDown { name: name.clone() }.into());
                }
                let source = receiver.interface().address;
                (
                    Kind::Interface { namespace, name: name.clone(), receiver: Box::new(receiver) },
                    source,
                )
            }
            PortKind::Tap(name) => {
                let port = TapPort::create(name, TapKind::Tap)?;
                host::bring_up(&Namespace::current()?, &port.interface().name)?;
                // The kernel's interface of the TAP device has the device's own MAC address, so
                // the generator's port has a made-up address.
                (Kind::Shared(Arc::new(Mutex::new(Box::new(port)))), made_up)
            }
            PortKind::Ring { place, listens } => {
                let port = match listens {
                    true => RingPort::create(place)?,
                    false => RingPort::attach(place)?,
                };
                (Kind::Duplex { port: with_peer(port, cancel)?, is_device: true }, made_up)
            }
            PortKind::Vhost { path, listens } => {
                let port = match listens {
                    true => VhostDriver::listen(path)?,
                    false => VhostDriver::connect(path)?,
                };
                (Kind::Duplex { port: with_peer(port, cancel)?, is_device: true }, made_up)
            }
            PortKind::Xdp { namespace, name, options } => {
                let namespace = namespace.as_deref().map(Namespace::named).transpose()?;
                let port = inside(namespace.as_ref(), || XdpPort::open(name, *options))?;
                let source = port.interface().address;
                (Kind::Duplex { port: Arc::new(port), is_device: false }, source)
            }
            PortKind::Capture(file) => {
                let writer = CaptureWriter::create(file)?;
                (Kind::Capture(Arc::new(Mutex::new(writer))), made_up)
            }
            PortKind::Null => (Kind::Null, made_up),
        };
        let addresses = LaneAddresses {
            source: spec.source_mac.unwrap_or(source),
            destination: [0xff; 6],
            vlan: spec.vlan,
        };
        let own = spec.ip.into_iter().collect();
        Ok(Self { name, kind, addresses, own, arps: Arps::default() })
    }

    pub(super) fn sender(&self) -> Result<LaneSender, GenError> {
        Ok(match &self.kind {
            Kind::Interface { namespace, name, .. } => {
                LaneSender::Packet(inside(namespace.as_ref(), || PacketSender::open(name))?)
            }
            Kind::Shared(port) => LaneSender::Shared(Arc::clone(port)),
            Kind::Duplex { port, is_device } => {
                LaneSender::Duplex { port: Arc::clone(port), is_device: *is_device }
            }
            Kind::Capture(writer) => LaneSender::Capture(Arc::clone(writer)),
            Kind::Null => LaneSender::Null,
        })
    }

    /// Receives at most `limit` frames without waiting.
    pub(super) fn receive(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
    ) -> Result<usize, PortError> {
        match &mut self.kind {
            Kind::Interface { receiver, .. } => receiver.receive(batch, limit),
            Kind::Shared(port) => locked(port).receive(batch, limit),
            Kind::Duplex { port, .. } => port.receive(0, batch, limit),
            Kind::Capture(_) | Kind::Null => Ok(0),
        }
    }

    /// Waits until a lane may have frames, for at most `span`.
    pub(super) fn wait(lanes: &[Self], span: Duration) {
        let timeout =
            Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        let mut others = false;
        let mut fds = Vec::with_capacity(lanes.len());
        for lane in lanes {
            match &lane.kind {
                Kind::Interface { receiver, .. } => {
                    fds.extend(receiver.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
                }
                Kind::Shared(_) | Kind::Duplex { .. } => others = true,
                Kind::Capture(_) | Kind::Null => {}
            }
        }
        if others || fds.is_empty() {
            // Sleep, because this thread cannot hold the lock of a shared port while it waits.
            // Other ports arm their wake-up only after several empty calls.
            std::thread::sleep(span.min(Duration::from_micros(200)));
        } else {
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    /// Returns the number of frames that the kernel dropped before this lane fetched them, since
    /// the port was opened.
    pub(super) fn sink_drops(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Interface { receiver, .. } => {
                let counters = receiver.counters();
                counters.kernel_drops + counters.backlog_drops + counters.truncated
            }
            Kind::Shared(port) => locked(port).counters().kernel_drops,
            Kind::Duplex { port, .. } => {
                let counters = port.counters();
                counters.kernel_drops + counters.truncated
            }
            Kind::Capture(_) | Kind::Null => 0,
        }
    }

    /// Receives without waiting: all frames in a device's ring, or at most `limit` frames of
    /// another port. Returns the number of frames, and the share of the port's room that these
    /// frames took. The share is 0 for a port that counts the frames for which it has no room.
    pub(super) fn take(
        &mut self,
        batch: &mut Vec<Frame>,
        limit: usize,
    ) -> (Result<usize, PortError>, f64) {
        let Kind::Duplex { port, is_device: true } = &self.kind else {
            return (self.receive(batch, limit), 0.0);
        };
        let before = batch.len();
        let received = port.receive(0, batch, usize::MAX);
        (received, port.occupancy(&batch[before..]))
    }

    /// Discards frames that arrived before a run, and answers requests for an address of this port.
    pub(super) fn discard_arrivals(&mut self) -> Result<(), PortError> {
        let mut batch = Vec::new();
        for _ in 0..MOST_DISCARDED {
            if self.receive(&mut batch, 256)? == 0 {
                break;
            }
            for frame in &batch {
                self.answer_early(frame.bytes())?;
            }
            batch.clear();
        }
        Ok(())
    }

    /// Returns the counts of ARP packets before the first run; zero for later runs.
    pub(super) fn take_arps(&mut self) -> Arps {
        std::mem::take(&mut self.arps)
    }

    /// Like [`Lane::answer`], but before a run, and counts the ARP packets.
    fn answer_early(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let is_arp = neighbour::is_arp(frame);
        self.arps.received += u64::from(is_arp);
        self.arps.sent += u64::from(self.answer(frame)? && is_arp);
        Ok(())
    }

    /// Completes the capture that a run has written. An error means that a part of the capture is
    /// missing.
    pub(super) fn finish(&mut self) -> Result<(), GenError> {
        match &self.kind {
            Kind::Capture(writer) => locked(writer).flush(),
            _ => Ok(()),
        }
    }

    /// Answers a request for an address of this port. Returns true if the frame was such a request.
    pub(super) fn answer(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        if self.own.is_empty() {
            return Ok(false);
        }
        match neighbour::reply(frame, self.addresses.source, &self.own) {
            Some(reply) => self.transmit(&reply).map(|()| true),
            None => Ok(false),
        }
    }

    pub(super) fn too_long(&self, bytes: usize, payload: usize) -> GenError {
        let place = self.name.strip_prefix("xdp:").unwrap_or(&self.name);
        let command = match place.split_once(':') {
            Some((namespace, name)) => format!("ip -n {namespace} link set {name}"),
            None => format!("ip link set {place}"),
        };
        GenError::Usage(format!(
            "a packet has {bytes} bytes, more than the MTU of {} permits: raise it with `{command} \
             mtu {payload}`",
            self.name
        ))
    }

    fn transmit(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let frame = Frame::from_bytes(frame, Time::ZERO);
        match &mut self.kind {
            Kind::Interface { receiver, .. } => receiver.send(&[frame]).map(drop),
            Kind::Shared(port) => locked(port).send(&[frame]).map(drop),
            Kind::Duplex { port, .. } => port.send(&[frame.bytes()]).map(drop),
            Kind::Capture(_) | Kind::Null => Ok(()),
        }
    }

    fn resolve(
        &mut self,
        own: IpAddr,
        gateway: IpAddr,
        cancel: &AtomicBool,
    ) -> Result<[u8; 6], GenError> {
        let Some(request) = neighbour::request(self.addresses.source, own, gateway) else {
            let problem = "`ip` and `gateway` differ in family: give two of one";
            return Err(GenError::Usage(problem.to_owned()));
        };
        let mut batch = Vec::new();
        for _ in 0..ATTEMPTS {
            self.transmit(&request)?;
            self.arps.sent += u64::from(neighbour::is_arp(&request));
            let deadline = super::monotonic() + PATIENCE;
            while super::monotonic() < deadline {
                go_on(cancel)?;
                batch.clear();
                if self.receive(&mut batch, 64)? == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                for frame in &batch {
                    self.answer_early(frame.bytes())?;
                    if let Some(mac) = neighbour::answer(frame.bytes(), gateway) {
                        return Ok(mac);
                    }
                }
            }
        }
        Err(GenError::NoNeighbour { gateway, port: self.name.clone(), attempts: ATTEMPTS })
    }
}

impl LaneSender {
    /// Returns the maximum number of bytes that the port accepts after a packet's MAC header and
    /// tag.
    pub(super) fn longest_payload(&self) -> usize {
        let longest = match self {
            Self::Packet(sender) => sender.longest(),
            Self::Duplex { port, .. } => port.longest(),
            Self::Shared(_) | Self::Capture(_) | Self::Null => usize::MAX,
        };
        longest - MAC_HEADER - TAG
    }
}

pub(super) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn go_on(cancel: &AtomicBool) -> Result<(), GenError> {
    if cancel.load(Ordering::Relaxed) { Err(GenError::Cancelled) } else { Ok(()) }
}

fn with_peer(
    port: impl DuplexPort + 'static,
    cancel: &AtomicBool,
) -> Result<Arc<dyn DuplexPort>, GenError> {
    let deadline = super::monotonic() + PEER_PATIENCE;
    while !port.is_connected() {
        go_on(cancel)?;
        if super::monotonic() >= deadline {
            return Err(GenError::NoPeer { port: port.describe() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Arc::new(port))
}

fn inside<T: Send>(
    namespace: Option<&Namespace>,
    open: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, GenError> {
    match namespace {
        None => Ok(open()?),
        Some(namespace) => Ok(namespace.run(|| Ok(open()))??),
    }
}

const ATTEMPTS: u32 = 4;
const PATIENCE: Span = Span::from_millis(400);
const PEER_PATIENCE: Span = Span::from_secs(5);
/// Maximum number of frames that are discarded before a run, so that a flood does not prevent the
/// run.
const MOST_DISCARDED: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    impl Lane {
        fn over_nothing(name: &str, addresses: LaneAddresses) -> Self {
            let (name, arps) = (name.to_owned(), Arps::default());
            Self { name, kind: Kind::Null, addresses, own: Vec::new(), arps }
        }
    }

    #[test]
    fn the_error_for_packets_above_the_mtu_names_the_namespace_and_the_mtu() {
        for (name, command) in [
            ("gen0", "`ip link set gen0 mtu 9220`"),
            ("ns1:gen0", "`ip -n ns1 link set gen0 mtu 9220`"),
            ("xdp:ns1:gen0", "`ip -n ns1 link set gen0 mtu 9220`"),
        ] {
            let addresses = LaneAddresses { source: [0; 6], destination: [0; 6], vlan: None };
            let lane = Lane::over_nothing(name, addresses);
            let error = lane.too_long(9234, 9220).to_string();
            assert!(error.contains(command), "{error}");
        }
    }
}
