//! A socket and the endpoint behind it: datagrams in, datagrams out, timers, and whoever waits for an event.
//!
//! One task drives a socket with all its connections. It takes what has arrived, tells the tasks that wait for
//! it, and sends what may leave; an application's task changes a connection under the same lock, on the same
//! thread as a rule, and wakes the driver.

use super::shards::{Essential, carried};
use super::timer::Timer;
use bytes::BytesMut;
use quic::{Connection, Endpoint, Event, Incoming, Key, Lost, StreamId};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Instant, SystemTime};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// An endpoint that is driven. Clones are the same endpoint.
#[derive(Debug, Clone)]
pub(super) struct Driven(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    waiting: HashMap<Key, Waiting>,
    driver: Option<Waker>,
    listener: Option<Waker>,
    /// Tasks that wait for the last connection to be forgotten.
    until_idle: Vec<Waker>,
    /// The driver ends with the last connection.
    closing: bool,
}

/// Tasks that wait for an event of one connection.
#[derive(Debug, Default)]
struct Waiting {
    lost: Option<Lost>,
    /// Any event that concerns the whole connection.
    connection: Vec<Waker>,
    readers: HashMap<StreamId, Waker>,
    writers: HashMap<StreamId, Waker>,
    finishers: HashMap<StreamId, Waker>,
}

/// An event that a task waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Changed,
    Readable(StreamId),
    Writable(StreamId),
    Delivered(StreamId),
}

/// One connection of a driven endpoint. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Handle {
    driven: Driven,
    key: Key,
}

impl Driven {
    /// The driver runs on the current runtime until [`Self::close`] and the end of the last connection.
    pub(super) fn start(socket: std::net::UdpSocket, endpoint: Endpoint) -> io::Result<Self> {
        let udp = UdpSocketState::new((&socket).into())?;
        let state = State {
            endpoint,
            waiting: HashMap::new(),
            driver: None,
            listener: None,
            until_idle: Vec::new(),
            closing: false,
        };
        let driven = Self(Arc::new(Mutex::new(state)));
        let driver = Driver {
            driven: driven.clone(),
            socket: UdpSocket::from_std(socket)?,
            udp,
            timer: Timer::new()?,
            joined: 1,
            out: Vec::new(),
            unsent: None,
            _essential: Essential,
        };
        tokio::spawn(driver);
        Ok(driven)
    }

    /// Begins a connection, or accepts one.
    pub(super) fn begin<E>(
        &self,
        begin: impl FnOnce(&mut Endpoint, Instant) -> Result<Key, E>,
    ) -> Result<Handle, E> {
        let mut state = self.lock();
        let key = begin(&mut state.endpoint, Instant::now());
        state.settle();
        let key = key?;
        state.waiting.insert(key, Waiting::default());
        drop(state);
        Ok(Handle { driven: self.clone(), key })
    }

