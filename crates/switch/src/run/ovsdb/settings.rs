//! The settings of a switch that a database describes.

use std::collections::{BTreeMap, HashMap, HashSet};

use flow::port_number::PortNumber;
use indexmap::IndexMap;
use ovsdb::interface::Device;
use ovsdb::topology::{Bridge, Lacp, Police, Port, Target, Topology};
use ovsdb::value::Uuid;
use settings::Leaf;
use units::{Bytes, Rate, foreign};

use crate::run::bonds::{BondMode, BondSettings, LacpMode, LacpPort, LacpTime};
use crate::run::config::{
    BridgeConfig, Config, FailMode, HardwareAddress, MOST_BRIDGES, MOST_PORTS, PortConfig, Role,
    check_name, parse_cpu_mask,
};
use crate::run::device::interface_of;
use crate::run::egress_queues::{EgressQueue, EgressQueues};
use crate::run::policing::Policing;
use crate::run::progress::Part;
use crate::run::remote::{ControllerTimes, Remote};
use crate::run::table_settings::{Overflow, TableSettings};
use crate::run::tls::TlsSettings;
use crate::run::vlan_settings::MirrorSettings;

/// The settings that a topology describes. Also the failures, and other results that are not
/// settings.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) config: Config,
    /// Parts of the topology that the switch cannot have, with the reason.
    pub(super) failures: HashMap<Part, String>,
    /// Rows of `Controller` that the switch ignores, with the reason.
    pub(super) controllers: HashMap<Uuid, String>,
    /// Port numbers that the database had when the session began.
    pub(super) numbers: HashMap<String, PortNumber>,
    /// Settings that the switch ignores, for the log.
    pub(super) ignored: Vec<String>,
}

impl Wanted {
    /// Returns the settings of `base`, plus the bridges and CPUs of the database.
    pub(super) fn of(topology: &Topology, base: &Config) -> Self {
        let config = Config { bridge: IndexMap::new(), ..base.clone() };
        let ignored = topology.ignored.clone();
        let mut wanted = Self { config, ignored, ..Self::default() };
        if let Some(mask) = &topology.pmd_cpu_mask {
            wanted.set_cpus(mask);
        }
        if let Some(tls) = &topology.tls {
            wanted.config.tls = Some(TlsSettings {
                private_key: (&tls.private_key).into(),
                certificate: (&tls.certificate).into(),
                ca_certificate: (&tls.ca_certificate).into(),
                bootstrap_ca_certificate: tls.bootstraps,
            });
        }
        for bridge in &topology.bridges {
            wanted.add_bridge(bridge);
        }
        wanted
    }

    /// Gives dummy ports the addresses that Open vSwitch's test cases expect. A port of `former`
    /// keeps its address.
    pub(super) fn number_dummies(&mut self, former: &Config) {
        let address_in = |config: &Config, bridge: &str, port: &str| {
            config.bridge.get(bridge)?.port.get(port)?.hardware_address
        };
        let mut used: HashSet<[u8; 6]> = HashSet::new();
        for (name, bridge) in &mut self.config.bridge {
            for (port, config) in &mut bridge.port {
                config.hardware_address =
                    config.hardware_address.or_else(|| address_in(former, name, port));
                used.extend(config.hardware_address.map(|address| address.0));
            }
        }
        let mut free = (1..=u16::MAX)
            .map(|number| number.to_be_bytes())
            .map(|[high, low]| [0xaa, 0x55, 0xaa, 0x55, high, low])
            .filter(|address| !used.contains(address));
        let ports = self.config.bridge.values_mut().flat_map(|bridge| bridge.port.values_mut());
        for port in ports.filter(|port| port.hardware_address.is_none()) {
            port.hardware_address = free.next().map(HardwareAddress);
        }
    }

