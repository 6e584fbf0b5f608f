//! A minimal program that measures a transfer, with threads that write and threads that read.
//!
//! This program has no control connection, no negotiated options, and no results while it runs: it
//! costs only what the kernel's TCP costs any program. The program is the baseline for
//! [`crate::client`] and iperf3 in the lab `perf-overhead`. Each connection ends with 16 bytes from
//! the reader: the number of bytes received, and the nanoseconds since the first byte.

use crate::PerfError;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use units::{Bytes, Span};

#[derive(Debug, Clone, PartialEq)]
pub struct PlainClient {
    pub to: SocketAddr,
    pub duration: Span,
    /// Number of connections; each has its own thread.
    pub streams: u32,
    /// Bytes per write.
    pub block: Bytes,
    pub congestion: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlainResult {
    pub streams: Vec<PlainStream>,
    /// The congestion control, read back from the first connection.
    pub congestion: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlainStream {
    pub sent: Counted,
    /// Bytes and time as the reader counted them.
    pub received: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    pub bytes: Bytes,
    pub elapsed: Span,
}

impl PlainClient {
    pub fn new(to: SocketAddr) -> Self {
        let block = Bytes::new(BLOCK as u64);
        Self { to, duration: Span::from_secs(10), streams: 1, block, congestion: None }
    }

    /// Writes on all connections until the duration has passed; returns the results.
    pub fn run(&self) -> Result<PlainResult, PerfError> {
        let sockets = (0..self.streams).map(|_| self.connect()).collect::<Result<Vec<_>, _>>()?;
        let congestion =
            sockets.first().and_then(|socket| probe::tcp::congestion_control_of(socket).ok());
        let together = Barrier::new(sockets.len());
        let streams = std::thread::scope(|scope| {
            let writing: Vec<_> = sockets
                .into_iter()
                .map(|socket| scope.spawn(|| self.write(socket, &together)))
                .collect();
            writing.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
        });
        let streams = streams.map_err(|error| self.broken(error))?;
        Ok(PlainResult { streams, congestion })
    }

    fn connect(&self) -> Result<TcpStream, PerfError> {
        let socket = TcpStream::connect_timeout(&self.to, PATIENCE).map_err(|e| self.unmet(e))?;
        if let Some(name) = &self.congestion {
            probe::tcp::set_congestion_control(&socket, name)
                .map_err(|refused| PerfError::Usage(refused.to_string()))?;
        }
        socket
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| socket.set_write_timeout(Some(PATIENCE)))
            .map_err(|e| PerfError::system("setting a socket's timeouts", e))?;
        Ok(socket)
    }

    fn write(&self, mut socket: TcpStream, together: &Barrier) -> io::Result<PlainStream> {
        let block = vec![0_u8; self.block.count() as usize];
        together.wait();
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < self.duration.as_duration() {
            match socket.write(&block) {
                Ok(count) => bytes += count as u64,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let sent = Counted { bytes: Bytes::new(bytes), elapsed: begun.elapsed().into() };
        socket.shutdown(Shutdown::Write)?;
        let mut words = [0; VERDICT];
        socket.read_exact(&mut words)?;
        Ok(PlainStream { sent, received: Counted::from_words(words) })
    }

    fn unmet(&self, error: io::Error) -> PerfError {
        let peer = self.to.to_string();
        match error.kind() {
            ErrorKind::ConnectionRefused => PerfError::System {
                what: format!("nobody listens at {peer}: start `weir perf plain-server` there"),
                source: error,
            },
            ErrorKind::TimedOut => PerfError::NoAnswer { peer, within: PATIENCE },
            _ => PerfError::Unreachable { peer, reason: error },
        }
    }

    fn broken(&self, error: io::Error) -> PerfError {
        let (peer, doing) = (self.to.to_string(), "data was sent");
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                PerfError::Silent { peer, within: PATIENCE, doing }
            }
            _ => PerfError::Gone { peer, doing },
        }
    }
}

impl PlainResult {
    /// Returns the result as JSON with iperf3's keys.
    pub fn to_json(&self) -> serde_json::Value {
        let sum = |of: fn(&PlainStream) -> Counted| {
            let all = || self.streams.iter().map(of);
            let bytes = Bytes::new(all().map(|one| one.bytes.count()).sum());
            let elapsed = all().map(|one| one.elapsed).max().unwrap_or(Span::ZERO);
            Counted { bytes, elapsed }.to_json()
        };
        let streams: Vec<_> = self.streams.iter().copied().map(PlainStream::to_json).collect();
        serde_json::json!({
            "end": {
                "streams": streams,
                "sum_sent": sum(|stream| stream.sent),
                "sum_received": sum(|stream| stream.received),
                "sender_tcp_congestion": self.congestion,
            }
        })
    }
}

/// Reads all data on every connection, until the program ends. Connections beyond [`MOST`] wait.
pub fn serve(listener: &TcpListener) -> Result<(), PerfError> {
    let reading = Arc::new(AtomicUsize::new(0));
    loop {
        if reading.load(Ordering::Relaxed) >= MOST {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        match listener.accept() {
            Ok((socket, _)) => {
                reading.fetch_add(1, Ordering::Relaxed);
                let done = Arc::clone(&reading);
                std::thread::spawn(move || {
                    // Ignore errors: a client that broke off reads no result.
                    let _ = read(socket);
                    done.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Err(e) if is_of_one_client(&e) => {}
            Err(e) => return Err(PerfError::system("accepting a connection", e)),
        }
    }
}

fn read(mut socket: TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0_u8; BLOCK];
    let (mut begun, mut bytes) = (None, 0);
    loop {
        match socket.read(&mut block) {
            Ok(0) => break,
            Ok(count) => {
                begun.get_or_insert_with(Instant::now);
                bytes += count as u64;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let elapsed = begun.map_or(Span::ZERO, |begun| begun.elapsed().into());
    socket.write_all(&Counted { bytes: Bytes::new(bytes), elapsed }.to_words())
}

/// True for errors of accept(2) about a single connection that failed before it was accepted.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}

impl PlainStream {
    fn to_json(self) -> serde_json::Value {
        serde_json::json!({ "sender": self.sent.to_json(), "receiver": self.received.to_json() })
    }
}

impl Counted {
    fn to_json(self) -> serde_json::Value {
        let (bytes, seconds) = (self.bytes.count(), self.elapsed.secs_f64());
        let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        serde_json::json!({ "bytes": bytes, "seconds": seconds, "bits_per_second": rate })
    }

    fn to_words(self) -> [u8; VERDICT] {
        let mut words = [0; VERDICT];
        words[..8].copy_from_slice(&self.bytes.count().to_be_bytes());
        words[8..].copy_from_slice(&self.elapsed.nanos().to_be_bytes());
        words
    }

    fn from_words(words: [u8; VERDICT]) -> Self {
        let word = |at: usize| {
            words[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Self { bytes: Bytes::new(word(0)), elapsed: Span::from_nanos(word(8)) }
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// iperf3's block for TCP.
pub const BLOCK: usize = 128 * 1024;
/// Maximum number of connections read at once.
pub const MOST: usize = 128;
const VERDICT: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener));
        address
    }

    #[test]
    fn writer_and_reader_count_the_same_bytes() {
        let duration = Span::from_millis(50);
        let client = PlainClient { streams: 3, duration, ..PlainClient::new(server()) };
        let result = client.run().unwrap();
        assert_eq!(result.streams.len(), 3);
        for stream in &result.streams {
            assert!(stream.sent.bytes > Bytes::ZERO);
            assert_eq!(stream.sent.bytes, stream.received.bytes);
        }
        let json = result.to_json();
        let total: u64 = result.streams.iter().map(|stream| stream.sent.bytes.count()).sum();
        assert_eq!(json["end"]["sum_received"]["bytes"], total);
        assert!(json["end"]["sender_tcp_congestion"].is_string());
    }

    #[test]
    fn a_missing_server_and_an_unknown_congestion_control_are_reported() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = PlainClient::new(free).run().unwrap_err().to_string();
        assert!(error.contains("start `weir perf plain-server`"), "{error}");
        let congestion = Some("nosuch".to_owned());
        let client = PlainClient { congestion, ..PlainClient::new(server()) };
        let error = client.run().unwrap_err();
        assert!(error.to_string().contains("nosuch"), "{error}");
    }

    #[test]
    fn a_readers_counts_are_encoded_and_decoded_unchanged() {
        for (bytes, nanos) in [(0, 0), (1, u64::MAX), (0x0102_0304_0506_0708, 9)] {
            let counted = Counted { bytes: Bytes::new(bytes), elapsed: Span::from_nanos(nanos) };
            assert_eq!(Counted::from_words(counted.to_words()), counted);
        }
    }
}
