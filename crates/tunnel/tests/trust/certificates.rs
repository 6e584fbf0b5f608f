//! Certificates expire, are revoked, or are removed from the list while a tunnel runs.

use crate::ends::{Keys, echo, tcp_of, through, to_tcp, until};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyPair, RevokedCertParams, SerialNumber,
};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tunnel::access::{Access, Rights};
use tunnel::client::Client;
use tunnel::config::{File, ServerTable};
use tunnel::identity::{Authorities, Identity, Proof, ServerTrust, TrustedPeer};
use tunnel::server::{Guard, Server};

#[tokio::test]
async fn a_connection_ends_when_its_certificate_expires_unless_the_certificate_is_pinned() {
    let (target, address) = crate::ends::target().await;
    let echo = tokio::spawn(echo(target));
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca", in_time(DAY));
    let end = in_time(LIFE);
    let middle = authority.below("middle", end);
    let server = Identity::generate("server", 1).unwrap().0;
    let peers = [
        ("lasting", authority.issue("lasting", in_time(DAY))),
        ("brief", authority.issue("brief", end)),
        ("chained", middle.issue("chained", in_time(DAY))),
        ("pinned", authority.issue("pinned", end)),
    ];
    let authorities = Authorities::load(&home.path().join("ca.pem"), &[]).unwrap();
    let proof = |name: &str, identity: &Identity| match name {
        "pinned" => Proof::Pins(vec![identity.pin()]),
        name => Proof::Certified { authorities: Arc::clone(&authorities), name: name.to_owned() },
    };
    let proofs = peers.iter().map(|(name, identity)| (*name, proof(name, identity))).collect();
    let keys = Keys { server: server.clone(), client: server.clone() };
    let server = Server::start(keys.server_parts(guard(proofs))).unwrap();
    let at = server.local_addr().unwrap();
    let mut tunnels = Vec::new();
    for (name, identity) in &peers {
        let keys = Keys { server: keys.server.clone(), client: identity.clone() };
        let client = Client::start(keys.client_parts(&[at], vec![to_tcp(address)])).await.unwrap();
        let mut stream = through(tcp_of(&client.bound()[0])).await;
        exchange(&mut stream).await.unwrap();
        tunnels.push((*name, stream, client));
    }
    assert!(SystemTime::now() < end, "the machine is too slow for certificates of {LIFE:?}");
    for (name, stream, _) in &mut tunnels {
        if ["brief", "chained"].contains(name) {
            // Only the certificate's expiry ends the connection so early; a missed keepalive would
            // end it much later.
            let ended = tokio::time::timeout(LIFE * 6, stream.read(&mut [0; 1])).await;
            assert!(ended.expect("the connection outlived its certificate").is_err(), "{name}");
            assert!(SystemTime::now() >= end, "{name}: the connection ended too soon");
        }
    }
    for (name, stream, _) in &mut tunnels {
        if ["lasting", "pinned"].contains(name) {
            exchange(stream).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    let left = |name: &str| server.peers().iter().filter(|peer| peer.peer.as_str() == name).count();
    // Each client has two connections, which begin and end at different times.
    for (name, connections) in [("lasting", 2), ("brief", 0), ("chained", 0), ("pinned", 2)] {
        let all = async {
            while left(name) != connections {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let reached = tokio::time::timeout(LIFE * 6, all).await;
        assert!(reached.is_ok(), "{name}: {} connections", left(name));
    }
    echo.abort();
    drop((tunnels, server));
}

#[tokio::test]
async fn a_client_leaves_a_server_whose_certificate_has_expired() {
    let (target, address) = crate::ends::target().await;
    let echo = tokio::spawn(echo(target));
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca", in_time(DAY));
    let end = in_time(LIFE);
    let keys = Keys { server: authority.issue("tokyo.example", end), ..Keys::new() };
    let rule = format!("tcp:{address}");
    let server = Server::start(keys.server_parts(keys.guard(&[&rule], &[]))).unwrap();
    let authorities = Authorities::load(&home.path().join("ca.pem"), &[]).unwrap();
    let trust = ServerTrust::Certified { authorities, name: "tokyo.example".to_owned() };
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], vec![to_tcp(address)]);
    parts.servers[0].tls = tunnel::identity::client_config(&keys.client, &trust).unwrap();
    parts.servers[0].trust = trust;
    let client = Client::start(parts).await.unwrap();
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    exchange(&mut stream).await.unwrap();
    let ended = tokio::time::timeout(LIFE * 6, stream.read(&mut [0; 1])).await;
    assert!(ended.expect("the connection outlived the server's certificate").is_err());
    assert!(SystemTime::now() >= end);
    echo.abort();
    drop((client, server));
}

#[tokio::test]
async fn a_reload_disconnects_a_revoked_peer_and_the_peer_is_refused_afterwards() {
    let (target, address) = crate::ends::target().await;
    let echo = tokio::spawn(echo(target));
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca", in_time(DAY));
    let (_, made) = Identity::generate("server", 1).unwrap();
    let path = |name: &str| home.path().join(name);
    made.write(&path("server.crt"), &path("server.key"), false).unwrap();
    let server = Identity::load(&path("server.crt"), &path("server.key")).unwrap();
    let peers = ["thief", "owner"].map(|name| authority.issue(name, in_time(DAY)));
    authority.revoke("revoked.pem", &[]);
    let file = |lists: &str| {
        let peer = |name: &str| {
            format!(
                "[[server.peer]]\nname = \"{name}\"\ncertificate-name = \"{name}\"\nallow = [\"tcp:{address}\"]\n"
            )
        };
        let text = format!(
            "[server]\ncert-file = \"server.crt\"\nkey-file = \"server.key\"\nca-file = \"ca.pem\"\n\
             crl-file = {lists}\n{}{}",
            peer("thief"),
            peer("owner")
        );
        File::parse(&path("weir.toml"), &text)
            .unwrap()
            .server_config(ServerTable::default())
            .unwrap()
    };
    let config = file("\"revoked.pem\"");
    let credentials = config.credentials();
    let mut parts =
        Keys { server: server.clone(), client: server.clone() }.server_parts(config.guard());
    parts.tls = credentials.tls().unwrap();
    let running = Server::start(parts).unwrap();
    let mut tunnels = Vec::new();
    for client in peers {
        let keys = Keys { server: server.clone(), client };
        let at = [running.local_addr().unwrap()];
        let client = Client::start(keys.client_parts(&at, vec![to_tcp(address)])).await.unwrap();
        let mut stream = through(tcp_of(&client.bound()[0])).await;
        exchange(&mut stream).await.unwrap();
        tunnels.push((stream, client));
    }

    authority.revoke("revoked.pem", &["thief"]);
    authority.revoke("revoked.der", &["thief"]);
    let config = file("[\"revoked.pem\", \"revoked.der\"]");
    credentials.replace(&config.identity, config.peers.clone());
    running.replace_guard(config.guard());
    let (thief, owner) = tunnels.split_at_mut(1);
    let ended = tokio::time::timeout(PATIENCE, thief[0].0.read(&mut [0; 1])).await;
    assert!(ended.expect("a revoked peer stays connected").is_err());
    exchange(&mut owner[0].0).await.unwrap();
    let refused = running.counted().connections_failed;
    let again = async {
        while running.counted().connections_failed < refused + 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("the revoked peer did not try again");
    assert!(running.peers().iter().all(|peer| peer.peer.as_str() == "owner"));
    assert_eq!(running.peers().len(), 2);
    echo.abort();
    drop((tunnels, running));
}

/// The list of trusted peers is long, so that the test can replace the list during the server's
/// search.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_removed_from_the_list_during_its_handshake_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca", in_time(DAY));
    let client = authority.issue("late", in_time(DAY));
    let keys = Keys { client, ..Keys::new() };
    let certified = |path: &Path, name: &str| Proof::Certified {
        authorities: Authorities::load(path, &[]).unwrap(),
        name: name.to_owned(),
    };
    let own = (String::from("late"), certified(&home.path().join("ca.pem"), "late"));
    // The two authorities have the same name and different keys, so only a check of the signature
    // distinguishes the authorities.
    let others = tempfile::tempdir().unwrap();
    let _other = Authority::new(others.path(), "ca", in_time(DAY));
    let other = others.path().join("ca.pem");
    let many = (0..2000).map(|number| (format!("p{number}"), certified(&other, "late")));
    let many: Vec<_> = many.chain([own.clone()]).collect();
    let short = guard(vec![("late", own.1)]);
    let long = guard(many.iter().map(|(name, proof)| (&**name, proof.clone())).collect());
    let mut parts = keys.server_parts(short);
    parts.guard = long;
    let server = Server::start(parts).unwrap();
    let at = server.local_addr().unwrap();
    let client = Client::start(keys.client_parts(&[at], Vec::new())).await.unwrap();
    tokio::time::timeout(PATIENCE, client.connected()).await.unwrap();
    // After this time the server searches the list.
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.replace_guard(guard(Vec::new()));
    let both = async {
        while client.counted().connections_lost < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("the removed peer stays connected");
    drop((client, server));
}

async fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0; 1]).await.map(|_| ())
}

