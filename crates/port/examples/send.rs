//! Measures the cost of sending without a receiver's stack: the peer of a veth pair drops all
//! frames at once, because they are addressed to another host.
//!
//! `cargo run --release -p weir-port --example send`
//!
//! Needs root.

use std::process::Command;
use std::time::Instant;

use port::{Frame, FramePool, PacketPort, Port};
use units::Time;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
    for arguments in ["link add one type veth peer name two", "link set one up", "link set two up"]
    {
        if !Command::new("ip").args(arguments.split(' ')).status()?.success() {
            return Err(format!("ip {arguments} failed").into());
        }
    }
    let mut port = PacketPort::open("one")?;
    FramePool::prepare(64);
    for len in [60, 1514] {
        for batch in [1, 4, 32] {
            let mut bytes = vec![0; len];
            bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0]);
            let frames: Vec<_> =
                (0..batch).map(|_| Frame::from_bytes(&bytes, Time::ZERO)).collect();
            let before = port.counters();
            let start = Instant::now();
            for _ in 0..FRAMES / batch {
                port.send(&frames)?;
            }
            let elapsed = start.elapsed();
            let counters = port.counters() - before;
            println!(
                "{len} bytes in batches of {batch}: {:.3} us a frame, {} sent, {} dropped",
                elapsed.as_secs_f64() * 1e6 / FRAMES as f64,
                counters.sent_frames,
                counters.drops(),
            );
        }
    }
    Ok(())
}

const FRAMES: usize = 1_000_000;
