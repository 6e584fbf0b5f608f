use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use units::{Bytes, Rate};

/// The facts that do not change during an observation. `None` and empty values mean "not seen".
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub kernel: String,
    pub cores: Vec<usize>,
    pub virtual_machine: Option<bool>,
    /// The clock of each core.
    pub clocks: BTreeMap<usize, Clock>,
    pub sysctls: BTreeMap<String, String>,
    pub interfaces: BTreeMap<String, Interface>,
    /// The route to each address of a connection.
    pub paths: BTreeMap<IpAddr, Path>,
    /// Names for addresses, for results that saved no addresses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<IpAddr, String>,
    /// Next hops that do not answer ARP or neighbour discovery.
    pub neighbours: Vec<Neighbour>,
}

/// A core's frequency. Rates are in hertz.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    pub now_hz: Option<u64>,
    pub most_hz: Option<u64>,
    /// The administrator's limit.
    pub limit_hz: Option<u64>,
    pub governor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub index: u32,
    /// `veth`, `bridge`, `tun`; `None` for hardware and `lo`.
    pub kind: Option<String>,
    pub enabled: bool,
    /// RFC 2863: up, down, unknown and so on.
    pub state: String,
    pub mtu: Option<Bytes>,
    pub driver: Option<String>,
    /// Whether the interface belongs to a device of the machine or of its hypervisor.
    pub device: bool,
    pub speed: Option<Rate>,
    /// Whether both ends may send at the same time; `Some(false)` is half duplex.
    pub full_duplex: Option<bool>,
    pub modes: Option<LinkModes>,
    pub bus: Option<Bus>,
    pub offloads: Option<Offloads>,
    pub rings: Option<Rings>,
    /// Queue pairs in use. `channels_most`: the queue pairs that the device has.
    pub channels: Option<u32>,
    pub channels_most: Option<u32>,
    /// The microseconds and the frames that the card waits before an interrupt.
    pub coalesce_usecs: Option<u32>,
    pub coalesce_frames: Option<u32>,
    pub queues: BTreeMap<String, Queue>,
    pub interrupts: Vec<InterruptPlace>,
}

impl Interface {
    /// Returns the reason why no packet can leave through the interface; `None` if the interface is
    /// up or its state is not known.
    pub fn down(&self) -> Option<&'static str> {
        match self.state.as_str() {
            "" => None,
            _ if !self.enabled => Some("the interface is switched off"),
            "lowerlayerdown" => Some("the interface below, or at the other end, is down"),
            "down" | "notpresent" => Some("the interface has no carrier"),
            _ => None,
        }
    }
}

/// The link speeds that the interface supports and advertises, and that its peer supports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkModes {
    pub negotiates: Option<bool>,
    pub supported_most: Option<Rate>,
    pub advertised_most: Option<Rate>,
    pub peer_most: Option<Rate>,
}

/// A PCI Express link: its speed in GT/s and its width in lanes, as sysfs has them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bus {
    pub speed: Option<f64>,
    pub speed_most: Option<f64>,
    pub width: Option<u32>,
    pub width_most: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Offloads {
    pub segmentation: Option<bool>,
    pub generic_segmentation: Option<bool>,
    pub generic_receive: Option<bool>,
    pub transmit_checksum: Option<bool>,
    pub receive_checksum: Option<bool>,
    pub scatter_gather: Option<bool>,
    /// Features that the device or its driver keeps off, so that nobody can switch the features on.
    pub fixed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rings {
    pub receive: u32,
    pub receive_most: u32,
    pub transmit: u32,
    pub transmit_most: u32,
}

/// The steering of a queue's packets to cores. Empty: no steering.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// The cores of RPS for a receive queue, of XPS for a transmit queue.
    pub cores: Vec<usize>,
    /// The number of flows of a receive queue that RFS steers.
    pub flows: Option<u64>,
}

/// The cores that may take an interrupt of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptPlace {
    pub number: u32,
    pub name: String,
    pub cores: Vec<usize>,
}

/// The route to an address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    pub interface: Option<String>,
    pub gateway: Option<IpAddr>,
    /// Whether the address belongs to this machine.
    pub local: bool,
    pub mtu: Option<u32>,
    /// The largest window that this machine offers to the address, in bytes.
    pub window: Option<u32>,
    /// The largest congestion window, in segments.
    pub congestion_window: Option<u32>,
    /// The segments with which a new connection begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// The reason why there is no route.
    pub refused: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    pub address: IpAddr,
    pub interface: String,
    /// The kernel's state of the neighbour entry: `failed` or `incomplete`.
    pub state: String,
}