fn guard(peers: Vec<(&str, Proof)>) -> Guard {
    let rights = |(name, _): &(&str, Proof)| {
        let dial = vec!["tcp:127.0.0.1:*".parse().unwrap()];
        (name.parse().unwrap(), Rights { dial, ..Rights::default() })
    };
    let access = Access::new(peers.iter().map(rights));
    let trusted = |(name, proof): (&str, Proof)| TrustedPeer { name: name.parse().unwrap(), proof };
    Guard { access, trusted: peers.into_iter().map(trusted).collect() }
}

/// A certificate authority. The directory `home` has the files of the authority and of the
/// identities that the authority signs.
struct Authority<'a> {
    home: &'a Path,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The authority's own certificate and the certificates above it, except the root's
    /// certificate.
    chain: String,
}

impl<'a> Authority<'a> {
    fn new(home: &'a Path, name: &str, until: SystemTime) -> Self {
        let pair = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(of_authority(name, until), pair).unwrap();
        std::fs::write(home.join(format!("{name}.pem")), issuer.pem()).unwrap();
        Self { home, issuer, chain: String::new() }
    }

    fn below(&self, name: &str, until: SystemTime) -> Self {
        let pair = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::signed_by(of_authority(name, until), pair, &self.issuer);
        let issuer = issuer.unwrap();
        let chain = issuer.pem() + &self.chain;
        Self { home: self.home, issuer, chain }
    }

