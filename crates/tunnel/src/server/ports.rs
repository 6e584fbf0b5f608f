//! Divides the local ports towards each target among identities.
//!
//! A connection to a target occupies a local port, and the port stays occupied for a minute if this
//! end closed first (TIME-WAIT, RFC 9293, section 3.3.2). The kernel has some 28,000 ports for
//! each target. All datagram flows together have as many ports as one target.

use super::division::{Division, Exceeded};
use crate::identity::PeerName;
use crate::local::LocalPort;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The local ports of one end.
#[derive(Debug)]
pub(super) struct Ports {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    targets: HashMap<Destination, Target>,
    /// The number of targets at which [`Self::sweep`] removes targets without open connections.
    sweep_at: usize,
}

/// The destination of a socket. Sockets with the same destination cannot share a local port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Destination {
    Tcp(SocketAddr),
    Datagrams,
}

#[derive(Debug)]
struct Target {
    ports: Division,
    open: usize,
    /// Ports in TIME-WAIT, oldest first.
    closed: VecDeque<Closed>,
}

/// Ports that one identity closed within the same second.
#[derive(Debug)]
struct Closed {
    since: Instant,
    peer: PeerName,
    count: usize,
}

/// A port in use. Dropping the value frees the port at once.
#[derive(Debug)]
pub(super) struct Port {
    ports: Arc<Ports>,
    destination: Destination,
    peer: PeerName,
    stays: bool,
}

impl Ports {
    /// Creates the table. `range` is the number of ports from which the kernel chooses. A few ports
    /// are left to other programs.
    pub(super) fn new(range: usize) -> Arc<Self> {
        Arc::new(Self { capacity: range - range / 16, state: Mutex::default() })
    }

    /// Takes a port for a connection to this address on behalf of one of `identities` identities.
    pub(super) fn connect(
        self: &Arc<Self>,
        to: SocketAddr,
        peer: &PeerName,
        identities: usize,
    ) -> Result<Port, Exceeded> {
        self.take(Instant::now(), Destination::Tcp(to), peer, identities)
    }

    /// Takes a port for a flow of datagrams.
    pub(super) fn flow(
        self: &Arc<Self>,
        peer: &PeerName,
        identities: usize,
    ) -> Result<Port, Exceeded> {
        self.take(Instant::now(), Destination::Datagrams, peer, identities)
    }

    fn take(
        self: &Arc<Self>,
        now: Instant,
        destination: Destination,
        peer: &PeerName,
        identities: usize,
    ) -> Result<Port, Exceeded> {
        let mut state = self.state();
        state.sweep(now, self.capacity);
        let target = state.targets.entry(destination).or_insert_with(|| Target {
            ports: Division::new(self.capacity, usize::MAX),
            open: 0,
            closed: VecDeque::new(),
        });
        target.expire(now);
        target.ports.take(peer, identities)?;
        target.open += 1;
        drop(state);
        let (ports, peer) = (Arc::clone(self), peer.clone());
        Ok(Port { ports, destination, peer, stays: false })
    }

    fn give_back(&self, now: Instant, port: &Port) {
        let mut state = self.state();
        let Some(target) = state.targets.get_mut(&port.destination) else { return };
        target.open -= 1;
        if port.stays {
            target.close(now, &port.peer);
        } else {
            target.ports.give_back(&port.peer, 1);
            if target.ports.used() == 0 {
                state.targets.remove(&port.destination);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes targets without an open connection, unless a target has many ports in TIME-WAIT. A
    /// peer may connect to many targets once, and each entry takes memory.
    fn sweep(&mut self, now: Instant, capacity: usize) {
        if self.targets.len() < self.sweep_at.max(MOST_TARGETS) {
            return;
        }
        self.targets.retain(|_, target| {
            target.expire(now);
            target.open > 0 || target.ports.used() > capacity / 64
        });
        self.sweep_at = self.targets.len() * 2;
    }
}

impl Target {
    fn close(&mut self, now: Instant, peer: &PeerName) {
        match self.closed.back_mut() {
            Some(last) if last.peer == *peer && now.duration_since(last.since) < TOGETHER => {
                last.count += 1;
            }
            _ => self.closed.push_back(Closed { since: now, peer: peer.clone(), count: 1 }),
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.closed.front()
            && now.saturating_duration_since(first.since) >= TIME_WAIT + TOGETHER
        {
            self.ports.give_back(&first.peer, first.count);
            self.closed.pop_front();
        }
    }
}

impl LocalPort for Port {
    fn set_stays(&mut self, stays: bool) {
        self.stays = stays;
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.ports.give_back(Instant::now(), self);
    }
}

/// The kernel's TCP_TIMEWAIT_LEN (include/net/tcp.h).
const TIME_WAIT: Duration = Duration::from_secs(60);
const TOGETHER: Duration = Duration::from_secs(1);
/// The entry of a target takes some 300 bytes.
const MOST_TARGETS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> PeerName {
        name.parse().unwrap()
    }

    fn tcp(number: u32) -> Destination {
        Destination::Tcp((std::net::Ipv4Addr::from_bits(number), 80).into())
    }

    /// Opens connections that this end closes first, until this end may open no more. Returns the
    /// number of connections.
    fn use_up(ports: &Arc<Ports>, now: Instant, who: &PeerName, identities: usize) -> usize {
        let used = |_: &i32| match ports.take(now, tcp(1), who, identities) {
            Ok(mut port) => {
                port.set_stays(true);
                true
            }
            Err(_) => false,
        };
        (0..).take_while(used).count()
    }

    #[test]
    fn ports_in_time_wait_count_against_the_identity_that_used_them() {
        for identities in [2, 3, 9] {
            let ports = Ports::new(1600);
            let now = Instant::now();
            let used = use_up(&ports, now, &peer("hostile"), identities);
            let kept: Vec<_> = (0..1500 / 2 / identities)
                .map(|_| ports.take(now, tcp(1), &peer("other"), identities).unwrap())
                .collect();
            assert_eq!(use_up(&ports, now, &peer("hostile"), identities), 0);
            // All ports towards another target are free.
            drop(ports.take(now, tcp(2), &peer("hostile"), identities).unwrap());
            let later = now + Duration::from_secs(90);
            drop(kept);
            for _ in 0..used {
                drop(ports.take(later, tcp(1), &peer("hostile"), identities).unwrap());
            }
        }
    }

    #[test]
    fn a_port_is_free_at_once_if_the_target_closed_first() {
        let (ports, now) = (Ports::new(160), Instant::now());
        for _ in 0..10_000 {
            drop(ports.take(now, tcp(1), &peer("busy"), 2).unwrap());
        }
        assert!(ports.state().targets.is_empty());
    }

    #[test]
    fn the_port_table_stays_bounded_with_many_targets() {
        let (ports, now) = (Ports::new(28_000), Instant::now());
        let mut kept = Vec::new();
        for target in 0..30_000 {
            let mut port = ports.take(now, tcp(target), &peer("hostile"), 2).unwrap();
            port.set_stays(true);
            if target % 30 == 0 {
                kept.push(port);
            }
        }
        assert!(ports.state().targets.len() <= MOST_TARGETS + kept.len());
        drop(kept);
    }
}
