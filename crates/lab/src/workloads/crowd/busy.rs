//! The connections that send all the time, and their throughput at the receiving host.

use super::machine::{BUSY, inside};
use crate::bench::machine::{Caller, Listener, MachineStep, Roles, Watch, send_until};
use crate::model::{Failure, Measurement};
use host::Namespace;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use units::Time;

/// Counters of the bytes received over each busy connection.
#[derive(Debug, Default)]
pub(in crate::workloads) struct Arrivals {
    each: Mutex<Vec<Arc<AtomicU64>>>,
}

/// The busy connections, open and ready to send.
#[derive(Debug)]
pub(in crate::workloads) struct Busy<'a> {
    sockets: Vec<TcpStream>,
    arrivals: &'a Arrivals,
}

impl Arrivals {
    /// Receives everything from this peer until the peer or the listener closes.
    pub(in crate::workloads) fn receive(&self, listener: &Listener, peer: &TcpStream) {
        let counter = Arc::new(AtomicU64::new(0));
        self.each.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counter));
        let mut block = vec![0; 128 * 1024];
        loop {
            match listener.read(peer, &mut block) {
                0 => return,
                count => counter.fetch_add(count as u64, Ordering::Relaxed),
            };
        }
    }

    fn sample(&self) -> (Instant, Vec<u64>) {
        let each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        (Instant::now(), each.iter().map(|counter| counter.load(Ordering::Relaxed)).collect())
    }
}

impl<'a> Busy<'a> {
    pub(in crate::workloads) fn connect(
        step: &MachineStep<'_>,
        near: &Namespace,
        caller: &Caller<'_>,
        count: u32,
        arrivals: &'a Arrivals,
    ) -> Result<Self, Failure> {
        let calls = || (0..count).map(|_| Ok(caller.call(&[BUSY], &mut [0])?.socket)).collect();
        Ok(Self { sockets: inside(step, near, calls)?, arrivals })
    }

    /// Measures the throughput after `omit`. Returns the measured time.
    pub(in crate::workloads) fn measure(
        &self,
        step: &MachineStep<'_>,
        roles: &Roles,
        result: &mut Measurement,
    ) -> Result<Range<Time>, Failure> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sending: Vec<_> = self
                .sockets
                .iter()
                .map(|socket| scope.spawn(|| send(socket, &step.cpus.from, &over)))
                .collect();
            let measured = self.watch(step, roles, result);
            over.store(true, Ordering::Release);
            for socket in &self.sockets {
                // The shutdown wakes a sender that waits for buffer space.
                let _ = socket.shutdown(Shutdown::Both);
            }
            for thread in sending {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            measured
        })
    }

    fn watch(
        &self,
        step: &MachineStep<'_>,
        roles: &Roles,
        result: &mut Measurement,
    ) -> Result<Range<Time>, Failure> {
        let opens = Instant::now() + step.omit.as_duration();
        step.cancel.sleep_until(opens)?;
        let (before, first) = (Watch::read(roles)?, self.arrivals.sample());
        step.cancel.sleep_until(opens + step.duration.as_duration())?;
        let (last, after) = (self.arrivals.sample(), Watch::read(roles)?);
        let elapsed = last.0.duration_since(first.0).as_secs_f64().max(1e-9);
        let mut rates: Vec<f64> = last
            .1
            .iter()
            .enumerate()
            // All bytes of a connection that is not in the first sample arrived after that sample.
            .map(|(number, bytes)| bytes - first.1.get(number).copied().unwrap_or(0))
            .map(|bytes| bytes as f64 * 8e-6 / elapsed)
            .collect();
        // Add the rate 0 for each connection whose thread has not started yet.
        rates.resize(self.sockets.len(), 0.0);
        let goodput = rates.iter().sum();
        result.record("goodput_mbit_s", Some(goodput));
        if rates.len() > 1 {
            result.record("jain", Some(sim::jain(&rates)));
        }
        after.account(&before, step.cpus, Some(goodput), result);
        Ok(before.taken()..after.taken())
    }
}

fn send(socket: &TcpStream, cpus: &[usize], over: &AtomicBool) -> Result<(), Failure> {
    host::pin_to(cpus)?;
    send_until(socket, over)
}
