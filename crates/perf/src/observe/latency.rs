//! Round-trip times of probes beside the streams, first without load and then under load.
//!
//! Probes go to the peer's echo, if the peer offered an echo, and by ping. The method that gets
//! replies becomes the probe, with preference for the echo.
//!
//! A round trip ends when the kernel receives the reply: on a loaded host a thread's wait for a
//! core takes longer than the path. The probe thread is therefore a real-time thread. If the
//! process may not start a real-time thread, the kernel timestamps the replies. Timestamps cost
//! about one percent of goodput at 50 Gbit/s, because the kernel then stamps every packet of the
//! host. The send time is taken right before the send, so that the local queue counts as part of
//! the path.

mod flow;
mod icmp;
mod in_flight;
mod pace;
mod prober;
mod timestamps;

use super::LatencyPlan;
use super::series::Series;
use crate::event::Latency;
use flow::{Flows, Times};
use probe::clock;
use prober::Prober;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use timestamps::ClockJumps;
use units::{Rate, Span, Time};

/// A latency probe, whose thread sends probes until the owner finishes or drops this value.
#[derive(Debug)]
pub struct LatencyProbe {
    running: Option<Running>,
    problems: Vec<String>,
}

#[derive(Debug, Default)]
pub struct LatencyResult {
    pub latency: Option<Latency>,
    /// Number of lost probes; known even if no probe got a reply.
    pub lost: u64,
    /// True if any probe ever got a reply.
    pub answered: bool,
    pub series: Option<Series>,
    /// CPU time of the probe thread.
    pub cost: Span,
    /// Reasons why a probe method could not be used.
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
    paused: AtomicBool,
    wake: OwnedFd,
    /// Bits per second of the streams.
    load: AtomicU64,
}

impl LatencyProbe {
    /// Begins the idle phase. The sockets are opened in the caller's network namespace.
    pub fn begin(plan: &LatencyPlan) -> Self {
        let mut problems = Vec::new();
        let mut probers = Vec::new();
        let echo = plan.echo.map(|offer| ("the echo", Prober::echo(plan, offer.port, offer.token)));
        for (name, prober) in echo.into_iter().chain([("ping", Prober::ping(plan))]) {
            match prober {
                Ok(prober) => probers.push(prober),
                Err(error) => problems.push(format!("{name} cannot be used here ({error})")),
            }
        }
        let running = match probers.is_empty() {
            true => None,
            false => Running::start(probers)
                .map_err(|e| problems.push(format!("no thread for the probe ({e})")))
                .ok(),
        };
        Self { running, problems }
    }

