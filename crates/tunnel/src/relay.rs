//! Relays between a local stream and a tunnel stream, in both directions, until both have ended.

use crate::access_log::End;
use crate::account::{Direction, OverQuota, TunnelMeter};
use crate::counters::Counters;
use crate::frame::Status;
use crate::inbound::{Inbound, OpeningError};
use crate::local::Local;
use crate::quic_tun::Record;
use crate::reset_order::{Place, Reason};
use crate::transport::{Connection, Lost, Sending, StreamError};
use crate::windows::Windows;
use bytes::BytesMut;
use std::future::Future;
use std::io::{self, IoSlice};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("here: {0}")]
    Local(#[from] io::Error),
    #[error("in the tunnel: {0}")]
    Tunnel(#[from] StreamError),
    #[error("no answer to the opening: {0}")]
    Head(#[from] OpeningError),
    #[error("the peer refused the opening ({0:?}): {1}")]
    Refused(Status, String),
    #[error("the opening was not answered within {0:?}")]
    Unanswered(Duration),
    #[error("the rules no longer allow the target")]
    Revoked,
    #[error("the quota of the identity is used up")]
    OverQuota,
}

impl From<OverQuota> for RelayError {
    fn from(OverQuota: OverQuota) -> Self {
        Self::OverQuota
    }
}

impl RelayError {
    /// Counts a tunnel that ended with this error.
    pub(crate) fn count(&self, counters: &Counters) {
        let counter = match self {
            Self::Refused(..) => &counters.tunnels_refused,
            Self::OverQuota => &counters.tunnels_over_quota,
            _ if self.is_reset() => &counters.tunnels_reset,
            _ => &counters.tunnels_broken,
        };
        counter.increment();
    }

    /// Returns the reason for the access log.
    pub(crate) fn end(&self) -> End {
        match self {
            _ if self.is_reset() => End::Reset,
            Self::Local(error) if is_short_of_memory(error) => End::Memory,
            Self::Tunnel(error) | Self::Head(OpeningError::Stream(error)) => match error {
                StreamError::Lost(Lost::Here) => End::Closed,
                StreamError::Lost(_) => End::Lost,
                _ => End::Failed,
            },
            Self::Refused(..) => End::Refused,
            Self::Unanswered(_) => End::NoAnswer,
            Self::Revoked => End::NotAllowed,
            Self::OverQuota => End::OverQuota,
            Self::Local(_) | Self::Head(_) => End::Failed,
        }
    }

    /// Whether the application or the target reset its connection, at either end.
    fn is_reset(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        match self {
            Self::Local(error) => {
                matches!(
                    error.kind(),
                    BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected
                )
            }
            Self::Tunnel(error) | Self::Head(OpeningError::Stream(error)) => {
                *error == StreamError::GivenUp(RESET)
            }
            _ => false,
        }
    }
}

/// The counters and records to which a relay adds the carried bytes.
#[derive(Clone, Copy)]
pub(crate) struct Tally<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) meter: &'a TunnelMeter,
    /// The tunnel's own record, if this end keeps one.
    pub(crate) record: Option<&'a Record>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(counters: &'a Counters, meter: &'a TunnelMeter) -> Self {
        Self { counters, meter, record: None }
    }
}

impl Tally<'_> {
    pub(crate) fn sent(&self, bytes: &[u8]) {
        self.counters.bytes_out.add(bytes.len() as u64);
        self.meter.count(Direction::Out, bytes.len());
        if let Some(record) = self.record {
            record.sent(bytes);
        }
    }

    /// Counts the first `count` bytes of `slices`, which this end wrote to the local stream.
    pub(crate) fn received(&self, slices: &[IoSlice<'_>], count: usize) {
        self.counters.bytes_in.add(count as u64);
        self.meter.count(Direction::In, count);
        if let Some(record) = self.record {
            record.received(slices, count);
        }
    }
}

/// Relays until both directions have ended. Passes on the end of each direction separately. A reset
/// or a loss on either side resets both sides. Incoming bytes wait until the peer has answered the
/// opening, at most for the time `answer`. Outgoing bytes do not wait.
pub(crate) async fn relay<C: Connection>(
    local: Local,
    sending: C::Sending,
    inbound: Inbound<C>,
    windows: &Windows<C>,
    tally: Tally<'_>,
    answer: Option<Duration>,
) -> Result<(), RelayError> {
    let never = std::future::pending();
    relay_while(local, sending, inbound, windows, tally, answer, never).await
}