    /// Sets the CPUs. As in Open vSwitch, CPUs that the machine does not have are ignored.
    fn set_cpus(&mut self, mask: &str) {
        let available = host::online_cpus();
        let cpus = parse_cpu_mask(mask).map(|cpus| {
            let (known, unknown): (Vec<_>, Vec<_>) =
                cpus.into_iter().partition(|cpu| available.contains(cpu));
            if !unknown.is_empty() {
                self.ignored.push(format!(
                    "pmd-cpu-mask {}: {} CPUs that this machine does not have",
                    foreign(mask),
                    unknown.len()
                ));
            }
            known
        });
        match cpus {
            Ok(cpus) if !cpus.is_empty() => self.config.pmd_cpus = Some(cpus),
            Ok(_) => {}
            Err(error) => self.ignored.push(foreign(error).to_string()),
        }
    }

    fn add_bridge(&mut self, bridge: &Bridge) {
        let refusal = match check_name("bridge", &bridge.name) {
            Err(error) => Some(error.to_string()),
            Ok(()) if self.config.bridge.len() >= MOST_BRIDGES => {
                Some(format!("there are more than {MOST_BRIDGES} bridges: delete others"))
            }
            Ok(()) => None,
        };
        if let Some(refusal) = refusal {
            self.failures.insert(Part::Bridge(bridge.name.clone()), refusal);
            return;
        }
        let mut config = BridgeConfig {
            datapath_id: bridge.datapath_id.clone(),
            // The kernel's interface names have at most 15 bytes.
            own_interface: bridge.name.len() <= LONGEST_INTERFACE && !self.config.dummies,
            mac_aging_time: bridge.mac_aging_time.map(|time| time.clamp(1, 86_400)),
            mac_table_size: bridge.mac_table_size.map(|size| size.clamp(1, 1_000_000)),
            forward_bpdu: bridge.forwards_bpdu,
            ..BridgeConfig::default()
        };
        match bridge.protocols.clone().try_into() {
            Ok(protocols) => config.protocols = protocols,
            Err(error) => self.ignored.push(format!("bridge {}: protocols: {error}", bridge.name)),
        }
        if let Some(address) = &bridge.hardware_address {
            match address.clone().try_into() {
                Ok(address) => config.hardware_address = Some(address),
                Err(error) => self.ignored.push(format!(
                    "bridge {}: other_config:hwaddr: {}",
                    bridge.name,
                    foreign(error)
                )),
            }
        }
        match bridge.mtu {
            Some(_) if !config.own_interface => self.ignored.push(format!(
                "interface {}: mtu_request of a bridge's own port without an interface",
                bridge.name
            )),
            mtu => config.mtu = mtu,
        }
        self.add_controllers(bridge, &mut config);
        config.fail_mode = if bridge.is_secure { FailMode::Secure } else { FailMode::Standalone };
        for table in &bridge.tables {
            let number = table.number.to_string();
            let settings = TableSettings {
                name: table.name.clone(),
                flow_limit: table.flow_limit.map(|limit| limit.try_into().unwrap_or(u32::MAX)),
                overflow: if table.evicts { Overflow::Evict } else { Overflow::Refuse },
            };
            match settings.check(&number) {
                Ok(()) => drop(config.table.insert(number, settings)),
                Err(words) => self.ignored.push(format!(
                    "bridge {}: flow_tables: {}",
                    bridge.name,
                    foreign(words)
                )),
            }
        }
        let mut numbers = HashSet::new();
        for port in &bridge.ports {
            match self.port(port, &mut numbers) {
                Ok(_) if config.port.len() >= MOST_PORTS => {
                    let words = format!("the bridge has more than {MOST_PORTS} ports");
                    self.failures.insert(Part::Port(port.name.clone()), words);
                }
                Ok(settings) => drop(config.port.insert(port.name.clone(), settings)),
                Err(words) => drop(self.failures.insert(Part::Port(port.name.clone()), words)),
            }
        }
        config.vlan_mode = bridge.vlans.mode.map(Into::into);
        config.tag = bridge.vlans.tag;
        config.trunks.clone_from(&bridge.vlans.trunks);
        config.cvlans.clone_from(&bridge.vlans.cvlans);
        config.qinq_ethtype = bridge.vlans.qinq_ethtype.map(Into::into);
        self.add_bonds(bridge, &mut config);
        self.add_mirrors(bridge, &mut config);
        self.config.bridge.insert(bridge.name.clone(), config);
    }

