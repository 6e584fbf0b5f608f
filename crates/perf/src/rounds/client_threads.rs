use super::cpu::{Cpu, CpuMeter, enlist};
use super::crr::Addresses;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{Timeouts, TransferError};
use super::wire::Order;
use super::{Kind, bulk, crr, rr, udp_bulk, udp_rr};
use crate::PerfError;
use crate::control::Cookie;
use crate::observe::cpu::CpuAccount;
use std::net::{TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ClientThreads<'a> {
    pub(super) order: &'a Order,
    pub(super) cookie: &'a Cookie,
    pub(super) time: Duration,
    pub(super) loss_timeout: Duration,
    pub(super) affinity: Option<usize>,
    pub(super) timeouts: Timeouts<'a>,
}

#[derive(Debug)]
pub(super) enum End {
    Stream(TcpStream),
    Short(Addresses),
    Datagrams(UdpSocket, u16),
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) tallies: Vec<Tally>,
    /// The connections, still open.
    pub(super) ends: Vec<End>,
    pub(super) cpu: Cpu,
}

/// The reason why a thread ended early, and the server's port if the thread had a separate port.
#[derive(Debug)]
pub(super) struct ThreadFailure {
    pub(super) broken: TransferError,
    pub(super) port: Option<u16>,
}

impl ClientThreads<'_> {
    /// Runs the threads, and `listen` in the calling thread. `listen` returns when the given number
    /// of threads have ended, or when there is a reason not to wait for them.
    pub(super) fn work(
        &self,
        ends: Vec<End>,
        listen: impl FnOnce(&Receiver<()>, usize) -> Result<(), PerfError>,
    ) -> Result<Result<Work, ThreadFailure>, PerfError> {
        let barrier = StartBarrier::new(ends.len(), self.time);
        let account = CpuAccount::default();
        let (done, finished) = mpsc::channel();
        let (ended, listened, cpu) = thread::scope(|scope| {
            let meter = CpuMeter::start();
            let (barrier, account) = (&barrier, &account);
            let thread = |end| {
                let done = done.clone();
                scope.spawn(move || {
                    let outcome = self.run_thread(end, barrier, account);
                    let _ = done.send(());
                    outcome
                })
            };
            let threads: Vec<_> = ends.into_iter().map(thread).collect();
            let listened = listen(&finished, threads.len());
            let cpu = meter.stop();
            self.timeouts.end();
            let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            (ended, listened, cpu)
        });
        listened?;
        let mut work =
            Work { tallies: Vec::new(), ends: Vec::new(), cpu: cpu.with_threads(&account) };
        let mut failure: Option<ThreadFailure> = None;
        for outcome in ended {
            match outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok((tally, end)) => {
                    work.tallies.push(tally);
                    work.ends.push(end);
                }
                // The thread that failed first ended the other threads; only its reason counts.
                Err(next) => match &failure {
                    Some(first) if !matches!(first.broken, TransferError::Ended) => {}
                    _ => failure = Some(next),
                },
            }
        }
        Ok(failure.map_or(Ok(work), Err))
    }

    fn run_thread(
        &self,
        end: End,
        barrier: &StartBarrier,
        account: &CpuAccount,
    ) -> Result<(Tally, End), ThreadFailure> {
        let _counted = enlist(account, self.affinity);
        let Self { order, cookie, timeouts, .. } = *self;
        let outcome = match &end {
            End::Stream(socket) if order.kind == Kind::TcpStream => {
                bulk::send(socket, order, timeouts, barrier)
            }
            End::Stream(socket) => rr::request(socket, order, timeouts, barrier),
            End::Short(addresses) => crr::request(addresses, order, timeouts, barrier),
            End::Datagrams(socket, _) if order.kind == Kind::UdpStream => {
                udp_bulk::send(socket, cookie, order, timeouts, barrier)
            }
            End::Datagrams(socket, _) => {
                udp_rr::request(socket, cookie, order, self.loss_timeout, timeouts, barrier)
            }
        };
        match outcome {
            Ok(tally) => Ok((tally, end)),
            Err(broken) => {
                timeouts.end();
                Err(ThreadFailure { broken, port: end.port() })
            }
        }
    }
}

impl End {
    fn port(&self) -> Option<u16> {
        match self {
            Self::Stream(_) => None,
            Self::Short(addresses) => Some(addresses.remote.port()),
            Self::Datagrams(_, port) => Some(*port),
        }
    }
}
