//! The settings of a switch, from a file and from flags.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use flow::port_number::PortNumber;
use host::MetricsAddress;
use indexmap::IndexMap;
use link::{Capacity, LinkError, QueueConfig};
use ovsdb::topology::Carrier;
use pipeline::Mirror;
use serde::Deserialize;
use settings::{Leaf, Mistake, leaves, table};
use text::PortNames;
use thiserror::Error;

use super::bonds::{BondSettings, LacpPort};
use super::device::{check_mtu, has_interface};
use super::egress_queues::EgressQueues;
use super::pcap::Capture;
use super::policing::Policing;
use super::remote::{ControllerTimes, Controllers, Listeners, Protocols, Remote};
use super::table_settings::TableSettings;
use super::tls::{TlsError, TlsSettings};
use super::vlan_settings::{MirrorSettings, QinqEthtype, VlanModeSetting, check_vlans};

/// The default folder of the control sockets.
pub const DEFAULT_RUNDIR: &str = "/run/weir-switch";
/// The folder in which Open vSwitch's tools look for sockets.
pub const OVS_RUNDIR: &str = "/run/openvswitch";
pub(super) const MOST_BRIDGES: usize = 64;
pub(super) const MOST_PORTS: usize = 16_384;
const LONGEST_NAME: usize = 64;
const MOST_QUEUES: usize = 64;
const AGING_TIMES: RangeInclusive<u64> = 1..=86_400;
const TABLE_SIZES: RangeInclusive<usize> = 1..=1_000_000;
/// The values of a port's `kind`.
const KINDS: [&str; 9] =
    ["pcap", "null", "dummy", "packet", "tap", "ring", "xdp", "vhost-user", "patch"];

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {error}; check the path and the permissions", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}:{line}: {what}", path.display())]
    At { path: PathBuf, line: usize, what: settings::What },
    #[error("{0}")]
    Value(String),
}

table! {
    /// A switch's settings. An unknown key is an error.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct Config in kebab {
        /// The folder of the control sockets.
        pub rundir: Option<PathBuf>,
        /// The CPUs of the packet threads, one thread each.
        pub pmd_cpus: Option<Vec<usize>>,
        /// Whether packet threads never sleep, even without frames.
        pub busy_poll: bool = false,
        /// The address that serves metrics to Prometheus: `127.0.0.1:9151` or `unix:/PATH`.
        pub metrics_on: Option<Leaf<MetricsAddress>>,
        /// The socket of an ovsdb-server whose database describes the bridges: `unix:/PATH`.
        pub ovsdb: Option<OvsdbAddress>,
        /// The key and certificates for connections with `ssl:` and `pssl:`.
        pub tls: Option<TlsSettings>,
        pub bridge: IndexMap<String, BridgeConfig> = IndexMap::new(),
    }
    beside {
        /// Whether the database's interfaces become dummy ports, for tests.
        pub dummies: bool,
    }
}

