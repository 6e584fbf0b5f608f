#![allow(unsafe_code)]

use crate::HostError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the CPUs this thread may run on, in order.
pub fn online_cpus() -> Vec<usize> {
    match sched_getaffinity(Pid::from_raw(0)) {
        Ok(set) => (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
        Err(_) => vec![0],
    }
}

/// Restricts the calling thread, and the threads and programs that it starts, to these CPUs.
pub fn pin_to(cpus: &[usize]) -> Result<(), HostError> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu).map_err(|e| HostError::io(format!("choosing CPU {cpu}"), e))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
        .map_err(|e| HostError::io(format!("pinning to CPUs {cpus:?}"), e))
}

/// Gives the calling thread SCHED_FIFO at the lowest real-time priority: above all ordinary
/// threads, below the kernel's real-time threads.
pub fn real_time() -> Result<(), HostError> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live sched_param, which the kernel only reads; 0 is this thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if failed == 0 {
        Ok(())
    } else {
        // A user namespace provides other missing rights, but not the right to real-time
        // scheduling.
        Err(HostError::Io {
            doing: "asking for SCHED_FIFO".to_owned(),
            source: std::io::Error::last_os_error(),
        })
    }
}

/// Gives a thread of this process ordinary scheduling. If another real-time program keeps the
/// thread from its CPU, the thread then gets the time that the kernel reserves for ordinary
/// threads, and can end.
pub fn usual_scheduling(tid: u32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live sched_param, which the kernel only reads. A thread that has
    // ended is not found.
    unsafe {
        libc::sched_setscheduler(tid.cast_signed(), libc::SCHED_OTHER, &raw const parameters);
    }
}

/// Lets this thread's sleeps end on time: the default timer slack adds 50 µs to each sleep.
pub fn precise_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a plain number of nanoseconds and touches no memory of ours.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0);
    }
}
