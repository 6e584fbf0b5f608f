//! The switch that a database describes.

use std::collections::HashMap;

use units::foreign;

use crate::database::{Database, Row};
use crate::interface::{self, Found, Machine};
use crate::value::{Atom, Uuid};
pub use crate::vlans::{QinqEthtype, VlanMode, Vlans};
use crate::vlans::{vlan, vlan_set, vlans};

/// The bridges, ports and threads that a database describes. A value that the switch has to check
/// against this machine, such as CPUs, is kept as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// The row of `Open_vSwitch`.
    pub root: Option<Uuid>,
    pub next_cfg: i64,
    pub pmd_cpu_mask: Option<String>,
    pub tls: Option<Tls>,
    pub bridges: Vec<Bridge>,
    /// Settings of the database that the switch ignores.
    pub ignored: Vec<String>,
}

/// The row of `SSL`: the files for TLS, by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub private_key: String,
    pub certificate: String,
    pub ca_certificate: String,
    /// Whether the switch gets a missing CA certificate from its first controller.
    pub bootstraps: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub row: Uuid,
    pub name: String,
    /// The interface of the bridge itself.
    pub local: Option<Uuid>,
    pub datapath_id: Option<String>,
    pub hardware_address: Option<String>,
    pub is_secure: bool,
    /// The versions of OpenFlow, such as `OpenFlow13`; all if the list is empty.
    pub protocols: Vec<String>,
    pub mac_aging_time: Option<u64>,
    pub mac_table_size: Option<usize>,
    /// Whether NORMAL forwards BPDUs.
    pub forwards_bpdu: bool,
    pub controllers: Vec<Controller>,
    pub tables: Vec<Table>,
    pub ports: Vec<Port>,
    pub mirrors: Vec<Mirror>,
    pub bonds: Vec<Bond>,
    /// The VLANs of the bridge's own port.
    pub vlans: Vlans,
    /// The MTU that the bridge's own interface requests.
    pub mtu: Option<u32>,
    /// Features that the row asks for and the switch lacks.
    pub lacking: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub row: Uuid,
    pub target: Target,
    pub inactivity_probe_ms: Option<u64>,
    pub max_backoff_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The switch connects to a controller at this address.
    Connect(Carrier, String),
    /// The switch listens for controllers at this address.
    Listen(Carrier, String),
    Refused(String),
}

/// The protocol that carries OpenFlow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    Tcp,
    Tls,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub number: u8,
    pub name: Option<String>,
    pub flow_limit: Option<u64>,
    pub evicts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub port_row: Uuid,
    pub interface_row: Uuid,
    /// The device of the port. If the row describes no device, the text for the interface's column
    /// `error`.
    pub device: Result<Found, String>,
    pub hardware_address: Option<String>,
    /// The OpenFlow number that the row requests.
    pub number: Option<u32>,
    /// The number that the port had when the session began.
    pub former_number: Option<u32>,
    pub rxq_affinity: Option<String>,
    pub egress: Option<Egress>,
    pub police: Police,
    pub vlans: Vlans,
    pub lacp: LacpPort,
    /// The MTU that the row requests.
    pub mtu: Option<u32>,
}

/// The numbers that a port has in LACPDUs; 0 means the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LacpPort {
    pub port_id: u16,
    pub port_priority: u16,
    pub aggregation_key: u16,
}

/// LACP of a bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacp {
    pub is_active: bool,
    pub is_fast: bool,
    pub system_id: Option<String>,
    /// The system priority; 0 means the default.
    pub system_priority: u16,
    pub falls_back: bool,
}

/// A bond: a port with several interfaces, each of which is a port of the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    pub row: Uuid,
    pub name: String,
    pub members: Vec<String>,
    /// The balancing mode; `None` means `active-backup`.
    pub mode: Option<String>,
    pub primary: Option<String>,
    pub updelay: u64,
    pub downdelay: u64,
    pub hash_basis: u32,
    pub all_members_active: bool,
    /// The hardware address of the active member when the session began.
    pub last_active: Option<[u8; 6]>,
    pub lacp: Option<Lacp>,
}

/// A mirror, which refers to ports by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub name: String,
    pub is_for_all: bool,
    pub sources: Vec<String>,
    pub destinations: Vec<String>,
    pub vlans: Vec<u16>,
    pub output_port: Option<String>,
    pub output_vlan: Option<u16>,
    pub snap_length: Option<u32>,
}

