use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use units::{Bytes, Time};
use wire::VirtioHeader;
use wire::headers::{MAC_HEADER, TAG};
use wire::vlan::{self, ADDRESSES};

use crate::clock::{ArrivalClock, monotonic};
use crate::intake::Intake;
use crate::interface::Interface;
use crate::ring::Ring;
use crate::statistics::{InterfaceDrops, Side};
use crate::{Frame, Port, PortCounters, PortError, SendReport, socket};

/// A port on an interface, through a packet socket.
///
/// Packets arrive in a ring of small slots. The kernel also queues packets that are larger than a
/// slot, the super-packets, on the socket (`PACKET_COPY_THRESH`, `tpacket_rcv` in
/// net/packet/af_packet.c). The slot keeps the packet's position in the order and its timestamp. A
/// system call per super-packet fetches the bytes. If the socket's queue may not be large enough,
/// the ring has fewer and larger slots instead ([`SuperPackets`]).
///
/// Measured with `examples/forward.rs` between namespaces on a shared virtual machine of two
/// processors, TCP with all offloads at 1 Gbit/s, medians of four runs of 3 s: receiving took 0.18
/// us a frame, acknowledgements included, and 0.15 us with large slots. There are only 1024 large
/// slots instead of 16384: with 117,000 datagrams of 64 bytes a second the large slots overran in
/// three runs of five, and the small slots never overran. An empty poll of two ports takes 0.03 us.
///
/// Sending (`examples/send.rs`) takes 1.2 us a frame in batches of 32, 1.3 us in batches of 4 and
/// 1.7 us alone. Into a veth pair the sending thread also pays for the receiver's stack, which runs
/// in its context: 2.6 to 3.9 us a frame in all, half of which is the receiver's stack.
#[derive(Debug)]
pub struct PacketPort {
    interface: Interface,
    ring: Ring,
    receiver: OwnedFd,
    /// A separate socket for sending, so that neither direction takes the other's locks, and no
    /// frame needs a meaningless `virtio_net_hdr`.
    sender: OwnedFd,
    /// A third socket for unfinished frames, whose packets have a `virtio_net_hdr`.
    unfinished_sender: Option<OwnedFd>,
    /// The socket for unfinished frames while the port does not use it, and the time at which the
    /// port stopped using it because the interface does not segment.
    resting: Option<(OwnedFd, Time)>,
    /// The number of successive unfinished frames that the kernel refused although it then accepted
    /// the same frames in finished form.
    refusals: u32,
    drops: Option<InterfaceDrops>,
    large: Vec<u8>,
    intake: Intake,
    clock: ArrivalClock,
    counters: PortCounters,
    idle: u32,
    pending: Option<std::io::Error>,
}

/// The settings of a [`PacketPort`]; the default suits links of up to some Gbit/s.
#[derive(Debug, Clone, Copy)]
pub struct PacketOptions {
    /// The number of slots in the ring: the maximum length of the queue, in packets.
    pub slots: usize,
    pub super_packets: SuperPackets,
    /// Memory for super-packets in the socket's queue.
    pub receive_buffer: Bytes,
    /// Whether to receive frames to every address, and not only to the interface's own address.
    pub promiscuous: bool,
    /// Whether to receive also the frames that leave by the interface, for an observer.
    pub outgoing: bool,
    /// Whether the caller may change the interface. The port then raises the MTU by the length of a
    /// tag. On other interfaces, the kernel allows a packet socket a full frame only with a
    /// customer tag (`packet_extra_vlan_len_allowed`): full frames with service tags, such as
    /// CAQM's, are lost and counted as too long.
    pub own: bool,
    /// Whether to deliver frames as their senders left them, with an [`Offload`](crate::Offload).
    pub keep_offloads: bool,
}

/// The memory in which super-packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SuperPackets {
    /// In the socket's queue if its limit can be raised enough (`SO_RCVBUFFORCE`, which needs
    /// CAP_NET_ADMIN outside user namespaces, or a large `net.core.rmem_max`), otherwise in the
    /// ring.
    #[default]
    Auto,
    /// In the socket's queue, beside a ring of many small slots.
    Queue,
    /// In a ring of few slots, each large enough for any super-packet.
    Ring,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            slots: 16384,
            super_packets: SuperPackets::Auto,
            receive_buffer: Bytes::new(256 << 20),
            promiscuous: true,
            outgoing: false,
            own: false,
            keep_offloads: false,
        }
    }
}

impl PacketPort {
    /// Opens an interface of the calling thread's network namespace. The port may be moved to any
    /// other thread afterwards.
    pub fn open(name: &str) -> Result<Self, PortError> {
        Self::open_with(name, PacketOptions::default())
    }

