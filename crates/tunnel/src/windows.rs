use crate::memory::{Budget, Holder, Share};
use crate::reset_order::{Place, Reason, ResetOrder};
use crate::transport::{Connection, Lost, MEMORY_LIMIT, carried_over};
use quic::{Charge, FIRST_CREDIT, PathWindow, Reading};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use units::Bytes;

/// Limits the memory that one connection may hold to the memory that its path needs
/// ([`PathWindow`]), or to less if the budget is smaller.
///
/// The peer gets this amount as credit, and gets more as applications consume data ([`quic`] counts
/// the credit). A stuck stream, whose application does not read, keeps its credit, so the window
/// grows by the same amount. The window also includes bytes queued for slow applications: these
/// bytes may exceed the present credit, because they arrived while the rate was higher. If memory
/// runs short, this end resets stuck streams one after another; otherwise they would use up the
/// credit of all other streams of the connection.
///
/// An idle connection keeps its credit and has no grant.
#[derive(Debug)]
pub(crate) struct Windows<C> {
    connection: C,
    state: Mutex<State>,
    budget: Budget,
    owner: Arc<str>,
    /// Bytes read from applications that the connection has not taken yet.
    waiting: AtomicU64,
    /// Tunnels that have waited for a while.
    resets: ResetOrder,
}

/// Bytes read from an application that the connection has not taken. The bytes count in [`Windows`]
/// until this value is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    counter: &'a AtomicU64,
    charge: Charge,
}

