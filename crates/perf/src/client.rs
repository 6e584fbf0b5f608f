//! The client: opens a test, runs its side of the test, and reports the results of both sides.

pub(crate) mod dial;
pub(crate) mod handshake;
mod offer;
pub(crate) mod resolve;
mod server_error;
mod streams;

use crate::PerfError;
use crate::accounts::Credentials;
use crate::control::{Control, Cookie, LONGEST, PERIODS_WISH, Results, SERIES_WISH, State, ready};
use crate::event::{Audience, Ended, Event, Role, ServerOutput, Started, Stop};
use crate::observe::cpu::CpuOf;
use crate::observe::probe_cost::{CostSettings, SamplingPeriods};
use crate::observe::{LatencyPlan, Observer, Plan};
use crate::options::{ClientOptions, Direction, KeepAlive, Protocol, TestOptions};
use crate::session::{Account, Additions, Session, Setup, StopReason};
use handshake::{Agreed, agree, expect, introduce, refusal, unexpected};
use offer::Offer;
use rustix::event::PollFlags;
use rustix::net::sockopt;
use serde_json::{Map, Value};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};
use streams::Opener;
use units::{Bytes, Span};

/// Runs one test. If the test ends early, `audience` gets the results so far ([`Event::Ended`])
/// before [`Event::Failed`].
pub fn run(
    options: &ClientOptions,
    stop: &Stop,
    audience: &mut dyn Audience,
) -> Result<Ended, PerfError> {
    let outcome = Client::connect(options, stop).and_then(|client| client.measure(audience));
    if let Err(error) = &outcome {
        audience.event(&Event::Failed(error));
    }
    outcome
}

fn check_algorithm(test: &TestOptions) -> Result<(), PerfError> {
    let Some(name) = test.congestion.as_ref().filter(|_| test.protocol == Protocol::Tcp) else {
        return Ok(());
    };
    if test.direction == Direction::Reverse {
        return Ok(());
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::TCP));
    let socket = socket.map_err(|error| PerfError::system("creating a socket", error))?;
    probe::tcp::set_congestion_control(&socket, name)
        .map_err(|refused| PerfError::Usage(refused.to_string()))
}

fn keep_alive(socket: &TcpStream, settings: KeepAlive) -> Result<(), PerfError> {
    let KeepAlive { idle, interval, probes } = settings;
    let mut keep = TcpKeepalive::new();
    if let Some(idle) = idle {
        keep = keep.with_time(idle);
    }
    if let Some(interval) = interval {
        keep = keep.with_interval(interval);
    }
    if let Some(probes) = probes {
        keep = keep.with_retries(probes);
    }
    SockRef::from(socket)
        .set_tcp_keepalive(&keep)
        .map_err(|error| PerfError::system("setting the keepalive of --cntl-ka", error))
}

#[derive(Debug)]
struct Client<'a> {
    options: &'a ClientOptions,
    stop: &'a Stop,
    control: Control,
    cookie: Cookie,
    remote: SocketAddr,
    /// The control connection's segment size.
    mss: Option<u32>,
}

impl<'a> Client<'a> {
    fn connect(options: &'a ClientOptions, stop: &'a Stop) -> Result<Self, PerfError> {
        crate::stream::may_run_on(options.affinity)?;
        check_algorithm(&options.test)?;
        let deadline = Instant::now() + options.connect_timeout;
        let addresses = resolve::addresses(options, deadline, stop)?;
        let socket = dial::control(options, &addresses, deadline, stop)?;
        if let Some(settings) = options.keep_alive {
            keep_alive(&socket, settings)?;
        }
        let remote = socket.peer_addr().map_err(|e| PerfError::system("connecting", e))?;
        let mut control =
            Control::new(socket, remote.to_string(), options.connect_timeout, stop.clone())?;
        let cookie = Cookie::random();
        introduce(&mut control, &cookie, options.connect_timeout, stop)?;
        // Read the MSS after the cookie was sent, as iperf3 does: a small first window may lower
        // the kernel's estimate of the MSS.
        let mss = SockRef::from(control.socket()).tcp_mss().ok().filter(|mss| *mss > 0);
        Ok(Self { options, stop, control, cookie, remote, mss })
    }

