//! Measures how many millions of 64-byte frames per second pass between two threads, through a ring
//! in shared memory and through virtio rings.
//!
//! `cargo bench -p weir-port --bench ring`. With `WEIR_BENCH_SECONDS=1`, each case takes a second.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use port::{DuplexPort, FramePool, RingPort, VhostDevice, VhostDriver};

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::var("WEIR_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(3.0));
    let path = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    for _ in 0..3 {
        let place = path.to_string_lossy();
        let creator = RingPort::create(&place)?;
        let attached = RingPort::attach(&place)?;
        report("shared-memory ring", &attached, &creator, time)?;
        drop((creator, attached));

        let device = VhostDevice::listen(&path, 1)?;
        let driver = VhostDriver::connect(&path)?;
        report("vhost-user, driver to device", &driver, &device, time)?;
        report("vhost-user, device to driver", &device, &driver, time)?;
    }
    Ok(())
}

fn report(
    name: &str,
    from: &dyn DuplexPort,
    to: &dyn DuplexPort,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !(from.is_connected() && to.is_connected()) {
        if Instant::now() > deadline {
            return Err(format!("{name}: no connection: {}", from.describe()).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let stop = AtomicBool::new(false);
    let (count, spent) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(0);
            let frame = [0x5a; 64];
            let packets = [&frame[..]; 64];
            while !stop.load(Ordering::Relaxed) {
                if from.send(&packets).is_ok_and(|accepted| accepted.sent == 0) {
                    std::hint::spin_loop();
                }
            }
        });
        pin(1);
        FramePool::prepare(1024);
        let mut batch = Vec::with_capacity(32);
        let start = Instant::now();
        let mut count = 0_u64;
        while start.elapsed() < time {
            for _ in 0..1000 {
                if to.receive(0, &mut batch, 32).is_err() {
                    break;
                }
                count += batch.len() as u64;
                batch.clear();
            }
        }
        let spent = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        let _ = sender.join();
        (count, spent)
    });
    println!("{name:32} {:7.2} Mpps of 64 bytes", count as f64 / spent.as_secs_f64() / 1e6);
    while to.receive(0, &mut Vec::new(), 4096)? > 0 {}
    Ok(())
}

/// Pins the calling thread to a CPU. Without pinning, the scheduler may run both threads on one
/// CPU, and its cache then holds the whole ring.
fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    if cpus.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus)).is_err() {
        eprintln!("this thread is not on CPU {cpu}: the machine has too few");
    }
}
