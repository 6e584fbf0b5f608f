//! Drives a socket and its endpoint: received datagrams, sent datagrams, timers, and tasks that
//! wait for events.
//!
//! The driver is the task that drives a socket with all its connections. The driver receives
//! datagrams, wakes the tasks that wait for datagrams, and sends packets as congestion control and
//! pacing permit. An application's task changes a connection under the same lock, usually on the
//! same thread, and wakes the driver.

use super::formers::{self, Formers};
use super::icmp::{self, Reports, SentIds};
use super::shards::{Essential, carried};
use super::timer::Timer;
use bytes::BytesMut;
use quic::{Connection, Endpoint, Event, Incoming, Key, Lost, StreamId};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Instant, SystemTime};
use tokio::io::Interest;
use tokio::net::{UdpSocket, UnixDatagram};

/// An endpoint with a running driver. Clones refer to the same endpoint.
#[derive(Debug, Clone)]
pub(super) struct Driven(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    /// Boxed, because the map has up to twice as many places as connections.
    waiting: HashMap<Key, Box<Waiting>>,
    driver: Option<Waker>,
    listener: Option<Waker>,
    /// Tasks that wait until the last connection is forgotten.
    until_idle: Vec<Waker>,
    /// Whether this end connects, with a socket for its only connection.
    is_client: bool,
    /// Whether the driver ends with the last connection.
    closing: bool,
    /// Whether the only connection was given up before its handshake was complete.
    is_abandoned: bool,
    /// A new source of packets that the driver has not switched to yet.
    source: Option<Source>,
}

/// The source of a driver's packets.
#[derive(Debug)]
pub(super) enum Source {
    Socket,
    /// The packets that the process which reads the socket forwards to this process.
    Successor(StdDatagram),
}

/// Tasks that wait for an event of one connection. A stream has at most one waker of each kind, and
/// no waker after its halves have ended. The bound of the end's memory counts the tasks with their
/// stream: `STREAM_MEMORY` of `quic` includes the tasks of an open stream.
#[derive(Debug, Default)]
struct Waiting {
    lost: Option<Lost>,
    /// Tasks that wait for an event of the connection and not of a stream.
    connection: Vec<Waker>,
    readers: HashMap<StreamId, Waker>,
    writers: HashMap<StreamId, Waker>,
    finishers: HashMap<StreamId, Waker>,
}

/// The event that a task waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Changed,
    Readable(StreamId),
    Writable(StreamId),
    Delivered(StreamId),
}

/// One connection of a driven endpoint. Dropping the handle closes the connection.
#[derive(Debug)]
pub(super) struct Handle {
    driven: Driven,
    key: Key,
    is_established: bool,
}

impl Driven {
    /// Starts the driver of a client's socket, which has a single connection.
    pub(super) fn of_client(
        socket: std::net::UdpSocket,
        endpoint: Endpoint,
        reports: Reports,
    ) -> io::Result<Self> {
        Self::start(socket, endpoint, Vec::new(), Some(reports))
    }

    /// Starts the driver of a server's socket.
    pub(super) fn of_server(
        socket: std::net::UdpSocket,
        endpoint: Endpoint,
        formers: Vec<(u8, StdDatagram)>,
    ) -> io::Result<Self> {
        Self::start(socket, endpoint, formers, None)
    }

    /// Starts a driver on the current runtime. The driver runs until [`Self::close`] has been
    /// called and the last connection has ended.
    fn start(
        socket: std::net::UdpSocket,
        endpoint: Endpoint,
        formers: Vec<(u8, StdDatagram)>,
        reports: Option<Reports>,
    ) -> io::Result<Self> {
        let udp = UdpSocketState::new((&socket).into())?;
        let state = State {
            endpoint,
            waiting: HashMap::new(),
            driver: None,
            listener: None,
            until_idle: Vec::new(),
            is_client: reports.is_some(),
            closing: false,
            is_abandoned: false,
            source: None,
        };
        // ICMP messages reach only the sockets that ask for them.
        let reports = reports.filter(|_| udp.enable_transport_errors((&socket).into()).is_ok());
        let driven = Self(Arc::new(Mutex::new(state)));
        let driver = Driver {
            driven: driven.clone(),
            socket: UdpSocket::from_std(socket)?,
            udp,
            timer: Timer::new()?,
            formers: Formers::new(formers)?,
            successor: None,
            joined: 1,
            out: Vec::new(),
            unsent: None,
            asks: reports.map(|reports| (SentIds::default(), reports)),
            is_registered_again: false,
            _essential: Essential,
        };
        tokio::spawn(driver);
        Ok(driven)
    }

