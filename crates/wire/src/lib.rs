//! Packet formats: the headers of an Ethernet frame, and the few changes that a link makes to a
//! frame. The code does no I/O, allocates nothing per packet and never panics on its input.
//!
//! | module | for |
//! | --- | --- |
//! | [`headers`] | the offsets of a frame's headers: VLAN tags, IPv4, IPv6, TCP, UDP, fragments |
//! | [`checksum`] | the internet checksum: sum, copy and sum, update, complete |
//! | [`virtio`] | `virtio_net_hdr`, in which Linux describes the unfinished work on a packet |
//! | [`segment`] | cutting a super-packet into frames |
//! | [`vlan`] | inserting and removing tags |
//! | [`caqm`] | the tag of CAQM |
//! | [`pcap`] | captures in libpcap's format: writing, and Ethernet frames |
//! | [`capture`] | captures in both formats, with every usual link type, in pieces |
//! | [`tcp`] | the TCP header of a captured packet |
//! | [`flow`], [`ecn`], [`corrupt`] | the operations of queues and impairments on a frame |

#![warn(missing_docs)]

pub mod capture;
pub mod caqm;
pub mod checksum;
pub mod corrupt;
pub mod ecn;
pub mod flow;
pub mod headers;
pub mod pcap;
pub mod segment;
pub mod tcp;
pub mod virtio;
pub mod vlan;

pub use ecn::Ecn;
pub use headers::{Layout, Network, Transport};
pub use segment::{SegmentError, Segmenter};
pub use virtio::{Gso, VirtioHeader};
