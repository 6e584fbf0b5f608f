//! Hostile tenants hold a server's descriptors, tunnels or local ports. Another tenant must still
//! get a few descriptors, tunnels and ports.

use crate::PROCESS;
use crate::ends::{guard_of, tuning};
use crate::floods::in_a_network_of_its_own;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tunnel::config::{File, ServerTable};
use tunnel::frame::{Answer, Opening, Status};
use tunnel::identity::{Identity, ServerTrust};
use tunnel::server::{Server, ServerParts};
use tunnel::transport::quic::{QuicClient, QuicConnection, ReceivingHalf, SendingHalf};
use tunnel::transport::{Connection, Receiving, Sending, Transport};

/// For each case: the limit of open files, the number of tenants, the number of hostile tenants,
/// and the tunnels that another tenant must get.
const CASES: [(u64, usize, usize, usize); 6] = [
    (1024, 2, 1, 20),
    (1024, 4, 3, 20),
    (400, 5, 2, 20),
    (200, 3, 2, 12),
    (128, 2, 1, 12),
    (64, 3, 2, 3),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_that_hold_tunnels_leave_descriptors_to_others_and_to_status() {
    let _beside_others = PROCESS.read().await;
    for (files, tenants, hostile, wanted) in CASES {
        let server = LimitedServer::start(files, tenants);
        let target = silent_target().await;
        let mut kept = Vec::new();
        for tenant in &server.tenants[..hostile] {
            kept.push(
                Tenant::connect(tenant, &server.identity, server.at).await.fill(target).await,
            );
        }
        let held: Vec<_> = kept.iter().map(|tenant| tenant.tunnels.len()).collect();
        let other = server.tenants.last().unwrap();
        let mut other = Tenant::connect(other, &server.identity, server.at).await;
        let opened = other.open(target, wanted).await;
        let began = Instant::now();
        let socket = server.folder.path().join("status.sock");
        let status = tokio::task::spawn_blocking(move || tunnel::run::statuses(Some(&socket)));
        let status = status.await.unwrap();
        let log = std::fs::read_to_string(server.folder.path().join("log")).unwrap();
        eprintln!(
            "ATTACK descriptors: {files} files: {hostile} of {tenants} tenants hold {held:?}, \
             another one {opened} of {wanted}; status after {:?}, {} lines in the log",
            began.elapsed(),
            log.lines().count()
        );
        assert_eq!(opened, wanted);
        assert_eq!(status.unwrap().len(), 1);
        assert!(log.contains("raise the server's limit of open files"), "{log}");
        assert!(log.lines().count() < 50 + 25 * hostile, "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_that_hold_as_many_tunnels_as_they_can_leave_tunnels_to_others() {
    let _beside_others = PROCESS.read().await;
    for (limit, tenants, hostile) in [(300, 3, 2), (240, 6, 5), (100, 2, 1)] {
        let identities = identities(tenants);
        let server = Identity::generate("server", 1).unwrap().0;
        let mut parts = in_process(&server, &identities);
        parts.limits.tunnels = limit;
        let running = Server::start(parts).unwrap();
        let at = running.local_addr().unwrap();
        let target = silent_target().await;
        let mut kept = Vec::new();
        for tenant in &identities[..hostile] {
            kept.push(Tenant::connect(tenant, &server, at).await.fill(target).await);
        }
        let mut other = Tenant::connect(&identities[hostile], &server, at).await;
        let share = limit / 2 / tenants;
        assert_eq!(other.open(target, share).await, share);
        let held: usize = kept.iter().map(|tenant| tenant.tunnels.len()).sum();
        assert!(held + share <= limit && held >= limit / 2, "{held} of {limit}");
        assert!(running.counted().tunnels_over_limit > 0);
        drop((kept, other));
        drop(running);
    }
}

#[test]
fn a_tenant_that_uses_up_ports_leaves_ports_to_others() {
    let _ = ports_beside_a_hostile_tenant();
}

fn ports_beside_a_hostile_tenant() -> Option<()> {
    let _beside_others = PROCESS.blocking_read();
    let runtime = in_a_network_of_its_own()?;
    for (range, keeps) in [(400, false), (300, true)] {
        let last = 30_000 + range - 1;
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", format!("30000 {last}")).unwrap();
        // Without this setting the kernel would reuse the loopback's ports after a second.
        std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "0").unwrap();
        runtime.block_on(async {
            let identities = identities(2);
            let server = Identity::generate("server", 1).unwrap().0;
            let running = Server::start(in_process(&server, &identities)).unwrap();
            let at = running.local_addr().unwrap();
            let target = polite_target().await;
            let mut hostile = Tenant::connect(&identities[0], &server, at).await;
            let mut used = 0;
            for _ in 0..40 {
                used += hostile.open(target, 40).await;
                if !keeps {
                    hostile.finish_all().await;
                }
            }
            let mut other = Tenant::connect(&identities[1], &server, at).await;
            let opened = other.open(target, 40).await;
            eprintln!(
                "ATTACK ports-used-up: {range} ports: a hostile tenant used {used}, another one \
                 {opened} of 40"
            );
            assert!(used > range / 4, "{used}");
            assert_eq!(opened, 40);
            drop((hostile, other));
            drop(running);
        });
    }
    Some(())
}

/// A tenant with one connection that uses the transport directly.
struct Tenant {
    connection: QuicConnection,
    tunnels: Vec<(SendingHalf, ReceivingHalf)>,
    _quic: QuicClient,
}

impl Tenant {
    async fn connect(own: &Identity, server: &Identity, at: SocketAddr) -> Self {
        let trust = ServerTrust::Pins(vec![server.pin()]);
        let tls = tunnel::identity::client_config(own, &trust).unwrap();
        let meter = Arc::new(quic::Meter::unlimited());
        let quic = QuicClient::new(tls, tuning(), &meter).unwrap();
        let connection = quic.connect(at, trust.server_name(), 0).await.unwrap();
        Self { connection, tunnels: Vec::new(), _quic: quic }
    }

    /// Opens tunnels, `AT_ONCE` at a time, until the server refuses all of one batch.
    async fn fill(mut self, target: SocketAddr) -> Self {
        while self.open(target, AT_ONCE).await > 0 {}
        self
    }

    /// Tries to open `count` tunnels and keeps them. Returns the number that the server opened.
    async fn open(&mut self, target: SocketAddr, count: usize) -> usize {
        let before = self.tunnels.len();
        let mut tries = JoinSet::new();
        for _ in 0..count {
            let connection = self.connection.clone();
            tries.spawn(async move { open(&connection, target).await });
        }
        self.tunnels.extend(tries.join_all().await.into_iter().flatten());
        self.tunnels.len() - before
    }

    /// Closes all tunnels from this end before their target closes them.
    async fn finish_all(&mut self) {
        let mut ended = JoinSet::new();
        for (mut sending, mut receiving) in self.tunnels.drain(..) {
            ended.spawn(async move {
                sending.finish();
                while let Ok(true) = receiving.read(1000, &mut Vec::new()).await {}
            });
        }
        ended.join_all().await;
    }
}

async fn open(
    connection: &QuicConnection,
    target: SocketAddr,
) -> Option<(SendingHalf, ReceivingHalf)> {
    let (mut sending, mut receiving) = connection.open().await.ok()?;
    let opening = Opening::forward(format!("tcp:{target}").parse().unwrap());
    sending.write(opening.encode()).await.ok()?;
    let (mut chunks, mut received) = (Vec::new(), Vec::new());
    loop {
        let more = receiving.read(1000, &mut chunks).await.ok()?;
        // The bytes of the answer arrive in order, so their offsets are ignored.
        chunks.drain(..).for_each(|(_, bytes)| received.extend_from_slice(&bytes));
        if let Ok(Some((answer, _))) = Answer::decode(&received) {
            return (answer.status == Status::Open).then_some((sending, receiving));
        }
        if !more {
            return None;
        }
    }
}

/// Starts a target that keeps its connections open and reads nothing.
async fn silent_target() -> SocketAddr {
    let (listener, at) = crate::ends::target().await;
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    at
}

/// Starts a target that closes each connection after the other end has closed it.
async fn polite_target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(crate::ends::echo(listener));
    at
}

fn identities(count: usize) -> Vec<Identity> {
    (0..count).map(|number| Identity::generate(&name(number), 1).unwrap().0).collect()
}

fn name(number: usize) -> String {
    format!("tenant-{number}")
}

fn in_process(server: &Identity, identities: &[Identity]) -> ServerParts {
    let names: Vec<_> = (0..identities.len()).map(name).collect();
    let peers: Vec<_> = names.iter().map(String::as_str).zip(identities).collect();
    let keys = crate::ends::Keys { server: server.clone(), client: server.clone() };
    keys.server_parts(guard_of(&peers, &["tcp:127.0.0.1:*"], &[]))
}

/// A server in a separate process, with a limit of open files.
struct LimitedServer {
    child: Child,
    at: SocketAddr,
    identity: Identity,
    tenants: Vec<Identity>,
    folder: TempDir,
}

impl LimitedServer {
    fn start(files: u64, tenants: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (identity, pem) = Identity::generate("server", 1).unwrap();
        pem.write(&folder.path().join("server.crt"), &folder.path().join("server.key"), false)
            .unwrap();
        let tenants = identities(tenants);
        let mut file = "[server]\nlisten-on = \"127.0.0.1:0\"\ncert-file = \"server.crt\"\n\
                        key-file = \"server.key\"\nstatus-socket = \"status.sock\"\nendpoints = 2\n"
            .to_owned();
        for (number, tenant) in tenants.iter().enumerate() {
            file += &format!(
                "[[server.peer]]\nname = \"{}\"\npin = \"{}\"\nallow = [\"tcp:127.0.0.1:*\"]\n",
                name(number),
                tenant.pin()
            );
        }
        std::fs::write(folder.path().join("server.toml"), file).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tenants::a_server_of_its_own", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(FILES, files.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = lines.find_map(|line| {
            let line = line.ok()?;
            line.split_once("listening on ")?.1.split(';').next()?.parse().ok()
        });
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
        let at = at.unwrap_or_else(|| panic!("no server: {}", log()));
        Self { child, at, identity, tenants, folder }
    }
}

impl Drop for LimitedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the process that [`LimitedServer::start`] starts. In any other process the test does
/// nothing.
#[test]
#[ignore = "a part of another test"]
fn a_server_of_its_own() {
    let (Some(folder), Ok(files)) = (std::env::var_os(FOLDER), std::env::var(FILES)) else {
        return;
    };
    let files = files.parse().ok();
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).try_init();
    let path = Path::new(&folder).join("server.toml");
    let config = || File::read(&path).and_then(|file| file.server_config(ServerTable::default()));
    tunnel::run::server(&config().unwrap(), None, config, |line| println!("{line}")).unwrap();
}

const AT_ONCE: usize = 32;
const FOLDER: &str = "WEIR_TEST_TENANTS_FOLDER";
const FILES: &str = "WEIR_TEST_TENANTS_FILES";