    fn add_bonds(&mut self, bridge: &Bridge, config: &mut BridgeConfig) {
        let mut bonded: HashSet<String> = HashSet::new();
        for bond in &bridge.bonds {
            let mode = match bond.mode.as_deref().map(|mode| (mode, BondMode::named(mode))) {
                None => BondMode::default(),
                Some((_, Some(mode))) => mode,
                Some((mode, None)) => {
                    self.ignored.push(format!(
                        "port {}: bond_mode {}",
                        foreign(&bond.name),
                        foreign(mode)
                    ));
                    BondMode::default()
                }
            };
            // As in Open vSwitch, a bond starts without the members that cannot be opened.
            let is_free = |name: &&String| {
                config.port.contains_key(name.as_str()) && !bonded.contains(name.as_str())
            };
            let mut settings = BondSettings {
                members: bond.members.iter().filter(is_free).cloned().collect(),
                mode,
                primary: bond.primary.clone(),
                updelay: bond.updelay.min(600_000),
                downdelay: bond.downdelay.min(600_000),
                hash_basis: bond.hash_basis,
                all_members_active: bond.all_members_active,
                last_active: bond.last_active.unwrap_or_default(),
                ..BondSettings::default()
            };
            if let Some(lacp) = &bond.lacp {
                self.add_lacp(&bond.name, lacp, &mut settings);
            }
            let is_taken =
                bond.name == bridge.name || settings.has_name_of_other(&bond.name, &config.port);
            let refusal = match check_name("bond", &bond.name) {
                Err(error) => Some(error.to_string()),
                Ok(()) => is_taken.then(|| "another interface has the name of the bond".to_owned()),
            };
            if let Some(words) = refusal {
                // Without the bond, the member ports would form a loop.
                for member in settings.members {
                    config.port.shift_remove(&member);
                    self.failures.insert(Part::Port(member), words.clone());
                }
                continue;
            }
            match settings.check(|name| config.port.contains_key(name)) {
                Ok(()) => {
                    bonded.extend(settings.members.iter().cloned());
                    config.bond.insert(bond.name.clone(), settings);
                }
                Err(words) => {
                    self.ignored.push(format!("port {}: {}", foreign(&bond.name), foreign(words)))
                }
            }
        }
    }

    fn add_lacp(&mut self, bond: &str, lacp: &Lacp, settings: &mut BondSettings) {
        settings.lacp = if lacp.is_active { LacpMode::Active } else { LacpMode::Passive };
        settings.lacp_time = if lacp.is_fast { LacpTime::Fast } else { LacpTime::Slow };
        settings.lacp_fallback_ab = lacp.falls_back;
        settings.lacp_system_priority = Some(lacp.system_priority).filter(|priority| *priority > 0);
        // As in Open vSwitch, the bond uses its bridge's address if the given address is unusable.
        let parsed = lacp.system_id.clone().map(HardwareAddress::try_from);
        match parsed {
            Some(Ok(address)) if address.0 != [0; 6] => settings.lacp_system_id = Some(address),
            Some(_) => self.ignored.push(format!(
                "port {}: other_config:lacp-system-id: write six bytes, not all of them zero",
                foreign(bond)
            )),
            None => {}
        }
    }

