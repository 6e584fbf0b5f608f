use super::limits::{LimitReached, Share, TestLimits, address_group};
use crate::control::Cookie;
use crate::event::Stop;
use crate::observe::echo::Token;
use crate::session::progress::Progress;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The sessions being served, and the connection that each session waits for. The listener finds
/// the session of a connection here; a session registers here which connections it wants next.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    turns_changed: Condvar,
    ended: Condvar,
}

/// A session's slot in the table; dropping the reservation frees the slot.
#[derive(Debug)]
pub(super) struct Reservation {
    sessions: Arc<Sessions>,
    number: u64,
    peer: IpAddr,
    arrivals: Receiver<Arrival>,
    stop: Stop,
    progress: Progress,
}

#[derive(Debug)]
pub(super) enum Arrival {
    /// `order` increases with each accepted connection.
    Connection { socket: TcpStream, order: u64 },
    /// A socket connected to the sender of the hello. The server has not replied to the hello yet.
    Datagrams { socket: UdpSocket, hello: Vec<u8> },
    /// A stream arrived, but the server had no room for it.
    NoRoom(io::Error),
}

#[derive(Debug)]
pub(super) enum Undelivered {
    NewClient,
    /// The cookie's session wants no connection now.
    Unexpected,
}

impl Sessions {
    /// Checks whether a client at `peer` could begin a test now, or soon in the slot of a session
    /// that has stalled.
    pub(super) fn room(&self, peer: SocketAddr, most: TestLimits) -> Result<(), LimitReached> {
        let (table, peer, now) = (self.table(), peer.ip().to_canonical(), Instant::now());
        table.room(peer, most).or_else(|full| match table.first_to_give_way(peer, full, now) {
            Some((_, at)) if at <= now + LONGEST_WAIT => Ok(()),
            _ => Err(full),
        })
    }

