//! Measures a service through a pair of programs.

use super::event;
use super::settings::{Event, TunnelledSettings};
use crate::bench::machine::{Caller, Listener, MachineStep, Measured, Pair, Roles, Testbed};
use crate::model::{Failure, Measurement};
use crate::workloads::crowd::{
    Arrivals, Busy, LANES, Memory, PASSING, TALKING, allow_files, inside, serve, stand,
};
use host::Namespace;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use units::Time;

pub(super) fn measure(
    settings: TunnelledSettings,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    allow_files(settings.idle + settings.busy + 1)?;
    let near = testbed.namespace(&step.ends.from)?;
    let listener = Listener::open(step, testbed)?;
    let (arrivals, apart) = (Arrivals::default(), Barrier::new(LANES as usize + 1));
    std::thread::scope(|scope| {
        let _closing = listener.closing();
        for _ in 0..LANES {
            scope.spawn(|| serve(&listener, &arrivals, step, scope, &apart));
        }
        apart.wait();
        if settings.event == Event::UdpBlocked {
            event::block_udp(step, testbed)?;
        }
        Pair::measure(step, testbed, &listener, |pair, caller, roles| {
            let service = Service { settings, step, near, caller, roles, arrivals: &arrivals };
            service.measure(testbed, pair)
        })
    })
}

/// A service behind a pair of programs that run.
struct Service<'a> {
    settings: TunnelledSettings,
    step: &'a MachineStep<'a>,
    near: Namespace,
    caller: Caller<'a>,
    roles: &'a Roles,
    arrivals: &'a Arrivals,
}

impl Service<'_> {
    fn measure(&self, testbed: &Testbed, pair: Option<&mut Pair>) -> Result<Measured, Failure> {
        let (settings, step, near) = (self.settings, self.step, &self.near);
        if settings.event == Event::UdpBlocked {
            let answer = event::answered(settings, step, near, &self.caller, Instant::now())?;
            if answer.is_none() {
                return Ok(self.unavailable(pair));
            }
        }
        inside(step, near, || self.caller.warm_up(&[PASSING], &mut [0]).map(drop))?;
        if settings.event == Event::ServerKilled {
            let Some(pair) = pair else { return Ok(self.without_programs()) };
            let result = event::restart(settings, step, testbed, near, &self.caller, pair)?;
            return Ok(Measured::between_ends(step, Time::ZERO..Time::ZERO, result));
        }
        let mut result = Measurement::default();
        self.first_bytes(&mut result)?;
        let before = Memory::read(self.roles)?;
        let begun = Instant::now();
        let resting = stand(step, near, &self.caller, settings.idle)?;
        if !resting.is_empty() {
            let rate = resting.len() as f64 / begun.elapsed().as_secs_f64();
            result.record("setups_s", Some(rate));
        }
        Memory::read(self.roles)?.account(&before, resting.len(), &mut result);
        let window = self.load(&mut result)?;
        Memory::read(self.roles)?.account_peak(&mut result);
        result.record("availability_percent", Some(100.0));
        let congestion = step.system.congestion.as_ref();
        result.congestion_control = congestion.map(|name| name.get_ref().clone());
        Ok(Measured::between_ends(step, window, result))
    }

    /// Opens new connections for a quarter of the time, at least one connection.
    fn first_bytes(&self, result: &mut Measurement) -> Result<(), Failure> {
        let until = Instant::now() + (self.step.duration / NEW_SHARE).as_duration();
        let mut taken = Vec::new();
        inside(self.step, &self.near, || {
            loop {
                let call = self.caller.call(&[PASSING], &mut [0])?;
                taken.push(call.first_byte.as_secs_f64() * 1e3);
                if Instant::now() >= until {
                    return Ok(());
                }
            }
        })?;
        result.record("connections", Some(taken.len() as f64));
        result.record_quantiles("first_byte_ms", &taken, &["p50", "p90", "p99"]);
        Ok(())
    }

    /// Sends over the busy connections, and exchanges messages beside them.
    fn load(&self, result: &mut Measurement) -> Result<std::ops::Range<Time>, Failure> {
        let (step, near) = (self.step, &self.near);
        let busy = Busy::connect(step, near, &self.caller, self.settings.busy, self.arrivals)?;
        let over = AtomicBool::new(false);
        let (window, taken) = std::thread::scope(|scope| {
            let talking = scope.spawn(|| inside(step, near, || self.talk(&over)));
            let window = busy.measure(step, self.roles, result);
            over.store(true, Ordering::Release);
            let taken = talking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, Failure>((window?, taken?))
        })?;
        result.record("messages", Some(taken.len() as f64));
        result.record_quantiles("message_ms", &taken, &["p50", "p90", "p99"]);
        Ok(window)
    }

    /// Exchanges messages until the busy connections are over. Returns the response times of the
    /// messages after the omitted time, at least one response time.
    fn talk(&self, over: &AtomicBool) -> Result<Vec<f64>, Failure> {
        let size = usize::try_from(self.settings.size.count()).unwrap_or(usize::MAX);
        let (message, mut room) = (vec![b'm'; size], vec![0; size]);
        let counts = Instant::now() + self.step.omit.as_duration();
        let call = self.caller.call(&[TALKING], &mut [0])?;
        let mut taken = Vec::new();
        loop {
            let begun = Instant::now();
            self.caller.exchange(&call.socket, &message, &mut room)?;
            let is_over = over.load(Ordering::Acquire);
            if begun >= counts || (is_over && taken.is_empty()) {
                taken.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            if is_over {
                return Ok(taken);
            }
        }
    }

    fn unavailable(&self, pair: Option<&mut Pair>) -> Measured {
        let mut result = Measurement::default();
        result.record("availability_percent", Some(0.0));
        let cause = pair.and_then(Pair::failure).map(|cause| format!(": {cause}"));
        let patience = self.settings.patience.shown();
        let reason =
            format!("no connection was answered within {patience}{}", cause.unwrap_or_default());
        result.miss(MEASURED, reason, false);
        Measured::between_ends(self.step, Time::ZERO..Time::ZERO, result)
    }

    fn without_programs(&self) -> Measured {
        let mut result = Measurement::default();
        result.record("availability_percent", Some(100.0));
        result.miss(&["seconds"], "no program between the hosts to kill".to_owned(), false);
        Measured::between_ends(self.step, Time::ZERO..Time::ZERO, result)
    }
}

/// Divisor of a step's time that gives the time for new connections: one quarter.
const NEW_SHARE: u64 = 4;
const MEASURED: &[&str] = &["goodput_mbit_s", "first_byte_ms.p50", "message_ms.p99"];
