//! TLS over TCP as the carrier, for networks that block UDP. Both ends prove the same identities as
//! over QUIC.

mod frame;
mod mux;

pub use frame::{Frame, FrameError};

use super::shards::carried;
use super::{
    Connection, DatagramRefused, Lost, Receiving, Sending, Statistics, StreamError, Tuning,
};
use bytes::{Buf, Bytes, BytesMut};
use frame::PAYLOAD_LIMIT;
use mux::{Event, Mux};
use quic::{Charge, Congestion, Meter, Readable, Reading};
use rustls::pki_types::{CertificateDer, ServerName};
use socket2::SockRef;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use units::Bytes as Size;

/// The ALPN name of the application protocol. A new version of the frames needs a new name.
pub const ALPN: &[u8] = b"weir-tunnel-tls/1";

/// A connection over TLS. The connection closes when the last clone and the last stream are
/// dropped.
#[derive(Debug, Clone)]
pub struct TlsConnection(Arc<Handle>);

/// A client's side: creates connections over TLS.
pub struct TlsClient {
    config: Arc<rustls::ClientConfig>,
    tuning: Tuning,
    meter: Arc<Meter>,
}

/// A server's side: completes connections over TLS that clients began.
pub struct TlsServer {
    config: Arc<rustls::ServerConfig>,
    tuning: Tuning,
    meter: Arc<Meter>,
}

#[derive(Debug)]
pub struct TlsSending {
    handle: Arc<Handle>,
    stream: u32,
}

#[derive(Debug)]
pub struct TlsReceiving {
    handle: Arc<Handle>,
    stream: u32,
}

/// Closes the connection when it is dropped.
#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the driver.
    wake: Notify,
    /// A permit for each stream that this end may open now.
    opens: Arc<Semaphore>,
    remote: SocketAddr,
    certificates: Vec<CertificateDer<'static>>,
    /// The reason for which TCP carries this connection.
    why: String,
    figures: Mutex<Statistics>,
}

#[derive(Debug)]
struct State {
    mux: Mux,
    charge: Charge,
    /// Tasks that wait for an event of the connection and not of a stream.
    connection: Vec<Waker>,
    streams: HashMap<Event, Waker>,
    opens: Arc<Semaphore>,
}

impl TlsClient {
    pub fn new(mut config: rustls::ClientConfig, tuning: Tuning, meter: &Arc<Meter>) -> Self {
        config.alpn_protocols = vec![ALPN.to_vec()];
        Self { config: Arc::new(config), tuning, meter: Arc::clone(meter) }
    }

    /// Connects, and completes once the server has admitted this client. `why` is the reason why
    /// TCP carries the connection.
    pub async fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        why: String,
    ) -> Result<TlsConnection, Lost> {
        let connecting = async {
            let stream = TcpStream::connect(server).await.map_err(lost)?;
            let name = ServerName::try_from(name.to_owned()).map_err(failed)?;
            let tls = rustls::ClientConnection::new(Arc::clone(&self.config), name);
            let connection =
                begin(stream, tls.map_err(failed)?.into(), &self.tuning, &self.meter, why).await?;
            let shared = &connection.0.0;
            // In TLS 1.3 the server checks this end's certificate after this end's handshake is
            // complete, so wait for the server's first frame.
            let greeted = shared.wait(Event::Connection, |mux| match mux.lost() {
                Some(lost) => Some(Err(lost.clone())),
                None => (mux.frames_received() > 0).then_some(Ok(())),
            });
            greeted.await?;
            Ok(connection)
        };
        timeout(self.tuning.handshake, connecting).await.map_err(|_| Lost::Silent)?
    }
}

impl TlsServer {
    pub fn new(mut config: rustls::ServerConfig, tuning: Tuning, meter: &Arc<Meter>) -> Self {
        config.alpn_protocols = vec![ALPN.to_vec()];
        Self { config: Arc::new(config), tuning, meter: Arc::clone(meter) }
    }

    /// Completes once the client has proved its identity.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsConnection, Lost> {
        let tls = rustls::ServerConnection::new(Arc::clone(&self.config)).map_err(failed)?;
        let why = "the client has chosen TCP".to_owned();
        let begun = begin(stream, tls.into(), &self.tuning, &self.meter, why);
        timeout(self.tuning.handshake, begun).await.map_err(|_| Lost::Silent)?
    }
}

