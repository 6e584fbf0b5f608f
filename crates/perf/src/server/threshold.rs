use crate::control::Cookie;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Connections that have not sent their cookie yet, in the order in which they were accepted. Their
/// number and time are bounded. A connection beyond the bound closes the oldest, because a real
/// client sends its cookie at once.
#[derive(Debug)]
pub(super) struct Threshold {
    waiting: Vec<Unnamed>,
    most: usize,
    patience: Duration,
}

/// A connection that sent its cookie.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) cookie: Cookie,
    pub(super) socket: TcpStream,
    pub(super) from: SocketAddr,
    /// Increases with each accepted connection.
    pub(super) order: u64,
}

/// Reason why a connection was closed before it sent its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dismissed {
    /// The bytes cannot be iperf3's.
    Foreign,
    Silent,
    /// Newer connections came, and this was the oldest.
    GaveWay,
    /// The client closed without sending anything, as port scanners and health checks do.
    Left,
}

impl Threshold {
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self { waiting: Vec::new(), most: most.max(1), patience }
    }

    /// Admits a connection. Returns the address of the oldest if that had to be closed for it.
    pub(super) fn enter(
        &mut self,
        socket: TcpStream,
        from: SocketAddr,
        order: u64,
        now: Instant,
    ) -> Option<(SocketAddr, Dismissed)> {
        let gone = (self.waiting.len() >= self.most).then(|| self.waiting.remove(0));
        let until = now + self.patience;
        self.waiting.push(Unnamed { socket, from, order, until, said: Vec::new() });
        gone.map(|unnamed| (unnamed.from, Dismissed::GaveWay))
    }

    /// Closes the oldest connection if it had time to send its cookie. Used when file descriptors
    /// run out.
    pub(super) fn give_way(&mut self, now: Instant) -> Option<(SocketAddr, Dismissed)> {
        let oldest = self.waiting.first()?;
        let had_time = now + self.patience >= oldest.until + MOMENT;
        had_time.then(|| (self.waiting.remove(0).from, Dismissed::GaveWay))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|unnamed| unnamed.socket.as_fd())
    }

    /// Reads the pending bytes; `ready` says for each connection in turn whether it is readable.
    /// Connections with a whole cookie are returned in the order of arrival.
    pub(super) fn listen(
        &mut self,
        ready: &[bool],
        now: Instant,
        mut dismissed: impl FnMut(SocketAddr, Dismissed),
    ) -> Vec<Named> {
        let mut named = Vec::new();
        let mut still = Vec::with_capacity(self.waiting.len());
        for (place, mut unnamed) in self.waiting.drain(..).enumerate() {
            let has_news = ready.get(place).copied().unwrap_or(false);
            match if has_news { unnamed.read() } else { Ok(None) } {
                Ok(Some(cookie)) => {
                    let Unnamed { socket, from, order, .. } = unnamed;
                    named.push(Named { cookie, socket, from, order });
                }
                Ok(None) if now >= unnamed.until => dismissed(unnamed.from, Dismissed::Silent),
                Ok(None) => still.push(unnamed),
                Err(why) => dismissed(unnamed.from, why),
            }
        }
        self.waiting = still;
        named
    }
}

#[derive(Debug)]
struct Unnamed {
    socket: TcpStream,
    from: SocketAddr,
    order: u64,
    until: Instant,
    said: Vec<u8>,
}

impl Unnamed {
    /// Reads exactly the cookie: the bytes behind it belong to the session.
    fn read(&mut self) -> Result<Option<Cookie>, Dismissed> {
        let mut bytes = [0; Cookie::LENGTH];
        loop {
            let room = &mut bytes[..Cookie::LENGTH - self.said.len()];
            match self.socket.read(room) {
                Ok(0) if self.said.is_empty() => return Err(Dismissed::Left),
                Ok(0) => return Err(Dismissed::Foreign),
                Ok(count) => self.said.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Dismissed::Left),
            }
            if let Ok(whole) = <[u8; Cookie::LENGTH]>::try_from(self.said.as_slice()) {
                return Cookie::from_bytes(whole).map(Some).ok_or(Dismissed::Foreign);
            }
            // A request line or a TLS hello shows itself long before 37 bytes.
            if !self.said.iter().all(u8::is_ascii_graphic) {
                return Err(Dismissed::Foreign);
            }
        }
    }
}

/// A real client has sent its cookie within this time.
const MOMENT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    struct Street {
        listener: TcpListener,
        threshold: Threshold,
        came: u64,
    }

    impl Street {
        fn new(most: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let threshold = Threshold::new(most, Duration::from_secs(5));
            Self { listener, threshold, came: 0 }
        }

        fn knock(&mut self, now: Instant) -> (TcpStream, Option<(SocketAddr, Dismissed)>) {
            let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let (socket, from) = self.listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            self.came += 1;
            let gone = self.threshold.enter(socket, from, self.came, now);
            (client, gone)
        }

        /// Polls until a connection is named or dismissed, which a loopback write brings about.
        fn news(&mut self, now: Instant) -> (Vec<Named>, Vec<Dismissed>) {
            loop {
                let ready = vec![true; self.threshold.waiting.len()];
                let mut dismissed = Vec::new();
                let named = self.threshold.listen(&ready, now, |_, why| dismissed.push(why));
                if !named.is_empty() || !dismissed.is_empty() {
                    return (named, dismissed);
                }
            }
        }
    }

    #[test]
    fn a_cookie_in_any_pieces_names_its_connection() {
        let mut street = Street::new(4);
        let now = Instant::now();
        let (mut client, _) = street.knock(now);
        let cookie = Cookie::random();
        for byte in cookie.as_bytes() {
            client.write_all(&[*byte]).unwrap();
        }
        client.write_all(b"more").unwrap();
        let (named, _) = street.news(now);
        assert_eq!(named[0].cookie, cookie);
        let mut rest = [0; 4];
        named[0].socket.set_nonblocking(false).unwrap();
        (&named[0].socket).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"more");
    }

    #[test]
    fn foreign_and_silent_connections_are_dismissed() {
        let mut street = Street::new(4);
        let now = Instant::now();
        let (mut http, _) = street.knock(now);
        http.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(street.news(now).1, [Dismissed::Foreign]);
        let (silent, _) = street.knock(now);
        assert_eq!(street.news(now + Duration::from_secs(6)).1, [Dismissed::Silent]);
        drop(silent);
        let (left, _) = street.knock(now);
        drop(left);
        assert_eq!(street.news(now).1, [Dismissed::Left]);
    }

    #[test]
    fn the_oldest_connection_gives_way() {
        let mut street = Street::new(2);
        let now = Instant::now();
        let (oldest, none) = street.knock(now);
        assert_eq!(none, None);
        let (_second, _) = street.knock(now);
        let (_third, gone) = street.knock(now);
        assert_eq!(gone, Some((oldest.local_addr().unwrap(), Dismissed::GaveWay)));
        assert_eq!(street.threshold.waiting.len(), 2);
    }

    #[test]
    fn without_descriptors_the_oldest_gives_way_if_it_had_time_to_speak() {
        let mut street = Street::new(2);
        let now = Instant::now();
        assert_eq!(street.threshold.give_way(now), None);
        let (client, _) = street.knock(now);
        assert_eq!(street.threshold.give_way(now), None);
        let gone = street.threshold.give_way(now + MOMENT);
        assert_eq!(gone, Some((client.local_addr().unwrap(), Dismissed::GaveWay)));
        assert!(street.threshold.is_empty());
    }
}
