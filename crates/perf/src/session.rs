//! The part of a test that client and server share once the streams are open: runs the test,
//! reports the intervals, and collects the results.
//!
//! ```text
//! let mut session = Session::open(setup, opened, observer, stop)?;   // threads wait
//! audience.event(&Event::Started(&Started { streams: session.streams(), … }));
//! // … TestStart, TestRunning …
//! let reason = session.run(&mut control, audience)?;          // go, intervals, …
//! let account = session.finish(audience);                     // senders stop, counting ends
//! // … TestEnd, ExchangeResults …
//! control.send_json(&account.results(additions))?;
//! let theirs: Results = control.receive_json(LONGEST, "sending its results")?;
//! drop(session);                                              // the streams close
//! audience.event(&Event::Ended(&account.ended(&theirs)));
//! ```

mod account;
mod facts;
mod intervals;
pub(crate) mod progress;
mod rate_limit;
mod schedule;

pub(crate) use account::{Account, Additions};
pub(crate) use facts::plain;

use crate::PerfError;
use crate::control::{Control, State, ready};
use crate::event::{Audience, Event, Role, Stop, StreamFacts};
use crate::observe::{self, Observed, Observer};
use crate::options::{Amount, TestOptions};
use crate::stream::{Opened, Running, StreamFailure, StreamSnapshot};
use intervals::Intervals;
use probe::clock;
use progress::Progress;
use rate_limit::RateLimit;
use rustix::event::PollFlags;
use schedule::{IntervalSchedule, Period};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use units::{Rate, Span, Time};

/// The client's or the server's side of a test whose streams are open.
#[derive(Debug)]
pub(crate) struct Session {
    setup: Setup,
    streams: Vec<StreamFacts>,
    running: Running,
    observer: Option<Observer>,
    stop: Stop,
    schedule: IntervalSchedule,
    /// Time at which traffic began, before the omitted time.
    began: Time,
    intervals: Intervals,
    rate_limit: Option<RateLimit>,
    failed: Option<(StreamFailure, Instant)>,
    spent_since: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) role: Role,
    pub(crate) options: TestOptions,
    /// Length of an interval; zero reports no intervals.
    pub(crate) interval: Span,
    /// The CPU to which this side's streams are pinned.
    pub(crate) affinity: Option<usize>,
    /// Maximum time without data on all streams.
    pub(crate) receive_timeout: Duration,
    /// At a server: time after the agreed end during which the server waits for the client to end
    /// the test.
    pub(crate) grace: Option<Duration>,
    /// At a server: the maximum duration of a test of an amount of data.
    pub(crate) longest: Option<Span>,
    /// At a server: the maximum rate of all streams together, and the time over which the rate is
    /// averaged.
    pub(crate) rate_limit: Option<(Rate, Span)>,
    /// At a server: shows when the server may end this session for another client.
    pub(crate) progress: Option<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// At a client: the time has passed, or the amount is reached.
    Reached,
    PeerState(State),
    RateExceeded(Rate),
    /// The client did not end the test in time.
    NotEnded,
    /// A test of an amount lasted longer than [`Setup::longest`].
    TimeLimit(Span),
}

impl Session {
    /// Starts the streams' threads, which wait. `stop` ends a running test.
    pub(crate) fn open(
        setup: Setup,
        opened: Vec<Opened>,
        observer: Observer,
        stop: Stop,
    ) -> Result<Self, PerfError> {
        let streams = opened.iter().map(facts::of).collect::<Result<_, _>>()?;
        let (affinity, account) = (setup.affinity, observer.account());
        let running =
            Running::start_charged(opened, &setup.options, affinity, stop.clone(), &account)?;
        let began = clock::now();
        let schedule = IntervalSchedule::new(began, setup.interval, setup.options.omit);
        let rate_limit = setup.rate_limit.map(|(most, window)| RateLimit::new(most, window));
        Ok(Self {
            setup,
            streams,
            running,
            observer: Some(observer),
            stop,
            schedule,
            began,
            intervals: Intervals::default(),
            rate_limit,
            failed: None,
            spent_since: None,
        })
    }

    pub(crate) fn streams(&self) -> Vec<StreamFacts> {
        self.streams.clone()
    }

