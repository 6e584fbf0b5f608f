//! A TCP relay that can fail in several ways. The tests of `weir lab` put the relay between a
//! workload and its server.
//!
//! `relay LISTEN TARGET` forwards; `relay LISTEN hold` accepts and never sends anything; `relay
//! LISTEN TARGET die-after BYTES` ends in mid-transfer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, target, rest @ ..] = words.as_slice() else {
        eprintln!("relay LISTEN TARGET|hold [die-after BYTES]");
        std::process::exit(2);
    };
    let last: u64 = match rest {
        [_, bytes] => bytes.parse().unwrap_or(u64::MAX),
        _ => u64::MAX,
    };
    let carried = Arc::new(AtomicU64::new(0));
    let mut held = Vec::new();
    for near in TcpListener::bind(listen)?.incoming() {
        let near = near?;
        if target == "hold" {
            held.push(near);
            continue;
        }
        let far = TcpStream::connect(target)?;
        for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            let carried = Arc::clone(&carried);
            std::thread::spawn(move || carry(&mut from, &mut to, &carried, last));
        }
    }
    Ok(())
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, carried: &AtomicU64, last: u64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        if carried.fetch_add(count as u64, Ordering::Relaxed) + count as u64 >= last {
            eprintln!("relay: enough is enough");
            std::process::exit(3);
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
