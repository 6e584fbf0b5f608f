use units::{Bytes, Rate, Span};

use super::addressing::{Addresses, Addressing, FlowRun, PortRange, Tuple};
use super::draws::Draws;
use super::packet::{PacketTemplate, Shape, compile, ports_of};
use crate::profile::{AddressesInMac, Ipv6Prefixes, Profile};
use crate::{Capture, Frequency, GenError};

#[derive(Debug)]
pub struct Plan {
    templates: Vec<PlannedTemplate>,
    draws: Draws,
    lanes: Vec<LaneAddresses>,
    vlans: Option<[u16; 2]>,
    addresses_in_mac: AddressesInMac,
    tagged: bool,
    notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneAddresses {
    pub source: [u8; 6],
    pub destination: [u8; 6],
    pub vlan: Option<u16>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOptions {
    pub addressing: Addressing,
    pub ipv6: bool,
    /// Whether every packet carries a [`Stamp`](super::Stamp).
    pub stamped: bool,
}

#[derive(Debug)]
pub(super) struct PlannedTemplate {
    pub(super) packets: Vec<PacketTemplate>,
    pub(super) flows: Frequency,
    addresses: Addresses,
}

impl Plan {
    /// Builds a plan. `lanes` are the ports in pairs; the clients use the first port of each pair.
    /// A single port serves clients and servers.
    pub fn new(
        profile: &Profile,
        captures: &[Capture],
        lanes: &[LaneAddresses],
        options: PlanOptions,
    ) -> Result<Self, GenError> {
        if lanes.is_empty() || (lanes.len() > 1 && !lanes.len().is_multiple_of(2)) {
            return Err(GenError::Usage(format!(
                "{} ports: give pairs of ports, clients first, or a single one",
                lanes.len()
            )));
        }
        let with_tag = lanes.iter().filter(|lane| lane.vlan.is_some()).count();
        if with_tag != 0 && with_tag != lanes.len() {
            return Err(GenError::Usage(
                "some ports have a `vlan` and others have none: give one to every port".to_owned(),
            ));
        }
        if with_tag != 0 && profile.vlans.is_some() {
            return Err(GenError::Usage(
                "both the profile and the ports name VLANs: remove one of them".to_owned(),
            ));
        }
        let none = Ipv6Prefixes { clients: [0; 6], servers: [0; 6] };
        let shape = Shape {
            tagged: with_tag != 0 || profile.vlans.is_some(),
            ipv6: options.ipv6.then(|| profile.ipv6.unwrap_or(none)),
            stamped: options.stamped,
        };
        let pairs = lanes.len().div_ceil(2);
        // Templates may share clients, so all templates reserve the same number of ports per flow.
        let each = profile.templates.iter().map(ports_of).max().unwrap_or(1);
        let mut notes = profile.notes.clone();
        let mut templates = Vec::with_capacity(profile.templates.len());
        for (template, capture) in profile.templates.iter().zip(captures) {
            let compiled = compile(capture, template, profile.shortest_gap, shape);
            let (packets, remarks) = compiled.map_err(|problem| GenError::Capture {
                file: units::foreign(&template.name).to_string(),
                problem,
            })?;
            notes.extend(remarks);
            let pools = (
                &profile.client_pools[template.client_pool],
                &profile.server_pools[template.server_pool],
            );
            let ports = PortRange::of(profile, template, each);
            let addresses = Addresses::new(template, pools, ports, options.addressing, pairs);
            if let Some(limit) = template.limit {
                let different = addresses.period().saturating_mul(pairs as u64);
                if u64::from(limit) > different {
                    notes.push(format!(
                        "{}: the limit of {limit} flows is more than the {different} combinations \
                         of addresses and ports",
                        template.name
                    ));
                }
            }
            templates.push(PlannedTemplate { packets, flows: template.flows, addresses });
        }
        Ok(Self {
            templates,
            draws: Draws::of(profile, pairs as u64),
            lanes: lanes.to_vec(),
            vlans: profile.vlans,
            addresses_in_mac: profile.addresses_in_mac,
            tagged: shape.tagged,
            notes,
        })
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub fn lanes(&self) -> &[LaneAddresses] {
        &self.lanes
    }

    pub fn longest(&self) -> usize {
        self.packets().map(PacketTemplate::len).max().unwrap_or(0)
    }

    pub fn is_tagged(&self) -> bool {
        self.tagged
    }

    /// Returns the packet rate in steady state, when flows end at the rate at which flows begin.
    pub fn packet_rate(&self, multiplier: f64) -> Frequency {
        let rate =
            |template: &PlannedTemplate| template.flows.events() * template.packets.len() as f64;
        Frequency::per_second(self.templates.iter().map(rate).sum::<f64>() * multiplier)
    }

    pub fn flow_rate(&self, multiplier: f64) -> Frequency {
        let flows = self.templates.iter().map(|template| template.flows.events());
        Frequency::per_second(flows.sum::<f64>() * multiplier)
    }

    /// Refuses a rate at which the plan sends nothing, or that needs too much memory.
    pub fn check(&self, multiplier: f64, duration: Span) -> Result<(), GenError> {
        let rate = self.packet_rate(1.0).events() * multiplier;
        if rate <= 0.0 {
            return Err(GenError::Usage(
                "nothing would be sent, because every `cps` is 0: raise one".to_owned(),
            ));
        }
        if rate > HIGHEST_RATE {
            return Err(GenError::Usage(format!(
                "{rate:.3e} packets a second are more than {HIGHEST_RATE:.0e}: lower -m or `cps`"
            )));
        }
        let active = |template: &PlannedTemplate| {
            let lasts: f64 = template.packets.iter().map(|packet| packet.gap.secs_f64()).sum();
            template.flows.events() * multiplier * lasts.min(duration.secs_f64())
        };
        let active: f64 = self.templates.iter().map(active).sum();
        if active > MOST_ACTIVE {
            return Err(GenError::Usage(format!(
                "{active:.0} flows would be open at once, more than {MOST_ACTIVE:.0}: lower -m or \
                 `cps`, or shorten the gaps"
            )));
        }
        Ok(())
    }

    /// Returns the bit rate of the frames, counted from the MAC addresses on.
    pub fn bit_rate(&self, multiplier: f64) -> Rate {
        let rate = |template: &PlannedTemplate| {
            let bytes: usize = template.packets.iter().map(PacketTemplate::len).sum();
            template.flows.events() * bytes as f64 * 8.0
        };
        let bits = self.templates.iter().map(rate).sum::<f64>() * multiplier;
        Rate::from_bits_per_second(bits as u64)
    }

    pub fn mean_size(&self) -> Bytes {
        let packets = self.packet_rate(1.0).events();
        let bits = self.bit_rate(1.0).bits_per_second() as f64;
        Bytes::new(if packets > 0.0 { (bits / 8.0 / packets).round() as u64 } else { 0 })
    }

    /// Returns the mean size of a packet on the wire, including check sequence, preamble and gap.
    pub fn mean_wire_size(&self) -> Bytes {
        Bytes::new(self.mean_size().count() + WIRE_OVERHEAD)
    }

    /// Returns the maximum number of clients of a template, and the maximum number of servers of a
    /// template.
    pub fn hosts(&self) -> (u64, u64) {
        let pairs = self.lanes.len().div_ceil(2) as u64;
        let most = |size: fn(&Addresses) -> u64| {
            self.templates.iter().map(|template| size(&template.addresses)).max().unwrap_or(0)
        };
        (most(Addresses::clients) * pairs, most(Addresses::servers) * pairs)
    }

    pub fn first_pair(&self) -> Option<(std::net::Ipv4Addr, std::net::Ipv4Addr)> {
        self.templates.first().map(|template| template.addresses.first_pair())
    }

    pub(super) fn templates(&self) -> &[PlannedTemplate] {
        &self.templates
    }

    fn packets(&self) -> impl Iterator<Item = &PacketTemplate> {
        self.templates.iter().flat_map(|template| &template.packets)
    }

    /// Returns at least one of the flows `flow`, `flow + step` and so on of a template.
    pub(super) fn flows(&self, template: usize, flow: u64, step: u64) -> FlowRun {
        let draw = |window, pair| self.draws.of_window(template, window, pair);
        let is_alone = self.draws.is_alone(template);
        self.templates[template].addresses.run((flow, step), is_alone, draw)
    }

    /// Writes a packet of a flow with the addresses of its lane. Returns the lane and the packet's
    /// length.
    #[inline]
    pub(super) fn write(
        &self,
        template: usize,
        packet: usize,
        (flow, tuple): (u64, &Tuple),
        buffer: &mut [u8],
    ) -> Option<(usize, usize)> {
        let packet = &self.templates[template].packets[packet];
        // As in TRex, the client's address decides the tag, and a second tag of 0 means no tag.
        let swapped = self.vlans.is_some_and(|[_, second]| second > 0 && tuple.client % 2 == 1);
        let side = usize::from(packet.from_client == swapped);
        let lane = match self.lanes.len() {
            1 => 0,
            _ => usize::from(tuple.pair) * 2 + side,
        };
        let len = packet.write(tuple, flow, buffer)?;
        let addresses = &self.lanes[lane];
        let (macs, rest) = buffer.split_first_chunk_mut::<12>()?;
        macs[..6].copy_from_slice(&addresses.destination);
        macs[6..].copy_from_slice(&addresses.source);
        if self.tagged {
            let tag = match self.vlans {
                Some(vlans) => vlans[usize::from(swapped)],
                None => addresses.vlan.unwrap_or(0),
            };
            rest[2..4].copy_from_slice(&tag.to_be_bytes());
        }
        match (self.addresses_in_mac, packet.from_client) {
            (AddressesInMac::None, _) | (AddressesInMac::Clients, false) => {}
            (AddressesInMac::Clients, true) => {
                macs[8..].copy_from_slice(&tuple.client.to_be_bytes());
            }
            (AddressesInMac::All, true) => {
                macs[8..].copy_from_slice(&tuple.client.to_be_bytes());
                macs[2..6].copy_from_slice(&tuple.server.to_be_bytes());
            }
            (AddressesInMac::All, false) => {
                macs[8..].copy_from_slice(&tuple.server.to_be_bytes());
                macs[2..6].copy_from_slice(&tuple.client.to_be_bytes());
            }
        }
        Some((lane, len))
    }
}

/// Number of bytes that a frame takes on Ethernet but not in memory: check sequence, preamble and
/// gap.
const WIRE_OVERHEAD: u64 = 24;
/// Maximum rate in packets per second.
const HIGHEST_RATE: f64 = 1e12;
/// Maximum number of concurrent flows; a flow takes 48 bytes.
const MOST_ACTIVE: f64 = 16e6;
