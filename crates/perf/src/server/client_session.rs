use super::admission;
use super::limits::TestLimits;
use super::offer::offer;
use super::refusal::{self, Refusal, Reply, accepted};
use super::sessions::Reservation;
use super::streams;
use super::transcript::Transcript;
use super::{Client, Outcome, OutputForm};
use crate::PerfError;
use crate::accounts::Authenticator;
use crate::control::{
    Control, Cookie, LONGEST_PARAMETERS, PERIODS_WISH, Parameters, Results, SERIES_WISH, State,
};
use crate::event::{Audience, Event, Role, Started, Stop};
use crate::observe::cpu::CpuOf;
use crate::observe::probe_cost::SamplingPeriods;
use crate::observe::tcp::far;
use crate::observe::{EchoOffer, Observer, Plan};
use crate::options::{Amount, ServerOptions, TestOptions};
use crate::output::{Document, Text, TextFormat};
use crate::rounds::{self, wire::TestRequest};
use crate::session::progress::Progress;
use crate::session::{Account, Additions, Session, Setup, StopReason};
use socket2::{SockRef, TcpKeepalive};
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, SystemTime};
use units::{Bytes, foreign};

#[derive(Debug, Clone, Copy)]
pub(super) struct ServerContext<'a> {
    pub(super) options: &'a ServerOptions,
    pub(super) output: OutputForm,
    /// `None` admits every client.
    pub(super) authenticator: Option<&'a Authenticator<'a>>,
    pub(super) stop: &'a Stop,
    pub(super) port: u16,
}

#[derive(Debug)]
pub(super) struct ClientSession<'a> {
    context: ServerContext<'a>,
    reservation: Reservation,
    cookie: Cookie,
    client: Client,
    has_parameters: bool,
}

impl ServerContext<'_> {
    pub(super) fn test_limits(&self) -> TestLimits {
        let limits = &self.options.limits;
        let sessions = if self.options.one_off { 1 } else { limits.sessions };
        TestLimits { sessions, per_address: limits.sessions_per_address }
    }
}

impl<'a> ClientSession<'a> {
    pub(super) fn new(
        context: ServerContext<'a>,
        reservation: Reservation,
        cookie: Cookie,
        client: Client,
    ) -> Self {
        Self { context, reservation, cookie, client, has_parameters: false }
    }

    pub(super) fn run(
        mut self,
        socket: TcpStream,
        mut audience: Box<dyn Audience + Send>,
    ) -> Outcome {
        let (patience, stop) =
            (self.context.options.limits.patience, self.reservation.stop().clone());
        let peer = self.client.address.to_string();
        let served = match Control::new(socket, peer, patience, stop) {
            Ok(mut control) => {
                keep_alive(&control, patience);
                let served = self.serve(&mut control, &mut *audience).map_err(|refusal| {
                    if self.reservation.gave_way() { stalled(control.peer()) } else { refusal }
                });
                if let Err(refusal) = &served {
                    send_reply(&mut control, refusal.reply);
                }
                served
            }
            Err(error) => Err(error.into()),
        };
        match served {
            Ok(()) if self.reservation.progress().has_begun() => Outcome::Completed,
            Ok(()) => Outcome::NotBegun,
            Err(Refusal { error, reply }) => {
                tracing::info!("client {}: {error}", self.client.number);
                audience.event(&Event::Failed(&error));
                match reply {
                    Reply::Busy => Outcome::Busy,
                    _ if self.reservation.progress().has_begun() => Outcome::Failed,
                    _ if self.has_parameters => Outcome::NotBegun,
                    _ => Outcome::Nothing,
                }
            }
        }
    }

