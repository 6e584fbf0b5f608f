use crate::control::Cookie;
use crate::observe::echo::Token;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The sessions being served, and the connection that each waits for. The listener finds the
/// session of a connection here; a session registers here what it wants next.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    turns_changed: Condvar,
}

/// A session's place in the table, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    sessions: Arc<Sessions>,
    number: u64,
    peer: IpAddr,
    arrivals: Receiver<Arrival>,
}

/// A delivery from the listener to a session.
#[derive(Debug)]
pub(super) enum Arrival {
    /// `order` increases with each accepted connection.
    Connection { socket: TcpStream, order: u64 },
    /// Connected to the sender of the hello, which has not been answered.
    Datagrams { socket: UdpSocket, hello: Vec<u8> },
    /// A stream arrived, but this end had no room for it.
    NoRoom(io::Error),
}

/// Limits on concurrent tests: in all, and from one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestLimits {
    pub(super) sessions: usize,
    pub(super) per_address: usize,
}

/// The limit of [`TestLimits`] that has been reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitReached {
    Sessions,
    PerAddress,
}

impl LimitReached {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Sessions => "the maximum number of tests is running (--max-sessions)",
            Self::PerAddress => {
                "the maximum number of tests from its address is already running (--sessions-per-address)"
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Undelivered {
    /// A new client.
    NewClient,
    /// Its session wants no connection now.
    Unexpected,
}

impl Sessions {
    /// Checks whether a test of a client at `peer` could begin now.
    pub(super) fn room(&self, peer: SocketAddr, most: TestLimits) -> Result<(), LimitReached> {
        self.table().room(peer.ip().to_canonical(), most)
    }

    /// `local` is the address that the client reached. A client that has a reservation but has not
    /// sent its parameters must not block others: beyond `most_silent` such clients the oldest is
    /// disconnected.
    pub(super) fn reserve(
        self: &Arc<Self>,
        cookie: Cookie,
        socket: &TcpStream,
        (peer, local): (SocketAddr, SocketAddr),
        most_silent: usize,
    ) -> Reservation {
        let (deliveries, arrivals) = mpsc::channel();
        let peer = peer.ip().to_canonical();
        let silent = socket.try_clone().ok();
        let mut table = self.table();
        table.disconnect_silent(most_silent);
        table.last += 1;
        let number = table.last;
        let session = Session {
            number,
            cookie,
            peer,
            local,
            wants: Wants::Nothing,
            token: None,
            memory: 0,
            silent,
            deliveries,
        };
        table.sessions.push(session);
        drop(table);
        Reservation { sessions: Arc::clone(self), number, peer, arrivals }
    }

    /// Delivers a connection to its session, if that session wants one.
    pub(super) fn deliver(
        &self,
        cookie: &Cookie,
        socket: TcpStream,
        order: u64,
    ) -> Result<(), (Undelivered, TcpStream)> {
        let mut table = self.table();
        let Some(session) = table.sessions.iter_mut().find(|session| session.cookie == *cookie)
        else {
            return Err((Undelivered::NewClient, socket));
        };
        match &mut session.wants {
            Wants::Connections(left) if *left > 0 => *left -= 1,
            Wants::Any(deliveries) => {
                return deliveries.try_send(socket).map_err(|error| match error {
                    TrySendError::Full(socket) | TrySendError::Disconnected(socket) => {
                        (Undelivered::Unexpected, socket)
                    }
                });
            }
            _ => return Err((Undelivered::Unexpected, socket)),
        }
        // A session that ended just now drops its connections.
        let _ = session.deliveries.send(Arrival::Connection { socket, order });
        Ok(())
    }

    /// Reports to the session of this cookie that its connection found no room; false if it belongs
    /// to no session.
    pub(super) fn report_no_room(&self, cookie: &Cookie, error: io::Error) -> bool {
        let table = self.table();
        let session = table.sessions.iter().find(|session| session.cookie == *cookie);
        session.is_some_and(|session| {
            let _ = session.deliveries.send(Arrival::NoRoom(error));
            true
        })
    }

    /// Same for a stream of datagrams.
    pub(super) fn report_no_room_for_datagrams(&self, from: SocketAddr, error: io::Error) {
        let ip = from.ip().to_canonical();
        let table = self.table();
        let wants = |session: &&Session| session.peer == ip && session.wants.has_room(from);
        if let Some(session) = table.sessions.iter().find(wants) {
            let _ = session.deliveries.send(Arrival::NoRoom(error));
        }
    }

    /// The address at which a stream to `from` must be answered, if a session waits for one.
    pub(super) fn expects_datagrams(&self, from: SocketAddr) -> Option<SocketAddr> {
        let ip = from.ip().to_canonical();
        let table = self.table();
        let session = table
            .sessions
            .iter()
            .find(|session| session.peer == ip && session.wants.has_room(from))?;
        Some(session.local)
    }

    pub(super) fn deliver_datagrams(&self, from: SocketAddr, socket: UdpSocket, hello: Vec<u8>) {
        let ip = from.ip().to_canonical();
        let mut table = self.table();
        for session in table.sessions.iter_mut().filter(|session| session.peer == ip) {
            if session.wants.has_room(from)
                && let Wants::Datagrams { seen, .. } = &mut session.wants
            {
                seen.push(from);
                let _ = session.deliveries.send(Arrival::Datagrams { socket, hello });
                return;
            }
        }
    }

    /// True if a session gave this token to a client at this address.
    pub(super) fn knows_token(&self, token: &Token, from: SocketAddr) -> bool {
        let ip = from.ip().to_canonical();
        self.table()
            .sessions
            .iter()
            .any(|session| session.peer == ip && session.token == Some(*token))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is a single step, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts this session as a test, if there is room. Called once the client has sent its
    /// parameters.
    pub(super) fn begin_test(&self, most: TestLimits) -> Result<(), LimitReached> {
        let mut table = self.sessions.table();
        table.room(self.peer, most)?;
        if let Some(session) =
            table.sessions.iter_mut().find(|session| session.number == self.number)
        {
            session.silent = None;
        }
        Ok(())
    }

    pub(super) fn want_connections(&self, count: usize) {
        self.want(Wants::Connections(count));
    }

    /// Requests connections, and returns the channel that delivers them; it holds at most `most`.
    pub(super) fn want_any(&self, most: usize) -> Receiver<TcpStream> {
        let (deliveries, connections) = mpsc::sync_channel(most);
        self.want(Wants::Any(deliveries));
        connections
    }

    pub(super) fn want_datagrams(&self, streams: usize) {
        self.want(Wants::Datagrams { streams, seen: Vec::new() });
    }

    /// Refuses further connections.
    pub(super) fn want_nothing(&self) {
        self.want(Wants::Nothing);
    }

    pub(super) fn next(&self, within: Duration) -> Option<Arrival> {
        self.arrivals.recv_timeout(within).ok()
    }

    /// A datagram that opens a stream carries nothing but its address, so sessions from one address
    /// open their streams one after another. Waits at most `within`, and returns whether it is this
    /// session's turn.
    pub(super) fn take_turn(&self, within: Duration) -> bool {
        let mut table = self.sessions.table();
        let turns = table.turns.entry(self.peer).or_default();
        if !turns.contains(&self.number) {
            turns.push_back(self.number);
        }
        if table.is_first(self) {
            return true;
        }
        let (table, _) = self
            .sessions
            .turns_changed
            .wait_timeout(table, within)
            .unwrap_or_else(PoisonError::into_inner);
        table.is_first(self)
    }

    /// Number of sessions from the same address that are ahead.
    pub(super) fn turns_ahead(&self) -> usize {
        let table = self.sessions.table();
        let turns = table.turns.get(&self.peer);
        turns.and_then(|turns| turns.iter().position(|n| *n == self.number)).unwrap_or(0)
    }

    pub(super) fn end_turn(&self) {
        let mut table = self.sessions.table();
        table.leave_turns(self);
        drop(table);
        self.sessions.turns_changed.notify_all();
    }

    /// Reserves memory for this session's streams; false if all sessions together, or those from
    /// this address, would take too much.
    pub(super) fn reserve_memory(&self, bytes: u64) -> bool {
        let mut table = self.sessions.table();
        let memory = |session: &Session| session.memory;
        let taken: u64 = table.sessions.iter().map(memory).sum();
        let of_address = table
            .sessions
            .iter()
            .filter(|session| address_group(session.peer) == address_group(self.peer));
        let of_address: u64 = of_address.map(memory).sum();
        if taken + bytes > MOST_MEMORY || of_address + bytes > MOST_MEMORY_OF_ADDRESS {
            return false;
        }
        if let Some(session) =
            table.sessions.iter_mut().find(|session| session.number == self.number)
        {
            session.memory = bytes;
        }
        true
    }

    /// Makes a new token. From now on the listener echoes datagrams that carry it.
    pub(super) fn new_token(&self) -> Token {
        let token = Token::random();
        let mut table = self.sessions.table();
        if let Some(session) =
            table.sessions.iter_mut().find(|session| session.number == self.number)
        {
            session.token = Some(token);
        }
        token
    }

    fn want(&self, wants: Wants) {
        let mut table = self.sessions.table();
        if let Some(session) =
            table.sessions.iter_mut().find(|session| session.number == self.number)
        {
            session.wants = wants;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        table.sessions.retain(|session| session.number != self.number);
        table.leave_turns(self);
        drop(table);
        self.sessions.turns_changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct Table {
    sessions: Vec<Session>,
    last: u64,
    /// For each address, the sessions that want to open streams of datagrams; the first has the
    /// turn.
    turns: HashMap<IpAddr, VecDeque<u64>>,
}

impl Table {
    fn room(&self, peer: IpAddr, most: TestLimits) -> Result<(), LimitReached> {
        let tests = || self.sessions.iter().filter(|session| session.silent.is_none());
        if tests().count() >= most.sessions {
            return Err(LimitReached::Sessions);
        }
        let of_address =
            tests().filter(|session| address_group(session.peer) == address_group(peer)).count();
        if of_address >= most.per_address { Err(LimitReached::PerAddress) } else { Ok(()) }
    }

    /// Makes room for one more silent client. The oldest session finds its connection closed.
    fn disconnect_silent(&self, most: usize) {
        let silent: Vec<_> =
            self.sessions.iter().filter_map(|session| session.silent.as_ref()).collect();
        let over = (silent.len() + 1).saturating_sub(most.max(1));
        for socket in silent.into_iter().take(over) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_first(&self, reservation: &Reservation) -> bool {
        self.turns.get(&reservation.peer).and_then(VecDeque::front) == Some(&reservation.number)
    }

    fn leave_turns(&mut self, reservation: &Reservation) {
        if let Some(turns) = self.turns.get_mut(&reservation.peer) {
            turns.retain(|number| *number != reservation.number);
            if turns.is_empty() {
                self.turns.remove(&reservation.peer);
            }
        }
    }
}

#[derive(Debug)]
struct Session {
    number: u64,
    cookie: Cookie,
    peer: IpAddr,
    local: SocketAddr,
    wants: Wants,
    token: Option<Token>,
    memory: u64,
    /// The connection of a client that has not sent its parameters.
    silent: Option<TcpStream>,
    deliveries: Sender<Arrival>,
}

#[derive(Debug)]
enum Wants {
    Nothing,
    Connections(usize),
    Any(SyncSender<TcpStream>),
    Datagrams { streams: usize, seen: Vec<SocketAddr> },
}

impl Wants {
    /// A client that sends its hello twice gets one stream.
    fn has_room(&self, from: SocketAddr) -> bool {
        matches!(self, Self::Datagrams { streams, seen } if seen.len() < *streams && !seen.contains(&from))
    }
}

/// Groups an IPv6 /64, since one host can use all its addresses.
fn address_group(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
    }
}

/// The first 64 bits.
const NETWORK: u128 = !0 << 64;
/// Limit for the streams of all sessions together.
const MOST_MEMORY: u64 = 1 << 30;
/// The largest test takes 320 MiB.
const MOST_MEMORY_OF_ADDRESS: u64 = MOST_MEMORY / 2;

#[cfg(test)]
mod tests;
