use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::GenError;
use crate::profile::{Distribution, Pool, Profile, Template};

use super::draws::Draw;

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
    ports: PortRange,
    keeps_port: bool,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    first: u32,
    size: u64,
    mask: u32,
}

/// The division of a client's ports among the flows that it may have at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortRange {
    /// The ports that a flow takes: more than one if its capture has further connections.
    each: u64,
    /// The flows that have ports of their own, of one client.
    slots: u64,
    /// The most flows that one draw of a client may have.
    window: u64,
    /// Pools with addresses in common use remainders of their own, so that their flows never share
    /// a five-tuple.
    remainders: u64,
    remainder: u64,
}

/// The addresses of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tuple {
    pub(super) client: u32,
    pub(super) server: u32,
    /// The first port of the client, if the flow has several.
    pub(super) client_port: u16,
    /// The pair of ports that carries the flow.
    pub(super) pair: u16,
}

impl Addresses {
    pub(super) fn new(
        template: &Template,
        (clients, servers): (&Pool, &Pool),
        ports: PortRange,
        addressing: Addressing,
        pairs: usize,
    ) -> Self {
        let mut servers = Range::of(servers);
        if let Some(only) = template.only_server {
            servers = Range { first: only.into(), size: 1, mask: servers.mask };
        }
        Self {
            clients: Range::of(clients),
            servers,
            addressing,
            distribution: clients.distribution,
            window: u64::from(template.window.max(1)),
            limit: template.limit.map(u64::from),
            pairs: pairs.max(1) as u64,
            ports,
            keeps_port: template.keep_source_port,
        }
    }

    /// The addresses of a flow. `draw` tells the draw of a window of a pair of ports.
    #[inline]
    pub(super) fn of(&self, flow: u64, draw: impl FnOnce(u64, u64) -> Draw) -> Tuple {
        let flow = match self.limit {
            Some(limit) => flow % limit,
            None => flow,
        };
        let (number, pair) = match self.pairs {
            1 => (flow, 0),
            pairs => (flow / pairs, flow % pairs),
        };
        let (window, within) = match self.window {
            1 => (number, 0),
            window => (number / window, number % window),
        };
        let draw = draw(window, pair);
        let (clients, servers) = (self.clients.size, self.servers.size);
        let (client, server, round) = match (self.distribution, self.addressing) {
            (Distribution::Sequential, Addressing::Lockstep) => {
                (draw.client % clients, draw.server % servers, draw.client / clients)
            }
            (Distribution::Sequential, Addressing::Destination) => {
                let above = draw.server / servers;
                (above % clients, draw.server % servers, above / clients)
            }
            (Distribution::Random, _) => {
                let random = mix(draw.client);
                (random % clients, mix(mix(draw.server)) % servers, draw.client)
            }
            (Distribution::Normal, _) => {
                let random = mix(draw.client);
                (normal(random, clients), normal(mix(mix(draw.server)), servers), draw.client)
            }
        };
        let pair = pair as u32;
        Tuple {
            client: self.clients.address(client, pair),
            server: self.servers.address(server, pair),
            client_port: self.ports.first(round, within),
            pair: pair as u16,
        }
    }

    /// The number of flows of one pair after which addresses and ports repeat, if addresses are
    /// sequential and no other template draws from the same pools.
    pub(super) fn period(&self) -> u64 {
        let (clients, servers) = (self.clients.size, self.servers.size);
        // The port moves on each time all clients were used.
        let rounds = if self.keeps_port { 1 } else { self.ports.rounds() };
        let draws = match self.addressing {
            Addressing::Lockstep => lcm(clients.saturating_mul(rounds), servers),
            Addressing::Destination => clients.saturating_mul(servers).saturating_mul(rounds),
        };
        draws.saturating_mul(self.window.min(self.ports.slots))
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

impl PortRange {
    /// For the templates of a profile; `each` counts the ports that a flow takes.
    pub(super) fn of(profile: &Profile, template: &Template, each: usize) -> Self {
        let same = profile.templates.iter().filter(|one| one.client_pool == template.client_pool);
        let window = same.map(|one| u64::from(one.window)).max().unwrap_or(1).max(1);
        let mut used: Vec<usize> = profile.templates.iter().map(|one| one.client_pool).collect();
        used.sort_unstable();
        used.dedup();
        let overlap = |a: &Pool, b: &Pool| a.first <= b.last && b.first <= a.last;
        let pool = |number: usize| &profile.client_pools[number];
        let is_apart = |one: &usize| {
            used.iter().all(|other| one == other || !overlap(pool(*one), pool(*other)))
        };
        let (remainders, remainder) = match used.iter().all(is_apart) {
            true => (1, 0),
            false => {
                let place = used.iter().position(|one| *one == template.client_pool);
                (used.len(), place.unwrap_or(0))
            }
        };
        let each = each.max(1) as u64;
        Self {
            each,
            slots: (PORTS / (each * remainders as u64)).max(1),
            window,
            remainders: remainders as u64,
            remainder: remainder as u64,
        }
    }

    /// The first port of the flow with this number in its window, in a round of all clients.
    #[inline]
    fn first(&self, round: u64, within: u64) -> u16 {
        let slot = (round.wrapping_mul(self.window).wrapping_add(within)) % self.slots;
        (FIRST_PORT + (slot * self.remainders + self.remainder) * self.each) as u16
    }

    fn rounds(&self) -> u64 {
        self.slots / self.window.min(self.slots)
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
