use crate::control::Cookie;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Connections that have not sent their cookie yet, in the order in which they were accepted. The
/// number of these connections and their waiting time are bounded. A connection beyond the maximum
/// number closes the oldest connection, because a real client sends its cookie at once.
#[derive(Debug)]
pub(super) struct PendingConnections {
    connections: Vec<Pending>,
    most: usize,
    patience: Duration,
}

#[derive(Debug)]
pub(super) struct Identified {
    pub(super) cookie: Cookie,
    pub(super) socket: TcpStream,
    pub(super) from: SocketAddr,
    /// Increases with each accepted connection.
    pub(super) order: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The received bytes cannot be from an iperf3 client.
    NotIperf3,
    Silent,
    /// Newer connections arrived, and this connection was the oldest.
    Evicted,
    /// The client closed without sending anything, as port scanners and health checks do.
    ClosedByPeer,
}

impl PendingConnections {
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self { connections: Vec::new(), most: most.max(1), patience }
    }

    /// Adds a connection. If the new connection displaces the oldest connection, closes the oldest
    /// connection and returns its address.
    pub(super) fn add(
        &mut self,
        socket: TcpStream,
        from: SocketAddr,
        order: u64,
        now: Instant,
    ) -> Option<(SocketAddr, CloseReason)> {
        let gone = (self.connections.len() >= self.most).then(|| self.connections.remove(0));
        let until = now + self.patience;
        self.connections.push(Pending { socket, from, order, until, received: Vec::new() });
        gone.map(|connection| (connection.from, CloseReason::Evicted))
    }

    /// Closes the oldest connection to free a file descriptor, if it had time to send its cookie.
    pub(super) fn evict_oldest(&mut self, now: Instant) -> Option<(SocketAddr, CloseReason)> {
        let oldest = self.connections.first()?;
        let had_time = now + self.patience >= oldest.until + COOKIE_TIME;
        had_time.then(|| (self.connections.remove(0).from, CloseReason::Evicted))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().map(|connection| connection.socket.as_fd())
    }

    /// Reads from the readable connections (`ready`, a flag for each connection). Returns the
    /// connections with a complete cookie, in the order of arrival.
    pub(super) fn read(
        &mut self,
        ready: &[bool],
        now: Instant,
        mut dismissed: impl FnMut(SocketAddr, CloseReason),
    ) -> Vec<Identified> {
        let mut identified = Vec::new();
        let mut still = Vec::with_capacity(self.connections.len());
        for (index, mut connection) in self.connections.drain(..).enumerate() {
            let is_ready = ready.get(index).copied().unwrap_or(false);
            match if is_ready { connection.read() } else { Ok(None) } {
                Ok(Some(cookie)) => {
                    let Pending { socket, from, order, .. } = connection;
                    identified.push(Identified { cookie, socket, from, order });
                }
                Ok(None) if now >= connection.until => {
                    dismissed(connection.from, CloseReason::Silent)
                }
                Ok(None) => still.push(connection),
                Err(why) => dismissed(connection.from, why),
            }
        }
        self.connections = still;
        identified
    }
}

#[derive(Debug)]
struct Pending {
    socket: TcpStream,
    from: SocketAddr,
    order: u64,
    until: Instant,
    received: Vec<u8>,
}

impl Pending {
    /// Reads no further than the cookie, because the following bytes belong to the session.
    fn read(&mut self) -> Result<Option<Cookie>, CloseReason> {
        let mut bytes = [0; Cookie::LENGTH];
        loop {
            let room = &mut bytes[..Cookie::LENGTH - self.received.len()];
            match self.socket.read(room) {
                Ok(0) if self.received.is_empty() => return Err(CloseReason::ClosedByPeer),
                Ok(0) => return Err(CloseReason::NotIperf3),
                Ok(count) => self.received.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(CloseReason::ClosedByPeer),
            }
            if let Ok(whole) = <[u8; Cookie::LENGTH]>::try_from(self.received.as_slice()) {
                return Cookie::from_bytes(whole).map(Some).ok_or(CloseReason::NotIperf3);
            }
            // An HTTP request line or a TLS hello contains other bytes long before the 37th byte.
            if !self.received.iter().all(|byte| Cookie::may_contain(*byte)) {
                return Err(CloseReason::NotIperf3);
            }
        }
    }
}

