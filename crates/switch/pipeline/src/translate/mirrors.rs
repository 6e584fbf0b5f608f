//! Copies for mirrors, and outputs with the tag of a VLAN.

use flow::action::{Action, Mirroring};
use flow::port_number::PortNumber;
use flow::{Field, word};

use super::Way;
use super::fields::PRESENT;
use super::vlan::{OuterTag, VLAN};
use crate::mirror::{Mirror, MirrorOutput, MirroredPorts};
use crate::ports::BridgePort;
use crate::vlans::{PacketVlan, PortVlans, ServiceTag, VlanMode};

impl Way<'_> {
    /// Sends copies of a received packet. A packet without an input port has no mirrors.
    pub(super) fn mirror_received(&mut self, port: PortNumber) {
        if self.tables.port_set().port(port).is_some() {
            self.mirror(port, false, |mirror| &mirror.sources);
        }
    }

    /// Makes mirrors copy the packet again after an action has changed it, as in Open vSwitch.
    pub(super) fn forget_mirrors(&mut self, action: &Action) {
        if self.mirrored == 0 {
            return;
        }
        let changes = match action {
            Action::SetField { field, .. } => self.changes(*field),
            Action::Load { destination, .. } => self.changes(destination.field),
            _ => {
                let row = action.row();
                match (row.mirroring, row.requires, row.writes) {
                    (Mirroring::Again, ..) => true,
                    (Mirroring::IfWritten, [], Some(field)) => self.changes(field),
                    (Mirroring::IfWritten, protocols, _) => {
                        protocols.iter().any(|protocol| self.has(*protocol))
                    }
                    (Mirroring::Unchanged, ..) => false,
                }
            }
        };
        if changes {
            self.mirrored = 0;
        }
    }

    /// Whether writing the field changes the packet: the packet has the field, and the field is not
    /// metadata.
    fn changes(&mut self, field: Field) -> bool {
        usize::from(field.place().word) >= word::ETH_SRC && self.has(field.prerequisite())
    }

    /// Sends copies of a packet that the port has sent.
    pub(super) fn mirror_sent(&mut self, port: PortNumber) {
        self.mirror(port, true, |mirror| &mirror.destinations);
    }

    /// Sends copies to the mirrors that select `port` and have not copied the packet yet.
    fn mirror(&mut self, port: PortNumber, is_sent: bool, of: impl Fn(&Mirror) -> &MirroredPorts) {
        let tables = self.tables;
        let mirrors = &tables.port_set().mirrors;
        for (number, mirror) in mirrors.iter().enumerate() {
            if self.mirrored & 1 << number != 0 || !of(mirror).takes(port) {
                continue;
            }
            let in_port = self.in_port();
            // A sent packet already has the tag for its output port, so the VLAN is read as if the
            // packet came from that port.
            let vlan = if is_sent { self.vlan_sent_by(port) } else { self.vlan_from(port) };
            let Some(vlan) = vlan else { continue };
            if !mirror.takes_vlan(vlan.id) || tables.port_set().is_output_of(mirror, in_port) {
                continue;
            }
            // As in Open vSwitch, an output gets only one copy, even if several mirrors have this
            // output.
            for (twin, other) in mirrors.iter().enumerate() {
                if other.output == mirror.output {
                    self.mirrored |= 1 << twin;
                }
            }
            match mirror.output {
                MirrorOutput::Port(output) => self.emit_in(vlan, &[output], mirror.snap_length),
                // Frames with reserved addresses are not copied, because a trunk could carry the
                // copies to another switch.
                MirrorOutput::Vlan(output)
                    if output != vlan.id && !self.is_destination_reserved() =>
                {
                    // As in Open vSwitch, the port from which the packet came also gets a copy.
                    let vlan = PacketVlan { id: output, ..vlan };
                    let ports = self.ports_of(vlan, |_| true);
                    self.emit_in(vlan, &ports, mirror.snap_length);
                }
                MirrorOutput::Vlan(_) => {}
            }
        }
    }

    /// Returns the VLAN of the packet as it is now, as if the packet came from the port.
    pub(super) fn vlan_from(&mut self, port: PortNumber) -> Option<PacketVlan> {
        let tag = self.is_tagged().then(|| self.read_field(Field::DlVlan) as u16);
        let vlans = self.tables.port_set().vlans(port);
        let id = match vlans {
            Some(vlans) => vlans.of_received(tag)?,
            None => tag.unwrap_or(0),
        };
        Some(PacketVlan { id, service: vlans.and_then(PortVlans::missing_tag) })
    }

    /// Returns the VLAN of a packet that the port has sent.
    fn vlan_sent_by(&mut self, port: PortNumber) -> Option<PacketVlan> {
        let vlans = self.tables.port_set().vlans(port);
        match vlans.and_then(|vlans| Some((vlans.tag, vlans.missing_tag()?))) {
            // The translation does not know the customer's tag under a removed tag.
            Some((id, service)) => Some(PacketVlan { id, service: Some(service) }),
            None => self.vlan_from(port),
        }
    }

    /// Whether the port carries the packet of this VLAN.
    pub(super) fn is_carried(&mut self, vlan: PacketVlan, port: PortNumber) -> bool {
        let tables = self.tables;
        let Some(vlans) = tables.port_set().vlans(port) else { return true };
        vlans.carries(vlan.id)
            && match vlans.mode {
                VlanMode::Dot1qTunnel if !vlans.cvlans.is_empty() => {
                    vlans.admits_customer(self.customer_vlan(vlan))
                }
                // As in Open vSwitch, an access port sends no frames with customers' tags.
                VlanMode::Access if vlan.service.is_some() => self.customer_vlan(vlan) == 0,
                _ => true,
            }
    }

    /// Returns the VLAN of the customer's outer tag; 0 if the customer's frame has no tag.
    fn customer_vlan(&mut self, vlan: PacketVlan) -> u16 {
        match vlan.service {
            _ if !self.is_tagged() => 0,
            Some(_) => self.read_field(Field::DlVlan) as u16,
            None => self.inner_vlan(),
        }
    }

    /// Returns the ports that carry the VLAN, the local port first as in Open vSwitch. A bond is
    /// represented by one port.
    pub(super) fn ports_of(
        &mut self,
        vlan: PacketVlan,
        is_wanted: impl Fn(&BridgePort) -> bool,
    ) -> Vec<PortNumber> {
        let tables = self.tables;
        let set = tables.port_set();
        let mut ports: Vec<_> = set
            .iter()
            .filter(|port| is_wanted(port))
            .map(|port| port.description.number)
            .filter(|number| set.bundle(*number) == *number && !set.is_mirror_output(*number))
            .filter(|number| self.is_carried(vlan, *number))
            .collect();
        ports.sort_by_key(|number| *number != PortNumber::LOCAL);
        ports
    }

    /// Outputs to ports, each with the tag that its VLAN settings require. Restores the packet
    /// afterwards.
    pub(super) fn emit_in(
        &mut self,
        vlan: PacketVlan,
        ports: &[PortNumber],
        truncate: Option<u32>,
    ) {
        if let Some(service) = vlan.service {
            return self.emit_from_tunnel(vlan.id, service, ports, truncate);
        }
        let vlan = vlan.id;
        let former = self.is_tagged().then(|| self.read_field(Field::DlVlan) as u16);
        let mut whole: Option<OuterTag> = None;
        let mut current = former;
        for port in ports {
            let wanted = match self.tables.port_set().vlans(*port) {
                Some(vlans) => vlans.tag_of_sent(vlan),
                // A tag of VLAN 0 carries only a priority, so the tag stays.
                None if vlan == 0 && former == Some(0) => former,
                None => (vlan != 0).then_some(vlan),
            };
            if wanted != current {
                if let (Some(former), None, None) = (former, wanted, whole) {
                    let mut tag = self.outer_tag();
                    // For an earlier port, the tag may have changed to another VLAN.
                    tag.tci = tag.tci & !VLAN | former;
                    whole = Some(tag);
                }
                match (wanted, whole) {
                    // The restored tag gets its former type and priority.
                    (Some(vlan), Some(mut tag)) => {
                        tag.tci = tag.tci & !VLAN | vlan;
                        self.put_tag(tag, current.is_none());
                    }
                    _ => self.set_tag(wanted),
                }
                current = wanted;
            }
            if let Some(sender) = self.sender(*port, vlan) {
                self.emit(sender, truncate);
            }
        }
        if current != former {
            match whole {
                Some(tag) => self.put_tag(tag, current.is_none()),
                None => self.set_tag(former),
            }
        }
    }

    /// Like [`Way::emit_in`], for a packet from a dot1q-tunnel port. The service tag goes on top of
    /// the customer's tags.
    fn emit_from_tunnel(
        &mut self,
        vlan: u16,
        service: ServiceTag,
        ports: &[PortNumber],
        truncate: Option<u32>,
    ) {
        let mut has_tag = false;
        for port in ports {
            let wanted = match self.tables.port_set().vlans(*port) {
                Some(vlans) => vlans.tag_of_sent(vlan),
                None => (vlan != 0).then_some(vlan),
            };
            match (has_tag, wanted) {
                (false, Some(vlan)) => {
                    self.push_vlan(service.ether_type());
                    self.store(Field::VlanTci, vlan.into(), VLAN.into());
                }
                (true, None) => self.pop_vlan(),
                _ => {}
            }
            has_tag = wanted.is_some();
            if let Some(sender) = self.sender(*port, vlan) {
                self.emit(sender, truncate);
            }
        }
        if has_tag {
            self.pop_vlan();
        }
    }

    fn set_tag(&mut self, vlan: Option<u16>) {
        match vlan {
            Some(vlan) => self.write_tci(PRESENT | vlan, PRESENT | VLAN),
            None => self.write_tci(0, PRESENT),
        }
    }
}
