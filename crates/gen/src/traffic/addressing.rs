use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::GenError;
use crate::profile::{Distribution, Pool, Template};

/// The order in which consecutive flows use the addresses of their pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// Client and server advance together, as in TRex: the least common multiple of both pools
    /// pairs, then the client's port moves on.
    #[default]
    Lockstep,
    /// The server advances; the client stays until every server was used.
    Destination,
}

impl FromStr for Addressing {
    type Err = GenError;

    fn from_str(text: &str) -> Result<Self, GenError> {
        match text {
            "lockstep" => Ok(Self::Lockstep),
            "destination" => Ok(Self::Destination),
            _ => Err(GenError::Usage(format!(
                "`{}` is no order of addresses{}: lockstep or destination",
                units::foreign(text),
                crate::profile::nearest(text, ["lockstep", "destination"])
            ))),
        }
    }
}

/// The addresses of one template's flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    clients: Range,
    servers: Range,
    addressing: Addressing,
    distribution: Distribution,
    window: u64,
    limit: Option<u64>,
    pairs: u64,
    /// Every template has its own remainder of ports, so that flows of two templates never share a
    /// five-tuple.
    templates: u64,
    template: u64,
    ports: u64,
    keeps_port: bool,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    first: u32,
    size: u64,
    mask: u32,
}

/// The addresses of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tuple {
    pub(super) client: u32,
    pub(super) server: u32,
    pub(super) client_port: u16,
    /// The pair of ports that carries the flow.
    pub(super) pair: u32,
    /// The flow's number within its pair.
    pub(super) number: u64,
}

impl Addresses {
    pub(super) fn new(
        template: &Template,
        (number, count): (usize, usize),
        (clients, servers): (&Pool, &Pool),
        addressing: Addressing,
        pairs: usize,
    ) -> Self {
        let mut servers = Range::of(servers);
        if let Some(only) = template.only_server {
            servers = Range { first: only.into(), size: 1, mask: servers.mask };
        }
        let templates = count.max(1) as u64;
        Self {
            clients: Range::of(clients),
            servers,
            addressing,
            distribution: clients.distribution,
            window: u64::from(template.window.max(1)),
            limit: template.limit.map(u64::from),
            pairs: pairs.max(1) as u64,
            templates,
            template: number as u64,
            ports: (PORTS / templates).max(1),
            keeps_port: template.keep_source_port,
        }
    }

    #[inline]
    pub(super) fn of(&self, flow: u64) -> Tuple {
        let flow = match self.limit {
            Some(limit) => flow % limit,
            None => flow,
        };
        let (number, pair) = match self.pairs {
            1 => (flow, 0),
            pairs => (flow / pairs, flow % pairs),
        };
        let (group, within) = match self.window {
            1 => (number, 0),
            window => (number / window, number % window),
        };
        let (clients, servers) = (self.clients.size, self.servers.size);
        let (client, server, round) = match (self.distribution, self.addressing) {
            (Distribution::Sequential, Addressing::Lockstep) => {
                // Templates that share pools begin with different addresses, as in TRex.
                let place = group + self.template;
                (place % clients, place % servers, group / clients)
            }
            (Distribution::Sequential, Addressing::Destination) => {
                let above = group / servers;
                (above % clients, group % servers, above / clients)
            }
            (Distribution::Random, _) => {
                let random = mix(group ^ (self.template << 48));
                (random % clients, mix(random) % servers, group)
            }
            (Distribution::Normal, _) => {
                let random = mix(group ^ (self.template << 48));
                (normal(random, clients), normal(mix(random), servers), group)
            }
        };
        let index = (round * self.window + within) % self.ports;
        let client_port = FIRST_PORT + index * self.templates + self.template;
        let pair = pair as u32;
        Tuple {
            client: self.clients.address(client, pair),
            server: self.servers.address(server, pair),
            client_port: client_port as u16,
            pair,
            number,
        }
    }

    /// The number of flows of one pair after which addresses and ports repeat, if addresses are
    /// sequential.
    pub(super) fn period(&self) -> u64 {
        let (clients, servers) = (self.clients.size, self.servers.size);
        let ports = if self.keeps_port { 1 } else { self.ports };
        match self.addressing {
            Addressing::Lockstep => {
                // The port moves on each time all clients were used; a window uses several ports.
                let rounds = (ports / self.window.min(ports)).max(1);
                lcm(clients.saturating_mul(rounds), servers).saturating_mul(self.window.min(ports))
            }
            Addressing::Destination => clients.saturating_mul(servers).saturating_mul(ports),
        }
    }

    pub(super) fn clients(&self) -> u64 {
        self.clients.size
    }

    pub(super) fn servers(&self) -> u64 {
        self.servers.size
    }

    pub(super) fn first_pair(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.clients.first.into(), self.servers.first.into())
    }
}

impl Range {
    fn of(pool: &Pool) -> Self {
        Self { first: pool.first.into(), size: pool.size(), mask: pool.dual_port_mask }
    }

    #[inline]
    fn address(&self, index: u64, pair: u32) -> u32 {
        self.first.wrapping_add(index as u32).wrapping_add(pair.wrapping_mul(self.mask))
    }
}

/// The finaliser of SplitMix64.
#[inline]
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// An index around the middle: the sum of four uniform numbers.
fn normal(random: u64, size: u64) -> u64 {
    let sum: u64 = (0..4).map(|part| (random >> (16 * part)) & 0xffff).sum();
    ((u128::from(sum) * u128::from(size)) / (4 * 0x1_0000)) as u64
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

/// TRex's range of client ports.
const FIRST_PORT: u64 = 1024;
const PORTS: u64 = 64_000 - FIRST_PORT;