    /// Starts the traffic, and runs the test until something ends it.
    pub(crate) fn run(
        &mut self,
        control: &mut Control,
        audience: &mut dyn Audience,
    ) -> Result<StopReason, PerfError> {
        self.observe(|observer, sockets| observer.start(sockets));
        self.running.go();
        self.began = clock::now();
        self.schedule =
            IntervalSchedule::new(self.began, self.setup.interval, self.setup.options.omit);
        self.note_progress(self.began);
        loop {
            let now = clock::now();
            if let Some(period) = self.schedule.due(now) {
                self.report(period, &self.running.snapshot(), audience);
            }
            self.observe(|observer, sockets| observer.sample(sockets));
            if let Some(state) = control.try_state(RUNNING)? {
                self.check_own(control.peer())?;
                return Ok(StopReason::PeerState(state));
            }
            if self.stop.is_called() {
                return Err(PerfError::Interrupted);
            }
            self.note_progress(now);
            self.check(control.peer())?;
            // With a broken stream the test cannot succeed: only wait for the peer's reason.
            if let Some(halt) = self.stop_reason(now)
                && self.failed.is_none()
            {
                return Ok(halt);
            }
            ready(control.socket().as_fd(), PollFlags::IN, self.until_next(now))?;
        }
    }

    /// Waits for the data that the peer sent before it ended a test of an amount of data: the
    /// peer's message uses another connection and may have overtaken the data. Returns when all
    /// data has arrived, or when no more arrives.
    ///
    /// Stops the local senders first, because a peer that ends the test lacks no data.
    pub(crate) fn await_remaining_data(&mut self, patience: Duration) {
        let Some(amount) = self.amount() else { return };
        self.running.stop_sending();
        let began = Instant::now();
        let (mut received, mut at) = (0, began);
        while !self.stop.is_called() && began.elapsed() < patience {
            let snapshots = self.running.snapshot();
            let has_receiver = snapshots.iter().any(|stream| !stream.sends);
            let arrived = bytes(&snapshots, false);
            if arrived != received {
                (received, at) = (arrived, Instant::now());
            }
            if !has_receiver || arrived >= amount || at.elapsed() >= QUIET {
                return;
            }
            std::thread::sleep(SHORTEST_POLL);
        }
    }

    /// Ends the measured time: senders stop, and later arrivals are not counted. The streams stay
    /// open until the session is dropped.
    pub(crate) fn finish(&mut self, audience: &mut dyn Audience) -> Account {
        let now = clock::now();
        self.running.stop_sending();
        self.running.cut_datagrams(now);
        let received = self.running.snapshot();
        let idle = Span::from(self.running.last_progress().elapsed());
        // Without this wait, the receiver's count would exceed the sender's. A write to a peer that
        // no longer reads returns a tenth of a second later. The wait, and the data that arrives
        // during the wait, do not count.
        self.running.await_senders();
        self.running.await_datagrams();
        let mut snapshots = self.running.snapshot();
        for (snapshot, received) in snapshots.iter_mut().zip(received) {
            // Datagrams are stamped with their time of arrival, so their counts end exactly.
            if !received.sends && received.datagrams.is_none() {
                *snapshot = received;
            }
        }
        let mut elapsed = now.since(self.schedule.origin());
        if self.amount().is_some() && !self.schedule.is_omitting() {
            // Exclude the wait for more data.
            elapsed = elapsed.saturating_sub(idle).max(Span::from_nanos(1));
        }
        if let Some(period) = self.schedule.rest(now) {
            self.report(period, &snapshots, audience);
        }
        let sockets = sockets(&self.running, &snapshots);
        let observed = self.observer.take().map(|observer| observer.finish(&sockets));
        let observed = observed.map(|observed| self.without_false_links(observed));
        Account {
            options: self.setup.options.clone(),
            elapsed,
            congestion: self.streams.iter().find_map(|stream| stream.congestion.clone()),
            snapshots,
            observed,
        }
    }

    /// Removes the estimate of a saturated link from tests that no link limits: tests within this
    /// machine, at a rate that the user set, or limited by this machine's CPU.
    fn without_false_links(&self, mut observed: Observed) -> Observed {
        let inside =
            self.streams.iter().any(|one| crate::event::is_loopback(one.local, one.remote));
        let paced = self.setup.options.kernel_rate.is_some();
        if inside || paced || observed.limiting_core.is_some() {
            observed.paths.iter_mut().for_each(|path| path.facts.full_link = None);
        }
        observed
    }

