//! Frames between two processes through shared memory, without the kernel.
//!
//! One process creates the memory and listens at a UNIX socket, and the other attaches. Each
//! direction has a ring of descriptors and an area of bytes, with one producer and one consumer.
//! The socket carries the memory's descriptor once; afterwards, a byte on the socket wakes a
//! sleeping consumer. A peer that closes the socket has ended.
//!
//! Neither process trusts its peer: every index and descriptor is copied, and then checked
//! ([`layout`]). The memory is sealed, so that a peer cannot truncate the memory. A violation ends
//! the connection. Only the socket's owner can open the socket.

mod consumer;
mod handshake;
pub mod layout;
mod port;
mod producer;

pub use port::RingPort;
