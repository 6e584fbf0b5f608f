//! Log lines give the reason for the end of a connection. Texts that peers and strangers choose can
//! neither break a line nor control a terminal.

#![allow(clippy::unwrap_used)]

mod ends;

use bytes::Bytes;
use ends::verifier::ServerVerifier;
use ends::{Keys, tuning};
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tunnel::access::{Access, Rights};
use tunnel::client::{Client, ListenAt, Listener};
use tunnel::identity::ServerTrust;
use tunnel::server::Server;
use tunnel::transport::quic::QuicClient;
use tunnel::transport::{Connection, Receiving, Sending, Transport};

#[tokio::test]
async fn a_peer_cannot_forge_log_lines_by_frames() {
    let (keys, log) = (Keys::with_log(), log());
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let at = server.local_addr().unwrap();
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let tls = tunnel::identity::client_config(&keys.client, &trust).unwrap();
    let quic = QuicClient::new(tls, tuning(), &unlimited()).unwrap();
    let connection = quic.connect(at, trust.server_name(), 0).await.unwrap();
    for (address, message) in [
        (format!("frame {HOSTILE}"), "not understood"),
        (format!("tcp:frame {HOSTILE}:22"), "not understood"),
        (format!("unix:/frame {HOSTILE}"), "target denied"),
    ] {
        // The opening has version 1, type forward, and no properties.
        let mut opening = vec![1, 1];
        opening.extend((address.len() as u16).to_be_bytes());
        opening.extend([0, 0]);
        opening.extend(address.as_bytes());
        let (mut sending, mut receiving) = connection.open().await.unwrap();
        sending.write(Bytes::from(opening)).await.unwrap();
        // The server writes the log line before it sends the answer.
        let mut answer = Vec::new();
        assert!(receiving.read(2000, &mut answer).await.unwrap(), "{message}");
        let line = log.line_with(&["frame a", message]);
        assert!(line.contains(SHOWN), "{line:?}");
    }
    connection.close(&format!("parting {HOSTILE}"));
    let line = log.awaited(&["parting a", "disconnected"]).await;
    assert!(line.contains(SHOWN), "{line:?}");
    log.holds_no_raw_text();
    drop(server);
}

#[tokio::test]
async fn a_stranger_cannot_forge_log_lines_by_its_close_reason() {
    let (keys, log) = (Keys::with_log(), log());
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let at = server.local_addr().unwrap();
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let mut tls = tunnel::identity::client_config(&keys.client, &trust).unwrap();
    // The engine sends the reason to the server, in a CONNECTION_CLOSE during the handshake.
    let reason = format!("stranger {HOSTILE}{}", "x".repeat(600));
    tls.dangerous().set_certificate_verifier(Arc::new(ServerVerifier::rejecting(reason)));
    let quic = QuicClient::new(tls, tuning(), &unlimited()).unwrap();
    let lost = quic.connect(at, trust.server_name(), 0).await.unwrap_err().to_string();
    assert!(!lost.contains(OBEYED), "{lost:?}");
    let line = log.awaited(&["stranger a", "handshake failed"]).await;
    assert!(line.contains(SHOWN), "{line:?}");
    assert!(line.chars().count() < 500, "{line:?}");
    log.holds_no_raw_text();
    drop(server);
}

/// The server closes the connection to a silent peer, and must log the silence as the reason.
#[tokio::test]
async fn the_log_gives_silence_as_the_reason_for_closing_a_silent_peer() {
    let log = log();
    let (listener, address) = ends::target().await;
    let echo = tokio::spawn(ends::echo(listener));
    let (server, client, listeners, wire) = ends::pair_over_wire(&[address]).await;
    let _stream = ends::through(listeners[0]).await;
    wire.cut_from_clients(true);
    log.awaited(&["peer disconnected", "the peer does not answer"]).await;
    assert!(server.counted().connections_silent > 0);
    echo.abort();
    drop((client, server));
}