/// The egress rate limit in bit/s, the queueing discipline before it, and the queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Egress {
    /// The type of the QoS, such as `linux-htb`.
    pub kind: &'static str,
    pub bits_per_second: Option<u64>,
    pub queue: Option<&'static str>,
    pub queues: Vec<Queue>,
}

/// A queue of a QoS, with its rate in bit/s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub number: u32,
    pub bits_per_second: Option<u64>,
}

/// The limits of the frames that an interface receives; 0 means no limit. A value above the type's
/// maximum becomes the maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Police {
    pub rate_kbit: u32,
    pub burst_kbit: u32,
    pub rate_kpkts: u32,
    pub burst_kpkts: u32,
}

impl Topology {
    #[must_use]
    pub fn of(database: &Database, machine: &dyn Machine) -> Self {
        let Some((root, row)) = database.single("Open_vSwitch") else { return Self::default() };
        let mut topology = Self {
            root: Some(root),
            next_cfg: row.integer("next_cfg").unwrap_or(0),
            pmd_cpu_mask: row.entry("other_config", "pmd-cpu-mask").map(str::to_owned),
            tls: database.referred(row, "ssl", "SSL").next().map(|(_, row)| tls(row)),
            ..Self::default()
        };
        let mut bridges: Vec<_> = database.referred(row, "bridges", "Bridge").collect();
        bridges.sort_by_key(|(_, row)| row.text("name"));
        for (id, row) in bridges {
            let bridge = bridge(database, id, row, machine, &mut topology.ignored);
            topology.bridges.push(bridge);
        }
        topology
    }

    /// Whether both topologies describe the same switch. Ignores `next_cfg`.
    #[must_use]
    pub fn is_same_switch(&self, other: &Self) -> bool {
        let Self { root, next_cfg: _, pmd_cpu_mask, tls, bridges, ignored } = self;
        *root == other.root
            && *pmd_cpu_mask == other.pmd_cpu_mask
            && *tls == other.tls
            && *bridges == other.bridges
            && *ignored == other.ignored
    }
}

fn tls(row: &Row) -> Tls {
    let path = |column: &str| row.text(column).unwrap_or_default().to_owned();
    Tls {
        private_key: path("private_key"),
        certificate: path("certificate"),
        ca_certificate: path("ca_cert"),
        bootstraps: row.flag("bootstrap_ca_cert"),
    }
}

fn bridge(
    database: &Database,
    id: Uuid,
    row: &Row,
    machine: &dyn Machine,
    ignored: &mut Vec<String>,
) -> Bridge {
    let name = row.text("name").unwrap_or_default().to_owned();
    let other = |key: &str| row.entry("other_config", key);
    let mut bridge = Bridge {
        row: id,
        local: None,
        // Open vSwitch ignores a value that is not 16 hexadecimal digits.
        datapath_id: other("datapath-id")
            .map(|id| id.strip_prefix("0x").unwrap_or(id).to_ascii_lowercase())
            .filter(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())),
        hardware_address: other("hwaddr").map(str::to_owned),
        is_secure: row.text("fail_mode") == Some("secure"),
        protocols: row.members("protocols").filter_map(Atom::text).map(str::to_owned).collect(),
        mac_aging_time: other("mac-aging-time").and_then(|text| text.parse().ok()),
        mac_table_size: other("mac-table-size").and_then(|text| text.parse().ok()),
        forwards_bpdu: other("forward-bpdu") == Some("true"),
        controllers: Vec::new(),
        tables: tables(database, row),
        ports: Vec::new(),
        mirrors: mirrors(database, row),
        bonds: Vec::new(),
        vlans: Vlans::default(),
        mtu: None,
        lacking: Vec::new(),
        name,
    };
    for (id, controller) in database.referred(row, "controller", "Controller") {
        let time = |column: &str| {
            controller.integer(column).and_then(|milliseconds| u64::try_from(milliseconds).ok())
        };
        bridge.controllers.push(Controller {
            row: id,
            target: Target::parse(controller.text("target").unwrap_or_default()),
            inactivity_probe_ms: time("inactivity_probe"),
            max_backoff_ms: time("max_backoff"),
        });
    }
    bridge.controllers.sort_by_key(|controller| controller.row);
    let mut ports: Vec<_> = database.referred(row, "ports", "Port").collect();
    ports.sort_by_cached_key(|(_, row)| row.text("name"));
    for (id, row) in ports {
        add_ports(database, &mut bridge, id, row, machine, ignored);
    }
    for (column, what) in UNKNOWN_OF_BRIDGES {
        if row.members(column).any(|member| *member != false.into()) {
            ignored.push(format!("bridge {}: {what}", foreign(&bridge.name)));
            bridge.lacking.push(what);
        }
    }
    bridge
}

