//! The columns that the switch writes to its database.

use std::collections::HashMap;
use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::request::PortDescription;
use ovsdb::interface::TYPES;
use ovsdb::report::Report;
use ovsdb::topology::{Bridge, Carrier, Target, Topology};
use ovsdb::value::{Atom, Uuid, Value};
use probe::ethtool::Driver;

use crate::run::bonds::Bond;
use crate::run::bridge::BridgeState;
use crate::run::ports::SwitchPort;
use crate::run::progress::Part;
use crate::run::remote::Remote;
use crate::run::switch::Switch;

/// The state of the switch, for the rows of a topology.
pub(super) struct Status<'a> {
    pub(super) switch: &'a Switch,
    pub(super) topology: &'a Topology,
    pub(super) failures: &'a HashMap<Part, String>,
    /// Rows of `Controller` that the switch ignores, with the reason.
    pub(super) controllers: &'a HashMap<Uuid, String>,
    pub(super) has_statistics: bool,
}

impl Status<'_> {
    pub(super) fn report(&self) -> Report {
        let mut report = Report::default();
        for bridge in &self.topology.bridges {
            self.bridge(bridge, &mut report);
        }
        if let Some(root) = self.topology.root {
            let place = ("Open_vSwitch", root);
            let texts = |words: &[&str]| Value::Set(words.iter().map(|w| Atom::from(*w)).collect());
            report.set(place, "datapath_types", texts(&["netdev", "system"]));
            report.set(place, "iface_types", texts(&TYPES));
            report.set(place, "dpdk_initialized", Value::of(false));
            report.set(place, "cur_cfg", Value::of(self.topology.next_cfg));
        }
        report
    }

    fn bridge(&self, bridge: &Bridge, report: &mut Report) {
        let state = self.switch.bridge(&bridge.name);
        let place = ("Bridge", bridge.row);
        if let Some(state) = &state {
            let id = format!("{:016x}", state.datapath_id());
            report.set(place, "datapath_id", Value::of(id));
            report.set(place, "datapath_version", Value::of("<built-in>"));
        }
        let failure = self.failures.get(&Part::Bridge(bridge.name.clone()));
        let error = failure.map(|words| ("error", words.clone()));
        let lacking = (!bridge.lacking.is_empty()).then(|| ("ignored", bridge.lacking.join(", ")));
        report.set(place, "status", Value::map(error.into_iter().chain(lacking)));
        let ports: HashMap<_, _> =
            state.iter().flat_map(|state| state.ports()).map(|p| (p.name.clone(), p)).collect();
        if let Some(state) = state.as_ref().filter(|_| self.has_statistics) {
            self.switch.credit_patches(state);
        }
        for port in &bridge.ports {
            let absence = port.device.as_ref().ok().and_then(|found| found.absence.as_ref());
            let failure = self.failures.get(&Part::Port(port.name.clone())).or(failure);
            let problem = failure.or(absence);
            self.interface(&port.name, port.interface_row, &ports, problem, report);
        }
        for bond in &bridge.bonds {
            let bonds = state.as_deref().map(BridgeState::bonds);
            let active = bonds.as_ref().and_then(|bonds| bonds.get(&bond.name));
            let address = active.map(|bond| bond.active_address).filter(|bytes| *bytes != [0; 6]);
            let text = address.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"));
            report.set(("Port", bond.row), "bond_active_slave", Value::optional(text));
            for port in bridge.ports.iter().filter(|port| bond.members.contains(&port.name)) {
                let lacp = active.and_then(Bond::lacp);
                let is_current = lacp.map(|lacp| lacp.is_current(&port.name));
                let place = ("Interface", port.interface_row);
                report.set(place, "lacp_current", Value::optional(is_current));
            }
        }
        // A port that has left its bond no longer has a partner.
        let is_bonded = |name: &String| bridge.bonds.iter().any(|bond| bond.members.contains(name));
        for port in bridge.ports.iter().filter(|port| !is_bonded(&port.name)) {
            report.set(("Interface", port.interface_row), "lacp_current", Value::none());
        }
        if let Some(local) = bridge.local {
            let problem = self.failures.get(&Part::Port(bridge.name.clone())).or(failure);
            self.interface(&bridge.name, local, &ports, problem, report);
        }
        self.controllers(bridge, state.as_deref(), report);
    }

    fn interface(
        &self,
        name: &str,
        row: Uuid,
        ports: &HashMap<String, Arc<SwitchPort>>,
        problem: Option<&String>,
        report: &mut Report,
    ) {
        let place = ("Interface", row);
        let port = ports.get(name);
        let is_local = port.is_some_and(|port| port.number == PortNumber::LOCAL);
        // ovs-vsctl takes a number as a sign that the device exists. The port of a missing device
        // already has an OpenFlow number for rules, but the switch does not write this number to
        // the database.
        let absent = port.filter(|port| !is_local && port.is_absent());
        let words = problem.cloned().or_else(|| {
            absent.map(|_| format!("could not open network device {name} (No such device)"))
        });
        let number = match port {
            Some(port) if absent.is_none() => i64::from(port.short_number()),
            _ => -1,
        };
        report.set(place, "ofport", Value::of(number));
        report.set(place, "error", Value::optional(words));
        let Some(port) = port else {
            for column in
                ["mac_in_use", "admin_state", "link_state", "link_speed", "ifindex", "mtu"]
            {
                report.set(place, column, Value::none());
            }
            report.set(place, "status", Value::map::<&str, &str>([]));
            report.set(place, "statistics", Value::map::<&str, i64>([]));
            return;
        };
        let facts = port.facts();
        let description = port.description();
        let PortDescription { hardware_address, current_speed_kbit, .. } = description;
        let address = hardware_address.map(|byte| format!("{byte:02x}")).join(":");
        let word = |is_up: bool| if is_up { "up" } else { "down" };
        report.set(place, "mac_in_use", Value::of(address));
        report.set(place, "ifindex", Value::optional(facts.index));
        report.set(place, "mtu", Value::of(facts.mtu));
        report.set(place, "admin_state", Value::of(word(facts.is_enabled)));
        report.set(place, "link_state", Value::of(word(port.is_up() && facts.is_enabled)));
        let speed = (current_speed_kbit > 0).then(|| u64::from(current_speed_kbit) * 1000);
        report.set(place, "link_speed", Value::optional(speed));
        let mut status = vec![("weir_port", port.describe())];
        match port.driver() {
            Some(Driver { name, version, firmware, .. }) => status.extend([
                ("driver_name", name),
                ("driver_version", version),
                ("firmware_version", firmware),
            ]),
            None => status.push(("driver_name", "weir".to_owned())),
        }
        report.set(place, "status", Value::map(status));
        if self.has_statistics {
            report.set(place, "statistics", statistics(port));
        }
    }

    fn controllers(&self, bridge: &Bridge, state: Option<&BridgeState>, report: &mut Report) {
        let states = state.map(BridgeState::controllers).unwrap_or_default();
        for controller in &bridge.controllers {
            let place = ("Controller", controller.row);
            let mut status = Vec::new();
            let (mut is_connected, mut role) = (false, None);
            let remote = match &controller.target {
                Target::Connect(carrier, text) | Target::Listen(carrier, text) => {
                    Remote::of(*carrier, text).ok()
                }
                Target::Refused(_) => None,
            };
            let failure = remote.and_then(|at| self.failures.get(&Part::Remote(at)));
            let is_tls_listener = matches!(controller.target, Target::Listen(Carrier::Tls, _));
            let unusable = is_tls_listener
                .then(|| self.switch.tls.server().err())
                .flatten()
                .map(|e| e.to_string());
            let failure = failure.or(unusable.as_ref());
            if let Some(words) = self.controllers.get(&controller.row).or(failure) {
                status = vec![("state", "VOID".to_owned()), ("last_error", words.clone())];
            } else if matches!(controller.target, Target::Connect(..)) {
                let own = states.iter().find(|state| Some(state.remote) == remote);
                is_connected = own.is_some_and(|own| own.is_connected);
                role = Some(own.map_or("other", |own| own.role));
                let word = if is_connected { "ACTIVE" } else { "BACKOFF" };
                status.push(("state", word.to_owned()));
                let error = own.and_then(|own| own.last_error.clone());
                status.extend(error.map(|error| ("last_error", error)));
            }
            report.set(place, "is_connected", Value::of(is_connected));
            report.set(place, "role", Value::optional(role));
            report.set(place, "status", Value::map(status));
        }
    }
}

fn statistics(port: &SwitchPort) -> Value {
    let found = port.statistics();
    let known = [
        ("rx_packets", Some(found.received_packets)),
        ("rx_bytes", Some(found.received_bytes)),
        ("rx_dropped", found.received_dropped),
        ("rx_errors", found.received_errors),
        ("rx_frame_err", found.frame_errors),
        ("rx_over_err", found.overruns),
        ("rx_crc_err", found.crc_errors),
        ("tx_packets", Some(found.sent_packets)),
        ("tx_bytes", Some(found.sent_bytes)),
        ("tx_dropped", found.sent_dropped),
        ("tx_errors", found.sent_errors),
        ("collisions", found.collisions),
        // Open vSwitch uses this name for the counter of DPDK ports.
        ("ovs_rx_qos_drops", port.policed()),
    ];
    Value::map(known.into_iter().filter_map(|(name, value)| Some((name, value?))))
}
