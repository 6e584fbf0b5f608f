//! Runs the kernel's TCP, with its default offloads, over a path with impairments.
#![allow(clippy::unwrap_used)]

mod support;

use host::HostError;
use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use support::*;

#[test]
fn a_bulk_transfer_arrives_intact_over_a_bad_path() {
    const LENGTH: usize = 6 << 20;
    let bad = config(&[
        "rate=400mbit",
        "delay=500us",
        "loss=0.5%",
        "reorder=1%,1ms",
        "duplicate=0.5%",
        "corrupt=0.1%",
        "queue=droptail:256KiB",
        "seed=11",
    ]);
    let Some(testbed) = testbed(&bad, &bad) else { return };
    let io = |source| HostError::Io { doing: "the transfer".to_owned(), source };
    let listener = testbed.hosts[1].run(|| TcpListener::bind("10.9.8.2:0").map_err(io)).unwrap();
    let to = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut hasher, mut chunk, mut length) = (fresh(), vec![0; 1 << 16], 0);
        loop {
            match stream.read(&mut chunk).unwrap() {
                0 => return (length, hasher.finish()),
                count => {
                    hasher.write(&chunk[..count]);
                    length += count;
                }
            }
        }
    });
    let mut stream = testbed.hosts[0].run(|| TcpStream::connect(to).map_err(io)).unwrap();
    let (mut hasher, mut word) = (fresh(), 1_u64);
    let mut chunk = vec![0; 1 << 16];
    for _ in 0..LENGTH / chunk.len() {
        for byte in &mut chunk {
            // The data does not repeat at the length of a frame (Knuth's MMIX constants).
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (word >> 56) as u8;
        }
        hasher.write(&chunk);
        stream.write_all(&chunk).unwrap();
    }
    drop(stream);
    let (length, received) = receiver.join().unwrap();
    assert_eq!((length, received), (LENGTH, hasher.finish()));

    let seen = testbed.emulator.finish().unwrap().cables.swap_remove(0);
    for way in [&seen.forward, &seen.backward] {
        assert_eq!(way.lost_outside_model, 0);
    }
    // The model handled frames, not super-packets: at least as many frames as the data needs, and
    // no frame larger than the MTU.
    let forward = &seen.forward;
    assert!(forward.arrived.frames as usize > LENGTH / 1460, "{}", forward.arrived.frames);
    assert!(forward.arrived.bytes / forward.arrived.frames <= 1514);
    assert!(forward.dropped_loss.frames > 0 && forward.reordered.frames > 0);
    assert!(forward.corrupted.frames > 0 && forward.duplicated.frames > 0);
}

/// Returns a hasher whose hash is independent of the TCP checksum.
fn fresh() -> impl Hasher {
    ByBytes(0xcbf2_9ce4_8422_2325)
}

/// FNV-1a, which does not depend on how the bytes are split into writes, unlike the standard
/// library's hash.
struct ByBytes(u64);

impl Hasher for ByBytes {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