    /// Opens a connection, or accepts one.
    pub(super) fn begin<E>(
        &self,
        begin: impl FnOnce(&mut Endpoint, Instant) -> Result<Key, E>,
    ) -> Result<Handle, E> {
        let mut state = self.lock();
        let key = begin(&mut state.endpoint, Instant::now());
        state.settle();
        let key = key?;
        state.waiting.insert(key, Box::default());
        drop(state);
        Ok(Handle { driven: self.clone(), key, is_established: false })
    }

    /// Accesses the endpoint, for purposes beyond a single connection.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Endpoint) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.endpoint);
        state.settle();
        result
    }

    /// Waits for the next peer that asks for a connection; `None` once the endpoint is closed.
    pub(super) async fn incoming(&self) -> Option<Incoming> {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            if state.closing {
                return Poll::Ready(None);
            }
            match state.endpoint.incoming() {
                Some(incoming) => Poll::Ready(Some(incoming)),
                None => {
                    state.listener = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Takes packets from this source from now on.
    pub(super) fn receive_from(&self, source: Source) {
        let mut state = self.lock();
        state.source = Some(source);
        wake(&mut state.driver);
    }

    /// Refuses new connections. If `why` is given, also closes the existing connections.
    pub(super) fn close(&self, why: Option<&str>) {
        let mut state = self.lock();
        state.closing = true;
        state.endpoint.refuse_all();
        let now = Instant::now();
        for key in why.map(|_| state.endpoint.keys()).unwrap_or_default() {
            if let Some(connection) = state.endpoint.get(key) {
                connection.close(now, why.unwrap_or_default());
            }
            state.endpoint.touch(now, key);
        }
        wake(&mut state.listener);
        state.settle();
    }

    /// Waits until the endpoint has forgotten all connections: their peers have been notified of
    /// the close, or do not answer.
    pub(super) async fn idle(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            if state.endpoint.open_connections() == 0 {
                return Poll::Ready(());
            }
            state.until_idle.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Records that the handshake is complete.
    pub(super) fn established(self) -> Self {
        let mut handle = self;
        handle.is_established = true;
        handle
    }

    /// Reads or changes the connection. Returns an error if the connection has been forgotten.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Connection) -> R) -> Result<R, Lost> {
        let mut state = self.driven.lock();
        let Some(connection) = state.endpoint.get(self.key) else {
            return Err(state.lost(self.key));
        };
        Ok(change(connection))
    }

    /// Changes the connection, and wakes the driver to send packets.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Connection) -> R) -> Result<R, Lost> {
        let mut state = self.driven.lock();
        let Some(connection) = state.endpoint.get(self.key) else {
            return Err(state.lost(self.key));
        };
        let result = change(connection);
        state.endpoint.touch(Instant::now(), self.key);
        state.settle();
        Ok(result)
    }

    /// Changes the connection when a half of a stream ends. Also removes the wakers of the events
    /// `until`: no task waits for these events any more, and a waker keeps its task in memory.
    pub(super) fn end_half(&self, until: &[Until], change: impl FnOnce(&mut Connection)) {
        let mut state = self.driven.lock();
        if let Some(connection) = state.endpoint.get(self.key) {
            change(connection);
            state.endpoint.touch(Instant::now(), self.key);
        }
        state.settle();
        let waiting = state.waiting.get_mut(&self.key);
        let unused: Vec<_> = waiting.map_or_else(Vec::new, |waiting| waiting.remove(until));
        // Dropping a waker may drop its task, which must not happen under the lock.
        drop(state);
        drop(unused);
    }

    /// Waits until `look` returns a result. `look` may change the connection.
    pub(super) async fn wait<R>(
        &self,
        until: Until,
        mut look: impl FnMut(&mut Connection) -> Option<R>,
    ) -> Result<R, Lost> {
        std::future::poll_fn(|context| self.poll(context, until, &mut look)).await
    }

    fn poll<R>(
        &self,
        context: &mut Context<'_>,
        until: Until,
        look: &mut impl FnMut(&mut Connection) -> Option<R>,
    ) -> Poll<Result<R, Lost>> {
        let mut state = self.driven.lock();
        let state = &mut *state;
        let Some(connection) = state.endpoint.get(self.key) else {
            return Poll::Ready(Err(state.lost(self.key)));
        };
        let found = look(connection);
        if found.is_none()
            && let Some(waiting) = state.waiting.get_mut(&self.key)
        {
            waiting.add(until, context.waker());
        }
        if matches!(until, Until::Writable(_)) {
            state.endpoint.touch(Instant::now(), self.key);
            state.settle();
        }
        found.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
    }

    /// Returns the reason the connection ended, if it has ended.
    pub(super) fn lost(&self) -> Option<Lost> {
        match self.with(|connection| connection.lost().cloned()) {
            Ok(lost) => lost,
            Err(lost) => Some(lost),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.driven.lock();
        let now = Instant::now();
        if let Some(connection) = state.endpoint.get(self.key)
            && connection.lost().is_none()
        {
            connection.close(now, "");
            state.endpoint.touch(now, self.key);
        }
        state.waiting.remove(&self.key);
        state.is_abandoned = !self.is_established && state.closing && state.waiting.is_empty();
        state.settle();
    }
}

impl Waiting {
    fn add(&mut self, until: Until, waker: &Waker) {
        let place = match until {
            Until::Changed => {
                self.connection.retain(|other| !other.will_wake(waker));
                return self.connection.push(waker.clone());
            }
            Until::Readable(stream) => self.readers.entry(stream),
            Until::Writable(stream) => self.writers.entry(stream),
            Until::Delivered(stream) => self.finishers.entry(stream),
        };
        place.insert_entry(waker.clone());
    }

    fn remove(&mut self, until: &[Until]) -> Vec<Waker> {
        let wakers = until.iter().filter_map(|until| match until {
            Until::Changed => None,
            Until::Readable(stream) => take(&mut self.readers, stream),
            Until::Writable(stream) => take(&mut self.writers, stream),
            Until::Delivered(stream) => take(&mut self.finishers, stream),
        });
        wakers.collect()
    }

    fn on_event(&mut self, event: &Event) {
        let waker = match event {
            Event::Readable(stream) => take(&mut self.readers, stream),
            Event::Writable(stream) => take(&mut self.writers, stream),
            Event::Delivered(stream) => take(&mut self.finishers, stream),
            Event::Lost(_) => return self.wake_all(),
            Event::Connected | Event::Opened | Event::MayOpen | Event::Datagrams => {
                return self.connection.drain(..).for_each(Waker::wake);
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        self.connection.drain(..).for_each(Waker::wake);
        for wakers in [&mut self.readers, &mut self.writers, &mut self.finishers] {
            wakers.drain().for_each(|(_, waker)| waker.wake());
        }
    }
}

/// Removes a stream's waker. Shrinks a map that once held thousands of wakers.
fn take(wakers: &mut HashMap<StreamId, Waker>, stream: &StreamId) -> Option<Waker> {
    let waker = wakers.remove(stream);
    if wakers.is_empty() && wakers.capacity() > FEW_WAKERS {
        *wakers = HashMap::new();
    }
    waker
}

impl State {
    /// Wakes the tasks whose events have occurred, and the driver.
    fn settle(&mut self) {
        self.tell();
        wake(&mut self.driver);
    }

    fn tell(&mut self) {
        while let Some((key, event)) = self.endpoint.next_event() {
            let Some(waiting) = self.waiting.get_mut(&key) else { continue };
            waiting.on_event(&event);
            if let Event::Lost(why) = event {
                waiting.lost = Some(why);
            }
        }
    }

    fn lost(&self, key: Key) -> Lost {
        let known = self.waiting.get(&key).and_then(|waiting| waiting.lost.clone());
        known.unwrap_or(Lost::Here)
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

struct Driver {
    driven: Driven,
    socket: UdpSocket,
    udp: UdpSocketState,
    timer: Timer,
    /// The former processes whose packets arrive at this socket.
    formers: Formers,
    /// The packets of this process, if another process reads the socket.
    successor: Option<UnixDatagram>,
    /// The mean number of packets per buffer of the last read: the kernel joins packets of one
    /// sender.
    joined: usize,
    /// The datagrams of one send call.
    out: Vec<u8>,
    /// A send call that the socket's full buffer refused; its bytes are in `out`.
    unsent: Option<quic::Transmit>,
    /// If this socket asks for ICMP messages: the IDs of the packets sent lately, and the count of
    /// the messages.
    asks: Option<(SentIds, Reports)>,
    /// Whether the socket has a new registration, which no task waits for yet.
    is_registered_again: bool,
    _essential: Essential,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let driven = this.driven.clone();
        let source = driven.lock().source.take();
        if let Some(source) = source {
            this.receive_from(source);
        }
        let more = match this.successor.is_some() {
            true => this.receive_forwarded(context),
            false => this.receive(context),
        };
        let mut state = driven.lock();
        let now = Instant::now();
        state.endpoint.handle_timeouts(now);
        state.tell();
        let all_sent = this.send(context, &mut state, now);
        state.tell();
        let is_idle = state.endpoint.open_connections() == 0;
        if is_idle {
            state.until_idle.drain(..).for_each(Waker::wake);
        }
        // A client that gives up a handshake keeps no socket for answers to its last packet.
        let is_over = is_idle || (state.is_client && state.is_abandoned);
        if is_over && state.closing && state.waiting.is_empty() && all_sent.is_ready() {
            return Poll::Ready(());
        }
        let due = state.endpoint.next_timeout();
        state.driver = Some(context.waker().clone());
        drop(state);
        let more = more || std::mem::take(&mut this.is_registered_again);
        if more || this.timer.poll(context, due).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Driver {
    fn receive_from(&mut self, source: Source) {
        self.successor = None;
        if let Source::Successor(socket) = source {
            let socket = socket.set_nonblocking(true).and_then(|()| UnixDatagram::from_std(socket));
            self.successor = socket
                .inspect_err(|error| {
                    tracing::warn!(%error, "this process goes on reading its socket");
                })
                .ok();
        }
    }

    /// Like [`Self::receive`], for the packets that the process at the other side of `successor`
    /// forwards.
    fn receive_forwarded(&mut self, context: &mut Context<'_>) -> bool {
        let Some(successor) = &self.successor else { return false };
        BUFFERS.with_borrow_mut(|Buffers { memory, slab, .. }| {
            let mut taken = 0;
            while taken < TURN {
                match successor.poll_recv_ready(context) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => {
                        tracing::warn!(%error, "forwarded packets cannot be read");
                        return false;
                    }
                }
                let length = match successor.try_recv(memory) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => {
                        tracing::debug!(%error, "nothing received");
                        taken += 1;
                        continue;
                    }
                };
                let Some((meta, packets)) = formers::parsed(&memory[..length]) else { continue };
                taken += meta.len.div_ceil(meta.stride.max(1));
                let mut state = self.driven.lock();
                let clock = Clock::read();
                state.take(&clock, packets, &meta, slab);
                state.endpoint.handled(clock.now);
                state.tell();
                wake_listener(&mut state);
            }
            true
        })
    }

    /// Receives the packets that have arrived; returns whether further packets may be waiting.
    ///
    /// Relays and acknowledgements wait during a call. One call must therefore not process a
    /// backlog of thousands of packets, which the kernel keeps joined.
    fn receive(&mut self, context: &mut Context<'_>) -> bool {
        let mut taken = 0;
        while taken < TURN {
            match self.socket.poll_recv_ready(context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    tracing::warn!(%error, "the tunnel's socket cannot be read");
                    return false;
                }
            }
            match BUFFERS.with_borrow_mut(|buffers| self.receive_batch(buffers)) {
                Ok(packets) => taken += packets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // This is usually an ICMP error for an earlier packet.
                Err(error) => {
                    tracing::debug!(%error, "nothing received");
                    self.take_errors();
                    taken += 1;
                }
            }
        }
        true
    }

    /// Reads the socket once; returns the number of packets received.
    fn receive_batch(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        let Buffers { memory, metas, slab } = buffers;
        let mut slices = memory.chunks_exact_mut(RECEIVE).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
        let slices = &mut slices[..(TURN / self.joined).clamp(1, BATCH_SIZE)];
        let mut count = 0;
        let read = self.socket.try_io(Interest::READABLE, || {
            count = self.udp.recv((&self.socket).into(), slices, metas)?;
            // A read that leaves a buffer unused has emptied the socket. The error tells the
            // runtime to wait for the next packet, which saves a read of the empty socket.
            if count < slices.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if count == 0 {
            return read.map(|()| 0);
        }
        let mut state = self.driven.lock();
        let clock = Clock::read();
        let mut packets = 0;
        for (slice, meta) in slices.iter().zip(&*metas).take(count) {
            packets += meta.len.div_ceil(meta.stride.max(1));
            if self.formers.is_empty() {
                state.take(&clock, slice, meta, slab);
                continue;
            }
            let received = &slice[..meta.len.min(slice.len())];
            for (owner, part) in formers::runs(received, meta.stride, |one| self.formers.owner(one))
            {
                let mut meta = *meta;
                meta.len = part.len();
                match owner {
                    Some(generation) => self.formers.forward(generation, &meta, part),
                    None => state.take(&clock, part, &meta, slab),
                }
            }
        }
        state.endpoint.handled(clock.now);
        state.tell();
        wake_listener(&mut state);
        drop(state);
        self.joined = packets.div_ceil(count.max(1)).max(1);
        Ok(packets)
    }

    /// Takes the ICMP messages that the socket has reported. Returns whether there were any.
    fn take_errors(&mut self) -> bool {
        let Some((sent, reports)) = &self.asks else { return false };
        let reported = icmp::take(&self.socket, sent);
        if reported.is_port_closed {
            reports.send_modify(|count| *count += 1);
        }
        if reported.is_any {
            // The runtime takes EPOLLERR for the end of the writing half, and would report a full
            // socket as writable from now on.
            let copy = self.socket.as_fd().try_clone_to_owned();
            match copy.and_then(|copy| UdpSocket::from_std(copy.into())) {
                Ok(socket) => {
                    self.socket = socket;
                    self.is_registered_again = true;
                }
                Err(error) => tracing::debug!(%error, "the socket keeps its registration"),
            }
        }
        reported.is_any
    }

    fn send(&mut self, context: &mut Context<'_>, state: &mut State, now: Instant) -> Poll<()> {
        let segments = self.udp.max_gso_segments().min(MOST_SEGMENTS);
        for _ in 0..MOST_TRANSMITS {
            let transmit = match self.unsent.take() {
                Some(transmit) => transmit,
                None => {
                    self.out.clear();
                    match state.endpoint.poll_transmit(now, segments, &mut self.out) {
                        Some(transmit) => transmit,
                        None => return Poll::Ready(()),
                    }
                }
            };
            carried(transmit.size);
            if let Some((sent, _)) = &mut self.asks {
                sent.note(&self.out);
            }
            let whole = quinn_udp::Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                contents: &self.out[..transmit.size],
                segment_size: transmit.segment_size,
                src_ip: transmit.src_ip,
            };
            let send = || self.udp.try_send((&self.socket).into(), &whole);
            match self.socket.try_io(Interest::WRITABLE, send) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some(transmit);
                    if let Err(error) = ready!(self.socket.poll_send_ready(context)) {
                        tracing::warn!(%error, "the tunnel's socket cannot be written");
                        self.unsent = None;
                    }
                }
                // The error belongs to an earlier packet, and this packet was not sent.
                Err(_) if self.take_errors() => self.unsent = Some(transmit),
                // The engine retransmits lost data. Probes of the packet size may fail here, too.
                Err(error) => {
                    tracing::debug!(%error, to = %transmit.destination, "packets were not sent");
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl State {
    /// Takes one received buffer: one datagram, or several of equal size that the kernel joined.
    fn take(&mut self, clock: &Clock, buffer: &[u8], meta: &RecvMeta, slab: &mut BytesMut) {
        let received = &buffer[..meta.len.min(buffer.len())];
        let arrived = clock.instant(meta.timestamp);
        let ecn = meta.ecn.and_then(|ecn| quic::EcnCodepoint::from_bits(ecn as u8));
        let stride = meta.stride.max(1);
        if self.endpoint.meter().is_filling() {
            // Copy each datagram, which would otherwise keep the whole buffer in memory.
            for datagram in received.chunks(stride).map(BytesMut::from) {
                self.endpoint.handle(clock.now, arrived, meta.addr, meta.dst_ip, ecn, datagram);
            }
            return;
        }
        if received.len() > slab.capacity() {
            *slab = BytesMut::with_capacity(SLAB.max(received.len()));
        }
        slab.extend_from_slice(received);
        let mut all = slab.split();
        while !all.is_empty() {
            let datagram = all.split_to(stride.min(all.len()));
            self.endpoint.handle(clock.now, arrived, meta.addr, meta.dst_ip, ecn, datagram);
        }
    }
}

fn wake_listener(state: &mut State) {
    // Wake the listener, which checks whether a peer has arrived.
    wake(&mut state.listener);
}

/// Converts the kernel's packet timestamps, which use the wall clock, to the monotonic clock.
struct Clock {
    now: Instant,
    wall: std::time::Duration,
}

impl Clock {
    fn read() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { now: Instant::now(), wall }
    }

    /// Returns the packet's arrival time by the kernel's timestamp, which does not depend on when
    /// this thread ran. Ignores the timestamp if the wall clock was set meanwhile.
    fn instant(&self, stamp: Option<std::time::Duration>) -> Instant {
        let age = stamp.and_then(|stamp| self.wall.checked_sub(stamp)).unwrap_or_default();
        if age > MOST_AGE { self.now } else { self.now.checked_sub(age).unwrap_or(self.now) }
    }
}

struct Buffers {
    memory: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// The memory into which the driver copies datagrams: one allocation serves about twelve
    /// packets.
    slab: BytesMut,
}

thread_local! {
    /// The buffers that all sockets of a thread share.
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        memory: vec![0; BATCH_SIZE * RECEIVE],
        metas: [RecvMeta::default(); BATCH_SIZE],
        slab: BytesMut::new(),
    });
}

/// Minimum capacity that a map of wakers keeps.
const FEW_WAKERS: usize = 64;
/// Size of a receive buffer, in bytes: no joined packet is larger.
const RECEIVE: usize = 65_536;
/// Size of an allocation for copied packets. A packet keeps this much memory until the application
/// reads it, unless the kernel joined the packet with more bytes.
const SLAB: usize = 16 * 1024;
/// How many packets, approximately, one turn receives: one or two milliseconds of work.
const TURN: usize = 128;
/// Maximum number of packets in one send call, if the packets have full size.
const MOST_SEGMENTS: usize = 44;
/// Maximum number of send calls per turn. Received acknowledgements wait meanwhile.
const MOST_TRANSMITS: usize = 16;
const MOST_AGE: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{Dir, Side};

    #[test]
    fn a_stream_has_one_waker_of_each_kind_and_none_after_its_halves_have_ended() {
        let mut waiting = Waiting::default();
        let stream = StreamId::new(Side::Client, Dir::Bi, 7);
        let until = [Until::Readable(stream), Until::Writable(stream), Until::Delivered(stream)];
        for event in until.repeat(9) {
            waiting.add(event, Waker::noop());
        }
        assert_eq!(waiting.remove(&until).len(), 3);
        assert!(waiting.remove(&until).is_empty());
    }
}