    fn add_mirrors(&mut self, bridge: &Bridge, config: &mut BridgeConfig) {
        for mirror in &bridge.mirrors {
            let is_port = |port: &str| {
                port == bridge.name
                    || config.port.contains_key(port)
                    || config.bond.contains_key(port)
            };
            // As in Open vSwitch, a mirror starts without the ports that cannot be opened.
            let known = |names: &[String]| -> Vec<String> {
                names.iter().filter(|name| is_port(name.as_str())).cloned().collect()
            };
            let settings = MirrorSettings {
                all: mirror.is_for_all,
                source: known(&mirror.sources),
                destination: known(&mirror.destinations),
                vlans: mirror.vlans.clone(),
                output: mirror.output_port.clone(),
                output_vlan: mirror.output_vlan,
                snap_length: mirror.snap_length,
            };
            let checked = match config.mirror.len() < pipeline::Mirror::MOST {
                true => settings.check(is_port),
                false => Err(format!("there are {} mirrors already", pipeline::Mirror::MOST)),
            };
            match checked {
                Ok(()) => drop(config.mirror.insert(mirror.name.clone(), settings)),
                Err(words) => self.ignored.push(format!(
                    "bridge {}: mirror {}: {}",
                    bridge.name,
                    foreign(&mirror.name),
                    foreign(words)
                )),
            }
        }
    }

    fn add_controllers(&mut self, bridge: &Bridge, config: &mut BridgeConfig) {
        for controller in &bridge.controllers {
            let (carrier, text, list) = match &controller.target {
                Target::Connect(carrier, text) => (*carrier, text, &mut config.controller.0),
                Target::Listen(carrier, text) => (*carrier, text, &mut config.listen.0),
                Target::Refused(words) => {
                    self.controllers.insert(controller.row, words.clone());
                    continue;
                }
            };
            match Remote::of(carrier, text) {
                Ok(remote) if list.contains(&remote) => {}
                Ok(remote) => {
                    list.push(remote);
                    if matches!(controller.target, Target::Connect(..)) {
                        let times = ControllerTimes::of(
                            controller.inactivity_probe_ms,
                            controller.max_backoff_ms,
                        );
                        config.controller_times.insert(remote, times);
                    }
                }
                Err(words) => drop(self.controllers.insert(controller.row, words)),
            }
        }
    }

    fn port(&mut self, port: &Port, numbers: &mut HashSet<u32>) -> Result<PortConfig, String> {
        check_name("port", &port.name).map_err(|error| error.to_string())?;
        let found = port.device.as_ref().map_err(Clone::clone)?;
        let mut config = config_of(&found.device);
        let name = &port.name;
        if let Some(address) = &port.hardware_address {
            match address.clone().try_into() {
                Ok(address) => config.hardware_address = Some(address),
                Err(error) => self.ignored.push(format!("port {name}: mac: {}", foreign(error))),
            }
        }
        if let Some(affinity) = &port.rxq_affinity {
            match affinity.parse() {
                Ok(affinity) => config.rxq_affinity = Some(affinity),
                Err(error) => self.ignored.push(format!("port {name}: {}", foreign(error))),
            }
        }
        if let Some(egress) = &port.egress {
            let rate = |bits: u64| Leaf(link::Capacity::Fixed(Rate::from_bits_per_second(bits)));
            config.qos = Some(egress.kind);
            config.rate = egress.bits_per_second.map(rate);
            config.queue = egress.queue.and_then(|queue| queue.parse().ok().map(Leaf));
            let mut queues = BTreeMap::new();
            for queue in &egress.queues {
                let rate = queue.bits_per_second.map(rate);
                let settings = EgressQueue { rate, ..EgressQueue::default() };
                let alone = BTreeMap::from([(queue.number, settings.clone())]);
                // As in Open vSwitch, a port starts without the queues that cannot be made.
                match EgressQueues::new(alone) {
                    Ok(_) => drop(queues.insert(queue.number, settings)),
                    Err(words) => self.ignored.push(format!("port {name}: {words}")),
                }
            }
            config.egress_queue = EgressQueues::new(queues)?;
        }
        config.policing = policing(&port.police);
        let vlans = &port.vlans;
        config.vlan_mode = vlans.mode.map(Into::into);
        (config.tag, config.trunks) = (vlans.tag, vlans.trunks.clone());
        config.cvlans.clone_from(&vlans.cvlans);
        config.qinq_ethtype = vlans.qinq_ethtype.map(Into::into);
        let some = |number: u16| Some(number).filter(|number| *number > 0);
        config.lacp = LacpPort {
            port_id: some(port.lacp.port_id),
            port_priority: some(port.lacp.port_priority),
            aggregation_key: some(port.lacp.aggregation_key),
        };
        match port.mtu {
            Some(_) if interface_of(name, &config).is_none() => self.ignored.push(format!(
                "interface {name}: mtu_request of a port without an interface of the kernel"
            )),
            mtu => config.mtu = mtu,
        }
        config.check()?;
        if let Some(number) = port.number {
            match numbers.insert(number) {
                true => config.number = Some(number),
                false => self.ignored.push(format!(
                    "port {name}: ofport_request {number}: another port asks for the number"
                )),
            }
        }
        if let Some(number) = port.former_number {
            self.numbers.insert(name.clone(), PortNumber(number));
        }
        Ok(config)
    }
}

