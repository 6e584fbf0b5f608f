//! The switch's ports: where frames come from and go to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use port::{Frame, PacketOptions, PacketPort, PortError, TapKind, TapPort};
use thiserror::Error;
use units::Time;

use super::config::PortConfig;
use super::pcap::{Capture, CaptureWriter, PcapError};
use crate::port_number::PortNumber;
use crate::request::{PortDescription, PortStatistics};

/// OpenFlow's OFPPC_PORT_DOWN.
const PORT_DOWN: u32 = 1;
/// The most frames that `netdev-dummy/receive` may have waiting at a port.
const MOST_INJECTED: usize = 1024;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("port {port}: {error}")]
    Pcap { port: String, error: PcapError },
    #[error("port {port}: {error}")]
    Port { port: String, error: PortError },
}

/// A port of a bridge.
#[derive(Debug)]
pub struct SwitchPort {
    pub name: String,
    pub kind: String,
    /// The bridge's index.
    pub bridge: usize,
    pub number: PortNumber,
    pub hardware_address: [u8; 6],
    /// OFPPC_* flags.
    pub config: AtomicU32,
    pub counts: Counts,
    /// Frames that a command has put in front of those that arrive.
    injected: Mutex<VecDeque<Vec<u8>>>,
    has_injected: AtomicBool,
    device: Device,
    opened: Instant,
}

/// A port's counters since the start.
#[derive(Debug, Default)]
pub struct Counts {
    pub received_packets: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_packets: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub sent_dropped: AtomicU64,
}

#[derive(Debug)]
enum Device {
    Null,
    Pcap(Mutex<PcapDevice>),
    /// An interface, TAP device or the like.
    Packet(Mutex<Box<dyn port::Port>>),
}

#[derive(Debug)]
struct PcapDevice {
    source: Option<Source>,
    writer: Option<CaptureWriter>,
    /// An error of the writer was reported.
    failed: bool,
}

#[derive(Debug)]
struct Source {
    capture: Capture,
    next: usize,
    repeats: bool,
}

impl SwitchPort {
    /// Opens the port that `config` describes.
    pub fn open(
        name: &str,
        bridge: usize,
        number: PortNumber,
        config: &PortConfig,
    ) -> Result<Self, OpenError> {
        let pcap = |error| OpenError::Pcap { port: name.to_owned(), error };
        let broken = |error| OpenError::Port { port: name.to_owned(), error };
        let interface = config.interface.as_deref().unwrap_or(name);
        let device = match config.kind.as_str() {
            "pcap" => {
                let source = match &config.file {
                    Some(path) => Some(Source {
                        capture: Capture::read(path).map_err(pcap)?,
                        next: 0,
                        repeats: config.repeats,
                    }),
                    None => None,
                };
                let writer = config.write.as_deref().map(CaptureWriter::create);
                let writer = writer.transpose().map_err(pcap)?;
                Device::Pcap(Mutex::new(PcapDevice { source, writer, failed: false }))
            }
            "packet" => {
                let opened = PacketPort::open_with(interface, PacketOptions::default());
                Device::Packet(Mutex::new(Box::new(opened.map_err(broken)?)))
            }
            "tap" => {
                let opened = TapPort::create(interface, TapKind::Tap).map_err(broken)?;
                Device::Packet(Mutex::new(Box::new(opened)))
            }
            _ => Device::Null,
        };
        Ok(Self {
            name: name.to_owned(),
            kind: config.kind.clone(),
            bridge,
            number,
            hardware_address: address_of(name, bridge, number),
            config: AtomicU32::new(0),
            counts: Counts::default(),
            injected: Mutex::default(),
            has_injected: AtomicBool::new(false),
            device,
            opened: Instant::now(),
        })
    }

    /// The bridge's own port, which nothing is attached to.
    pub fn local(name: &str, bridge: usize) -> Self {
        let config = PortConfig::of_kind("null");
        let opened = Self::open(name, bridge, PortNumber::LOCAL, &config);
        // A null port opens without fail.
        opened.unwrap_or_else(|error| unreachable!("{error}"))
    }

    #[must_use]
    pub fn is_up(&self) -> bool {
        self.config.load(Ordering::Relaxed) & PORT_DOWN == 0
    }

    /// Whether frames can arrive: a packet thread has to look.
    #[must_use]
    pub fn has_source(&self) -> bool {
        match &self.device {
            Device::Null => false,
            Device::Pcap(device) => lock(device).source.is_some(),
            Device::Packet(_) => true,
        }
    }

    /// Gives up to `limit` frames to `take`, and returns their number.
    pub fn receive(&self, limit: usize, mut take: impl FnMut(&[u8])) -> Result<usize, PortError> {
        if self.has_injected.load(Ordering::Relaxed) {
            return Ok(self.receive_injected(limit, take));
        }
        match &self.device {
            Device::Null => Ok(0),
            Device::Pcap(device) => {
                let mut device = lock(device);
                let Some(source) = &mut device.source else { return Ok(0) };
                Ok(source.play(limit, take))
            }
            Device::Packet(device) => {
                let mut frames = Vec::new();
                let received = lock(device).receive(&mut frames, limit)?;
                frames.iter().for_each(|frame| take(frame.bytes()));
                Ok(received)
            }
        }
    }

