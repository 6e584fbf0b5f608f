//! Both ends of a tunnel, and its target, each in a separate process.
#![allow(dead_code)]

use crate::ends::{Keys, target, tcp_of, to_tcp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tunnel::client::Client;
use tunnel::identity::Identity;
use tunnel::server::Server;

/// A server, a client, and a target, each in a separate process. Dropping the value ends the
/// processes.
pub(crate) struct Processes {
    pub(crate) server: End,
    pub(crate) client: End,
    /// The address of the client's listener, whose tunnels reach the target.
    pub(crate) at: SocketAddr,
    _target: End,
    _home: TempDir,
}

impl Processes {
    /// Starts the processes. `target` is `answering` or `resetting`.
    pub(crate) fn start(target: &'static str) -> Self {
        Self::with_client_files(target, None)
    }

    /// Starts the processes, and limits the open files of the client.
    pub(crate) fn with_client_files(target: &'static str, files: Option<u64>) -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in ["server", "client"] {
            let (_, made) = Identity::generate(name, 1).unwrap();
            made.write(&certificate(home.path(), name), &key(home.path(), name), false).unwrap();
        }
        // Each process has its own limit of open files.
        let (target, address) = End::start(target, home.path(), &[]);
        let (server, at) = End::start("server", home.path(), &[]);
        let mut settings = vec![("SERVER", at.to_string()), ("TARGET", address.to_string())];
        settings.extend(files.map(|files| ("FILES", files.to_string())));
        let (client, at) = End::start("client", home.path(), &settings);
        Self { server, client, at, _target: target, _home: home }
    }
}

/// One end of the tunnel, or the target, in another process that runs this program. Dropping the
/// value ends the process.
pub(crate) struct End {
    pub(crate) name: &'static str,
    child: Child,
}

impl End {
    /// Starts the process. Returns the process with the address on which the target, the server or
    /// the client's listener listens.
    fn start(name: &'static str, home: &Path, settings: &[(&str, String)]) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "processes::an_end_of_its_own", "--ignored", "--nocapture"])
            .env("TUNNEL_END", name)
            .env("TUNNEL_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in settings {
            command.env(format!("TUNNEL_{name}"), value);
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.lines().map_while(Result::ok);
        let at = lines.filter_map(|line| line.strip_prefix("at ")?.parse().ok()).next();
        (Self { name, child }, at.unwrap())
    }

    /// Returns the process's resident memory in KiB.
    pub(crate) fn resident(&self) -> u64 {
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

/// Runs the process that [`End::start`] starts. In any other process the test does nothing.
#[tokio::test]
#[ignore = "a part of the others"]
async fn an_end_of_its_own() {
    let Ok(end) = std::env::var("TUNNEL_END") else { return };
    match std::env::var("TUNNEL_FILES") {
        Ok(files) => {
            let files = files.parse().ok();
            setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
        }
        Err(_) => _ = allow_files(11_500),
    }
    let home = PathBuf::from(std::env::var("TUNNEL_HOME").unwrap());
    let address = |name| std::env::var(name).unwrap().parse::<SocketAddr>().unwrap();
    let identity =
        |name: &str| Identity::load(&certificate(&home, name), &key(&home, name)).unwrap();
    let keys = Keys { server: identity("server"), client: identity("client") };
    let mut ends: (Option<Server>, Option<Client>) = (None, None);
    let at = if end == "answering" {
        let (listener, at) = target().await;
        tokio::spawn(answer(listener));
        at
    } else if end == "resetting" {
        let (listener, at) = target().await;
        tokio::spawn(reset(listener));
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
    // Run until the parent process kills this process or exits.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await.unwrap();
    drop(ends);
}

fn certificate(home: &Path, name: &str) -> PathBuf {
    home.join(format!("{name}.crt"))
}

fn key(home: &Path, name: &str) -> PathBuf {
    home.join(format!("{name}.key"))
}

/// Answers each connection once, and keeps the connection open until its peer closes it.
async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut buffer = [0; 100];
            if stream.read_exact(&mut buffer).await.is_ok()
                && stream.write_all(&buffer).await.is_ok()
            {
                let _ = stream.read(&mut buffer).await;
            }
        });
    }
}

/// Resets each connection once a byte has arrived.
async fn reset(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = stream.read(&mut [0; 1]).await;
            reset_at_end(&stream);
        });
    }
}

/// Lets the connection end with a reset when it is dropped.
pub(crate) fn reset_at_end(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

pub(crate) fn allow_files(count: u64) -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return true;
    }
    limit.current = Some(count);
    limit.maximum = limit.maximum.map(|most| most.max(count));
    setrlimit(Resource::Nofile, limit).is_ok()
}
