//! Packet I/O: frames in and out of an interface, as on a wire.
//!
//! Linux passes unfinished packets between virtual interfaces: checksums hold only the
//! pseudo-header's sum, TCP and UDP data arrive in super-packets of 64 KiB, and the outermost VLAN
//! tag is beside the packet. A port completes them first, so that a loss model drops frames and a
//! rate counts frames, whatever the offloads of the peer. A switch needs that work only where a
//! frame leaves by a port without offloads: its ports leave the work undone ([`Offload`]).
//!
//! | port | description |
//! | --- | --- |
//! | [`PacketPort`] | an interface, by a packet socket with a ring |
//! | [`PacketSender`] | an interface, for a thread that only sends |
//! | [`TapPort`] | the user's end of a TAP or TUN device |
//! | [`NullPort`] | discards every frame, never receives one |
//! | [`pair`] | two ports, each of which receives what the other sends |
//!
//! Others are used by several threads at once ([`DuplexPort`]):
//!
//! | port | description |
//! | --- | --- |
//! | [`RingPort`] | another process, through shared memory |
//! | [`XdpPort`] | an interface's queue, by an AF_XDP socket |
//! | [`VhostDevice`] | a virtual machine, or another driver of virtio devices |
//! | [`VhostDriver`] | another process's virtio device |
//!
//! [`HugeVec`] is memory for tables with an entry for each flow. [`mod@prefetch`] starts to load an
//! entry.
//!
//! AF_XDP completes no packets: it delivers their bytes without a `virtio_net_hdr`. Then a veth
//! peer's partial checksum looks like a wrong one, and a super-packet is lost, unless the peer's
//! offloads are off.

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
mod null;
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

pub use counters::{PortCounters, SendReport};
pub use duplex::DuplexPort;
pub use error::PortError;
pub use frame::Frame;
pub use huge::{HugeVec, Zeroable};
pub use interface::Interface;
pub use link_events::LinkEvents;
pub use null::NullPort;
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

/// One end of a link. Receiving and sending never block.
pub trait Port: Send + std::fmt::Debug {
    /// Appends the frames that have arrived, oldest first, and returns their number. Stops once
    /// `limit` is reached; the frames of one super-packet stay together, so there may be more.
    /// Their arrival times never decrease.
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError>;

    /// Sends the frames in order, finished or not. A frame that cannot be sent is dropped and
    /// counted by reason; an error means that the port itself does not work any more.
    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError>;

    /// Whether [`Port::send`] passes unfinished frames on. Otherwise it finishes them, and its
    /// report counts the finished frames.
    fn takes_offloads(&self) -> bool {
        true
    }

    /// Becomes readable when there is something to receive. `None` if that never happens.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The longest payload of a frame: its bytes behind the MAC header and the VLAN tags.
    fn mtu(&self) -> Bytes;

    /// The counts since the port was opened, including the kernel's own drops.
    fn counters(&mut self) -> PortCounters;

    /// One line for people: the kind of port and its settings.
    fn describe(&self) -> String;
}
