//! Common code of the streams' threads.

use super::tally::Tally;
use super::tcp_receiver::TcpReceiver;
use super::tcp_sender::TcpSender;
use super::{Budget, DataSocket, Ending, Lifecycle, Stream, guard};
use crate::PerfError;
use crate::options::TestOptions;
use crate::udp::{UdpReceiver, UdpSender};
use rustix::thread::CpuSet;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

type Work = Box<dyn FnOnce() -> Option<Ending> + Send>;

/// Sets a timeout for reads and writes of the socket, so that a thread notices the end of the test.
pub(super) fn patience(socket: &DataSocket) -> io::Result<()> {
    match socket {
        DataSocket::Tcp(socket) => {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))
        }
        DataSocket::Udp(socket) => {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))
        }
    }
}

/// Prepares a stream, and returns the function that its thread runs to transfer data.
pub(super) fn work(
    stream: &Stream,
    lifecycle: &Arc<Lifecycle>,
    budget: &Arc<Budget>,
    options: &TestOptions,
) -> io::Result<Work> {
    let socket = Arc::clone(&stream.socket);
    let tally = Arc::clone(&stream.tally);
    let lifecycle = Arc::clone(lifecycle);
    let budget = Arc::clone(budget);
    Ok(match (&*stream.socket, stream.sends) {
        (DataSocket::Tcp(_), true) => {
            let mut sender = TcpSender::new(options)?;
            Box::new(move || match (&*socket, &*tally) {
                (DataSocket::Tcp(socket), Tally::Bytes(sent)) => {
                    sender.run(socket, &lifecycle, &budget, sent)
                }
                _ => None,
            })
        }
        (DataSocket::Tcp(_), false) => {
            let mut receiver = TcpReceiver::new(options);
            Box::new(move || match (&*socket, &*tally) {
                (DataSocket::Tcp(socket), Tally::Bytes(received)) => {
                    receiver.run(socket, &lifecycle, received)
                }
                _ => None,
            })
        }
        (DataSocket::Udp(socket_now), true) => {
            let mut sender = UdpSender::new(options, socket_now);
            Box::new(move || match (&*socket, &*tally) {
                (DataSocket::Udp(socket), Tally::Datagrams { sent, .. }) => {
                    sender.run(socket, &lifecycle, &budget, sent)
                }
                _ => None,
            })
        }
        (DataSocket::Udp(socket_now), false) => {
            let mut receiver = UdpReceiver::new(options, socket_now);
            Box::new(move || match (&*socket, &*tally) {
                (DataSocket::Udp(socket), Tally::Arrivals(arrivals)) => {
                    receiver.run(socket, &lifecycle, |batch| guard(arrivals).take(batch))
                }
                _ => None,
            })
        }
    })
}

/// Returns an error if the process may not run on the requested CPU. A test that is not pinned as
/// requested would measure something else.
pub(crate) fn may_run_on(cpu: Option<usize>) -> Result<(), PerfError> {
    let allowed = probe::cpu::affinity()?;
    match cpu.filter(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => Err(PerfError::Usage(format!(
            "this program may not run on CPU {cpu}: give one of {allowed:?} to --affinity"
        ))),
    }
}

/// Prepares the calling thread for a stream: pins it to a CPU and turns timer slack off.
pub(super) fn settle(affinity: Option<usize>) {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if let Some(cpu) = affinity.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
            tracing::warn!("a stream could not be pinned to CPU {cpu}: {errno}");
        }
    }
}

pub(super) const PATIENCE: Duration = Duration::from_millis(50);
