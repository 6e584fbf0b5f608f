use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use port::{
    Frame, Interface, Offload, PacketOptions, PacketPort, Port, PortError, TapKind, TapPort,
    XdpPort,
};

use super::capture_source::CaptureSource;
use super::config::PortConfig;
use super::duplex::DuplexDevice;
use super::ordered::{Mutex, MutexGuard, rank};
use super::pcap::{Capture, CaptureWriter, PcapError};
use super::ports::OpenError;

/// The device behind a port.
#[derive(Debug)]
pub(super) enum Device {
    /// Discards frames. Only commands make frames arrive.
    Null,
    /// Plays a capture and writes a capture. A dummy port with a capture has no queues.
    Pcap { queues: Vec<CaptureQueue>, writer: Option<Mutex<PcapWriter, { rank::DEVICE }>> },
    /// A network interface; `None` if the interface does not exist.
    Packet(Mutex<Option<Box<dyn Port>>, { rank::DEVICE }>),
    /// A TAP device. Users bring the device up at any time. Before that, the device exists but
    /// accepts no frames.
    Tap(Mutex<Option<Box<dyn Port>>, { rank::DEVICE }>),
    /// A port that several threads use at once.
    Duplex(DuplexDevice),
}

/// A queue of a capture. A queue shares its cache lines with no other queue, because another packet
/// thread may play that queue.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CaptureQueue(Mutex<CaptureSource, { rank::DEVICE }>);

/// A change of a device that the switch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The missing device was opened again.
    Back,
    Connected,
    Disconnected,
    /// The interface got or lost its carrier.
    LinkUp,
    LinkDown,
}

#[derive(Debug)]
pub(super) struct PcapWriter {
    writer: CaptureWriter,
    /// Whether an error was reported.
    has_failed: bool,
}

impl CaptureQueue {
    fn new(source: CaptureSource) -> Self {
        Self(Mutex::new(source))
    }

    fn lock(&self) -> MutexGuard<'_, CaptureSource> {
        self.0.lock()
    }
}

impl Device {
    /// Opens the device that the settings describe.
    pub(super) fn open(name: &str, config: &PortConfig) -> Result<Self, OpenError> {
        let pcap = |error: PcapError| OpenError::Pcap { port: name.to_owned(), error };
        match config.kind.as_str() {
            "dummy" if config.write.is_none() => Ok(Self::Null),
            "pcap" | "dummy" => {
                let queues = match &config.file {
                    Some(path) if config.kind == "pcap" => {
                        let capture = Capture::read(path).map_err(pcap)?;
                        CaptureSource::split(capture, config.queues(), config.repeats)
                    }
                    _ => Vec::new(),
                };
                let writer = config.write.as_deref().map(PcapWriter::create).transpose();
                Ok(Self::Pcap {
                    queues: queues.into_iter().map(CaptureQueue::new).collect(),
                    writer: writer.map_err(pcap)?.map(Mutex::new),
                })
            }
            "packet" | "tap" => match open_interface(name, config) {
                Ok(opened) if config.kind == "tap" => Ok(Self::Tap(Mutex::new(Some(opened)))),
                Ok(opened) => Ok(Self::Packet(Mutex::new(Some(opened)))),
                Err(error) => Err(OpenError::Port { port: name.to_owned(), error }),
            },
            "ring" | "xdp" | "vhost-user" => match DuplexDevice::open(name, config) {
                Ok(opened) => Ok(Self::Duplex(opened)),
                Err(error) => Err(OpenError::Port { port: name.to_owned(), error }),
            },
            _ => Ok(Self::Null),
        }
    }

    /// Creates a device whose interface does not exist yet.
    pub(super) fn missing(config: &PortConfig) -> Self {
        match config.kind.as_str() {
            "xdp" => Self::Duplex(DuplexDevice::missing()),
            _ => Self::Packet(Mutex::new(None)),
        }
    }

    /// Whether the device existed when it was last used.
    pub(super) fn is_there(&self) -> bool {
        match self {
            Self::Packet(device) | Self::Tap(device) => device.lock().is_some(),
            Self::Duplex(device) => device.is_there(),
            Self::Null | Self::Pcap { .. } => true,
        }
    }

    /// Whether a thread may wait for the queues' descriptors. False if the device is gone, because
    /// its descriptors are then always readable.
    pub(super) fn may_wake(&self) -> bool {
        match self {
            Self::Duplex(device) => device.may_receive(),
            _ => self.is_there(),
        }
    }

    /// Tries to open an interface that did not exist. Returns the change since the last call.
    pub(super) fn look_after(&self, name: &str, config: &PortConfig) -> Option<Change> {
        match self {
            Self::Packet(device) | Self::Tap(device) => {
                let mut device = device.lock();
                if device.is_some() {
                    return None;
                }
                *device = open_interface(name, config).ok();
                device.is_some().then_some(Change::Back)
            }
            Self::Duplex(device) => device.look_after(name, config),
            Self::Null | Self::Pcap { .. } => None,
        }
    }

