//! A small web server, which sends the same body for every path, over TCP or TLS, with a fixed
//! number of threads. The server is the peer of `weir perf web` and of labs on a machine without
//! another web server.

use crate::PerfError;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct WebServer {
    body: Vec<u8>,
    tls: Option<Arc<ServerConfig>>,
    /// Number of threads, each of which serves a connection. Further connections wait in the
    /// kernel's queue.
    threads: u32,
}

impl WebServer {
    pub fn new(size: usize, threads: u32) -> Self {
        Self { body: vec![b'w'; size], tls: None, threads }
    }

    /// Serves https with this certificate and key, both in PEM.
    pub fn with_tls(self, certificate: &Path, key: &Path) -> Result<Self, PerfError> {
        let read = |path: &Path| {
            let name = path.display();
            host::read_regular_bytes(path)
                .map_err(|error| PerfError::Usage(format!("reading {name}: {error}")))
        };
        let wrong = |path: &Path, reason: String| {
            PerfError::Usage(format!("{}: {reason}: name a file in PEM", path.display()))
        };
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&read(certificate)?).collect();
        let chain = chain.map_err(|error| wrong(certificate, format!("{error:?}")))?;
        let private = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|error| wrong(key, format!("{error:?}")))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
        let config = config.map_err(|error| PerfError::Usage(format!("TLS: {error}")))?;
        Ok(Self { tls: Some(Arc::new(config)), ..self })
    }

    pub fn run(&self, listener: &TcpListener, stop: &AtomicBool) -> Result<(), PerfError> {
        let failed = |error| PerfError::system("serving", error);
        listener.set_nonblocking(false).map_err(failed)?;
        // accept(2) obeys the receive timeout of its socket.
        let socket = socket2::SockRef::from(listener);
        socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
        std::thread::scope(|scope| {
            for number in 0..self.threads {
                let serve = move || {
                    while !stop.load(Ordering::Relaxed) {
                        let peer = match listener.accept() {
                            Ok((peer, _)) => peer,
                            // No client connected within the timeout.
                            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                            // The peer has gone, or no descriptor is free until a connection ends.
                            Err(_) => {
                                std::thread::sleep(LOOK);
                                continue;
                            }
                        };
                        let _ = self.serve(peer, stop);
                    }
                };
                let name = format!("web {number}");
                std::thread::Builder::new()
                    .name(name)
                    .stack_size(STACK)
                    .spawn_scoped(scope, serve)
                    .map_err(|error| {
                        stop.store(true, Ordering::Relaxed);
                        PerfError::system("starting a thread", error)
                    })?;
            }
            Ok(())
        })
    }

    fn serve(&self, peer: TcpStream, stop: &AtomicBool) -> std::io::Result<()> {
        peer.set_nodelay(true)?;
        peer.set_read_timeout(Some(LOOK))?;
        peer.set_write_timeout(Some(SILENCE))?;
        match &self.tls {
            None => self.answer(peer, stop),
            Some(config) => {
                let tls =
                    ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
                self.answer(StreamOwned::new(tls, peer), stop)
            }
        }
    }

    fn answer(&self, mut peer: impl Read + Write, stop: &AtomicBool) -> std::io::Result<()> {
        let mut request = Vec::with_capacity(1024);
        let mut block = [0; 4096];
        let mut answer = Vec::with_capacity(self.body.len() + 200);
        let mut quiet = Duration::ZERO;
        loop {
            let end = loop {
                if let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") {
                    break end + 4;
                }
                match peer.read(&mut block) {
                    Ok(0) => return Ok(()),
                    Ok(count) if request.len() + count <= LONGEST_REQUEST => {
                        quiet = Duration::ZERO;
                        request.extend_from_slice(&block[..count]);
                    }
                    Ok(_) => return peer.write_all(TOO_LONG),
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                    {
                        quiet += LOOK;
                        if stop.load(Ordering::Relaxed) || quiet >= SILENCE {
                            return Ok(());
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            };
            let head = request[..end].to_ascii_lowercase();
            let has = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
            let is_old = head.split(|byte| *byte == b'\r').next().is_some_and(is_http_1_0);
            let is_get = head.starts_with(b"get ");
            let is_head = head.starts_with(b"head ");
            // The server reads no request bodies: the body of a POST would be read as the next
            // request.
            let closes = has(b"\r\nconnection: close")
                || (is_old && !has(b"\r\nconnection: keep-alive"))
                || !(is_get || is_head);
            answer.clear();
            let connection = if closes { "close" } else { "keep-alive" };
            let status = if is_get || is_head { "200 OK" } else { "501 Not Implemented" };
            write!(
                answer,
                "HTTP/1.1 {status}\r\nServer: weir\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
                 Connection: {connection}\r\n\r\n",
                self.body.len()
            )?;
            if !is_head {
                answer.extend_from_slice(&self.body);
            }
            peer.write_all(&answer)?;
            peer.flush()?;
            request.drain(..end);
            if closes {
                return Ok(());
            }
        }
    }
}

/// True for the request line, in small letters, of a client such as ab, whose connection ends after
/// the response.
fn is_http_1_0(line: &[u8]) -> bool {
    line.ends_with(b" http/1.0")
}

const TOO_LONG: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const LONGEST_REQUEST: usize = 16 << 10;
/// Maximum time without a byte from a client.
const SILENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
const STACK: usize = 256 << 10;
