use super::cpu::{CpuMeter, enlist};
use super::ports::{BoundPorts, bind_ports};
use super::timeouts::Timeouts;
use super::wire::{LONGEST, Offer, Order, Ready, Refusal, Report, TestRequest};
use super::{Kind, bulk, crr, rr, udp_bulk, udp_rr};
use crate::PerfError;
use crate::control::{Control, Cookie, State, ready};
use crate::event::Stop;
use crate::observe::cpu::CpuAccount;
use crate::options::{Limits, ServerOptions};
use crate::session::progress::Progress;
use rustix::event::PollFlags;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use units::Span;

/// Serves a client that asked for one of these tests until the client's session ends, and ends the
/// session's threads.
///
/// The server calls this once it has read the parameters of a client whose `weir` holds a
/// [`TestRequest`]; this function sends the offer. `connections` delivers the client's data
/// connections: the connections whose cookie, read by the server's listener, is `cookie`. The
/// channel may be bounded to `options.limits.streams`. `stop` ends the session within a tenth of a
/// second, and must be the stop with which `control` was made.
///
/// For `crr` and UDP the server opens separate ports on the address that the client has reached: on
/// the server's own port, a cookie on each short connection would be part of what `crr` measures. A
/// firewall must let these ports pass; the client may ask for a range, within
/// `options.limits.data_ports`.
///
/// `options.limits.duration` is the maximum duration of a session with any number of measurements.
/// From `progress` the server learns when it may end the session for another client.
pub(crate) fn serve(
    control: &mut Control,
    cookie: &Cookie,
    request: &TestRequest,
    connections: &Receiver<TcpStream>,
    options: &ServerOptions,
    (stop, progress): (&Stop, &Progress),
) -> Result<Served, PerfError> {
    control.send_state(State::WeirOffer)?;
    control.send_json(&Offer { version: env!("CARGO_PKG_VERSION").to_owned() })?;
    let time = SessionTime::new(options.limits.duration);
    let mut session = Session { control, cookie, connections, options, stop, progress };
    let mut served = Served { kind: request.kind, measurements: 0 };
    while let Some(order) = session.next_order()? {
        let admitted =
            admit(&order, request.kind, &options.limits).and_then(|()| time.admit(order.seconds));
        if let Err(reason) = admitted {
            session.refuse(reason.clone())?;
            // Without this limit, a client could order measurements and hold its session for ever.
            if time.is_over() {
                let peer = session.control.peer().to_owned();
                return Err(PerfError::PeerFailed { peer, reason });
            }
            continue;
        }
        served.measurements += u32::from(session.measure(&order)?);
    }
    Ok(served)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    pub kind: Kind,
    pub measurements: u32,
}

struct Session<'a> {
    control: &'a mut Control,
    cookie: &'a Cookie,
    connections: &'a Receiver<TcpStream>,
    options: &'a ServerOptions,
    stop: &'a Stop,
    progress: &'a Progress,
}

