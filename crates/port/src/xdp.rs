//! AF_XDP sockets (Documentation/networking/af_xdp.rst), whose rings are shared with the kernel. A
//! small BPF program on the interface redirects packets to the sockets.
//!
//! A packet arrives without a `virtio_net_hdr`. On a veth pair, the peer's partial checksums would
//! look wrong, so the user must switch the peer's checksum offload off (`ethtool -K PEER tx off`).
//! Packets from a network card have complete checksums.

mod bpf;
mod port;
mod queue;
mod socket;

pub use port::{CopyMode, XdpOptions, XdpPort};
