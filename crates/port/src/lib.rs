//! Packet I/O: frames in and out of an interface, as they would be on a wire.
//!
//! Linux hands packets between virtual interfaces half done: checksums hold only the
//! pseudo-header's sum, TCP and UDP data come in super-packets of 64 KiB, and the outermost VLAN
//! tag rides beside the packet. A port finishes them before anyone sees them, so that a loss model
//! drops frames and a rate counts them, whatever the offloads of the peer.
//!
//! | port | is |
//! | --- | --- |
//! | [`PacketPort`] | an interface, by a packet socket with a ring |
//! | [`TapPort`] | the user's end of a TAP or TUN device |
//! | [`NullPort`] | nothing: takes every frame, never has one |
//! | [`pair`] | two ports, each of which receives what the other sends |
//!
//! AF_XDP is not among them. In copy mode, the only one every driver has, it delivers a packet's
//! bytes without a `virtio_net_hdr`: a veth peer's partial checksum cannot be told from a wrong
//! one, and what is larger than a buffer is lost. It would serve only with the peer's offloads
//! off, and a port must not depend on that.

#[cfg(test)]
mod against_kernel;
mod clock;
mod counters;
mod error;
mod frame;
mod intake;
mod interface;
mod null;
mod packet;
mod pair;
mod pool;
mod ring;
mod socket;
mod statistics;
mod tap;
mod tun;

use std::os::fd::BorrowedFd;

pub use counters::{PortCounters, SendReport};
pub use error::PortError;
pub use frame::Frame;
pub use interface::Interface;
pub use null::NullPort;
pub use packet::{PacketOptions, PacketPort, SuperPackets};
pub use pair::{PairPort, pair};
pub use pool::FramePool;
pub use tap::{TapKind, TapPort};
use units::Bytes;

/// One end of a link. Neither receiving nor sending ever waits.
pub trait Port: Send + std::fmt::Debug {
    /// Appends the frames that have arrived, oldest first, and says how many. Stops once `limit`
    /// is reached; the frames of one super-packet stay together, so there may be more. Their
    /// arrival times never decrease.
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError>;

    /// Sends the frames in order. What could not be sent is dropped and counted by reason; an error
    /// means that the port itself does not work any more.
    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError>;

    /// Becomes readable when there is something to receive. `None` if that never happens.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The longest payload of a frame: its bytes behind the MAC header and the VLAN tags.
    fn mtu(&self) -> Bytes;

    /// What happened since the port was opened, the kernel's own drops included.
    fn counters(&mut self) -> PortCounters;

    /// One line for people: what the port is and how it works.
    fn describe(&self) -> String;
}
