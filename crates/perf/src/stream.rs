//! Data streams; each stream has its own thread.
//!
//! [`Running`] owns the streams of one end of a test. Each thread writes only its own counters, so
//! reading the counters costs the thread nothing. The omitted data is subtracted as a baseline; no
//! counter is ever reset.

mod budget;
mod ending;
mod lifecycle;
pub(crate) mod option;
mod pace;
mod payload;
mod pipe;
mod prepare;
mod tally;
mod tcp_receiver;
mod tcp_sender;

pub use ending::{Ending, StreamFailure};
pub use prepare::{SocketError, flow_labelled, on_connected, on_unconnected};
pub use tally::{Omitted, StreamSnapshot};

pub(crate) use budget::{Budget, OverBudgetPacer};
pub(crate) use lifecycle::Lifecycle;
pub(crate) use pace::Pace;
pub(crate) use payload::payload;
pub(crate) use pipe::may_run_on;
pub(crate) use tally::Counter;

use crate::PerfError;
use crate::event::Stop;
use crate::observe::cpu::CpuAccount;
use crate::options::{Protocol, TestOptions};
use crate::udp::{self, Arrivals};
use probe::tcp::{self, TcpInfo};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tally::{Baseline, Tally};
use units::Time;

/// A connected socket that carries data in one direction.
#[derive(Debug)]
pub enum DataSocket {
    Tcp(TcpStream),
    /// Connected, after the opening exchange ([`udp::Opening`]).
    Udp(UdpSocket),
}

/// A stream that is open and does not transfer data yet.
#[derive(Debug)]
pub struct Opened {
    pub id: u32,
    pub sends: bool,
    pub socket: DataSocket,
}

#[derive(Debug)]
pub struct Running {
    streams: Vec<Stream>,
    lifecycle: Arc<Lifecycle>,
    budget: Arc<Budget>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    sends: bool,
    socket: Arc<DataSocket>,
    tally: Arc<Tally>,
    baseline: Mutex<Baseline>,
    ending: Arc<Mutex<Option<Ending>>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Progress {
    bytes: u64,
    at: Instant,
}

impl Running {
    /// Starts the threads, which wait for [`Self::go`]. The threads are pinned to the CPU
    /// `affinity`.
    pub fn start(
        opened: Vec<Opened>,
        options: &TestOptions,
        affinity: Option<usize>,
        stop: Stop,
    ) -> Result<Self, PerfError> {
        Self::start_charged(opened, options, affinity, stop, &CpuAccount::default())
    }

    /// Does the same as [`Self::start`], and charges the threads' CPU time to `account`.
    pub fn start_charged(
        opened: Vec<Opened>,
        options: &TestOptions,
        affinity: Option<usize>,
        stop: Stop,
        account: &CpuAccount,
    ) -> Result<Self, PerfError> {
        if options.protocol == Protocol::Udp {
            udp::check_block(options)?;
        }
        let mut running = Self {
            streams: Vec::with_capacity(opened.len()),
            lifecycle: Arc::new(Lifecycle::new(stop)),
            budget: Arc::new(Budget::of(options)),
            progress: Mutex::new(Progress { bytes: 0, at: Instant::now() }),
        };
        for opened in opened {
            running.add(opened, options, affinity, account)?;
        }
        Ok(running)
    }

    pub fn go(&self) {
        *guard(&self.progress) = Progress { bytes: self.total(), at: Instant::now() };
        self.lifecycle.go();
    }

    /// Returns the counters since [`Self::go`], or since [`Self::reset`]. Does not disturb the
    /// threads of the streams.
    pub fn snapshot(&self) -> Vec<StreamSnapshot> {
        self.last_progress();
        self.streams.iter().map(Stream::snapshot).collect()
    }

    /// Ends the omitted time. The counts so far are kept separately ([`StreamSnapshot::omitted`]),
    /// and the budget begins to count.
    pub fn reset(&self) {
        let mut omitted = 0;
        for stream in &self.streams {
            let mut baseline = guard(&stream.baseline);
            *baseline = stream.tally.reset();
            omitted += if stream.sends { baseline.bytes } else { 0 };
        }
        self.budget.open(omitted);
    }

    pub fn sockets(&self) -> impl Iterator<Item = StreamSocket<'_>> {
        self.streams.iter().map(|stream| StreamSocket {
            id: stream.id,
            sends: stream.sends,
            socket: &stream.socket,
        })
    }

    /// True once this side has sent the amount of `-n` or `-k`. The senders of this side then
    /// pause. If the test does not end soon (the peer lost data, or omitted another part of the
    /// start), the senders go on slowly. Otherwise a receiver that waits for the last byte would
    /// wait for ever.
    pub fn is_spent(&self) -> bool {
        self.budget.is_spent(self.bytes_sent())
    }

    /// True if the peer's kernel has acknowledged all data of the local TCP streams.
    pub fn is_delivered(&self) -> bool {
        self.sockets()
            .filter(|stream| stream.sends)
            .filter_map(|stream| stream.tcp_info())
            .all(|info| tcp_sender::is_acknowledged(&info))
    }

    /// Returns the time at which bytes were last transferred on any stream, as noticed by calls of
    /// this method and of [`Self::snapshot`].
    pub fn last_progress(&self) -> Instant {
        let bytes = self.total();
        let mut progress = guard(&self.progress);
        if progress.bytes != bytes {
            *progress = Progress { bytes, at: Instant::now() };
        }
        progress.at
    }

