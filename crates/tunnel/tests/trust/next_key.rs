//! A client has a key that only some of its servers know.

use crate::ends::Keys;
use std::time::Duration;
use tunnel::client::{Client, ServerState};
use tunnel::identity::{Credentials, Identity, Proof, ServerTrust};
use tunnel::server::Server;

#[tokio::test]
async fn a_client_whose_next_key_the_preferred_server_refuses_uses_the_next_server() {
    let keys = Keys::new();
    let next = Identity::generate("client", 1).unwrap().0;
    let guard = |pins: &[&Identity]| {
        let mut guard = keys.guard(&[], &[]);
        guard.trusted[0].proof = Proof::Pins(pins.iter().map(|one| one.pin()).collect());
        guard
    };
    let first = Server::start(keys.server_parts(guard(&[&keys.client]))).unwrap();
    let second = Server::start(keys.server_parts(guard(&[&keys.client, &next]))).unwrap();
    let at = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let trust = ServerTrust::Pins(vec![keys.server.pin()]);
    let start = async |identity: &Identity| {
        let credentials = Credentials::new(identity, trust.clone());
        let mut parts = keys.client_parts(&at, Vec::new());
        parts.connections = 1;
        for server in &mut parts.servers {
            server.tls = credentials.tls().unwrap();
        }
        (Client::start(parts).await.unwrap(), credentials)
    };
    let check = |servers: &[ServerState]| {
        let refused = servers[0].failure.as_deref().unwrap_or_default();
        assert!(servers[0].is_refusing && refused.contains("knows no client"), "{servers:?}");
        assert!(!servers[1].is_refusing && servers[1].failure.is_none(), "{servers:?}");
    };

    // Start a client with the next key.
    let (client, _) = start(&next).await;
    check(&connected_to(&client, 1).await);
    drop(client);

    // Start a client with the present key, and change the key while the client runs.
    let (client, credentials) = start(&keys.client).await;
    connected_to(&client, 0).await;
    credentials.replace(&next, trust.clone());
    client.renew_connections();
    check(&connected_to(&client, 1).await);
    drop((client, first, second));
}

/// Waits until the client uses only the server with this index for new tunnels, and has used the
/// server for longer than a refusal takes.
async fn connected_to(client: &Client, server: usize) -> Vec<ServerState> {
    let used = async {
        let mut looks = 0;
        loop {
            let servers = client.servers();
            let is_used = servers
                .iter()
                .enumerate()
                .all(|(index, one)| (one.connections > 0) == (index == server));
            looks = if is_used { looks + 1 } else { 0 };
            if looks == 20 {
                return servers;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), used).await.expect("another server is used")
}
