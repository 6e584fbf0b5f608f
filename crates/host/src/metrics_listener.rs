//! Serves metrics: one response a connection, to a bounded number of clients, on the caller's
//! thread.

use crate::metrics_http::{HttpResponse, LONGEST_HTTP_REQUEST, is_whole_http_request};
use crate::{BoundFile, MetricsAddress, SocketFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// A bound listener, so that an address in use is reported before anything starts.
#[derive(Debug)]
pub struct MetricsListener(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    /// A UNIX socket, with its file, which is removed with the listener.
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file")] BoundFile),
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Client {
    stream: Stream,
    request: Vec<u8>,
    /// The response, and the number of its bytes sent.
    response: Option<(Vec<u8>, usize)>,
    since: Instant,
}

impl MetricsListener {
    pub fn bind(address: &MetricsAddress) -> io::Result<Self> {
        Ok(Self(match address {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Bound::Tcp(listener)
            }
            MetricsAddress::Unix(path) => {
                let mode = Some(Mode::RUSR | Mode::WUSR);
                let (listener, file) = SocketFile::at(path)?.listen(mode)?;
                listener.set_nonblocking(true)?;
                Bound::Unix(listener, file)
            }
        }))
    }

    /// Returns the address as text.
    pub fn place(&self) -> Option<String> {
        match &self.0 {
            Bound::Tcp(listener) => {
                listener.local_addr().ok().map(|address| format!("http://{address}/metrics"))
            }
            Bound::Unix(listener, _) => {
                let address = listener.local_addr().ok()?;
                Some(format!("unix:{}", address.as_pathname()?.display()))
            }
        }
    }

    /// Answers requests by `respond` until `end` is readable or its peer closes it. If all
    /// slots are taken, a slow client loses its slot to a new client, so that it delays no other
    /// client.
    pub fn serve(&self, end: BorrowedFd<'_>, mut respond: impl FnMut(&[u8]) -> HttpResponse) {
        let mut clients: Vec<Client> = Vec::new();
        while !is_ready(end) {
            self.wait(end, &clients);
            clients.retain_mut(|client| client.serve(&mut respond).unwrap_or(false));
            while is_ready(self.as_fd())
                && has_place(&mut clients)
                && let Ok(stream) = self.accept()
            {
                let since = Instant::now();
                let mut client = Client { stream, request: Vec::new(), response: None, since };
                // A request that has arrived is answered without waiting for other clients.
                if client.serve(&mut respond).unwrap_or(false) {
                    clients.push(client);
                }
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        Ok(match &self.0 {
            Bound::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Stream::Tcp(stream)
            }
            Bound::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
        })
    }

    /// Waits until a client or the listener is ready. Further clients wait in the listener's queue.
    fn wait(&self, end: BorrowedFd<'_>, clients: &[Client]) {
        let mut fds = vec![PollFd::from_borrowed_fd(end, PollFlags::IN)];
        let is_full = clients.len() >= MOST_CLIENTS;
        if !is_full {
            fds.push(PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN));
        }
        for client in clients {
            let flags = if client.response.is_some() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
        }
        let pause = if is_full { SHORTEST } else { PAUSE };
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        // A signal may end the wait early: the caller then checks again.
        let _ = poll(&mut fds, Some(&pause));
    }
}

impl Client {
    /// Serves the client. Returns `false` if the client is done.
    fn serve(&mut self, respond: &mut impl FnMut(&[u8]) -> HttpResponse) -> io::Result<bool> {
        if self.since.elapsed() > PATIENCE {
            return Ok(false);
        }
        if self.response.is_none() {
            let mut scratch = [0; 2048];
            match self.stream.read(&mut scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => self.request.extend_from_slice(&scratch[..read]),
                Err(error) if is_transient(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            if !is_whole_http_request(&self.request) {
                return Ok(self.request.len() <= LONGEST_HTTP_REQUEST);
            }
            self.response = Some((respond(&self.request).to_string().into_bytes(), 0));
        }
        let Some((bytes, sent)) = &mut self.response else { return Ok(false) };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }
}

/// Whether a slot is free for another client. If all slots are taken, removes the slowest client
/// that has had its slot for at least `SHORTEST`: first a client that has sent no request, then a
/// client that does not read its response.
fn has_place(clients: &mut Vec<Client>) -> bool {
    if clients.len() < MOST_CLIENTS {
        return true;
    }
    let slow = clients.iter().enumerate().filter(|(_, client)| client.since.elapsed() > SHORTEST);
    let slowest =
        slow.max_by_key(|(_, client)| (client.response.is_none(), client.since.elapsed()));
    let place = slowest.map(|(place, _)| place);
    place.map(|place| clients.swap_remove(place)).is_some()
}

fn is_ready(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

const MOST_CLIENTS: usize = 64;
const PAUSE: Duration = Duration::from_millis(500);
/// Timeout of one exchange.
const PATIENCE: Duration = Duration::from_secs(5);
/// Minimum time that a client keeps its slot while all slots are taken and other clients wait.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_response;

    /// More clients than there are slots send nothing, and one client does not read a response that
    /// is larger than the socket's buffers.
    #[test]
    fn silent_and_slow_metrics_clients_do_not_delay_other_clients() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let listener = MetricsListener::bind(&MetricsAddress::Unix(path.clone())).unwrap();
        let (end, ending) = io::pipe().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                listener.serve(end.as_fd(), |request| {
                    http_response(request, "/metrics", |path| {
                        (path == "/metrics").then(|| HttpResponse::metrics("x".repeat(LONG)))
                    })
                });
            });
            let ask = || {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                stream
            };
            let _slow = ask();
            let _silent: Vec<_> =
                (0..=MOST_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
            let mut response = String::new();
            ask().read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 200 ") && response.len() > LONG);
            drop(ending);
            server.join().unwrap();
        });
        drop(listener);
        assert!(!path.exists());
    }

    const LONG: usize = 4 << 20;
}
