//! Reads signals of this machine several times. Sends nothing and changes nothing.

mod connections;
mod counters;
mod drops;
mod ended;
mod facts;
mod focus;
mod observer;
mod pace;
mod processes;
mod sockets;

pub use drops::DropWatch;
pub use focus::Focus;
pub use observer::{Observer, Plan};

use crate::DoctorError;
use crate::recording::{Machine, Recording, UdpSocket};
use probe::tree::Tree;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use units::Span;

/// Observes this machine for the plan's time. `stop` ends the observation early; the samples until
/// then count.
pub fn machine(plan: &Plan, stop: &AtomicBool) -> Result<Recording, DoctorError> {
    if let Focus::Process(pid) = plan.focus
        && process_name(pid).is_none()
    {
        return Err(DoctorError::NoProcess(pid));
    }
    let mut recording = Recording::new(Machine::default());
    recording.focus = (plan.focus != Focus::All).then(|| plan.focus.to_string());
    let mut observer = Observer::begin(Tree::here(), plan.clone());
    let end = Instant::now() + plan.time.as_duration();
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(observer.pause().as_duration()).max(Duration::from_millis(1)));
        observer.sample();
    }
    observer.finish("this machine", &mut recording);
    match plan.focus {
        Focus::All => Ok(recording),
        _ if has_connections(&recording) => Ok(recording),
        Focus::Process(pid) => without_connection(pid, recording),
        _ => Err(DoctorError::NoFlow(plan.focus.to_string())),
    }
}

/// Whether a connection was in a sample, or ended between two samples.
fn has_connections(recording: &Recording) -> bool {
    recording.periods.iter().any(|period| {
        period.short_lived.is_some_and(|short| short.connections > 0)
            || period.samples.iter().any(|sample| !sample.connections.is_empty())
    })
}

/// Decides what to do if the process has no connection: the process may wait for a name server
/// before it connects.
fn without_connection(pid: u32, recording: Recording) -> Result<Recording, DoctorError> {
    let is_of_process = |udp: &UdpSocket| udp.holders.iter().any(|holder| holder.pid == pid);
    let last = recording.periods.last().and_then(|period| period.samples.last());
    let asks = last.is_some_and(|sample| {
        sample.udp.iter().any(|udp| udp.asks_for_names() && is_of_process(udp))
    });
    if asks {
        return Ok(recording);
    }
    match process_name(pid) {
        Some(name) => Err(DoctorError::NoConnection { pid, name }),
        None => Err(DoctorError::NoProcess(pid)),
    }
}

fn process_name(pid: u32) -> Option<String> {
    let line = Tree::here().line(&format!("/proc/{pid}/comm"))?;
    Some(units::foreign(line).to_string())
}

/// Returns the CPU time that the calling thread has used so far, for [`Plan::spent`].
pub fn own_cpu_time() -> Span {
    probe::clock::own_thread_cpu_time()
}

/// Returns the CPUs that this machine uses; empty if the CPUs cannot be seen.
pub fn cpus() -> Vec<usize> {
    facts::cores(&Tree::here()).unwrap_or_default()
}

/// The default length of an observation: long enough to measure rates, short enough to wait for.
pub const TIME: Span = Span::from_millis(3_000);
pub const INTERVAL: Span = Span::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Period, ShortLived};
    use units::Bytes;

    #[test]
    fn short_connections_between_two_samples_match_a_focus() {
        let mut recording = Recording::new(Machine::default());
        recording.periods.push(Period::default());
        assert!(!has_connections(&recording));
        let short = ShortLived { connections: 1, bytes: Bytes::new(900) };
        recording.periods[0].short_lived = Some(short);
        assert!(has_connections(&recording));
    }
}