    fn receive_injected(&self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut injected = lock(&self.injected);
        let count = limit.min(injected.len());
        injected.drain(..count).for_each(|frame| take(&frame));
        self.has_injected.store(!injected.is_empty(), Ordering::Relaxed);
        count
    }

    /// Lets a frame arrive at this port; false if too many wait already.
    pub fn inject(&self, frame: Vec<u8>) -> bool {
        let mut injected = lock(&self.injected);
        let fits = injected.len() < MOST_INJECTED;
        if fits {
            injected.push_back(frame);
            self.has_injected.store(true, Ordering::Relaxed);
        }
        fits
    }

    #[must_use]
    pub fn has_injected(&self) -> bool {
        self.has_injected.load(Ordering::Relaxed)
    }

    /// Whether sending is nothing but counting.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.device, Device::Null)
    }

    /// Sends frames; returns how many were accepted.
    pub fn send(&self, frames: &[Frame]) -> usize {
        match &self.device {
            Device::Null => frames.len(),
            Device::Pcap(device) => lock(device).write(&self.name, frames),
            Device::Packet(device) => match lock(device).send(frames) {
                Ok(report) => report.sent,
                Err(error) => {
                    tracing::debug!("port {}: {error}", self.name);
                    0
                }
            },
        }
    }

    /// Writes what a capture writer holds back.
    pub fn flush(&self) {
        if let Device::Pcap(device) = &self.device
            && let Some(writer) = &mut lock(device).writer
            && let Err(error) = writer.flush()
        {
            tracing::warn!("port {}: {error}", self.name);
        }
    }

    /// Whether the source has played all of its capture.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.device {
            Device::Null => true,
            Device::Pcap(device) => lock(device).source.as_ref().is_none_or(Source::is_over),
            Device::Packet(_) => false,
        }
    }

    #[must_use]
    pub fn description(&self) -> PortDescription {
        PortDescription {
            number: self.number,
            hardware_address: self.hardware_address,
            name: self.name.clone(),
            config: self.config.load(Ordering::Relaxed),
            state: if self.number == PortNumber::LOCAL { 0 } else { LIVE },
            current_speed_kbit: 0,
            max_speed_kbit: 0,
        }
    }

    #[must_use]
    pub fn statistics(&self) -> PortStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortStatistics {
            number: self.number.0,
            received_packets: read(&self.counts.received_packets),
            received_bytes: read(&self.counts.received_bytes),
            sent_packets: read(&self.counts.sent_packets),
            sent_bytes: read(&self.counts.sent_bytes),
            sent_dropped: read(&self.counts.sent_dropped),
            duration: self.opened.elapsed(),
            ..PortStatistics::default()
        }
    }

    /// The device behind the port, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.device {
            Device::Null => "null: discards every frame".to_owned(),
            Device::Pcap(device) => {
                let device = lock(device);
                let frames = device.source.as_ref().map_or(0, |source| source.capture.len());
                let repeats = device.source.as_ref().is_some_and(|source| source.repeats);
                let again = if repeats { ", repeated" } else { "" };
                let writes = if device.writer.is_some() { ", writes a capture" } else { "" };
                format!("pcap: {frames} frames{again}{writes}")
            }
            Device::Packet(device) => lock(device).describe(),
        }
    }
}

/// OFPPS_LIVE.
const LIVE: u32 = 4;

impl Source {
    fn play(&mut self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut played = 0;
        while played < limit {
            if self.next == self.capture.len() {
                if !self.repeats {
                    break;
                }
                self.next = 0;
            }
            let Some(frame) = self.capture.frame(self.next) else { break };
            take(frame);
            self.next += 1;
            played += 1;
        }
        played
    }

    fn is_over(&self) -> bool {
        !self.repeats && self.next == self.capture.len()
    }
}

impl PcapDevice {
    fn write(&mut self, port: &str, frames: &[Frame]) -> usize {
        let Some(writer) = &mut self.writer else { return frames.len() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (written, frame) in frames.iter().enumerate() {
            if let Err(error) = writer.write(frame.bytes(), now.as_nanos() as u64) {
                if !self.failed {
                    tracing::error!("port {port}: {error}; later frames are dropped");
                    self.failed = true;
                }
                return written;
            }
        }
        frames.len()
    }
}

/// A locally administered address that is the same after each start.
fn address_of(name: &str, bridge: usize, number: PortNumber) -> [u8; 6] {
    let text = name.bytes().chain(bridge.to_be_bytes()).chain(number.0.to_be_bytes());
    let hash = text.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, a, b, c, d, e, f] = hash.to_be_bytes();
    [a & 0xfc | 0x02, b, c, d, e, f]
}

/// A frame to send.
#[must_use]
pub fn frame(bytes: &[u8]) -> Frame {
    Frame::from_bytes(bytes, Time::ZERO)
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
