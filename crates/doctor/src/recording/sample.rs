use super::{Connection, Listener, UdpSocket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use units::{Bytes, Rate, Span};

/// The counters at one time. A counter that only grows has the kernel's value; a reader takes
/// differences.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The time since the first sample of the period.
    pub at: Span,
    pub cores: BTreeMap<usize, CoreTimes>,
    pub softnet: BTreeMap<usize, Softnet>,
    /// NET_RX soft interrupts, by core.
    pub net_rx: BTreeMap<usize, u64>,
    /// The fields of `/proc/net/snmp`, `netstat` and `snmp6` that rules use, for example
    /// `TcpRetransSegs`.
    pub counters: BTreeMap<String, u64>,
    pub interfaces: BTreeMap<String, InterfaceCounters>,
    pub qdiscs: Vec<Qdisc>,
    /// The resources `cpu`, `io`, `memory`.
    pub pressure: BTreeMap<String, Stall>,
    pub conntrack: Option<Conntrack>,
    pub socket_memory: Option<SocketMemory>,
    pub connections: Vec<Connection>,
    pub listeners: Vec<Listener>,
    pub udp: Vec<UdpSocket>,
    /// Threads of the processes that hold the connections.
    pub tasks: Vec<Task>,
    /// The busiest processes of the machine, as one task each.
    pub processes: Vec<Task>,
    /// Control groups of the processes of interest.
    pub groups: Vec<Group>,
    /// Control groups that limit the memory of their sockets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub socket_limits: Vec<SocketLimit>,
    /// The number of the namespace's sockets in each state, including sockets outside
    /// `connections`.
    pub states: BTreeMap<String, u64>,
    /// The destination for which most local ports of the usual range are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_remote: Option<RemotePorts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePorts {
    pub remote: SocketAddr,
    /// The local ports that connections to the destination use, including ports in TIME_WAIT.
    pub ports: u64,
    #[serde(default)]
    pub time_wait: u64,
}

/// CPU times of one core, from `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreTimes {
    pub user: Span,
    pub system: Span,
    pub idle: Span,
    pub iowait: Span,
    pub irq: Span,
    pub softirq: Span,
    pub steal: Span,
}

/// Counters of one core from `/proc/net/softnet_stat`, 32 bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Softnet {
    pub processed: u64,
    pub dropped: u64,
    pub squeezed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceCounters {
    pub received: Bytes,
    pub received_packets: u64,
    pub received_errors: u64,
    pub received_drops: u64,
    pub sent: Bytes,
    pub sent_packets: u64,
    pub sent_errors: u64,
    pub sent_drops: u64,
    /// The number of carrier changes (link up or link down).
    pub carrier_changes: Option<u64>,
    /// The driver's own counters, as `ethtool -S` shows them.
    pub driver: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Qdisc {
    pub interface: String,
    pub kind: String,
    pub handle: String,
    pub sent: Bytes,
    pub drops: u64,
    pub overlimits: u64,
    pub backlog: Bytes,
    /// The highest rate of each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_limit: Option<Rate>,
}

impl Qdisc {
    /// Whether this is a hook for filters, which queues no packets.
    pub fn is_hook(&self) -> bool {
        matches!(self.kind.as_str(), "ingress" | "clsact")
    }
}

/// Time in which tasks waited for a resource, since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// Time in which at least one task waited.
    pub some: Span,
    /// Time in which all tasks that were not idle waited.
    pub full: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Conntrack {
    pub entries: Option<u64>,
    pub most: Option<u64>,
    pub insert_failed: u64,
    pub dropped: u64,
    pub early_dropped: u64,
}

/// The memory of all TCP sockets, in pages, and `net.ipv4.tcp_mem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketMemory {
    pub used: u64,
    pub pressure: u64,
    pub most: u64,
}

/// A thread, or a whole process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
    /// The time at which the process began, in ticks of the clock since boot.
    pub started: u64,
    pub name: String,
    pub state: String,
    pub user: Span,
    pub system: Span,
    pub ran: Option<Span>,
    pub waited: Option<Span>,
    pub io_waited: Option<Span>,
    pub core: Option<usize>,
    /// Whether the thread belongs to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_kernel: Option<bool>,
    /// Whether a control group freezes the thread, in the last sample of a period.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// The cores that the thread may run on, in the last sample of a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<usize>>,
    /// The tunnel interfaces (TUN, TAP) whose packets a process takes, in the last sample of a
    /// period.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<String>,
}

/// A control group with the CPU controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    pub path: String,
    /// The processes of interest in this group or in the groups below.
    pub pids: Vec<u32>,
    pub granted: Option<Span>,
    pub period: Option<Span>,
    pub periods: u64,
    pub throttled: u64,
    pub throttled_time: Span,
}

/// A control group that limits the memory of its processes' sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketLimit {
    pub path: String,
    /// The processes of interest in this group or in the groups below.
    pub pids: Vec<u32>,
    pub most: Option<Bytes>,
    pub used: Option<Bytes>,
    /// The number of times that the limit refused memory to a socket.
    pub refused: u64,
}
