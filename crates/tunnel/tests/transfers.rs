//! What goes in at one end comes out at the other, byte for byte.

mod ends;

use ends::{bytes, pair, target, through};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn sixty_four_mebibytes_arrive_as_they_were_sent() {
    let (listener, address) = target().await;
    let (server, client, doors) = pair(&[address]).await;
    let sent = bytes(1, 64 << 20);
    let expected = sent.clone();
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
        stream.write_all(b"all of it").await.unwrap();
    });
    let mut stream = through(doors[0]).await;
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"all of it");
    receiver.await.unwrap();
    client.drain(Duration::from_secs(5)).await;
    server.drain(Duration::from_secs(5)).await;
}
