//! Servers with accounts: only clients with an account are served, and a refusal does not reveal
//! its reason.

#![allow(clippy::unwrap_used)]

#[path = "support/hostile.rs"]
mod hostile;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeySize, PrivateDecryptingKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hostile::{RawClient, TestServer, long_timeouts, on_loopback, read_to_end, server_error};
use perf::accounts::{Accounts, Credentials, Padding};
use perf::control::State;
use perf::options::{ClientOptions, Limits, Protocol, ServerOptions};
use perf::rounds::wire::TestRequest;
use perf::rounds::{self, Kind, RoundsOptions};
use serde_json::json;
use std::time::Duration;
use tempfile::TempDir;
use units::Span;

/// A folder with a key pair and a file of users, with a single user.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let write =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("private.pem", pem("PRIVATE KEY", key.as_der().unwrap().as_ref()));
        write("public.pem", pem("PUBLIC KEY", key.public_key().as_der().unwrap().as_ref()));
        // SHA-256 of `{mario}rossi`.
        let hash = "bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b";
        write("users.csv", format!("mario,{hash}\n"));
        Self { folder }
    }

    fn accounts(&self, padding: Padding) -> Accounts {
        let file = |name: &str| self.folder.path().join(name);
        let skew = Duration::from_secs(60);
        Accounts::open(&file("users.csv"), &file("private.pem"), padding, skew).unwrap()
    }

    fn credentials(&self, user: &str, password: &str, padding: Padding) -> Credentials {
        let key = self.folder.path().join("public.pem");
        Credentials::new(user, password, &key, padding).unwrap()
    }

    fn server(&self, padding: Padding, limits: Limits) -> TestServer {
        let accounts = Some(self.accounts(padding));
        TestServer::open_with(ServerOptions { accounts, limits, ..on_loopback() })
    }
}

fn pem(name: &str, der: &[u8]) -> String {
    format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", STANDARD.encode(der))
}

fn options(server: &TestServer, credentials: Option<Credentials>) -> ClientOptions {
    ClientOptions { credentials, ..server.client_options(Protocol::Tcp) }
}

/// Returns all bytes that the server sends to a client with these parameters.
fn received(server: &TestServer, parameters: &serde_json::Value) -> Vec<u8> {
    let mut raw = RawClient::connect(server);
    raw.send_cookie();
    raw.send(parameters.to_string().as_bytes());
    read_to_end(&mut raw.control)
}

#[test]
fn a_user_with_the_right_password_is_served() {
    let files = Files::new();
    for padding in [Padding::Oaep, Padding::Pkcs1] {
        let server = files.server(padding, long_timeouts());
        let mario = || Some(files.credentials("mario", "rossi", padding));
        // Each test has its own token, even within the same second.
        for _ in 0..2 {
            hostile::client(options(&server, mario())).join().unwrap().unwrap();
        }
        let rounds = RoundsOptions {
            port: server.address().port(),
            time: Span::from_millis(50),
            credentials: mario(),
            ..RoundsOptions::new("127.0.0.1", Kind::Rr)
        };
        rounds::run(&rounds, &perf::event::Stop::default(), &mut NoAudience).unwrap();
        let summary = server.close();
        assert_eq!((summary.completed, summary.failed), (3, 0));
    }
}

struct NoAudience;

