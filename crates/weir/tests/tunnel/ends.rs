//! Both ends of a tunnel as a user starts them, and their applications and targets.

use crate::support::{Running, Sandbox, await_some};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// The keys of two ends in the sandbox's folder. The methods start the ends.
pub struct Ends<'a> {
    pub sandbox: &'a Sandbox,
    pub folder: String,
    pub pin: String,
    pub peer: String,
    /// The keepalive: long enough that a starved process does not count as dead. Tests of dead ends
    /// set a second.
    pub keepalive: &'static str,
}

impl<'a> Ends<'a> {
    pub fn new(sandbox: &'a Sandbox) -> Self {
        Self::below(sandbox, "keys")
    }

    pub fn below(sandbox: &'a Sandbox, folder: &str) -> Self {
        Self::named(sandbox, folder, "laptop")
    }

    /// Makes the keys of both ends. `client` is the client's name at the server.
    pub fn named(sandbox: &'a Sandbox, folder: &str, client: &str) -> Self {
        let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(sandbox.inside(up).unwrap().success());
        let key = |role: &str| {
            let mut words = vec!["tunnel", "keys", role, "--directory", folder];
            words.extend(["--name", if role == "client" { client } else { "server" }]);
            let output = sandbox.weir(&words);
            assert!(output.status.success(), "{output:?}");
            output.stdout.trim().split_once(' ').unwrap().1.to_owned()
        };
        let (pin, peer) = (key("server"), key("client"));
        Self { sandbox, folder: folder.to_owned(), pin, peer, keepalive: "10s" }
    }

    pub fn own(&self, role: &str) -> Vec<String> {
        let file = |ending: &str| format!("{}/{role}.{ending}", self.folder);
        vec!["--cert-file".to_owned(), file("crt"), "--key-file".to_owned(), file("key")]
    }

    /// Returns the client's entry in the server's file, to which a test may append rules.
    pub fn peer_table(&self) -> String {
        let (name, pin) = self.peer.split_once('=').unwrap();
        format!("[[server.peer]]\nname = \"{name}\"\npin = \"{pin}\"\n")
    }

    pub fn server(&self, allow: &[&str]) -> Running {
        let rules: Vec<&str> = allow.iter().flat_map(|rule| ["--allow", rule]).collect();
        self.server_with(&rules)
    }

    pub fn server_with(&self, flags: &[&str]) -> Running {
        let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7500"];
        words.extend(["--peer", &self.peer, "--metrics-on", "127.0.0.1:9150"]);
        words.extend(["--status-socket", "server.sock"]);
        words.extend(flags);
        let own = self.own("server");
        words.extend(own.iter().map(String::as_str));
        self.started(&words, "listening on")
    }

    pub fn client(&self, forward: &[&str]) -> Running {
        self.client_at(forward, "client.sock")
    }

    pub fn client_at(&self, forward: &[&str], socket: &str) -> Running {
        let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &self.pin];
        words.extend(["--status-socket", socket]);
        words.extend(forward.iter().flat_map(|forward| ["--forward", forward]));
        let own = self.own("client");
        words.extend(own.iter().map(String::as_str));
        self.started(&words, "connected to")
    }

    pub fn started(&self, words: &[&str], message: &str) -> Running {
        let words = [words, &["--keepalive", self.keepalive]].concat();
        let mut running = self.sandbox.start(&words);
        await_some("a tunnel's end", || {
            let output = running.output_so_far();
            assert!(!running.has_ended(), "{output:?}");
            output.1.contains(message).then_some(())
        });
        running
    }
}

/// Starts an echo server, whose connections end when their peers end. Returns the server's port.
pub fn echo() -> u16 {
    echo_at("127.0.0.1:0")
}

pub fn echo_at(address: &str) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reading = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut reading, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

/// Sends `sent`, ends the sending half, and returns all received bytes.
pub fn through(port: u16, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(NEVER_LONGER))?;
    let mut writing = stream.try_clone()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writing.write_all(sent);
            let _ = writing.shutdown(Shutdown::Write);
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).map(|_| got)
    })
}

pub fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A timeout that no event of these tests exceeds, however busy the machine is.
pub const NEVER_LONGER: Duration = Duration::from_secs(60);