    pub fn open_with(name: &str, options: PacketOptions) -> Result<Self, PortError> {
        let receiver = open_socket()?;
        let sender = open_socket()?;
        let interface = Interface::query(&receiver, name)?;
        let index = interface.index as i32;
        if options.own {
            interface.widen(&sender, TAG as u64)?;
        }

        let packet = |option, value, feature| {
            socket::set_number(&receiver, libc::SOL_PACKET, option, value)
                .map_err(|error| unsupported(feature, error))
        };
        packet(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32, "TPACKET_V2")?;
        packet(libc::PACKET_VNET_HDR, 1, "PACKET_VNET_HDR with a ring (Linux 4.6)")?;
        packet(libc::PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH")?;
        if !options.outgoing {
            packet(libc::PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING (Linux 4.20)")?;
        }
        let receive_buffer = grow_receive_buffer(&receiver, options.receive_buffer);
        let in_ring = match options.super_packets {
            SuperPackets::Auto => receive_buffer < options.receive_buffer.min(ENOUGH_QUEUED),
            SuperPackets::Queue => false,
            SuperPackets::Ring => true,
        };
        let (slot_size, slots) = match in_ring {
            true => (LARGE_SLOT, options.slots.min(MOST_LARGE_SLOTS)),
            false => (slot_size(interface.mtu), options.slots),
        };
        let ring = Ring::map(&receiver, slot_size, slots)
            .map_err(|error| PortError::from_io("setting up a packet ring", error))?;
        if options.promiscuous {
            socket::set_promiscuous(&receiver, index)
                .map_err(|error| PortError::from_io("receiving to every address", error))?;
        }
        // Bind only now: the ring exists, and so the socket never gets packets from other
        // interfaces.
        let bound = socket::bind(&receiver, index, libc::ETH_P_ALL);
        bound.map_err(|error| gone_or(&interface, "binding a packet socket", error))?;

        prepare_sender(&sender, &interface)?;
        let mut unfinished_sender = None;
        if options.keep_offloads {
            let sender = open_socket()?;
            socket::set_number(&sender, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
                .map_err(|error| unsupported("PACKET_VNET_HDR", error))?;
            prepare_sender(&sender, &interface)?;
            unfinished_sender = Some(sender);
        }

        let drops = InterfaceDrops::watch(interface.index, Side::Receive);
        Ok(Self {
            interface,
            drops,
            ring,
            receiver,
            sender,
            unfinished_sender,
            resting: None,
            refusals: 0,
            large: vec![0; LARGEST_USUAL],
            intake: Intake::new(options.keep_offloads),
            clock: ArrivalClock::new(),
            counters: PortCounters::default(),
            idle: 0,
            pending: None,
        })
    }

    /// Returns the properties that the interface had when the port was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Checks the socket for an error, such as a link that went down. An empty ring does not show
    /// such an error.
    fn look_for_error(&mut self) -> Result<(), PortError> {
        let pending = self.pending.take().map(Err);
        pending
            .unwrap_or_else(|| {
                match socket::number(&self.receiver, libc::SOL_SOCKET, libc::SO_ERROR) {
                    Ok(0) => Ok(()),
                    Ok(number) => Err(std::io::Error::from_raw_os_error(number)),
                    Err(error) => Err(error),
                }
            })
            .map_err(|error| gone_or(&self.interface, "receiving", error))
    }

    fn too_long(&self, frame: &Frame) -> bool {
        let longest = self.interface.mtu.count() as usize + MAC_HEADER;
        let len = frame.longest_on_wire();
        // As in the kernel's packet_snd, the MTU does not include one VLAN tag.
        len > longest && (len > longest + TAG || vlan::outermost(frame.bytes()).is_none())
    }

    /// Sends a batch of frames with one system call. Returns the number of handled frames.
    fn send_some(
        &mut self,
        frames: &[Frame],
        attempts: &mut u32,
        report: &mut SendReport,
    ) -> Result<usize, PortError> {
        let Some(first) = frames.first() else { return Ok(0) };
        let unfinished_sender = self.unfinished_sender.as_ref().filter(|_| first.is_unfinished());
        let fitting = frames
            .iter()
            .take(socket::BATCH)
            .position(|frame| {
                frame.is_unfinished() != unfinished_sender.is_some() || self.too_long(frame)
            })
            .unwrap_or(frames.len().min(socket::BATCH));
        if fitting == 0 && first.is_unfinished() && self.unfinished_sender.is_none() {
            // Since the call began, the port has given up the interface's offloads.
            self.send_finished(first, report)?;
            return Ok(1);
        }
        if fitting == 0 {
            self.counters.dropped_too_long += first.on_wire().0;
            report.dropped += 1;
            return Ok(1);
        }
        let accepted = &frames[..fitting];
        let outcome = match unfinished_sender {
            None => socket::send(&self.sender, accepted.iter().map(Frame::bytes)),
            Some(sender) => socket::send_with_headers(sender, accepted.iter().map(with_header)),
        };
        match outcome {
            Ok(sent) => {
                let on_wire = frames[..sent].iter().map(Frame::on_wire);
                let (count, bytes) =
                    on_wire.fold((0, 0), |sum, frame| (sum.0 + frame.0, sum.1 + frame.1));
                self.counters.sent_frames += count;
                self.counters.sent_bytes += bytes;
                report.sent += sent;
                *attempts = 0;
                if unfinished_sender.is_some() {
                    self.refusals = 0;
                }
                Ok(sent)
            }
            Err(error) => {
                let lost = first.on_wire().0;
                let is_unfinished = unfinished_sender.is_some();
                match error.raw_os_error() {
                    Some(libc::EINTR) => return Ok(0),
                    Some(libc::ENOBUFS) if is_unfinished && *attempts >= UNFINISHED_ATTEMPTS => {
                        *attempts = 0;
                        self.send_finished(first, report)?;
                        return Ok(1);
                    }
                    // Linux before 6.2 does not accept UDP super-packets.
                    Some(libc::EINVAL) if is_unfinished => {
                        *attempts = 0;
                        // Keep the count of refusals, because the interface may still segment TCP.
                        let refusals = std::mem::take(&mut self.refusals);
                        self.send_finished(first, report)?;
                        self.refusals = refusals;
                        return Ok(1);
                    }
                    Some(libc::ENOBUFS | libc::EAGAIN) if *attempts < ATTEMPTS => {
                        *attempts += 1;
                        self.counters.send_retries += 1;
                        // Another thread frees the space in the queue, and may be waiting for this
                        // core.
                        rustix::thread::sched_yield();
                        return Ok(0);
                    }
                    Some(libc::ENOBUFS | libc::EAGAIN) => self.counters.dropped_queue_full += lost,
                    Some(libc::EMSGSIZE) => self.counters.dropped_too_long += lost,
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        return Err(PortError::InterfaceDown { name: self.interface.name.clone() });
                    }
                    _ => {
                        tracing::debug!(%error, "frame refused");
                        self.counters.dropped_refused += lost;
                    }
                }
                *attempts = 0;
                report.dropped += 1;
                Ok(1)
            }
        }
    }
}

impl PacketPort {
    /// Finishes and sends a frame that the kernel refused in unfinished form. Either the kernel had
    /// no space, or the interface does not segment. In the second case the port gives up offloads,
    /// because the kernel segments nothing on a socket that bypasses the queueing discipline
    /// (`__dev_direct_xmit`).
    fn send_finished(&mut self, frame: &Frame, report: &mut SendReport) -> Result<(), PortError> {
        let retries = self.counters.send_retries;
        let mut finished = Vec::new();
        frame.clone().finish(&mut finished);
        let outcome = self.send(&finished)?;
        let is_sent = outcome.dropped == 0;
        (report.sent, report.dropped) =
            (report.sent + usize::from(is_sent), report.dropped + usize::from(!is_sent));
        if is_sent && self.counters.send_retries == retries {
            self.refusals += 1;
        }
        if self.refusals >= MOST_REFUSALS
            && let Some(sender) = self.unfinished_sender.take()
        {
            tracing::debug!("{}: the interface does not segment", self.interface.name);
            self.resting = Some((sender, monotonic()));
        }
        Ok(())
    }

    /// Uses offloads again some time after the port gave them up. Perhaps the kernel only lacked
    /// space, or the interface's settings have changed.
    fn end_rest(&mut self) {
        let resting = self.resting.as_ref();
        let is_over = resting.is_some_and(|(_, since)| monotonic().since(*since).nanos() >= REST);
        if is_over && let Some((sender, _)) = self.resting.take() {
            self.unfinished_sender = Some(sender);
            self.refusals = MOST_REFUSALS - 1;
        }
    }
}

impl Port for PacketPort {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let before = batch.len();
        let mut begun = false;
        let mut kept = 0;
        while batch.len() - before < limit && kept < MOST_KEPT {
            let Some(slot) = self.ring.peek() else { break };
            if !begun {
                self.clock.begin_batch();
                begun = true;
            }
            let arrival = self.clock.arrival(slot.seconds, slot.nanoseconds);
            if slot.status & libc::TP_STATUS_COPY != 0 && self.intake.keeps_offloads {
                match fetch_frame(&self.receiver, slot.len, slot.tag, arrival, &mut self.pending) {
                    Some((virtio, frame)) => {
                        kept += frame.len();
                        let is_tagged = slot.tag.is_some();
                        self.intake.keep(frame, is_tagged, &virtio, batch, &mut self.counters);
                    }
                    None => self.counters.truncated += 1,
                }
            } else if slot.status & libc::TP_STATUS_COPY != 0 {
                let needed = VirtioHeader::LEN + slot.len;
                if self.large.len() < needed {
                    self.large.resize(needed, 0);
                }
                match fetch(&self.receiver, &mut self.large, &mut self.pending) {
                    Some((virtio, packet)) => self.intake.take(
                        packet,
                        slot.tag,
                        &virtio,
                        arrival,
                        batch,
                        &mut self.counters,
                    ),
                    None => self.counters.truncated += 1,
                }
            } else if slot.data.len() < slot.len {
                self.counters.truncated += 1;
            } else {
                self.intake.take(
                    slot.data,
                    slot.tag,
                    &slot.virtio,
                    arrival,
                    batch,
                    &mut self.counters,
                );
            }
            self.ring.release();
        }
        if begun {
            self.idle = 0;
        } else {
            self.idle += 1;
            if self.idle >= IDLE_CHECK {
                self.idle = 0;
                self.look_for_error()?;
            }
        }
        Ok(batch.len() - before)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        let mut report = SendReport::default();
        self.end_rest();
        if self.unfinished_sender.is_none() && frames.iter().any(Frame::is_unfinished) {
            let mut finished = Vec::with_capacity(frames.len());
            frames.iter().for_each(|frame| frame.clone().finish(&mut finished));
            return self.send(&finished);
        }
        let mut attempts = 0;
        let mut done = 0;
        while done < frames.len() {
            done += self.send_some(&frames[done..], &mut attempts, &mut report)?;
        }
        Ok(report)
    }

    fn takes_offloads(&self) -> bool {
        self.unfinished_sender.is_some()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }

    fn mtu(&self) -> Bytes {
        self.interface.mtu
    }

    fn counters(&mut self) -> PortCounters {
        // Reading the drops does not fail on a configured socket.
        self.counters.kernel_drops +=
            u64::from(socket::take_drops(&self.receiver).unwrap_or_default());
        if let Some(drops) = &mut self.drops {
            self.counters.backlog_drops += drops.take();
        }
        self.counters
    }

    fn describe(&self) -> String {
        format!(
            "{}: packet socket, ring of {} x {} bytes{}",
            self.interface.name,
            self.ring.slots(),
            self.ring.slot_size(),
            if self.unfinished_sender.is_some() { ", offloads pass" } else { "" },
        )
    }
}

fn open_socket() -> Result<OwnedFd, PortError> {
    socket::open().map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => PortError::NotSupported { feature: "packet sockets" },
        _ => PortError::from_io("opening a packet socket", error),
    })
}