table! {
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct BridgeConfig in kebab {
        /// The datapath ID: 16 hexadecimal digits, by default derived from the bridge's name.
        pub datapath_id: Option<String>,
        /// The address of the bridge's own port, by default derived from the bridge's name.
        pub hardware_address: Option<HardwareAddress>,
        /// Whether the bridge's own port is a TAP device with the bridge's name.
        pub own_interface: bool = false,
        /// The MTU that the switch sets at the bridge's own interface.
        pub mtu: Option<u32>,
        /// The VLANs of the bridge's own port. Other ports have the same keys.
        pub vlan_mode: Option<VlanModeSetting>,
        pub tag: Option<u16>,
        pub trunks: Vec<u16> = vec![],
        pub cvlans: Vec<u16> = vec![],
        pub qinq_ethtype: Option<QinqEthtype>,
        /// Addresses at which the bridge accepts controllers and ovs-ofctl, by TCP or TLS.
        pub listen: Listeners = Listeners::default(),
        /// Controllers to which the bridge connects, by TCP or TLS.
        pub controller: Controllers = Controllers::default(),
        /// The versions of OpenFlow that the bridge speaks, by default all.
        pub protocols: Protocols = Protocols::default(),
        pub fail_mode: FailMode = FailMode::default(),
        /// Seconds without a packet after which NORMAL forgets an address.
        pub mac_aging_time: Option<u64>,
        /// Maximum number of addresses that NORMAL remembers.
        pub mac_table_size: Option<usize>,
        /// Whether NORMAL forwards frames to reserved addresses, such as BPDUs and LLDP.
        pub forward_bpdu: bool = false,
        /// A file of rules in ovs-ofctl's syntax that is loaded at the start.
        pub flows: Option<PathBuf>,
        /// Settings of tables, by table number.
        pub table: IndexMap<String, TableSettings> = IndexMap::new(),
        /// Mirrors by name; a mirror copies packets.
        pub mirror: IndexMap<String, MirrorSettings> = IndexMap::new(),
        /// Bonds by name: sets of ports that `NORMAL` uses as one port.
        pub bond: IndexMap<String, BondSettings> = IndexMap::new(),
        pub port: IndexMap<String, PortConfig> = IndexMap::new(),
    }
    beside {
        /// The times for controllers that a database gives; others have the usual times.
        pub controller_times: HashMap<Remote, ControllerTimes>,
    }
}

impl BridgeConfig {
    /// Restores the former value of the setting that a running bridge cannot change. Returns
    /// whether the value differed.
    pub(super) fn keep_fixed(&mut self, former: &Self) -> bool {
        let wanted = std::mem::replace(&mut self.own_interface, former.own_interface);
        wanted != former.own_interface
    }
}

/// The socket of an ovsdb-server in Open vSwitch's syntax: `unix:/run/openvswitch/db.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct OvsdbAddress(pub PathBuf);

impl std::str::FromStr for OvsdbAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:").map(Path::new) {
            Some(path) if path.is_absolute() => Ok(Self(path.to_owned())),
            _ => Err(format!(
                "ovsdb {text:?}: write the socket of ovsdb-server, for example \
                 unix:/run/openvswitch/db.sock"
            )),
        }
    }
}

impl TryFrom<String> for OvsdbAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The rules with which a bridge starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailMode {
    /// No rules: the bridge drops packets until a user or a controller adds rules.
    #[default]
    Secure,
    /// The bridge begins with the rule `priority=0 actions=NORMAL`, or without rules if its
    /// settings name controllers. After a time without a connected controller, the bridge
    /// forwards as `NORMAL` does.
    Standalone,
}

