use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::cycles;
use port::Frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::Span;

use super::bridge::BridgeState;
use super::error::SwitchError;
use super::ordered::{Mutex, rank};
use super::ports::SwitchPort;
use super::waker::Waker;
use super::worker::Worker;

/// The handle of a packet thread for other threads.
pub(super) struct Pmd {
    pub(super) core: usize,
    /// `None` once the thread has ended.
    jobs: Mutex<Option<VecDeque<Job>>, { rank::LAST }>,
    has_jobs: AtomicBool,
    waker: Waker,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>, { rank::LAST }>,
}

type Job = Box<dyn FnOnce(&mut PmdThread) + Send>;

/// A callback for a receive error, after which the thread can no longer receive from the port.
pub(super) type OnFailure = Arc<dyn Fn(&BridgeState, &SwitchPort, &port::PortError) + Send + Sync>;

/// The state of a packet thread, which only this thread accesses.
pub(super) struct PmdThread {
    pub(super) worker: Worker,
    pub(super) queues: Vec<Queue>,
    batch: Vec<Frame>,
    is_busy_polling: bool,
    /// Cycles of iterations without a packet (`idle`) and with a packet (`busy`).
    pub(super) idle: u64,
    pub(super) busy: u64,
    pub(super) iterations: u64,
    pub(super) sleeps: u64,
    /// Cycles spent on receiving frames from ports.
    pub(super) receiving: u64,
    /// The values of `idle` plus `busy`, and of `busy`, at the start of each of the last windows,
    /// the oldest window first.
    windows: VecDeque<u64>,
    busy_windows: VecDeque<u64>,
    window_began: Instant,
    on_failure: OnFailure,
}

/// A receive queue that a packet thread polls. The main thread allocates the queues of all threads,
/// so the alignment ensures that the queues of two threads share no cache line.
#[repr(align(128))]
pub(super) struct Queue {
    pub(super) bridge: Arc<BridgeState>,
    pub(super) port: Arc<SwitchPort>,
    pub(super) queue: usize,
    pub(super) is_pinned: bool,
    fd: Option<OwnedFd>,
    /// Cycles spent on frames of this queue.
    pub(super) cycles: u64,
    /// The values of `cycles` at the start of each of the last windows.
    windows: VecDeque<u64>,
}

/// A queue's share of its thread's cycles.
#[derive(Debug, Clone)]
pub(super) struct QueueUsage {
    pub(super) port: String,
    pub(super) queue: usize,
    pub(super) is_up: bool,
    pub(super) is_pinned: bool,
    pub(super) cycles: u64,
    /// Cycles in the last minute.
    pub(super) recent: u64,
}

impl Pmd {
    pub(super) fn start(
        core: usize,
        worker: impl FnOnce() -> Worker + Send + 'static,
        is_busy_polling: bool,
        on_failure: OnFailure,
    ) -> Result<Arc<Self>, SwitchError> {
        let waker = Waker::new().map_err(SwitchError::Thread)?;
        let pmd = Arc::new(Self {
            core,
            jobs: Mutex::new(Some(VecDeque::new())),
            has_jobs: AtomicBool::new(false),
            waker,
            stop: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let handle = pmd.clone();
        let thread = std::thread::Builder::new().name(format!("pmd-c{core:02}"));
        let thread = thread.spawn(move || {
            // This value is also dropped after a panic, so that nobody waits for the jobs of an
            // ended thread.
            let _end = End(&handle);
            if let Err(error) = host::pin_to(&[core]) {
                tracing::warn!("the packet thread of CPU {core} is not pinned: {error}");
            }
            host::precise_timers();
            let thread = PmdThread {
                worker: worker(),
                queues: Vec::new(),
                batch: Vec::with_capacity(BATCH),
                is_busy_polling,
                idle: 0,
                busy: 0,
                iterations: 0,
                sleeps: 0,
                receiving: 0,
                windows: VecDeque::new(),
                busy_windows: VecDeque::new(),
                window_began: Instant::now(),
                on_failure,
            };
            thread.run(&handle);
        });
        let thread = thread.map_err(SwitchError::Thread)?;
        *pmd.thread.lock() = Some(thread);
        Ok(pmd)
    }

    /// Runs a job on the packet thread and waits for the job's result. Returns `None` if the thread
    /// has ended.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut PmdThread) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.tell(move |thread| {
            let _ = sender.send(job(thread));
        });
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// Runs a job on the packet thread, without waiting for the job.
    pub(super) fn tell(&self, job: impl FnOnce(&mut PmdThread) + Send + 'static) {
        let mut jobs = self.jobs.lock();
        if let Some(jobs) = jobs.as_mut() {
            jobs.push_back(Box::new(job));
        }
        self.has_jobs.store(true, Ordering::Release);
        drop(jobs);
        self.waker.wake();
    }