/// Reads the oldest packet of the socket's queue. The kernel reports an error of the socket, such
/// as ENETDOWN, once, in place of a packet. This function stores the error for
/// [`PacketPort::look_for_error`].
fn fetch<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    pending: &mut Option<std::io::Error>,
) -> Option<(VirtioHeader, &'a [u8])> {
    let len = socket::receive(socket, buffer)
        .or_else(|error| {
            *pending = Some(error);
            socket::receive(socket, buffer)
        })
        .ok()?;
    let (header, packet) = buffer.get(..len)?.split_at_checked(VirtioHeader::LEN)?;
    Some((VirtioHeader::parse(header)?, packet))
}

/// Reads the oldest packet of the socket's queue into a new frame, and inserts its tag again.
/// `len`: the packet's length without the tag.
fn fetch_frame(
    socket: &OwnedFd,
    len: usize,
    tag: Option<vlan::Tag>,
    arrival: Time,
    pending: &mut Option<std::io::Error>,
) -> Option<(VirtioHeader, Frame)> {
    let room = if tag.is_some() { TAG } else { 0 };
    let mut frame = Frame::with_len(len + room, arrival);
    let mut header = [0; VirtioHeader::LEN];
    let (addresses, rest) = frame.bytes_mut().split_at_mut(ADDRESSES.min(len));
    let (place, rest) = rest.split_at_mut(room.min(rest.len()));
    if let Some(tag) = tag {
        place.copy_from_slice(&tag.to_bytes());
    }
    let mut receive = || {
        let pieces = [&mut header[..], &mut *addresses, &mut *rest];
        socket::receive_pieces(socket, &mut pieces.map(IoSliceMut::new))
    };
    let received = receive().or_else(|error| {
        *pending = Some(error);
        receive()
    });
    if received.ok()? != VirtioHeader::LEN + len {
        return None;
    }
    Some((VirtioHeader::parse(&header)?, frame))
}

