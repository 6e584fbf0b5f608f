//! Network interfaces of the calling thread's namespace, by rtnetlink. `/sys/class/net` is no
//! alternative, because this directory shows the namespace in which /sys was mounted.

use std::collections::BTreeMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64};
use netlink_sys::protocols::NETLINK_ROUTE;
use units::{Bytes, Time};

use crate::netlink::RouteDump;
use crate::{ProbeError, clock, netlink};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceSnapshot {
    pub taken: Time,
    pub interfaces: BTreeMap<String, Interface>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    pub index: u32,
    /// `veth`, `bridge`, `tun` and so on; `None` for hardware and `lo`.
    pub kind: Option<String>,
    pub carrier_changes: Option<u64>,
    pub enabled: bool,
    pub state: OperationalState,
    pub mtu: Option<Bytes>,
    pub mac: Option<[u8; 6]>,
    pub qdisc: Option<String>,
    pub transmit_queues: Option<u32>,
    pub receive_queues: Option<u32>,
    pub counters: Counters,
    pub link_errors: LinkErrors,
}

/// Frames that were received with a defect, and collisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkErrors {
    pub frame: u64,
    pub overrun: u64,
    pub crc: u64,
    pub collisions: u64,
}

/// RFC 2863, ifOperStatus. Loopback and TUN stay `Unknown` while they work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OperationalState {
    #[default]
    Unknown,
    NotPresent,
    Down,
    LowerLayerDown,
    Testing,
    Dormant,
    Up,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub received: Direction,
    pub sent: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Direction {
    pub bytes: Bytes,
    pub packets: u64,
    pub errors: u64,
    pub drops: u64,
}

impl InterfaceSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let mut snapshot: Self = netlink::read_dump()?;
        snapshot.taken = clock::now();
        Ok(snapshot)
    }

    pub fn parse(datagram: &[u8]) -> Result<Self, ProbeError> {
        netlink::parse_dump(datagram)
    }

    pub fn get(&self, name: &str) -> Result<&Interface, ProbeError> {
        self.interfaces.get(name).ok_or_else(|| no_such(name))
    }

    /// Returns the name of the interface with this index, which routes and queues use.
    pub fn name_of(&self, index: u32) -> Option<&str> {
        self.interfaces
            .iter()
            .find(|(_, interface)| interface.index == index)
            .map(|(name, _)| name.as_str())
    }
}

impl RouteDump for InterfaceSnapshot {
    const WHAT: &str = "interfaces (RTM_GETLINK)";

    fn request() -> RouteNetlinkMessage {
        RouteNetlinkMessage::GetLink(LinkMessage::default())
    }

    fn add(&mut self, answer: RouteNetlinkMessage) {
        if let RouteNetlinkMessage::NewLink(message) = answer {
            self.interfaces.extend(Interface::of(message));
        }
    }
}

impl Counters {
    fn of(stats: &Stats64) -> Self {
        Self {
            received: Direction {
                bytes: Bytes::new(stats.rx_bytes),
                packets: stats.rx_packets,
                errors: stats.rx_errors,
                // As in /proc/net/dev, packets that a card missed because it had no free buffer are
                // drops.
                drops: stats.rx_dropped.saturating_add(stats.rx_missed_errors),
            },
            sent: Direction {
                bytes: Bytes::new(stats.tx_bytes),
                packets: stats.tx_packets,
                errors: stats.tx_errors,
                drops: stats.tx_dropped,
            },
        }
    }
}

impl Interface {
    pub fn read(name: &str) -> Result<Self, ProbeError> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let what = "an interface (RTM_GETLINK)";
        let answer = netlink::ask(NETLINK_ROUTE, what, RouteNetlinkMessage::GetLink(request))?;
        let found = match answer {
            Some(RouteNetlinkMessage::NewLink(message)) => Self::of(message),
            _ => None,
        };
        found.map(|(_, interface)| interface).ok_or_else(|| no_such(name))
    }

    fn of(message: LinkMessage) -> Option<(String, Self)> {
        let mut name = None;
        let mut interface = Self {
            index: message.header.index,
            enabled: message.header.flags.contains(LinkFlags::Up),
            ..Self::default()
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(found) => name = Some(found),
                LinkAttribute::Mtu(mtu) => interface.mtu = Some(Bytes::new(mtu.into())),
                LinkAttribute::Address(address) => interface.mac = address.try_into().ok(),
                LinkAttribute::OperState(state) => interface.state = state.into(),
                LinkAttribute::CarrierChanges(count) => {
                    interface.carrier_changes = Some(count.into());
                }
                LinkAttribute::Qdisc(qdisc) => interface.qdisc = Some(qdisc),
                LinkAttribute::NumTxQueues(count) => interface.transmit_queues = Some(count),
                LinkAttribute::NumRxQueues(count) => interface.receive_queues = Some(count),
                LinkAttribute::Stats64(stats) => {
                    interface.counters = Counters::of(&stats);
                    interface.link_errors = LinkErrors {
                        frame: stats.rx_frame_errors,
                        overrun: stats.rx_over_errors,
                        crc: stats.rx_crc_errors,
                        collisions: stats.collisions,
                    };
                }
                LinkAttribute::LinkInfo(facts) => {
                    interface.kind = facts.into_iter().find_map(|fact| match fact {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        Some((name?, interface))
    }
}

fn no_such(name: &str) -> ProbeError {
    ProbeError::NotFound {
        what: format!("interface {name:?}"),
        hint: "see `ip link` in the same network namespace",
    }
}

impl From<State> for OperationalState {
    fn from(state: State) -> Self {
        match state {
            State::NotPresent => Self::NotPresent,
            State::Down => Self::Down,
            State::LowerLayerDown => Self::LowerLayerDown,
            State::Testing => Self::Testing,
            State::Dormant => Self::Dormant,
            State::Up => Self::Up,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_properties_are_parsed() {
        let mut message = LinkMessage::default();
        message.header.index = 3;
        let mut stats = Stats64::default();
        stats.rx_bytes = 7;
        message.attributes = vec![
            LinkAttribute::IfName("a".to_owned()),
            LinkAttribute::Mtu(1500),
            LinkAttribute::Address(vec![1, 2, 3, 4, 5, 6]),
            LinkAttribute::OperState(State::Up),
            LinkAttribute::Stats64(stats),
        ];
        let interfaces = Interface::of(message).into_iter().collect();
        let snapshot = InterfaceSnapshot { taken: Time::ZERO, interfaces };
        let interface = snapshot.get("a").unwrap();
        assert_eq!(interface.mac, Some([1, 2, 3, 4, 5, 6]));
        assert_eq!(interface.mtu, Some(Bytes::new(1500)));
        assert_eq!(interface.state, OperationalState::Up);
        assert_eq!(interface.counters.received.bytes, Bytes::new(7));
        assert_eq!(snapshot.name_of(3), Some("a"));
        let missing = snapshot.get("b").unwrap_err().to_string();
        assert!(missing.contains("\"b\""), "{missing}");
    }

    #[test]
    fn packets_that_a_network_card_missed_count_as_drops() {
        let mut stats = Stats64::default();
        (stats.rx_dropped, stats.rx_missed_errors) = (3, 4);
        assert_eq!(Counters::of(&stats).received.drops, 7);
    }

    #[test]
    fn the_loopback_interface_of_this_machine_is_read() {
        let snapshot = InterfaceSnapshot::read().unwrap();
        let loopback = snapshot.get("lo").unwrap();
        assert!(loopback.mtu.is_some());
        assert_eq!(Interface::read("lo").unwrap().index, loopback.index);
        assert!(Interface::read("no-such-name").is_err());
    }
}
