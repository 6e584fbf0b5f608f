//! Memory of idle tunnels, with both ends in separate processes.
//!
//! The long form: `cargo test --release -p weir-tunnel --test memory -- --ignored ten_thousand
//! --nocapture`.

use crate::ends::through;
use crate::processes::{Processes, allow_files};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_thousand_idle_tunnels_use_little_memory() {
    idle(1000, 64).await;
}

#[tokio::test]
#[ignore = "ten thousand connections, each twice on this machine"]
async fn ten_thousand_idle_tunnels_use_at_most_256_mib() {
    idle(10_000, 256).await;
}

/// Opens `count` tunnels. Each tunnel carries a few bytes in both directions and stays open.
async fn idle(count: usize, most_mib: u64) {
    let files = count as u64 + 1000;
    if !allow_files(files) {
        testing::skip(testing::Need::OpenFiles(files));
        return;
    }
    let Processes { server, client, at, .. } = &Processes::start("answering");
    let before = [server.resident(), client.resident()];
    let mut applications = Vec::new();
    for number in 0..count {
        let mut stream = through(*at).await;
        let (sent, mut got) = (crate::ends::bytes(number as u64, 100), vec![0; 100]);
        stream.write_all(&sent).await.unwrap();
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, sent);
        applications.push(stream);
    }
    for (end, before) in [server, client].into_iter().zip(before) {
        let now = end.resident();
        eprintln!("{}: {now} KiB with {count} idle tunnels, {before} KiB without", end.name);
        assert!(now < most_mib * 1024, "{}: {now} KiB", end.name);
    }
}