    /// Ends the packet thread, and waits for its end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the packet thread of CPU {} has failed", self.core);
        }
    }
}

/// Drops the pending jobs when the thread ends.
struct End<'a>(&'a Pmd);

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.jobs.lock() = None;
    }
}

impl std::fmt::Debug for Pmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pmd").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(
        bridge: Arc<BridgeState>,
        port: Arc<SwitchPort>,
        queue: usize,
        is_pinned: bool,
    ) -> Self {
        let fd = port.fd(queue);
        Self { bridge, port, queue, is_pinned, fd, cycles: 0, windows: VecDeque::new() }
    }

    /// Returns the queue's cycles in the last minute.
    pub(super) fn recent(&self) -> u64 {
        self.cycles - self.windows.front().unwrap_or(&0)
    }
}

impl PmdThread {
    fn run(mut self, handle: &Pmd) {
        let mut empty_polls = 0_u32;
        let mut maintained = Instant::now();
        while !handle.stop.load(Ordering::Acquire) {
            // Writes to the flag only if jobs are waiting: a locked instruction in each iteration
            // would take time.
            if handle.has_jobs.load(Ordering::Acquire)
                && handle.has_jobs.swap(false, Ordering::AcqRel)
            {
                self.run_jobs(handle);
            }
            let start = cycles();
            let received = self.poll_queues();
            let spent = cycles().wrapping_sub(start);
            let next_frame = if self.worker.has_rates() { self.worker.release() } else { None };
            self.iterations += 1;
            if received > 0 {
                empty_polls = 0;
                self.busy += spent;
            } else {
                empty_polls = empty_polls.saturating_add(1);
                self.idle += spent;
            }
            // The clock is read seldom: once in many iterations, or when queues are empty.
            if (self.iterations.is_multiple_of(MAINTAIN_ITERATIONS) || empty_polls > SPIN)
                && maintained.elapsed() >= MAINTAIN
            {
                maintained = Instant::now();
                self.worker.maintain();
                if self.window_began.elapsed() >= WINDOW {
                    self.begin_window();
                }
            }
            if empty_polls > SPIN && !self.is_busy_polling {
                let start = cycles();
                self.sleep(handle, next_frame);
                self.idle += cycles().wrapping_sub(start);
            }
        }
    }

    pub(super) fn set_busy_polling(&mut self, is_busy_polling: bool) {
        self.is_busy_polling = is_busy_polling;
    }

    pub(super) fn clear_statistics(&mut self) {
        (self.idle, self.busy, self.iterations, self.sleeps) = (0, 0, 0, 0);
        self.receiving = 0;
        self.windows.clear();
        self.busy_windows.clear();
        self.window_began = Instant::now();
        for queue in &mut self.queues {
            queue.cycles = 0;
            queue.windows.clear();
        }
        self.worker.clear_statistics();
    }

    /// Stops polling the queues that are not in `stay`.
    pub(super) fn retain(&mut self, stay: &[(Arc<SwitchPort>, usize)]) {
        self.queues.retain(|polled| {
            let is_polled = |(port, queue): &(Arc<SwitchPort>, usize)| {
                Arc::ptr_eq(port, &polled.port) && *queue == polled.queue
            };
            stay.iter().any(is_polled)
        });
    }

    /// From now on, polls `queues`. Queues that were polled before keep their statistics.
    pub(super) fn assign(&mut self, mut queues: Vec<Queue>) {
        for queue in &mut queues {
            let former = self
                .queues
                .iter()
                .find(|old| Arc::ptr_eq(&old.port, &queue.port) && old.queue == queue.queue);
            if let Some(former) = former {
                queue.cycles = former.cycles;
                queue.windows = former.windows.clone();
            }
        }
        self.queues = queues;
    }