/// Like [`relay`], but ends once the rules no longer allow the tunnel.
pub(crate) async fn relay_while<C: Connection>(
    local: Local,
    mut sending: C::Sending,
    mut inbound: Inbound<C>,
    windows: &Windows<C>,
    tally: Tally<'_>,
    answer: Option<Duration>,
    revoked: impl Future<Output = ()>,
) -> Result<(), RelayError> {
    let result = {
        let out = outward(&local, &mut sending, windows, tally);
        let inward = async {
            if let Some(patience) = answer {
                answered(&mut inbound, patience).await?;
            }
            inward(&local, &mut inbound, windows, tally).await
        };
        tokio::select! {
            both = async { tokio::try_join!(out, inward) } => both,
            () = revoked => Err(RelayError::Revoked),
        }
    };
    match result {
        Ok(_) => {
            tally.meter.end_as(End::Finished);
            Ok(())
        }
        Err(error) => {
            tally.meter.end_as(error.end());
            let code = if error.is_reset() { RESET } else { BROKEN };
            sending.reset(code);
            inbound.stop(code);
            local.abort();
            Err(error)
        }
    }
}

/// Waits for the answer to an opening.
pub(crate) async fn answered<C: Connection>(
    inbound: &mut Inbound<C>,
    patience: Duration,
) -> Result<(), RelayError> {
    let answer = tokio::time::timeout(patience, inbound.answer()).await;
    let answer = answer.map_err(|_| RelayError::Unanswered(patience))??;
    match answer.status {
        Status::Open => Ok(()),
        status => Err(RelayError::Refused(status, answer.message)),
    }
}

async fn outward<C: Connection>(
    local: &Local,
    sending: &mut C::Sending,
    windows: &Windows<C>,
    tally: Tally<'_>,
) -> Result<(), RelayError> {
    let mut buffer = BytesMut::new();
    loop {
        local.readable().await?;
        // Allocate only when bytes arrive, so that an idle application has no buffer.
        let wanted = windows.read_at_once().min(tally.meter.most_at_once(Direction::Out));
        if buffer.capacity() < wanted.min(LEAST_ROOM) {
            buffer.reserve(wanted);
        }
        match local.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let bytes = buffer.split().freeze();
                tally.sent(&bytes);
                let _waiting = windows.wait(count);
                tokio::select! {
                    biased;
                    written = async {
                        admitted(Direction::Out, count, windows, tally).await?;
                        sending.write(bytes).await.map_err(RelayError::from)
                    } => written?,
                    () = blocked(windows) => {
                        tally.counters.tunnels_not_read.increment();
                        let why = "the peer or the rate limit takes no bytes";
                        return Err(short_of_memory(why).into());
                    }
                }
                windows.on_write();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => buffer = BytesMut::new(),
            Err(error) => return Err(error.into()),
        }
    }
    drop(buffer);
    sending.finish();
    Ok(sending.delivered().await?)
}

