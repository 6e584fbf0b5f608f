//! The tunnel's carrier: connections with streams and datagrams. [`quic`] is the one there is.

mod driver;
pub mod quic;
mod shards;
mod socket;
mod steering;
mod timer;
mod tuning;

pub use shards::Shards;
pub(crate) use shards::{carried, carried_over};
pub use tuning::Tuning;

pub use ::quic::{DatagramRefused, Lost, StreamError};

use ::quic::Reading;
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use units::{Bytes as Size, Span};

/// Makes connections.
pub trait Transport: Send + Sync + 'static {
    type Connection: Connection;

    /// One that is ready: the other end has shown who it is. Connections at different places are handled by
    /// different threads of the server, where it has several.
    fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        place: u8,
    ) -> impl Future<Output = Result<Self::Connection, Lost>> + Send;
}

/// One connection with a peer that has shown who it is. Clones are the same connection.
pub trait Connection: Clone + Debug + Send + Sync + 'static {
    type Sending: Sending;
    type Receiving: Receiving;

    /// The other end learns of it with the first bytes.
    fn open(&self) -> impl Future<Output = Result<(Self::Sending, Self::Receiving), Lost>> + Send;

    fn accept(&self)
    -> impl Future<Output = Result<(Self::Sending, Self::Receiving), Lost>> + Send;

    /// May be lost, and is dropped when too many wait already.
    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused>;

    /// Waits for one at least and takes what is there, into the places of `out`; tells how many.
    fn receive_datagrams(
        &self,
        out: &mut [Bytes],
    ) -> impl Future<Output = Result<usize, Lost>> + Send;

    /// The largest that fits now.
    fn datagram_limit(&self) -> Option<usize>;

    /// The end of the connection, whoever ended it.
    fn closed(&self) -> impl Future<Output = Lost> + Send;

    fn is_closed(&self) -> bool;

    fn close(&self, why: &str);

    fn remote(&self) -> SocketAddr;

    /// What the peer has shown, its own certificate first.
    fn certificates(&self) -> Vec<CertificateDer<'static>>;

    fn statistics(&self) -> Statistics;

    fn reading(&self) -> Reading;

    fn rtt(&self) -> Duration;

    /// The memory that the peer makes this end hold.
    fn held(&self) -> Size;

    /// Data that no application has read since the last call gets memory of its own.
    fn compact(&self);

    /// How much the peer may send that was not consumed.
    fn set_receive_window(&self, window: Size);

    /// Likewise on each stream, from its next read on.
    fn set_stream_window(&self, window: Size);

    /// How much is kept that was not acknowledged.
    fn set_send_window(&self, window: Size);
}

pub trait Sending: Debug + Send + 'static {
    /// Waits while too much is unacknowledged.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Nothing follows.
    fn finish(&mut self);

    /// What was not delivered is forgotten.
    fn reset(&mut self, code: u32);

    /// Until the other end has all that was finished, or wants no more.
    fn delivered(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send;
}

pub trait Receiving: Debug + Send + 'static {
    /// Takes chunks that arrived, each with its offset, until about `most` bytes; waits for some. `false` once all
    /// were read.
    fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> impl Future<Output = Result<bool, StreamError>> + Send;

    /// The application took so many bytes: the peer may send as many more.
    fn consumed(&mut self, bytes: usize);

    fn stop(&mut self, code: u32);
}

/// Why a connection is as fast as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    pub rtt: Span,
    pub mtu: Size,
    pub sent: Size,
    pub received: Size,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub packets_lost: u64,
    /// Packets that arrived behind later ones.
    pub packets_late: u64,
    pub reading: Reading,
}
