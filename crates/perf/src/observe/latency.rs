//! Round trips of probes that travel beside the streams, first without load and then with it.
//!
//! The far end's echo is asked where it offered one, and ping: whichever answers, the echo first, is
//! the probe from then on. A reply counts from when the kernel took it, not from when an ordinary thread gets
//! a core: on a loaded machine the difference is the larger part. So the thread is a real-time one, which
//! gets a core at once, and where that is not allowed it has the kernel stamp what comes. That is the worse
//! choice: the kernel then stamps every packet of the machine, which at 50 Gbit/s costs about one percent of
//! goodput. Of what was sent, the time is taken right before the send, so that the own queue counts: it is
//! part of the path.

mod asker;
mod flow;
mod icmp;
mod pace;
mod stamped;
mod waiting;

use super::LatencyPlan;
use super::series::Series;
use crate::event::Latency;
use asker::Asker;
use flow::{Flows, Times};
use probe::clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use stamped::Jumps;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use units::{Rate, Span, Time};

/// Asks for round trips until it is finished or dropped, in a thread of its own.
#[derive(Debug)]
pub struct LatencyProbe {
    running: Option<Running>,
    problems: Vec<String>,
}

/// What a [`LatencyProbe`] leaves of its last phase.
#[derive(Debug, Default)]
pub struct Asked {
    pub latency: Option<Latency>,
    /// Probes that did not come back, also where no other did.
    pub lost: u64,
    /// Something has answered, at any time.
    pub answered: bool,
    pub series: Option<Series>,
    /// CPU time of the thread.
    pub cost: Span,
    /// Why a way of asking could not be taken.
    pub problems: Vec<String>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<Span>,
}

#[derive(Debug)]
struct Shared {
    flows: Mutex<Flows>,
    stop: AtomicBool,
    rests: AtomicBool,
    wake: OwnedFd,
    /// Bits per second of the streams.
    load: AtomicU64,
}

impl LatencyProbe {
    /// Begins the idle phase. The sockets are opened in the caller's network namespace.
    pub fn begin(plan: &LatencyPlan) -> Self {
        let mut problems = Vec::new();
        let mut askers = Vec::new();
        let echo = plan.echo.map(|offer| ("the echo", Asker::echo(plan, offer.port, offer.token)));
        for (name, asker) in echo.into_iter().chain([("ping", Asker::ping(plan))]) {
            match asker {
                Ok(asker) => askers.push(asker),
                Err(error) => problems.push(format!("{name} cannot be used here ({error})")),
            }
        }
        let running = match askers.is_empty() {
            true => None,
            false => Running::start(askers)
                .map_err(|e| problems.push(format!("no thread for the probe ({e})")))
                .ok(),
        };
        Self { running, problems }
    }

    /// Something is asked, and may yet answer.
    pub fn is_hopeful(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.flows().has_ended())
    }

    /// Something has answered.
    pub fn has_answer(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.flows().has_answer())
    }

    /// A phase ends: what it was. The next is under load if `loaded` says since when.
    pub fn turn(&mut self, now: Time, loaded: Option<Time>) -> Option<Latency> {
        self.running.as_ref()?.flows().turn(now, loaded)
    }

    /// Since the last call of this kind, or since the phase began.
    pub fn interval(&mut self) -> Option<Latency> {
        self.running.as_ref()?.flows().interval()
    }

    /// What the streams carry: the probes stay small beside it.
    pub fn set_load(&self, load: Rate) {
        if let Some(running) = &self.running {
            running.shared.load.store(load.bits_per_second(), Ordering::Relaxed);
        }
    }

    /// Nothing is asked while it rests, and its thread sleeps.
    pub fn rest(&mut self, rests: bool) {
        if let Some(running) = &self.running {
            running.shared.rests.store(rests, Ordering::Relaxed);
            running.shared.wake();
        }
    }

    /// Ends at once; what is still on its way is not waited for.
    pub fn finish(mut self, now: Time) -> Asked {
        let problems = std::mem::take(&mut self.problems);
        let Some(running) = self.running.take() else {
            return Asked { problems, ..Asked::default() };
        };
        let shared = running.shared.clone();
        let cost = running.stop();
        let mut flows = shared.flows();
        Asked {
            latency: flows.close(now),
            lost: flows.lost(),
            answered: flows.has_answer(),
            series: flows.take_series(),
            cost,
            problems,
        }
    }
}

impl Drop for LatencyProbe {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

impl Running {
    fn start(askers: Vec<Asker>) -> std::io::Result<Self> {
        let flows = Flows::new(clock::now(), askers.iter().map(Asker::source));
        let shared = Arc::new(Shared {
            flows: Mutex::new(flows),
            stop: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            load: AtomicU64::new(0),
        });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("latency".to_owned()).spawn(move || {
            ask(&its, askers);
            clock::own_thread_cpu_time()
        })?;
        Ok(Self { shared, thread })
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.shared.flows()
    }

