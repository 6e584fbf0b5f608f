//! Measurements beside the streams: TCP_INFO over time, local CPU use, latency under load.
//!
//! [`Observer`] does all of this for one test, at the client or at the server. [`Observer`] has no
//! thread for TCP_INFO and CPU: the caller polls [`Observer::sample`] at any rate. A call that
//! comes too soon, or that would cost too much, takes no sample.

pub mod cpu;
pub mod echo;
pub mod latency;
mod observed;
pub mod probe_cost;
mod series;
mod tally;
pub mod tcp;

pub use observed::Observed;
pub use series::{Line, Series};

use crate::event::{CpuUse, Latency, LatencySource, Stop};
use cpu::{CpuAccount, CpuOf, CpuSampler};
use latency::LatencyProbe;
use probe::clock;
use probe::tcp::TcpInfo;
use probe_cost::{CostSettings, CurrentPeriod, Meter, SamplingPeriods};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tally::Tally;
use tcp::TcpSampler;
use units::{Bytes, Span, Time};

#[derive(Debug, Clone)]
pub struct Plan {
    /// True if the observer keeps series, samples between the intervals, and probes the latency. If
    /// false, the observer reads only the values that iperf3 also reports: CPU, and TCP_INFO at the
    /// intervals.
    pub probes: bool,
    pub cpu: CpuOf,
    /// Period of the TCP_INFO samples.
    pub every: Span,
    /// The cores that the streams are pinned to; all if empty.
    pub cores: Vec<usize>,
    /// Settings of the latency probe; `None` at a server, which does not probe.
    pub latency: Option<LatencyPlan>,
    /// `Some`: samples are taken in some periods only; `None`: during the whole test.
    pub periods: Option<SamplingPeriods>,
    /// `Some`: the observer also compares the goodput of periods with and without samples.
    pub cost_settings: Option<CostSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyPlan {
    pub peer: IpAddr,
    /// The interface of a link-local IPv6 peer.
    pub scope: u32,
    /// The weir server's echo, if the server offered an echo.
    pub echo: Option<EchoOffer>,
    pub bind: Option<IpAddr>,
    pub bind_device: Option<String>,
    /// The streams' traffic class, so that the probes wait in the same queues.
    pub type_of_service: u8,
}

/// The port that echoes datagrams, and the token that they must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoOffer {
    pub port: u16,
    pub token: echo::Token,
}

#[derive(Debug, Clone, Copy)]
pub struct StreamSocket<'a> {
    pub id: u32,
    pub sends: bool,
    /// The TCP socket; `None` for UDP.
    pub tcp: Option<BorrowedFd<'a>>,
    /// Bytes sent or received since the test began.
    pub bytes: Bytes,
}

#[derive(Debug, Clone, Default)]
pub struct ObservedInterval {
    pub cpu: CpuUse,
    pub latency: Option<Latency>,
    /// TCP_INFO by stream number.
    pub tcp: Vec<(u32, TcpInfo)>,
}

/// All measurements beside the streams of one test.
///
/// ```
/// use perf::event::Stop;
/// use perf::observe::{Observed, Observer, Plan, StreamSocket};
/// use units::Span;
///
/// fn run(plan: Plan, stop: &Stop, sockets: &[StreamSocket<'_>]) -> Observed {
///     let mut observer = Observer::begin(plan);
///     let _charged = observer.account().enter(); // in each thread of the test
///     let idle = observer.idle(Span::from_millis(500), stop); // a client, before the load
///     observer.start(sockets); // as soon as the streams are open
///     observer.sample(sockets); // in every pass of the loop, see `due`
///     observer.reset(sockets); // when the omitted time ends
///     let noted = observer.interval(sockets); // CPU, latency and TCP_INFO of an interval
///     observer.finish(sockets) // before the streams are closed
/// }
/// ```
#[derive(Debug)]
pub struct Observer {
    plan: Plan,
    account: CpuAccount,
    cpu: CpuSampler,
    tcp: TcpSampler,
    probe: Option<LatencyProbe>,
    idle: Option<Latency>,
    smoothed: SmoothedRtts,
    carried: (Time, Bytes),
    next_tcp: Time,
    next_cpu: Time,
    current_period: Option<CurrentPeriod>,
    meter: Option<Meter>,
    /// CPU time of the measurements themselves.
    cost: Span,
}

/// Smoothed round-trip times of the streams themselves, for a peer that replies to no probe.
#[derive(Debug, Default)]
struct SmoothedRtts {
    window: Tally,
    interval: Tally,
}

impl Observer {
    /// Starts to measure the idle path; [`Self::start`] starts the other measurements.
    pub fn begin(plan: Plan) -> Self {
        let account = CpuAccount::default();
        let now = clock::now();
        let cpu = CpuSampler::begin(now, plan.cpu, account.clone(), plan.probes);
        let tcp = TcpSampler::begin(now, &[], false);
        let probe = plan.latency.as_ref().filter(|_| plan.probes).map(LatencyProbe::begin);
        Self {
            plan,
            account,
            cpu,
            tcp,
            probe,
            idle: None,
            smoothed: SmoothedRtts::default(),
            carried: (now, Bytes::ZERO),
            next_tcp: now,
            next_cpu: now,
            current_period: None,
            meter: None,
            cost: Span::ZERO,
        }
    }