/// Returns the header that describes an unfinished frame's offload, and the frame's bytes.
fn with_header(frame: &Frame) -> ([u8; VirtioHeader::LEN], &[u8]) {
    let header = frame.offload().virtio().to_bytes();
    let mut short = [0; VirtioHeader::LEN];
    short.copy_from_slice(&header[..VirtioHeader::LEN]);
    (short, frame.bytes())
}

fn prepare_sender(sender: &OwnedFd, interface: &Interface) -> Result<(), PortError> {
    // Without this option, a queueing discipline could hold or drop frames unnoticed. With this
    // option, the kernel reports at once that it has no space.
    socket::set_number(sender, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
        .map_err(|error| unsupported("PACKET_QDISC_BYPASS", error))?;
    let size = SEND_BUFFER as i32;
    if socket::set_number(sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size).is_err() {
        let _ = socket::set_number(sender, libc::SOL_SOCKET, libc::SO_SNDBUF, size);
    }
    socket::bind(sender, interface.index as i32, 0)
        .map_err(|error| gone_or(interface, "binding a packet socket", error))
}

/// Raises the limit of the socket's receive buffer, even beyond the system's if permitted, and
/// returns the resulting limit. The kernel doubles the requested number for its own overhead.
fn grow_receive_buffer(socket: &OwnedFd, wanted: Bytes) -> Bytes {
    let half = i32::try_from(wanted.count() / 2).unwrap_or(i32::MAX / 2);
    if socket::set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half).is_err() {
        let _ = socket::set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, half);
    }
    let got = socket::number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
    Bytes::new(got as u64)
}