impl rounds::Audience for NoAudience {
    fn event(&mut self, _: &rounds::Event<'_>) {}
}

/// The reply is the same for every fault of a token.
#[test]
fn every_refused_token_gets_the_same_error() {
    let files = Files::new();
    for padding in [Padding::Oaep, Padding::Pkcs1] {
        let other = if padding == Padding::Oaep { Padding::Pkcs1 } else { Padding::Oaep };
        let server = files.server(padding, long_timeouts());
        for (user, password, padding) in
            [("mario", "Rossi", padding), ("luigi", "rossi", padding), ("mario", "rossi", other)]
        {
            let credentials = Some(files.credentials(user, password, padding));
            let error = hostile::client(options(&server, credentials)).join().unwrap().unwrap_err();
            assert!(error.to_string().contains("did not accept the account"), "{error}");
        }
        // 142 is AUTHORIZATION of iperf3, without an errno.
        let refusal = [&[State::ServerError.byte()], &142_i32.to_be_bytes()[..], &[0; 4]].concat();
        let ask = TestRequest { kind: Kind::Rr }.to_weir();
        let refused = [
            json!({"tcp": true, "time": 1}),
            json!({"tcp": true, "time": 1, "weir": ask}),
            json!({"tcp": true, "time": 1, "authtoken": ""}),
            json!({"tcp": true, "time": 1, "authtoken": "*"}),
            json!({"tcp": true, "time": 1, "authtoken": STANDARD.encode([7; 255])}),
            json!({"tcp": true, "time": 1, "authtoken": STANDARD.encode([7; 256])}),
            json!({"tcp": true, "time": 1, "authtoken": STANDARD.encode([255; 256])}),
            json!({"tcp": true, "time": 1, "authtoken": STANDARD.encode([7; 1024])}),
        ];
        // Each refusal takes a second.
        std::thread::scope(|scope| {
            for parameters in &refused {
                let (server, refusal) = (&server, &refusal);
                scope.spawn(move || {
                    assert_eq!(received(server, parameters), *refusal, "{parameters}")
                });
            }
        });
        let summary = server.close();
        assert_eq!((summary.completed, summary.failed), (0, 0));
    }
}

/// Replays a token, as an eavesdropper may.
#[test]
fn a_token_is_accepted_for_one_test_only() {
    let files = Files::new();
    let server = files.server(Padding::Oaep, long_timeouts());
    // A false server at the address where the client expects its server.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut astray = options(&server, Some(files.credentials("mario", "rossi", Padding::Oaep)));
    astray.port = listener.local_addr().unwrap().port();
    let client = hostile::client(astray);
    let parameters = overheard(&listener);
    // iperf3 3.21 closes the connection like this when it refuses an account.
    let error = client.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("as a server does that does not accept it"), "{error}");

    let mut first = RawClient::connect(&server);
    first.send_cookie();
    first.send(parameters.to_string().as_bytes());
    first.expect(State::WeirOffer);
    assert_eq!(server_error(&received(&server, &parameters)), Some(142));
}

/// Accepts a client and returns its parameters.
fn overheard(listener: &std::net::TcpListener) -> serde_json::Value {
    use std::io::{Read, Write};
    let (mut socket, _) = listener.accept().unwrap();
    socket.read_exact(&mut [0; 37]).unwrap();
    socket.write_all(&[State::ExchangeParameters.byte()]).unwrap();
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Checks the server while clients wait for their refusal, and after the refusal.
#[test]
fn clients_without_an_account_hold_no_session_and_end_no_server() {
    let files = Files::new();
    let accounts = Some(files.accounts(Padding::Oaep));
    let server = TestServer::open_with(ServerOptions { accounts, one_off: true, ..on_loopback() });
    let strangers: Vec<RawClient> = (0..8)
        .map(|_| {
            let mut raw = RawClient::connect(&server);
            raw.send_cookie();
            raw.send(br#"{"tcp":true,"time":1}"#);
            raw
        })
        .collect();
    for mut stranger in strangers {
        assert_eq!(server_error(&read_to_end(&mut stranger.control)), Some(142));
    }
    let mario = Some(files.credentials("mario", "rossi", Padding::Oaep));
    hostile::client(options(&server, mario)).join().unwrap().unwrap();
    assert_eq!(server.wait().completed, 1);
}

#[test]
fn credentials_at_a_server_without_accounts_are_an_error() {
    let files = Files::new();
    let server = TestServer::open(long_timeouts());
    let mario = Some(files.credentials("mario", "rossi", Padding::Oaep));
    let error = hostile::client(options(&server, mario)).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("leave both out where it has none"), "{error}");
}
