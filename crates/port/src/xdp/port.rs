use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use wire::headers::{MAC_HEADER, TAG};

use super::queue::{ADDRESS, DESCRIPTOR, ENTRIES, KernelRing, ReceiveQueue, TransmitQueue};
use super::{bpf, socket};
use crate::clock::monotonic;
use crate::interface::Interface;
use crate::shared_memory::SharedMemory;
use crate::tally::Tally;
use crate::{Accepted, DuplexPort, Frame, PortCounters, PortError, Refusal, lock};

#[derive(Debug)]
pub struct XdpPort {
    interface: Interface,
    options: XdpOptions,
    is_native: bool,
    is_zero_copy: bool,
    receiving: Mutex<Receiving>,
    transmitting: Mutex<TransmitQueue>,
    /// Whether the transmit ring has packets that the kernel did not take at the last attempt.
    has_pending: AtomicBool,
    is_gone: AtomicBool,
    tally: Tally,
    refused: AtomicU64,
    socket: OwnedFd,
    /// The kernel detaches the program when this descriptor is closed, even if this process is
    /// killed.
    _attachment: OwnedFd,
    _buffers: Arc<SharedMemory>,
}

#[derive(Debug)]
struct Receiving {
    queue: ReceiveQueue,
    empty_calls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpOptions {
    /// The interface's receive queue. Packets of other queues continue into the kernel.
    pub queue: u32,
    pub copy_mode: CopyMode,
    /// Whether the receiving thread also runs the interface's driver (SO_PREFER_BUSY_POLL).
    pub busy_poll: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// The network card copies packets if its driver supports zero-copy; otherwise the kernel
    /// copies packets.
    #[default]
    Auto,
    /// The network card itself writes the buffers (zero-copy).
    ZeroCopy,
    Copy,
}

impl XdpPort {
    /// The maximum MTU of an interface.
    pub const MOST_MTU: u32 = (4096 - HEADROOM) as u32 - (MAC_HEADER + TAG) as u32;

    /// Opens an interface of the calling thread's network namespace. Afterwards, any thread may use
    /// the port.
    pub fn open(name: &str, options: XdpOptions) -> Result<Self, PortError> {
        let control = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)
            .map_err(|error| PortError::from_io("opening a control socket", error.into()))?;
        let interface = Interface::query(&control, name)?;
        if !interface.running {
            return Err(PortError::InterfaceDown { name: name.to_owned() });
        }
        let queues = socket::receive_queues(name).unwrap_or(1).max(1);
        if options.queue >= queues {
            return Err(refused(
                name,
                format!("there is no queue {}: the last is {}", options.queue, queues - 1),
            ));
        }
        let chunk = chunk(&interface)?;
        let failed = |doing: &str, error: io::Error| explained(name, doing, error);
        let socket = socket::open().map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => PortError::NotSupported { feature: "AF_XDP sockets" },
            _ => failed("opening an AF_XDP socket", error),
        })?;
        let buffers = SharedMemory::anonymous(2 * ENTRIES as usize * chunk as usize)
            .map_err(|error| failed("allocating buffers", error))?;
        let buffers = Arc::new(buffers);
        let (receiving, transmitting) = queues_of(&socket, &buffers, chunk)
            .map_err(|error| failed("setting up AF_XDP", error))?;
        if options.busy_poll {
            prefer_busy_poll(&socket).map_err(|error| failed("asking for busy polling", error))?;
        }
        let bound = bind(&socket, &interface, options);
        bound.map_err(|error| failed("binding an AF_XDP socket", error))?;
        let is_zero_copy = socket::is_zero_copy(&socket);

        let map = bpf::create_map(queues).map_err(|error| failed("making a map", error))?;
        bpf::insert(&map, options.queue, socket.as_fd())
            .map_err(|error| failed("filling a map", error))?;
        let program = bpf::load(&map).map_err(|error| failed("loading a program", error))?;
        let (attachment, is_native) = attach(&program, &interface)?;
        Ok(Self {
            interface,
            options,
            is_native,
            is_zero_copy,
            receiving: Mutex::new(Receiving { queue: receiving, empty_calls: 0 }),
            transmitting: Mutex::new(transmitting),
            has_pending: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            tally: Tally::default(),
            refused: AtomicU64::new(0),
            socket,
            _attachment: attachment,
            _buffers: buffers,
        })
    }

    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Makes the kernel send. Each call sends only a few packets (`xsk_generic_xmit`).
    fn kick(&self, queue: &TransmitQueue) -> Result<(), PortError> {
        let mut before = queue.pending();
        while before > 0 && queue.needs_wakeup() {
            let kicked = socket::kick_transmit(self.socket.as_fd());
            let left = queue.pending();
            match kicked {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Err(self.gone()),
                    // The device had no space and dropped a packet.
                    Some(libc::ENOBUFS) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(libc::EAGAIN) if left < before => {}
                    _ => break,
                },
            }
            if left == before {
                break;
            }
            before = left;
        }
        self.has_pending.store(queue.pending() > 0, Ordering::Relaxed);
        Ok(())
    }

    fn gone(&self) -> PortError {
        self.is_gone.store(true, Ordering::Release);
        PortError::InterfaceDown { name: self.interface.name.clone() }
    }

    /// Wakes the driver and checks the interface. Called while no packet arrives.
    fn idle(&self, receiving: &mut Receiving) -> Result<(), PortError> {
        if self.has_pending.load(Ordering::Relaxed)
            && let Ok(queue) = self.transmitting.try_lock()
        {
            self.kick(&queue)?;
        }
        receiving.empty_calls += 1;
        let is_due = receiving.empty_calls >= IDLE_CHECK;
        if is_due || self.options.busy_poll || receiving.queue.needs_wakeup() {
            receiving.empty_calls = 0;
            if let Err(error) = socket::kick_receive(self.socket.as_fd())
                && matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV))
            {
                return Err(self.gone());
            }
        }
        Ok(())
    }
}

