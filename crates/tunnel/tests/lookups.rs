//! Peers cause name look-ups, and the name server never answers. The test has a separate process,
//! because all threads of a process share the files of the C library's resolver.

#![allow(clippy::unwrap_used)]

mod ends;

use ends::{Keys, tuning};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tunnel::access::{Access, LOOKUPS_EACH, Rights};
use tunnel::frame::{Answer, Opening, Status};
use tunnel::identity::{Identity, PeerName, Proof, ServerTrust, TrustedPeer, client_config};
use tunnel::server::{Guard, Server};
use tunnel::transport::quic::{QuicClient, QuicConnection};
use tunnel::transport::{Connection, Receiving, Sending, Transport};

#[test]
fn thousands_of_unanswered_look_ups_use_few_threads_and_delay_no_other_peer() {
    let home = tempfile::tempdir().unwrap();
    if let Err(error) = own_machine(home.path()) {
        return testing::skip_because(testing::Need::NetworkNamespaces, error);
    }
    // Bind the name server's port, and never answer.
    let _name_server = UdpSocket::bind("127.0.0.1:53").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(attack());
}

async fn attack() {
    let (keys, other) = (Keys::new(), Identity::generate("other", 1).unwrap().0);
    let guard = guard(&[("greedy", &keys.client), ("other", &other)]);
    let access = guard.access.clone();
    let mut parts = keys.server_parts(guard);
    parts.limits.dial = DIAL;
    parts.shards = Some(1);
    let server = Server::start(parts).unwrap();
    let at = server.local_addr().unwrap();
    let greedy = connect(&keys.client, &keys, at).await;
    let modest = connect(&other, &keys, at).await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = format!("tcp:localhost:{}", target.local_addr().unwrap().port());
    assert_eq!(ask(&modest, &there).await, Status::Open);

    let before = threads();
    let mut names = JoinSet::new();
    for number in 0..NAMES {
        let greedy = greedy.clone();
        names.spawn(async move { ask(&greedy, &format!("tcp:n{number}.example.org:80")).await });
    }
    let long = Instant::now() + Duration::from_secs(60);
    while threads() < before + LOOKUPS_EACH / 2 {
        assert!(Instant::now() < long, "too few look-ups started in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut most = threads();
    for _ in 0..20 {
        let served = tokio::time::timeout(DIAL, ask(&modest, &there)).await;
        assert_eq!(served.expect("the other peer's look-up waits"), Status::Open);
        most = most.max(threads());
    }
    let refused = async {
        while let Some(status) = names.join_next().await {
            assert!(matches!(
                status.unwrap(),
                Status::Busy | Status::TimedOut | Status::Unreachable
            ));
        }
    };
    tokio::time::timeout(Duration::from_secs(120), refused).await.expect("no answer to an opening");
    most = most.max(threads());
    assert!(most <= before + LOOKUPS_EACH + SPARE, "{before} threads became {most}");
    let counted: u64 = access
        .refused()
        .filter_map(|(reason, count)| reason.starts_with("lookup-").then_some(count))
        .sum();
    assert_eq!(counted, NAMES);
    eprintln!("{before} threads became {most}; {:?}", access.refused().collect::<Vec<_>>());
    assert_eq!(ask(&modest, &there).await, Status::Open);
}

/// Gives this thread, and threads that it starts, a separate network namespace, name server and
/// hosts file.
fn own_machine(home: &Path) -> Result<(), String> {
    let error_text = |error: nix::Error| error.to_string();
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(error_text)?;
    let none = None::<&Path>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, Path::new("/"), none, private, none).map_err(error_text)?;
    for (name, text) in [
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("hosts", "127.0.0.1 localhost\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ] {
        let (own, usual) = (home.join(name), Path::new("/etc").join(name));
        std::fs::write(&own, text).unwrap();
        mount(Some(&own), &usual, none, MsFlags::MS_BIND, none)
            .map_err(|error| format!("{}: {error}", usual.display()))?;
    }
    match Command::new("ip").args(["link", "set", "lo", "up"]).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("ip(8): {other:?}")),
    }
}

fn guard(peers: &[(&str, &Identity)]) -> Guard {
    let rules = ["tcp:*.example.org:80", "tcp:localhost:*"];
    let dial: Vec<_> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let name = |name: &str| name.parse::<PeerName>().unwrap();
    let trusted = |(peer, identity): &(&str, &Identity)| TrustedPeer {
        name: name(peer),
        proof: Proof::Pins(vec![identity.pin()]),
    };
    let rights = |(peer, _): &(&str, &Identity)| {
        (name(peer), Rights { dial: dial.clone(), ..Rights::default() })
    };
    Guard {
        trusted: peers.iter().map(trusted).collect(),
        access: Access::new(peers.iter().map(rights)),
    }
}

async fn connect(own: &Identity, keys: &Keys, at: SocketAddr) -> QuicConnection {
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let meter = std::sync::Arc::new(quic::Meter::unlimited());
    let quic = QuicClient::new(client_config(own, &trust).unwrap(), tuning(), &meter).unwrap();
    quic.connect(at, trust.server_name(), 0).await.unwrap()
}

async fn ask(connection: &QuicConnection, target: &str) -> Status {
    let (mut sending, mut receiving) = connection.open().await.unwrap();
    let opening = Opening::forward(target.parse().unwrap());
    sending.write(opening.encode()).await.unwrap();
    let (mut chunks, mut output) = (Vec::new(), Vec::new());
    loop {
        let more = receiving.read(4096, &mut chunks).await.unwrap();
        chunks.drain(..).for_each(|(_, bytes)| output.extend_from_slice(&bytes));
        if let Some((answer, _)) = Answer::decode(&output).unwrap() {
            return answer.status;
        }
        assert!(more, "no answer to the opening for {target}");
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

const NAMES: u64 = 3000;
/// The dial timeout, which is shorter than glibc's wait for a name server (twice 5 s).
const DIAL: Duration = Duration::from_secs(5);
/// Number of threads that must remain for the other peer's look-ups.
const SPARE: usize = 4;