#[derive(Debug)]
struct State {
    share: Share,
    held: u64,
    /// The window that the path needs, without the credit of stuck streams.
    path: PathWindow,
    stuck: u64,
    /// In-order bytes that no application had consumed at the last count.
    unread: u64,
    last_active: Instant,
    /// The window last set on the connection.
    window: u64,
    send_window: u64,
    /// The share of the budget for the send window beyond the first credit: the window may fill
    /// with unacknowledged data.
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
            unread: 0,
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
            resets: ResetOrder::default(),
        });
        let holder: Arc<dyn Holder> = Arc::clone(&windows) as _;
        budget.add(Arc::downgrade(&holder));
        windows
    }

    /// Records that `received` bytes arrived on a stream whose bytes behind gaps changed from
    /// `before` to `after`.
    pub(crate) fn on_read(&self, received: usize, before: usize, after: usize) {
        let mut state = self.state();
        let state = &mut *state;
        state.held = (state.held + after as u64).saturating_sub(before as u64);
        if received == 0 {
            return;
        }
        let now = Instant::now();
        state.last_active = now;
        let mut unread = None;
        let rtt = || {
            unread = Some(self.connection.unread().count());
            carried_over(self.path(&self.connection.reading()));
            self.connection.rtt()
        };
        let changed = state.path.receive(now, received as u64, rtt).is_some();
        if let Some(unread) = unread {
            state.unread = unread.saturating_sub(state.held);
        }
        let (granted, wanted) = (state.share.granted(), state.wanted());
        if changed || granted < wanted || granted / 2 > wanted || self.budget.is_overdrawn() {
            state.ask();
        }
        if changed {
            self.connection.set_stream_window(Bytes::new(state.stream_window()));
        }
        self.apply(state);
    }

    /// Records that the application of one stream does not read, and raises the window so that the
    /// other streams continue.
    pub(crate) fn on_stuck(&self) {
        let mut state = self.state();
        state.stuck += 1;
        self.count_unread(&mut state);
        state.ask();
        self.apply(&mut state);
    }

    /// Records that the application of a stuck stream with `unread` bytes reads again, or that the
    /// stream ends.
    pub(crate) fn on_unstuck(&self, unread: u64) {
        let mut state = self.state();
        state.stuck = state.stuck.saturating_sub(1);
        state.unread = state.unread.saturating_sub(unread);
        state.ask();
        self.apply(&mut state);
    }

    /// Whether to reset a stuck stream because other streams need its memory. Each reset lowers the
    /// wanted window, so that this end resets no more streams than necessary.
    ///
    /// After a stall of the machine, a path may seem to need more than all memory. A stuck stream
    /// then stays as long as half of the credit is left to other streams and most memory is free.
    pub(crate) fn has_to_go(&self) -> bool {
        let unread = self.connection.unread().count();
        let mut state = self.state();
        state.ask();
        self.apply(&mut state);
        let granted = state.share.granted();
        granted < state.wanted() && (unread * 2 > granted || self.is_short())
    }

    /// Whether memory is becoming short: an eighth of the limit is in use.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.held().count() > self.budget.limit() / 8
    }

    /// Waits until the connection has closed. Polls once a second: a waker would wake every waiting
    /// tunnel at each event of the connection.
    pub(crate) async fn closed(&self) -> Lost {
        while !self.connection.is_closed() {
            tokio::time::sleep(CLOSED_POLL).await;
        }
        self.connection.closed().await
    }

    /// Adds a tunnel that has waited for a while to the list of tunnels to reset.
    pub(crate) fn list(&self, reason: Reason) -> Place<'_> {
        self.resets.join(reason)
    }

    /// Waits until memory is short and the listed tunnel must end.
    pub(crate) async fn let_go(&self, place: &Place<'_>) {
        place.told(|| self.budget.is_near()).await;
    }

    /// Returns the size of one read from an application. The size is small if many bytes of earlier
    /// reads still wait for the connection.
    pub(crate) fn read_at_once(&self) -> usize {
        let is_much = self.waiting.load(Ordering::Relaxed) > self.budget.limit() / 16;
        if is_much { LEAST_READ } else { READ }
    }

    /// Counts bytes of an application that the connection has not taken, until the result is
    /// dropped.
    pub(crate) fn wait(&self, bytes: usize) -> Waiting<'_> {
        let bytes = bytes as u64;
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        Waiting { counter: &self.waiting, charge: Charge::new(self.budget.meter(), bytes) }
    }

    fn count_unread(&self, state: &mut State) {
        state.unread = self.connection.unread().count().saturating_sub(state.held);
    }

    fn apply(&self, state: &mut State) {
        let window = state.share.granted();
        // Ignore small changes: each change costs a lock and possibly a frame.
        if window.abs_diff(state.window) >= (window / 16).max(1) {
            state.window = window;
            self.connection.set_receive_window(Bytes::new(window));
        }
    }

    /// Returns the bytes held behind gaps, and their limit.
    pub(crate) fn held(&self) -> (Bytes, Bytes) {
        let state = self.state();
        (Bytes::new(state.held), Bytes::new(state.share.granted()))
    }

    /// Adjusts the send window to the path. Call after each write.
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

    /// Asks for the present grants again, because other connections have got their shares since.
    fn ask_again(&self, state: &mut State) {
        if state.share.granted() > 0 {
            state.ask();
            self.apply(state);
        }
        let window = state.ask_to_send(state.send_window);
        if window != state.send_window {
            state.send_window = window;
            self.connection.set_send_window(Bytes::new(window));
        }
    }

    /// Returns the grant to the budget. Call when no stream is left.
    pub(crate) fn on_idle(&self) {
        let mut state = self.state();
        state.held = 0;
        (state.stuck, state.unread) = (0, 0);
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
        if self.budget.is_overdrawn() {
            self.ask_again(&mut state);
        }
        let is_granted = state.share.granted() > 0 || state.sending.granted() > 0;
        if is_granted && state.last_active.elapsed() > REST {
            self.count_unread(&mut state);
            let waiting = self.waiting.load(Ordering::Relaxed);
            if state.stuck + state.unread + waiting > 0 {
                return;
            }
            self.give_back(&mut state);
        }
    }

    fn give_up(&self, most: usize) -> usize {
        self.resets.tell(most)
    }

    fn close(&self) {
        let held = Bytes::new(Holder::held(self));
        tracing::warn!(peer = %self.owner, %held, "connection closed: it holds more than its share of the memory");
        self.connection.close(MEMORY_LIMIT);
    }
}

impl State {
    fn ask(&mut self) {
        self.share.ask(self.wanted());
    }

    fn wanted(&self) -> u64 {
        let waiting = self.unread.max(self.stuck * self.stream_window());
        (self.path.bound() + waiting).max(self.held)
    }

    /// Returns the credit of one stream: as much as the credit of all streams, so that a single
    /// stream can use the whole path.
    fn stream_window(&self) -> u64 {
        self.path.bound()
    }

    /// Asks the budget for a send window of `wanted` bytes and returns the granted window. The
    /// first credit does not count against the budget.
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

const READ: usize = 128 * 1024;
const LEAST_READ: usize = 4 * 1024;
const CLOSED_POLL: Duration = Duration::from_secs(1);
/// How long no data must pass before a connection counts as idle.
const REST: Duration = Duration::from_secs(2);
