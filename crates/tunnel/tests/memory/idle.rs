//! Memory of idle tunnels, with both ends in separate processes.
//!
//! The long form: `cargo test --release -p weir-tunnel --test memory -- --ignored ten_thousand
//! --nocapture`.

use crate::ends::{Keys, target, tcp_of, through, to_tcp};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tunnel::client::Client;
use tunnel::identity::Identity;
use tunnel::server::Server;

#[tokio::test]
async fn a_thousand_idle_tunnels_use_little_memory() {
    idle(1000, 64).await;
}

#[tokio::test]
#[ignore = "ten thousand connections, each twice on this machine"]
async fn ten_thousand_idle_tunnels_use_at_most_256_mib() {
    idle(10_000, 256).await;
}

/// Each of `count` tunnels carries a few bytes in both directions and stays open.
async fn idle(count: usize, most_mib: u64) {
    let files = count as u64 + 1000;
    if !allow_files(files) {
        testing::skip(testing::Need::OpenFiles(files));
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for name in ["server", "client"] {
        let (_, made) = Identity::generate(name, 1).unwrap();
        made.write(&certificate(home.path(), name), &key(home.path(), name), false).unwrap();
    }
    // Each process has its own limit of open files.
    let (_targets, address) = End::start("target", home.path(), None, None);
    let (server, at) = End::start("server", home.path(), None, None);
    let (client, listener_address) = End::start("client", home.path(), Some(at), Some(address));
    let before = [server.resident(), client.resident()];
    let mut applications = Vec::new();
    for number in 0..count {
        let mut stream = through(listener_address).await;
        let (sent, mut got) = (crate::ends::bytes(number as u64, 100), vec![0; 100]);
        stream.write_all(&sent).await.unwrap();
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, sent);
        applications.push(stream);
    }
    for (end, before) in [&server, &client].into_iter().zip(before) {
        let now = end.resident();
        eprintln!("{}: {now} KiB with {count} idle tunnels, {before} KiB without", end.name);
        assert!(now < most_mib * 1024, "{}: {now} KiB", end.name);
    }
}

/// One end of the tunnel: this program as another process. Dropping it ends the process.
struct End {
    name: &'static str,
    child: Child,
}

impl End {
    /// Returns the address of the target or the server, or of the client's listener.
    fn start(
        name: &'static str,
        home: &Path,
        server: Option<SocketAddr>,
        target: Option<SocketAddr>,
    ) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "idle::an_end_of_its_own", "--ignored", "--nocapture"])
            .env("TUNNEL_END", name)
            .env("TUNNEL_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, address) in [("TUNNEL_SERVER", server), ("TUNNEL_TARGET", target)] {
            if let Some(address) = address {
                command.env(name, address.to_string());
            }
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.lines().map_while(Result::ok);
        let at = lines.filter_map(|line| line.strip_prefix("at ")?.parse().ok()).next();
        (Self { name, child }, at.unwrap())
    }

    /// Resident memory in KiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that [`End::start`] runs. On its own it does nothing.
#[tokio::test]
#[ignore = "a part of the others"]
async fn an_end_of_its_own() {
    let Ok(end) = std::env::var("TUNNEL_END") else { return };
    allow_files(11_500);
    let home = PathBuf::from(std::env::var("TUNNEL_HOME").unwrap());
    let address = |name| std::env::var(name).unwrap().parse::<SocketAddr>().unwrap();
    let identity =
        |name: &str| Identity::load(&certificate(&home, name), &key(&home, name)).unwrap();
    let keys = Keys { server: identity("server"), client: identity("client") };
    let mut ends: (Option<Server>, Option<Client>) = (None, None);
    let at = if end == "target" {
        let (listener, at) = target().await;
        tokio::spawn(answer(listener));
        at
    } else if end == "server" {
        let guard = keys.guard(&["tcp:127.0.0.1:*"], &[]);
        let server = Server::start(keys.server_parts(guard)).unwrap();
        let at = server.local_addr().unwrap();
        ends.0 = Some(server);
        at
    } else {
        let listeners = vec![to_tcp(address("TUNNEL_TARGET"))];
        let parts = keys.client_parts(&[address("TUNNEL_SERVER")], listeners);
        let client = Client::start(parts).await.unwrap();
        client.connected().await;
        let at = tcp_of(&client.bound()[0]);
        ends.1 = Some(client);
        at
    };
    println!("\nat {at}");
    std::io::stdout().flush().unwrap();
    // Runs until the parent process ends it, or ends itself.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await.unwrap();
    drop(ends);
}

fn certificate(home: &Path, name: &str) -> PathBuf {
    home.join(format!("{name}.crt"))
}

fn key(home: &Path, name: &str) -> PathBuf {
    home.join(format!("{name}.key"))
}

/// Answers each connection once, and keeps it open.
async fn answer(listener: TcpListener) {
    let mut all = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut output = [0; 100];
        stream.read_exact(&mut output).await.unwrap();
        stream.write_all(&output).await.unwrap();
        all.push(stream);
    }
}

fn allow_files(count: u64) -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return true;
    }
    limit.current = Some(count);
    limit.maximum = limit.maximum.map(|most| most.max(count));
    setrlimit(Resource::Nofile, limit).is_ok()
}