    /// True while probes are sent and may still get replies.
    pub fn may_be_answered(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.flows().has_ended())
    }

    pub fn has_answer(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.flows().has_answer())
    }

    /// Ends a phase and returns its result. `loaded` is the time at which the load started, if the
    /// next phase is under load.
    pub fn end_phase(&mut self, now: Time, loaded: Option<Time>) -> Option<Latency> {
        self.running.as_ref()?.flows().end_phase(now, loaded)
    }

    /// Returns the latency since the last call of this method, or since the phase began.
    pub fn interval(&mut self) -> Option<Latency> {
        self.running.as_ref()?.flows().interval()
    }

    /// Sets the rate of the streams, of which the probes may add only a small fraction.
    pub fn set_load(&self, load: Rate) {
        if let Some(running) = &self.running {
            running.shared.load.store(load.bits_per_second(), Ordering::Relaxed);
        }
    }

    /// Pauses or resumes the probe. A paused probe sends nothing and its thread sleeps.
    pub fn rest(&mut self, paused: bool) {
        if let Some(running) = &self.running {
            running.shared.paused.store(paused, Ordering::Relaxed);
            running.shared.wake();
        }
    }

    /// Ends the probe at once, without waiting for probes in flight, and returns its results.
    pub fn finish(mut self, now: Time) -> LatencyResult {
        let problems = std::mem::take(&mut self.problems);
        let Some(running) = self.running.take() else {
            return LatencyResult { problems, ..LatencyResult::default() };
        };
        let shared = running.shared.clone();
        let cost = running.stop();
        let mut flows = shared.flows();
        LatencyResult {
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
    fn start(probers: Vec<Prober>) -> std::io::Result<Self> {
        let flows = Flows::new(clock::now(), probers.iter().map(Prober::source));
        let shared = Arc::new(Shared {
            flows: Mutex::new(flows),
            stop: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            load: AtomicU64::new(0),
        });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("latency".to_owned()).spawn(move || {
            ask(&its, probers);
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
        // The counter of the eventfd cannot be full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn ask(shared: &Shared, probers: Vec<Prober>) {
    let prompt = host::real_time().is_ok();
    let mut probers = stamped_unless(prompt, probers);
    let mut random = rand::rng();
    let mut next = clock::now();
    let mut patient = false;
    let mut jumps = ClockJumps::none_yet();
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.paused.load(Ordering::Relaxed) {
            match rest(shared, probers) {
                Ok(rested) => probers = stamped_unless(prompt, rested),
                Err(error) => return tracing::warn!("latency probing has stopped: {error}"),
            }
            jumps = ClockJumps::none_yet();
            // Resume at a random point of the pause.
            next = clock::now() + pace::pause(true, shared.load(), &mut random) / 2;
            continue;
        }
        let now = clock::now();
        if now >= next {
            let loaded = send(shared, &probers, now);
            // Schedule from now, not from the due time, so that no burst follows a long wait for a
            // core.
            let pause = pace::pause(loaded, shared.load(), &mut random);
            next = now + pause;
            let stamped = probers.iter().all(Prober::is_stamped);
            patient = loaded && stamped && shared.flows().has_answer() && pause <= LONGEST_LAG;
        }
        // Under load each wakeup takes a core from a stream. So a thread with timestamped
        // replies reads a reply only when it sends the next probe.
        let awaited = if patient { &probers[..0] } else { &probers[..] };
        wait(shared, awaited, Some(next.since(clock::now())));
        if jumps.happened() {
            shared.flows().pause(clock::now());
        }
        receive(shared, &probers);
        if shared.flows().has_ended() {
            return;
        }
    }
}

/// Requests kernel timestamps unless the thread is a real-time thread (`prompt`), which reads a
/// reply as soon as the reply arrives.
fn stamped_unless(prompt: bool, mut probers: Vec<Prober>) -> Vec<Prober> {
    if !prompt {
        probers.iter_mut().for_each(Prober::want_stamps);
    }
    probers
}

/// Closes the sockets and sleeps until the owner resumes the probe.
fn rest(shared: &Shared, probers: Vec<Prober>) -> std::io::Result<Vec<Prober>> {
    receive(shared, &probers);
    // Probes in flight can no longer be judged.
    shared.flows().pause(clock::now());
    let closed: Vec<_> = probers.into_iter().map(Prober::close).collect();
    while shared.paused.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
        wait(shared, &[], None);
    }
    closed.iter().map(Prober::reopened).collect()
}

/// Sends a probe by each method; returns true if the path is under load.
fn send(shared: &Shared, probers: &[Prober], now: Time) -> bool {
    let mut flows = shared.flows();
    flows.settle(now);
    for (index, prober) in probers.iter().enumerate() {
        if !flows.is_alive(index) {
            continue;
        }
        let sent_at = clock::now();
        if let Some(sequence) = flows.send(index, sent_at)
            && prober.ask(sequence, sent_at).is_err()
        {
            flows.retract(index, sequence);
        }
    }
    flows.is_loaded()
}

fn receive(shared: &Shared, probers: &[Prober]) {
    for (index, prober) in probers.iter().enumerate() {
        for (echo, receipt) in std::iter::from_fn(|| prober.answer()).take(MOST_AT_ONCE) {
            let times = Times { sent: echo.sent_at, now: receipt.now, lag: receipt.lag };
            shared.flows().answer(index, echo.sequence, times);
        }
    }
}

fn wait(shared: &Shared, probers: &[Prober], within: Option<Span>) {
    let sockets = probers.iter().map(AsFd::as_fd);
    let mut all: Vec<_> = std::iter::once(shared.wake.as_fd())
        .chain(sockets)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = within.map(|within| Timespec {
        tv_sec: (within.nanos() / NANOS) as i64,
        tv_nsec: (within.nanos() % NANOS) as i64,
    });
    // After a signal or a short lack of memory the loop polls again.
    let _ = poll(&mut all, timeout.as_ref());
    if !all[0].revents().is_empty() {
        // The value only wakes the thread; the flags say what the owner wants.
        let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
    }
}

/// Maximum number of replies read at once, so that an attacker with the token cannot keep the
/// thread from sending probes.
const MOST_AT_ONCE: usize = 256;
/// Maximum time that a reply may wait in the socket. This time is shorter than the age at which the
/// end of a phase counts a probe as lost.
const LONGEST_LAG: Span = Span::from_millis(80);
const NANOS: u64 = 1_000_000_000;
