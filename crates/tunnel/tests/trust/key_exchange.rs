//! With the hybrid key exchange, a client's first message exceeds one packet.

use crate::ends::verifier::ServerVerifier;
use crate::ends::wire::Wire;
use crate::ends::{Keys, echo, tcp_of, through, to_tcp, tuning, until};
use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::client::Client;
use tunnel::identity::{ALPN, Identity, ServerTrust};
use tunnel::server::Server;
use tunnel::transport::quic::QuicClient;
use tunnel::transport::{Connection, Transport};

#[tokio::test]
async fn a_server_accepts_clients_with_and_without_the_hybrid_exchange() {
    let home = tempfile::tempdir().unwrap();
    let file = |ending: &str| home.path().join(format!("client.{ending}"));
    let (_, made) = Identity::generate("client", 1).unwrap();
    made.write(&file("crt"), &file("key"), false).unwrap();
    let client = Identity::load(&file("crt"), &file("key")).unwrap();
    let keys = Keys { client, ..Keys::new() };
    let server = Server::start(keys.server_parts(keys.guard(&["tcp:127.0.0.1:1"], &[]))).unwrap();
    let at = server.local_addr().unwrap();
    let meter = Arc::new(quic::Meter::unlimited());
    for (count, group) in [kx_group::X25519MLKEM768, kx_group::X25519].into_iter().enumerate() {
        let quic = QuicClient::new(by_group(home.path(), group), tuning(), &meter).unwrap();
        let connecting = quic.connect(at, "weir-tunnel", 0);
        let connection = tokio::time::timeout(PATIENCE, connecting).await.unwrap().unwrap();
        until("the server lets it in", || server.counted().connections_made > count as u64).await;
        assert!(!connection.is_closed(), "{group:?}");
    }
}

/// The client's first message takes two packets, of which the network loses or delays one.
#[tokio::test]
async fn a_hybrid_handshake_survives_loss_and_delay_of_its_first_packets() {
    let keys = Keys::new();
    assert_eq!(first_packets(&keys, "127.0.0.1:1".parse().unwrap()).len(), 2);
    let (target, address) = crate::ends::target().await;
    let echo = tokio::spawn(echo(target));
    let rule = format!("tcp:{address}");
    let server = Server::start(keys.server_parts(keys.guard(&[&rule], &[]))).unwrap();
    let wire = Wire::to(server.local_addr().unwrap()).await;
    wire.lose(250);
    wire.reorder(300);
    for _ in 0..5 {
        let parts = keys.client_parts(&[wire.address], vec![to_tcp(address)]);
        let client = Client::start(parts).await.unwrap();
        tokio::time::timeout(PATIENCE, client.connected()).await.expect("no handshake completed");
        drop(client);
    }
    wire.lose(0);
    carries(&keys, &[wire.address], address).await;
    echo.abort();
    drop(server);
}

#[tokio::test]
async fn a_crowded_server_accepts_clients_that_prove_their_address() {
    let keys = Keys::new();
    let (target, address) = crate::ends::target().await;
    let echo = tokio::spawn(echo(target));
    let rule = format!("tcp:{address}");
    let mut parts = keys.server_parts(keys.guard(&[&rule], &[]));
    // One unfinished handshake makes the server demand proof of addresses; 31 more slots remain.
    (parts.limits.handshakes, parts.limits.handshakes_unvalidated) = (32, 1);
    parts.shards = Some(1);
    let server = Server::start(parts).unwrap();
    let at = server.local_addr().unwrap();
    // A silent client sends one or both of its first two packets and never continues.
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let hello = first_packets(&keys, at);
    silent.send_to(&hello[0], at).await.unwrap();
    let both = first_packets(&keys, at);
    for packet in both.iter().rev() {
        silent.send_to(packet, at).await.unwrap();
    }
    // The server requests the proof in one packet, even if only one of the two packets arrives.
    let mut answer = [0; 2000];
    let answered = tokio::time::timeout(PATIENCE, silent.recv_from(&mut answer)).await;
    assert!(answered.unwrap().unwrap().0 > 0);
    until("a handshake is put off", || server.counted().handshakes_put_off > 0).await;
    carries(&keys, &[at], address).await;
    let counted = server.counted();
    assert!(counted.handshakes_put_off > 0 && counted.connections_made >= 1, "{counted:?}");
    echo.abort();
    drop(server);
}

/// Checks that a new client's tunnel to the target works.
async fn carries(keys: &Keys, servers: &[SocketAddr], target: SocketAddr) {
    let client = Client::start(keys.client_parts(servers, vec![to_tcp(target)])).await.unwrap();
    tokio::time::timeout(PATIENCE, client.connected()).await.expect("no connection");
    let mut stream = through(tcp_of(&client.bound()[0])).await;
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
}

/// Returns the packets that a client sends before it receives a packet.
fn first_packets(keys: &Keys, server: SocketAddr) -> Vec<Vec<u8>> {
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let tls = tunnel::identity::client_config(&keys.client, &trust).unwrap();
    let config = quinn_proto::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut endpoint = quinn_proto::Endpoint::new(Arc::default(), None, true, None);
    let now = Instant::now();
    let (_, mut connection) = endpoint.connect(now, config, server, trust.server_name()).unwrap();
    let mut packets = Vec::new();
    loop {
        let mut packet = Vec::new();
        match connection.poll_transmit(now, 1, &mut packet) {
            Some(whole) => packets.push(packet[..whole.size].to_vec()),
            None => return packets,
        }
    }
}

/// Builds the configuration of a client that offers only this key exchange group, and trusts any
/// server.
fn by_group(home: &Path, group: &'static dyn SupportedKxGroup) -> rustls::ClientConfig {
    let provider =
        Arc::new(CryptoProvider { kx_groups: vec![group], ..aws_lc_rs::default_provider() });
    let certificate = CertificateDer::from_pem_file(home.join("client.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(home.join("client.key")).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerVerifier::accepting()))
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

const PATIENCE: Duration = Duration::from_secs(60);