    /// Reserves a slot for a client that reached the server at `local`. A client that has a
    /// reservation but has not sent its parameters must not block other clients: beyond
    /// `most_silent` silent clients the oldest silent client is disconnected. A call to `stop` ends
    /// all sessions.
    pub(super) fn reserve(
        self: &Arc<Self>,
        cookie: Cookie,
        socket: &TcpStream,
        (peer, local): (SocketAddr, SocketAddr),
        (most_silent, stop): (usize, &Stop),
    ) -> Reservation {
        let (deliveries, arrivals) = mpsc::channel();
        let peer = peer.ip().to_canonical();
        let silent = socket.try_clone().ok();
        let (stop, progress) = (stop.inner(), Progress::default());
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
            stop: stop.clone(),
            progress: progress.clone(),
            gives_way: false,
            deliveries,
        };
        table.sessions.push(session);
        drop(table);
        Reservation { sessions: Arc::clone(self), number, peer, arrivals, stop, progress }
    }

    /// Delivers a connection to its session, if the session wants a connection.
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

    /// Reports to the cookie's session that the server had no room for its connection; false if the
    /// cookie belongs to no session.
    pub(super) fn report_no_room(&self, cookie: &Cookie, error: io::Error) -> bool {
        let table = self.table();
        let session = table.sessions.iter().find(|session| session.cookie == *cookie);
        session.is_some_and(|session| {
            let _ = session.deliveries.send(Arrival::NoRoom(error));
            true
        })
    }

    /// Reports to the session that expects datagrams from `from` that the server had no room for
    /// them.
    pub(super) fn report_no_room_for_datagrams(&self, from: SocketAddr, error: io::Error) {
        let ip = from.ip().to_canonical();
        let table = self.table();
        let wants = |session: &&Session| session.peer == ip && session.wants.has_room(from);
        if let Some(session) = table.sessions.iter().find(wants) {
            let _ = session.deliveries.send(Arrival::NoRoom(error));
        }
    }

    /// Returns the local address from which to reply to a stream from `from`, if a session waits
    /// for such a stream.
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

    pub(super) fn knows_token(&self, token: &Token, from: SocketAddr) -> bool {
        let ip = from.ip().to_canonical();
        self.table()
            .sessions
            .iter()
            .any(|session| session.peer == ip && session.token == Some(*token))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is a single step, so the table is valid even if a thread
        // panicked while it held the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the session's stop, which is called for this session alone or for the whole server.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// True if this session stalled and the server gave its slot to another client.
    pub(super) fn gave_way(&self) -> bool {
        let table = self.sessions.table();
        table.sessions.iter().any(|session| session.number == self.number && session.gives_way)
    }

    /// Counts this session as a test if the limits permit it. Ends a stalled session to make room,
    /// and waits for its end. Call this function once the client has sent its parameters.
    pub(super) fn begin_test(&self, most: TestLimits) -> Result<(), LimitReached> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut table = self.sessions.table();
        while let Err(full) = table.room(self.peer, most) {
            let now = Instant::now();
            let until = table.make_room(self.peer, full, now).ok_or(full)?;
            if until > deadline || self.stop.is_called() {
                return Err(full);
            }
            // A call to stop sends no notification, so poll for it.
            let within = until.saturating_duration_since(now).min(POLL_INTERVAL);
            let waited = self.sessions.ended.wait_timeout(table, within);
            (table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        table.change(self.number, |session| session.silent = None);
        drop(table);
        self.progress.step();
        Ok(())
    }

    pub(super) fn want_connections(&self, count: usize) {
        self.want(Wants::Connections(count));
    }

    /// Requests connections, and returns the channel that delivers the connections. The channel
    /// holds at most `most` connections.
    pub(super) fn want_any(&self, most: usize) -> Receiver<TcpStream> {
        let (deliveries, connections) = mpsc::sync_channel(most);
        self.want(Wants::Any(deliveries));
        connections
    }

    pub(super) fn want_datagrams(&self, streams: usize) {
        self.want(Wants::Datagrams { streams, seen: Vec::new() });
    }

    /// Makes the listener refuse further connections for this session.
    pub(super) fn want_nothing(&self) {
        self.want(Wants::Nothing);
    }

    pub(super) fn next(&self, within: Duration) -> Option<Arrival> {
        self.arrivals.recv_timeout(within).ok()
    }

    /// Waits at most `within` for this session's turn to open UDP streams; returns true if this
    /// session has its turn. A datagram that opens a stream identifies only its sender's address,
    /// so sessions from the same address open their streams one after another.
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

    /// Returns the number of sessions from the same address whose turn is before this session's.
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

    /// Reserves memory for this session's streams. Returns false if all sessions together, or all
    /// sessions of this address, would take too much.
    pub(super) fn reserve_memory(&self, bytes: u64) -> bool {
        let mut table = self.sessions.table();
        let memory = |session: &Session| session.memory;
        let taken: u64 = table.sessions.iter().map(memory).sum();
        // Large tests leave a part of the memory to small tests.
        let most = if bytes > SMALL_MEMORY { MOST_MEMORY - SMALL_SHARE } else { MOST_MEMORY };
        let of_address = table
            .sessions
            .iter()
            .filter(|session| address_group(session.peer) == address_group(self.peer));
        let of_address: u64 = of_address.map(memory).sum();
        if taken + bytes > most || of_address + bytes > MOST_MEMORY_OF_ADDRESS {
            return false;
        }
        table.change(self.number, |session| session.memory = bytes);
        true
    }

    /// Makes a new token. From now on the listener echoes datagrams with this token.
    pub(super) fn new_token(&self) -> Token {
        let token = Token::random();
        let mut table = self.sessions.table();
        table.change(self.number, |session| session.token = Some(token));
        token
    }

    fn want(&self, wants: Wants) {
        let mut table = self.sessions.table();
        table.change(self.number, |session| session.wants = wants);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        table.sessions.retain(|session| session.number != self.number);
        table.leave_turns(self);
        drop(table);
        self.sessions.turns_changed.notify_all();
        self.sessions.ended.notify_all();
    }
}

#[derive(Debug, Default)]
struct Table {
    sessions: Vec<Session>,
    last: u64,
    /// For each address, the sessions that want to open UDP streams, in order. The first session
    /// has its turn.
    turns: HashMap<IpAddr, VecDeque<u64>>,
}

impl Table {
    /// Changes the session of this number, unless the session has ended.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Session)) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.number == number) {
            change(session);
        }
    }

    fn room(&self, peer: IpAddr, most: TestLimits) -> Result<(), LimitReached> {
        most.room(Share { tests: self.tests().count(), of_address: self.tests_of(peer) })
    }

    fn tests(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().filter(|session| session.silent.is_none())
    }

    fn tests_of(&self, peer: IpAddr) -> usize {
        self.tests().filter(|session| address_group(session.peer) == address_group(peer)).count()
    }

    /// Returns the test that loses its slot first, and when. Candidates are tests of the same
    /// address as `peer`, and of addresses with more tests.
    fn first_to_give_way(
        &self,
        peer: IpAddr,
        full: LimitReached,
        now: Instant,
    ) -> Option<(u64, Instant)> {
        let (group, own) = (address_group(peer), self.tests_of(peer));
        let may = |session: &&Session| {
            let has_more = full != LimitReached::PerAddress && self.tests_of(session.peer) > own;
            address_group(session.peer) == group || has_more
        };
        self.tests()
            .filter(may)
            .filter_map(|session| Some((session.number, session.progress.gives_way_at(now)?)))
            .min_by_key(|(_, at)| *at)
    }

    /// Ends a stalled test to make room for a client at `peer`. Returns the time to call again:
    /// shortly after an end, or when the next test loses its slot. `None` if all tests transfer
    /// data.
    fn make_room(&mut self, peer: IpAddr, full: LimitReached, now: Instant) -> Option<Instant> {
        let (number, at) = self.first_to_give_way(peer, full, now)?;
        if at > now {
            return Some(at);
        }
        // End only one test at a time: each end makes room for a client.
        if !self.tests().any(|session| session.gives_way) {
            let session = self.sessions.iter_mut().find(|session| session.number == number)?;
            session.gives_way = true;
            session.stop.call();
        }
        Some(now + POLL_INTERVAL)
    }

    /// Makes room for a further silent client: closes the connections of the oldest silent sessions
    /// if the silent sessions are too many.
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
    stop: Stop,
    progress: Progress,
    /// True if the server gave this session's slot to another client.
    gives_way: bool,
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
    /// True if a datagram from `from` may open a stream. A client that repeats its hello gets no
    /// second stream.
    fn has_room(&self, from: SocketAddr) -> bool {
        matches!(self, Self::Datagrams { streams, seen } if seen.len() < *streams && !seen.contains(&from))
    }
}

/// Maximum memory for the streams of all sessions together.
const MOST_MEMORY: u64 = 1 << 30;
/// Maximum memory for the streams of all sessions from the same address; the largest test takes
/// 320 MiB.
const MOST_MEMORY_OF_ADDRESS: u64 = (MOST_MEMORY - SMALL_SHARE) / 2;
/// A test that needs at most this memory may use [`SMALL_SHARE`]: forty streams of the usual size.
const SMALL_MEMORY: u64 = 16 << 20;
const SMALL_SHARE: u64 = MOST_MEMORY / 4;
/// Maximum time that a client waits for a stalled test to end: longer than [`Progress`] allows
/// traffic to pause.
const LONGEST_WAIT: Duration = Duration::from_secs(6);
/// Maximum delay before the thread notices a call to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
