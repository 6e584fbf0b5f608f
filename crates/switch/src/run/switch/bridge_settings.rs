//! The settings of a bridge that belong to its tables.

use std::collections::HashMap;

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowMod, TABLES};
use pipeline::{MacTable, Mirror, MirrorOutput, MirroredPorts};
use units::Time;

use super::SwitchError;
use crate::run::bridge::BridgeState;
use crate::run::config::{BridgeConfig, PortConfig};
use crate::run::flow_file;
use crate::run::progress::{Part, Progress};
use crate::run::table_settings::TableSettings;
use crate::run::vlan_settings::{MirrorSettings, vlans_of};

/// Adds the initial rules of a bridge.
pub(super) fn add_first_rules(
    bridge: &BridgeState,
    settings: &BridgeConfig,
    now_ms: u64,
) -> Result<(), SwitchError> {
    if settings.begins_open() {
        let mut normal = FlowMod::new(FlowCommand::Add);
        normal.priority = 0;
        normal.actions = vec![Action::Output { port: PortNumber::NORMAL, max_len: 0 }];
        // Adding a rule without a match never fails.
        let _ = bridge.tables_mut().flow_mod(normal, now_ms);
    }
    if let Some(path) = &settings.flows {
        flow_file::load(path, bridge)?;
    }
    Ok(())
}

/// Returns the datapath ID from the settings, or a default ID, which may depend on the hardware
/// address.
pub(super) fn datapath_id(settings: &BridgeConfig) -> Option<u64> {
    let id = settings.datapath_id.as_deref().and_then(|id| u64::from_str_radix(id, 16).ok());
    let address = settings.hardware_address;
    id.or(address.map(|address| address.0.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))))
}

/// Returns the ports of a bridge's settings. Ports with a requested number come first, so that no
/// other port takes that number.
pub(super) fn numbered_first(
    settings: &BridgeConfig,
) -> impl Iterator<Item = (&String, &PortConfig)> {
    let with = settings.port.iter().filter(|(_, port)| port.number.is_some());
    with.chain(settings.port.iter().filter(|(_, port)| port.number.is_none()))
}

/// Sets the address and the MTU of the bridge's own port.
pub(super) fn set_own_port(
    bridge: &BridgeState,
    settings: &BridgeConfig,
    progress: &mut Progress<'_>,
) -> Result<(), SwitchError> {
    let Some(own) = bridge.port(PortNumber::LOCAL) else { return Ok(()) };
    let changed = own.set_address(settings.hardware_address);
    if matches!(changed, Ok(true)) {
        bridge.port_changed(&own);
    }
    let outcome = own.set_mtu(settings.mtu).and(changed);
    progress.check(Part::Port(own.name.clone()), outcome.map(drop).map_err(Into::into))
}

/// Sets policing, egress queues and MTU of the open ports, and the addresses of TAP devices.
/// Returns whether egress queues have changed.
pub(super) fn set_ports(
    bridge: &BridgeState,
    settings: &BridgeConfig,
    progress: &mut Progress<'_>,
) -> Result<bool, SwitchError> {
    let now = Time::from_nanos(bridge.clock.now_ns());
    let mut have_queues_changed = false;
    for port in bridge.ports() {
        if let Some(wanted) = settings.port.get(&port.name) {
            port.set_policing(&wanted.policing, now);
            let changed = port.set_queues(&wanted.egress_queue, now);
            have_queues_changed |= *changed.as_ref().unwrap_or(&false);
            let is_moved = match port.settings.kind.as_str() {
                "tap" => port.set_address(wanted.hardware_address),
                _ => Ok(false),
            };
            if matches!(is_moved, Ok(true)) {
                bridge.port_changed(&port);
            }
            let outcome = port.set_mtu(wanted.mtu).and(changed).and(is_moved);
            let part = Part::Port(port.name.clone());
            progress.check(part, outcome.map(drop).map_err(Into::into))?;
        }
    }
    Ok(have_queues_changed)
}

/// Sets which addresses NORMAL remembers, and whether NORMAL forwards BPDUs.
pub(super) fn set_up_normal(bridge: &BridgeState, settings: &BridgeConfig) {
    let aging = settings.mac_aging_time.unwrap_or(MacTable::AGING_SECONDS);
    let capacity = settings.mac_table_size.unwrap_or(MacTable::CAPACITY);
    let mut tables = bridge.tables_mut();
    tables.limit_macs(aging, capacity);
    tables.set_forwards_reserved(settings.forward_bpdu);
}

/// Sets the VLANs of the ports, and the mirrors whose ports exist.
pub(super) fn set_vlans(bridge: &BridgeState, settings: &BridgeConfig) {
    let ports: HashMap<_, _> =
        bridge.ports().iter().map(|port| (port.name.clone(), port.number)).collect();
    let members = |name: &String| match settings.bond.get(name) {
        Some(bond) => bond.members.clone(),
        None => vec![name.clone()],
    };
    let numbers = |names: &[String]| -> Vec<PortNumber> {
        let names = names.iter().flat_map(members);
        names.filter_map(|name| ports.get(&name).copied()).collect()
    };
    let chosen = |mirror: &MirrorSettings, names: &[String]| match mirror.all {
        true => MirroredPorts::All,
        false => MirroredPorts::Some(numbers(names)),
    };
    let mirror = |mirror: &MirrorSettings| {
        let output = match (&mirror.output, mirror.output_vlan) {
            (Some(port), _) => {
                // The first existing member represents the bond.
                let names = members(port).into_iter().filter(|name| ports.contains_key(name));
                MirrorOutput::Port(*ports.get(&names.min()?)?)
            }
            (None, vlan) => MirrorOutput::Vlan(vlan?),
        };
        Some(Mirror {
            sources: chosen(mirror, &mirror.source),
            destinations: chosen(mirror, &mirror.destination),
            vlans: mirror.vlans.clone(),
            output,
            // As in Open vSwitch, 65,535 means that the mirror copies whole packets.
            snap_length: mirror.snap_length.filter(|length| *length < u16::MAX.into()),
        })
    };
    let mirrors = settings.mirror.values().filter_map(mirror).collect();
    let mut tables = bridge.tables_mut();
    let own = vlans_of(
        settings.vlan_mode,
        settings.tag,
        &settings.trunks,
        &settings.cvlans,
        settings.qinq_ethtype,
    );
    tables.set_port_vlans(PortNumber::LOCAL, own);
    for (name, port) in &settings.port {
        if let Some(number) = ports.get(name) {
            tables.set_port_vlans(*number, port.vlans());
        }
    }
    tables.set_mirrors(mirrors);
}

pub(super) fn set_up_tables(bridge: &BridgeState, settings: &BridgeConfig) {
    for number in 0..TABLES {
        let settings = settings.table.get(&number.to_string());
        let limit = settings.map(TableSettings::limit).unwrap_or_default();
        let name = settings.and_then(|settings| settings.name.as_deref());
        let mut tables = bridge.tables_mut();
        tables.limit_table(number, limit, bridge.clock.now_ms());
        tables.fix_table_name(number, name);
    }
}
