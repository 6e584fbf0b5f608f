//! TRex's stateful profiles: YAML that names captures, the rate at which each capture is replayed,
//! and the addresses of clients and servers.
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
    /// The duration of sending, unless the caller sets another duration.
    pub duration: Span,
    pub client_pools: Vec<Pool>,
    pub server_pools: Vec<Pool>,
    pub templates: Vec<Template>,
    /// The VLAN tags of load balancing: flows alternate between the two tags, and flows with the
    /// second tag swap the ports of client and server.
    pub vlans: Option<[u16; 2]>,
    pub addresses_in_mac: AddressesInMac,
    /// The first 96 bits of the IPv6 addresses of clients and servers, for runs with IPv6.
    pub ipv6: Option<Ipv6Prefixes>,
    /// The minimum gap between two captured packets, and the gap that replaces a shorter gap.
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

/// MAC addresses whose last four bytes are the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressesInMac {
    #[default]
    None,
    /// In packets from clients, the source MAC address has the IPv4 address.
    Clients,
    /// In all packets, the source and the destination MAC address have the IPv4 address.
    All,
}

/// A capture that is replayed with new addresses for each flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub line: usize,
    pub name: String,
    pub flows: Frequency,
    /// The time between two packets in the same direction, and the time at a change of direction.
    /// With `capture_times`, these times are unused.
    pub gap: Span,
    pub turn_gap: Span,
    /// The number of consecutive flows that use the same pair of addresses.
    pub window: u32,
    /// The number of distinct flows. After the last distinct flow, the flows repeat.
    pub limit: Option<u32>,
    /// Whether the times between packets come from the capture.
    pub capture_times: bool,
    pub keep_source_port: bool,
    /// All flows go to this server.
    pub only_server: Option<Ipv4Addr>,
    /// Indices in the profile's lists of pools.
    pub client_pool: usize,
    pub server_pool: usize,
    pub edits: Vec<PayloadEdit>,
    pub plugin: Option<Plugin>,
    /// For each connection of the capture, whether the server begins the connection; empty if the
    /// client sends the capture's first packet.
    pub directions: Vec<bool>,
}

/// A plug-in of TRex that rewrites the packets of a protocol (`plugin_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Gives the media connections separate ports.
    Rtsp,
    Sip,
    Http,
    /// All ports stay as in the capture.
    Dhcp,
}

/// A change of a packet's payload for each flow (`dyn_pyload`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadEdit {
    pub packet: usize,
    /// Offset of the change from the start of the transport's payload.
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
    /// Reads the text of a profile. `file` is the name of the profile in messages. Never panics on
    /// any text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistakes> {
        read::profile(file, text)
    }
}

impl Pool {
    pub fn size(&self) -> u64 {
        u64::from(u32::from(self.last)) - u64::from(u32::from(self.first)) + 1
    }
}