#[tokio::test]
async fn the_log_says_that_the_operator_has_ended_a_session() {
    let (keys, log) = (Keys::with_log(), log());
    let mut guard = keys.guard(&[], &[]);
    // Other tests of this file write log lines with the name `client`, so use another name.
    let name: tunnel::identity::PeerName = "kicked".parse().unwrap();
    guard.access = Access::new([(name.clone(), Rights::default())]);
    guard.trusted[0].name = name;
    let server = Server::start(keys.server_parts(guard)).unwrap();
    let at = server.local_addr().unwrap();
    let client = Client::start(keys.client_parts(&[at], Vec::new())).await.unwrap();
    // A client completes its handshake before the server does.
    let kick = async {
        while server.kick("kicked").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), kick).await.unwrap();
    let by_operator = "the operator of the server has ended this session";
    let at_server = format!("this end closed the connection: {by_operator}");
    log.awaited(&["peer disconnected", "kicked", &at_server]).await;
    log.awaited(&[&format!("the peer closed the connection: {by_operator}")]).await;
    drop((client, server));
}

/// Applications that retry again and again must not fill the disk with log lines.
#[tokio::test]
async fn an_end_logs_only_a_few_of_many_refusals() {
    let (keys, log) = (Keys::with_log(), log());
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let target = "203.0.113.9:99".parse().unwrap();
    let at = server.local_addr().unwrap();
    let client = Client::start(keys.client_parts(&[at], vec![ends::to_tcp(target)])).await.unwrap();
    client.connected().await;
    let listener_address = ends::tcp_of(&client.bound()[0]);
    for _ in 0..300 {
        // The client resets the connection once the server has refused the tunnel. The reset may
        // arrive before connect(2) returns.
        if let Ok(mut stream) = tokio::net::TcpStream::connect(listener_address).await {
            let _ = stream.read(&mut [0; 1]).await;
        }
    }
    let text = log.text();
    for message in ["the server refused", "target denied"] {
        let lines =
            text.lines().filter(|line| line.contains(message) && line.contains("203.0.113.9"));
        let count = lines.count();
        assert!((1..30).contains(&count), "{count} lines: {message}");
    }
    // The client may count the last refusal after this check, because it resets the application
    // first.
    assert!(client.counted().tunnels_refused >= 299);
    drop((client, server));
}

#[tokio::test]
async fn the_log_names_the_target_of_refused_datagrams() {
    let (keys, log) = (Keys::with_log(), log());
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:*"], &[]))).unwrap();
    let listener = Listener {
        listen: ListenAt::Udp("127.0.0.1:0".parse().unwrap()),
        route: "udp:203.0.113.7:53".parse().unwrap(),
    };
    let at = server.local_addr().unwrap();
    let client = Client::start(keys.client_parts(&[at], vec![listener])).await.unwrap();
    client.connected().await;
    let application = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    application.send_to(b"x", ends::tcp_of(&client.bound()[0])).await.unwrap();
    log.awaited(&["the other end refused", "target=udp:203.0.113.7:53"]).await;
    drop((client, server));
}

/// The log of this process, byte for byte as a terminal would receive it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

/// Returns the log that all tests of this file share, because a process has one subscriber.
fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let out = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || out.clone());
        let subscriber = subscriber.with_max_level(tracing::Level::INFO).with_ansi(false);
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        log
    })
    .clone()
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn find(&self, words: &[&str]) -> Option<String> {
        let text = self.text();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().find(has_all).map(str::to_owned)
    }

    fn line_with(&self, words: &[&str]) -> String {
        self.find(words).unwrap_or_else(|| panic!("no line with {words:?}: {}", self.text()))
    }

    async fn awaited(&self, words: &[&str]) -> String {
        let most = Instant::now() + Duration::from_secs(60);
        loop {
            match self.find(words) {
                Some(line) => return line,
                None if Instant::now() > most => return self.line_with(words),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn holds_no_raw_text(&self) {
        let text = self.text();
        assert!(!text.contains(OBEYED), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
}

impl Keys {
    /// Installs this file's log before the default log.
    fn with_log() -> Self {
        let _ = log();
        Self::new()
    }
}

const HOSTILE: &str = "a\nforged WARN\r\x1b]0;owned\x07\u{9b}2J\u{202e}";
/// `HOSTILE` as the log must show it, escaped.
const SHOWN: &str = r"a\nforged WARN\r\x1b]0;owned\x07\x9b2J\u{202e}";
const OBEYED: [char; 5] = ['\r', '\x1b', '\x07', '\u{9b}', '\u{202e}'];

fn unlimited() -> Arc<quic::Meter> {
    Arc::new(quic::Meter::unlimited())
}
