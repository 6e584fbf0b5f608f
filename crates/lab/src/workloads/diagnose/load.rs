//! Simple senders and receivers with a known behaviour, each a process of its own, because a
//! verdict names processes. `weir doctor-load` runs these processes.

use super::disk::Disk;
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use units::{Bytes, Rate, Span};

/// The settings of a sending process.
#[derive(Debug, Clone)]
pub struct Sender {
    pub to: SocketAddr,
    /// Size of each chunk, which the sender writes in `parts` parts.
    pub chunk: Bytes,
    /// The time between two chunks.
    pub pause: Span,
    /// Maximum rate of the writes.
    pub rate: Option<Rate>,
    pub congestion: Option<String>,
    /// Size of the send buffer (SO_SNDBUF).
    pub buffer: Option<Bytes>,
    /// Number of writes into which each chunk is divided.
    pub parts: u32,
    /// Whether to wait for one byte after each chunk.
    pub asks: bool,
    pub udp: bool,
    /// The number of connections that are opened. Only the last connection carries data.
    pub connections: u32,
    /// Whether to open a new connection for each write.
    pub reconnects: bool,
    /// Directory of a file from which each chunk is read before it is sent, past the page cache.
    pub disk: Option<PathBuf>,
    pub time: Span,
}

/// The settings of a receiving process. The process serves each connection with a thread.
#[derive(Debug, Clone)]
pub struct Receiver {
    pub at: SocketAddr,
    pub chunk: Bytes,
    pub pause: Span,
    /// Maximum rate of the reads.
    pub rate: Option<Rate>,
    /// Size of the receive buffer (SO_RCVBUF).
    pub buffer: Option<Bytes>,
    /// Whether to answer each chunk with one byte.
    pub answers: bool,
    pub udp: bool,
    pub backlog: Option<i32>,
    pub accepts: bool,
    pub reads: bool,
    /// Maximum number of open descriptors (RLIMIT_NOFILE).
    pub descriptors: Option<u64>,
    pub time: Span,
}

impl Sender {
    /// Runs until the time is over. Tries failed connections again.
    pub fn run(&self) -> io::Result<()> {
        let end = Instant::now() + self.time.as_duration();
        if self.udp {
            return self.send_datagrams(end);
        }
        let mut kept = Vec::new();
        let mut pace = Pace::new(self.chunk, self.pause, self.rate);
        let mut disk = self.disk.as_deref().map(|path| Disk::new(path, self.chunk)).transpose()?;
        let block = vec![b'w'; self.chunk.count() as usize];
        while Instant::now() < end {
            let Ok(mut stream) = TcpStream::connect_timeout(&self.to, CONNECT_WITHIN) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            if let Some(name) = &self.congestion {
                probe::tcp::set_congestion_control(&stream, name)
                    .map_err(|refused| io::Error::other(refused.to_string()))?;
            }
            if let Some(size) = self.buffer {
                setsockopt(&stream, sockopt::SndBuf, &(size.count() as usize))?;
            }
            if kept.len() + 1 < self.connections as usize {
                kept.push(stream);
                continue;
            }
            while Instant::now() < end {
                pace.wait();
                if let Some(disk) = &mut disk {
                    disk.read()?;
                }
                let part = block.len().div_ceil(self.parts.max(1) as usize).max(1);
                if block.chunks(part).any(|part| stream.write_all(part).is_err()) {
                    break;
                }
                if self.asks && stream.read_exact(&mut [0]).is_err() {
                    break;
                }
                if self.reconnects {
                    break;
                }
            }
        }
        Ok(())
    }

    fn send_datagrams(&self, end: Instant) -> io::Result<()> {
        let unbound: SocketAddr = match self.to {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(unbound)?;
        socket.connect(self.to)?;
        let block = vec![b'w'; self.chunk.count() as usize];
        let mut pace = Pace::new(self.chunk, self.pause, self.rate);
        while Instant::now() < end {
            pace.wait();
            // Ignore the error of a datagram that the kernel refuses because no receiver listens.
            let _ = socket.send(&block);
        }
        Ok(())
    }
}

impl Receiver {
    pub fn run(&self) -> io::Result<()> {
        let end = Instant::now() + self.time.as_duration();
        if let Some(most) = self.descriptors {
            let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(most) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
        }
        if self.udp {
            return self.receive_datagrams(end);
        }
        let listener = TcpListener::bind(self.at)?;
        if let Some(size) = self.buffer {
            setsockopt(&listener, sockopt::RcvBuf, &(size.count() as usize))?;
        }
        if let Some(backlog) = self.backlog {
            listen(&listener, Backlog::new(backlog)?)?;
        }
        if !self.accepts {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            return Ok(());
        }
        let own = self.clone();
        // The process ends when the time is over, even if connections are still open.
        std::thread::spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let own = own.clone();
                        std::thread::spawn(move || own.serve(stream));
                    }
                    Err(_) => std::thread::sleep(AGAIN),
                }
            }
        });
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn serve(&self, mut stream: TcpStream) {
        if !self.reads {
            std::thread::sleep(self.time.as_duration());
            return;
        }
        let mut block = vec![0; self.chunk.count() as usize];
        let mut pace = Pace::new(self.chunk, self.pause, self.rate);
        loop {
            pace.wait();
            let came = match self.answers {
                true => stream.read_exact(&mut block).map(|()| 1),
                false => stream.read(&mut block),
            };
            if !matches!(came, Ok(1..)) {
                return;
            }
            if self.answers && stream.write_all(b"r").is_err() {
                return;
            }
        }
    }

    fn receive_datagrams(&self, end: Instant) -> io::Result<()> {
        let socket = UdpSocket::bind(self.at)?;
        if let Some(size) = self.buffer {
            setsockopt(&socket, sockopt::RcvBuf, &(size.count() as usize))?;
        }
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut block = vec![0; 65_536];
        let mut pace = Pace::new(self.chunk, self.pause, self.rate);
        while Instant::now() < end {
            pace.wait();
            let _ = socket.recv(&mut block);
        }
        Ok(())
    }
}

/// The pace of a sender, which sends a chunk every `each`.
struct Pace {
    each: Duration,
    next: Instant,
}

impl Pace {
    fn new(chunk: Bytes, pause: Span, rate: Option<Rate>) -> Self {
        let by_rate = rate.map_or(Duration::ZERO, |rate| rate.time_for(chunk).as_duration());
        Self { each: by_rate.max(pause.as_duration()), next: Instant::now() }
    }

    fn wait(&mut self) {
        if self.each.is_zero() {
            return;
        }
        let now = Instant::now();
        if self.next > now {
            std::thread::sleep(self.next - now);
        }
        // After a long stall the sender does not catch up in one burst.
        self.next = (self.next + self.each).max(now);
    }
}

const CONNECT_WITHIN: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(20);
