use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use port::{
    Accepted, DuplexPort, Frame, Offload, PortError, Refusal, RingPort, VhostDevice, XdpOptions,
    XdpPort,
};

use super::config::{CopyMode, PortConfig, Role};
use super::device::Change;
use super::ordered::{ReadGuard, RwLock, rank};

/// A port that several threads use at once.
#[derive(Debug)]
pub(super) struct DuplexDevice {
    /// `None` while the interface does not exist.
    port: RwLock<Option<Box<dyn DuplexPort>>, { rank::DEVICE }>,
    /// The change number of the port that was reported last.
    reported: AtomicU64,
}

impl DuplexDevice {
    pub(super) fn open(name: &str, config: &PortConfig) -> Result<Self, PortError> {
        let port = open(name, config)?;
        Ok(Self { port: RwLock::new(Some(port)), reported: AtomicU64::new(0) })
    }

    /// Creates a device whose interface does not exist yet.
    pub(super) fn missing() -> Self {
        Self { port: RwLock::new(None), reported: AtomicU64::new(0) }
    }

    pub(super) fn is_there(&self) -> bool {
        self.port().as_ref().is_some_and(|port| port.is_connected())
    }

    /// Tries again to open an interface that did not exist. If the port itself reconnects to its
    /// peer, only reports changes of the connection.
    pub(super) fn look_after(&self, name: &str, config: &PortConfig) -> Option<Change> {
        {
            let port = self.port();
            if let Some(port) = port.as_ref().filter(|port| port.reconnects()) {
                let changes = port.changes();
                let before = self.reported.swap(changes, Ordering::Relaxed);
                return (changes != before).then(|| match port.is_connected() {
                    true => Change::Connected,
                    false => Change::Disconnected,
                });
            }
            if port.as_ref().is_some_and(|port| port.is_connected()) {
                return None;
            }
        }
        // Close the former socket first, because it holds its queue of the interface.
        self.replace(None);
        let opened = open(name, config).ok();
        let is_back = opened.is_some();
        self.replace(opened);
        is_back.then_some(Change::Back)
    }

    fn replace(&self, port: Option<Box<dyn DuplexPort>>) {
        *self.port.write() = port;
    }

    pub(super) fn queues(&self) -> usize {
        self.port().as_ref().map_or(1, |port| port.queues())
    }

    pub(super) fn receive(
        &self,
        queue: usize,
        limit: usize,
        batch: &mut Vec<Frame>,
    ) -> Result<usize, PortError> {
        match self.port().as_ref() {
            Some(port) if may_receive(port.as_ref()) => port.receive(queue, batch, limit),
            _ => Ok(0),
        }
    }

    /// Whether frames can arrive from a peer, either now or after a peer connects.
    pub(super) fn may_receive(&self) -> bool {
        self.port().as_ref().is_some_and(|port| may_receive(port.as_ref()))
    }

    /// Whether the peer accepts frames with this offload.
    pub(super) fn takes(&self, offload: Offload) -> bool {
        self.port().as_ref().is_some_and(|port| port.takes(offload))
    }

    /// Sends frames. Retries a few times if the port is full. Returns the number of accepted
    /// frames.
    pub(super) fn send(&self, frames: &[Frame]) -> Result<usize, PortError> {
        let port = self.port();
        let Some(port) = port.as_ref() else { return Ok(0) };
        let mut accepted = 0;
        for chunk in frames.chunks(CHUNK) {
            let mut packets: [&[u8]; CHUNK] = [&[]; CHUNK];
            for (packet, frame) in packets.iter_mut().zip(chunk) {
                *packet = frame.bytes();
            }
            let packets = &packets[..chunk.len()];
            if !chunk.iter().any(Frame::is_unfinished) {
                accepted += send(port.as_ref(), packets, &[])?;
                continue;
            }
            let mut offloads = [Offload::NONE; CHUNK];
            for (offload, frame) in offloads.iter_mut().zip(chunk) {
                *offload = frame.offload();
            }
            accepted += send(port.as_ref(), packets, &offloads[..chunk.len()])?;
        }
        Ok(accepted)
    }

    pub(super) fn fd(&self, queue: usize) -> Option<OwnedFd> {
        self.port().as_ref()?.fd(queue)
    }

    pub(super) fn describe(&self) -> String {
        match self.port().as_ref() {
            Some(port) => port.describe(),
            None => "the device is gone".to_owned(),
        }
    }

    fn port(&self) -> ReadGuard<'_, Option<Box<dyn DuplexPort>>> {
        self.port.read()
    }
}

fn may_receive(port: &dyn DuplexPort) -> bool {
    port.reconnects() || port.is_connected()
}

/// Sends packets. `offloads`: the missing checksum and segmentation of each packet; empty if all
/// packets are finished.
fn send(
    port: &dyn DuplexPort,
    packets: &[&[u8]],
    offloads: &[Offload],
) -> Result<usize, PortError> {
    let (mut done, mut accepted, mut attempts) = (0, 0, 0);
    while done < packets.len() {
        let Accepted { sent, refusal } = match offloads.get(done..) {
            None | Some([]) => port.send(&packets[done..])?,
            Some(offloads) => port.send_unfinished(&packets[done..], offloads)?,
        };
        done += sent;
        accepted += sent;
        match refusal {
            None => {}
            Some(Refusal::Full) if attempts < ATTEMPTS => {
                attempts += 1;
                std::hint::spin_loop();
            }
            Some(Refusal::Full | Refusal::NoPeer) => break,
            Some(Refusal::TooLong | Refusal::Refused) => done += 1,
        }
    }
    Ok(accepted)
}

fn open(name: &str, config: &PortConfig) -> Result<Box<dyn DuplexPort>, PortError> {
    let path = config.path.as_deref().unwrap_or(Path::new(""));
    let connects = config.role == Some(Role::Client);
    Ok(match config.kind.as_str() {
        "ring" => {
            let place = path.to_string_lossy();
            match connects {
                true => Box::new(RingPort::attach(&place)?),
                false => Box::new(RingPort::create(&place)?),
            }
        }
        "vhost-user" => match connects {
            true => Box::new(VhostDevice::connect(path, config.queues())?),
            false => Box::new(VhostDevice::listen(path, config.queues())?),
        },
        _ => {
            let options = XdpOptions {
                queue: config.receive_queue.unwrap_or(0),
                copy_mode: match config.copy_mode {
                    None => port::CopyMode::Auto,
                    Some(CopyMode::Zerocopy) => port::CopyMode::ZeroCopy,
                    Some(CopyMode::Copy) => port::CopyMode::Copy,
                },
                busy_poll: config.busy_poll,
            };
            Box::new(XdpPort::open(config.interface.as_deref().unwrap_or(name), options)?)
        }
    })
}

const CHUNK: usize = 64;
const ATTEMPTS: u32 = 8;
