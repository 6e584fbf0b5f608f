//! Messages over TCP as fast as they go, netperf's TCP_STREAM.

use super::patience::Patience;
use super::serve::Arrivals;
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

/// The server's end: counts what comes.
pub(super) fn drain(socket: &TcpStream, patience: Patience<'_>, arrivals: &Arrivals) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count) = patience.repeat(|| (&*socket).read(&mut buffer)) {
        let now = Instant::now();
        arrivals.add(0, count as u64);
        arrivals.span(now, now);
    }
}

const BUFFER: usize = 128 * 1024;
