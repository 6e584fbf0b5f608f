//! A short TCP transfer between two hosts of a testbed. Starting an external program would take
//! longer than the transfer.

use crate::model::{Cancel, Failure};
use host::Namespace;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use units::Span;

/// A transfer from the host `from` to the host `to`.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) from: &'a Namespace,
    pub(crate) to: &'a Namespace,
    pub(crate) server: SocketAddr,
    pub(crate) congestion: &'a str,
    pub(crate) cpus: &'a [usize],
}

/// Sends as fast as the connection takes data, until `over` is set.
pub(crate) fn send_until(mut socket: &TcpStream, over: &AtomicBool) -> Result<(), Failure> {
    let block = vec![0_u8; 128 * 1024];
    while !over.load(Ordering::Acquire) {
        match socket.write(&block) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) if over.load(Ordering::Acquire) => break,
            Err(error) => return Err(Failure::io("sending", &error)),
        }
    }
    Ok(())
}

impl Stream<'_> {
    /// Measures the receiver's goodput in Mbit/s over `slice`, counted from the first byte that the
    /// receiver reads.
    pub(crate) fn goodput(&self, slice: Span, cancel: &Cancel) -> Result<f64, Failure> {
        let listener = self.to.run(|| Ok(TcpListener::bind(self.server)))?;
        let listener = listener.map_err(|e| Failure::io("listening", &e))?;
        let address = listener.local_addr().map_err(|e| Failure::io("listening", &e))?;
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(address));
            let received = self.receive(&listener, slice, cancel);
            let sent = join(sending);
            match received {
                Ok(rate) => sent.map(|()| rate),
                // If the sender failed, its failure explains why the receiver got no data.
                Err(failure) => Err(sent.err().unwrap_or(failure)),
            }
        })
    }

    fn send(&self, address: SocketAddr) -> Result<(), Failure> {
        self.from.run(|| {
            host::pin_to(self.cpus)?;
            Ok(self.send_inside(address))
        })?
    }

    fn send_inside(&self, address: SocketAddr) -> Result<(), Failure> {
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)
            .map_err(|e| Failure::io("connecting", &e))?;
        probe::tcp::set_congestion_control(&socket, self.congestion)
            .map_err(|refused| Failure::Workload(refused.to_string()))?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(|e| Failure::io("sending", &e))?;
        let block = vec![0_u8; 128 * 1024];
        loop {
            match socket.write(&block) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Ignore the error: the receiver has enough data and has closed the connection.
                Err(e)
                    if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
                {
                    return Ok(());
                }
                Err(e) => return Err(Failure::io("sending", &e)),
            }
        }
    }

    fn receive(
        &self,
        listener: &TcpListener,
        slice: Span,
        cancel: &Cancel,
    ) -> Result<f64, Failure> {
        let mut socket = accept(listener, cancel, "accepting", "no connection arrived")?;
        let wrong = |e: std::io::Error| Failure::io("receiving", &e);
        socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(wrong)?;
        let mut block = vec![0_u8; 256 * 1024];
        let waiting = Instant::now();
        let mut begun: Option<Instant> = None;
        let mut bytes = 0_u64;
        loop {
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            if begun.unwrap_or(waiting).elapsed() > PATIENCE + slice.as_duration() {
                return Err(Failure::Workload("no data came through".to_owned()));
            }
            match socket.read(&mut block) {
                Ok(0) => return Err(Failure::Workload("the sender closed too early".to_owned())),
                Ok(count) => match begun {
                    // The first bytes only start the clock. The sender sent these bytes before the
                    // clock started, so the bytes do not count.
                    None => begun = Some(Instant::now()),
                    Some(_) => bytes += count as u64,
                },
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(wrong(e)),
            }
            if let Some(begun) = begun {
                let elapsed = begun.elapsed();
                if elapsed >= slice.as_duration() {
                    return Ok(bytes as f64 * 8e-6 / elapsed.as_secs_f64());
                }
            }
        }
    }
}

/// Accepts a connection with a timeout, because the connecting side may have failed. `doing`
/// begins the text of a system error, and `silent` is the failure if no connection arrives.
pub(crate) fn accept(
    listener: &TcpListener,
    cancel: &Cancel,
    doing: &str,
    silent: &str,
) -> Result<TcpStream, Failure> {
    let wrong = |e: std::io::Error| Failure::io(doing, &e);
    listener.set_nonblocking(true).map_err(wrong)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).map_err(wrong)?;
                return Ok(socket);
            }
            // The last packet of the handshake may still be in flight.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(wrong(e)),
        }
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        if Instant::now() > deadline {
            return Err(Failure::Workload(silent.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const PATIENCE: Duration = Duration::from_secs(10);
