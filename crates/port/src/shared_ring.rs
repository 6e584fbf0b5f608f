//! Frames between two processes through shared memory, without the kernel.
//!
//! One end creates the memory and listens at a UNIX socket; the other end attaches. Each direction
//! has a ring of descriptors and an area of bytes, with one producer and one consumer. The socket
//! carries the memory's descriptor once; afterwards a byte on it wakes a consumer that sleeps, and
//! its end is the peer's end.
//!
//! A peer is not trusted: every index and descriptor is copied, and then checked
//! ([`layout`]). The memory is sealed, so that a peer cannot cut it off. A violation
//! ends the connection. The socket is open to its owner alone.

mod consumer;
mod handshake;
pub mod layout;
mod port;
mod producer;

pub use port::RingPort;