    fn report(
        &mut self,
        period: Period,
        snapshots: &[StreamSnapshot],
        audience: &mut dyn Audience,
    ) {
        let sockets = sockets(&self.running, snapshots);
        if period.is_interval
            && let Some(observer) = &mut self.observer
        {
            let noted = observer.interval(&sockets);
            let interval = self.intervals.end(period, snapshots, noted);
            audience.event(&Event::Interval(&interval));
        }
        if period.ends_omission {
            if let Some(observer) = &mut self.observer {
                observer.reset(&sockets);
            }
            self.running.reset();
            self.intervals.reset();
        }
    }

    fn observe(&mut self, observe: impl FnOnce(&mut Observer, &[observe::StreamSocket<'_>])) {
        if let Some(observer) = &mut self.observer {
            let snapshots = self.running.snapshot();
            observe(observer, &sockets(&self.running, &snapshots));
        }
    }

    fn note_progress(&self, now: Time) {
        let Some(progress) = &self.setup.progress else { return };
        let began = Instant::now().checked_sub(now.since(self.began).as_duration());
        let end = match self.setup.options.amount {
            Amount::Time(time) if time > Span::ZERO => {
                let agreed = (time + self.setup.options.omit).as_duration();
                began.and_then(|began| began.checked_add(agreed))
            }
            _ => None,
        };
        progress.traffic(self.running.last_progress(), end);
    }

    fn stop_reason(&mut self, now: Time) -> Option<StopReason> {
        let since_start = now.since(self.schedule.origin());
        if let Some(limit) = &mut self.rate_limit {
            let snapshots = self.running.snapshot();
            let total: u64 = snapshots
                .iter()
                .map(|stream| stream.bytes.count() + stream.omitted.bytes.count())
                .sum();
            if let Some(rate) = limit.exceeded(now, total) {
                return Some(StopReason::RateExceeded(rate));
            }
        }
        let omitting = self.schedule.is_omitting();
        match (self.setup.role, self.setup.options.amount) {
            (Role::Client, _) if omitting => None,
            (Role::Client, Amount::Time(time)) => {
                // Time zero: the test runs until the user ends it.
                (time > Span::ZERO && since_start >= time).then_some(StopReason::Reached)
            }
            (Role::Client, _) => self.has_amount().then_some(StopReason::Reached),
            (Role::Server, Amount::Time(time)) => {
                let grace = Span::from(self.setup.grace?);
                let agreed = if omitting { time + self.setup.options.omit } else { time };
                (time > Span::ZERO && since_start >= agreed + grace).then_some(StopReason::NotEnded)
            }
            (Role::Server, _) => {
                let longest = self.setup.longest?;
                (now.since(self.began) >= longest).then_some(StopReason::TimeLimit(longest))
            }
        }
    }

    /// True if the amount of data was sent and acknowledged, or was received.
    fn has_amount(&mut self) -> bool {
        let Some(amount) = self.amount() else { return false };
        if bytes(&self.running.snapshot(), false) >= amount {
            return true;
        }
        self.running.is_spent() && self.running.is_delivered()
    }

    /// Returns the amount of data in each direction, in bytes; `None` for a test that ends after a
    /// time.
    fn amount(&self) -> Option<u64> {
        match self.setup.options.amount {
            Amount::Time(_) => None,
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Blocks(blocks) => {
                Some(blocks.saturating_mul(self.setup.options.block_bytes() as u64))
            }
        }
    }

    fn check(&mut self, peer: &str) -> Result<(), PerfError> {
        self.check_own(peer)?;
        let peer = || peer.to_owned();
        // A peer that closes its streams first sends the reason on the control connection. If the
        // peer is gone, the control connection breaks too.
        if let Some((failure, since)) = &self.failed
            && since.elapsed() >= LAST_WORD
        {
            return Err(PerfError::PeerFailed { peer: peer(), reason: failure.to_string() });
        }
        if self.spent_since.is_none() && self.running.is_spent() {
            self.spent_since = Some(Instant::now());
        }
        let within = self.setup.receive_timeout;
        let receives = self.streams.iter().any(|stream| !stream.sends);
        // A client that no longer reads blocks this server's senders. The check leaves tests with a
        // rate out: a slow sender pauses between two blocks.
        let serves_fast = self.setup.role == Role::Server && self.setup.options.rate.is_none();
        let counts_on_progress = receives || serves_fast || self.amount().is_some();
        if counts_on_progress && self.running.last_progress().elapsed() >= within {
            return Err(PerfError::Silent { peer: peer(), within, doing: "data was expected" });
        }
        // The local senders have sent the amount, so the peer must end the test.
        if self.spent_since.is_some_and(|since| since.elapsed() >= within) {
            return Err(PerfError::Silent { peer: peer(), within, doing: "the end was awaited" });
        }
        Ok(())
    }

    /// Checks for a failure of this host. A failure of this host is the cause, whatever the peer
    /// reports.
    fn check_own(&mut self, peer: &str) -> Result<(), PerfError> {
        if self.failed.is_none() {
            self.failed = self.running.failure().map(|failure| (failure, Instant::now()));
        }
        match self.failed {
            Some((failure, _)) if failure.ending.is_own() => {
                Err(PerfError::Broken { peer: peer.to_owned(), failure })
            }
            _ => Ok(()),
        }
    }

    fn until_next(&self, now: Time) -> Duration {
        let mut next = self.schedule.next().since(now).as_duration().min(LONGEST_POLL);
        if let Some(observer) = &self.observer {
            next = next.min(observer.due());
        }
        if self.setup.role == Role::Client && !self.schedule.is_omitting() {
            next = next.min(self.until_reached(now));
        }
        // All due work is done. The minimum wait keeps this loop from polling without a pause.
        next.max(SHORTEST_POLL)
    }

    fn until_reached(&self, now: Time) -> Duration {
        let passed = now.since(self.schedule.origin());
        if let Amount::Time(time) = self.setup.options.amount {
            return if time > Span::ZERO { (time - passed).as_duration() } else { LONGEST_POLL };
        }
        let snapshots = self.running.snapshot();
        let done = bytes(&snapshots, false).max(bytes(&snapshots, true));
        until_amount(done, self.amount().unwrap_or_default(), passed)
    }
}

/// Returns the time until the next check for the amount: half of the remaining time at the rate so
/// far. The first bytes arrive slowly, so the result is at most the time that has passed.
fn until_amount(done: u64, amount: u64, passed: Span) -> Duration {
    let left = amount.saturating_sub(done) as f64;
    let share = if done == 0 { 0.0 } else { (left / done as f64 / 2.0).min(1.0) };
    Duration::from_secs_f64(passed.secs_f64() * share)
}

fn bytes(snapshots: &[StreamSnapshot], sent: bool) -> u64 {
    let streams = snapshots.iter().filter(|stream| stream.sends == sent);
    streams.map(|stream| stream.bytes.count()).sum()
}

fn sockets<'a>(
    running: &'a Running,
    snapshots: &[StreamSnapshot],
) -> Vec<observe::StreamSocket<'a>> {
    running
        .sockets()
        .zip(snapshots)
        .map(|(stream, snapshot)| observe::StreamSocket {
            id: stream.id,
            sends: stream.sends,
            tcp: facts::connection(stream.socket).map(AsFd::as_fd),
            bytes: units::Bytes::new(snapshot.bytes.count() + snapshot.omitted.bytes.count()),
        })
        .collect()
}

const RUNNING: &str = "the test ran";
/// Maximum delay before the thread notices a call to stop.
const LONGEST_POLL: Duration = Duration::from_millis(100);
const SHORTEST_POLL: Duration = Duration::from_micros(500);
/// If no byte arrives for this time, no data is in flight.
const QUIET: Duration = Duration::from_millis(200);
const LAST_WORD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_checked_at_once_and_then_at_ever_shorter_intervals() {
        let ten_ms = Span::from_millis(10);
        assert_eq!(until_amount(0, 100, ten_ms), Duration::ZERO);
        assert_eq!(until_amount(1, 1_000_000, ten_ms), Duration::from_millis(10));
        assert_eq!(until_amount(50, 100, ten_ms), Duration::from_millis(5));
        assert_eq!(until_amount(100, 100, ten_ms), Duration::ZERO);
        assert_eq!(until_amount(200, 100, ten_ms), Duration::ZERO);
    }
}