    fn issue(&self, name: &str, until: SystemTime) -> Identity {
        let pair = KeyPair::generate().unwrap();
        let certificate = parameters(name, until).signed_by(&pair, &self.issuer).unwrap();
        let path = |ending: &str| self.home.join(format!("{name}.{ending}"));
        std::fs::write(path("crt"), certificate.pem() + &self.chain).unwrap();
        let mut key = std::fs::OpenOptions::new();
        let mut key = key.write(true).create_new(true).mode(0o600).open(path("key")).unwrap();
        key.write_all(pair.serialize_pem().as_bytes()).unwrap();
        Identity::load(&path("crt"), &path("key")).unwrap()
    }

    fn revoke(&self, file: &str, names: &[&str]) {
        let revoked = |name: &&str| RevokedCertParams {
            serial_number: serial(name),
            revocation_time: SystemTime::now().into(),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: (SystemTime::now() - DAY).into(),
            next_update: in_time(DAY).into(),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        let bytes = match file.ends_with(".der") {
            true => list.der().to_vec(),
            false => list.pem().unwrap().into_bytes(),
        };
        std::fs::write(self.home.join(file), bytes).unwrap();
    }
}

fn of_authority(name: &str, until: SystemTime) -> CertificateParams {
    let mut parameters = parameters(name, until);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

fn parameters(name: &str, until: SystemTime) -> CertificateParams {
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.serial_number = Some(serial(name));
    parameters.not_before = (SystemTime::now() - DAY).into();
    parameters.not_after = until.into();
    parameters
}

fn serial(name: &str) -> SerialNumber {
    SerialNumber::from_slice(name.as_bytes())
}

fn in_time(span: Duration) -> SystemTime {
    SystemTime::now() + span
}

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of a short-lived certificate: long enough to connect on a busy machine.
const LIFE: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(60);

/// A handshake begins with the former pin, and completes after the client has loaded another pin.
#[tokio::test]
async fn a_server_whose_pin_is_replaced_during_the_handshake_loses_its_connection() {
    let keys = Keys::new();
    let server = Server::start(keys.server_parts(keys.guard(&[], &[]))).unwrap();
    let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
    let former = parts.servers[0].trust.clone();
    parts.servers[0].trust = ServerTrust::Pins(vec![keys.client.pin()]);
    let client = Client::start(parts).await.unwrap();
    let is_alone = || client.links().iter().all(|link| link.server.is_none());
    until("a connection", || client.counted().connections_made > 0).await;
    until("the loss of all connections", is_alone).await;
    client.replace_trust(0, &former);
    client.connected().await;
    client.replace_trust(0, &ServerTrust::Pins(vec![keys.client.pin()]));
    until("the loss of all connections", is_alone).await;
}
