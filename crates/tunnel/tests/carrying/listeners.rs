//! Two identities listen on the same address of the server, one after the other.

use crate::ends::{Keys, until};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tunnel::access::Access;
use tunnel::client::{Client, Reverse};
use tunnel::identity::{Identity, PeerName, Proof, TrustedPeer};
use tunnel::server::Server;

#[tokio::test]
async fn a_refused_listener_does_not_replace_the_holder_of_the_address() {
    let keys = Keys::new();
    let other = Keys { server: keys.server.clone(), client: Identity::generate("b", 1).unwrap().0 };
    let at = free_address().await;
    let listen = format!("tcp:{at}");
    let mut guard = keys.guard(&[], &[&listen]);
    let name: PeerName = "other".parse().unwrap();
    let rights = guard.access.rights(&guard.trusted[0].name).unwrap().clone();
    let proof = Proof::Pins(vec![other.client.pin()]);
    let first = (guard.trusted[0].name.clone(), rights.clone());
    guard.access = Access::new([first, (name.clone(), rights)]);
    guard.trusted.push(TrustedPeer { name, proof });
    let server = Server::start(keys.server_parts(guard)).unwrap();
    let listener = |keys: &Keys, target: SocketAddr| {
        let mut parts = keys.client_parts(&[server.local_addr().unwrap()], Vec::new());
        let target = format!("tcp:{target}").parse().unwrap();
        parts.reverse = vec![Reverse { listen: listen.parse().unwrap(), target }];
        Client::start(parts)
    };
    let (one, two) = (greeter(b'1').await, greeter(b'2').await);
    let holder = listener(&keys, one).await.unwrap();
    until("the first connection listens", || server.counted().listeners == 1).await;
    assert_eq!(greeting(at).await, Some(b'1'));

    let refused = listener(&other, two).await.unwrap();
    until("the other is refused", || server.counted().tunnels_refused > 0).await;
    drop(refused);
    assert_eq!(greeting(at).await, Some(b'1'));

    // The identity with the listener reconnects while the server still considers the identity's
    // first connection alive.
    let again = listener(&keys, two).await.unwrap();
    let taken_over = async { while greeting(at).await != Some(b'2') {} };
    let taken_over = tokio::time::timeout(Duration::from_secs(60), taken_over).await;
    taken_over.expect("the holder's later connection does not listen");
    drop((holder, again, server));
}

/// Returns a free port of an IP address that no other test uses.
async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.78:0").await.unwrap().local_addr().unwrap()
}

/// Starts a target that sends `word` to each client.
async fn greeter(word: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(&[word]).await;
        }
    });
    address
}

async fn greeting(at: SocketAddr) -> Option<u8> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    TcpStream::connect(at).await.ok()?.read_u8().await.ok()
}