impl Session<'_> {
    /// Receives the client's next order; `None` when the client has no more.
    fn next_order(&mut self) -> Result<Option<Order>, PerfError> {
        self.progress.step();
        match self.control.receive_state("ordering a measurement")? {
            State::TestStart => {
                self.control.receive_json(LONGEST, "ordering a measurement").map(Some)
            }
            State::Done => Ok(None),
            state => Err(self.unexpected(state, "an order")),
        }
    }

    fn refuse(&mut self, reason: String) -> Result<(), PerfError> {
        self.control.send_state(State::AccessDenied)?;
        self.control.send_json(&Refusal { reason })
    }

    /// Makes a measurement. Returns false for a refused measurement; the client then has the
    /// reason.
    fn measure(&mut self, order: &Order) -> Result<bool, PerfError> {
        // Drops connections that arrived too late for the previous measurement.
        while self.connections.try_recv().is_ok() {}
        let ports = self.options.limits.data_ports.as_ref();
        let bound = match bind_ports(self.control.socket(), order, ports) {
            Ok(bound) => bound,
            Err(reason) => return self.refuse(reason).map(|()| false),
        };
        self.control.send_state(State::CreateStreams)?;
        self.control.send_json(&Ready { ports: bound.ports() })?;
        let sockets = match order.kind {
            Kind::Rr | Kind::TcpStream => self.accepted(order.connections)?,
            _ => Vec::new(),
        };
        let report = self.work(order, bound, sockets)?;
        self.control.send_state(State::ExchangeResults)?;
        self.control.send_json(&report)?;
        Ok(true)
    }

    /// Waits for `count` data connections, which the server's listener accepts.
    fn accepted(&mut self, count: u32) -> Result<Vec<TcpStream>, PerfError> {
        let deadline = Instant::now() + self.options.limits.patience;
        self.progress.step();
        let mut sockets = Vec::new();
        while sockets.len() < count as usize {
            match self.connections.recv_timeout(POLL_INTERVAL) {
                Ok(socket) => {
                    super::timeouts::prepare(&socket)
                        .map_err(|e| PerfError::system("preparing a data connection", e))?;
                    sockets.push(socket);
                }
                Err(RecvTimeoutError::Timeout) if self.stop.is_called() => {
                    return Err(PerfError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    if let Some(state) = self.control.try_state(CONNECTING)? {
                        return Err(self.unexpected(state, "data connections"));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.silent(CONNECTING)),
                Err(RecvTimeoutError::Disconnected) => return Err(PerfError::Interrupted),
            }
        }
        Ok(sockets)
    }

    fn work(
        &mut self,
        order: &Order,
        bound: BoundPorts,
        sockets: Vec<TcpStream>,
    ) -> Result<Report, PerfError> {
        let over = AtomicBool::new(false);
        let moved = AtomicBool::new(true);
        let timeouts = Timeouts::new(&over, self.stop, FOREVER).noting(&moved);
        let arrivals = Arrivals::default();
        // `admit` has already refused an order that names a missing CPU.
        let affinity = order.server_affinity.map(|cpu| cpu as usize).or(self.options.affinity);
        let account = CpuAccount::default();
        let works = works(order, &bound, sockets, self.cookie, timeouts);
        thread::scope(|scope| {
            let _end = EndOnDrop(timeouts);
            let (arrivals, account) = (&arrivals, &account);
            let run = move |work: Work<'_>| {
                let _counted = enlist(account, affinity);
                work(arrivals);
            };
            let spawned = works.into_iter().map(|work| scope.spawn(move || run(work)));
            let workers: Vec<_> = spawned.collect();
            self.control.send_state(State::TestRunning)?;
            let meter = CpuMeter::start();
            self.await_end(order, &moved)?;
            let cpu = meter.stop();
            // Data that arrives after the end is not part of a TCP stream's measurement.
            let at_end = arrivals.report();
            timeouts.end();
            for worker in workers {
                let _ = worker.join();
            }
            let report = if order.kind == Kind::TcpStream { at_end } else { arrivals.report() };
            Ok(Report { cpu: cpu.with_threads(account).to_wire(), ..report })
        })
    }

    fn await_end(&mut self, order: &Order, moved: &AtomicBool) -> Result<(), PerfError> {
        let began = Instant::now();
        let end = began + Duration::from_secs_f64(order.seconds);
        let limits = &self.options.limits;
        let mut last = began;
        loop {
            if moved.swap(false, Ordering::Relaxed) {
                last = Instant::now();
            }
            self.progress.traffic(last, Some(end));
            if self.stop.is_called() {
                let _ = self.control.send_state(State::ServerTerminate);
                return Err(PerfError::Interrupted);
            }
            match self.control.try_state("measuring")? {
                Some(State::TestEnd) => return Ok(()),
                Some(state) => return Err(self.unexpected(state, "the measurement's end")),
                None if Instant::now()
                    >= (end.max(last) + limits.patience).min(end + limits.receive_timeout) =>
                {
                    return Err(self.silent("measuring"));
                }
                None => wait_readable(self.control.socket(), POLL_INTERVAL),
            }
        }
    }

    fn unexpected(&self, state: State, wanted: &str) -> PerfError {
        let peer = self.control.peer().to_owned();
        match state {
            State::ClientTerminate => PerfError::EndedByPeer { peer },
            state => PerfError::NotIperf { peer, saw: format!("{state:?} instead of {wanted}") },
        }
    }

    fn silent(&self, doing: &'static str) -> PerfError {
        let peer = self.control.peer().to_owned();
        PerfError::Silent { peer, within: self.options.limits.patience, doing }
    }
}

#[derive(Debug)]
struct SessionTime {
    began: Instant,
    longest: Option<Span>,
}

impl SessionTime {
    fn new(longest: Option<Span>) -> Self {
        Self { began: Instant::now(), longest }
    }

    /// Checks that a measurement of `seconds` ends before the session's maximum duration.
    fn admit(&self, seconds: f64) -> Result<(), String> {
        let Some(longest) = self.longest else { return Ok(()) };
        let lasted = self.began.elapsed().as_secs_f64();
        if lasted + seconds <= longest.secs_f64() {
            return Ok(());
        }
        Err(format!(
            "{seconds} seconds after {lasted:.0}: a session may last {longest}; measure less in one, or raise \
             the server's --max-time"
        ))
    }