fn add_ports(
    database: &Database,
    bridge: &mut Bridge,
    id: Uuid,
    row: &Row,
    machine: &dyn Machine,
    ignored: &mut Vec<String>,
) {
    let interfaces: Vec<_> = database.referred(row, "interfaces", "Interface").collect();
    let mut members = Vec::new();
    for (interface_row, interface) in interfaces {
        let name = interface.text("name").unwrap_or_default();
        if name == bridge.name {
            bridge.local = Some(interface_row);
            bridge.vlans = vlans(row, ignored);
            bridge.mtu = mtu(interface);
            if row.members("qos").next().is_some() {
                let name = foreign(name);
                ignored.push(format!("port {name}: QoS of a bridge's own port"));
            }
            if police(interface) != Police::default() {
                let name = foreign(name);
                ignored.push(format!("interface {name}: policing of a bridge's own port"));
            }
            continue;
        }
        members.push(name.to_owned());
        let device = interface::device(interface, machine);
        let queues = interface.entry("options", "n_rxq").and_then(|text| text.parse::<u32>().ok());
        let has_one_queue = device.as_ref().is_ok_and(|found| found.device.has_one_queue());
        if let Some(queues) = queues.filter(|queues| *queues > 1 && has_one_queue) {
            let name = foreign(name);
            ignored
                .push(format!("interface {name}: options:n_rxq={queues}, its port has one queue"));
        }
        let number = |column: &str| {
            let number = interface.integer(column).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| (1..0xff00).contains(number))
        };
        bridge.ports.push(Port {
            name: name.to_owned(),
            port_row: id,
            interface_row,
            device,
            hardware_address: interface.text("mac").map(str::to_owned),
            number: number("ofport_request"),
            former_number: number("ofport"),
            rxq_affinity: interface.entry("other_config", "pmd-rxq-affinity").map(str::to_owned),
            egress: database
                .referred(row, "qos", "QoS")
                .next()
                .and_then(|(_, qos)| egress(database, qos, name, ignored)),
            police: police(interface),
            vlans: vlans(row, ignored),
            lacp: LacpPort {
                port_id: positive(interface, "lacp-port-id"),
                port_priority: positive(interface, "lacp-port-priority"),
                aggregation_key: positive(interface, "lacp-aggregation-key"),
            },
            mtu: mtu(interface),
        });
    }
    if members.len() > 1 {
        bridge.bonds.push(bond(id, row, members));
    } else if lacp(row).is_some() {
        let name = foreign(row.text("name").unwrap_or_default());
        ignored.push(format!("port {name}: LACP of a port with one interface"));
    }
    for (_, interface) in database.referred(row, "interfaces", "Interface") {
        let is_on = |column: &str| interface.entry(column, "enable") == Some("true");
        let has_cfm = interface.integer("cfm_mpid").is_some();
        let features = [("BFD", is_on("bfd")), ("CFM", has_cfm), ("LLDP", is_on("lldp"))];
        for (what, _) in features.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            let name = foreign(interface.text("name").unwrap_or_default());
            ignored.push(format!("interface {name}: {what}"));
        }
    }
    if row.entry("other_config", "priority-tags").is_some_and(|tags| tags != "never") {
        let name = foreign(row.text("name").unwrap_or_default());
        ignored.push(format!("port {name}: other_config:priority-tags"));
    }
    for (column, what) in UNKNOWN_OF_PORTS {
        let is_off = |member: &Atom| *member == false.into() || *member == "off".into();
        if !row.members(column).all(is_off) {
            ignored.push(format!("port {}: {what}", foreign(row.text("name").unwrap_or_default())));
        }
    }
}

