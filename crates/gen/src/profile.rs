//! TRex's stateful profiles: YAML that names captures, how often each is replayed, and the
//! addresses of clients and servers.
//!
//! The parser accepts every key that TRex's parser reads (`src/bp_sim.cpp` and `src/tuple_gen.cpp`
//! of TRex 3.06). A key that has no effect here is only checked; [`Profile`] has a note if the
//! traffic therefore differs from TRex's.

mod fields;
mod generator;
mod mistakes;
mod platform;
mod read;
mod shipped;
mod template;
mod tree;

use std::net::Ipv4Addr;

pub use mistakes::Mistakes;
pub use platform::ports_of_platform;
pub use shipped::{shipped, shipped_names};
use units::Span;

use crate::Frequency;

#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// How long to send, unless the caller says otherwise.
    pub duration: Span,
    pub client_pools: Vec<Pool>,
    pub server_pools: Vec<Pool>,
    pub templates: Vec<Template>,
    /// The VLAN tags of load balancing: flows alternate between the two tags, and flows with the
    /// second tag swap the ports of client and server.
    pub vlans: Option<[u16; 2]>,
    pub addresses_in_mac: AddressesInMac,
    /// The first 96 bits of IPv6 addresses of clients and servers, for runs with IPv6.
    pub ipv6: Option<Ipv6Prefixes>,
    /// Minimum gap between two captured packets, and the gap that replaces a shorter gap.
    pub shortest_gap: Option<(Span, Span)>,
    /// Remarks about keys that are accepted but change nothing.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    pub distribution: Distribution,
    /// Offset of the addresses from one pair of ports to the next pair.
    pub dual_port_mask: u32,
    /// The time that a client's port stays unused after a flow.
    pub tcp_aging: Span,
    pub udp_aging: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    Sequential,
    Random,
    Normal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Prefixes {
    pub clients: [u16; 6],
    pub servers: [u16; 6],
}

/// IPv4 addresses written into the last four bytes of MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressesInMac {
    #[default]
    None,
    /// The source MAC address of packets from clients.
    Clients,
    /// Source and destination MAC addresses of all packets.
    All,
}

/// A capture that is replayed with new addresses for each flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub line: usize,
    pub name: String,
    pub flows: Frequency,
    /// The time between two packets in one direction, and at a change of direction. Unused with
    /// `capture_times`.
    pub gap: Span,
    pub turn_gap: Span,
    /// The number of consecutive flows that use the same pair of addresses.
    pub window: u32,
    /// The number of distinct flows; after the last of them, the flows repeat.
    pub limit: Option<u32>,
    /// Take the times between packets from the capture.
    pub capture_times: bool,
    pub keep_source_port: bool,
    /// All flows go to this server.
    pub only_server: Option<Ipv4Addr>,
    /// Indices into the profile's pools.
    pub client_pool: usize,
    pub server_pool: usize,
    pub edits: Vec<PayloadEdit>,
    pub plugin: Option<Plugin>,
    /// For each connection of the capture, whether the server begins it; empty if the client sends
    /// the capture's first packet.
    pub directions: Vec<bool>,
}

/// A plug-in of TRex that rewrites the packets of a protocol (`plugin_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Gives the media connections separate ports.
    Rtsp,
    Sip,
    Http,
    /// All ports stay as captured.
    Dhcp,
}

/// A change of a packet's payload for each flow (`dyn_pyload`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadEdit {
    pub packet: usize,
    /// Offset from the start of the transport's payload.
    pub offset: usize,
    pub content: EditContent,
    pub words: usize,
    /// The bits of each word that change.
    pub mask: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditContent {
    Random,
    ClientAddress,
}

impl Profile {
    /// Reads the text of a profile. `file` is the name of the profile in messages. Never panics,
    /// whatever the text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistakes> {
        read::profile(file, text)
    }
}

impl Pool {
    pub fn size(&self) -> u64 {
        u64::from(u32::from(self.last)) - u64::from(u32::from(self.first)) + 1
    }
}