    fn serve(&mut self, control: &mut Control, audience: &mut dyn Audience) -> Result<(), Refusal> {
        control.send_state(State::ExchangeParameters)?;
        let mut parameters: Parameters = control
            .receive_json(LONGEST_PARAMETERS, "sending its parameters")
            .map_err(Refusal::during(refusal::RECEIVE_PARAMETERS))?;
        if let Some(authenticator) = self.context.authenticator {
            admission::admit(authenticator, control, &mut parameters, self.reservation.stop())?;
        }
        self.has_parameters = true;
        if let Err(full) = self.reservation.begin_test(self.context.test_limits()) {
            return Err(Refusal::busy(later(control.peer(), full.reason())));
        }
        if let Some(request) = parameters.weir.as_ref().and_then(TestRequest::within) {
            return self.serve_rounds(control, &request);
        }
        let limits = &self.context.options.limits;
        let options = accepted(&parameters, limits, control.peer())?;
        if !self.reservation.reserve_memory(memory(&options)) {
            return Err(Refusal::busy(later(control.peer(), CROWDED)));
        }
        if parameters.weir.is_some() {
            let echo = EchoOffer { port: self.context.port, token: self.reservation.new_token() };
            control.send_state(State::WeirOffer)?;
            control.send_json(&offer(echo, self.periods(&parameters).is_some()))?;
        }
        let opened = streams::open(
            control,
            &self.reservation,
            &options,
            limits.patience,
            self.reservation.stop(),
        )?;
        let stop = self.reservation.stop().clone();
        let setup = self.setup(&options);
        let observer = Observer::begin(self.plan(&setup, self.periods(&parameters)));
        let _charged = observer.account().enter();
        let mut session = Session::open(setup, opened, observer, stop)
            .map_err(Refusal::during(refusal::INIT_STREAM))?;
        let started = self.started(control, &parameters, options, &session)?;
        let mut audience = Audiences::new(audience, &started.options, self.context.output);
        audience.event(&Event::Started(&started));
        let account = run(control, &mut session, &started, &mut audience).map_err(|mut why| {
            // Send the reply before the streams close: a client that sees its streams break reads
            // no further.
            send_reply(control, why.reply);
            why.reply = Reply::Nothing;
            why
        })?;
        // Drop data in flight, as iperf3 does, because this data is not part of the test.
        drop(session);
        let progress = self.reservation.progress();
        exchange(control, &account, additions(&parameters), &mut audience, progress)
    }

    fn serve_rounds(
        &mut self,
        control: &mut Control,
        request: &TestRequest,
    ) -> Result<(), Refusal> {
        // The number of connections differs between measurements: reserve memory for the maximum
        // number.
        let most = u64::from(self.context.options.limits.streams) * STREAM_MEMORY;
        if !self.reservation.reserve_memory(most) {
            return Err(Refusal::busy(later(control.peer(), CROWDED)));
        }
        let connections = self.reservation.want_any(self.context.options.limits.streams as usize);
        let bounds = (self.reservation.stop(), self.reservation.progress());
        rounds::serve(control, &self.cookie, request, &connections, self.context.options, bounds)?;
        Ok(())
    }

    fn setup(&self, options: &TestOptions) -> Setup {
        let server = self.context.options;
        Setup {
            role: Role::Server,
            options: options.clone(),
            interval: server.interval,
            affinity: options.server_affinity.or(server.affinity),
            receive_timeout: server.limits.receive_timeout,
            grace: Some(server.limits.patience),
            longest: server.limits.duration,
            rate_limit: server.limits.rate.map(|most| (most, server.limits.rate_window)),
            progress: Some(self.reservation.progress().clone()),
        }
    }

    /// Returns the periods that the client asked for; `None` if this server does not probe.
    fn periods(&self, parameters: &Parameters) -> Option<SamplingPeriods> {
        let wished = parameters.weir.as_ref()?.get(PERIODS_WISH)?;
        SamplingPeriods::read(wished).filter(|_| self.context.options.probes)
    }

    fn plan(&self, setup: &Setup, periods: Option<SamplingPeriods>) -> Plan {
        Plan {
            periods,
            probes: self.context.options.probes,
            // Count only this test's threads, because other tests may run in this process.
            cpu: CpuOf::Threads,
            cores: setup.affinity.into_iter().collect(),
            ..Plan::default()
        }
    }

