use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType};
use units::{Bytes, Time};
use wire::VirtioHeader;
use wire::headers::{IPV4, IPV6, Layout, MAC_HEADER, Network, TAG};

use crate::clock::ArrivalClock;
use crate::intake::Intake;
use crate::interface::Interface;
use crate::statistics::{InterfaceDrops, Side};
use crate::{Frame, Offload, Port, PortCounters, PortError, SendReport, tun};

/// The user-space side of a TAP or TUN device. The port receives the frames that the kernel sends
/// into the device.
///
/// The device exists as long as the port. The caller brings the device up and assigns addresses. A
/// TUN device carries bare IP packets, so the port adds a MAC header to received packets and
/// removes the MAC header of sent packets. The port refuses frames that are not IP.
///
/// The kernel gives no receive timestamps: a frame's arrival time is the time at which the port
/// fetches the frame.
#[derive(Debug)]
pub struct TapPort {
    interface: Interface,
    kind: TapKind,
    device: OwnedFd,
    /// A socket for queries about the device, in the namespace of the device's creation.
    control: OwnedFd,
    drops: Option<InterfaceDrops>,
    /// Holds a packet with its `virtio_net_hdr`, after space for a MAC header.
    buffer: Vec<u8>,
    intake: Intake,
    /// A buffer of the maximum frame length, into which the next packet is read.
    spare: Frame,
    clock: ArrivalClock,
    counters: PortCounters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapKind {
    /// The device carries Ethernet frames.
    Tap,
    /// The device carries IP packets.
    Tun,
}

impl TapPort {
    /// Creates a device in the calling thread's network namespace; `%d` in the name stands for a
    /// free number. Afterwards, any thread may use the port.
    pub fn create(name: &str, kind: TapKind) -> Result<Self, PortError> {
        let (device, name) = tun::create(name, kind == TapKind::Tap)?;
        let control = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)
            .map_err(|error| PortError::from_io("opening a control socket", error.into()))?;
        let interface = Interface::query(&control, &name)?;
        let drops = InterfaceDrops::watch(interface.index, Side::Transmit);
        Ok(Self {
            interface,
            kind,
            device,
            control,
            drops,
            buffer: vec![0; MAC_HEADER + LARGEST],
            intake: Intake::default(),
            spare: Frame::default(),
            clock: ArrivalClock::new(),
            counters: PortCounters::default(),
        })
    }

    /// Makes the port deliver frames of a TAP device as their senders left them, with an
    /// [`Offload`](crate::Offload).
    #[must_use]
    pub fn keep_offloads(mut self) -> Self {
        self.intake.keeps_offloads = self.kind == TapKind::Tap;
        self
    }

    /// Returns the device's properties at its creation, with the name that the kernel gave it.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    fn read(&mut self) -> Result<Option<usize>, PortError> {
        match rustix::io::read(&self.device, &mut self.buffer[MAC_HEADER..]) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(rustix::io::Errno::BADFD) => Err(self.down()),
            Err(error) => Err(self.failed("receiving from", error.into())),
        }
    }

    /// Receives a packet from a device that keeps offloads, without copying a long packet. Returns
    /// the length of a long packet, 0 for a short packet, and `None` if no packet waits.
    fn receive_kept(&mut self, batch: &mut Vec<Frame>) -> Result<Option<usize>, PortError> {
        if self.spare.is_empty() {
            self.spare = Frame::with_len(LARGEST - VirtioHeader::LEN, Time::ZERO);
        }
        let mut header = [0; VirtioHeader::LEN];
        let pieces = [&mut header[..], self.spare.bytes_mut()];
        let len = match rustix::io::readv(&self.device, &mut pieces.map(io::IoSliceMut::new)) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::BADFD) => return Err(self.down()),
            Err(error) => return Err(self.failed("receiving from", error.into())),
        };
        self.clock.begin_batch();
        let arrival = self.clock.unstamped();
        let (Some(len), Some(virtio)) =
            (len.checked_sub(VirtioHeader::LEN), VirtioHeader::parse(&header))
        else {
            self.counters.truncated += 1;
            return Ok(Some(0));
        };
        if len < LONG {
            let packet = &self.spare.bytes()[..len];
            self.intake.take(packet, None, &virtio, arrival, batch, &mut self.counters);
            return Ok(Some(0));
        }
        let mut frame = std::mem::take(&mut self.spare);
        frame.truncate(len);
        frame.set_arrival(arrival);
        self.intake.keep(frame, false, &virtio, batch, &mut self.counters);
        Ok(Some(len))
    }

    fn down(&self) -> PortError {
        PortError::InterfaceDown { name: self.interface.name.clone() }
    }

    fn failed(&self, doing: &str, error: io::Error) -> PortError {
        PortError::from_io(format!("{doing} {:?}", self.interface.name), error)
    }

    /// Appends the frames of a packet to the batch. For a TUN device, the MAC header overwrites the
    /// `virtio_net_hdr`, which was parsed before.
    fn take(&mut self, len: usize, batch: &mut Vec<Frame>) {
        let packet_start = MAC_HEADER + VirtioHeader::LEN;
        let packet_end = MAC_HEADER + len;
        let virtio = self.buffer[MAC_HEADER..packet_end].get(..VirtioHeader::LEN);
        let Some(mut virtio) = virtio.and_then(VirtioHeader::parse) else {
            self.counters.truncated += 1;
            return;
        };
        let mut start = packet_start;
        if self.kind == TapKind::Tun {
            let ether_type = match self.buffer[packet_start..packet_end].first() {
                Some(byte) if byte >> 4 == 6 => IPV6,
                _ => IPV4,
            };
            start -= MAC_HEADER;
            self.buffer[start..packet_start - 2].copy_from_slice(&MADE_UP_ADDRESSES);
            self.buffer[packet_start - 2..packet_start].copy_from_slice(&ether_type.to_be_bytes());
            virtio = virtio.shifted(MAC_HEADER as u16);
        }
        let packet = &self.buffer[start..packet_end];
        let arrival = self.clock.unstamped();
        self.intake.take(packet, None, &virtio, arrival, batch, &mut self.counters);
    }

    /// Returns the bytes of a frame that are written to the device; `None` if the device cannot
    /// carry the frame.
    fn outgoing<'a>(&self, frame: &'a Frame) -> Option<&'a [u8]> {
        match self.kind {
            TapKind::Tap => Some(frame.bytes()),
            TapKind::Tun => {
                let layout = Layout::parse(frame.bytes())?;
                let ip = matches!(layout.network, Network::Ipv4 | Network::Ipv6);
                ip.then(|| &frame.bytes()[layout.network_offset..layout.end])
            }
        }
    }

    fn too_long(&mut self, frame: &Frame) -> bool {
        let tags = Layout::parse(frame.bytes()).map_or(0, |layout| usize::from(layout.tags));
        let payload = frame.longest_on_wire().saturating_sub(MAC_HEADER + tags * TAG) as u64;
        if payload > self.interface.mtu.count() {
            // Meanwhile, the caller may have changed the device's MTU.
            self.interface.mtu = self.mtu();
        }
        payload > self.interface.mtu.count()
    }
}