    /// Returns the account that the test's threads enter, for [`CpuOf::Threads`].
    pub fn account(&self) -> CpuAccount {
        self.account.clone()
    }

    /// Measures the path without load for `length`, and longer if no probe has got a reply yet.
    /// Returns early when stopped, or if no reply can arrive.
    pub fn idle(&mut self, length: Span, stop: &Stop) -> Option<Latency> {
        let probe = self.probe.as_mut()?;
        let begun = Instant::now();
        let (until, latest) = (length.as_duration(), (length + GRACE).as_duration());
        while !stop.is_called() && probe.may_be_answered() {
            let waited = begun.elapsed();
            if waited >= latest || (waited >= until && probe.has_answer()) {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.idle = probe.end_phase(clock::now(), None);
        self.idle.clone()
    }

    /// Starts the test: time 0 of all series, and of the measured window.
    pub fn start(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        self.cpu = CpuSampler::begin(now, self.plan.cpu, self.account.clone(), self.plan.probes);
        self.tcp = TcpSampler::begin(now, sockets, self.plan.probes);
        let until_now = self.probe.as_mut().and_then(|probe| probe.end_phase(now, Some(now)));
        // If the peer replies to no probe, uses the round-trip times of the streams' handshakes.
        self.idle = self.idle.take().or(until_now).or_else(|| self.smoothed_now());
        self.smoothed = SmoothedRtts::default();
        self.carried = (now, sockets.iter().map(|socket| socket.bytes).sum());
        self.next_tcp = now + self.plan.every;
        self.next_cpu = now + CPU_EVERY;
        self.current_period = self.plan.periods.map(|periods| CurrentPeriod::begin(periods, now));
        self.meter = self.plan.cost_settings.map(Meter::new);
        self.pause_probe_between_periods();
    }

    /// Samples the streams and the cores if a sample is due; otherwise costs almost nothing.
    pub fn sample(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        self.switch_periods(now, sockets);
        if !self.is_sampling() || now < self.next_tcp.min(self.next_cpu) {
            return;
        }
        if now >= self.next_tcp {
            let took = self.charge(|observer| observer.sample_tcp(now, sockets));
            self.next_tcp = now + self.plan.every.max(took * DEAREST);
        }
        // If a sample of the streams is due soon, the sample of the cores waits for the sample of
        // the streams: each wakeup takes a core from a stream.
        if now + self.plan.every / 2 >= self.next_cpu {
            let took = self.charge(|observer| observer.cpu.sample(now));
            self.next_cpu = now + CPU_EVERY.max(took * DEAREST);
        }
    }

    /// Returns the time until the next sample is due ([`Self::sample`]).
    pub fn due(&self) -> Duration {
        if !self.plan.probes {
            return Duration::MAX;
        }
        let now = clock::now();
        let look = if self.is_sampling() { self.next_tcp.min(self.next_cpu) } else { Time::NEVER };
        let period = self.current_period.as_ref().map_or(Time::NEVER, |current| {
            self.meter.as_ref().map_or(current.ends(), |meter| meter.due(current, now))
        });
        look.min(period).since(now).as_duration()
    }

    /// Excludes the measurements so far from all results except the time series.
    pub fn reset(&mut self, sockets: &[StreamSocket<'_>]) {
        let now = clock::now();
        self.charge(|observer| {
            observer.sample_tcp(now, sockets);
            observer.tcp.reset(now);
            observer.cpu.reset(now);
            if let Some(probe) = &mut observer.probe {
                probe.end_phase(now, None);
            }
        });
        self.smoothed = SmoothedRtts::default();
        if let Some(meter) = &mut self.meter {
            meter.reset();
        }
    }

    pub fn interval(&mut self, sockets: &[StreamSocket<'_>]) -> ObservedInterval {
        let now = clock::now();
        let mut noted = ObservedInterval::default();
        self.charge(|observer| {
            observer.sample_tcp(now, sockets);
            noted.cpu = observer.cpu.interval(now);
        });
        // All streams have just been sampled.
        self.next_tcp = self.next_tcp.max(now + self.plan.every);
        self.next_cpu = self.next_cpu.max(now + CPU_EVERY);
        let of = |socket: &StreamSocket<'_>| Some((socket.id, *self.tcp.latest(socket.id)?));
        noted.tcp = sockets.iter().filter_map(of).collect();
        noted.latency = match &mut self.probe {
            // Use the same source for all intervals: a gap is better than a value from another
            // source.
            Some(probe) if probe.has_answer() => probe.interval(),
            Some(_) => self.smoothed.interval.latency(LatencySource::TcpInfo),
            None => None,
        };
        self.smoothed.interval.clear();
        noted
    }

    /// Ends the measurements and returns their results. Call this function while the streams are
    /// open.
    pub fn finish(mut self, sockets: &[StreamSocket<'_>]) -> Observed {
        let now = clock::now();
        let mut cpu = CpuUse::default();
        let is_telling = self.cpu.is_telling(now);
        self.charge(|observer| {
            observer.sample_tcp(now, sockets);
            cpu = observer.cpu.used(now);
            observer.cpu.sample(now);
        });
        let asked = self.probe.take().map(|probe| probe.finish(now));
        let full = observed::full_core(&cpu, &self.plan.cores).filter(|_| is_telling);
        let limiting_core = full.map(|core| core.core);
        let mut warnings: Vec<_> =
            full.map(|core| observed::warning(core, &cpu)).into_iter().collect();
        let mut loaded = None;
        let mut series = Vec::new();
        if let Some(asked) = asked {
            warnings.extend(observed::silent_probe(&asked));
            let smoothed = || self.smoothed.window.latency(LatencySource::TcpInfo);
            loaded = asked.latency.or_else(smoothed);
            self.cost = self.cost + asked.cost;
            series.extend(asked.series);
        }
        let paths = self.tcp.paths();
        series.extend(self.tcp.into_series());
        series.extend(self.cpu.into_series());
        Observed {
            cpu,
            cpu_of: self.plan.cpu,
            paths,
            idle: self.idle,
            loaded,
            series,
            limiting_core,
            warnings,
            cost: self.cost,
            probe_cost: self.meter.map(|meter| meter.cost()),
        }
    }

    fn is_sampling(&self) -> bool {
        self.plan.probes && self.current_period.as_ref().is_none_or(CurrentPeriod::samples)
    }

    /// Moves to the next period if the current period is over. Reads the same counters in periods
    /// with samples and without.
    fn switch_periods(&mut self, now: Time, sockets: &[StreamSocket<'_>]) {
        let Some(current) = self.current_period.as_mut().filter(|_| self.plan.probes) else {
            return;
        };
        if now < current.ends() {
            if let Some(meter) = &mut self.meter {
                meter.begin(current, now, || carried(sockets));
            }
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.end(current, || carried(sockets));
        }
        let sampled = current.samples();
        current.advance(now);
        if current.samples() == sampled {
            return;
        }
        // Continue the schedule of the previous samples instead of starting a new schedule with
        // each period. A period then has as many samples as any other span of the same length.
        let every = self.plan.every;
        self.next_tcp = in_step(self.next_tcp, every, now);
        self.next_cpu = in_step(self.next_cpu, CPU_EVERY, now);
        self.pause_probe_between_periods();
    }

    fn pause_probe_between_periods(&mut self) {
        let paused = !self.is_sampling();
        if let Some(probe) = &mut self.probe
            && self.current_period.is_some()
        {
            probe.rest(paused);
        }
    }

    fn sample_tcp(&mut self, now: Time, sockets: &[StreamSocket<'_>]) {
        self.tcp.sample(now, sockets);
        if let Some(probe) = &self.probe {
            let bytes = sockets.iter().map(|socket| socket.bytes).sum();
            let (before, had) = std::mem::replace(&mut self.carried, (now, bytes));
            probe.set_load(tcp::rate(bytes - had, now.since(before)).unwrap_or_default());
        }
        for round_trip in self.tcp.round_trips() {
            self.smoothed.window.add(round_trip);
            self.smoothed.interval.add(round_trip);
        }
    }

    fn smoothed_now(&self) -> Option<Latency> {
        self.probe.as_ref()?;
        let mut tally = Tally::default();
        self.tcp.round_trips().for_each(|round_trip| tally.add(round_trip));
        tally.latency(LatencySource::TcpInfo)
    }

    /// Runs `work` and returns its CPU time.
    fn charge(&mut self, work: impl FnOnce(&mut Self)) -> Span {
        let begun = clock::own_thread_cpu_time();
        work(self);
        let took = clock::own_thread_cpu_time() - begun;
        self.cost = self.cost + took;
        took
    }
}

/// Returns the bytes received, or given to the kernel, by now. TCP_INFO would give the acknowledged
/// bytes, but reading it waits for the socket lock: on a saturated core the wait costs more than
/// the effect to be measured. The bytes in the socket buffer are the same in periods with and
/// without samples.
fn carried(sockets: &[StreamSocket<'_>]) -> (Time, Bytes) {
    (clock::now(), sockets.iter().map(|socket| socket.bytes).sum())
}

/// Returns the first time, now or later, that is a whole number of steps after `then`.
fn in_step(then: Time, step: Span, now: Time) -> Time {
    let steps = now.since(then).nanos().div_ceil(step.nanos().max(1));
    then + step * steps
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            probes: true,
            cpu: CpuOf::Process,
            every: Span::from_millis(100),
            cores: Vec::new(),
            latency: None,
            periods: None,
            cost_settings: None,
        }
    }
}

impl LatencyPlan {
    /// Returns the plan for a probe to `peer`, on the path of a data stream.
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

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Extra wait for the first reply of a distant peer.
const GRACE: Span = Span::from_millis(500);
/// Time between two CPU samples: fifty ticks of /proc/stat.
const CPU_EVERY: Span = Span::from_millis(500);
/// Minimum interval between samples, as a multiple of the last sample's CPU time. The minimum
/// limits the cost to 0.2 % of a core.
const DEAREST: u64 = 500;
