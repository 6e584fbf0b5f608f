//! The carriers of the tunnel: connections with streams and datagrams. [`quic`] is the usual
//! carrier, and [`tcp`] is for networks that block UDP.

mod carrier;
mod driver;
mod formers;
mod icmp;
pub mod quic;
mod server_tls;
mod shards;
mod socket;
mod steering;
pub mod tcp;
mod timer;
mod tuning;

pub use carrier::{Carried, CarriedReceiving, CarriedSending, Carrier, CarrierError};
pub use shards::Shards;
pub(crate) use shards::{carried, carried_over};
pub(crate) use socket::set_receive_buffer;
pub use tuning::Tuning;

pub use ::quic::{DatagramRefused, Lost, StreamError};

use ::quic::Reading;
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use units::{Bytes as Size, Span};

/// Creates connections.
pub trait Transport: Send + Sync + 'static {
    type Connection: Connection;

    /// Connects to a server, and completes once both ends have proved their identities. A server
    /// with several threads handles connections with different `place`s on different threads.
    fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        place: u8,
    ) -> impl Future<Output = Result<Self::Connection, Lost>> + Send;
}

/// A connection with an authenticated peer. Clones refer to the same connection.
pub trait Connection: Clone + Debug + Send + Sync + 'static {
    type Sending: Sending;
    type Receiving: Receiving;

    /// Opens a stream. The other end learns of the stream when its first bytes arrive.
    fn open(&self) -> impl Future<Output = Result<(Self::Sending, Self::Receiving), Lost>> + Send;

    fn accept(&self)
    -> impl Future<Output = Result<(Self::Sending, Self::Receiving), Lost>> + Send;

    /// Sends a datagram, which the path may lose. If the queue is full, drops a datagram.
    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused>;

    /// Waits for at least one datagram, and moves the datagrams that have arrived into `out`.
    /// Returns the number of moved datagrams.
    fn receive_datagrams(
        &self,
        out: &mut [Bytes],
    ) -> impl Future<Output = Result<usize, Lost>> + Send;

    /// Returns the maximum size of a datagram that now fits in a packet.
    fn datagram_limit(&self) -> Option<usize>;

    /// Waits until either side has ended the connection.
    fn closed(&self) -> impl Future<Output = Lost> + Send;

    fn is_closed(&self) -> bool;

    fn close(&self, why: &str);

    fn remote(&self) -> SocketAddr;

    /// Returns the certificates that the peer presented, beginning with the peer's own.
    fn certificates(&self) -> Vec<CertificateDer<'static>>;

    fn statistics(&self) -> Statistics;

    fn reading(&self) -> Reading;

    fn rtt(&self) -> Duration;

    /// Returns the number of keepalives of silence after which the peer counts as gone.
    fn silent_keepalives(&self) -> u32 {
        3
    }

    /// Returns the count of the network's reports that no process has the peer's port; `None` if
    /// this end gets no such reports. A host on the path can forge a report.
    fn reports(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Asks the peer for an answer, even if congestion control allows no packet. A carrier without
    /// [`Self::reports`] does nothing.
    fn probe(&self) {}

    /// Asks the peer for an answer whenever this end has sent nothing for `silence`; `None` leaves
    /// the keepalives alone. A carrier without [`Self::reports`] does nothing.
    fn probe_after(&self, silence: Option<Duration>) {
        let _ = silence;
    }

    /// Returns the reason for which TCP carries the connection; `None` over UDP.
    fn over_tcp(&self) -> Option<&str> {
        None
    }

    /// Returns the received bytes that no application has consumed, including bytes behind gaps.
    fn unread(&self) -> Size;

    /// Returns the memory that the peer makes this end hold.
    fn held(&self) -> Size;

    /// Copies data that no application has read since the last call, so that the data no longer
    /// keeps whole packets in memory.
    fn compact(&self);

    /// Sets how many unconsumed bytes the peer may send.
    fn set_receive_window(&self, window: Size);

    /// Sets how many unconsumed bytes the peer may send on each stream. The limit applies from the
    /// stream's next read.
    fn set_stream_window(&self, window: Size);

    /// Sets how many unacknowledged bytes this end buffers for retransmission.
    fn set_send_window(&self, window: Size);
}

pub trait Sending: Debug + Send + 'static {
    /// Returns the number of the stream in its connection.
    fn number(&self) -> u64;

    /// Writes bytes. Waits while too many bytes are unacknowledged.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Ends the stream's sending half after the bytes written so far.
    fn finish(&mut self);

    /// Aborts the stream's sending half and discards undelivered bytes.
    fn reset(&mut self, code: u32);

    /// Waits until the other end has received the finished stream completely, or has stopped it.
    fn delivered(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send;
}

pub trait Receiving: Debug + Send + 'static {
    /// Takes chunks that have arrived, each with its offset, up to about `most` bytes. Waits until
    /// some bytes arrive. Returns `false` once the application has read all of the stream.
    fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> impl Future<Output = Result<bool, StreamError>> + Send;

    /// Records that the application has consumed `bytes`, so that the peer may send as many more.
    fn consumed(&mut self, bytes: usize);

    /// Returns the received bytes that the application has not consumed.
    fn unread(&self) -> Size;

    fn stop(&mut self, code: u32);
}

/// Measurements of one connection, for diagnosis of its speed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    pub rtt: Span,
    pub mtu: Size,
    pub sent: Size,
    pub received: Size,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub packets_lost: u64,
    /// Packets that arrived after packets with a higher number.
    pub packets_late: u64,
    pub reading: Reading,
}

/// Moves the datagrams that have arrived to `out`. Returns the number of moved datagrams.
fn take_datagrams(out: &mut [Bytes], next: impl FnMut() -> Option<Bytes>) -> usize {
    let arrived = std::iter::from_fn(next);
    out.iter_mut().zip(arrived).map(|(place, datagram)| *place = datagram).count()
}

/// Returns the result of a wait for datagrams; `None` if the wait goes on, because no datagram has
/// arrived and the connection still exists.
fn taken(count: usize, lost: Option<&Lost>) -> Option<Result<usize, Lost>> {
    match (count, lost) {
        (0, Some(lost)) => Some(Err(lost.clone())),
        (0, None) => None,
        _ => Some(Ok(count)),
    }
}

/// Reasons with which a server closes its connections when it stops. A client that reads such a
/// reason may reconnect at once, because the server has not refused the client.
pub const SERVER_SHUTS_DOWN: &str = "the server is shutting down";
pub const SERVER_HAS_ENDED: &str = "the server has ended";
/// The reason with which a server closes a session that its operator ends. The client may return at
/// once.
pub const SESSION_ENDED: &str = "the operator of the server has ended this session";
/// Reasons with which a server closes a connection beyond a limit. The server may accept a later
/// connection of the client.
pub const CONNECTION_LIMIT: &str = "this identity has reached its limit of connections";
pub const TUNNEL_LIMIT: &str = "this identity has reached its limit of tunnels";
pub const MEMORY_LIMIT: &str = "this connection holds more memory than its share";
/// The reason with which an end closes a connection whose peer was silent.
pub const PEER_IS_SILENT: &str =
    "no packet arrived from this end for several keepalives or round trips";
