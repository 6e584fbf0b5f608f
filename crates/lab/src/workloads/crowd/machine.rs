//! Many connections at once: the rate of new connections, the memory of idle connections, and the
//! shares of busy connections.
//!
//! Many threads open the idle connections first. A connection counts as open once one byte has
//! crossed it in both directions. The workload then reads the memory. With all idle connections
//! open, the busy connections send for the lab's time.

use super::busy::{Arrivals, Busy};
use super::memory::Memory;
use super::settings::CrowdSettings;
use crate::bench::machine::{Caller, Listener, MachineStep, Measured, Pair, Roles, Testbed};
use crate::model::{Failure, Measurement};
use host::Namespace;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;
use units::Span;

pub(super) fn measure(
    settings: CrowdSettings,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    allow_files(settings.idle + settings.busy)?;
    let near = testbed.namespace(&step.ends.from)?;
    let listener = Listener::open(step, testbed)?;
    let (arrivals, apart) = (Arrivals::default(), Barrier::new(LANES as usize + 1));
    std::thread::scope(|scope| {
        let _closing = listener.closing();
        for _ in 0..LANES {
            scope.spawn(|| serve(&listener, &arrivals, step, scope, &apart));
        }
        // From here on, new descriptors are only in this thread's table, so a descriptor that this
        // thread closes is closed for good.
        apart.wait();
        Pair::measure(step, testbed, &listener, |_, caller, roles| {
            crowd(step, &near, &caller, settings, roles, &arrivals)
        })
    })
}

/// Estimates the time to open the idle connections.
pub(super) fn setting_up(idle: u32) -> Span {
    Span::from_millis(u64::from(idle) / EXPECTED_EACH_MS)
}

fn crowd(
    step: &MachineStep<'_>,
    near: &Namespace,
    caller: &Caller<'_>,
    settings: CrowdSettings,
    roles: &Roles,
    arrivals: &Arrivals,
) -> Result<Measured, Failure> {
    let mut result = Measurement::default();
    inside(step, near, || caller.warm_up(&[PASSING], &mut [0]).map(drop))?;
    let before = Memory::read(roles)?;
    let begun = Instant::now();
    let resting = stand(step, near, caller, settings.idle)?;
    if !resting.is_empty() {
        let rate = resting.len() as f64 / begun.elapsed().as_secs_f64();
        result.record("setups_s", Some(rate));
    }
    let standing = Memory::read(roles)?;
    standing.account(&before, resting.len(), &mut result);
    let busy = Busy::connect(step, near, caller, settings.busy, arrivals)?;
    let window = busy.measure(step, roles, &mut result)?;
    Memory::read(roles)?.account_peak(&mut result);
    result.congestion_control = step.system.congestion.as_ref().map(|name| name.get_ref().clone());
    drop(resting);
    Ok(Measured::between_ends(step, window, result))
}

/// Opens `count` connections and exchanges one byte over each connection.
pub(in crate::workloads) fn stand(
    step: &MachineStep<'_>,
    near: &Namespace,
    caller: &Caller<'_>,
    count: u32,
) -> Result<Vec<TcpStream>, Failure> {
    let lane = |number: u32| -> Result<Vec<TcpStream>, Failure> {
        let own = count / LANES + u32::from(number < count % LANES);
        let calls = (0..own).map(|_| caller.call(&[RESTING], &mut [0]).map(|call| call.socket));
        calls.collect()
    };
    std::thread::scope(|scope| {
        let lanes: Vec<ScopedJoinHandle<'_, _>> = (0..LANES)
            .map(|number| scope.spawn(move || inside(step, near, || lane(number))))
            .collect();
        let mut all = Vec::with_capacity(count as usize);
        for lane in lanes {
            let stood = lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(stood.map_err(|failure| counted(failure, count))?);
        }
        Ok(all)
    })
}

fn counted(failure: Failure, count: u32) -> Failure {
    match failure {
        Failure::Workload(text) => {
            Failure::Workload(format!("while {count} connections were opened: {text}"))
        }
        failure => failure,
    }
}

/// Accepts connections and reads their kind from the first byte. Each busy or talking connection
/// gets a thread of its own.
///
/// Uses a file descriptor table of its own: the limit applies to each table, and this process also
/// holds the client's side of every connection. A connection accepted here must therefore be closed
/// here.
pub(in crate::workloads) fn serve<'scope>(
    listener: &'scope Listener,
    arrivals: &'scope Arrivals,
    step: &MachineStep<'_>,
    scope: &'scope Scope<'scope, '_>,
    apart: &Barrier,
) -> Result<(), Failure> {
    let unshared = unshare(CloneFlags::CLONE_FILES);
    apart.wait();
    unshared.map_err(|error| Failure::io("unsharing the file descriptor table", &error.into()))?;
    host::pin_to(&step.cpus.to)?;
    let mut resting = Vec::new();
    while let Some(peer) = listener.next()? {
        let mut kind = [0];
        if listener.read(&peer, &mut kind) == 0
            || std::io::Write::write_all(&mut &peer, &kind).is_err()
        {
            continue;
        }
        match kind[0] {
            RESTING => resting.push(peer),
            BUSY => {
                // The new thread inherits this thread's CPUs and descriptor table.
                scope.spawn(move || arrivals.receive(listener, &peer));
            }
            TALKING => {
                scope.spawn(move || echo(listener, &peer));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sends back all bytes until the peer or the listener closes.
fn echo(listener: &Listener, peer: &TcpStream) {
    let mut block = vec![0; MESSAGE];
    loop {
        match listener.read(peer, &mut block) {
            0 => return,
            count => {
                if std::io::Write::write_all(&mut &*peer, &block[..count]).is_err() {
                    return;
                }
            }
        }
    }
}

/// Runs `work` on a thread in the client's host, on that host's CPUs.
pub(in crate::workloads) fn inside<T: Send>(
    step: &MachineStep<'_>,
    near: &Namespace,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    near.run(|| {
        host::pin_to(&step.cpus.from)?;
        Ok(work())
    })?
}

/// Raises the limit on open files. A single table holds the client's side of all connections, and
/// the programs in between inherit the limit.
pub(in crate::workloads) fn allow_files(connections: u32) -> Result<(), Failure> {
    let needed = u64::from(connections) + OTHER_FILES;
    let has = getrlimit(Resource::Nofile);
    if has.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = has.maximum.map(|maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|_| {
        Failure::Workload(format!(
            "{connections} connections need {needed} open files, and this process may have {}: raise \
             its hard limit (`ulimit -Hn {needed}`)",
            has.maximum.unwrap_or(needed),
        ))
    })
}

/// First bytes of a connection, which tell the server the connection's kind.
pub(in crate::workloads) const PASSING: u8 = b'p';
const RESTING: u8 = b'r';
pub(super) const BUSY: u8 = b'b';
/// The first byte of a connection over which the server returns each message to the client.
pub(in crate::workloads) const TALKING: u8 = b't';
/// Number of threads that open connections at the same time.
pub(in crate::workloads) const LANES: u32 = 32;
const OTHER_FILES: u64 = 500;
/// Largest message, in bytes.
const MESSAGE: usize = 64 << 10;
/// Number of connections that open in a millisecond, for the estimate.
const EXPECTED_EACH_MS: u64 = 3;