/// A real client has sent its cookie within this time.
const COOKIE_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    struct Fixture {
        listener: TcpListener,
        pending: PendingConnections,
        accepted: u64,
    }

    impl Fixture {
        fn new(most: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let pending = PendingConnections::new(most, Duration::from_secs(5));
            Self { listener, pending, accepted: 0 }
        }

        fn connect(&mut self, now: Instant) -> (TcpStream, Option<(SocketAddr, CloseReason)>) {
            let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let (socket, from) = self.listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            self.accepted += 1;
            let gone = self.pending.add(socket, from, self.accepted, now);
            (client, gone)
        }

        /// Polls until a connection is identified or closed, which a loopback write causes.
        fn poll(&mut self, now: Instant) -> (Vec<Identified>, Vec<CloseReason>) {
            loop {
                let ready = vec![true; self.pending.connections.len()];
                let mut dismissed = Vec::new();
                let identified = self.pending.read(&ready, now, |_, why| dismissed.push(why));
                if !identified.is_empty() || !dismissed.is_empty() {
                    return (identified, dismissed);
                }
            }
        }
    }

    #[test]
    fn a_cookie_in_segments_of_any_size_identifies_its_connection() {
        let mut fixture = Fixture::new(4);
        let now = Instant::now();
        let (mut client, _) = fixture.connect(now);
        let cookie = Cookie::random();
        for byte in cookie.as_bytes() {
            client.write_all(&[*byte]).unwrap();
        }
        client.write_all(b"more").unwrap();
        let (identified, _) = fixture.poll(now);
        assert_eq!(identified[0].cookie, cookie);
        let mut rest = [0; 4];
        identified[0].socket.set_nonblocking(false).unwrap();
        (&identified[0].socket).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"more");
    }

    #[test]
    fn connections_of_other_protocols_and_silent_connections_are_closed() {
        let mut fixture = Fixture::new(4);
        let now = Instant::now();
        let (mut http, _) = fixture.connect(now);
        http.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(fixture.poll(now).1, [CloseReason::NotIperf3]);
        let (silent, _) = fixture.connect(now);
        assert_eq!(fixture.poll(now + Duration::from_secs(6)).1, [CloseReason::Silent]);
        drop(silent);
        let (left, _) = fixture.connect(now);
        drop(left);
        assert_eq!(fixture.poll(now).1, [CloseReason::ClosedByPeer]);
    }

    #[test]
    fn the_oldest_connection_without_a_cookie_is_evicted() {
        let mut fixture = Fixture::new(2);
        let now = Instant::now();
        let (oldest, none) = fixture.connect(now);
        assert_eq!(none, None);
        let (_second, _) = fixture.connect(now);
        let (_third, gone) = fixture.connect(now);
        assert_eq!(gone, Some((oldest.local_addr().unwrap(), CloseReason::Evicted)));
        assert_eq!(fixture.pending.connections.len(), 2);
    }

    #[test]
    fn a_server_without_descriptors_evicts_the_oldest_connection_that_had_time_for_its_cookie() {
        let mut fixture = Fixture::new(2);
        let now = Instant::now();
        assert_eq!(fixture.pending.evict_oldest(now), None);
        let (client, _) = fixture.connect(now);
        assert_eq!(fixture.pending.evict_oldest(now), None);
        let gone = fixture.pending.evict_oldest(now + COOKIE_TIME);
        assert_eq!(gone, Some((client.local_addr().unwrap(), CloseReason::Evicted)));
        assert!(fixture.pending.is_empty());
    }
}
