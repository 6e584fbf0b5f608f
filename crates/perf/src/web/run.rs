use super::connection::Target;
use super::engine::Engine;
use super::schedule::Schedule;
use super::tally::Tally;
use super::{WebOptions, WebOutcome, tls};
use crate::PerfError;
use crate::event::Stop;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeVal;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use units::Span;

/// Measures until the time is over or `stop` is called. After a call to stop, the outcome has the
/// results so far.
pub fn run(options: &WebOptions, stop: &Stop) -> Result<WebOutcome, PerfError> {
    options.check()?;
    let tls = match options.address.is_tls {
        true => Some((tls::config(options)?, options.address.server_name()?)),
        false => None,
    };
    let (address, first) = find(options)?;
    if let Some((config, name)) = &tls {
        tls::warm_up(first, config, name, options.timeout);
    }
    let request = options.request();
    let target = Target { address, request, tls };
    allow_sockets(options.connections);
    let threads = options.threads;
    let barrier = Barrier::new(threads as usize);
    let begin = OnceLock::new();
    let share = |number: u32| {
        options.connections / threads + u32::from(number < options.connections % threads)
    };
    let work = |number: u32| -> Result<(Tally, Span, Span), PerfError> {
        let pinned = options.affinity.map_or(Ok(()), pin);
        let engine = pinned.and_then(|()| Engine::new(options, &target, stop, share(number)));
        let opened = engine.and_then(|mut engine| engine.open().map(|()| engine));
        // Every thread must reach the barrier, even after an error.
        barrier.wait();
        let begin = *begin.get_or_init(Instant::now);
        let counts = begin + options.omit.as_duration();
        let until = counts + options.time.as_duration();
        let schedule = options.rate.map(|rate| Schedule::new(begin, rate, number, threads));
        let cpu = cpu_of_this_thread();
        let tally = opened?.run(begin, counts, until, schedule)?;
        let elapsed = Instant::now().min(until).saturating_duration_since(counts);
        Ok((tally, elapsed.into(), cpu_of_this_thread().saturating_sub(cpu)))
    };
    let outcomes: Vec<Result<(Tally, Span, Span), PerfError>> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let (mut all, mut longest, mut cpu) = (Tally::default(), Span::ZERO, Span::ZERO);
    for outcome in outcomes {
        let (tally, elapsed, used) = outcome?;
        all.merge(tally);
        longest = longest.max(elapsed);
        cpu = cpu + used;
    }
    if longest == Span::ZERO {
        return Err(PerfError::Interrupted);
    }
    Ok(WebOutcome::new(all, longest, cpu))
}

/// Returns the first of the server's addresses that accepts a connection, and the connection.
fn find(options: &WebOptions) -> Result<(SocketAddr, TcpStream), PerfError> {
    let mut failure = None;
    for address in options.address.resolve()? {
        match TcpStream::connect_timeout(&address, options.timeout) {
            Ok(socket) => return Ok((address, socket)),
            Err(error) => {
                failure.get_or_insert((address, error));
            }
        }
    }
    let Some((address, error)) = failure else {
        return Err(PerfError::Usage("this name has no address".to_owned()));
    };
    let peer = address.to_string();
    Err(match error.kind() {
        ErrorKind::ConnectionRefused => PerfError::System {
            what: format!("no web server listens at {peer}: start it, or correct the port"),
            source: error,
        },
        ErrorKind::TimedOut => PerfError::NoAnswer { peer, within: options.timeout },
        _ => PerfError::Unreachable { peer, reason: error },
    })
}

/// Raises the soft limit of open files to the number that the connections need.
fn allow_sockets(connections: u32) {
    let needed = u64::from(connections) + OTHER_FILES;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < needed
    {
        // If this fails, opening the sockets fails with advice.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
    }
}

fn pin(cpu: usize) -> Result<(), PerfError> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(PerfError::Usage(format!("--affinity {cpu}: there is no such CPU")));
    }
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|_| {
        PerfError::Usage(format!("--affinity {cpu}: there is no such CPU, or it may not be used"))
    })
}

fn cpu_of_this_thread() -> Span {
    let span = |time: TimeVal| {
        let micros = time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs();
        Span::from(Duration::from_micros(micros))
    };
    match getrusage(UsageWho::RUSAGE_THREAD) {
        Ok(usage) => span(usage.user_time()) + span(usage.system_time()),
        Err(_) => Span::ZERO,
    }
}

const OTHER_FILES: u64 = 64;