/// Completes the handshake, and starts a driver on the current runtime.
async fn begin(
    stream: TcpStream,
    mut tls: rustls::Connection,
    tuning: &Tuning,
    meter: &Arc<Meter>,
    why: String,
) -> Result<TlsConnection, Lost> {
    let socket = SockRef::from(&stream);
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(tuning.keepalive * SILENT_KEEPALIVES)))
        // Bound the bytes queued in the kernel, because no other stream can overtake them.
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
    prepared.map_err(lost)?;
    for name in controls(tuning.congestion) {
        // Without CAP_NET_ADMIN, net.ipv4.tcp_allowed_congestion_control limits the choice.
        if rustix::net::sockopt::set_tcp_congestion(&stream, name).is_ok() {
            break;
        }
    }
    let remote = stream.peer_addr().map_err(lost)?;
    tls.set_buffer_limit(None);
    shake(&stream, &mut tls).await?;
    if tls.alpn_protocol() != Some(ALPN) {
        return Err(Lost::Failed("the peer speaks another protocol over TLS".to_owned()));
    }
    let certificates = tls.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
    let is_server = matches!(tls, rustls::Connection::Server(_));
    let opens = Arc::new(Semaphore::new(0));
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            mux: Mux::new(is_server, tuning.streams),
            charge: Charge::new(meter, 0),
            connection: Vec::new(),
            streams: HashMap::new(),
            opens: Arc::clone(&opens),
        }),
        wake: Notify::new(),
        opens,
        remote,
        certificates: certificates.into_iter().map(CertificateDer::into_owned).collect(),
        why,
        figures: Mutex::default(),
    });
    let driver = Driver {
        shared: Arc::clone(&shared),
        stream,
        tls,
        keepalive: tuning.keepalive,
        out: BytesMut::new(),
        inbound: BytesMut::new(),
    };
    driver.measure();
    tokio::spawn(driver.run());
    Ok(TlsConnection(Arc::new(Handle(shared))))
}

