//! A bridge between two interfaces, for the tests of the workload `robustness`.
//!
//! `bridge INTERFACE INTERFACE` forwards all frames; `bridge with-a-bug INTERFACE INTERFACE` reads
//! the time to live of IPv4 packets without a check that the frame is long enough.

use port::{Frame, PacketPort, Port};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (has_bug, a, b) = match words.as_slice() {
        [bug, a, b] if bug == "with-a-bug" => (true, a, b),
        [a, b] => (false, a, b),
        _ => return Err("bridge [with-a-bug] INTERFACE INTERFACE".into()),
    };
    let mut ports = [PacketPort::open(a)?, PacketPort::open(b)?];
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        let mut is_idle = true;
        for from in [0, 1] {
            frames.clear();
            if ports[from].receive(&mut frames, 64)? == 0 {
                continue;
            }
            is_idle = false;
            if has_bug {
                let _ = frames.iter().map(|frame| time_to_live(frame.bytes())).max();
            }
            ports[1 - from].send(&frames)?;
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Reads the time to live. The deliberate bug: a frame may end within the IPv4 header.
fn time_to_live(frame: &[u8]) -> u8 {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame[22],
        _ => 0,
    }
}
