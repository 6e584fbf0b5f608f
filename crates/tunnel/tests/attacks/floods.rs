//! Floods of handshakes while ordinary clients connect, in a separate network namespace.

use crate::PROCESS;
use crate::ends::Keys;
use crate::ends::raw::RawPeer;
use nix::sched::{CloneFlags, unshare};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tunnel::server::Server;

/// The flood sends first packets at 5 Mbit/s, from addresses of one /64 that all receive the
/// server's answers.
#[test]
fn clients_connect_during_a_flood_from_one_ipv6_network() {
    let _ = clients_beside_a_flood();
}

fn clients_beside_a_flood() -> Option<()> {
    if !testing::Need::Ipv6.is_met() {
        testing::skip(testing::Need::Ipv6);
        return None;
    }
    let _beside_others = PROCESS.blocking_read();
    let runtime = in_a_network_of_its_own()?;
    // The host accepts each address of these networks as its own.
    for network in [ATTACKER, OTHER] {
        assert!(ip(&format!("-6 route add local {network}::/64 dev lo")));
    }
    std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
    runtime.block_on(async {
        let keys = Arc::new(Keys::new());
        let mut parts = keys.server_parts(keys.guard(&["tcp:127.0.0.0/8:*"], &[]));
        parts.listen = "[::1]:0".parse().ok();
        parts.limits.handshakes = 64;
        let server = Server::start(parts).unwrap();
        let at = server.local_addr().unwrap();
        let (over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let flood =
            tokio::spawn(flood(Arc::clone(&keys), at, Arc::clone(&over), Arc::clone(&begun)));
        // Wait until the flood has begun more handshakes than there are slots.
        while begun.load(Ordering::Relaxed) < 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (mut took, mut again) = (Vec::new(), 0);
        for number in 0..40 {
            // Connect alternately from the attacker's network and from another network.
            let network = if number % 2 == 0 { OTHER } else { ATTACKER };
            let from = address(network, 1 << 40 | number);
            let start = Instant::now();
            loop {
                let mut peer = RawPeer::new(from, &keys.client, &keys.server, at).await;
                let connected = peer.drive_until(PATIENCE, |peer| {
                    (peer.is_connected() || peer.lost().is_some()).then(|| peer.is_connected())
                });
                if connected.await == Some(true) {
                    break;
                }
                // Above a limit, the server drops handshakes of one network at random. A client
                // whose address proof expires meanwhile begins again.
                let may_try_again = network == ATTACKER && start.elapsed() < PATIENCE;
                assert!(may_try_again, "client {number} of {from}: {:?}", peer.lost());
                again += 1;
            }
            took.push(start.elapsed());
        }
        assert!(again <= 3, "{again} clients of 20 began again");
        over.store(true, Ordering::Relaxed);
        flood.await.unwrap();
        took.sort_unstable();
        let counted = server.counted();
        eprintln!(
            "ATTACK flood-ipv6-network: beside {} handshakes: median {:?}, longest {:?}, \
             {} evicted, {} put off",
            begun.load(Ordering::Relaxed),
            took[took.len() / 2],
            took[took.len() - 1],
            counted.handshakes_evicted,
            counted.handshakes_put_off,
        );
        assert!(counted.handshakes_evicted > 0, "{counted:?}");
        drop(server);
    });
    Some(())
}

/// Begins handshakes, proves the address if the server sends a Retry, and abandons the handshakes.
async fn flood(keys: Arc<Keys>, at: SocketAddr, over: Arc<AtomicBool>, begun: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(Duration::from_micros(2500));
    // Do not flood faster after a stall of the machine.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut host = 1;
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let from = address(ATTACKER, host);
        host += 1;
        let (keys, begun) = (Arc::clone(&keys), Arc::clone(&begun));
        tokio::spawn(async move {
            let mut peer = RawPeer::new(from, &keys.client, &keys.server, at).await;
            peer.send_one().await;
            peer.answer_retry().await;
            begun.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// The server must limit its answers to a client that never proves its address.
#[test]
fn an_unvalidated_address_gets_at_most_three_times_its_bytes() {
    let _ = answers_to_a_forged_address();
}

fn answers_to_a_forged_address() -> Option<()> {
    let _beside_others = PROCESS.blocking_read();
    let runtime = in_a_network_of_its_own()?;
    runtime.block_on(async {
        let keys = Keys::new();
        let mut parts = keys.server_parts(keys.guard(&[], &[]));
        parts.tuning.handshake = Duration::from_secs(3);
        let server = Server::start(parts).unwrap();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let at = server.local_addr().unwrap();
        let mut peers = JoinSet::new();
        for _ in 0..5 {
            let mut peer = RawPeer::new(here, &keys.client, &keys.server, at).await;
            peers.spawn(async move {
                while peer.send_one().await {}
                peer.listen(Duration::from_secs(4)).await;
                assert!(peer.bytes_received > 0);
                peer.bytes_received as f64 / peer.bytes_sent as f64
            });
        }
        let worst = peers.join_all().await.into_iter().fold(0.0, f64::max);
        eprintln!("ATTACK amplification: {worst:.3} times the bytes");
        assert!(worst <= 3.0, "{worst}");
        drop(server);
    });
    Some(())
}

pub(crate) fn in_a_network_of_its_own() -> Option<tokio::runtime::Runtime> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        testing::skip_because(testing::Need::NetworkNamespaces, error);
        return None;
    }
    if !ip("link set lo up") {
        testing::skip(testing::Need::Program("ip"));
        return None;
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().ok()
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().is_ok_and(|status| status.success())
}

fn address(network: &str, host: u64) -> IpAddr {
    let network: Ipv6Addr = format!("{network}::").parse().unwrap();
    Ipv6Addr::from_bits(network.to_bits() | u128::from(host)).into()
}

const ATTACKER: &str = "fd00:0:0:1";
const OTHER: &str = "fd00:0:0:2";
const PATIENCE: Duration = Duration::from_secs(60);
