//! Port-status messages.

use flow::request::PortDescription;

use super::Version;
use super::message::{Header, begin_message, end_message};
use super::octets::Put;
use super::port::encode_port;

/// A change of the ports of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PortChange {
    Add = 0,
    Delete = 1,
    Modify = 2,
}

/// A changed port, for controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStatus {
    pub change: PortChange,
    pub port: PortDescription,
    /// The port before a modification. A version in whose messages both states look the same gets
    /// no message.
    pub former: Option<PortDescription>,
}

impl PortStatus {
    /// Builds the messages about a new port. As in Open vSwitch, the port becomes live in a second
    /// message.
    #[must_use]
    pub fn of_added(port: &PortDescription) -> Vec<Self> {
        let added = PortDescription { state: port.state & !LIVE, ..port.clone() };
        let modified = Self::of_modified(&added, port);
        let addition = Self { change: PortChange::Add, port: added, former: None };
        std::iter::once(addition).chain(modified).collect()
    }

    #[must_use]
    pub fn of_deleted(port: PortDescription) -> Self {
        Self { change: PortChange::Delete, port, former: None }
    }

    /// Builds the messages about a modified port. As in Open vSwitch, the first message has the new
    /// configuration, and clears the flag "live" of a port that goes down. The second message has
    /// the link's state.
    #[must_use]
    pub fn of_modified(former: &PortDescription, port: &PortDescription) -> Vec<Self> {
        let state = former.state & (port.state | !LIVE);
        let between = PortDescription { state, ..port.clone() };
        let steps = [(former, &between), (&between, port)].into_iter();
        let visible = steps.filter(|(former, port)| former != port);
        let modified = visible.map(|(former, port)| Self {
            change: PortChange::Modify,
            port: port.clone(),
            former: Some(former.clone()),
        });
        modified.collect()
    }

    /// Whether the message is about a change of the port's configuration.
    pub(super) fn is_of_config(&self) -> bool {
        self.former.as_ref().is_some_and(|former| former.config != self.port.config)
    }

    /// Writes the message, unless the port looks unchanged in the version.
    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let start = out.len();
        encode(&self.port, self.change, version, out);
        if let Some(former) = &self.former {
            let mut before = Vec::new();
            encode(former, self.change, version, &mut before);
            if out[start..] == before {
                out.truncate(start);
            }
        }
    }
}

fn encode(port: &PortDescription, change: PortChange, version: Version, out: &mut Vec<u8>) {
    let start = begin_message(Header { version, kind: PORT_STATUS, xid: 0 }, out);
    out.put_u8(change as u8);
    out.put_zeros(7);
    encode_port(port, version, out);
    end_message(start, out);
}

const PORT_STATUS: u8 = 12;
/// OFPPS_LIVE, which OpenFlow 1.0 does not have.
const LIVE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::port_number::PortNumber;

    fn port(config: u32, state: u32) -> PortDescription {
        PortDescription {
            number: PortNumber(1),
            hardware_address: [0; 6],
            name: "p1".into(),
            config,
            state,
            current_speed_kbit: 0,
            max_speed_kbit: 0,
        }
    }

    /// Returns the change, the configuration and the state from each message of a version.
    fn told(statuses: &[PortStatus], version: Version) -> Vec<(u8, u8, u8)> {
        let mut told = Vec::new();
        for status in statuses {
            let mut out = Vec::new();
            status.encode(version, &mut out);
            // Offset of the configuration, which follows the header, the change, the number, the
            // address and the name.
            let config = if version == Version::V10 { 16 + 24 } else { 16 + 32 };
            if !out.is_empty() {
                told.push((out[8], out[config + 3], out[config + 7]));
            }
        }
        told
    }

    const ADD: u8 = 0;
    const MODIFY: u8 = 2;
    const DOWN: u32 = 1;
    const NO_FLOOD: u32 = 1 << 4;

    #[test]
    fn a_new_port_becomes_live_in_a_second_port_status() {
        let statuses = PortStatus::of_added(&port(0, 4));
        assert_eq!(told(&statuses, Version::V12), [(ADD, 0, 0), (MODIFY, 0, 4)]);
        // OpenFlow 1.0 has no flag "live", so OpenFlow 1.0 peers get one message.
        assert_eq!(told(&statuses, Version::V10), [(ADD, 0, 0)]);
        let statuses = PortStatus::of_added(&port(0, 1));
        assert_eq!(told(&statuses, Version::V12), [(ADD, 0, 1)]);
    }

    #[test]
    fn the_port_status_of_the_configuration_precedes_the_port_status_of_the_link() {
        let down = PortStatus::of_modified(&port(0, 4), &port(DOWN, 1));
        assert_eq!(told(&down, Version::V14), [(MODIFY, 1, 0), (MODIFY, 1, 1)]);
        assert_eq!(told(&down, Version::V10), [(MODIFY, 1, 0), (MODIFY, 1, 1)]);
        let up = PortStatus::of_modified(&port(DOWN, 1), &port(0, 4));
        assert_eq!(told(&up, Version::V14), [(MODIFY, 0, 1), (MODIFY, 0, 4)]);
        let both = |statuses: &[PortStatus]| {
            statuses.iter().map(PortStatus::is_of_config).collect::<Vec<_>>()
        };
        assert_eq!((both(&down), both(&up)), (vec![true, false], vec![true, false]));
    }

    #[test]
    fn a_port_status_reports_link_down_and_link_up() {
        let lost = PortStatus::of_modified(&port(0, 4), &port(0, 1));
        assert_eq!(told(&lost, Version::V13), [(MODIFY, 0, 0), (MODIFY, 0, 1)]);
        assert_eq!(told(&lost, Version::V10), [(MODIFY, 0, 1)]);
        let back = PortStatus::of_modified(&port(0, 1), &port(0, 4));
        assert_eq!(told(&back, Version::V13), [(MODIFY, 0, 4)]);
    }

    #[test]
    fn a_version_without_the_changed_bit_gets_no_port_status() {
        let flood = PortStatus::of_modified(&port(0, 4), &port(NO_FLOOD, 4));
        assert_eq!(told(&flood, Version::V10), [(MODIFY, 16, 0)]);
        assert!(told(&flood, Version::V13).is_empty());
        assert!(PortStatus::of_modified(&port(0, 4), &port(0, 4)).is_empty());
    }
}
