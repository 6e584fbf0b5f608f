//! vhost-user: a virtio network device whose rings are in memory that its user shares
//! (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>, virtio 1.2).
//!
//! [`VhostDevice`] is the back end: the device, as Open vSwitch's dpdkvhostuser ports are it for a
//! virtual machine. [`VhostDriver`] is the front end: the driver, as DPDK's virtio-user is it.
//! Split rings, mergeable receive buffers, indirect descriptors; no offloads: every frame is whole.
//!
//! Neither end trusts the other. Messages are checked ([`message`]), and every index, address,
//! length and chain of descriptors in the memory is copied and then checked ([`chain`]). A front
//! end that cuts its memory off while it is used is disconnected (`fault.rs`). The socket is open
//! to its owner alone.

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
