//! What is read beside the streams: TCP_INFO over time, CPU of this end, latency under load.
//!
//! [`Observer`] is the whole of it for one test, in either role. It has no thread for TCP_INFO and CPU:
//! whoever runs the test calls [`Observer::look`] as often as it likes, and a look that comes too soon,
//! or costs too much, is not taken.

pub mod cpu;
pub mod echo;
mod observed;
mod series;
mod tally;
pub mod tcp;

pub use observed::Observed;
pub use series::{Line, Series};

use crate::event::{CpuUse, Latency, LatencySource, Stop};
use cpu::{CpuAccount, CpuOf, CpuWatch};
use probe::clock;
use probe::tcp::TcpInfo;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tally::Tally;
use tcp::TcpWatch;
use units::{Bytes, Span, Time};

/// What is to be watched.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Series, looks between the intervals and the latency probe. Without it only what iperf3 tells too
    /// is read: CPU, and TCP_INFO at the intervals.
    pub probes: bool,
    pub cpu: CpuOf,
    /// Of looks at TCP_INFO.
    pub every: Span,
    /// The cores the streams are pinned to; all if empty.
    pub cores: Vec<usize>,
    /// Who is asked for round trips; a server does not ask.
    pub latency: Option<LatencyPlan>,
}

/// How round trips are measured beside the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyPlan {
    pub peer: IpAddr,
    /// The interface of a link-local IPv6 peer.
    pub scope: u32,
    /// Our server's echo, if it offered one.
    pub echo: Option<EchoOffer>,
    pub bind: Option<IpAddr>,
    pub bind_device: Option<String>,
    /// The streams', so that the probes wait where they wait.
    pub type_of_service: u8,
}

/// Where datagrams come back from, and what they have to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoOffer {
    pub port: u16,
    pub token: echo::Token,
}

/// A data stream as it is now.
#[derive(Debug, Clone, Copy)]
pub struct StreamSocket<'a> {
    pub id: u32,
    /// This end sends.
    pub sends: bool,
    /// `None` for UDP.
    pub tcp: Option<BorrowedFd<'a>>,
    /// Sent or received since the test began.
    pub bytes: Bytes,
}

/// What [`Observer::interval`] tells.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub cpu: CpuUse,
    pub latency: Option<Latency>,
    /// By stream.
    pub tcp: Vec<(u32, TcpInfo)>,
}

/// Everything that is watched in one test.
///
/// ```no_run
/// use perf::event::Stop;
/// use perf::observe::{Observer, Plan};
/// # fn sockets() -> Vec<perf::observe::StreamSocket<'static>> { Vec::new() }
/// # let (plan, stop): (Plan, Stop) = todo!();
/// let mut observer = Observer::begin(plan);
/// let _charged = observer.account().enter(); // in each thread of the test
/// let idle = observer.idle(units::Span::from_millis(500), &stop); // a client, before the load
/// observer.start(&sockets()); // as soon as the streams are open
/// observer.look(&sockets()); // whenever the loop comes round
/// observer.forget(&sockets()); // when what is omitted is over
/// let noted = observer.interval(&sockets());
/// let observed = observer.finish(&sockets()); // before the streams are closed
/// ```
#[derive(Debug)]
pub struct Observer {
    plan: Plan,
    account: CpuAccount,
    cpu: CpuWatch,
    tcp: TcpWatch,
    idle: Option<Latency>,
    smoothed: Smoothed,
    next_tcp: Time,
    next_cpu: Time,
    /// CPU time of the observing itself.
    cost: Span,
}

/// The streams' own round trips, for a far end that answers no probe.
#[derive(Debug, Default)]
struct Smoothed {
    window: Tally,
    interval: Tally,
}

impl Observer {
    /// Begins to measure the path while it is idle; see [`Self::start`] for the rest.
    pub fn begin(plan: Plan) -> Self {
        let account = CpuAccount::default();
        let now = clock::now();
        let cpu = CpuWatch::begin(now, plan.cpu, account.clone(), plan.probes);
        let tcp = TcpWatch::begin(now, &[], false);
        Self {
            plan,
            account,
            cpu,
            tcp,
            idle: None,
            smoothed: Smoothed::default(),
            next_tcp: now,
            next_cpu: now,
            cost: Span::ZERO,
        }
    }

    /// Threads of the test enter it, and are charged with [`CpuOf::Threads`].
    pub fn account(&self) -> CpuAccount {
        self.account.clone()
    }

    /// Waits for so long while the path is measured without load; ends early when stopped, or where
    /// there is nothing to wait for.
    pub fn idle(&mut self, length: Span, stop: &Stop) -> Option<Latency> {
        let until = Instant::now() + length.as_duration();
        while self.plan.probes && !stop.is_called() && Instant::now() < until {
            std::thread::sleep(TURN.min(until.saturating_duration_since(Instant::now())));
        }
        self.idle.clone()
    }