    fn started(
        &self,
        control: &Control,
        parameters: &Parameters,
        options: TestOptions,
        session: &Session,
    ) -> Result<Started, PerfError> {
        let wrong = |e| PerfError::system("inspecting the control connection", e);
        let local = control.socket().local_addr().map_err(wrong)?;
        let mss = SockRef::from(control.socket()).tcp_mss();
        Ok(Started {
            role: Role::Server,
            at: SystemTime::now(),
            cookie: self.cookie.as_str().to_owned(),
            peer: self.client.address.ip().to_string(),
            local: super::plain(local),
            remote: self.client.address,
            mss: mss.ok().map(|mss| Bytes::new(mss.into())),
            peer_version: parameters.client_version.as_deref().map(printable),
            peer_is_weir: parameters.weir.is_some(),
            options,
            streams: session.streams(),
        })
    }
}

/// Runs the test from the start of the traffic until the client reports the end.
fn run(
    control: &mut Control,
    session: &mut Session,
    started: &Started,
    audience: &mut dyn Audience,
) -> Result<Account, Refusal> {
    control.send_state(State::TestStart)?;
    control.send_state(State::TestRunning)?;
    let outcome = session.run(control, audience);
    let peer = control.peer().to_owned();
    let refusal = match outcome {
        Ok(StopReason::PeerState(State::TestEnd)) => {
            if !matches!(started.options.amount, Amount::Time(_)) {
                session.await_remaining_data(LONGEST_REST);
            }
            return Ok(session.finish(audience));
        }
        Ok(StopReason::PeerState(State::ClientTerminate)) => PerfError::EndedByPeer { peer }.into(),
        Ok(StopReason::PeerState(state)) => {
            let saw = format!("it sent {state:?} in the middle of a test");
            PerfError::NotIperf { peer, saw }.into()
        }
        Ok(StopReason::RateExceeded(rate)) => {
            let reason = format!("its streams carried {rate} together, which is above the limit");
            Refusal::new(refusal::TOTAL_RATE, PerfError::PeerFailed { peer, reason })
        }
        Ok(StopReason::TimeLimit(longest)) => {
            let code = refusal::expired(started.peer_version.as_deref(), started.peer_is_weir);
            let reason =
                format!("its test lasted longer than {longest}, and no longer one is served");
            Refusal::new(code, PerfError::PeerFailed { peer, reason })
        }
        Ok(StopReason::NotEnded | StopReason::Reached) => {
            let reason = "it did not end the test in time".to_owned();
            Refusal::new(refusal::SERVER_TERMINATED, PerfError::PeerFailed { peer, reason })
        }
        Err(error @ PerfError::Silent { .. }) => Refusal::new(refusal::NO_DATA, error),
        Err(error) => error.into(),
    };
    let account = session.finish(audience);
    audience.event(&Event::Ended(&account.alone()));
    Err(refusal)
}

