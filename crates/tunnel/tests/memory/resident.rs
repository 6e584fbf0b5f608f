//! Memory of a server's process under each attack. The server runs in a separate process. The
//! server's budget bounds the memory that peers can make the server hold, and the resident memory
//! stays within 1.5 times the budget.

use crate::ends::raw::RawPeer;
use crate::ends::{Keys, guard_of};
use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tunnel::access::Rule;
use tunnel::frame::{Opening, Properties, Request};
use tunnel::identity::Identity;
use tunnel::server::Server;
use units::Bytes;

#[test]
fn resident_memory_stays_near_the_memory_budget_under_each_attack() {
    let budget = Bytes::kib(64 * 1024);
    println!(
        "| attack, budget {budget} | counted, most | resident before | most | of the budget |"
    );
    println!("| --- | --- | --- | --- | --- |");
    measure("64 idle connections", budget, |hostile| async move {
        let idle = hostile.peers(64).await;
        hold(idle, Duration::from_secs(1)).await;
    });
    measure("streams without a request", budget, |hostile| async move {
        each(hostile.peers(8).await, |peer| {
            while let Some(stream) = peer.open() {
                let _ = peer.connection.send_stream(stream).write(b"\x01");
            }
        })
        .await;
    });
    measure("data for a target that does not read", budget, |hostile| async move {
        let (listener, opening) = hostile.silent_target().await;
        let kept = tokio::spawn(keep(listener));
        let mut peers = hostile.peers(16).await;
        for peer in &mut peers {
            open_all(peer, 16, &opening);
        }
        let much = vec![7; 1 << 20];
        each(peers, move |peer| write_all(peer, &much)).await;
        kept.abort();
    });
    measure("the same, a byte a packet", budget, |hostile| async move {
        let (listener, opening) = hostile.silent_target().await;
        let kept = tokio::spawn(keep(listener));
        let mut peers = hostile.peers(16).await;
        for peer in &mut peers {
            open_all(peer, 64, &opening);
        }
        each(peers, |peer| write_all(peer, b"x")).await;
        kept.abort();
    });
    measure("tunnels that their target resets", budget, |hostile| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let opening = forward(listener.local_addr().unwrap());
        let target = tokio::spawn(reset(listener));
        each(hostile.peers(8).await, move |peer| open_all(peer, 64, &opening)).await;
        target.abort();
    });
    measure("downloads that are not acknowledged", budget, |hostile| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let opening = forward(listener.local_addr().unwrap());
        let source = tokio::spawn(pour(listener));
        let mut peers = hostile.peers(16).await;
        for peer in &mut peers {
            open_all(peer, 64, &opening);
            peer.drive(Duration::from_millis(50)).await;
        }
        // The peers receive no packets while this task sleeps.
        tokio::time::sleep(Duration::from_secs(4)).await;
        source.abort();
    });
    measure("handshakes that stop half way", budget, |hostile| async move {
        let mut kept = Vec::new();
        for _ in 0..600 {
            let mut peer = hostile.peer().await;
            peer.send_one().await;
            kept.push(peer);
        }
    });
    measure("short-lived connections", budget, |hostile| async move {
        for _ in 0..200 {
            let mut peer = hostile.peer().await.connected().await;
            open_all(&mut peer, 10, b"\x01");
            peer.connection.close(Instant::now(), 0_u32.into(), bytes::Bytes::new());
            peer.drive(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn an_idle_session_takes_a_few_tens_of_kilobytes() {
    let clients: Vec<_> =
        (0..FIRST + MORE).map(|number| own(&format!("client-{number}"))).map(Arc::new).collect();
    let server = ServerProcess::start(Bytes::kib(256 * 1024), &clients);
    let each = runtime().block_on(async {
        let (at, key) = (server.at, Arc::new(server.identity.clone()));
        let mut peers = JoinSet::new();
        let (mut before, mut kept) = (Bytes::ZERO, Vec::new());
        for (number, client) in clients.into_iter().enumerate() {
            if number == FIRST {
                kept.extend(peers.join_all().await);
                before = server.resident("VmRSS");
                peers = JoinSet::new();
            } else if peers.len() == AT_ONCE {
                kept.push(peers.join_next().await.unwrap().unwrap());
            }
            let key = Arc::clone(&key);
            peers.spawn(async move {
                RawPeer::new(LOCALHOST, &client, &key, at).await.connected().await
            });
        }
        kept.extend(peers.join_all().await);
        assert_eq!(kept.len(), FIRST + MORE);
        // On a slow machine the server may meanwhile have ended sessions of silent clients.
        server.resident("VmRSS").count().saturating_sub(before.count()) / MORE as u64
    });
    println!("ATTACK idle-sessions: an idle session takes {each} bytes of the server");
    assert!(each < MOST_EACH, "{each} bytes");
}

/// Number of sessions after which the buffers that all sessions share no longer grow.
const FIRST: usize = 128;
const MORE: usize = 384;
const AT_ONCE: usize = 16;
/// Maximum resident memory of an idle session, in bytes. If the TLS session kept the state of the
/// handshake, a session would take 5,700 bytes more.
const MOST_EACH: u64 = 29_000;

/// Each client has its own identity, and the server has the default budget.
#[test]
#[ignore = "needs minutes and 20,000 open files"]
fn ten_thousand_idle_clients_stay_connected() {
    let count = 10_000;
    let clients: Vec<_> =
        (0..count).map(|number| own(&format!("client-{number}"))).map(Arc::new).collect();
    let mut server = ServerProcess::start(Bytes::kib(256 * 1024), &clients);
    let before = server.resident("VmRSS");
    runtime().block_on(async {
        let (at, key) = (server.at, Arc::new(server.identity.clone()));
        let places = Arc::new(tokio::sync::Semaphore::new(32));
        let (mut peers, start) = (JoinSet::new(), Instant::now());
        for client in clients {
            let (key, places) = (Arc::clone(&key), Arc::clone(&places));
            peers.spawn(async move {
                let place = places.acquire_owned().await.unwrap();
                let peer = RawPeer::new(LOCALHOST, &client, &key, at).await.connected().await;
                drop(place);
                let mut peer = peer;
                let lost = peer.drive_until(Duration::from_secs(120), |peer| {
                    (start.elapsed() > Duration::from_secs(100) || peer.lost().is_some())
                        .then_some(())
                });
                lost.await;
                peer.lost()
            });
        }
        let lost: Vec<_> = peers.join_all().await.into_iter().flatten().collect();
        println!("{} of {count} clients lost their connection: {:?}", lost.len(), lost.first());
        assert!(lost.is_empty());
    });
    let most = server.resident("VmHWM");
    println!("{count} idle clients: resident {before} before, {most} at most");
    server.end();
}

/// An attacking client whose identity the server trusts.
#[derive(Clone)]
struct Hostile {
    own: Arc<Identity>,
    server: Arc<Identity>,
    at: SocketAddr,
}

impl Hostile {
    async fn peer(&self) -> RawPeer {
        RawPeer::new(LOCALHOST, &self.own, &self.server, self.at).await
    }

    async fn peers(&self, count: usize) -> Vec<RawPeer> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.peer().await.connected().await);
        }
        all
    }

    /// Starts a target that never reads from its connections.
    async fn silent_target(&self) -> (TcpListener, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let opening = forward(listener.local_addr().unwrap());
        (listener, opening)
    }
}

fn measure<F: Future<Output = ()>>(attack: &str, budget: Bytes, act: impl FnOnce(Hostile) -> F) {
    let hostile = Arc::new(own("hostile"));
    let mut server = ServerProcess::start(budget, &[Arc::clone(&hostile)]);
    let before = server.resident("VmRSS");
    let them = Hostile { own: hostile, server: Arc::new(server.identity.clone()), at: server.at };
    runtime().block_on(act(them));
    let most = server.resident("VmHWM");
    let counted = server.end();
    let share = most.count() as f64 / budget.count() as f64;
    println!("| {attack} | {counted} | {before} | {most} | {share:.2} |");
    assert!(most.count() <= before.count() + budget.count() * 3 / 2, "{attack}: {most}");
}

async fn each(peers: Vec<RawPeer>, act: impl Fn(&mut RawPeer) + Clone + Send + Sync + 'static) {
    let mut all = JoinSet::new();
    for mut peer in peers {
        let act = act.clone();
        all.spawn(async move {
            peer.drive_until(ATTACK, |peer| {
                act(peer);
                peer.lost()
            })
            .await
        });
    }
    all.join_all().await;
}

async fn hold(peers: Vec<RawPeer>, span: Duration) {
    let mut all = JoinSet::new();
    for mut peer in peers {
        all.spawn(async move { peer.drive(span).await });
    }
    all.join_all().await;
}

async fn keep(listener: TcpListener) {
    let mut kept = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        kept.push(stream);
    }
}