table! {
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct PortConfig in kebab {
        /// `pcap`, `null`, `dummy`, `packet`, `tap`, `ring`, `xdp`, `vhost-user` or `patch`.
        pub kind: String as "type",
        /// The capture that a pcap port plays.
        pub file: Option<PathBuf>,
        /// Whether the capture is repeated for ever.
        pub repeats: bool as "loop" = false,
        /// The capture to which a pcap port writes the frames that it sends. A dummy port also
        /// writes the frames that it receives.
        pub write: Option<PathBuf>,
        /// The network interface of a packet, tap or xdp port, by default the port's name.
        pub interface: Option<String>,
        /// The socket of a ring or vhost-user port; a ring also takes a name without a slash.
        pub path: Option<PathBuf>,
        /// The patch port of another bridge that is connected to this patch port.
        pub peer: Option<String>,
        /// Whether the switch listens at the socket in `path` (the default) or connects to this
        /// socket.
        pub role: Option<Role>,
        /// The receive queue of an xdp port's interface, by default the first.
        pub receive_queue: Option<u32>,
        /// The method by which packets get into an xdp port's memory, by default the fastest method
        /// that works.
        pub copy_mode: Option<CopyMode>,
        /// Whether the packet thread itself runs the driver of an xdp port's interface.
        pub busy_poll: bool = false,
        /// The address that OpenFlow shows, by default derived from the port's name. A tap port's
        /// device gets the address, too.
        pub hardware_address: Option<HardwareAddress>,
        /// The OpenFlow port number, by default the first free number.
        pub number: Option<u32>,
        /// The number of receive queues of a pcap or vhost-user port.
        pub queues: Option<usize>,
        /// The rate at which frames leave: `100mbit`.
        pub rate: Option<Leaf<Capacity>>,
        /// The queue before the rate limit: `fq_codel`, `droptail:256KiB`.
        pub queue: Option<Leaf<QueueConfig>>,
        /// The queues that `set_queue` and `enqueue` choose, by number.
        pub egress_queue: EgressQueues = EgressQueues::default(),
        /// The limits of the frames that the port receives.
        pub policing: Policing = Policing::default(),
        /// For each queue, the CPU of the packet thread that polls it: `0:1,1:2`.
        pub rxq_affinity: Option<RxqAffinity>,
        /// `trunk`, `access`, `native-tagged`, `native-untagged` or `dot1q-tunnel`, for NORMAL. The
        /// default is `access` with a tag, and otherwise `trunk`.
        pub vlan_mode: Option<VlanModeSetting>,
        /// The VLAN of frames without a tag.
        pub tag: Option<u16>,
        /// The VLANs of a trunk; all VLANs if the list is empty.
        pub trunks: Vec<u16> = vec![],
        /// The customer's VLANs of a dot1q-tunnel port; all VLANs if the list is empty.
        pub cvlans: Vec<u16> = vec![],
        /// The type of the tag that frames of a dot1q-tunnel port get at other ports.
        pub qinq_ethtype: Option<QinqEthtype>,
        /// The MTU that the switch sets at the interface of a packet, tap or xdp port.
        pub mtu: Option<u32>,
        /// The numbers of the port in LACPDUs, as a member of a bond.
        pub lacp: LacpPort = LacpPort::default(),
    }
    beside {
        /// The type of the port's QoS in a database: `linux-hfsc`.
        pub qos: Option<&'static str>,
    }
}

/// The address of a port: `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HardwareAddress(pub [u8; 6]);

impl TryFrom<String> for HardwareAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong =
            || format!("hardware-address {text:?}: write six bytes, for example 02:00:00:00:00:01");
        let bytes = text.split(':').map(|byte| match byte.len() {
            2 => u8::from_str_radix(byte, 16).ok(),
            _ => None,
        });
        let bytes: Vec<u8> = bytes.collect::<Option<_>>().ok_or_else(wrong)?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

/// The role of a port at its UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The port listens.
    Server,
    /// The port connects.
    Client,
}

/// The method by which packets get into an xdp port's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyMode {
    Zerocopy,
    Copy,
}

impl From<ovsdb::interface::CopyMode> for CopyMode {
    fn from(mode: ovsdb::interface::CopyMode) -> Self {
        match mode {
            ovsdb::interface::CopyMode::Zerocopy => Self::Zerocopy,
            ovsdb::interface::CopyMode::Copy => Self::Copy,
        }
    }
}

/// The CPU of the packet thread that polls each queue of a port, in Open vSwitch's syntax:
/// `0:3,1:7`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RxqAffinity(pub Vec<(usize, usize)>);

impl RxqAffinity {
    /// Returns the CPU of the packet thread that polls a queue.
    #[must_use]
    pub fn cpu(&self, queue: usize) -> Option<usize> {
        self.0.iter().find(|(of, _)| *of == queue).map(|(_, cpu)| *cpu)
    }
}

impl std::str::FromStr for RxqAffinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |part: &str| {
            let (queue, cpu) = part.split_once(':')?;
            Some((queue.trim().parse().ok()?, cpu.trim().parse().ok()?))
        };
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let pairs: Option<Vec<_>> = parts.map(pair).collect();
        pairs.map(Self).ok_or_else(|| {
            format!("rxq-affinity {text:?}: write QUEUE:CPU pairs, for example 0:1,1:2")
        })
    }
}