/// Converts the policing settings of an interface. As in Open vSwitch, a rate of 0 means no limit,
/// and a burst of 0 means the default burst.
fn policing(police: &Police) -> Policing {
    let Police { rate_kbit, burst_kbit, rate_kpkts, burst_kpkts } = *police;
    let rate = (rate_kbit > 0).then(|| Rate::from_bits_per_second(u64::from(rate_kbit) * 1000));
    let burst = rate.filter(|_| burst_kbit > 0);
    let packet_rate = (rate_kpkts > 0).then(|| rate_kpkts.saturating_mul(1000));
    let packet_burst = packet_rate.filter(|_| burst_kpkts > 0);
    Policing {
        rate,
        burst: burst.map(|_| Bytes::new(u64::from(burst_kbit) * 125)),
        packet_rate,
        packet_burst: packet_burst.map(|_| burst_kpkts.saturating_mul(1000)),
    }
}

fn config_of(device: &Device) -> PortConfig {
    let role = |is_server: bool| Some(if is_server { Role::Server } else { Role::Client });
    let kind = PortConfig::of_kind;
    match device.clone() {
        Device::Packet { interface } => PortConfig { interface, ..kind("packet") },
        Device::Tap { interface } => PortConfig { interface, ..kind("tap") },
        Device::Xdp { interface, queue, copy } => PortConfig {
            interface: Some(interface),
            receive_queue: (queue > 0).then_some(queue),
            copy_mode: copy.map(Into::into),
            ..kind("xdp")
        },
        Device::VhostUser { path, is_server, queues } => PortConfig {
            path: Some(path),
            role: role(is_server),
            queues: Some(queues),
            ..kind("vhost-user")
        },
        Device::Pcap { file, write, repeats, queues } => {
            PortConfig { file, write, repeats, queues: Some(queues), ..kind("pcap") }
        }
        Device::Null => kind("null"),
        Device::Patch { peer } => PortConfig { peer: Some(peer), ..kind("patch") },
        Device::Dummy { write } => PortConfig { write, ..kind("dummy") },
        Device::Ring { path, is_server } => {
            PortConfig { path: Some(path), role: role(is_server), ..kind("ring") }
        }
    }
}

