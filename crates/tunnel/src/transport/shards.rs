use crate::health::Health;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle as Task;
use tokio_util::sync::CancellationToken;

/// Threads that each run a share of the connections with all their tasks, so that events on one
/// connection never wake another thread.
#[derive(Debug)]
pub struct Shards {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    next: AtomicUsize,
    began: Instant,
    heartbeats: Vec<Arc<Heartbeat>>,
}

/// The liveness state of one thread.
#[derive(Debug, Default)]
struct Heartbeat {
    /// The time at which the thread last ran its tasks, in milliseconds since the start.
    beat: AtomicU64,
    has_failed: AtomicBool,
}

/// Marks a task that a thread's sockets depend on. [`Shards::health`] reports a panic of the task.
#[derive(Debug)]
pub(super) struct Essential;

impl Shards {
    /// Starts `count` threads, or one per available CPU. [`super::Tuning`] describes `gather`.
    pub fn start(count: Option<usize>, gather: Duration) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let count = count.unwrap_or(cores).clamp(1, MOST);
        let mut shards = Self {
            handles: Vec::new(),
            threads: Vec::new(),
            stop: CancellationToken::new(),
            next: AtomicUsize::new(0),
            began: Instant::now(),
            heartbeats: Vec::new(),
        };
        for index in 0..count {
            let pause = Mutex::new(GatherPause::new(gather));
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park(move || {
                    pause.lock().unwrap_or_else(PoisonError::into_inner).take();
                })
                .build()?;
            shards.handles.push(runtime.handle().clone());
            let heartbeat = Arc::<Heartbeat>::default();
            shards.heartbeats.push(Arc::clone(&heartbeat));
            let (stop, began) = (shards.stop.clone(), shards.began);
            let thread = std::thread::Builder::new().name(format!("tunnel-{index}"));
            shards.threads.push(thread.spawn(move || {
                PULSE.set(Some(Arc::clone(&heartbeat)));
                runtime.spawn(async move {
                    loop {
                        heartbeat.beat.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                        tokio::time::sleep(BEAT).await;
                    }
                });
                runtime.block_on(stop.cancelled());
                // Do not wait for look-ups at a name server that does not answer.
                runtime.shutdown_background();
            })?);
        }
        Ok(shards)
    }

    pub fn count(&self) -> usize {
        self.handles.len()
    }

    pub fn handle(&self, index: usize) -> &Handle {
        &self.handles[index % self.handles.len()]
    }

    pub fn health(&self) -> Health {
        let failed = |heartbeat: &Arc<Heartbeat>| heartbeat.has_failed.load(Ordering::Relaxed);
        if self.heartbeats.iter().any(failed) || self.threads.iter().any(JoinHandle::is_finished) {
            return Health::Failed;
        }
        let oldest =
            self.heartbeats.iter().map(|heartbeat| heartbeat.beat.load(Ordering::Relaxed)).min();
        let oldest = Duration::from_millis(oldest.unwrap_or(0));
        match self.began.elapsed().saturating_sub(oldest) {
            silence if silence > STALLED => Health::Stalled,
            _ => Health::Good,
        }
    }

    /// Returns the next shard in round-robin order.
    pub fn next(&self) -> &Handle {
        self.handle(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub fn spawn<F>(&self, index: usize, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle(index).spawn(task)
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A shard may itself drop the last reference to all shards.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Essential {
    fn drop(&mut self) {
        if std::thread::panicking() {
            PULSE.with_borrow(|heartbeat| {
                heartbeat
                    .iter()
                    .for_each(|heartbeat| heartbeat.has_failed.store(true, Ordering::Relaxed));
            });
        }
    }
}

/// Records that the calling thread carried this many bytes.
pub(crate) fn carried(bytes: usize) {
    CARRIED.with(|carried| carried.set(carried.get() + bytes as u64));
}

/// Records that the calling thread carried bytes over a path with at least this round-trip time.
pub(crate) fn carried_over(path: Duration) {
    SHORTEST_PATH.with(|shortest| shortest.set(shortest.get().min(path)));
}

thread_local! {
    static PULSE: RefCell<Option<Arc<Heartbeat>>> = const { RefCell::new(None) };
    static CARRIED: Cell<u64> = const { Cell::new(0) };
    static SHORTEST_PATH: Cell<Duration> = const { Cell::new(Duration::MAX) };
}

/// Computes how long a thread pauses before it waits for events. A busy thread pauses, so that a
/// few more packets gather: the largest cost of a thread is to wake up for each packet. A thread
/// with little traffic does not pause. If the RTTs of all paths are long, the pause is longer,
/// because the pause adds little to long RTTs.
#[derive(Debug)]
struct GatherPause {
    least: Duration,
    gather: Duration,
    last: Instant,
    since: Instant,
    carried: u64,
    busy: bool,
    measurements: u32,
}

impl GatherPause {
    fn new(gather: Duration) -> Self {
        let now = Instant::now();
        Self {
            least: gather,
            gather,
            last: now,
            since: now,
            carried: 0,
            busy: false,
            measurements: 0,
        }
    }

    fn take(&mut self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.since);
        if passed >= STRETCH {
            let carried = CARRIED.get();
            let rate = (carried - self.carried) as f64 / passed.as_secs_f64();
            self.busy = rate >= BUSY;
            self.carried = carried;
            self.since = now;
            self.measurements += 1;
            if self.measurements >= LISTENED {
                self.measurements = 0;
                self.gather = gathering(self.least, SHORTEST_PATH.replace(Duration::MAX));
            }
        }
        if self.busy
            && !self.gather.is_zero()
            && now.saturating_duration_since(self.last) < self.gather * 2
        {
            std::thread::sleep(self.gather);
            self.last = Instant::now();
        } else {
            self.last = now;
        }
    }
}

/// Returns a twentieth of the shortest path's RTT, between `least` and four times `least`.
fn gathering(least: Duration, path: Duration) -> Duration {
    match path {
        // No connection has reported its RTT.
        Duration::MAX => least,
        path => (path / 20).clamp(least, least * 4),
    }
}

const BEAT: Duration = Duration::from_secs(1);
/// Time without a run of its tasks after which a thread counts as stalled.
const STALLED: Duration = Duration::from_secs(10);
/// Duration of one rate measurement.
const STRETCH: Duration = Duration::from_millis(2);
/// Number of measurements within which every busy connection reports its RTT.
const LISTENED: u32 = 50;
/// Minimum rate at which gathering pays, in bytes per second. Below 100 Mbit/s, waking up for each
/// packet costs only a few percent of a core, and gathered packets would leave in bursts.
const BUSY: f64 = 12.5e6;
/// Maximum number of threads. One thread runs each connection and the sockets share a port, so more
/// threads would not increase the throughput.
const MOST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_thread_and_a_failed_task_of_a_shard_are_reported() {
        let health = |shards: &Shards| {
            for _ in 0..1000 {
                if shards.health() != Health::Good {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            shards.health()
        };
        let shards = Shards::start(Some(2), Duration::ZERO).unwrap();
        assert_eq!(shards.health(), Health::Good);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let blocked = shards.spawn(1, async move { held.recv() });
        assert_eq!(health(&shards), Health::Stalled);
        drop(release);
        drop(blocked);
        let task = async {
            let _essential = Essential;
            panic!("a panic that a test asks for");
        };
        let shards = Shards::start(Some(2), Duration::ZERO).unwrap();
        shards.spawn(0, async { panic!("a task of one connection") });
        shards.spawn(1, task);
        assert_eq!(health(&shards), Health::Failed);
    }

    #[test]
    fn only_long_round_trips_extend_the_gathering_time() {
        let (least, ms) = (Duration::from_micros(200), Duration::from_millis);
        assert_eq!(gathering(least, Duration::MAX), least);
        assert_eq!(gathering(least, ms(1)), least);
        assert_eq!(gathering(least, ms(10)), Duration::from_micros(500));
        assert_eq!(gathering(least, ms(200)), Duration::from_micros(800));
        assert_eq!(gathering(Duration::ZERO, ms(200)), Duration::ZERO);
    }
}
