use crate::engine::Engine;
use crate::{Cable, Direction, EmuError, EmulatorStatistics};
use link::LinkConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use units::Span;

/// How the emulator's thread gets its CPU.
#[derive(Debug, Clone)]
pub struct Scheduling {
    /// The CPU to stay on; wherever the kernel likes if `None`.
    pub cpu: Option<usize>,
    /// SCHED_FIFO where the kernel grants it.
    pub real_time: bool,
    /// From this long before a deadline on it spins instead of sleeping: a sleep ends 50 µs late on
    /// virtual machines, and spinning through all of it would cost a core.
    pub spin: Span,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { cpu: None, real_time: true, spin: Span::from_micros(60) }
    }
}

/// A running set of cables. Dropping it stops the thread and closes the ports.
#[derive(Debug)]
pub struct Emulator {
    control: Arc<Control>,
    changes: mpsc::Sender<Change>,
    cables: usize,
    thread: Option<JoinHandle<Result<EmulatorStatistics, EmuError>>>,
    tid: u32,
}

pub(crate) struct Change {
    pub(crate) cable: usize,
    pub(crate) direction: Direction,
    pub(crate) config: LinkConfig,
    pub(crate) outcome: mpsc::Sender<Result<(), EmuError>>,
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) stop: AtomicBool,
    pub(crate) changed: AtomicBool,
    pub(crate) published: Mutex<Option<EmulatorStatistics>>,
}

impl Emulator {
    pub fn start(cables: Vec<Cable>, scheduling: Scheduling) -> Result<Self, EmuError> {
        let control = Arc::new(Control::default());
        let (changes, wanted) = mpsc::channel();
        let (begun, begin) = mpsc::channel();
        let count = cables.len();
        let inside = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name("emulated link".to_owned())
            .spawn(move || {
                let engine = Engine::new(cables, scheduling, inside, wanted);
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                let ready = engine.as_ref().map(|_| tid).map_err(|_| ());
                let _ = begun.send(ready);
                engine?.run()
            })
            .map_err(EmuError::Thread)?;
        match begin.recv() {
            Ok(Ok(tid)) => Ok(Self { control, changes, cables: count, thread: Some(thread), tid }),
            Ok(Err(())) | Err(_) => Err(match join(thread) {
                Err(error) => error,
                Ok(_) => EmuError::Died("it never began".to_owned()),
            }),
        }
    }

    /// The thread's number, to tell its CPU time from others'.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Changes one direction while it runs: what is queued or under way stays.
    pub fn change(
        &self,
        cable: usize,
        direction: Direction,
        config: LinkConfig,
    ) -> Result<(), EmuError> {
        if cable >= self.cables {
            return Err(EmuError::NoSuchCable(cable));
        }
        let (outcome, result) = mpsc::channel();
        let died = || EmuError::Died("it takes no changes any more".to_owned());
        self.changes
            .send(Change { cable, direction, config, outcome })
            .map_err(|_| died())?;
        self.control.changed.store(true, Ordering::Release);
        result.recv().map_err(|_| died())?
    }

    /// The latest figures, at most a fraction of a second old; `None` in the very first moments.
    pub fn statistics(&self) -> Option<EmulatorStatistics> {
        locked(&self.control.published).clone()
    }

    /// Whether the thread still serves its cables; if not, [`finish`](Self::finish) says why.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops and tells what happened.
    pub fn finish(mut self) -> Result<EmulatorStatistics, EmuError> {
        self.control.stop.store(true, Ordering::Release);
        match self.thread.take() {
            Some(thread) => join(thread),
            None => Err(EmuError::Died("it was stopped before".to_owned())),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The value is replaced as a whole, so a panic elsewhere cannot leave it half written.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(
    thread: JoinHandle<Result<EmulatorStatistics, EmuError>>,
) -> Result<EmulatorStatistics, EmuError> {
    thread.join().unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(EmuError::Died(text.unwrap_or_else(|| "a panic".to_owned())))
    })
}
