use crate::memory::{Budget, Holder, Share};
use crate::transport::{Connection, carried_over};
use quic::{Charge, FIRST_CREDIT, PathWindow, Reading};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use units::Bytes;

/// How much one connection may hold: what its path asks for ([`PathWindow`]), as far as the memory goes.
///
/// The peer has credit for as much, and gets more as the application consumes ([`quic`] counts). A stream whose
/// application does not read keeps its credit, so the connection gets as much beside it. Where the memory does not
/// reach, one stuck stream after the other is reset, or they would stop all others.
///
/// A connection that rests keeps its credit and has no grant.
#[derive(Debug)]
pub(crate) struct Windows<C> {
    connection: C,
    state: Mutex<State>,
    budget: Budget,
    owner: Arc<str>,
    /// Read from applications and not taken by the connection.
    waiting: AtomicU64,
    /// Tunnels whose bytes have waited for long.
    blocked: AtomicU64,
    /// One stuck tunnel is asked to go.
    let_go: Notify,
}

/// Bytes that were read from an application and wait for the connection, as long as they do.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    counter: &'a AtomicU64,
    charge: Charge,
}

#[derive(Debug)]
struct State {
    share: Share,
    held: u64,
    /// What the path asks for, without what stuck streams have.
    path: PathWindow,
    stuck: u64,
    last_active: Instant,
    /// As told to the connection.
    window: u64,
    send_window: u64,
    /// A send window beyond the first may be full of data that the peer does not acknowledge.
    sending: Share,
    sending_charge: Charge,
}

