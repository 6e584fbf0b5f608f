//! Packet I/O: receives and sends frames at an interface, as on a wire.
//!
//! Linux passes unfinished packets between virtual interfaces: checksum fields hold only the
//! pseudo-header's sum, TCP and UDP data arrive in super-packets of 64 KiB, and the outermost VLAN
//! tag is beside the packet. A port completes such packets first, so that a loss model drops single
//! frames and a rate counts single frames, whatever the peer's offloads. A switch needs finished
//! frames only for output ports without offloads, so its ports leave packets unfinished
//! ([`Offload`]).
//!
//! | port | description |
//! | --- | --- |
//! | [`PacketPort`] | an interface, through a packet socket with a ring |
//! | [`PacketSender`] | an interface, for a thread that only sends |
//! | [`TapPort`] | the user's end of a TAP or TUN device |
//! | [`pair`] | two ports, each of which receives what the other sends |
//!
//! Several threads can use a [`DuplexPort`] at once. The ports of this kind:
//!
//! | port | description |
//! | --- | --- |
//! | [`RingPort`] | another process, through shared memory |
//! | [`XdpPort`] | an interface's queue, through an AF_XDP socket |
//! | [`VhostDevice`] | a virtual machine, or another driver of virtio devices |
//! | [`VhostDriver`] | another process's virtio device |
//!
//! [`HugeVec`] is memory for tables with an entry per flow. [`mod@prefetch`] starts to load an
//! entry.
//!
//! AF_XDP completes no packets: AF_XDP delivers the bytes of a packet without a `virtio_net_hdr`.
//! The partial checksum of a veth peer then looks wrong, and a super-packet is lost, unless the
//! peer's offloads are switched off.

#[cfg(test)]
mod against_kernel;
mod bell;
mod clock;
mod counters;
mod duplex;
mod error;
mod fault;
mod frame;
mod huge;
mod intake;
mod interface;
mod link_events;
mod offload;
mod packet;
mod pair;
mod pool;
pub mod prefetch;
mod ring;
mod sender;
mod shared_memory;
pub mod shared_ring;
mod socket;
mod statistics;
mod tally;
mod tap;
mod tun;
mod unix_peer;
pub mod vhost;
mod xdp;

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use counters::{PortCounters, SendReport};
pub use duplex::DuplexPort;
pub use error::PortError;
pub use frame::Frame;
pub use huge::{HugeVec, Zeroable};
pub use interface::Interface;
pub use link_events::LinkEvents;
pub use offload::Offload;
pub use packet::{PacketOptions, PacketPort, SuperPackets};
pub use pair::{PairPort, pair};
pub use pool::{FramePool, Lease};
pub use sender::{Accepted, PacketSender, Refusal};
pub use shared_ring::RingPort;
pub use tap::{TapKind, TapPort};
use units::Bytes;
pub use vhost::{VhostDevice, VhostDriver};
pub use xdp::{CopyMode, XdpOptions, XdpPort};

/// A port receives and sends frames. Neither operation ever blocks.
pub trait Port: Send + std::fmt::Debug {
    /// Appends the frames that have arrived, oldest first, and returns their number. Stops at
    /// `limit`, but keeps the frames of a super-packet together, so that the number may exceed
    /// `limit`. Arrival times never decrease.
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError>;

    /// Sends the frames in order. Frames may be finished or unfinished. Drops a frame that cannot
    /// be sent, and counts the frame by the reason. An error means that the port itself no longer
    /// works.
    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError>;

    /// Whether [`Port::send`] sends unfinished frames unchanged. Otherwise, the port finishes the
    /// frames, and its report counts the finished frames.
    fn takes_offloads(&self) -> bool {
        true
    }

    /// Returns a descriptor that becomes readable when frames can be received; `None` if no frames
    /// can ever arrive.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the maximum length of a frame's payload, without the MAC header and the VLAN tags.
    fn mtu(&self) -> Bytes;

    /// Returns the counters since the port was opened, including the kernel's own drops.
    fn counters(&mut self) -> PortCounters;

    /// Describes the port in a line for users: its type and its settings.
    fn describe(&self) -> String;
}

/// Takes the lock, even if a thread that held the lock has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