impl DuplexPort for XdpPort {
    fn receive(&self, _: usize, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let mut receiving = lock(&self.receiving);
        let before = batch.len();
        if receiving.queue.receive(batch, limit, monotonic) == 0 {
            return self.idle(&mut receiving).map(|()| 0);
        }
        receiving.empty_calls = 0;
        self.tally.received(&batch[before..]);
        Ok(batch.len() - before)
    }

    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError> {
        if self.is_gone.load(Ordering::Acquire) {
            return Ok(Accepted { sent: 0, refusal: Some(Refusal::NoPeer) });
        }
        let mut queue = lock(&self.transmitting);
        let accepted = queue.send(packets, self.longest());
        self.kick(&queue)?;
        self.tally.sent(&packets[..accepted.sent], &[]);
        Ok(accepted)
    }

    fn fd(&self, _: usize) -> Option<OwnedFd> {
        self.socket.try_clone().ok()
    }

    fn is_connected(&self) -> bool {
        !self.is_gone.load(Ordering::Acquire)
    }

    fn changes(&self) -> u64 {
        u64::from(self.is_gone.load(Ordering::Acquire))
    }

    fn reconnects(&self) -> bool {
        false
    }

    fn longest(&self) -> usize {
        self.interface.mtu.count() as usize + MAC_HEADER + TAG
    }

    fn counters(&self) -> PortCounters {
        let losses = socket::losses(self.socket.as_fd());
        let mut counters = self.tally.counters();
        counters.kernel_drops = losses.no_room;
        counters.truncated += losses.other;
        counters.dropped_queue_full = self.refused.load(Ordering::Relaxed);
        counters
    }

    fn describe(&self) -> String {
        let program = if self.is_native { "native" } else { "generic" };
        let copy = match (self.is_zero_copy, self.options.copy_mode) {
            (true, _) => "zero-copy",
            (false, CopyMode::Copy) => "copy mode",
            (false, _) => "copy mode, because its driver has no zero-copy",
        };
        let poll = if self.options.busy_poll { ", busy polling" } else { "" };
        format!(
            "{}: AF_XDP on queue {}, {program} program, {copy}{poll}",
            self.interface.name, self.options.queue
        )
    }
}

impl XdpOptions {
    fn flags(self) -> u16 {
        libc::XDP_USE_NEED_WAKEUP
            | match self.copy_mode {
                CopyMode::Auto => 0,
                CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
                CopyMode::Copy => libc::XDP_COPY,
            }
    }
}

impl fmt::Display for XdpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.queue != 0 {
            write!(f, ",queue={}", self.queue)?;
        }
        f.write_str(match self.copy_mode {
            CopyMode::Auto => "",
            CopyMode::ZeroCopy => ",zerocopy",
            CopyMode::Copy => ",copy",
        })?;
        f.write_str(if self.busy_poll { ",busy-poll" } else { "" })
    }
}