impl<C: Connection> Windows<C> {
    pub(crate) fn new(connection: C, budget: &Budget, owner: &Arc<str>) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            share: budget.share(owner),
            held: 0,
            path: PathWindow::new(now, FIRST_CREDIT),
            stuck: 0,
            last_active: now,
            window: FIRST_CREDIT,
            send_window: FIRST_CREDIT,
            sending: budget.share(owner),
            sending_charge: Charge::new(budget.meter(), 0),
        };
        let windows = Arc::new(Self {
            connection,
            state: Mutex::new(state),
            budget: budget.clone(),
            owner: Arc::clone(owner),
            waiting: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            let_go: Notify::new(),
        });
        let holder: Arc<dyn Holder> = Arc::clone(&windows) as _;
        budget.add(Arc::downgrade(&holder));
        windows
    }

    /// `received` bytes came on some stream, and what it holds behind gaps went from `before` to `after`.
    pub(crate) fn on_read(&self, received: usize, before: usize, after: usize) {
        let mut state = self.state();
        let state = &mut *state;
        state.held = (state.held + after as u64).saturating_sub(before as u64);
        if received == 0 {
            return;
        }
        let now = Instant::now();
        state.last_active = now;
        let rtt = || {
            carried_over(self.path(&self.connection.reading()));
            self.connection.rtt()
        };
        let changed = state.path.receive(now, received as u64, rtt).is_some();
        if changed || state.share.granted() < state.wanted() || self.budget.is_overdrawn() {
            state.ask();
        }
        if changed {
            self.connection.set_stream_window(Bytes::new(state.stream_window()));
        }
        self.apply(state);
    }

    /// The application of one stream does not read: the others go on.
    pub(crate) fn on_stuck(&self) {
        let mut state = self.state();
        state.stuck += 1;
        state.ask();
        self.apply(&mut state);
    }

    /// It reads again, or is no more.
    pub(crate) fn on_unstuck(&self) {
        let mut state = self.state();
        state.stuck = state.stuck.saturating_sub(1);
        state.ask();
        self.apply(&mut state);
    }

    /// Whether a stuck stream has to go because what it holds is missing elsewhere. Each that goes is no longer
    /// asked for, so that no more go than have to.
    pub(crate) fn has_to_go(&self) -> bool {
        let mut state = self.state();
        state.ask();
        state.share.granted() < state.wanted()
    }

    /// What is held takes a large part of the memory.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.held().count() > self.budget.limit() / 8
    }

    /// Until one of the stuck tunnels has to go: memory is short.
    pub(crate) async fn let_go(&self) {
        loop {
            self.let_go.notified().await;
            if self.budget.is_near() {
                return;
            }
        }
    }

    /// Likewise, of a tunnel whose bytes the peer does not take.
    pub(crate) async fn let_go_blocked(&self) {
        let _blocked = Counted::one(&self.blocked);
        self.let_go().await;
    }

    /// So much is read from an application at once: little where much waits for the connection already.
    pub(crate) fn read_at_once(&self) -> usize {
        let is_much = self.waiting.load(Ordering::Relaxed) > self.budget.limit() / 16;
        if is_much { LEAST_READ } else { READ }
    }

    /// An application's bytes wait for the connection.
    pub(crate) fn wait(&self, bytes: usize) -> Waiting<'_> {
        let bytes = bytes as u64;
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        Waiting { counter: &self.waiting, charge: Charge::new(self.budget.meter(), bytes) }
    }

    fn apply(&self, state: &mut State) {
        let window = state.share.granted();
        // Each change costs a lock and maybe a frame.
        if window.abs_diff(state.window) >= (window / 16).max(1) {
            state.window = window;
            self.connection.set_receive_window(Bytes::new(window));
        }
    }

    /// What is held behind gaps now, and how much may be.
    pub(crate) fn held(&self) -> (Bytes, Bytes) {
        let state = self.state();
        (Bytes::new(state.held), Bytes::new(state.share.granted()))
    }

    /// Something was written.
    pub(crate) fn on_write(&self) {
        let reading = self.connection.reading();
        carried_over(self.path(&reading));
        let mut state = self.state();
        state.last_active = Instant::now();
        let wanted = quic::send_window(reading.cwnd.count(), FIRST_CREDIT, state.send_window);
        let Some(wanted) = wanted else { return };
        let window = state.ask_to_send(wanted);
        if window != state.send_window {
            state.send_window = window;
            drop(state);
            self.connection.set_send_window(Bytes::new(window));
        }
    }

    /// No stream is left: what was granted is others'.
    pub(crate) fn on_idle(&self) {
        let mut state = self.state();
        state.held = 0;
        state.stuck = 0;
        self.give_back(&mut state);
    }

    fn give_back(&self, state: &mut State) {
        state.path.forget();
        state.share.ask(0);
        state.ask_to_send(FIRST_CREDIT);
        (state.window, state.send_window) = (FIRST_CREDIT, FIRST_CREDIT);
        self.connection.set_stream_window(Bytes::new(state.stream_window()));
        self.connection.set_receive_window(Bytes::new(state.window));
        self.connection.set_send_window(Bytes::new(state.send_window));
    }

    fn path(&self, reading: &Reading) -> Duration {
        let least = reading.min_rtt.as_duration();
        if least.is_zero() { self.connection.rtt() } else { least }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connection> Holder for Windows<C> {
    fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    fn held(&self) -> u64 {
        let sending = self.state().sending_charge.bytes();
        self.connection.held().count() + self.waiting.load(Ordering::Relaxed) + sending
    }

    fn sweep(&self) {
        self.connection.compact();
        let mut state = self.state();
        let is_granted = state.share.granted() > 0 || state.sending.granted() > 0;
        let is_waited_for = state.stuck > 0 || self.waiting.load(Ordering::Relaxed) > 0;
        if is_granted && !is_waited_for && state.last_active.elapsed() > REST {
            self.give_back(&mut state);
        }
    }

    fn give_up_one(&self) -> bool {
        let some = self.state().stuck + self.blocked.load(Ordering::Relaxed) > 0;
        if some {
            self.let_go.notify_one();
        }
        some
    }

    fn close(&self) {
        let held = Bytes::new(Holder::held(self));
        tracing::warn!(peer = %self.owner, %held, "connection closed: it holds more than its share of the memory");
        self.connection.close("this connection holds more memory than its share");
    }
}

impl State {
    fn ask(&mut self) {
        self.share.ask(self.wanted());
    }

    fn wanted(&self) -> u64 {
        (self.path.bound() + self.stuck * self.stream_window()).max(self.held)
    }

    /// How much one stream may bring that was not consumed: as much as all of them, so that one alone is not held up.
    fn stream_window(&self) -> u64 {
        self.path.bound()
    }

    /// A send window of `wanted`, as far as the memory goes. The first credit is not accounted for.
    fn ask_to_send(&mut self, wanted: u64) -> u64 {
        let granted = self.sending.ask(wanted - FIRST_CREDIT);
        self.sending_charge.set(granted);
        FIRST_CREDIT + granted
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.charge.bytes(), Ordering::Relaxed);
    }
}

/// One more in a counter, as long as it is kept.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn one(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const READ: usize = 128 * 1024;
const LEAST_READ: usize = 4 * 1024;
/// A connection that has carried nothing for so long rests.
const REST: Duration = Duration::from_secs(2);
