//! Stacks of every CPU at fixed intervals of busy time: the kernel's perf events.
//!
//! A timer of each CPU interrupts whatever runs there. The kernel writes the stack into a ring, and
//! a thread of this process reads the rings. A stack of the idle task counts only if a soft
//! interrupt has interrupted the idle task, as on an idle CPU that receives packets. The names of
//! kernel functions come from `/proc/kallsyms`, the names of user functions from the symbol table
//! of their file.

mod names;
mod ring;
mod symbols;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use units::{Span, Time};

use crate::ProbeError;
use crate::cpu::CpuSnapshot;
use crate::error::read_text;
use names::{FileNames, Files, Maps};
pub use names::{KernelNames, SOFTIRQS};
use ring::{Raw, Ring};
pub use symbols::Symbols;

#[derive(Debug)]
pub struct Profiler {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Taken>>,
}

/// The stack of a CPU at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`.
    pub taken: Time,
    pub cpu: usize,
    /// The thread's name, then the functions from the outermost to the innermost.
    pub frames: Vec<Arc<str>>,
}

/// The samples between [`Profiler::start`] and [`Profiler::stop`].
#[derive(Debug, Default)]
pub struct Profile {
    pub samples: Vec<Sample>,
    /// The number of stacks lost because a ring was full.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Taken {
    raw: Vec<Raw>,
    lost: u64,
    threads: HashMap<u32, String>,
    maps: HashMap<u32, Maps>,
    files: Files,
}

impl Profiler {
    pub fn start(kernel: &KernelNames) -> Result<Self, ProbeError> {
        let softirqs = kernel.softirqs();
        let cpus = CpuSnapshot::read()?;
        let rings: Result<Vec<Ring>, ProbeError> =
            cpus.online().map(|cpu| Ring::open(cpu, INTERVAL)).collect();
        let rings = rings?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let read = move || {
            let mut taken = Taken::default();
            while !asked.load(Ordering::Acquire) {
                std::thread::park_timeout(LOOK);
                taken.read(&rings, &softirqs);
            }
            taken
        };
        let reader = std::thread::Builder::new().name("weir-profile".to_owned()).spawn(read);
        let reader = reader.map_err(|source| ProbeError::Kernel { what: "a thread", source })?;
        Ok(Self { stop, reader: Some(reader) })
    }

    /// Ends sampling and finds the functions' names.
    pub fn stop(mut self, kernel: &KernelNames) -> Profile {
        let ended = self.end();
        let taken = ended.map(|taken| taken.unwrap_or_else(|panic| resume_unwind(panic)));
        let taken = taken.unwrap_or_default();
        let mut kept: HashMap<String, Arc<str>> = HashMap::new();
        let mut user = FileNames::new(taken.files);
        let mut named = Vec::with_capacity(taken.raw.len());
        let unknown = Maps::default();
        for raw in &taken.raw {
            let thread = taken.threads.get(&raw.tid).map_or("[unknown]", String::as_str);
            let maps = taken.maps.get(&raw.pid).unwrap_or(&unknown);
            let mut frames: Vec<Arc<str>> = Vec::with_capacity(1 + raw.kernel.len());
            let mut push = |name: &str| {
                if !kept.contains_key(name) {
                    kept.insert(name.to_owned(), Arc::from(name));
                }
                // Calls within one function, or within a file without names, become one frame.
                let name = kept.get(name).filter(|name| frames.last() != Some(*name));
                frames.extend(name.map(Arc::clone));
            };
            push(thread);
            raw.user.iter().rev().for_each(|address| push(user.name(maps, *address)));
            raw.kernel.iter().rev().for_each(|address| push(kernel.name(*address)));
            named.push(Sample { taken: raw.taken, cpu: raw.cpu, frames });
        }
        Profile { samples: named, lost: taken.lost }
    }

    fn end(&mut self) -> Option<std::thread::Result<Taken>> {
        let reader = self.reader.take()?;
        self.stop.store(true, Ordering::Release);
        reader.thread().unpark();
        Some(reader.join())
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.end();
    }
}