fn bond(id: Uuid, row: &Row, mut members: Vec<String>) -> Bond {
    members.sort();
    let other = |key: &str| row.entry("other_config", key);
    let delay = |column: &str| {
        let delay = row.integer(column).and_then(|delay| u64::try_from(delay).ok());
        delay.unwrap_or(0)
    };
    Bond {
        row: id,
        name: row.text("name").unwrap_or_default().to_owned(),
        members,
        mode: row.text("bond_mode").map(str::to_owned),
        primary: other("bond-primary").map(str::to_owned),
        updelay: delay("bond_updelay"),
        downdelay: delay("bond_downdelay"),
        hash_basis: other("bond-hash-basis").and_then(|basis| basis.parse().ok()).unwrap_or(0),
        all_members_active: other("all-members-active") == Some("true"),
        last_active: row.text("bond_active_slave").and_then(address),
        lacp: lacp(row),
    }
}

fn lacp(row: &Row) -> Option<Lacp> {
    let other = |key: &str| row.entry("other_config", key);
    let is_active = match row.text("lacp")? {
        "active" => true,
        "passive" => false,
        _ => return None,
    };
    Some(Lacp {
        is_active,
        is_fast: other("lacp-time").is_some_and(|time| time.eq_ignore_ascii_case("fast")),
        system_id: other("lacp-system-id").map(str::to_owned),
        system_priority: positive(row, "lacp-system-priority"),
        falls_back: other("lacp-fallback-ab") == Some("true"),
    })
}

