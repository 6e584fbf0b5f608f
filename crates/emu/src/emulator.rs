use crate::engine::Engine;
use crate::pause::Wakeup;
use crate::{Cable, Direction, EmuError, EmulatorStatistics, Stalls};
use link::LinkConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use units::Span;

/// CPU and scheduling of the emulator's thread.
///
/// Measured with `cargo run --release -p weir-emu --example lateness -- 6 4 1gbit 1ms tcp` on a
/// shared virtual machine of two CPUs with other load on both; TCP with all offloads, medians of
/// six interleaved runs. No frame was lost outside the model in any of them.
///
/// | scheduling | p50 | p99 | max | CPU |
/// | --- | --- | --- | --- | --- |
/// | FIFO, one CPU, spin 60 us | 7 us | 289 us | 49 ms | 83 % |
/// | FIFO, one CPU, spin 20 us | 12 us | 159 us | 1.9 ms | 79 % |
/// | FIFO, one CPU, no spin | 18 us | 183 us | 1.6 ms | 79 % |
/// | FIFO, any CPU, spin 60 us | 0.2 us | 141 us | 0.7 ms | 80 % |
/// | FIFO, any CPU, no spin | 17 us | 317 us | 2.5 ms | 79 % |
/// | ordinary, any CPU, spin 60 us | 121 us | 4850 us | 10 ms | 61 % |
///
/// With other load on the CPUs, real-time scheduling makes the difference. The first row's 49 ms
/// are the kernel's intervention described in `cpu_yield.rs`, once until the emulator detects it. A
/// thread that may move escapes to the other CPU, and disturbs the measured programs there. An idle
/// link takes 0.3 % of a CPU in each.
#[derive(Debug, Clone)]
pub struct Scheduling {
    /// The CPU to stay on; any CPU if `None`.
    pub cpu: Option<usize>,
    /// SCHED_FIFO, if the kernel grants it.
    pub real_time: bool,
    /// From this long before a deadline the thread spins instead of sleeping: a sleep ends 50 µs
    /// late on virtual machines, and spinning all the time would cost a core.
    pub spin: Span,
    /// Stalls on purpose, for measurements of what lateness does to a figure.
    pub stalls: Option<Stalls>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { cpu: None, real_time: true, spin: Span::from_micros(60), stalls: None }
    }
}

/// A running set of cables. Dropping it stops the thread and closes the ports.
#[derive(Debug)]
pub struct Emulator {
    handle: Handle,
    thread: Option<JoinHandle<Result<EmulatorStatistics, EmuError>>>,
    tid: u32,
}

/// A handle to a running emulator for any thread. It outlives the emulator, and then returns an
/// error.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    wakeup: Wakeup,
    stop: Arc<AtomicBool>,
    cables: usize,
}

/// A request to the emulator's thread, served between two polls of its ports.
#[derive(Debug)]
pub(crate) enum Command {
    Change {
        cable: usize,
        direction: Direction,
        config: Box<LinkConfig>,
        answer: mpsc::Sender<Result<(), EmuError>>,
    },
    Statistics {
        answer: mpsc::Sender<EmulatorStatistics>,
    },
}

impl Emulator {
    pub fn start(cables: Vec<Cable>, scheduling: Scheduling) -> Result<Self, EmuError> {
        let stop = Arc::new(AtomicBool::new(false));
        let wakeup = Wakeup::new()?;
        let (commands, receiver) = mpsc::channel();
        let handle = Handle {
            commands,
            wakeup: wakeup.clone(),
            stop: Arc::clone(&stop),
            cables: cables.len(),
        };
        let (begun, begin) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("emulated link".to_owned())
            .spawn(move || {
                let engine = Engine::new(cables, scheduling, stop, receiver, wakeup);
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                let ready = engine.as_ref().map(|_| tid).map_err(|_| ());
                let _ = begun.send(ready);
                engine?.run()
            })
            .map_err(EmuError::Thread)?;
        match begin.recv() {
            Ok(Ok(tid)) => Ok(Self { handle, thread: Some(thread), tid }),
            Ok(Err(())) | Err(_) => Err(match join(thread) {
                Err(error) => error,
                Ok(_) => EmuError::Died("it never began".to_owned()),
            }),
        }
    }

    /// The thread's ID, to distinguish its CPU time from others'.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the thread still serves its cables; if not, [`finish`](Self::finish) says why.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops and returns the statistics.
    pub fn finish(mut self) -> Result<EmulatorStatistics, EmuError> {
        self.handle.stop();
        match self.thread.take() {
            Some(thread) => join(thread),
            None => Err(EmuError::Died("it was stopped before".to_owned())),
        }
    }
}

impl Handle {
    /// Changes one direction at run time. Frames that are queued or in flight stay.
    pub fn change(
        &self,
        cable: usize,
        direction: Direction,
        config: LinkConfig,
    ) -> Result<(), EmuError> {
        if cable >= self.cables {
            return Err(EmuError::NoSuchCable(cable));
        }
        let config = Box::new(config);
        self.request(|answer| Command::Change { cable, direction, config, answer })?
    }

    /// The statistics so far, without the queues' traces, which are available at the end.
    pub fn statistics(&self) -> Result<EmulatorStatistics, EmuError> {
        self.request(|answer| Command::Statistics { answer })
    }

    fn request<T>(&self, command: impl FnOnce(mpsc::Sender<T>) -> Command) -> Result<T, EmuError> {
        let (answer, answered) = mpsc::channel();
        self.commands.send(command(answer)).map_err(|_| EmuError::Ended)?;
        self.wakeup.notify();
        answered.recv().map_err(|_| EmuError::Ended)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakeup.notify();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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