async fn shake(stream: &TcpStream, tls: &mut rustls::Connection) -> Result<(), Lost> {
    while tls.is_handshaking() || tls.wants_write() {
        let moved = match tls.wants_write() {
            true => {
                stream.writable().await.map_err(lost)?;
                tls.write_tls(&mut Io(stream))
            }
            false => {
                stream.readable().await.map_err(lost)?;
                tls.read_tls(&mut Io(stream))
            }
        };
        match moved {
            Ok(0) => return Err(Lost::Failed("the peer ended the handshake".to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(lost(error)),
        }
        if let Err(error) = tls.process_new_packets() {
            // Send the alert, which gives the peer the reason.
            let _ = tls.write_tls(&mut Io(stream));
            return Err(refused(&error));
        }
    }
    Ok(())
}

/// Moves bytes between the socket and the streams until the connection ends.
struct Driver {
    shared: Arc<Shared>,
    stream: TcpStream,
    tls: rustls::Connection,
    keepalive: Duration,
    out: BytesMut,
    inbound: BytesMut,
}

impl Driver {
    async fn run(mut self) {
        let ended = self.carry().await;
        if let Err(lost) = ended {
            self.shared.change(|mux| mux.end(lost, None));
        }
    }

    async fn carry(&mut self) -> Result<(), Lost> {
        let mut ticks = tokio::time::interval(self.keepalive);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = 0;
        let mut deadline = None;
        // The first frames may have arrived with the last handshake message.
        self.take_plaintext()?;
        loop {
            self.send()?;
            if deadline.is_none() && self.shared.is_lost() {
                self.tls.send_close_notify();
                deadline = Some(Instant::now() + FAREWELL);
                self.send()?;
            }
            if deadline.is_some() && !self.tls.wants_write() {
                let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
            }
            let interest = match self.tls.wants_write() {
                true => Interest::READABLE | Interest::WRITABLE,
                false => Interest::READABLE,
            };
            tokio::select! {
                ready = self.stream.ready(interest) => {
                    if ready.map_err(lost)?.is_readable() {
                        self.receive()?;
                    }
                }
                () = self.shared.wake.notified() => {}
                _ = ticks.tick() => {
                    self.measure();
                    let received = self.shared.lock().mux.frames_received();
                    if received == heard {
                        self.shared.lock().mux.ping(received);
                    }
                    heard = received;
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Ok(());
                }
            }
        }
    }

    /// Writes until the socket's buffer is full or no frame is left to send.
    fn send(&mut self) -> Result<(), Lost> {
        for _ in 0..TURNS {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut Io(&self.stream)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(lost(error)),
                }
            }
            self.out.clear();
            self.shared.collect(&mut self.out);
            if self.out.is_empty() {
                // An idle connection keeps no buffer.
                self.out = BytesMut::new();
                return Ok(());
            }
            carried(self.out.len());
            self.tls.writer().write_all(&self.out).map_err(lost)?;
        }
        // More bytes are left. Wake the driver again, after the other direction and other tasks
        // have run.
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Reads the bytes that have arrived, up to `AT_ONCE`.
    fn receive(&mut self) -> Result<(), Lost> {
        let mut left = AT_ONCE;
        while left > 0 {
            match self.tls.read_tls(&mut Io(&self.stream)) {
                Ok(0) => return Err(Lost::Restarted),
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(lost(error)),
            }
            self.take_plaintext()?;
        }
        Ok(())
    }

    fn take_plaintext(&mut self) -> Result<(), Lost> {
        let processed = self.tls.process_new_packets();
        let waiting = processed.map_err(|error| refused(&error))?.plaintext_bytes_to_read();
        if waiting == 0 {
            return Ok(());
        }
        let before = self.inbound.len();
        self.inbound.resize(before + waiting, 0);
        self.tls.reader().read_exact(&mut self.inbound[before..]).map_err(lost)?;
        carried(waiting);
        let inbound = &mut self.inbound;
        self.shared.change(|mux| {
            if let Err(violation) = mux.receive(inbound) {
                mux.end(Lost::Violation(violation), Some("this end broke the protocol"));
            }
        });
        if self.inbound.is_empty() {
            self.inbound = BytesMut::new();
        }
        Ok(())
    }

    fn measure(&self) {
        let Ok(info) = probe::tcp::of_socket(&self.stream) else { return };
        let mss = info.snd_mss.unwrap_or_default().count();
        let rate =
            |rate: Option<units::Rate>| rate.filter(|rate| rate.bits_per_second() < UNLIMITED);
        let reading = Reading {
            rtt: info.rtt.unwrap_or_default(),
            min_rtt: info.min_rtt.unwrap_or_default(),
            cwnd: info.cwnd().unwrap_or_default(),
            inflight: Size::new(mss * u64::from(info.unacked.unwrap_or_default())),
            path_loss: None,
            pacing_rate: rate(info.pacing_rate),
            delivery_rate: info.delivery_rate.unwrap_or_default(),
        };
        let mut figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        *figures = Statistics {
            rtt: reading.rtt,
            mtu: info.pmtu.unwrap_or_default(),
            sent: info.bytes_sent.unwrap_or_default(),
            received: info.bytes_received.unwrap_or_default(),
            packets_sent: info.segs_out.unwrap_or_default().into(),
            packets_received: 0,
            packets_lost: info.total_retrans.unwrap_or_default().into(),
            packets_late: info.rcv_ooopack.unwrap_or_default().into(),
            reading,
        };
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_lost(&self) -> bool {
        self.lock().mux.lost().is_some()
    }

    /// Changes the streams, and wakes the tasks that wait for the change.
    fn settle<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, woken) = {
            let mut state = self.lock();
            let result = change(&mut state);
            let held = state.mux.held();
            state.charge.set(held);
            (result, state.woken())
        };
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// Changes the streams, and wakes the waiting tasks and the driver.
    fn change<R>(&self, change: impl FnOnce(&mut Mux) -> R) -> R {
        let result = self.settle(|state| change(&mut state.mux));
        self.wake.notify_one();
        result
    }

    /// Appends the next frames to send to `out`.
    fn collect(&self, out: &mut BytesMut) {
        self.settle(|state| state.mux.fill(out, SEND));
    }

    /// Waits until `look`, which may change the streams, returns a result.
    async fn wait<R>(&self, until: Event, mut look: impl FnMut(&mut Mux) -> Option<R>) -> R {
        poll_fn(|context| {
            let found = self.settle(|state| {
                let found = look(&mut state.mux);
                if found.is_none() {
                    let waker = context.waker();
                    match until {
                        Event::Connection => {
                            if !state.connection.iter().any(|one| one.will_wake(waker)) {
                                state.connection.push(waker.clone());
                            }
                        }
                        until => {
                            state.streams.insert(until, waker.clone());
                        }
                    }
                }
                found
            });
            self.wake.notify_one();
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn statistics(&self) -> Statistics {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Statistics { packets_received: self.lock().mux.frames_received(), ..figures }
    }
}

impl State {
    /// Returns the wakers of the tasks whose events have occurred.
    fn woken(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        for event in self.mux.take_events() {
            match event {
                Event::Connection => woken.append(&mut self.connection),
                Event::Streams(more) => self.opens.add_permits(more as usize),
                Event::All => {
                    self.opens.close();
                    woken.append(&mut self.connection);
                    woken.extend(self.streams.drain().map(|(_, waker)| waker));
                }
                Event::Writers => {
                    let writers =
                        self.streams.extract_if(|event, _| matches!(event, Event::Writable(_)));
                    woken.extend(writers.map(|(_, waker)| waker));
                }
                one => woken.extend(self.streams.remove(&one)),
            }
        }
        woken
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.change(|mux| mux.end(Lost::Here, Some("nobody uses the connection any more")));
    }
}

impl TlsConnection {
    /// Returns the reason for which TCP carries this connection.
    pub fn why(&self) -> &str {
        &self.0.0.why
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    fn halves(&self, stream: u32) -> (TlsSending, TlsReceiving) {
        let handle = Arc::clone(&self.0);
        (TlsSending { handle: Arc::clone(&handle), stream }, TlsReceiving { handle, stream })
    }
}

impl Connection for TlsConnection {
    type Sending = TlsSending;
    type Receiving = TlsReceiving;

    async fn open(&self) -> Result<(TlsSending, TlsReceiving), Lost> {
        loop {
            // The semaphore wakes this task only when the peer permits another stream.
            if let Ok(permit) = self.shared().opens.acquire().await {
                permit.forget();
            }
            if let Some(stream) = self.shared().change(Mux::open)? {
                return Ok(self.halves(stream));
            }
        }
    }

    async fn accept(&self) -> Result<(TlsSending, TlsReceiving), Lost> {
        let accepted = self.shared().wait(Event::Connection, |mux| mux.accept().transpose());
        Ok(self.halves(accepted.await?))
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused> {
        if datagram.is_empty() || datagram.len() > PAYLOAD_LIMIT {
            return Err(DatagramRefused::TooLarge);
        }
        self.shared().change(|mux| match mux.lost() {
            Some(_) => Err(DatagramRefused::Lost),
            None => {
                mux.send_datagram(datagram);
                Ok(())
            }
        })
    }

    async fn receive_datagrams(&self, out: &mut [Bytes]) -> Result<usize, Lost> {
        let receive = |mux: &mut Mux| {
            let count = super::take_datagrams(out, || mux.receive_datagram());
            super::taken(count, mux.lost())
        };
        self.shared().wait(Event::Connection, receive).await
    }

    fn datagram_limit(&self) -> Option<usize> {
        Some(PAYLOAD_LIMIT)
    }

    fn closed(&self) -> impl Future<Output = Lost> + Send {
        let shared = Arc::clone(&self.0.0);
        async move { shared.wait(Event::Connection, |mux| mux.lost().cloned()).await }
    }

    fn is_closed(&self) -> bool {
        self.shared().is_lost()
    }

    fn close(&self, why: &str) {
        self.shared().change(|mux| mux.end(Lost::Here, Some(why)));
    }

    fn remote(&self) -> SocketAddr {
        self.shared().remote
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.shared().certificates.clone()
    }

    fn statistics(&self) -> Statistics {
        self.shared().statistics()
    }

    fn reading(&self) -> Reading {
        self.shared().statistics().reading
    }

    fn rtt(&self) -> Duration {
        self.shared().statistics().rtt.as_duration()
    }

    fn silent_keepalives(&self) -> u32 {
        SILENT_KEEPALIVES
    }

    fn over_tcp(&self) -> Option<&str> {
        Some(self.why())
    }

    fn unread(&self) -> Size {
        Size::new(self.shared().lock().mux.unread())
    }

    fn held(&self) -> Size {
        Size::new(self.shared().lock().mux.held())
    }

    /// Does nothing, because every chunk already has separate memory.
    fn compact(&self) {}

    fn set_receive_window(&self, window: Size) {
        self.shared().change(|mux| mux.set_receive_window(window.count()));
    }

    fn set_stream_window(&self, window: Size) {
        self.shared().lock().mux.set_stream_window(window.count());
    }

    fn set_send_window(&self, window: Size) {
        self.shared().change(|mux| mux.set_send_window(window.count()));
    }
}

impl Sending for TlsSending {
    fn number(&self) -> u64 {
        self.stream.into()
    }

    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StreamError> {
        let stream = self.stream;
        let written = self.handle.0.wait(Event::Writable(stream), |mux| {
            match mux.write(stream, &mut bytes) {
                Ok(()) => (!bytes.has_remaining()).then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        });
        written.await
    }

    fn finish(&mut self) {
        self.handle.0.change(|mux| mux.finish(self.stream));
    }

    fn reset(&mut self, code: u32) {
        self.handle.0.change(|mux| mux.reset(self.stream, code));
    }

    async fn delivered(&mut self) -> Result<(), StreamError> {
        let stream = self.stream;
        let delivered =
            self.handle.0.wait(Event::Delivered(stream), |mux| match mux.delivered(stream) {
                Ok(all) => all.then_some(Ok(())),
                Err(error) => Some(Err(error)),
            });
        delivered.await
    }
}

impl Drop for TlsSending {
    fn drop(&mut self) {
        self.handle.0.forget(&[Event::Writable(self.stream), Event::Delivered(self.stream)]);
        self.handle.0.change(|mux| mux.drop_sending(self.stream));
    }
}

impl Receiving for TlsReceiving {
    async fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Result<bool, StreamError> {
        let stream = self.stream;
        let read =
            self.handle.0.wait(Event::Readable(stream), |mux| match mux.read(stream, most, out) {
                Ok(Readable::Later) => None,
                Ok(Readable::Some) => Some(Ok(true)),
                Ok(Readable::Ended) => Some(Ok(false)),
                Err(error) => Some(Err(error)),
            });
        read.await
    }

    fn consumed(&mut self, bytes: usize) {
        if self.handle.0.settle(|state| state.mux.consume(self.stream, bytes as u64)) {
            self.handle.0.wake.notify_one();
        }
    }

    fn unread(&self) -> Size {
        Size::new(self.handle.0.lock().mux.unread_of(self.stream))
    }

    fn stop(&mut self, code: u32) {
        self.handle.0.change(|mux| mux.stop(self.stream, code));
    }
}

impl Drop for TlsReceiving {
    fn drop(&mut self) {
        self.handle.0.forget(&[Event::Readable(self.stream)]);
        self.handle.0.change(|mux| mux.drop_receiving(self.stream));
    }
}

impl Shared {
    /// Removes the wakers of events for which no task waits any more.
    fn forget(&self, events: &[Event]) {
        let mut state = self.lock();
        for event in events {
            state.streams.remove(event);
        }
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

/// Adapts the non-blocking socket to the `Read` and `Write` that rustls uses.
struct Io<'a>(&'a TcpStream);

impl Read for Io<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Io<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the kernel's congestion control algorithms to try, in this order. If all these
/// algorithms fail, the kernel's default stays.
fn controls(congestion: Congestion) -> &'static [&'static str] {
    match congestion {
        Congestion::Algorithm(algorithm) => algorithm.in_kernel(),
        Congestion::Fixed(_) => &["bbr"],
    }
}

fn lost(error: io::Error) -> Lost {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => Lost::Restarted,
        io::ErrorKind::TimedOut => Lost::Silent,
        _ => Lost::Failed(error.to_string()),
    }
}

fn failed(error: impl fmt::Display) -> Lost {
    Lost::Failed(error.to_string())
}

/// Converts rustls's error for the log: rustls prints an error of this crate's verifier in its
/// `Debug` form.
fn refused(error: &rustls::Error) -> Lost {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    match error {
        Error::AlertReceived(
            alert @ (Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::BadCertificate
            | Alert::UnknownCA),
        ) => Lost::Refused(format!("{alert:?}; the log of the peer has the reason")),
        Error::AlertReceived(alert) => Lost::Refused(format!("{alert:?}")),
        Error::InvalidCertificate(CertificateError::Other(reason)) => {
            Lost::Untrusted(format!("{:?}", reason.0))
        }
        error => Lost::Failed(error.to_string()),
    }
}

/// The kernel reports a pacing rate above this value for a socket that does not pace.
const UNLIMITED: u64 = u64::MAX / 16;
/// How many keepalives of silence prove that the peer is gone, more than over QUIC: a lost TCP
/// segment delays all later data, and the kernel retransmits it after growing pauses.
const SILENT_KEEPALIVES: u32 = 9;
/// Maximum number of bytes that one call encrypts.
const SEND: usize = 64 * 1024;
/// Maximum number of calls per turn that encrypt data.
const TURNS: usize = 8;
/// Maximum number of bytes that the driver receives in one turn.
const AT_ONCE: usize = 256 * 1024;
/// Maximum number of unsent bytes in the kernel's send queue.
const UNSENT: u32 = 128 * 1024;
/// Maximum time that a peer may take to receive the last bytes before the connection is dropped.
const FAREWELL: Duration = Duration::from_secs(1);
