//! A timed file transfer over http, as a browser's downloader would see it. Implements only a part
//! of the protocol: HTTP/1.1 (RFC 9112), a body of known length, no redirects, no encryption.

use crate::PerfError;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use units::{Bytes, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    pub from: SocketAddr,
    /// The server's name in the request.
    pub host: String,
    pub path: String,
    /// Timeout for the whole transfer, from the first packet to the last byte.
    pub patience: Duration,
    /// Timeout of the connection attempt, and of the wait for each further byte.
    pub silence: Duration,
}

/// Result of a transfer. Times count from just before the opening of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downloaded {
    pub status: u16,
    pub body: Bytes,
    pub checksum: u64,
    pub connected: Span,
    pub first_byte: Span,
    pub complete: Span,
}

/// FNV-1a over 64 bits. Detects a wrong body on a path without an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u64);

impl Download {
    /// Parses `http://host[:port][/path]` and resolves the host's name.
    pub fn of_url(url: &str) -> Result<Self, PerfError> {
        let wrong = |problem: &str| PerfError::Usage(format!("`{url}`: {problem}"));
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| wrong("write it as http://…; `weir perf web` measures https, too"))?;
        let (host, path) = match rest.find('/') {
            Some(slash) => (&rest[..slash], &rest[slash..]),
            None => (rest, "/"),
        };
        let plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || !rest.chars().all(plain) {
            return Err(wrong("write it as http://host:port/path, without blanks"));
        }
        // A colon in brackets belongs to an IPv6 address.
        let named = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let place = if named { host.to_owned() } else { format!("{host}:{PORT}") };
        let mut found = place
            .to_socket_addrs()
            .map_err(|error| PerfError::system(format!("looking up {host}"), error))?;
        let from = found.next().ok_or_else(|| wrong("this name has no address"))?;
        Ok(Self {
            from,
            host: host.to_owned(),
            path: path.to_owned(),
            patience: PATIENCE,
            silence: SILENCE,
        })
    }

    /// Fetches the file. The connection is returned open, so that the caller can inspect it first.
    /// `stop` is polled before each read, and several times a second while nothing arrives.
    pub fn run(&self, stop: impl Fn() -> bool) -> Result<(Downloaded, TcpStream), PerfError> {
        let begun = Instant::now();
        let mut socket = TcpStream::connect_timeout(&self.from, self.silence.min(self.patience))
            .map_err(|error| self.unmet(error))?;
        let connected = begun.elapsed().into();
        let mut reader = Reader { from: self, begun, last: begun, came: Bytes::ZERO, stop };
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_read_timeout(Some(LOOK)))
            .and_then(|()| socket.set_write_timeout(Some(self.silence.min(self.patience))))
            .and_then(|()| socket.write_all(self.request().as_bytes()))
            .map_err(|error| self.broken(error))?;
        let mut block = vec![0_u8; BLOCK];
        let (mut head, mut first_byte) = (Vec::new(), None);
        let body_begins = loop {
            if let Some(end) = end_of(&head) {
                break end;
            }
            if head.len() > LONGEST_HEAD {
                return Err(self.not_http("its answer's head is longer than 16 KiB"));
            }
            match reader.read(&mut socket, &mut block)? {
                0 => return Err(self.gone()),
                count => head.extend_from_slice(&block[..count]),
            }
            first_byte.get_or_insert_with(|| begun.elapsed().into());
        };
        let (status, length) =
            parse(&head[..body_begins]).map_err(|problem| self.not_http(&problem))?;
        let mut checksum = Checksum::default();
        let mut left = length;
        let mut take = |bytes: &[u8]| {
            let count = left.min(bytes.len() as u64);
            checksum.add(&bytes[..count as usize]);
            left -= count;
            left
        };
        let mut missing = take(&head[body_begins..]);
        while missing > 0 {
            match reader.read(&mut socket, &mut block)? {
                0 => return Err(self.gone()),
                count => missing = take(&block[..count]),
            }
        }
        let complete = begun.elapsed().into();
        let downloaded = Downloaded {
            status,
            body: Bytes::new(length),
            checksum: checksum.value(),
            connected,
            first_byte: first_byte.unwrap_or(complete),
            complete,
        };
        Ok((downloaded, socket))
    }

    fn request(&self) -> String {
        let Self { host, path, .. } = self;
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir\r\nAccept: */*\r\n\r\n")
    }

    fn unmet(&self, error: io::Error) -> PerfError {
        let peer = self.from.to_string();
        match error.kind() {
            ErrorKind::ConnectionRefused => PerfError::System {
                what: format!("no web server listens at {peer}"),
                source: error,
            },
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                PerfError::NoAnswer { peer, within: self.silence.min(self.patience) }
            }
            _ => PerfError::Unreachable { peer, reason: error },
        }
    }

    fn broken(&self, error: io::Error) -> PerfError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => self.gone(),
            _ => PerfError::system(format!("downloading from {}", self.from), error),
        }
    }

    fn silent(&self) -> PerfError {
        PerfError::Silent {
            peer: self.from.to_string(),
            within: self.silence.min(self.patience),
            doing: "a file was expected",
        }
    }

    fn gone(&self) -> PerfError {
        PerfError::Gone { peer: self.from.to_string(), doing: "a file was expected" }
    }

    fn not_http(&self, problem: &str) -> PerfError {
        PerfError::PeerFailed { peer: self.from.to_string(), reason: problem.to_owned() }
    }
}

impl Downloaded {
    /// Returns the body's rate in units of 1024 bytes a second. The time includes the opening of
    /// the connection.
    pub fn kbyte_s(&self) -> f64 {
        rate(self.body, self.complete)
    }

    /// Returns the body's rate in units of 1024 bytes a second, without the opening of the
    /// connection.
    pub fn transfer_kbyte_s(&self) -> f64 {
        rate(self.body, self.complete.saturating_sub(self.connected))
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

struct Reader<'a, S> {
    from: &'a Download,
    begun: Instant,
    last: Instant,
    came: Bytes,
    stop: S,
}

impl<S: Fn() -> bool> Reader<'_, S> {
    fn late(&self) -> PerfError {
        if self.came == Bytes::ZERO {
            return self.from.silent();
        }
        PerfError::Incomplete {
            peer: self.from.from.to_string(),
            within: self.begun.elapsed().min(self.from.patience),
            came: self.came,
            silent: self.last.elapsed().into(),
        }
    }

    fn read(&mut self, socket: &mut TcpStream, block: &mut [u8]) -> Result<usize, PerfError> {
        loop {
            if (self.stop)() {
                return Err(PerfError::Interrupted);
            }
            let silent = self.last.elapsed() > self.from.silence;
            if silent || self.begun.elapsed() > self.from.patience {
                return Err(self.late());
            }
            match socket.read(block) {
                Ok(count) => {
                    self.last = Instant::now();
                    self.came += Bytes::new(count as u64);
                    return Ok(count);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => return Err(self.from.broken(error)),
                },
            }
        }
    }
}

fn rate(body: Bytes, took: Span) -> f64 {
    body.count() as f64 / 1024.0 / took.secs_f64().max(1e-9)
}

/// Returns the index behind the empty line that ends the head.
fn end_of(head: &[u8]) -> Option<usize> {
    head.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Parses a response's head; returns the status and the length of the body.
fn parse(head: &[u8]) -> Result<(u16, u64), String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or("it does not speak HTTP/1.1")?;
    let value = |wanted: &str| {
        lines.clone().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    };
    if value("transfer-encoding").is_some() {
        return Err("it sends a body of unknown length, so truncation cannot be detected".into());
    }
    let length = value("content-length").ok_or("its answer has no Content-Length")?;
    let length = length.parse().map_err(|_| format!("`{length}` is not a valid Content-Length"))?;
    Ok((status, length))
}

const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);
const BLOCK: usize = 64 * 1024;
const LONGEST_HEAD: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;
    use testing::Attempt;

    /// Starts a server that answers one request with these bytes and closes the connection.
    fn answering(answer: Vec<u8>) -> Download {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while end_of(&request).is_none() {
                let mut some = [0; 64];
                let count = socket.read(&mut some).unwrap();
                request.extend_from_slice(&some[..count]);
            }
            assert!(request.starts_with(b"GET /file HTTP/1.1\r\n"));
            let _ = socket.write_all(&answer);
        });
        Download::of_url(&url).unwrap()
    }

    #[test]
    fn a_downloaded_file_is_counted_and_checksummed() {
        let body: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 200000\r\n\r\n".to_vec();
        answer.extend_from_slice(&body);
        let (came, _) = answering(answer).run(|| false).unwrap();
        let mut expected = Checksum::default();
        expected.add(&body);
        assert_eq!((came.status, came.body.count()), (200, 200_000));
        assert_eq!(came.checksum, expected.value());
        assert!(came.connected <= came.first_byte && came.first_byte <= came.complete);
        assert!(came.kbyte_s() <= came.transfer_kbyte_s());
    }

    #[test]
    fn a_truncated_body_and_other_protocols_are_reported() {
        let cut = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123".to_vec());
        let error = cut.run(|| false).unwrap_err().to_string();
        assert!(error.contains("closed the connection"), "{error}");
        let other = answering(b"SSH-2.0-x\r\n\r\n".to_vec()).run(|| false).unwrap_err();
        assert!(other.to_string().contains("does not speak HTTP/1.1"), "{other}");
        let endless = answering(vec![b'x'; 64 * 1024]).run(|| false).unwrap_err();
        assert!(endless.to_string().contains("longer than 16 KiB"), "{endless}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Download::of_url(&format!("http://{free}")).unwrap().run(|| false).unwrap_err();
        assert!(error.to_string().contains("no web server listens"), "{error}");
    }

    #[test]
    fn a_download_that_times_out_reports_the_received_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let mut download = Download::of_url(&url).unwrap();
        download.patience = Duration::from_millis(300);
        let error = download.run(|| false).unwrap_err().to_string();
        assert!(error.contains("said nothing for 0.3 s"), "{error}");
        // This server sends a byte every 20 ms.
        std::thread::spawn(move || {
            let _silent = listener.accept().unwrap();
            for mut socket in listener.incoming().flatten() {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
                while socket.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        // On a disturbed machine the server may send nothing for 0.3 s.
        testing::undisturbed("download that is late", |_| {
            let error = download.run(|| false).unwrap_err().to_string();
            match error.contains("did not arrive within 0.3 s: ") {
                true => Attempt::Right(()),
                false => Attempt::Wrong(error),
            }
        });
    }

    /// The server accepts, sends nothing or part of its response, and keeps the connection open.
    #[test]
    fn a_download_from_a_server_that_falls_silent_times_out() {
        let given_up = |part: &'static str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/file", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.write_all(part.as_bytes());
                std::thread::sleep(Duration::from_secs(50));
            });
            let mut download = Download::of_url(&url).unwrap();
            assert!(download.silence <= Duration::from_secs(20));
            download.silence = Duration::from_millis(400);
            let begun = Instant::now();
            let error = download.run(|| false).unwrap_err().to_string();
            let expected =
                if part.is_empty() { "said nothing for 0.4 s" } else { "did not arrive" };
            match error.contains(expected) && begun.elapsed() < Duration::from_secs(30) {
                true => Attempt::Right(()),
                false => Attempt::Wrong(format!("{part}: {error} after {:?}", begun.elapsed())),
            }
        };
        for part in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxyz"] {
            testing::undisturbed("download from a silent server", |_| given_up(part));
        }
    }

    #[test]
    fn a_download_url_parses_to_address_and_path() {
        let read = |url: &str| Download::of_url(url).map(|download| (download.from, download.path));
        let (from, path) = read("http://127.0.0.1:81/a/b?c").unwrap();
        assert_eq!((from.to_string().as_str(), path.as_str()), ("127.0.0.1:81", "/a/b?c"));
        let (from, path) = read("http://[::1]").unwrap();
        assert_eq!((from.to_string().as_str(), path.as_str()), ("[::1]:80", "/"));
        for wrong in ["https://a/", "http://", "http://a b/", "a"] {
            assert!(read(wrong).unwrap_err().is_misuse(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_response_head_is_parsed_or_refused(head in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&head);
        }
    }
}
