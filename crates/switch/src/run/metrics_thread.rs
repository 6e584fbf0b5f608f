use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::{
    BoundFile, HttpResponse, LONGEST_HTTP_REQUEST, MetricsAddress, SocketFile, http_response,
    is_whole_http_request,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;

use super::connection::is_transient;
use super::error::SwitchError;
use super::metrics;
use super::outgoing::Outgoing;
use super::stream::Stream;
use super::switch::Switch;
use super::waker::Waker;

/// The thread that answers Prometheus: GET of two paths, one response a connection.
pub(super) struct MetricsThread {
    pub(super) switch: Arc<Switch>,
    pub(super) listener: MetricsListener,
    pub(super) waker: Arc<Waker>,
    pub(super) stop: Arc<AtomicBool>,
}

/// A bound listener, so that an address in use is reported before anything starts.
pub(super) enum MetricsListener {
    Tcp(TcpListener),
    /// The socket's file goes with its listener.
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file")] BoundFile),
}

struct Client {
    stream: Stream,
    request: Vec<u8>,
    out: Outgoing,
    is_answered: bool,
    since: Instant,
}

impl MetricsListener {
    pub(super) fn bind(address: &MetricsAddress) -> Result<Self, SwitchError> {
        let refused = |error| SwitchError::Listen { place: address.to_string(), error };
        Ok(match address {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(refused)?;
                listener.set_nonblocking(true).map_err(refused)?;
                Self::Tcp(listener)
            }
            MetricsAddress::Unix(path) => {
                let mode = Some(Mode::RUSR | Mode::WUSR);
                let file = SocketFile::at(path).map_err(refused)?;
                let (listener, file) = file.listen(mode).map_err(refused)?;
                listener.set_nonblocking(true).map_err(refused)?;
                Self::Unix(listener, file)
            }
        })
    }

    /// The address, for people.
    pub(super) fn place(&self) -> Option<String> {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().ok().map(|address| format!("http://{address}/metrics"))
            }
            Self::Unix(listener, _) => {
                let address = listener.local_addr().ok()?;
                Some(format!("unix:{}", address.as_pathname()?.display()))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            Self::Unix(listener, _) => Stream::unix(listener.accept()?.0),
        }
    }
}

impl MetricsThread {
    /// Serves until the switch is stopped.
    pub(super) fn run(self) {
        let mut clients: Vec<Client> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.wait(&clients);
            self.waker.clear();
            clients.retain_mut(|client| self.serve(client).unwrap_or(false));
            while self.has_newcomer()
                && has_place(&mut clients)
                && let Ok(stream) = self.listener.accept()
            {
                let mut client = Client {
                    stream,
                    request: Vec::new(),
                    out: Outgoing::new(),
                    is_answered: false,
                    since: Instant::now(),
                };
                // A request that has arrived waits for no other client.
                if self.serve(&mut client).unwrap_or(false) {
                    clients.push(client);
                }
            }
        }
    }

    fn has_newcomer(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until something can be done. Further clients wait in the listener's queue.
    fn wait(&self, clients: &[Client]) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        let is_full = clients.len() >= MOST_CLIENTS;
        if !is_full {
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        for client in clients {
            let flags = if client.is_answered { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
        }
        let pause = if is_full { SHORTEST } else { PAUSE };
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&pause));
    }

    /// `false` if the client is done.
    fn serve(&self, client: &mut Client) -> io::Result<bool> {
        if client.since.elapsed() > PATIENCE {
            return Ok(false);
        }
        if !client.is_answered {
            let mut scratch = [0; 2048];
            match client.stream.read(&mut scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => client.request.extend_from_slice(&scratch[..read]),
                Err(error) if is_transient(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            if !is_whole_http_request(&client.request) {
                return Ok(client.request.len() <= LONGEST_HTTP_REQUEST);
            }
            let response = response(&client.request, || metrics::exposition(&self.switch));
            client.out.buffer().extend(response.to_string().into_bytes());
            client.is_answered = true;
        }
        client.out.write(&mut client.stream)?;
        Ok(client.out.waiting() > 0)
    }
}

/// Whether one more client may come. Among as many as there may be, the slowest goes if it had some
/// time: one that has not sent its request, or else one that has not read the response.
fn has_place(clients: &mut Vec<Client>) -> bool {
    if clients.len() < MOST_CLIENTS {
        return true;
    }
    let slow = clients.iter().enumerate().filter(|(_, client)| client.since.elapsed() > SHORTEST);
    let slowest = slow.max_by_key(|(_, client)| (!client.is_answered, client.since.elapsed()));
    let place = slowest.map(|(place, _)| place);
    place.map(|place| clients.swap_remove(place)).is_some()
}

fn response(request: &[u8], exposition: impl FnOnce() -> String) -> HttpResponse {
    http_response(request, "/metrics, /healthz", |path| match path {
        "/metrics" => Some(HttpResponse::metrics(exposition())),
        "/healthz" => Some(HttpResponse::ok()),
        _ => None,
    })
}

const MOST_CLIENTS: usize = 64;
const PAUSE: Duration = Duration::from_millis(500);
/// The time of one exchange.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time of one exchange that others wait for.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_paths_are_answered() {
        let status = |request: &str| {
            let answer = response(request.as_bytes(), || "figures\n".to_owned());
            answer.to_string()[..12].to_owned()
        };
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
        assert_eq!(status("GET /metrics?name=x HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
        assert_eq!(status("\r\n\r\n"), "HTTP/1.1 405");
    }
}