    /// For what concerns no single connection.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Endpoint) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.endpoint);
        state.settle();
        result
    }

    /// The next peer that wants a connection; `None` once the endpoint is closed.
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

    /// Takes no new connection, and closes those that there are where `why` is given.
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

    /// Until the peers know that their connections are closed, or cannot be told.
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
    /// Asks or changes the connection; `Err`: it is forgotten.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Connection) -> R) -> Result<R, Lost> {
        let mut state = self.driven.lock();
        let Some(connection) = state.endpoint.get(self.key) else {
            return Err(state.lost(self.key));
        };
        Ok(change(connection))
    }

    /// Likewise, after which there may be something to send.
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

    /// Waits until `look` finds something. It may change the connection.
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

    /// Why the connection ended, if it did.
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

    fn on_event(&mut self, event: &Event) {
        let waker = match event {
            Event::Readable(stream) => self.readers.remove(stream),
            Event::Writable(stream) => self.writers.remove(stream),
            Event::Delivered(stream) => self.finishers.remove(stream),
            Event::Lost => return self.wake_all(),
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

impl State {
    /// Wakes whoever waited for an event that came up, and the driver.
    fn settle(&mut self) {
        self.tell();
        wake(&mut self.driver);
    }

    fn tell(&mut self) {
        while let Some((key, event)) = self.endpoint.next_event() {
            let Some(waiting) = self.waiting.get_mut(&key) else { continue };
            if event == Event::Lost {
                waiting.lost = self.endpoint.get(key).and_then(|one| one.lost().cloned());
            }
            waiting.on_event(&event);
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
    /// Packets in one buffer of the last read, in the mean: the kernel joins those of one sender.
    joined: usize,
    /// The datagrams of one transmit.
    out: Vec<u8>,
    /// In `out`, where the socket had no room.
    unsent: Option<quic::Transmit>,
    _essential: Essential,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let more = this.receive(context);
        let driven = this.driven.clone();
        let mut state = driven.lock();
        let now = Instant::now();
        state.endpoint.handle_timeouts(now);
        state.tell();
        let all_sent = this.send(context, &mut state, now);
        state.tell();
        if state.endpoint.open_connections() == 0 {
            state.until_idle.drain(..).for_each(Waker::wake);
            if state.closing && state.waiting.is_empty() && all_sent.is_ready() {
                return Poll::Ready(());
            }
        }
        let due = state.endpoint.next_timeout();
        state.driver = Some(context.waker().clone());
        drop(state);
        if more || this.timer.poll(context, due).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Driver {
    /// Takes packets that have arrived; tells whether more may be there.
    ///
    /// The relays and the acknowledgements wait meanwhile. A backlog of thousands of packets, which
    /// the kernel keeps joined, must not be taken in one turn.
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
                // An ICMP error of an earlier packet, as a rule.
                Err(error) => {
                    tracing::debug!(%error, "nothing received");
                    taken += 1;
                }
            }
        }
        true
    }

    /// One read of the socket; tells how many packets it brought.
    fn receive_batch(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        let Buffers { memory, metas, slab } = buffers;
        let mut slices = memory.chunks_exact_mut(RECEIVE).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
        let slices = &mut slices[..(TURN / self.joined).clamp(1, BATCH_SIZE)];
        let receive = || self.udp.recv((&self.socket).into(), slices, metas);
        let count = self.socket.try_io(Interest::READABLE, receive)?;
        let mut state = self.driven.lock();
        let clock = Clock::read();
        let mut packets = 0;
        for (slice, meta) in slices.iter().zip(&*metas).take(count) {
            packets += meta.len.div_ceil(meta.stride.max(1));
            state.take(&clock, slice, meta, slab);
        }
        state.endpoint.handled(clock.now);
        state.tell();
        wake_listener(&mut state);
        drop(state);
        self.joined = packets.div_ceil(count.max(1)).max(1);
        Ok(packets)
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
                // The engine sends again what matters. Probes of a larger packet size fail like this, too.
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
    /// One received buffer: one datagram, or several of one size that the kernel joined.
    fn take(&mut self, clock: &Clock, buffer: &[u8], meta: &RecvMeta, slab: &mut BytesMut) {
        let received = &buffer[..meta.len.min(buffer.len())];
        if received.len() > slab.capacity() {
            *slab = BytesMut::with_capacity(SLAB.max(received.len()));
        }
        slab.extend_from_slice(received);
        let mut all = slab.split();
        let arrived = clock.instant(meta.timestamp);
        let ecn = meta.ecn.and_then(|ecn| quic::EcnCodepoint::from_bits(ecn as u8));
        while !all.is_empty() {
            let datagram = all.split_to(meta.stride.clamp(1, all.len()));
            self.endpoint.handle(clock.now, arrived, meta.addr, meta.dst_ip, ecn, datagram);
        }
    }
}

fn wake_listener(state: &mut State) {
    // Whoever listens looks whether a peer is there.
    wake(&mut state.listener);
}

/// The kernel stamps packets by the wall clock.
struct Clock {
    now: Instant,
    wall: std::time::Duration,
}

impl Clock {
    fn read() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { now: Instant::now(), wall }
    }

    /// A packet came when the kernel says, however late this thread was run; a wall clock that was set says
    /// nothing.
    fn instant(&self, stamp: Option<std::time::Duration>) -> Instant {
        let age = stamp.and_then(|stamp| self.wall.checked_sub(stamp)).unwrap_or_default();
        if age > MOST_AGE { self.now } else { self.now.checked_sub(age).unwrap_or(self.now) }
    }
}

struct Buffers {
    memory: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// Datagrams are copied here one behind the other: one allocation serves about twelve packets.
    slab: BytesMut,
}

thread_local! {
    /// All sockets of a thread share them.
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        memory: vec![0; BATCH_SIZE * RECEIVE],
        metas: [RecvMeta::default(); BATCH_SIZE],
        slab: BytesMut::new(),
    });
}

/// No joined packet exceeds this.
const RECEIVE: usize = 65_536;
/// A packet that waits for its reader keeps so much memory at most, unless the kernel joined it with
/// more.
const SLAB: usize = 16 * 1024;
/// Packets received in one turn, about: one or two milliseconds of work.
const TURN: usize = 128;
/// As many full packets as one UDP payload holds.
const MOST_SEGMENTS: usize = 44;
/// Sends of one turn: acknowledgements that have arrived wait meanwhile.
const MOST_TRANSMITS: usize = 16;
const MOST_AGE: std::time::Duration = std::time::Duration::from_secs(1);
