//! Handshakes in progress at one socket. A flood from one network takes only that network's slots.

use crate::journal::network;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Handshakes {
    /// Maximum number of concurrent handshakes.
    most: usize,
    /// Number of concurrent handshakes of one network beyond which the server validates the
    /// network's addresses.
    unvalidated: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: usize,
    serial: u64,
    networks: HashMap<IpAddr, Network>,
}

/// The handshakes of a network: one IPv4 address, or the 2^64 IPv6 addresses that one host may
/// have.
#[derive(Debug)]
struct Network {
    /// Handshakes in progress, oldest first.
    under_way: VecDeque<(u64, CancellationToken)>,
    begun: u32,
    /// Estimated handshakes in this period, from the number in the previous period.
    expected: u32,
    since: Instant,
}

/// The decision about a peer that wants a connection.
#[derive(Debug)]
pub(super) enum Verdict {
    Begin(Handshake),
    /// Have the peer prove its address, which may be forged, before this end computes a signature.
    Validate,
    Drop,
}

/// One handshake in progress. Dropping the value frees the slot.
#[derive(Debug)]
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    network: IpAddr,
    serial: u64,
    evicted: CancellationToken,
}

impl Handshakes {
    pub(super) fn new(most: usize, most_unvalidated: usize) -> Arc<Self> {
        Arc::new(Self { most, unvalidated: most_unvalidated, state: Mutex::default() })
    }

    pub(super) fn admit(
        self: &Arc<Self>,
        now: Instant,
        address: IpAddr,
        is_validated: bool,
    ) -> Verdict {
        let address = network(address);
        let mut state = self.state();
        let all = state.all;
        let same = state.networks.get(&address).map_or(0, |network| network.under_way.len());
        if !is_validated && (all >= self.most / 4 || same >= self.unvalidated) {
            return Verdict::Validate;
        }
        if state.is_one_too_many(now, address, self.most as u32 * 2) {
            return Verdict::Drop;
        }
        if all >= self.most {
            state.evict();
        }
        state.serial += 1;
        let (serial, evicted) = (state.serial, CancellationToken::new());
        state.all += 1;
        let network = state.networks.entry(address).or_insert_with(|| Network::new(now));
        network.under_way.push_back((serial, evicted.clone()));
        drop(state);
        Verdict::Begin(Handshake {
            handshakes: Arc::clone(self),
            network: address,
            serial,
            evicted,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether to drop this handshake. A network may begin `most` handshakes a second. Beyond this
    /// rate, each handshake has the same chance to begin, so a peer of the network that retries
    /// succeeds in the end.
    fn is_one_too_many(&mut self, now: Instant, address: IpAddr, most: u32) -> bool {
        if self.networks.len() >= REMEMBERED {
            self.networks.retain(|_, network| {
                !network.under_way.is_empty() || now.duration_since(network.since) < PERIOD
            });
        }
        let network = self.networks.entry(address).or_insert_with(|| Network::new(now));
        let passed = now.saturating_duration_since(network.since);
        if passed >= PERIOD {
            // Estimate this period's handshakes from the previous period.
            let periods = (passed.as_secs_f64() / PERIOD.as_secs_f64()).max(1.0);
            network.expected = (f64::from(network.begun) / periods) as u32;
            (network.begun, network.since) = (0, now);
        }
        network.begun = network.begun.saturating_add(1);
        let expected = network.expected.max(network.begun);
        expected > most && rand::random_range(0..expected) < expected - most
    }

    /// Evicts the oldest handshake of the network with the most handshakes.
    fn evict(&mut self) {
        let most = self.networks.values_mut().max_by_key(|network| network.under_way.len());
        if let Some((_, evicted)) = most.and_then(|network| network.under_way.pop_front()) {
            self.all -= 1;
            evicted.cancel();
        }
    }
}

impl Network {
    fn new(now: Instant) -> Self {
        Self { under_way: VecDeque::new(), begun: 0, expected: 0, since: now }
    }
}

impl Handshake {
    /// Waits until another handshake evicts this handshake.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut state = self.handshakes.state();
        let Some(network) = state.networks.get_mut(&self.network) else { return };
        let before = network.under_way.len();
        network.under_way.retain(|(serial, _)| *serial != self.serial);
        let gone = before - network.under_way.len();
        state.all -= gone;
    }
}

const PERIOD: Duration = Duration::from_secs(1);
/// Number of networks above which the server forgets idle networks.
const REMEMBERED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn address(network: u16, host: u64) -> IpAddr {
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host)).into()
    }

    fn begin(verdict: Verdict) -> Handshake {
        match verdict {
            Verdict::Begin(handshake) => handshake,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flood_from_one_network_evicts_its_own_handshakes() {
        let handshakes = Handshakes::new(256, 8);
        let now = Instant::now();
        let good = begin(handshakes.admit(now, address(1, 1), false));
        let mut flood: Vec<_> =
            (0..400).map(|host| begin(handshakes.admit(now, address(2, host), true))).collect();
        let evicted = flood.iter().filter(|one| one.evicted.is_cancelled()).count();
        assert_eq!((evicted, handshakes.state().all), (400 - 255, 256));
        assert!(flood[..evicted].iter().all(|one| one.evicted.is_cancelled()));
        assert!(!good.evicted.is_cancelled());
        // Another network gets a slot although all slots are in use.
        let other = begin(handshakes.admit(now, address(3, 1), true));
        assert!(!other.evicted.is_cancelled() && flood[evicted].evicted.is_cancelled());
        flood.clear();
        assert_eq!(handshakes.state().all, 2);
        drop((good, other));
        assert_eq!(handshakes.state().all, 0);
    }

    #[test]
    fn unvalidated_addresses_get_only_some_of_the_handshake_slots() {
        let handshakes = Handshakes::new(64, 4);
        let now = Instant::now();
        let same: Vec<_> =
            (0..4).map(|host| begin(handshakes.admit(now, address(1, host), false))).collect();
        assert!(matches!(handshakes.admit(now, address(1, 9), false), Verdict::Validate));
        let others: Vec<_> = (2..14)
            .map(|network| begin(handshakes.admit(now, address(network, 1), false)))
            .collect();
        assert!(matches!(handshakes.admit(now, address(99, 1), false), Verdict::Validate));
        drop(begin(handshakes.admit(now, address(99, 1), true)));
        drop((same, others));
    }

    #[test]
    fn handshakes_of_one_network_above_a_rate_are_dropped_at_random() {
        let handshakes = Handshakes::new(16, 4);
        let mut now = Instant::now();
        let (mut begun, mut last) = (0, 0);
        for number in 0..30_000 {
            now += Duration::from_micros(100);
            if let Verdict::Begin(_) = handshakes.admit(now, address(1, number), true) {
                begun += 1;
                last += u32::from(number % 10_000 > 9_000);
            }
        }
        // The limit is 32 per second.
        assert!((90..350).contains(&begun), "{begun}");
        assert!(last > 0);
        drop(begin(handshakes.admit(now, address(2, 1), true)));
    }

    #[test]
    fn an_ipv4_address_is_one_network_in_any_notation() {
        let (v4, mapped) = ("192.0.2.7".parse().unwrap(), "::ffff:192.0.2.7".parse().unwrap());
        assert_eq!(network(v4), network(mapped));
        assert_ne!(network(v4), network("192.0.2.8".parse().unwrap()));
        assert_eq!(address(7, 0), network(address(7, 99)));
    }
}