    fn measure(mut self, audience: &mut dyn Audience) -> Result<Ended, PerfError> {
        let test = self.test();
        let round_trip = self.round_trip();
        let periods = self.measures_cost().then(|| SamplingPeriods::random(round_trip));
        let wishes = self.wishes(periods.as_ref());
        let credentials = self.options.credentials.as_ref();
        let agreed = agree(&mut self.control, &test, credentials, wishes)
            .map_err(|error| unaccepted(error, credentials))?;
        let offer = agreed.offer.as_ref().map(Offer::read);
        let both_ends = offer.as_ref().is_some_and(|offer| offer.periods);
        let cost_settings = periods.map(|_| CostSettings::of(round_trip, both_ends));
        let plan = Plan { periods, cost_settings, ..self.plan(&agreed, offer.as_ref()) };
        let mut observer = Observer::begin(plan);
        // No stream is open yet, so the path is idle.
        let idle = observer.idle(self.options.idle_probe, self.stop);
        let opener = Opener {
            options: self.options,
            test: &agreed.test,
            remote: self.remote,
            cookie: &self.cookie,
            stop: self.stop,
        };
        let opened = opener.open_all(&self.control);
        let opened = opened.map_err(|error| self.reason(error))?;
        let session = Session::open(self.setup(&agreed.test), opened, observer, self.stop.clone());
        let mut session = session.map_err(|error| self.reason(error))?;
        expect(&mut self.control, State::TestStart, STARTING)
            .map_err(|error| beyond_limit(error, &agreed.test))?;
        audience.event(&Event::Started(&self.started(&agreed, offer.as_ref(), &session)?));
        if let Some(latency) = &idle {
            audience.event(&Event::Idle(latency));
        }
        expect(&mut self.control, State::TestRunning, STARTING)?;
        let halt = session.run(&mut self.control, audience);
        let account = session.finish(audience);
        let outcome = self.finish(halt, session, &account, offer.is_some());
        // Report the client's counters even if the server failed.
        let mut ended = match &outcome {
            Ok(results) => account.ended(results),
            Err(_) => account.alone(),
        };
        ended.warnings.extend(agreed.warnings);
        ended.warnings.extend(self.fragments(&agreed.test));
        if let Ok(results) = &outcome {
            ended.server_output = server_output(results);
        }
        audience.event(&Event::Ended(&ended));
        outcome.map(|_| ended)
    }

    /// Runs from the end of the traffic to the last message; returns the server's results.
    fn finish(
        &mut self,
        halt: Result<StopReason, PerfError>,
        session: Session,
        account: &Account,
        peer_is_weir: bool,
    ) -> Result<Results, PerfError> {
        match halt {
            Ok(
                StopReason::Reached
                | StopReason::NotEnded
                | StopReason::RateExceeded(_)
                | StopReason::TimeLimit(_),
            ) => {}
            Ok(StopReason::PeerState(state)) => {
                let refused = refusal(&mut self.control, state);
                return Err(refused.unwrap_or_else(|| unexpected(&self.control, state)));
            }
            Err(error) => {
                // If the send fails, `error` already reports that the peer is gone.
                let _ = self.control.send_state(State::ClientTerminate);
                return Err(error);
            }
        }
        // The server may have to read a backlog of data before `TestEnd`. The user limits the wait
        // with the receive timeout.
        let patience = self.options.connect_timeout.max(RESULTS_PATIENCE);
        let mut control = self.patient(patience.min(self.options.receive_timeout))?;
        control.send_state(State::TestEnd)?;
        expect(&mut control, State::ExchangeResults, ENDING)?;
        // A server shows no series of its receiving streams, so the client sends no series.
        let additions = if peer_is_weir { Additions::Ours } else { Additions::Nothing };
        control.send_json(&account.results(additions))?;
        let results = control.receive_json(LONGEST, "sending its results")?;
        expect(&mut control, State::DisplayResults, ENDING)?;
        drop(session);
        control.send_state(State::Done)?;
        Ok(results)
    }

    /// Returns the server's own reason in place of `error` if the server closed a stream before its
    /// use.
    fn reason(&mut self, error: PerfError) -> PerfError {
        let is_theirs = match &error {
            PerfError::System { source, .. } => source.kind() == ErrorKind::NotConnected,
            // A host that vanished has sent no reason: look only if bytes have arrived.
            PerfError::Gone { .. } => {
                ready(self.control.socket().as_fd(), PollFlags::IN, Duration::ZERO).unwrap_or(false)
            }
            _ => false,
        };
        if !is_theirs {
            return error;
        }
        expect(&mut self.control, State::TestStart, STARTING).err().unwrap_or(error)
    }

    /// Returns the same connection with the timeout `patience` for each step.
    fn patient(&self, patience: Duration) -> Result<Control, PerfError> {
        let socket = self.control.socket().try_clone();
        let socket = socket.map_err(|e| PerfError::system("the control connection", e))?;
        Control::new(socket, self.control.peer().to_owned(), patience, self.stop.clone())
    }

    fn wishes(&self, periods: Option<&SamplingPeriods>) -> Map<String, Value> {
        let test = &self.options.test;
        let receives = test.protocol == Protocol::Tcp && test.direction != Direction::Forward;
        let series = (SERIES_WISH, Value::from(true));
        let series = (self.options.probes && receives).then_some(series);
        let periods = periods.map(|periods| (PERIODS_WISH, periods.to_json()));
        series.into_iter().chain(periods).map(|(key, wish)| (key.to_owned(), wish)).collect()
    }

