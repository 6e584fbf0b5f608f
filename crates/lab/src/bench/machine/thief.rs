use emu::Stalls;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use units::Span;

/// Real-time threads, one on each of the workload's CPUs. At intervals each thread takes its CPU
/// away, as a hypervisor does. Dropping this value ends the threads.
#[derive(Debug)]
pub(super) struct Thief {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Thief {
    pub(super) fn start(stolen: Stalls, cpus: &[usize]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = cpus.iter().map(|cpu| {
            let (stop, cpu) = (Arc::clone(&stop), *cpu);
            std::thread::spawn(move || steal(stolen, cpu, &stop))
        });
        let threads = threads.collect();
        Self { stop, threads }
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn steal(stolen: Stalls, cpu: usize, stop: &AtomicBool) {
    if let Err(error) = host::pin_to(&[cpu]).and_then(|()| host::real_time()) {
        tracing::warn!("CPU time is taken away only if it is idle: {error}");
    }
    let pause = stolen.every.saturating_sub(stolen.length).as_duration();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < stolen.length.as_duration() {
            std::hint::spin_loop();
        }
        // Sleep in short pieces, so that the thread soon notices the request to stop.
        let asleep = Instant::now();
        while let Some(left) = pause.checked_sub(asleep.elapsed())
            && !stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(left.min(Span::from_millis(50).as_duration()));
        }
    }
}