    /// Returns the first stream that ended before the test, and the reason. iperf3 closes its
    /// streams at the end of a test, so the caller has to decide whether the end was expected.
    pub fn failure(&self) -> Option<StreamFailure> {
        self.streams.iter().find_map(|stream| {
            let ending = *guard(&stream.ending);
            ending.map(|ending| StreamFailure { id: stream.id, sends: stream.sends, ending })
        })
    }

    /// Stops the senders within a tenth of a second; receivers continue.
    pub fn stop_sending(&self) {
        self.lifecycle.stop_sending();
    }

    /// Waits, up to a short limit, until stopped senders have returned from their last write. Only
    /// then are the bytes of that write counted.
    pub(crate) fn await_senders(&self) {
        let began = Instant::now();
        let writing = |stream: &Stream| stream.sends && !stream.has_ended();
        while began.elapsed() < 2 * pipe::PATIENCE && self.streams.iter().any(writing) {
            std::thread::sleep(LOOK);
        }
    }

    /// Makes UDP receivers count only the datagrams that the kernel received until `at`, and end
    /// when their queues hold no datagram from before `at`. See [`Self::await_datagrams`].
    pub(crate) fn cut_datagrams(&self, at: Time) {
        self.lifecycle.cut(at);
        self.datagram_receivers().for_each(|stream| stream.socket.wake_receiver());
    }

    pub(crate) fn await_datagrams(&self) {
        let began = Instant::now();
        let reading = |stream: &Stream| !stream.has_ended();
        while began.elapsed() < LONGEST_QUEUE && self.datagram_receivers().any(reading) {
            std::thread::sleep(LOOK);
        }
    }

    /// Ends every thread within a tenth of a second, blocked or not, and closes the sockets.
    pub fn finish(mut self) -> Vec<StreamSnapshot> {
        self.end();
        self.streams.iter().map(Stream::snapshot).collect()
    }

    fn add(
        &mut self,
        opened: Opened,
        options: &TestOptions,
        affinity: Option<usize>,
        account: &CpuAccount,
    ) -> Result<(), PerfError> {
        let Opened { id, sends, socket } = opened;
        let failed = |error| PerfError::system(format!("could not set up stream {id}"), error);
        let tally = Arc::new(match (&socket, sends) {
            (DataSocket::Tcp(_), _) => Tally::Bytes(Counter::default()),
            (DataSocket::Udp(_), true) => {
                Tally::Datagrams { sent: Counter::default(), block: options.block_bytes() as u64 }
            }
            (DataSocket::Udp(_), false) => {
                Tally::Arrivals(Mutex::new(Arrivals::new(options.udp_wide_counters)))
            }
        });
        pipe::patience(&socket).map_err(failed)?;
        let mut stream = Stream {
            id,
            sends,
            socket: Arc::new(socket),
            tally,
            baseline: Mutex::default(),
            ending: Arc::default(),
            thread: None,
        };
        let work = pipe::work(&stream, &self.lifecycle, &self.budget, options).map_err(failed)?;
        let ending = Arc::clone(&stream.ending);
        let lifecycle = Arc::clone(&self.lifecycle);
        let account = account.clone();
        let thread = std::thread::Builder::new().name(format!("stream {id}")).spawn(move || {
            let _charged = account.enter();
            pipe::settle(affinity);
            if lifecycle.wait() {
                *guard(&ending) = work();
            }
        });
        stream.thread = Some(thread.map_err(failed)?);
        self.streams.push(stream);
        Ok(())
    }

    fn datagram_receivers(&self) -> impl Iterator<Item = &Stream> {
        let receives = |stream: &&Stream| !stream.sends;
        let takes_datagrams = |stream: &&Stream| matches!(*stream.socket, DataSocket::Udp(_));
        self.streams.iter().filter(receives).filter(takes_datagrams)
    }

    fn bytes_sent(&self) -> u64 {
        let senders = self.streams.iter().filter(|stream| stream.sends);
        senders.map(|stream| stream.tally.bytes()).sum()
    }

    fn total(&self) -> u64 {
        self.streams.iter().map(|stream| stream.tally.bytes()).sum()
    }

    fn end(&mut self) {
        self.lifecycle.finish();
        for stream in self.streams.iter().filter(|stream| !stream.sends) {
            stream.socket.wake_receiver();
        }
        for thread in self.streams.iter_mut().filter_map(|stream| stream.thread.take()) {
            // Ignore a panic: the thread's counters so far are its result.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug, Clone, Copy)]
pub struct StreamSocket<'a> {
    pub id: u32,
    pub sends: bool,
    pub socket: &'a DataSocket,
}

impl StreamSocket<'_> {
    /// Returns the stream's TCP_INFO; `None` for UDP, or if the kernel does not report TCP_INFO.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self.socket {
            DataSocket::Tcp(socket) => tcp::of_socket(socket).ok(),
            DataSocket::Udp(_) => None,
        }
    }
}

impl AsFd for StreamSocket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

impl DataSocket {
    /// Ends a blocked read. On Linux this sends nothing.
    fn wake_receiver(&self) {
        // Fails on a connection that has already ended, whose reader does not wait.
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Read),
            Self::Udp(socket) => {
                rustix::net::shutdown(socket, rustix::net::Shutdown::Read).map_err(Into::into)
            }
        };
    }
}

impl Stream {
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn snapshot(&self) -> StreamSnapshot {
        let baseline = guard(&self.baseline);
        self.tally.snapshot(self.id, self.sends, &baseline)
    }
}

const LOOK: Duration = Duration::from_micros(500);
/// Maximum time for reading a full receive queue on a busy host.
const LONGEST_QUEUE: Duration = Duration::from_secs(1);

/// Locks a mutex and ignores poisoning: the guarded counters are always valid.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