/// IFNAMSIZ without the terminating zero byte.
const LONGEST_INTERFACE: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::interface::Found;
    use ovsdb::topology::{Carrier, Controller, Egress, Vlans};

    fn row(number: u32) -> Uuid {
        Uuid::parse(&format!("00000000-0000-0000-0000-{number:012}")).unwrap()
    }

    fn port(name: &str, device: Result<Found, String>) -> Port {
        Port {
            name: name.to_owned(),
            port_row: row(1),
            interface_row: row(2),
            device,
            hardware_address: None,
            number: Some(7),
            former_number: Some(3),
            rxq_affinity: Some("0:1".to_owned()),
            egress: None,
            police: Police::default(),
            vlans: Vlans::default(),
            lacp: ovsdb::topology::LacpPort::default(),
            mtu: Some(9_000),
        }
    }

    fn bridge(name: &str) -> Bridge {
        Bridge {
            row: row(3),
            name: name.to_owned(),
            local: None,
            datapath_id: None,
            hardware_address: Some("x".to_owned()),
            is_secure: false,
            protocols: vec!["OpenFlow2".to_owned()],
            mac_aging_time: Some(0),
            mac_table_size: None,
            forwards_bpdu: false,
            controllers: Vec::new(),
            tables: Vec::new(),
            ports: Vec::new(),
            mirrors: Vec::new(),
            bonds: Vec::new(),
            vlans: Vlans::default(),
            mtu: None,
            lacking: Vec::new(),
        }
    }

    #[test]
    fn unsupported_rows_are_reported_and_the_other_rows_take_effect() {
        let mut br0 = bridge("br0");
        let vhost = Device::VhostUser { path: "/tmp/v".into(), is_server: true, queues: 99 };
        br0.ports = vec![
            port("p1", Ok(Device::Null.into())),
            port("p2", Ok(Device::Null.into())),
            port("p3", Err("no".to_owned())),
            port("a b", Ok(Device::Null.into())),
            port("v", Ok(vhost.into())),
        ];
        let (kind, bits_per_second) = ("linux-hfsc", Some(1_000_000));
        br0.ports[0].egress = Some(Egress { kind, bits_per_second, queue: None, queues: vec![] });
        let target = Target::Connect(Carrier::Tls, "controller.example:6653".to_owned());
        let controller = |number, target| Controller {
            row: row(number),
            target,
            inactivity_probe_ms: Some(30_000),
            max_backoff_ms: None,
        };
        let other = Target::Connect(Carrier::Tcp, "10.0.0.9:6653".to_owned());
        br0.controllers = vec![controller(9, target), controller(8, other)];
        let topology = Topology {
            bridges: vec![br0, bridge("x/y")],
            pmd_cpu_mask: Some("zz".to_owned()),
            ..Topology::default()
        };
        let wanted = Wanted::of(&topology, &Config::default());
        let config = &wanted.config.bridge["br0"];
        assert_eq!(config.port.keys().collect::<Vec<_>>(), ["p1", "p2"]);
        assert_eq!((config.port["p1"].number, config.port["p2"].number), (Some(7), None));
        assert_eq!((config.port["p1"].qos, config.port["p2"].qos), (Some("linux-hfsc"), None));
        assert_eq!((config.mac_aging_time, config.fail_mode), (Some(1), FailMode::Standalone));
        assert_eq!(wanted.numbers["p1"], PortNumber(3));
        let failed = |part: Part| wanted.failures[&part].clone();
        assert_eq!(failed(Part::Port("p3".to_owned())), "no");
        assert!(failed(Part::Port("a b".to_owned())).contains("port name"));
        assert!(failed(Part::Port("v".to_owned())).contains("queues"));
        assert!(failed(Part::Bridge("x/y".to_owned())).contains("bridge name"));
        assert!(wanted.controllers[&row(9)].contains("no IP address"));
        let times: Vec<_> = config.controller_times.values().map(|times| times.probe_ms).collect();
        assert_eq!(times, [Some(30_000)]);
        let ignored = wanted.ignored.join("\n");
        for part in ["hwaddr", "OpenFlow2", "pmd-cpu-mask", "ofport_request 7", "p1: mtu_request"] {
            assert!(ignored.contains(part), "{part}: {ignored}");
        }
    }
}
