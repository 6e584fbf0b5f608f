//! Memory of tunnels that ended with a reset, with both ends in separate processes.

use crate::ends::through;
use crate::processes::{Processes, reset_at_end};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

#[tokio::test]
async fn tunnels_reset_by_their_target_leak_no_memory() {
    leave_no_memory("resetting", |at| async move {
        let mut stream = through(at).await;
        let _ = stream.write_all(b"x").await;
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
}

#[tokio::test]
async fn tunnels_reset_by_their_application_leak_no_memory() {
    leave_no_memory("answering", |at| async move {
        let mut stream = through(at).await;
        stream.write_all(&[7; 100]).await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
        reset_at_end(&stream);
    })
    .await;
}

/// Opens thousands of tunnels, a few at a time. Each tunnel ends with a reset.
async fn leave_no_memory<F>(target: &'static str, tunnel: fn(SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let ends = Processes::start(target);
    resets(&ends, FIRST, tunnel).await;
    let before = [&ends.server, &ends.client].map(|end| end.resident());
    resets(&ends, MORE, tunnel).await;
    for (end, before) in [&ends.server, &ends.client].into_iter().zip(before) {
        let now = end.resident();
        eprintln!(
            "ATTACK resets: {}: {before} KiB after {FIRST} resets, {now} KiB after {MORE} more",
            end.name
        );
        assert!(now < before + MOST_KIB, "{}: {before} and {now} KiB", end.name);
    }
}

async fn resets<F>(ends: &Processes, count: usize, tunnel: fn(SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tunnels = JoinSet::new();
    for _ in 0..count {
        if tunnels.len() >= AT_ONCE {
            tunnels.join_next().await.unwrap().unwrap();
        }
        tunnels.spawn(tunnel(ends.at));
    }
    tunnels.join_all().await;
}

/// Number of tunnels after which the allocators and tables of both ends no longer grow.
const FIRST: usize = 4000;
const MORE: usize = 30_000;
const AT_ONCE: usize = 24;
/// Maximum permitted growth of an end: less than a map entry and a finished task per tunnel.
const MOST_KIB: u64 = 4 * 1024;