async fn reset(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        crate::processes::reset_at_end(&stream);
    }
}

async fn pour(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(crate::ends::write_endlessly(stream));
    }
}

fn open_all(peer: &mut RawPeer, count: usize, opening: &[u8]) {
    for stream in (0..count).map_while(|_| peer.open()).collect::<Vec<_>>() {
        let _ = peer.connection.send_stream(stream).write(opening);
        peer.streams.push(stream);
    }
}

fn write_all(peer: &mut RawPeer, bytes: &[u8]) {
    for stream in peer.streams.clone() {
        let _ = peer.connection.send_stream(stream).write(bytes);
    }
}

fn forward(target: SocketAddr) -> Vec<u8> {
    let request = Request::Forward(format!("tcp:{target}").parse().unwrap());
    Opening { request, properties: Properties::default() }.encode().to_vec()
}

pub(crate) fn own(name: &str) -> Identity {
    Identity::generate(name, 1).unwrap().0
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A server in another process, which runs this test program and exits when its standard input
/// ends.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) at: SocketAddr,
    pub(crate) identity: Identity,
    lines: Option<JoinHandle<Option<u64>>>,
    _folder: TempDir,
}

impl ServerProcess {
    pub(crate) fn start(budget: Bytes, clients: &[Arc<Identity>]) -> Self {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let has = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: has.maximum, ..has });
        let folder = tempfile::tempdir().unwrap();
        let (identity, pem) = Identity::generate("server", 1).unwrap();
        pem.write(&folder.path().join("server.crt"), &folder.path().join("server.key"), false)
            .unwrap();
        let pins = clients.iter().map(|client| client.pin().to_string());
        std::fs::write(folder.path().join("pins"), pins.collect::<Vec<_>>().join("\n")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "resident::serve_until_the_input_ends", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(BUDGET, budget.count().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at =
            lines.find_map(|line| line.unwrap().strip_prefix("serves ")?.parse().ok()).unwrap();
        let counted = |line: String| line.strip_prefix("held ")?.parse().ok();
        let lines =
            std::thread::spawn(move || lines.map_while(Result::ok).filter_map(counted).last());
        Self { child, at, identity, lines: Some(lines), _folder: folder }
    }

    /// Resets the process's peak `VmHWM` (proc_pid_clear_refs(5)).
    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    pub(crate) fn resident(&self, key: &str) -> Bytes {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let kib = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        Bytes::kib(kib)
    }

    /// Stops the server. Returns the maximum memory that its budget counted.
    fn end(&mut self) -> Bytes {
        drop(self.child.stdin.take());
        let counted = self.lines.take().unwrap().join().unwrap().unwrap();
        assert!(self.child.wait().unwrap().success(), "the server failed");
        Bytes::new(counted)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_until_the_input_ends() {
    let (Some(folder), Ok(budget)) = (std::env::var_os(FOLDER), std::env::var(BUDGET)) else {
        return;
    };
    let folder = Path::new(&folder);
    let server = Identity::load(&folder.join("server.crt"), &folder.join("server.key")).unwrap();
    let keys = Keys { client: server.clone(), server };
    let pins = std::fs::read_to_string(folder.join("pins")).unwrap();
    let names: Vec<_> =
        (0..pins.lines().count()).map(|number| format!("client-{number}")).collect();
    let rule: Rule = "tcp:127.0.0.0/8:*".parse().unwrap();
    let rights = || tunnel::access::Rights { dial: vec![rule.clone()], ..Default::default() };
    let mut guard = guard_of(&[], &[], &[]);
    for (name, pin) in names.iter().zip(pins.lines()) {
        let proof = tunnel::identity::Proof::Pins(vec![pin.parse().unwrap()]);
        guard.trusted.push(tunnel::identity::TrustedPeer { name: name.parse().unwrap(), proof });
    }
    guard.access =
        tunnel::access::Access::new(names.iter().map(|name| (name.parse().unwrap(), rights())));
    let mut parts = keys.server_parts(guard);
    parts.tuning.memory = Bytes::new(budget.parse().unwrap());
    let runtime = runtime();
    let _inside = runtime.enter();
    let server = Server::start(parts).unwrap();
    println!("serves {}", server.local_addr().unwrap());
    let over = AtomicBool::new(false);
    let held = std::thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = Bytes::ZERO;
            while !over.load(Ordering::Relaxed) {
                most = most.max(server.memory_held());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let _ = std::io::stdin().read(&mut [0]);
        over.store(true, Ordering::Relaxed);
        most.join().unwrap()
    });
    println!("held {}", held.count());
    drop(server);
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ATTACK: Duration = Duration::from_secs(4);
const FOLDER: &str = "WEIR_TEST_SERVER_FOLDER";
const BUDGET: &str = "WEIR_TEST_SERVER_BUDGET";
