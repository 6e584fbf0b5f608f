use std::collections::HashMap;

use wire::headers::{TCP, UDP, word};
use wire::{Layout, Network, Transport};

use crate::profile::{Plugin, Template};

/// The connections of a capture in the order of their first packets, and the client of each.
#[derive(Debug)]
pub(super) struct Connections<'a> {
    /// True for a connection that the server begins (`flows_dirs`).
    directions: &'a [bool],
    is_dhcp: bool,
    known: HashMap<(u8, End, End), Known>,
    first: Option<(End, End)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) connection: usize,
    pub(super) from_client: bool,
    /// The client's port; 0 if the packets have no ports.
    pub(super) client_port: u16,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    number: usize,
    client: End,
}

/// The address and the port of an endpoint. An IPv4 address is padded with zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct End {
    address: [u8; 16],
    port: u16,
}

impl<'a> Connections<'a> {
    pub(super) fn of(template: &'a Template) -> Self {
        Self {
            directions: &template.directions,
            is_dhcp: template.plugin == Some(Plugin::Dhcp),
            known: HashMap::new(),
            first: None,
        }
    }

    pub(super) fn see(&mut self, frame: &[u8], layout: &Layout) -> Result<Seen, String> {
        let (protocol, source, destination) =
            ends(frame, layout).ok_or("a packet's addresses are cut off")?;
        let key = (protocol, source.min(destination), source.max(destination));
        let known = match self.known.get(&key) {
            Some(known) => *known,
            None => {
                let number = self.known.len();
                let server_begins = self.server_begins(number, source, destination)?;
                let client = if server_begins { destination } else { source };
                let server = if server_begins { source } else { destination };
                self.first.get_or_insert((client, server));
                *self.known.entry(key).or_insert(Known { number, client })
            }
        };
        let from_client = source == known.client;
        Ok(Seen {
            connection: known.number,
            from_client,
            client_port: if from_client { source.port } else { destination.port },
        })
    }

    /// Whether the server begins connection `number`. In later connections, a host keeps its role
    /// from the first connection. If a host is not in the first connection, the order of the
    /// addresses decides its role, as in TRex.
    fn server_begins(&self, number: usize, source: End, destination: End) -> Result<bool, String> {
        if let Some(direction) = self.directions.get(number) {
            return Ok(*direction);
        }
        if !self.directions.is_empty() {
            return Err(format!(
                "`flows_dirs` has {} directions, and the capture more connections",
                self.directions.len()
            ));
        }
        let Some((client, server)) = self.first else { return Ok(false) };
        if self.is_dhcp {
            // A broadcast address belongs to neither endpoint.
            return Ok(number == 1);
        }
        let (from, to) = (source.address, destination.address);
        let (client, server) = (client.address, server.address);
        Ok(match client == server {
            true => false,
            false if from == client || to == server => false,
            false if from == server || to == client => true,
            false => (from < to) != (client < server),
        })
    }
}

fn ends(frame: &[u8], layout: &Layout) -> Option<(u8, End, End)> {
    let at = layout.network_offset;
    let (sources, len) = match layout.network {
        Network::Ipv4 => (at + 12, 4),
        _ => (at + 8, 16),
    };
    let address = |start: usize| {
        let mut address = [0; 16];
        address[..len].copy_from_slice(frame.get(start..start + len)?);
        Some(address)
    };
    let protocol = match layout.transport {
        Transport::Tcp { .. } => TCP,
        Transport::Udp => UDP,
        _ => 0,
    };
    let port = |place: usize| match protocol {
        0 => Some(0),
        _ => word(frame, layout.transport_offset + place),
    };
    let source = End { address: address(sources)?, port: port(0)? };
    let destination = End { address: address(sources + len)?, port: port(2)? };
    Some((protocol, source, destination))
}
