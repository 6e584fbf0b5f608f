//! vhost-user: a virtio network device whose rings are in memory that the driver shares
//! (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>, virtio 1.2).
//!
//! [`VhostDevice`] is the back end: the device, like Open vSwitch's dpdkvhostuser ports for a
//! virtual machine. [`VhostDriver`] is the front end: the driver, like DPDK's virtio-user. Both
//! support split rings with mergeable receive buffers. The device also supports indirect
//! descriptors, and checksum and segmentation offloads; the driver sends and receives only finished
//! frames.
//!
//! Neither side trusts the other. Messages are checked ([`message`]), and every index, address,
//! length and descriptor chain in the memory is copied and then checked ([`chain`]). A front end
//! that truncates its memory during use is disconnected (`fault.rs`). Only the socket's owner can
//! open the socket.

pub mod chain;
mod device;
mod device_ring;
mod device_session;
mod driver;
mod driver_rings;
mod driver_session;
mod memory;
pub mod message;

pub use device::VhostDevice;
pub use driver::VhostDriver;