impl TryFrom<String> for RxqAffinity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

leaves! {
    Controllers, CopyMode, FailMode, HardwareAddress, Listeners, OvsdbAddress, Protocols, Role,
    RxqAffinity,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = host::read_regular_file(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        settings::parse(&text).map_err(|Mistake { line, what, .. }| ConfigError::At {
            path: path.to_owned(),
            line,
            what,
        })
    }

    /// Adds a port from the text of a flag: `BRIDGE:PORT=KIND[:ARGUMENT][,OPTION…]`.
    pub fn add_port(&mut self, text: &str) -> Result<(), ConfigError> {
        let malformed = || {
            ConfigError::Value(format!(
                "--port {text}: write BRIDGE:PORT=KIND, for example br0:p0=pcap:FILE,loop"
            ))
        };
        let (place, kind) = text.split_once('=').ok_or_else(malformed)?;
        let (bridge, port) = place.split_once(':').ok_or_else(malformed)?;
        let known = self.bridge.keys().cloned().collect::<Vec<_>>().join(", ");
        let Some(bridge) = self.bridge.get_mut(bridge) else {
            let advice = match known.is_empty() {
                true => format!(": add it by --bridge {bridge}"),
                false => format!("; the bridges are: {known}"),
            };
            return Err(ConfigError::Value(format!(
                "--port {text}: there is no bridge {bridge}{advice}"
            )));
        };
        let config = PortConfig::parse(kind)
            .map_err(|problem| ConfigError::Value(format!("--port {text}: {problem}")))?;
        if bridge.port.insert(port.to_owned(), config).is_some() {
            return Err(ConfigError::Value(format!(
                "--port {text}: the port exists already: name another, or leave this one out"
            )));
        }
        Ok(())
    }

    /// Returns all reasons why a switch with these settings would not start, or a port would not
    /// work. Reads the files that the settings name.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        if let Err(error) = self.check() {
            return vec![error.to_string()];
        }
        let mut problems = Vec::new();
        for (name, bridge) in &self.bridge {
            for (port, config) in &bridge.port {
                if let Some(file) = &config.file
                    && let Err(error) = Capture::read(file)
                {
                    problems.push(format!("port {name}:{port}: {error}"));
                }
                let interface = config.interface.as_deref().unwrap_or(port);
                let is_there = Path::new("/sys/class/net").join(interface).exists();
                if matches!(config.kind.as_str(), "packet" | "xdp") && !is_there {
                    problems.push(format!(
                        "port {name}:{port}: there is no interface {interface:?}: make it, or name \
                         another"
                    ));
                }
            }
            if let Some(path) = &bridge.flows {
                problems.extend(super::flow_file::check(path, &bridge.names()));
            }
        }
        problems.extend(self.tls.as_ref().and_then(|tls| tls.check().err()).map(|e| e.to_string()));
        let available = host::online_cpus();
        let known = available.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        for cpu in self.pmd_cpus.iter().flatten().filter(|cpu| !available.contains(cpu)) {
            problems.push(format!("CPU {cpu} is not available: pmd-cpus may name {known}"));
        }
        problems
    }

    /// Checks all settings that can be checked without a file or device.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |problem: String| Err(ConfigError::Value(problem));
        if self.bridge.is_empty() && self.ovsdb.is_none() {
            return wrong(
                "there is no bridge: add one by --bridge br0, or by [bridge.br0] in the file"
                    .to_owned(),
            );
        }
        if self.bridge.len() > MOST_BRIDGES {
            return wrong(format!(
                "there are more than {MOST_BRIDGES} bridges: run another switch for the rest, with \
                 a rundir of its own"
            ));
        }
        for (name, bridge) in &self.bridge {
            check_name("bridge", name)?;
            if bridge.port.len() > MOST_PORTS {
                return wrong(format!(
                    "bridge {name} has more than {MOST_PORTS} ports: give some to another bridge"
                ));
            }
            if bridge.mac_aging_time.is_some_and(|time| !AGING_TIMES.contains(&time)) {
                return wrong(format!("bridge {name}: mac-aging-time: use 1 to 86400 seconds"));
            }
            if bridge.mac_table_size.is_some_and(|size| !TABLE_SIZES.contains(&size)) {
                return wrong(format!("bridge {name}: mac-table-size: use 1 to 1000000"));
            }
            let is_id = |id: &String| id.len() == 16 && u64::from_str_radix(id, 16).is_ok();
            if let Some(id) = bridge.datapath_id.as_ref().filter(|id| !is_id(id)) {
                return wrong(format!(
                    "bridge {name}: datapath-id = {id:?}: write 16 hexadecimal digits, for example \
                     0000000000000001"
                ));
            }
            for (what, vlans) in [
                ("tag", bridge.tag.as_slice()),
                ("trunks", &bridge.trunks),
                ("cvlans", &bridge.cvlans),
            ] {
                check_vlans(what, vlans)
                    .map_err(|problem| ConfigError::Value(format!("bridge {name}: {problem}")))?;
            }
            let mut remotes = bridge.controller.iter().chain(bridge.listen.iter());
            let needs_files = self.tls.is_none() && self.ovsdb.is_none();
            if let Some(remote) = remotes.find(|r| r.carrier == Carrier::Tls && needs_files) {
                let address = remote.address;
                return wrong(format!("bridge {name}: TLS at {address}: {}", TlsError::NoFiles));
            }
            check_mtu(bridge.mtu, bridge.own_interface)
                .map_err(|problem| ConfigError::Value(format!("bridge {name}: {problem}")))?;
            for (table, settings) in &bridge.table {
                settings
                    .check(table)
                    .map_err(|problem| ConfigError::Value(format!("bridge {name}: {problem}")))?;
            }
            if bridge.mirror.len() > Mirror::MOST {
                return wrong(format!(
                    "bridge {name} has more than {} mirrors: give some to another bridge",
                    Mirror::MOST
                ));
            }
            let mut bonded = HashSet::new();
            for (bond, settings) in &bridge.bond {
                check_name("bond", bond)?;
                let problem =
                    |problem| ConfigError::Value(format!("bond {name}:{bond}: {problem}"));
                settings.check(|port| bridge.port.contains_key(port)).map_err(problem)?;
                if bond == name || settings.has_name_of_other(bond, &bridge.port) {
                    return Err(problem("a port has this name, too: choose another".to_owned()));
                }
                if let Some(port) = settings.members.iter().find(|port| !bonded.insert(*port)) {
                    return Err(problem(format!("port {port} is in another bond")));
                }
            }
            for (mirror, settings) in &bridge.mirror {
                let is_port = |port: &str| {
                    port == name || bridge.port.contains_key(port) || bridge.bond.contains_key(port)
                };
                settings.check(is_port).map_err(|problem| {
                    ConfigError::Value(format!("mirror {name}:{mirror}: {problem}"))
                })?;
            }
            let mut numbers = HashMap::new();
            for (port, config) in &bridge.port {
                check_name("port", port)?;
                if config.peer.as_ref() == Some(port) {
                    return wrong(format!("port {name}:{port} is its own peer: name another port"));
                }
                config.check().map_err(|problem| {
                    ConfigError::Value(format!("port {name}:{port}: {problem}"))
                })?;
                let other = config.number.and_then(|number| numbers.insert(number, port));
                if let Some(other) = other {
                    return wrong(format!(
                        "ports {other} and {port} of bridge {name} have the same number: change \
                         one, or leave it out"
                    ));
                }
            }
        }
        if self.pmd_cpus.as_ref().is_some_and(Vec::is_empty) {
            return wrong("pmd-cpus names no CPU: leave it out, or name at least one".to_owned());
        }
        let mut cpus = self.pmd_cpus.clone().unwrap_or_default();
        cpus.sort_unstable();
        if let Some(twice) = cpus.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("pmd-cpus names CPU {} twice: name it once", twice[0]));
        }
        Ok(())
    }
}

