use crate::engine::Engine;
use crate::pause::Wakeup;
use crate::{Cable, Direction, EmuError, EmulatorStatistics, Stalls};
use link::LinkConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use units::Span;

/// CPU and scheduling of the emulator's thread.
///
/// Measured with `cargo run --release -p weir-emu --example lateness -- 6 4 1gbit 1ms tcp` on a
/// shared virtual machine of two CPUs with other load on both; TCP with all offloads, medians of
/// six interleaved runs. No run lost a frame outside the model.
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
/// With other load on the CPUs, only real-time scheduling keeps the lateness low. The first row's
/// 49 ms are the kernel's intervention described in `cpu_yield.rs`, which happens once until the
/// emulator detects it. A thread that may run on any CPU moves to the other CPU, and disturbs the
/// measured programs there. An idle link takes 0.3 % of a CPU with each scheduling.
#[derive(Debug, Clone)]
pub struct Scheduling {
    /// The CPU on which the thread runs; any CPU if `None`.
    pub cpu: Option<usize>,
    /// Whether to use SCHED_FIFO, if the kernel grants real-time scheduling.
    pub real_time: bool,
    /// The time before a deadline at which the thread stops sleeping and spins. A sleep ends 50 µs
    /// late on virtual machines, and spinning all the time would cost a core.
    pub spin: Span,
    /// Deliberate stalls, to measure the effect of lateness on a measurement.
    pub stalls: Option<Stalls>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { cpu: None, real_time: true, spin: Span::from_micros(60), stalls: None }
    }
}

/// A running set of cables. Dropping this value stops the thread and closes the ports.
#[derive(Debug)]
pub struct Emulator {
    handle: Handle,
    thread: Option<JoinHandle<Result<EmulatorStatistics, EmuError>>>,
    tid: u32,
}

/// A handle to a running emulator for any thread. A handle outlives the emulator, and then returns
/// an error.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    wakeup: Wakeup,
    stop: Arc<AtomicBool>,
    cables: usize,
}

/// The thread's progress before it serves its cables.
enum Begun {
    Thread(u32),
    Engine(bool),
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
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                let _ = begun.send(Begun::Thread(tid));
                let engine = Engine::new(cables, scheduling, stop, receiver, wakeup);
                let _ = begun.send(Begun::Engine(engine.is_ok()));
                engine?.run()
            })
            .map_err(EmuError::Thread)?;
        let mut own = None;
        loop {
            match (begin.recv_timeout(PATIENCE), own) {
                (Ok(Begun::Thread(tid)), _) => own = Some(tid),
                (Ok(Begun::Engine(true)), Some(tid)) => {
                    return Ok(Self { handle, thread: Some(thread), tid });
                }
                (Ok(Begun::Engine(_)) | Err(RecvTimeoutError::Disconnected), _) => {
                    return Err(match join(thread) {
                        Err(error) => error,
                        Ok(_) => EmuError::Died("it never began".to_owned()),
                    });
                }
                (Err(RecvTimeoutError::Timeout), own) => {
                    own.into_iter().for_each(host::usual_scheduling)
                }
            }
        }
    }

    /// Returns the thread's ID, with which a caller can find the thread's CPU time.
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

    /// Stops the thread and returns the statistics.
    pub fn finish(mut self) -> Result<EmulatorStatistics, EmuError> {
        self.stop();
        match self.thread.take() {
            Some(thread) => join(thread),
            None => Err(EmuError::Died("it was stopped before".to_owned())),
        }
    }

    fn stop(&self) {
        self.handle.stop();
        if self.is_running() {
            host::usual_scheduling(self.tid);
        }
    }
}

impl Handle {
    /// Changes one direction at run time. Queued frames and frames in flight stay.
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

    /// Returns the statistics so far, without the queues' traces, which are available at the end.
    pub fn statistics(&self) -> Result<EmulatorStatistics, EmuError> {
        self.request(|answer| Command::Statistics { answer })
    }

    fn request<T>(&self, command: impl FnOnce(mpsc::Sender<T>) -> Command) -> Result<T, EmuError> {
        let (answer, answered) = mpsc::channel();
        self.commands.send(command(answer)).map_err(|_| EmuError::Ended)?;
        self.wakeup.notify();
        answered.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => EmuError::Starved(PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => EmuError::Ended,
        })
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakeup.notify();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop();
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

/// The time without progress after which the thread counts as a thread without CPU time.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Instant;

    #[test]
    fn an_emulator_starts_and_ends_while_a_real_time_program_uses_its_cpu() {
        let cpu = host::online_cpus()[0];
        let Some(mut program) = real_time_program(cpu) else {
            eprintln!("skipped: real-time scheduling needs root");
            return;
        };
        let scheduling = Scheduling { cpu: Some(cpu), real_time: true, ..Scheduling::default() };
        let ended = Emulator::start(Vec::new(), scheduling).and_then(Emulator::finish);
        let was_used = program.try_wait().unwrap().is_none();
        let _ = program.kill();
        program.wait().unwrap();
        assert!(ended.is_ok(), "{ended:?}");
        assert!(was_used, "the emulator did not end before the other program");
    }

    /// Starts a real-time program that keeps the CPU busy and ends after about a minute.
    fn real_time_program(cpu: usize) -> Option<Child> {
        let (cpu, count) = (cpu.to_string(), "i=0; while [ $i -lt 60000000 ]; do i=$((i+1)); done");
        let words = ["-f", "90", "taskset", "-c", &cpu, "sh", "-c", count];
        let mut child = Command::new("chrt").args(words).spawn().ok()?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            if child.try_wait().ok()?.is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(child)
    }
}
