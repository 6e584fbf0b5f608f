//! Applications hold more connections than a client has file descriptors.

use crate::processes::Processes;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_beyond_a_clients_descriptor_limit_are_reset_at_once() {
    for (files, count) in [(80, 120), (200, 300)] {
        let ends = Processes::with_client_files("answering", Some(files));
        let at = ends.at;
        let mut tries = JoinSet::new();
        for _ in 0..count {
            tries.spawn(async move {
                // The client may reset the connection before `connect` returns.
                let Ok(mut stream) = TcpStream::connect(at).await else { return (None, Ok(false)) };
                let carried = tokio::time::timeout(PATIENCE, carries(&mut stream)).await;
                (Some(stream), carried)
            });
        }
        let tried = tries.join_all().await;
        let waiting = tried.iter().filter(|(_, carried)| carried.is_err()).count();
        let carried = tried.iter().filter(|(_, carried)| *carried == Ok(true)).count();
        eprintln!("{files} files: {carried} of {count} applications carried, {waiting} wait");
        assert_eq!(waiting, 0);
        assert!(carried > 8 && carried < files as usize, "{carried}");
        drop(tried);
        let served = async {
            loop {
                if let Ok(mut stream) = TcpStream::connect(at).await
                    && carries(&mut stream).await
                {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, served).await.unwrap();
    }
}

/// Sends bytes to the target. Returns whether the target's answer arrives.
async fn carries(stream: &mut TcpStream) -> bool {
    stream.write_all(&[7; 100]).await.is_ok() && stream.read_exact(&mut [0; 100]).await.is_ok()
}

const PATIENCE: Duration = Duration::from_secs(60);