    /// The test begins: time 0 of all series, and the measured window.
    pub fn start(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        self.cpu = CpuWatch::begin(now, self.plan.cpu, self.account.clone(), self.plan.probes);
        self.tcp = TcpWatch::begin(now, sockets, self.plan.probes);
        if self.idle.is_none() && self.plan.probes {
            // What the streams' own opening took: the path was idle then.
            self.idle = self.smoothed_now();
        }
        self.smoothed = Smoothed::default();
        self.next_tcp = now + self.plan.every;
        self.next_cpu = now + CPU_EVERY;
    }

    /// Looks at the streams and the cores if it is time to. Cheap otherwise.
    pub fn look(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        if !self.plan.probes || now < self.next_tcp.min(self.next_cpu) {
            return;
        }
        if now >= self.next_tcp {
            let took = self.charge(|observer| observer.look_tcp(now, sockets));
            self.next_tcp = now + self.plan.every.max(took * DEAREST);
        }
        if now >= self.next_cpu {
            let took = self.charge(|observer| observer.cpu.look(now));
            self.next_cpu = now + CPU_EVERY.max(took * DEAREST);
        }
    }

    /// How long until [`Self::look`] has something to do.
    pub fn due(&self) -> Duration {
        if !self.plan.probes {
            return Duration::MAX;
        }
        self.next_tcp.min(self.next_cpu).since(clock::now()).as_duration()
    }

    /// What came until now is left out of every figure but the series.
    pub fn forget(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        self.charge(|observer| {
            observer.look_tcp(now, sockets);
            observer.tcp.forget(now);
            observer.cpu.forget(now);
        });
        self.smoothed = Smoothed::default();
    }

    /// An interval ends.
    pub fn interval(&mut self, sockets: &[StreamSocket<'_>]) -> Noted {
        let now = clock::now();
        let mut noted = Noted::default();
        self.charge(|observer| {
            observer.look_tcp(now, sockets);
            noted.cpu = observer.cpu.interval(now);
        });
        let of = |socket: &StreamSocket<'_>| Some((socket.id, *self.tcp.latest(socket.id)?));
        noted.tcp = sockets.iter().filter_map(of).collect();
        if self.plan.probes && self.plan.latency.is_some() {
            noted.latency = self.smoothed.interval.latency(LatencySource::TcpInfo);
        }
        self.smoothed.interval.clear();
        noted
    }

    /// The test is over; the streams are still open.
    pub fn finish(mut self, sockets: &[StreamSocket<'_>]) -> Observed {
        let now = clock::now();
        let mut cpu = CpuUse::default();
        self.charge(|observer| {
            observer.look_tcp(now, sockets);
            cpu = observer.cpu.used(now);
            observer.cpu.look(now);
        });
        let asked = self.plan.probes && self.plan.latency.is_some();
        let loaded = self.smoothed.window.latency(LatencySource::TcpInfo).filter(|_| asked);
        let mut series = Vec::new();
        let paths = self.tcp.paths();
        series.extend(self.tcp.into_series());
        series.extend(self.cpu.into_series());
        let warnings = observed::busy_cores(&cpu, &self.plan.cores).into_iter().collect();
        Observed {
            cpu,
            cpu_of: self.plan.cpu,
            paths,
            idle: self.idle,
            loaded,
            series,
            warnings,
            cost: self.cost,
        }
    }

    fn look_tcp(&mut self, now: Time, sockets: &[StreamSocket<'_>]) {
        self.tcp.look(now, sockets);
        for round_trip in self.tcp.round_trips() {
            self.smoothed.window.add(round_trip);
            self.smoothed.interval.add(round_trip);
        }
    }

    fn smoothed_now(&self) -> Option<Latency> {
        let mut tally = Tally::default();
        self.tcp.round_trips().for_each(|round_trip| tally.add(round_trip));
        self.plan.latency.as_ref().and_then(|_| tally.latency(LatencySource::TcpInfo))
    }

    /// Does `work` and tells what CPU time it took.
    fn charge(&mut self, work: impl FnOnce(&mut Self)) -> Span {
        let begun = clock::own_thread_cpu_time();
        work(self);
        let took = clock::own_thread_cpu_time() - begun;
        self.cost = self.cost + took;
        took
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            probes: true,
            cpu: CpuOf::Process,
            every: Span::from_millis(100),
            cores: Vec::new(),
            latency: None,
        }
    }
}

impl LatencyPlan {
    /// The way to `peer`, as a data stream takes it.
    pub fn to(peer: SocketAddr) -> Self {
        let scope = match peer {
            SocketAddr::V6(peer) => peer.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self {
            peer: peer.ip().to_canonical(),
            scope,
            echo: None,
            bind: None,
            bind_device: None,
            type_of_service: 0,
        }
    }
}

const TURN: Duration = Duration::from_millis(20);
/// A point of CPU use: fifty ticks of /proc/stat.
const CPU_EVERY: Span = Span::from_millis(500);
/// A look that took so long is taken again only after so many times as long: 0.2 % of one core.
const DEAREST: u64 = 500;
