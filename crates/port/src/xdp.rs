//! AF_XDP sockets (Documentation/networking/af_xdp.rst): rings shared with the kernel, filled by a
//! small program on the interface.
//!
//! A packet arrives as bytes alone, without a `virtio_net_hdr`. On a veth pair the peer's partial
//! checksums would look wrong: its user switches them off (`ethtool -K PEER tx off`). Network cards
//! complete them before.

mod bpf;
mod port;
mod queue;
mod socket;

pub use port::{CopyMode, XdpOptions, XdpPort};