fn exchange(
    control: &mut Control,
    account: &Account,
    additions: Additions,
    audience: &mut Audiences<'_>,
    progress: &Progress,
) -> Result<(), Refusal> {
    progress.step();
    control.send_state(State::ExchangeResults)?;
    let theirs: Results = control
        .receive_json(LONGEST_RESULTS, "sending its results")
        .map_err(Refusal::during(refusal::RECEIVE_RESULTS))?;
    audience.event(&Event::Ended(&account.ended(&theirs)));
    let mut results = account.results(additions);
    audience.written_into(&mut results);
    control.send_json(&results)?;
    control.send_state(State::DisplayResults)?;
    progress.end();
    // Client and server have all results, so a client that leaves without a last message is
    // no failure.
    match control.receive_state("ending the test") {
        Ok(_) | Err(PerfError::Gone { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn additions(parameters: &Parameters) -> Additions {
    match &parameters.weir {
        None => Additions::Nothing,
        Some(ours) if ours.get(SERIES_WISH) == Some(&true.into()) => Additions::Series,
        Some(_) => Additions::Ours,
    }
}

/// Tells the client the reason, if it can still be reached.
fn send_reply(control: &mut Control, reply: Reply) {
    let sent = match reply {
        Reply::Error(code, errno) => control.send_server_error(code, errno),
        Reply::Busy => control.send_state(State::AccessDenied),
        Reply::Terminated => control.send_state(State::ServerTerminate),
        Reply::Nothing => Ok(()),
    };
    if sent.is_err() {
        return;
    }
    // Closing a socket with unread bytes resets the connection, and the peer might lose the reply.
    let mut socket = control.socket();
    let _ = socket.shutdown(Shutdown::Write);
    let mut bytes = [0; 4096];
    for _ in 0..64 {
        if !matches!(socket.read(&mut bytes), Ok(1..)) {
            break;
        }
    }
}

/// The session's own audience, and the output for a client that requests the server's output.
struct Audiences<'a> {
    own: &'a mut dyn Audience,
    text: Option<(Text<Transcript>, Transcript)>,
    document: Option<Document>,
}

impl<'a> Audiences<'a> {
    fn new(own: &'a mut dyn Audience, options: &TestOptions, form: OutputForm) -> Self {
        let wanted = |this| options.server_output && form == this;
        let text = wanted(OutputForm::Text).then(|| {
            let transcript = Transcript::default();
            (Text::new(transcript.clone(), TextFormat::plain()), transcript)
        });
        Self { own, text, document: wanted(OutputForm::Json).then(Document::default) }
    }

    fn written_into(&self, results: &mut Results) {
        results.server_output_text = self.text.as_ref().map(|(_, transcript)| transcript.text());
        let document = self.document.as_ref().map(Document::value);
        let length = document.as_ref().map_or(0, |document| document.to_string().len());
        if length <= LONGEST_DOCUMENT {
            results.server_output_json = document;
        } else {
            let text = format!("The server's output has {length} bytes, too many to be sent.\n");
            results.server_output_text = Some(text);
        }
    }
}

impl Audience for Audiences<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.own.event(event);
        if let Some((text, _)) = &mut self.text {
            text.event(event);
        }
        if let Some(document) = &mut self.document {
            document.event(event);
        }
    }
}

/// Enables TCP keepalive, to detect a client whose host is gone: during a test the client may send
/// nothing for hours.
fn keep_alive(control: &Control, patience: Duration) {
    let probes =
        TcpKeepalive::new().with_time(patience).with_interval(patience / 4).with_retries(4);
    // If this fails, the test's own deadline remains.
    let _ = SockRef::from(control.socket()).set_tcp_keepalive(&probes);
}

fn later(peer: &str, why: &str) -> PerfError {
    PerfError::Postponed { peer: peer.to_owned(), reason: why.to_owned() }
}

/// Returns the refusal for a session that stalled while another client waited for a slot.
fn stalled(peer: &str) -> Refusal {
    let reason = "it stalled, and its place was given to another client".to_owned();
    Refusal::busy(PerfError::PeerFailed { peer: peer.to_owned(), reason })
}

fn memory(options: &TestOptions) -> u64 {
    let directions = if options.direction == crate::options::Direction::Both { 2 } else { 1 };
    let stream = options.block_bytes() as u64 + STREAM_MEMORY;
    u64::from(options.streams) * directions * stream
}

/// Makes text from a peer safe to print.
fn printable(text: &str) -> String {
    foreign(text).up_to(LONGEST_VERSION).to_string()
}

const CROWDED: &str = "its streams and those of the other tests need more memory than is allowed";
/// Maximum length of the results that a client sends, in bytes: enough for the maximum number of
/// streams with weir's additions. Parsing may take thirty times as much memory.
const LONGEST_RESULTS: usize = 256 * 1024;
const LONGEST_VERSION: usize = 64;
/// Maximum length of the output sent to a client, in bytes: together with the other results the
/// output fits in the largest message that a weir client reads.
const LONGEST_DOCUMENT: usize = crate::control::LONGEST - LONGEST_RESULTS - far::MOST_BYTES;
/// Maximum wait for the last bytes of a test that ends after an amount of data.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// Memory of a stream: the used part of its thread's stack, and the buffers for batches of
/// datagrams.
const STREAM_MEMORY: u64 = 256 * 1024;