/// Returns the space for a frame of the MTU and the kernel's header, rounded up to a power of two
/// so that slots fill pages.
fn slot_size(mtu: Bytes) -> usize {
    let frame = MAC_HEADER + 2 * TAG + mtu.count().min(MOST_IN_SLOT) as usize;
    (frame + SLOT_OVERHEAD).next_power_of_two().max(2048)
}

fn gone_or(interface: &Interface, doing: &str, error: std::io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
            PortError::InterfaceDown { name: interface.name.clone() }
        }
        _ => PortError::from_io(format!("{doing} at {:?}", interface.name), error),
    }
}

fn unsupported(feature: &'static str, error: std::io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT | libc::EINVAL) => PortError::NotSupported { feature },
        _ => PortError::from_io(format!("setting {feature}"), error),
    }
}

/// The size of tpacket2_hdr, sockaddr_ll, virtio_net_hdr and alignment, rounded up.
const SLOT_OVERHEAD: usize = 128;
/// The size of a slot that holds any packet of 64 KiB: a whole number of pages.
const LARGE_SLOT: usize = 17 << 12;
const MOST_LARGE_SLOTS: usize = 1024;
/// Minimum size of the socket's queue, which is room for a hundred super-packets. A smaller queue
/// would hold fewer super-packets than the ring of large slots.
const ENOUGH_QUEUED: Bytes = Bytes::new(16 << 20);
/// Maximum MTU whose frames get small slots. Frames of a larger MTU, such as loopback's, are
/// treated like super-packets.
const MOST_IN_SLOT: u64 = 9216;
/// Maximum number of bytes of super-packets that are received together, so that they stay in the
/// processor's cache until the frames are sent.
const MOST_KEPT: usize = 256 << 10;
const SEND_BUFFER: usize = 16 << 20;
/// Maximum packet length in the kernel without "BIG TCP". For a larger packet, the buffer grows to
/// the length that the slot shows.
const LARGEST_USUAL: usize = VirtioHeader::LEN + MAC_HEADER + 2 * TAG + 65535;
/// Maximum number of attempts to send while the queue is full. A call takes about a microsecond.
const ATTEMPTS: u32 = 100;
/// Maximum number of attempts to send an unfinished frame before the port finishes and sends the
/// frame.
const UNFINISHED_ATTEMPTS: u32 = 3;
const MOST_REFUSALS: u32 = 8;
/// Nanoseconds for which the port uses no offloads after `MOST_REFUSALS` refusals.
const REST: u64 = 10_000_000_000;
/// The number of empty polls before a check for socket errors. A thread that wakes each millisecond
/// then checks four times a second, and a thread that spins does not check at each poll.
const IDLE_CHECK: u32 = 256;
