use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::GenError;
use crate::profile::{Distribution, Pool, Profile, Template};

use super::draws::Draw;

/// The order in which consecutive flows use the addresses of their pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// Client and server advance together, as in TRex. After a number of flows that is the least
    /// common multiple of both pools' sizes, the client's port advances.
    #[default]
    Lockstep,
    /// The server advances. The client stays the same until all servers have been used.
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
                units::did_you_mean(text, ["lockstep", "destination"])
            ))),
        }
    }
}

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

/// The division of a client's ports among its concurrent flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortRange {
    /// The ports that a flow takes: more than one if its capture has further connections.
    each: u64,
    /// Number of flows of a client that can have different ports at the same time.
    slots: u64,
    /// Maximum number of flows of a client after one draw.
    window: u64,
    /// Pools with common addresses use ports with different remainders, so that their flows never
    /// share a five-tuple.
    remainders: u64,
    remainder: u64,
}

/// Consecutive flows of a part, whose addresses advance by constant steps. For such a run,
/// additions are enough, whereas [`Addresses::of`] divides several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowRun {
    next: Tuple,
    left: u64,
    client_step: u32,
    server_step: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tuple {
    pub(super) client: u32,
    pub(super) server: u32,
    /// The first port of the client. A flow may have several ports.
    pub(super) client_port: u16,
    /// The pair of generator ports that carries the flow.
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

    /// Returns the addresses of a flow. `draw` returns the draw for a window and a pair of
    /// generator ports.
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

    /// Returns at least one of the flows `flow`, `flow + step` and so on, and ends before the
    /// addresses stop advancing by constant steps. `is_alone`: no other template draws from the
    /// pools.
    pub(super) fn run(
        &self,
        (flow, step): (u64, u64),
        is_alone: bool,
        draw: impl FnOnce(u64, u64) -> Draw,
    ) -> FlowRun {
        let next = self.of(flow, draw);
        let single = FlowRun { next, left: 1, client_step: 0, server_step: 0 };
        let is_stepwise = is_alone
            && (self.window, self.pairs) == (1, 1)
            && self.distribution == Distribution::Sequential;
        let client_step = if self.addressing == Addressing::Lockstep { step } else { 0 };
        let server_step = if self.servers.size > 1 { step } else { 0 };
        let advances = match self.addressing {
            Addressing::Lockstep => step < self.clients.size,
            Addressing::Destination => step < self.servers.size,
        };
        if !is_stepwise || !advances {
            return single;
        }
        let client = u64::from(next.client.wrapping_sub(self.clients.first));
        let server = u64::from(next.server.wrapping_sub(self.servers.first));
        let steps = |size: u64, position: u64, step: u64| match step {
            0 => u64::MAX,
            step => size.saturating_sub(position + 1) / step,
        };
        let further = steps(self.clients.size, client, client_step)
            .min(steps(self.servers.size, server, server_step))
            .min(self.limit.map_or(u64::MAX, |limit| steps(limit, flow % limit, step)));
        FlowRun {
            left: further.saturating_add(1),
            client_step: client_step as u32,
            server_step: server_step as u32,
            ..single
        }
    }

    /// Returns the number of flows after which addresses and ports repeat on a pair of generator
    /// ports. The number holds if addresses are sequential and no other template draws from the
    /// same pools.
    pub(super) fn period(&self) -> u64 {
        let (clients, servers) = (self.clients.size, self.servers.size);
        // The port advances each time that all clients have been used.
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

impl FlowRun {
    pub(super) const NONE: Self = Self {
        next: Tuple { client: 0, server: 0, client_port: 0, pair: 0 },
        left: 0,
        client_step: 0,
        server_step: 0,
    };

    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Tuple> {
        self.left = self.left.checked_sub(1)?;
        let tuple = self.next;
        self.next.client = tuple.client.wrapping_add(self.client_step);
        self.next.server = tuple.server.wrapping_add(self.server_step);
        Some(tuple)
    }
}

impl PortRange {
    /// Returns the port range of a template; each flow takes `each` ports.
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

    /// Returns the first port of the flow with the index `within` in its window. `round`: the
    /// number of times that all clients have been used before.
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

/// Mixes the bits of a number (the finaliser of SplitMix64).
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns an index below `size` with an approximately normal distribution: the sum of four uniform
/// random numbers.
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

/// The first of the client ports that TRex uses.
const FIRST_PORT: u64 = 1024;
const PORTS: u64 = 64_000 - FIRST_PORT;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_of_flows_gives_the_same_addresses_as_single_flows(
            (clients, servers) in (1_u64..40, 1_u64..40),
            limit in proptest::option::of(1_u64..100),
            (window, pairs) in (1_u64..3, 1_u64..3),
            (part, step) in (0_u64..5, 1_u64..5),
            is_lockstep: bool,
            is_sequential: bool,
        ) {
            let range = |first, size| Range { first, size, mask: 1 << 24 };
            let addresses = Addresses {
                clients: range(u32::MAX - 10, clients),
                servers: range(7, servers),
                addressing: if is_lockstep { Addressing::Lockstep } else { Addressing::Destination },
                distribution: match is_sequential {
                    true => Distribution::Sequential,
                    false => Distribution::Random,
                },
                window,
                limit,
                pairs,
                ports: PortRange { each: 1, slots: 3, window, remainders: 1, remainder: 0 },
                keeps_port: false,
            };
            let draw = |window, _| Draw { client: window, server: window };
            let mut run = FlowRun::NONE;
            let mut begun = 0;
            for flow in (part..).step_by(step as usize).take(500) {
                let found = run.take().unwrap_or_else(|| {
                    begun += 1;
                    run = addresses.run((flow, step), true, draw);
                    run.take().unwrap()
                });
                prop_assert_eq!(found, addresses.of(flow, draw), "flow {}", flow);
            }
            let is_stepwise = is_sequential && is_lockstep && window == 1 && pairs == 1;
            if is_stepwise && clients.min(servers) > 20 && limit.is_none() {
                prop_assert!(begun < 400, "{}", begun);
            }
        }
    }
}