    fn stop(self) -> Span {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        self.thread.join().unwrap_or(Span::ZERO)
    }
}

impl Shared {
    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> Rate {
        Rate::from_bits_per_second(self.load.load(Ordering::Relaxed))
    }

    fn wake(&self) {
        // It cannot be full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn ask(shared: &Shared, askers: Vec<Asker>) {
    let prompt = host::real_time().is_ok();
    let mut askers = stamped_unless(prompt, askers);
    let mut random = rand::rng();
    let mut next = clock::now();
    let mut patient = false;
    let mut jumps = Jumps::none_yet();
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.rests.load(Ordering::Relaxed) {
            match rest(shared, askers) {
                Ok(rested) => askers = stamped_unless(prompt, rested),
                Err(error) => return tracing::warn!("the latency is asked no more: {error}"),
            }
            jumps = Jumps::none_yet();
            // Somewhere within the pause that it comes back to.
            next = clock::now() + pace::pause(true, shared.load(), &mut random) / 2;
            continue;
        }
        let now = clock::now();
        if now >= next {
            let loaded = send(shared, &askers, now);
            // From now, not from when it was due: after a long wait for a core no burst follows.
            let pause = pace::pause(loaded, shared.load(), &mut random);
            next = now + pause;
            let stamped = askers.iter().all(Asker::is_stamped);
            patient = loaded && stamped && shared.flows().has_answer() && pause <= LONGEST_LAG;
        }
        // Under load each wake takes a core from a stream. An answer that bears the time at which it came
        // is read when the next probe leaves.
        let awaited = if patient { &askers[..0] } else { &askers[..] };
        wait(shared, awaited, Some(next.since(clock::now())));
        if jumps.happened() {
            shared.flows().pause(clock::now());
        }
        receive(shared, &askers);
        if shared.flows().has_ended() {
            return;
        }
    }
}

/// A prompt thread sees an answer when it comes, and needs no stamps.
fn stamped_unless(prompt: bool, mut askers: Vec<Asker>) -> Vec<Asker> {
    if !prompt {
        askers.iter_mut().for_each(Asker::want_stamps);
    }
    askers
}

/// Until it is told to go on. Nothing of it is left meanwhile but a thread that sleeps.
fn rest(shared: &Shared, askers: Vec<Asker>) -> std::io::Result<Vec<Asker>> {
    receive(shared, &askers);
    // Of those still on their way nothing will be known.
    shared.flows().pause(clock::now());
    let closed: Vec<_> = askers.into_iter().map(Asker::close).collect();
    while shared.rests.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
        wait(shared, &[], None);
    }
    closed.iter().map(Asker::reopened).collect()
}

/// Tells whether the load is on.
fn send(shared: &Shared, askers: &[Asker], now: Time) -> bool {
    let mut flows = shared.flows();
    flows.settle(now);
    for (index, asker) in askers.iter().enumerate() {
        if !flows.is_alive(index) {
            continue;
        }
        let sent_at = clock::now();
        if let Some(sequence) = flows.send(index, sent_at)
            && asker.ask(sequence, sent_at).is_err()
        {
            flows.retract(index, sequence);
        }
    }
    flows.is_loaded()
}

fn receive(shared: &Shared, askers: &[Asker]) {
    for (index, asker) in askers.iter().enumerate() {
        for (echo, receipt) in std::iter::from_fn(|| asker.answer()).take(MOST_AT_ONCE) {
            let times = Times { sent: echo.sent_at, now: receipt.now, lag: receipt.lag };
            shared.flows().answer(index, echo.sequence, times);
        }
    }
}

/// For an answer of one of `askers`, or a word of the owner's.
fn wait(shared: &Shared, askers: &[Asker], within: Option<Span>) {
    let sockets = askers.iter().map(AsFd::as_fd);
    let mut all: Vec<_> = std::iter::once(shared.wake.as_fd())
        .chain(sockets)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = within.map(|within| Timespec {
        tv_sec: (within.nanos() / NANOS) as i64,
        tv_nsec: (within.nanos() % NANOS) as i64,
    });
    // Interrupted, or out of memory for a moment: the loop comes round again.
    let _ = poll(&mut all, timeout.as_ref());
    if !all[0].revents().is_empty() {
        // What it says stands in the flags.
        let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
    }
}

/// A stranger who knows the token cannot keep the thread from its probes.
const MOST_AT_ONCE: usize = 256;
/// An answer may lie so long before it is read: less than makes a phase that ends count it as lost.
const LONGEST_LAG: Span = Span::from_millis(80);
const NANOS: u64 = 1_000_000_000;
