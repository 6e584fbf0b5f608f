//! Packet formats, as pure code: what an Ethernet frame holds, and the few changes a link makes
//! to one. Nothing here does I/O, allocates on the way of a packet or panics on what it reads.
//!
//! | module | for |
//! | --- | --- |
//! | [`headers`] | where a frame's headers lie: VLAN tags, IPv4, IPv6, TCP, UDP, fragments |
//! | [`checksum`] | the internet checksum: sum, copy and sum, update, complete |
//! | [`virtio`] | `virtio_net_hdr`, in which Linux says what is left to do on a packet |
//! | [`segment`] | what is left to do on a super-packet: cutting it into frames |
//! | [`vlan`] | inserting and removing tags |
//! | [`caqm`] | the tag of CAQM |
//! | [`flow`], [`ecn`], [`corrupt`] | what queues and impairments ask of a frame |

pub mod caqm;
pub mod checksum;
pub mod corrupt;
pub mod ecn;
pub mod flow;
pub mod headers;
pub mod segment;
pub mod virtio;
pub mod vlan;

pub use ecn::Ecn;
pub use headers::{Layout, Network, Transport};
pub use segment::{SegmentError, Segmenter};
pub use virtio::{Gso, VirtioHeader};