    /// Measures the cost of probes only for TCP: the kernel does not tell a UDP sender what has
    /// arrived.
    fn measures_cost(&self) -> bool {
        let ClientOptions { probes, probe_cost, test, .. } = self.options;
        *probes && *probe_cost && test.protocol == Protocol::Tcp
    }

    fn round_trip(&self) -> Span {
        let info = probe::tcp::of_socket(self.control.socket());
        info.ok().and_then(|info| info.rtt).unwrap_or_default()
    }

    /// Returns the test options, with the values that iperf3 takes from the control connection.
    fn test(&self) -> TestOptions {
        let mut test = self.options.test.clone();
        if test.protocol == Protocol::Udp && test.block.is_none() {
            test.block = self.mss.map(|mss| Bytes::new(u64::from(mss).min(MOST_DATAGRAM)));
        }
        test
    }

    /// Returns a warning if datagrams exceed the path MTU. The control connection takes the same
    /// path, so the kernel knows the MTU of the path: the MTU of the first hop, until a router
    /// reports a smaller MTU.
    fn fragments(&self, test: &TestOptions) -> Option<String> {
        let mtu = match self.remote {
            SocketAddr::V4(_) => sockopt::ip_mtu(self.control.socket()),
            SocketAddr::V6(_) => sockopt::ipv6_mtu(self.control.socket()),
        };
        let headers = if self.remote.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let fits = Bytes::new(u64::from(mtu.ok()?).saturating_sub(headers));
        let block = Bytes::new(test.block_bytes() as u64);
        if test.protocol != Protocol::Udp || block <= fits {
            return None;
        }
        let fate = if test.dont_fragment { "do not go out" } else { "travel in fragments" };
        Some(format!("datagrams of {block} {fate}: at most {fits} fit in a packet (--length)"))
    }

    fn setup(&self, test: &TestOptions) -> Setup {
        Setup {
            role: Role::Client,
            options: test.clone(),
            interval: self.options.interval,
            affinity: self.options.affinity,
            receive_timeout: self.options.receive_timeout,
            grace: None,
            longest: None,
            rate_limit: None,
            progress: None,
        }
    }

    fn plan(&self, agreed: &Agreed, offer: Option<&Offer>) -> Plan {
        let latency = LatencyPlan {
            echo: offer.and_then(|offer| offer.echo),
            bind: self.options.bind,
            bind_device: self.options.bind_device.clone(),
            type_of_service: agreed.test.type_of_service,
            ..LatencyPlan::to(self.remote)
        };
        Plan {
            probes: self.options.probes,
            cpu: CpuOf::Process,
            cores: self.options.affinity.into_iter().collect(),
            latency: self.options.probes.then_some(latency),
            ..Plan::default()
        }
    }

    fn started(
        &self,
        agreed: &Agreed,
        offer: Option<&Offer>,
        session: &Session,
    ) -> Result<Started, PerfError> {
        let local = self.control.socket().local_addr();
        Ok(Started {
            role: Role::Client,
            // The wall-clock time is only displayed. No calculation uses this time.
            at: SystemTime::now(),
            cookie: self.cookie.as_str().to_owned(),
            peer: self.options.host.clone(),
            local: local.map_err(|e| PerfError::system("the control connection", e))?,
            remote: self.remote,
            mss: self.mss.map(|mss| Bytes::new(mss.into())),
            peer_version: offer.and_then(|offer| offer.version.clone()),
            peer_is_weir: offer.is_some(),
            options: agreed.test.clone(),
            streams: session.streams(),
        })
    }
}

/// Explains a closed connection if the client sent an account: an iperf3 3.21 server closes the
/// connection without a message when it refuses the account.
fn unaccepted(error: PerfError, credentials: Option<&Credentials>) -> PerfError {
    match error {
        PerfError::Gone { peer, .. } if credentials.is_some() => {
            let reason = "it closed the connection when the account was named, as a server does that does not \
                          accept it: check the user name, the password, the key and the clocks";
            PerfError::PeerFailed { peer, reason: reason.to_owned() }
        }
        other => other,
    }
}

/// Explains a closed connection if the client requested a rate: the iperf3 server of Debian 12
/// closes the connection without a message when the request exceeds the server's limit.
fn beyond_limit(error: PerfError, test: &TestOptions) -> PerfError {
    match error {
        PerfError::Gone { peer, .. } if test.rate.is_some() => {
            let reason = "it closed the connection before the test, as a server does whose rate limit is \
                          exceeded: ask for less with --bitrate";
            PerfError::PeerFailed { peer, reason: reason.to_owned() }
        }
        other => other,
    }
}

fn server_output(results: &Results) -> Option<ServerOutput> {
    let json = results.server_output_json.clone().map(ServerOutput::Json);
    json.or_else(|| results.server_output_text.clone().map(ServerOutput::Text))
}

const STARTING: &str = "the test was to start";
const ENDING: &str = "the results were to be exchanged";
const RESULTS_PATIENCE: Duration = Duration::from_secs(10);
const MOST_DATAGRAM: u64 = 65_507;