/// Returns the size of a buffer. The kernel reserves 256 bytes before a packet.
fn chunk(interface: &Interface) -> Result<u64, PortError> {
    let longest = interface.mtu.count() + (MAC_HEADER + TAG) as u64;
    let chunks = [2048, 4096].into_iter();
    chunks.into_iter().find(|chunk| longest + HEADROOM <= *chunk).ok_or_else(|| {
        let most = XdpPort::MOST_MTU;
        refused(
            &interface.name,
            format!("its MTU of {} is too large: lower it to {most}", interface.mtu.count()),
        )
    })
}

fn queues_of(
    socket: &OwnedFd,
    buffers: &Arc<SharedMemory>,
    chunk: u64,
) -> io::Result<(ReceiveQueue, TransmitQueue)> {
    socket::register(socket, buffers, chunk as u32)?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        socket::set_number(socket, ring, ENTRIES)?;
    }
    let offsets = socket::offsets(socket)?;
    let map = |place: u64, offsets, entry| KernelRing::map(socket, place, offsets, entry);
    let fill = map(libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fill, ADDRESS)?;
    let completion = map(libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.completion, ADDRESS)?;
    let receive = map(libc::XDP_PGOFF_RX_RING as u64, offsets.receive, DESCRIPTOR)?;
    let transmit = map(libc::XDP_PGOFF_TX_RING as u64, offsets.transmit, DESCRIPTOR)?;
    // Since Linux 6.16, a call may send more than 32 packets. Older kernels need more calls.
    let _ = socket::set_number(socket, XDP_MAX_TX_SKB_BUDGET, 256);
    Ok((
        ReceiveQueue::new(buffers.clone(), chunk, fill, receive),
        TransmitQueue::new(buffers.clone(), chunk, transmit, completion),
    ))
}

fn prefer_busy_poll(socket: &OwnedFd) -> io::Result<()> {
    let set = |option, value| crate::socket::set_number(socket, libc::SOL_SOCKET, option, value);
    set(SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, 20)?;
    set(SO_BUSY_POLL_BUDGET, 64)
}

/// Binds a socket to its queue. The kernel frees the queue of a closed socket a little after the
/// close, so a busy queue may soon be free.
fn bind(socket: &OwnedFd, interface: &Interface, options: XdpOptions) -> io::Result<()> {
    let mut attempts = 0;
    loop {
        let bound = socket::bind(socket, interface.index, options.queue, options.flags());
        let is_busy = bound.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
        attempts += 1;
        if !is_busy || attempts == MOST_BINDS {
            return bound;
        }
        std::thread::sleep(BETWEEN_BINDS);
    }
}

/// Attaches the program in the driver if the driver supports this; otherwise attaches the program
/// in the network stack.
fn attach(program: &OwnedFd, interface: &Interface) -> Result<(OwnedFd, bool), PortError> {
    let name = &interface.name;
    match bpf::attach(program, interface.index, bpf::NATIVE) {
        Ok(attachment) => Ok((attachment, true)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let attached = bpf::attach(program, interface.index, bpf::GENERIC);
            let attachment =
                attached.map_err(|error| explained(name, "attaching a program to", error))?;
            Ok((attachment, false))
        }
        Err(error) => Err(explained(name, "attaching a program to", error)),
    }
}

fn explained(name: &str, doing: &str, error: io::Error) -> PortError {
    let problem = match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) if doing.starts_with("attaching") => {
            "another XDP program is attached: `ip link show` names it; detach it first"
        }
        Some(libc::EBUSY) => "another AF_XDP socket has this queue: end its program first",
        Some(libc::EOPNOTSUPP) if doing.starts_with("binding") => {
            "its driver has no zero-copy: leave `zerocopy` out"
        }
        Some(libc::ERANGE) => "the MTU of a veth's peer is too large for XDP: lower it to 3500",
        Some(libc::ENOSPC) if doing.starts_with("attaching") => {
            "its peer has more transmit queues than it has receive queues: make as many receive \
             queues, with `ethtool -L` or `numrxqueues` of `ip link add`"
        }
        Some(libc::ENOBUFS) if doing.starts_with("setting up") => {
            "the limit of locked memory is too low: raise it with `ulimit -l 65536`"
        }
        _ => return PortError::from_io(format!("{doing} {name:?}"), error),
    };
    refused(name, problem.to_owned())
}

fn refused(name: &str, problem: String) -> PortError {
    PortError::Refused { place: name.to_owned(), problem }
}

const HEADROOM: u64 = 256;
/// The number of empty calls of `receive` between two checks of the interface's state.
const IDLE_CHECK: u32 = 512;
/// Maximum number of attempts to bind a socket to a busy queue.
const MOST_BINDS: u32 = 10;
const BETWEEN_BINDS: Duration = Duration::from_millis(10);
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