    /// Opens a packet port again after a change of its interface's MTU, by which the port sizes its
    /// buffers. A TAP port follows the MTU by itself, and an open xdp port keeps its MTU.
    pub(super) fn open_again(&self, name: &str, config: &PortConfig) -> Result<(), PortError> {
        if let Self::Packet(device) = self {
            let mut device = device.lock();
            // Close the former sockets last, so that no frames arrive without a socket.
            match open_interface(name, config) {
                Ok(opened) => *device = Some(opened),
                Err(error) => {
                    *device = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of queues from which frames can arrive.
    pub(super) fn queues(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Pcap { queues, .. } => queues.len(),
            Self::Packet(_) | Self::Tap(_) => 1,
            Self::Duplex(device) => device.queues(),
        }
    }

    /// Appends up to `limit` frames of a queue, and returns their number.
    pub(super) fn receive(
        &self,
        queue: usize,
        limit: usize,
        batch: &mut Vec<Frame>,
    ) -> Result<usize, PortError> {
        match self {
            Self::Null => Ok(0),
            Self::Pcap { queues, .. } => {
                let Some(source) = queues.get(queue) else { return Ok(0) };
                Ok(source.lock().play(limit, batch))
            }
            Self::Duplex(device) => device.receive(queue, limit, batch),
            Self::Packet(device) | Self::Tap(device) => {
                let mut device = device.lock();
                let Some(open) = device.as_mut() else { return Ok(0) };
                let received = open.receive(batch, limit);
                if received.is_err() {
                    *device = None;
                }
                received
            }
        }
    }

    /// Whether the device accepts frames with this offload. For other devices, the switch completes
    /// checksums and segmentation first.
    pub(super) fn takes(&self, offload: Offload) -> bool {
        match self {
            Self::Null => true,
            Self::Packet(device) | Self::Tap(device) => {
                device.lock().as_ref().is_none_or(|open| open.takes_offloads())
            }
            Self::Pcap { writer, .. } => writer.is_none(),
            Self::Duplex(device) => device.takes(offload),
        }
    }

    /// Sends frames. Returns the number of frames that the device accepted.
    pub(super) fn send(&self, name: &str, frames: &[Frame]) -> Result<usize, PortError> {
        match self {
            Self::Null | Self::Pcap { writer: None, .. } => Ok(frames.len()),
            Self::Pcap { writer: Some(writer), .. } => Ok(writer.lock().write(name, frames)),
            Self::Duplex(device) => device.send(frames),
            Self::Tap(device) => {
                let mut device = device.lock();
                let Some(open) = device.as_mut() else { return Ok(0) };
                match open.send(frames) {
                    Ok(report) => Ok(report.sent),
                    Err(PortError::InterfaceDown { .. }) => Ok(0),
                    Err(error) => {
                        *device = None;
                        Err(error)
                    }
                }
            }
            Self::Packet(device) => {
                let mut device = device.lock();
                let Some(open) = device.as_mut() else { return Ok(0) };
                match open.send(frames) {
                    Ok(report) => Ok(report.sent),
                    Err(error) => {
                        *device = None;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Writes frames that a command injects to the port's capture, if the port has a capture.
    pub(super) fn record(&self, name: &str, frames: &[Frame]) {
        if let Self::Pcap { writer: Some(writer), .. } = self {
            writer.lock().write(name, frames);
        }
    }

    /// Returns a descriptor that becomes readable when a frame arrives. Returns `None` if the
    /// device has no such descriptor or never receives frames.
    pub(super) fn fd(&self, queue: usize) -> Option<OwnedFd> {
        match self {
            Self::Packet(device) | Self::Tap(device) => {
                let device = device.lock();
                let fd = device.as_ref().and_then(|open| open.fd());
                fd.and_then(|fd| fd.try_clone_to_owned().ok())
            }
            Self::Duplex(device) => device.fd(queue),
            Self::Null | Self::Pcap { .. } => None,
        }
    }

    /// Whether no further frame can arrive from a queue.
    pub(super) fn is_finished(&self, queue: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Pcap { queues, .. } => {
                queues.get(queue).is_none_or(|source| source.lock().is_over())
            }
            Self::Packet(_) | Self::Tap(_) | Self::Duplex(_) => false,
        }
    }

    /// Flushes the capture writer.
    pub(super) fn flush(&self, name: &str) {
        if let Self::Pcap { writer: Some(writer), .. } = self
            && let Err(error) = writer.lock().writer.flush()
        {
            tracing::warn!("port {name}: {error}");
        }
    }

    /// Describes the device in a line of text for users.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "discards every frame".to_owned(),
            Self::Pcap { queues, writer } => {
                let mut text = "capture".to_owned();
                if let Some(source) = queues.first() {
                    let source = source.lock();
                    let again = if source.repeats() { ", repeated" } else { "" };
                    text = format!("capture of {} frames{again}", source.frames());
                }
                if writer.is_some() {
                    text.push_str(", writes a capture");
                }
                text
            }
            Self::Packet(device) | Self::Tap(device) => match device.lock().as_ref() {
                Some(open) => open.describe(),
                None => "the device is gone".to_owned(),
            },
            Self::Duplex(device) => device.describe(),
        }
    }
}

/// Whether the interface of a port has a carrier. Returns true for a port without an interface.
pub(super) fn has_carrier(name: &str, config: &PortConfig) -> bool {
    let interface = config.interface.as_deref().unwrap_or(name);
    config.kind != "packet" || Interface::find(interface).is_ok_and(|found| found.running)
}

/// Returns the name of the kernel's interface of a port; `None` for a port without an interface.
pub(super) fn interface_of<'a>(name: &'a str, config: &'a PortConfig) -> Option<&'a str> {
    has_interface(&config.kind).then(|| config.interface.as_deref().unwrap_or(name))
}

/// Whether ports of a kind have an interface of the kernel.
pub(super) fn has_interface(kind: &str) -> bool {
    matches!(kind, "packet" | "tap" | "xdp")
}

/// Checks the MTU of a port's settings.
pub(super) fn check_mtu(mtu: Option<u32>, has_interface: bool) -> Result<(), String> {
    match mtu {
        Some(_) if !has_interface => {
            Err("mtu is for ports with an interface: packet, tap, xdp, own-interface".to_owned())
        }
        Some(mtu) if !MTUS.contains(&mtu) => Err(format!("mtu = {mtu}: use 68 to 65535")),
        _ => Ok(()),
    }
}

/// Sets the MTU of a port's interface. Returns whether the MTU has changed. A missing interface
/// gets its MTU when the port opens the interface.
pub(super) fn request_mtu(name: &str, config: &PortConfig, mtu: u32) -> Result<bool, PortError> {
    let Some(interface) = interface_of(name, config) else { return Ok(false) };
    let found = match Interface::find(interface) {
        Err(PortError::NoSuchInterface { .. }) => return Ok(false),
        found => found?,
    };
    if found.mtu.count() == u64::from(mtu) {
        return Ok(false);
    }
    if config.kind == "xdp" && mtu > XdpPort::MOST_MTU {
        let problem = format!("an MTU of {mtu} is too large: use at most {}", XdpPort::MOST_MTU);
        return Err(PortError::Refused { place: interface.to_owned(), problem });
    }
    Interface::set_mtu(interface, mtu).map(|()| true)
}

/// Whether the interface of a port is enabled. Returns true for a port without an interface, and if
/// the interface does not exist.
pub(super) fn is_enabled(name: &str, config: &PortConfig) -> bool {
    let found = interface_of(name, config).and_then(|name| Interface::find(name).ok());
    found.is_none_or(|found| found.up)
}

/// Returns the address of a port's interface; `None` without an interface.
pub(super) fn own_address(name: &str, config: &PortConfig) -> Option<[u8; 6]> {
    let found = interface_of(name, config).and_then(|name| Interface::find(name).ok())?;
    Some(found.address).filter(|address| *address != [0; 6])
}

fn open_interface(name: &str, config: &PortConfig) -> Result<Box<dyn Port>, PortError> {
    let interface = config.interface.as_deref().unwrap_or(name);
    Ok(match config.kind.as_str() {
        "tap" => Box::new(TapPort::create(interface, TapKind::Tap)?.keep_offloads()),
        _ => {
            // If the interface is down, its socket reports an error. A socket on an interface
            // without a carrier works again when the carrier returns.
            if !Interface::find(interface)?.up {
                return Err(PortError::InterfaceDown { name: interface.to_owned() });
            }
            let options = PacketOptions { keep_offloads: true, ..PacketOptions::default() };
            Box::new(PacketPort::open_with(interface, options)?)
        }
    })
}

/// The MTUs that Open vSwitch's database allows.
const MTUS: RangeInclusive<u32> = 68..=65_535;

impl PcapWriter {
    fn create(path: &Path) -> Result<Self, PcapError> {
        Ok(Self { writer: CaptureWriter::create(path)?, has_failed: false })
    }

    fn write(&mut self, port: &str, frames: &[Frame]) -> usize {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (written, frame) in frames.iter().enumerate() {
            if let Err(error) = self.writer.write(frame.bytes(), now.as_nanos() as u64) {
                if !self.has_failed {
                    tracing::error!("port {port}: {error}; later frames are dropped");
                    self.has_failed = true;
                }
                return written;
            }
        }
        frames.len()
    }
}