    fn is_over(&self) -> bool {
        self.longest.is_some_and(|longest| self.began.elapsed() >= longest.as_duration())
    }
}

type Work<'a> = Box<dyn FnOnce(&Arrivals) + Send + 'a>;

/// Returns the function that each thread of a measurement runs.
fn works<'a>(
    order: &'a Order,
    bound: &'a BoundPorts,
    sockets: Vec<TcpStream>,
    cookie: &'a Cookie,
    timeouts: Timeouts<'a>,
) -> Vec<Work<'a>> {
    let mut works: Vec<Work<'a>> = Vec::new();
    for socket in sockets {
        works.push(match order.kind {
            Kind::TcpStream => Box::new(move |to| bulk::receive(&socket, timeouts, to)),
            _ => Box::new(move |to| rr::respond(&socket, order, timeouts, to)),
        });
    }
    if let Some(listener) = &bound.listener {
        for _ in 0..order.connections {
            let peer = bound.peer;
            works.push(Box::new(move |to| crr::respond(listener, peer, order, timeouts, to)));
        }
    }
    for socket in &bound.datagrams {
        works.push(match order.kind {
            Kind::UdpStream => Box::new(move |to| udp_bulk::receive(socket, cookie, timeouts, to)),
            _ => Box::new(move |to| udp_rr::respond(socket, cookie, order, timeouts, to)),
        });
    }
    works
}

/// Ends the threads of a measurement when dropped, however the measurement ends.
struct EndOnDrop<'a>(Timeouts<'a>);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Data received by all threads of a measurement.
#[derive(Debug)]
pub(super) struct Arrivals {
    epoch: Instant,
    count: AtomicU64,
    bytes: AtomicU64,
    /// Time of the first arrival since `epoch`, in nanoseconds.
    first: AtomicU64,
    last: AtomicU64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
        }
    }
}

impl Arrivals {
    /// Adds the counts of a thread that has its own counters.
    pub(super) fn add(&self, count: u64, bytes: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn span(&self, first: Instant, last: Instant) {
        let nanos = |at: Instant| {
            u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
        };
        self.first.fetch_min(nanos(first), Ordering::Relaxed);
        self.last.fetch_max(nanos(last), Ordering::Relaxed);
    }

    fn report(&self) -> Report {
        let first = self.first.load(Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        Report {
            count: self.count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            seconds: last.saturating_sub(first) as f64 / 1e9,
            ..Report::default()
        }
    }
}

fn admit(order: &Order, asked: Kind, limits: &Limits) -> Result<(), String> {
    let most = order.kind.most_bytes();
    if order.kind != asked {
        return Err(format!("{} was ordered in a session of {asked}", order.kind));
    }
    for (what, bytes) in [("request", order.request), ("response", order.response)] {
        if bytes > most || (bytes == 0 && (order.kind.has_latency() || what == "request")) {
            return Err(format!("a {what} of {bytes} bytes: {} carries 1 to {most}", order.kind));
        }
    }
    if order.connections == 0 || order.connections > limits.streams {
        let most = limits.streams;
        return Err(format!("{} connections: 1 to {most} are served", order.connections));
    }
    let longest = limits.duration.map_or(LONGEST_SECONDS, |span| span.secs_f64());
    if !(order.seconds > 0.0 && order.seconds <= longest) {
        return Err(format!("{} seconds: up to {longest} are served", order.seconds));
    }
    if let Some(rate) = limits.rate {
        return Err(format!(
            "clients of this server may use {rate}, and this test sends as fast as it can"
        ));
    }
    if let Some(cpu) = order.server_affinity {
        let allowed = probe::cpu::affinity().unwrap_or_default();
        if !allowed.iter().any(|core| *core as u64 == cpu) {
            return Err(format!("CPU {cpu} is not among the CPUs it may use: {allowed:?}"));
        }
    }
    Ok(())
}

pub(super) fn wait_readable(socket: &TcpStream, within: Duration) {
    // Ignore errors: the next read of the socket reports them.
    let _ = ready(socket.as_fd(), PollFlags::IN, within);
}

const CONNECTING: &str = "opening its data connections";
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of the server's worker threads, which never expires. The thread of the control
/// connection has a deadline and ends the workers.
const FOREVER: Duration = Duration::from_secs(1 << 32);
const LONGEST_SECONDS: f64 = 86_400.0;