async fn inward<C: Connection>(
    local: &Local,
    inbound: &mut Inbound<C>,
    windows: &Windows<C>,
    tally: Tally<'_>,
) -> Result<(), RelayError> {
    loop {
        inbound.fill().await?;
        if inbound.ready() == 0 {
            local.finish()?;
            return Ok(());
        }
        while inbound.ready() > 0 {
            let written = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let most = tally.meter.most_at_once(Direction::In) / LEAST_SLICE;
                let count = inbound.slices(&mut slices[..most.clamp(1, SLICES)]);
                let written = local.try_write(&slices[..count]);
                if let Ok(written) = &written {
                    tally.received(&slices[..count], *written);
                }
                written
            };
            match written {
                Ok(count) => {
                    paced(inbound, count, windows, tally).await?;
                    inbound.consume(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if windows.is_short() {
                        inbound.compact();
                    }
                    writable(local, inbound, windows, tally.counters).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn writable<C: Connection>(
    local: &Local,
    inbound: &mut Inbound<C>,
    windows: &Windows<C>,
    counters: &Counters,
) -> io::Result<()> {
    if let Ok(writable) = tokio::time::timeout(STUCK, local.writable()).await {
        return writable;
    }
    let stuck = StuckMark::of(inbound, windows);
    loop {
        tokio::select! {
            writable = tokio::time::timeout(STUCK, local.writable()) => match writable {
                Ok(writable) => return writable,
                Err(_) if windows.has_to_go() => break,
                Err(_) => {}
            },
            () = windows.let_go(&stuck.place) => break,
        }
    }
    counters.tunnels_not_read.increment();
    Err(short_of_memory("the application does not read"))
}

/// Waits until the rate limit admits bytes that the caller has counted, or the connection closes.
async fn admitted<C: Connection>(
    direction: Direction,
    count: usize,
    windows: &Windows<C>,
    tally: Tally<'_>,
) -> Result<(), RelayError> {
    if !tally.meter.is_paced(direction) {
        return tally.meter.admit(direction, count).await.map_err(RelayError::from);
    }
    // Box the future, so that the futures of tunnels without a limit stay small.
    Box::pin(async {
        tokio::select! {
            biased;
            admitted = tally.meter.admit(direction, count) => admitted.map_err(RelayError::from),
            why = windows.closed() => Err(RelayError::from(StreamError::Lost(why))),
        }
    })
    .await
}

/// Waits until the rate limit admits bytes that the application has taken. If the wait is long, the
/// tunnel counts as stuck, as if its application did not read.
async fn paced<C: Connection>(
    inbound: &mut Inbound<C>,
    count: usize,
    windows: &Windows<C>,
    tally: Tally<'_>,
) -> Result<(), RelayError> {
    if !tally.meter.is_paced(Direction::In) {
        return tally.meter.admit(Direction::In, count).await.map_err(RelayError::from);
    }
    Box::pin(async move {
        let mut admitted = std::pin::pin!(admitted(Direction::In, count, windows, tally));
        if let Ok(admitted) = tokio::time::timeout(STUCK, admitted.as_mut()).await {
            return admitted;
        }
        let stuck = StuckMark::of(inbound, windows);
        tokio::select! {
            biased;
            admitted = admitted.as_mut() => admitted,
            () = windows.let_go(&stuck.place) => {
                tally.counters.tunnels_not_read.increment();
                Err(RelayError::from(short_of_memory("the rate limit takes no bytes")))
            }
        }
    })
    .await
}

/// Waits until memory is so short that this tunnel must be reset, because the connection does not
/// take its bytes.
async fn blocked<C: Connection>(windows: &Windows<C>) {
    tokio::time::sleep(STUCK).await;
    let place = windows.list(Reason::Blocked);
    windows.let_go(&place).await;
}

fn short_of_memory(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{why}, and memory is short"))
}

/// Whether the error was made by `short_of_memory` and not by the kernel.
fn is_short_of_memory(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// Marks the stream as stuck until this value is dropped.
struct StuckMark<'a, C: Connection> {
    windows: &'a Windows<C>,
    unread: u64,
    place: Place<'a>,
}

impl<'a, C: Connection> StuckMark<'a, C> {
    fn of(inbound: &Inbound<C>, windows: &'a Windows<C>) -> Self {
        windows.on_stuck();
        Self { windows, unread: inbound.unread(), place: windows.list(Reason::Unread) }
    }
}

impl<C: Connection> Drop for StuckMark<'_, C> {
    fn drop(&mut self) {
        self.windows.on_unstuck(self.unread);
    }
}

/// The code of the reset that this end sends if its side of the tunnel has failed.
const BROKEN: u32 = 1;
/// The code of the reset that this end sends if its application or target has reset.
const RESET: u32 = 2;
/// Time for which a reader may pause before its stream counts as stuck.
const STUCK: Duration = Duration::from_secs(1);
/// Minimum room for a read: with less, a system call would read too few bytes.
const LEAST_ROOM: usize = 16 * 1024;
/// Maximum number of packets whose payload one write takes.
const SLICES: usize = 128;
/// Usual payload of a packet, in bytes.
const LEAST_SLICE: usize = 1200;