impl BridgeConfig {
    /// Whether the bridge starts with the rule `priority=0 actions=NORMAL`.
    pub(super) fn begins_open(&self) -> bool {
        self.fail_mode == FailMode::Standalone && self.controller.is_empty()
    }

    /// Returns the names of the ports, with the numbers that a switch would give the ports.
    fn names(&self) -> PortNames {
        let mut names = PortNames::none();
        let taken: Vec<_> = self.port.values().filter_map(|port| port.number).collect();
        let mut free = (1..).filter(|number| !taken.contains(number));
        for (name, port) in &self.port {
            let number = port.number.or_else(|| free.next());
            names.insert(PortNumber(number.unwrap_or_default()), name);
        }
        names
    }
}

impl PortConfig {
    pub(super) fn of_kind(kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..Self::default() }
    }

    /// Returns the number of receive queues.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.unwrap_or(1)
    }

    /// Parses `KIND[:ARGUMENT][,OPTION…]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (kind, argument) = match first.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (first, None),
        };
        let mut config = Self::of_kind(kind);
        match (kind, argument) {
            ("pcap", argument) => config.file = argument.map(PathBuf::from),
            ("packet" | "tap" | "xdp", argument) => {
                config.interface = argument.map(str::to_owned);
            }
            ("ring" | "vhost-user", argument) => config.path = argument.map(PathBuf::from),
            ("patch", argument) => config.peer = argument.map(str::to_owned),
            ("null" | "dummy", None) => {}
            ("null" | "dummy", Some(_)) => {
                return Err(format!("a {kind} port takes no argument: write {kind} alone"));
            }
            (kind, _) => return Err(unknown_kind(kind)),
        }
        for option in parts {
            match option.split_once('=') {
                None if option == "loop" => config.repeats = true,
                None if option == "server" => config.role = Some(Role::Server),
                None if option == "client" => config.role = Some(Role::Client),
                None if option == "zerocopy" => config.copy_mode = Some(CopyMode::Zerocopy),
                None if option == "copy" => config.copy_mode = Some(CopyMode::Copy),
                None if option == "busy-poll" => config.busy_poll = true,
                Some(("queue", number)) if kind == "xdp" && number.parse::<u32>().is_ok() => {
                    config.receive_queue = number.parse().ok();
                }
                Some(("write", path)) => config.write = Some(PathBuf::from(path)),
                Some(("number", number)) => {
                    let wrong = |_| format!("number={number}: write a number, such as number=1");
                    config.number = Some(number.parse().map_err(wrong)?);
                }
                Some(("queues", number)) => {
                    let wrong = |_| format!("queues={number}: write a number, such as queues=2");
                    config.queues = Some(number.parse().map_err(wrong)?);
                }
                Some(("rate", rate)) => {
                    let rate = rate.parse().map_err(|e: LinkError| e.to_string())?;
                    config.rate = Some(Leaf(rate));
                }
                Some(("policing", rate)) => {
                    let rate = rate.parse().map_err(|e: units::UnitError| e.to_string())?;
                    config.policing.rate = Some(rate);
                }
                Some(("queue", queue)) => {
                    let queue = queue.parse().map_err(|e: LinkError| e.to_string())?;
                    config.queue = Some(Leaf(queue));
                }
                _ => {
                    return Err(format!(
                        "unknown option {option:?}; the options are loop, write=FILE, number=N, \
                         queues=N, rate=RATE, queue=QUEUE, policing=RATE; of ring and vhost-user ports server, \
                         client; of xdp ports queue=N, zerocopy, copy, busy-poll"
                    ));
                }
            }
        }
        Ok(config)
    }

    /// Checks all settings that can be checked without a file or device.
    pub fn check(&self) -> Result<(), String> {
        self.check_vlans()?;
        self.policing.check()?;
        check_mtu(self.mtu, has_interface(&self.kind))?;
        match self.queues {
            Some(queues) if !(1..=MOST_QUEUES).contains(&queues) => {
                return Err(format!("queues = {queues}: use 1 to {MOST_QUEUES}"));
            }
            _ if self.queue.is_some() && self.rate.is_none() => {
                return Err("queue needs a rate: set one, for example 100mbit".to_owned());
            }
            Some(2..) if !matches!(self.kind.as_str(), "pcap" | "vhost-user") => {
                return Err(format!("a {} port has one queue: leave queues out", self.kind));
            }
            _ => {}
        }
        let has_socket = matches!(self.kind.as_str(), "ring" | "vhost-user");
        if has_socket && self.path.is_none() {
            let kind = &self.kind;
            return Err(format!("a {kind} port needs the path of a socket ({kind}:PATH)"));
        }
        if !has_socket && (self.path.is_some() || self.role.is_some()) {
            return Err("path, server and client are for ring and vhost-user ports".to_owned());
        }
        let is_patch = self.kind == "patch";
        if is_patch != self.peer.is_some() {
            return Err(match is_patch {
                true => "a patch port needs a peer: the patch port of another bridge (patch:PEER)",
                false => "peer is for patch ports",
            }
            .to_owned());
        }
        if is_patch && (self.rate.is_some() || self.egress_queue.has_any()) {
            return Err("a patch port has no rate: limit the ports of its peer's bridge".to_owned());
        }
        let is_xdp_only =
            self.receive_queue.is_some() || self.copy_mode.is_some() || self.busy_poll;
        if is_xdp_only && self.kind != "xdp" {
            return Err("receive-queue, zerocopy, copy and busy-poll are for xdp ports".to_owned());
        }
        match self.kind.as_str() {
            "pcap" if self.file.is_none() && self.write.is_none() => {
                Err("a pcap port needs a file to play (file, or pcap:FILE) or to write (write)"
                    .to_owned())
            }
            kind if KINDS.contains(&kind) => match self.number {
                Some(0) => Err("number 0 is not a port's: begin with 1".to_owned()),
                Some(number) if number >= 0xff00 => {
                    Err(format!("number {number} is reserved: the highest is 65279"))
                }
                _ if self.repeats && self.file.is_none() => {
                    Err("loop needs a file to play: name it by file, or as pcap:FILE".to_owned())
                }
                _ => Ok(()),
            },
            kind => Err(unknown_kind(kind)),
        }
    }
}

/// Parses the CPUs of a hexadecimal mask, as in Open vSwitch's pmd-cpu-mask: `6` is CPUs 1 and 2.
pub fn parse_cpu_mask(text: &str) -> Result<Vec<usize>, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mask = u128::from_str_radix(digits, 16).ok().filter(|mask| *mask != 0);
    let mask = mask.ok_or_else(|| {
        format!(
            "pmd-cpu-mask {text:?}: write a mask in hexadecimal, for example 6 for CPUs 1 and 2"
        )
    })?;
    Ok((0..128).filter(|cpu| mask >> cpu & 1 != 0).collect())
}

fn unknown_kind(kind: &str) -> String {
    let hint = units::did_you_mean(kind, KINDS);
    match hint.is_empty() {
        false => format!("unknown kind of port {kind:?}{hint}"),
        true => format!("unknown kind of port {kind:?}; the kinds are {}", KINDS.join(", ")),
    }
}

pub(super) fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > LONGEST_NAME
        || !name.chars().all(is_plain)
        || name.starts_with('.')
    {
        return Err(ConfigError::Value(format!(
            "{what} name {name:?}: use 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.'"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