/// Reads a number of `other_config`. As in Open vSwitch, a value that is not a number from 1 to
/// 65535 means the default, which is 0 here.
fn positive(row: &Row, key: &str) -> u16 {
    row.entry("other_config", key).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Reads a hardware address in Open vSwitch's syntax: `02:00:00:00:00:01`.
fn address(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn mtu(interface: &Row) -> Option<u32> {
    interface.integer("mtu_request").and_then(|mtu| u32::try_from(mtu).ok())
}

fn police(interface: &Row) -> Police {
    let limit = |column: &str| {
        let limit = interface.integer(column).unwrap_or(0).max(0);
        u32::try_from(limit).unwrap_or(u32::MAX)
    };
    Police {
        rate_kbit: limit("ingress_policing_rate"),
        burst_kbit: limit("ingress_policing_burst"),
        rate_kpkts: limit("ingress_policing_kpkts_rate"),
        burst_kpkts: limit("ingress_policing_kpkts_burst"),
    }
}

fn mirrors(database: &Database, bridge: &Row) -> Vec<Mirror> {
    let mirror = |(_, row): (Uuid, &Row)| {
        let ports = |column: &str| {
            let rows = row.rows(column).filter_map(|id| database.row("Port", id)?.text("name"));
            let mut names: Vec<_> = rows.map(str::to_owned).collect();
            names.sort();
            names
        };
        let snap_length = row.integer("snaplen").and_then(|length| u32::try_from(length).ok());
        Mirror {
            name: row.text("name").unwrap_or_default().to_owned(),
            is_for_all: row.flag("select_all"),
            sources: ports("select_src_port"),
            destinations: ports("select_dst_port"),
            vlans: vlan_set(row, "select_vlan"),
            output_port: ports("output_port").into_iter().next(),
            output_vlan: vlan(row, "output_vlan"),
            snap_length,
        }
    };
    let mut mirrors: Vec<_> = database.referred(bridge, "mirrors", "Mirror").map(mirror).collect();
    mirrors.sort_by(|a, b| a.name.cmp(&b.name));
    mirrors
}

/// Reads the egress settings of a QoS row, whose `max-rate` is in bit/s.
fn egress(database: &Database, qos: &Row, port: &str, ignored: &mut Vec<String>) -> Option<Egress> {
    let (kind, queue) = match qos.text("type").unwrap_or_default() {
        "linux-htb" => ("linux-htb", None),
        "linux-hfsc" => ("linux-hfsc", None),
        "linux-codel" => ("linux-codel", Some("codel")),
        "linux-fq_codel" => ("linux-fq_codel", Some("fq_codel")),
        kind => {
            ignored.push(format!("port {}: QoS of the type {}", foreign(port), foreign(kind)));
            return None;
        }
    };
    let queues = match queue {
        None => queues(database, qos, port, ignored),
        Some(_) => {
            if qos.rows("queues").next().is_some() {
                ignored.push(format!("port {}: queues of its QoS", foreign(port)));
            }
            Vec::new()
        }
    };
    let bits_per_second = max_rate(qos);
    if bits_per_second.is_none() && queues.is_empty() {
        ignored.push(format!("port {}: QoS without other_config:max-rate", foreign(port)));
        return None;
    }
    Some(Egress { kind, bits_per_second, queue, queues })
}

/// Reads `max-rate`. As in Open vSwitch, 0 means no limit.
fn max_rate(row: &Row) -> Option<u64> {
    let rate = row.entry("other_config", "max-rate").and_then(|rate| rate.parse().ok());
    rate.filter(|rate| *rate > 0)
}

fn queues(database: &Database, qos: &Row, port: &str, ignored: &mut Vec<String>) -> Vec<Queue> {
    let mut queues = Vec::new();
    for (number, id) in qos.pairs("queues") {
        let (Atom::Integer(number), Atom::Row(id)) = (number, id) else { continue };
        let Some(row) = database.row("Queue", *id) else { continue };
        let Ok(number) = u32::try_from(*number) else { continue };
        for key in UNKNOWN_OF_QUEUES {
            if row.entry("other_config", key).is_some() {
                ignored.push(format!("port {}: {key} of its queue {number}", foreign(port)));
            }
        }
        queues.push(Queue { number, bits_per_second: max_rate(row) });
    }
    queues.sort_by_key(|queue| queue.number);
    queues
}

fn tables(database: &Database, row: &Row) -> Vec<Table> {
    let mut tables = HashMap::new();
    for (number, id) in row.pairs("flow_tables") {
        let (Atom::Integer(number), Atom::Row(id)) = (number, id) else {
            continue;
        };
        let (Ok(number), Some(table)) = (u8::try_from(*number), database.row("Flow_Table", *id))
        else {
            continue;
        };
        tables.insert(
            number,
            Table {
                number,
                name: table.text("name").map(str::to_owned),
                flow_limit: table.integer("flow_limit").and_then(|limit| u64::try_from(limit).ok()),
                evicts: table.text("overflow_policy") == Some("evict"),
            },
        );
    }
    let mut tables: Vec<_> = tables.into_values().collect();
    tables.sort_by_key(|table| table.number);
    tables
}

impl Target {
    /// Parses `tcp:ADDRESS[:PORT]` and `ptcp:[PORT][:ADDRESS]`, or `ssl:` and `pssl:` for TLS.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let refused = |why: String| Self::Refused(format!("{}: {why}", foreign(text)));
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let (kind, place) = text.split_once(':').unwrap_or((text, ""));
        let carrier = if kind.ends_with("ssl") { Carrier::Tls } else { Carrier::Tcp };
        match kind {
            "tcp" | "ssl" => {
                let (address, port) = match place.rsplit_once(':') {
                    Some((address, port)) if !place.ends_with(']') => (address, port),
                    _ => (place, PORT),
                };
                match address.is_empty() || !is_port(port) {
                    true => refused(format!("write {kind}:ADDRESS:PORT")),
                    false => Self::Connect(carrier, format!("{address}:{port}")),
                }
            }
            "ptcp" | "pssl" => {
                let (port, address) = place.split_once(':').unwrap_or((place, ""));
                let port = if port.is_empty() { PORT } else { port };
                let address = if address.is_empty() { "0.0.0.0" } else { address };
                match is_port(port) {
                    true => Self::Listen(carrier, format!("{address}:{port}")),
                    false => refused(format!("write {kind}:PORT:ADDRESS")),
                }
            }
            "unix" | "punix" => refused(
                "use tcp: or ptcp:; the bridge's own socket is BRIDGE.mgmt in the rundir"
                    .to_owned(),
            ),
            _ => refused(
                "write tcp:ADDRESS:PORT or ptcp:PORT:ADDRESS, or ssl: and pssl: for TLS".to_owned(),
            ),
        }
    }
}

const PORT: &str = "6653";

const UNKNOWN_OF_BRIDGES: [(&str, &str); 7] = [
    ("stp_enable", "spanning tree (stp_enable)"),
    ("rstp_enable", "spanning tree (rstp_enable)"),
    ("mcast_snooping_enable", "multicast snooping"),
    ("netflow", "flow export (netflow)"),
    ("sflow", "flow export (sflow)"),
    ("ipfix", "flow export (ipfix)"),
    ("flood_vlans", "flood_vlans"),
];
/// The keys of HTB and HFSC for the share of a queue in the rate of its port, which the switch
/// ignores.
const UNKNOWN_OF_QUEUES: [&str; 3] = ["min-rate", "burst", "priority"];
const UNKNOWN_OF_PORTS: [(&str, &str); 1] = [("protected", "protected")];

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