impl Port for TapPort {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let before = batch.len();
        let mut kept = 0;
        while self.intake.keeps_offloads && batch.len() - before < limit && kept < MOST_KEPT {
            let Some(bytes) = self.receive_kept(batch)? else { return Ok(batch.len() - before) };
            kept += bytes;
        }
        while !self.intake.keeps_offloads && batch.len() - before < limit {
            let Some(len) = self.read()? else { break };
            self.clock.begin_batch();
            self.take(len, batch);
        }
        Ok(batch.len() - before)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        let mut report = SendReport::default();
        if self.kind == TapKind::Tun && frames.iter().any(Frame::is_unfinished) {
            let mut finished = Vec::with_capacity(frames.len());
            frames.iter().for_each(|frame| frame.clone().finish(&mut finished));
            return self.send(&finished);
        }
        for frame in frames {
            if self.too_long(frame) {
                self.counters.dropped_too_long += frame.on_wire().0;
                report.dropped += 1;
                continue;
            }
            let sent = match self.outgoing(frame) {
                Some(packet) => send_one(&self.device, frame.offload(), packet),
                None => Err(rustix::io::Errno::INVAL),
            };
            match sent {
                Ok(()) => {
                    report.sent += 1;
                    let (count, bytes) = frame.on_wire();
                    self.counters.sent_frames += count;
                    self.counters.sent_bytes += bytes;
                    continue;
                }
                // The kernel's tun_get_user returns this error if the device is down.
                Err(rustix::io::Errno::IO | rustix::io::Errno::BADFD) => return Err(self.down()),
                // Linux before 6.2 does not accept UDP super-packets.
                Err(rustix::io::Errno::INVAL) if frame.is_unfinished() => {
                    let mut finished = Vec::new();
                    frame.clone().finish(&mut finished);
                    let outcome = self.send(&finished)?;
                    report.sent += usize::from(outcome.dropped == 0);
                    report.dropped += usize::from(outcome.dropped != 0);
                    continue;
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {
                    self.counters.dropped_queue_full += frame.on_wire().0;
                }
                Err(error) => {
                    tracing::debug!(%error, "frame refused");
                    self.counters.dropped_refused += frame.on_wire().0;
                }
            }
            report.dropped += 1;
        }
        Ok(report)
    }

    fn takes_offloads(&self) -> bool {
        self.kind == TapKind::Tap
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn mtu(&self) -> Bytes {
        Interface::query(&self.control, &self.interface.name)
            .map_or(self.interface.mtu, |interface| interface.mtu)
    }

    fn counters(&mut self) -> PortCounters {
        if let Some(drops) = &mut self.drops {
            self.counters.kernel_drops += drops.take();
        }
        self.counters
    }

    fn describe(&self) -> String {
        let kind = match self.kind {
            TapKind::Tap => "TAP",
            TapKind::Tun => "TUN",
        };
        let passes = if self.intake.keeps_offloads { ", offloads pass" } else { "" };
        format!("{}: {kind} device{passes}", self.interface.name)
    }
}

fn send_one(device: &OwnedFd, offload: Offload, packet: &[u8]) -> rustix::io::Result<()> {
    let header = offload.virtio().to_bytes();
    let pieces = [io::IoSlice::new(&header[..VirtioHeader::LEN]), io::IoSlice::new(packet)];
    rustix::io::writev(device, &pieces).map(|_| ())
}

/// Locally administered MAC addresses, the destination first: "weir" in ASCII, and a number.
const MADE_UP_ADDRESSES: [u8; 12] =
    [0x02, b'w', b'e', b'i', b'r', 2, 0x02, b'w', b'e', b'i', b'r', 1];
/// Packet length from which a buffer is kept. Shorter packets are copied into buffers of their
/// size.
const LONG: usize = 4096;
/// Maximum number of bytes of super-packets that are received at once, as for packet sockets.
const MOST_KEPT: usize = 256 << 10;
const LARGEST: usize = VirtioHeader::LEN + MAC_HEADER + 2 * TAG + 65535;