impl Taken {
    fn read(&mut self, rings: &[Ring], softirqs: &[Range<u64>]) {
        let is_softirq = |address: &u64| softirqs.iter().any(|code| code.contains(address));
        let keep = |raw: &Raw| raw.tid != IDLE || raw.kernel.iter().any(is_softirq);
        let begun = self.raw.len();
        for ring in rings {
            let room = MOST_SAMPLES.saturating_sub(self.raw.len());
            self.lost += ring.read(&mut self.raw, room, keep);
        }
        // Read a program's names early, because the program may end before the profile ends.
        let mut looked: HashSet<u32> = HashSet::new();
        for raw in self.raw.get(begun..).unwrap_or_default() {
            let Some(address) = raw.user.first() else {
                self.threads.entry(raw.tid).or_insert_with(|| name_of(raw.tid));
                continue;
            };
            let known = self.maps.get(&raw.pid).is_some_and(|maps| maps.contains(*address));
            // A process that has executed another program has a new name and other files.
            if !known && looked.insert(raw.pid) {
                self.threads.insert(raw.tid, name_of(raw.tid));
                let maps = Maps::of(raw.pid);
                self.files.open(raw.pid, &maps);
                self.maps.entry(raw.pid).or_default().extend(maps);
            }
            self.threads.entry(raw.tid).or_insert_with(|| name_of(raw.tid));
        }
    }
}

fn name_of(tid: u32) -> String {
    if tid == IDLE {
        return "[idle]".to_owned();
    }
    let comm = read_text(format!("/proc/{tid}/comm")).unwrap_or_default();
    match comm.trim_end() {
        "" => format!("thread {tid}"),
        name => name.to_owned(),
    }
}

/// The time between two stacks of a CPU. This time has no small common multiple with the periods of
/// the kernel's timers.
pub const INTERVAL: Span = Span::from_nanos(1_003_009);
/// The thread ID of the idle task of each CPU.
const IDLE: u32 = 0;
const LOOK: Duration = Duration::from_millis(25);
/// Maximum number of samples, to bound the memory of a profile.
const MOST_SAMPLES: usize = 400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use testing::{Attempt, Need};

    #[test]
    fn a_busy_thread_appears_with_its_name_and_its_time() {
        let names = KernelNames::read().unwrap();
        if let Err(error @ ProbeError::NotSupported { .. }) = Profiler::start(&names) {
            return testing::skip_because(Need::PerfEvents, error);
        }
        // The kernel may charge the thread with time that a hypervisor stole, in which no samples
        // are taken.
        testing::undisturbed("samples of a busy thread", |_| {
            let profiler = Profiler::start(&names).unwrap();
            let busy = std::thread::Builder::new().name("spins-here".to_owned());
            let spin = || {
                let begun = crate::clock::own_thread_cpu_time();
                while (crate::clock::own_thread_cpu_time() - begun) < Span::from_millis(120) {}
            };
            busy.spawn(spin).unwrap().join().unwrap();
            let profile = profiler.stop(&names);
            let of_idle = profile.samples.iter().filter(|sample| &*sample.frames[0] == "[idle]");
            let softirq =
                |sample: &Sample| sample.frames.iter().any(|at| SOFTIRQS.contains(&&**at));
            assert!(of_idle.clone().all(softirq), "{:?}", of_idle.collect::<Vec<_>>());
            let own = profile.samples.iter().filter(|sample| &*sample.frames[0] == "spins-here");
            let file = |name: &Arc<str>| name.starts_with('[') && name.contains("] ");
            let named = own.clone().filter(|sample| sample.frames.iter().any(file));
            // Only root may open the files in `map_files`.
            let files = std::fs::read_dir("/proc/self/map_files").unwrap();
            let may_name = files.flatten().any(|file| std::fs::File::open(file.path()).is_ok());
            match own.count() > 20 && (named.count() > 0 || !may_name) {
                true => Attempt::Right(()),
                false => Attempt::Wrong(format!("{:?}", profile.samples)),
            }
        });
    }
}