    /// Returns the thread's cycles in the last minute.
    pub(super) fn recent(&self) -> u64 {
        self.idle + self.busy - self.windows.front().unwrap_or(&0)
    }

    /// Returns the cycles of iterations with a packet in the last minute.
    pub(super) fn recently_busy(&self) -> u64 {
        self.busy - self.busy_windows.front().unwrap_or(&0)
    }

    fn begin_window(&mut self) {
        self.window_began = Instant::now();
        remember(&mut self.windows, self.idle + self.busy);
        remember(&mut self.busy_windows, self.busy);
        for queue in &mut self.queues {
            remember(&mut queue.windows, queue.cycles);
        }
    }

    pub(super) fn usage(&self) -> Vec<QueueUsage> {
        let usage = |queue: &Queue| QueueUsage {
            port: queue.port.name.clone(),
            queue: queue.queue,
            is_up: queue.port.is_up(),
            is_pinned: queue.is_pinned,
            cycles: queue.cycles,
            recent: queue.recent(),
        };
        self.queues.iter().map(usage).collect()
    }

    fn run_jobs(&mut self, handle: &Pmd) {
        loop {
            let job = handle.jobs.lock().as_mut().and_then(VecDeque::pop_front);
            match job {
                Some(job) => job(self),
                None => return,
            }
        }
    }

    fn poll_queues(&mut self) -> usize {
        let mut total = 0;
        let mut start = cycles();
        self.worker.begin_round();
        for queue in &mut self.queues {
            match queue.port.receive(queue.queue, BATCH, &mut self.batch) {
                Ok(0) => start = cycles(),
                Ok(received) => {
                    total += received;
                    self.receiving += cycles().wrapping_sub(start);
                    // A port returns few super-packets at a time, so further super-packets may be
                    // waiting.
                    let is_heavy = self.worker.has_rates()
                        && self.batch.iter().any(|frame| frame.offload().is_super());
                    if received >= BATCH || is_heavy {
                        self.worker.expect_more(&self.batch);
                    }
                    self.worker.process(&queue.bridge, &queue.port, &mut self.batch);
                    let end = cycles();
                    queue.cycles += end.wrapping_sub(start);
                    start = end;
                }
                Err(error) => {
                    queue.fd = None;
                    (self.on_failure)(&queue.bridge, &queue.port, &error);
                }
            }
        }
        total
    }

    /// Sleeps until a frame or a job arrives, or a queued frame may be sent.
    fn sleep(&mut self, handle: &Pmd, next_frame: Option<Span>) {
        self.sleeps += 1;
        let mut fds = vec![PollFd::from_borrowed_fd(handle.waker.as_fd(), PollFlags::IN)];
        // Do not wait for devices that are known to be gone: the descriptors of such devices would
        // wake this thread again and again.
        let queues = self.queues.iter().filter(|queue| queue.port.may_wake());
        let queues = queues.filter_map(|queue| queue.fd.as_ref());
        fds.extend(queues.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let longest = LONGEST_SLEEP.as_nanos() as u64;
        let pause = next_frame.map_or(longest, |span| span.nanos().min(longest));
        let pause = Timespec { tv_sec: 0, tv_nsec: pause as i64 };
        let _ = poll(&mut fds, Some(&pause));
        handle.waker.clear();
    }
}

fn remember(windows: &mut VecDeque<u64>, cycles: u64) {
    if windows.len() == WINDOWS {
        windows.pop_front();
    }
    windows.push_back(cycles);
}

/// The length of a window. The shown usage covers six windows: a minute, as in Open vSwitch.
const WINDOW: Duration = Duration::from_secs(10);
const WINDOWS: usize = 6;
/// Maximum number of frames received at once.
pub(super) const BATCH: usize = 32;
/// Number of empty polls after which a thread sleeps: these polls take some tens of microseconds.
const SPIN: u32 = 1000;
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Interval of maintenance. Packets wait during a sweep, so each sweep covers a hundredth of the
/// megaflows.
const MAINTAIN: Duration = Duration::from_millis(10);
const MAINTAIN_ITERATIONS: u64 = 1024;
/// Maximum wait for a job's result. A job waits for one batch at most, and a batch for one change
/// of the tables at most.
const PATIENCE: Duration = Duration::from_secs(30);
