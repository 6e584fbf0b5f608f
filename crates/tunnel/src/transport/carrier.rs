//! A connection over either carrier, QUIC or TLS.

use super::quic::{QuicConnection, ReceivingHalf, SendingHalf};
use super::tcp::{TlsConnection, TlsReceiving, TlsSending};
use super::{
    Connection, DatagramRefused, Lost, Reading, Receiving, Sending, Statistics, StreamError,
};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::watch;
use units::Bytes as Size;

/// The carriers that an end uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Carrier {
    /// A server offers both carriers. A client uses TCP if the server does not answer over UDP.
    #[default]
    Auto,
    /// QUIC over UDP.
    Udp,
    /// TLS over TCP.
    Tcp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no carrier: write auto, udp or tcp")]
pub struct CarrierError(String);

impl FromStr for Carrier {
    type Err = CarrierError;

    fn from_str(text: &str) -> Result<Self, CarrierError> {
        match text {
            "auto" => Ok(Self::Auto),
            "udp" => Ok(Self::Udp),
            "tcp" => Ok(Self::Tcp),
            _ => Err(CarrierError(text.to_owned())),
        }
    }
}

impl Display for Carrier {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A connection over QUIC or TLS.
#[derive(Debug, Clone)]
pub enum Carried {
    Udp(QuicConnection),
    Tcp(TlsConnection),
}

#[derive(Debug)]
pub enum CarriedSending {
    Udp(SendingHalf),
    Tcp(TlsSending),
}

#[derive(Debug)]
pub enum CarriedReceiving {
    Udp(ReceivingHalf),
    Tcp(TlsReceiving),
}

macro_rules! either {
    ($self:ident, $one:ident => $call:expr) => {
        match $self {
            Self::Udp($one) => $call,
            Self::Tcp($one) => $call,
        }
    };
}

impl Connection for Carried {
    type Sending = CarriedSending;
    type Receiving = CarriedReceiving;

    async fn open(&self) -> Result<(CarriedSending, CarriedReceiving), Lost> {
        match self {
            Self::Udp(one) => one.open().await.map(of_udp),
            Self::Tcp(one) => one.open().await.map(of_tcp),
        }
    }

    async fn accept(&self) -> Result<(CarriedSending, CarriedReceiving), Lost> {
        match self {
            Self::Udp(one) => one.accept().await.map(of_udp),
            Self::Tcp(one) => one.accept().await.map(of_tcp),
        }
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused> {
        either!(self, one => one.send_datagram(datagram))
    }

    async fn receive_datagrams(&self, out: &mut [Bytes]) -> Result<usize, Lost> {
        either!(self, one => one.receive_datagrams(out).await)
    }

    fn datagram_limit(&self) -> Option<usize> {
        either!(self, one => one.datagram_limit())
    }

    async fn closed(&self) -> Lost {
        either!(self, one => one.closed().await)
    }

    fn is_closed(&self) -> bool {
        either!(self, one => one.is_closed())
    }

    fn close(&self, why: &str) {
        either!(self, one => one.close(why));
    }

    fn remote(&self) -> SocketAddr {
        either!(self, one => one.remote())
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        either!(self, one => one.certificates())
    }

    fn statistics(&self) -> Statistics {
        either!(self, one => one.statistics())
    }

    fn reading(&self) -> Reading {
        either!(self, one => one.reading())
    }

    fn rtt(&self) -> Duration {
        either!(self, one => one.rtt())
    }

    fn silent_keepalives(&self) -> u32 {
        either!(self, one => one.silent_keepalives())
    }

    fn reports(&self) -> Option<watch::Receiver<u64>> {
        either!(self, one => one.reports())
    }

    fn probe(&self) {
        either!(self, one => one.probe());
    }

    fn probe_after(&self, silence: Option<Duration>) {
        either!(self, one => one.probe_after(silence));
    }

    fn over_tcp(&self) -> Option<&str> {
        either!(self, one => one.over_tcp())
    }

    fn unread(&self) -> Size {
        either!(self, one => one.unread())
    }

    fn held(&self) -> Size {
        either!(self, one => one.held())
    }

    fn compact(&self) {
        either!(self, one => one.compact());
    }

    fn set_receive_window(&self, window: Size) {
        either!(self, one => one.set_receive_window(window));
    }

    fn set_stream_window(&self, window: Size) {
        either!(self, one => one.set_stream_window(window));
    }

    fn set_send_window(&self, window: Size) {
        either!(self, one => one.set_send_window(window));
    }
}

fn of_udp(
    (sending, receiving): (SendingHalf, ReceivingHalf),
) -> (CarriedSending, CarriedReceiving) {
    (CarriedSending::Udp(sending), CarriedReceiving::Udp(receiving))
}

fn of_tcp((sending, receiving): (TlsSending, TlsReceiving)) -> (CarriedSending, CarriedReceiving) {
    (CarriedSending::Tcp(sending), CarriedReceiving::Tcp(receiving))
}

impl Sending for CarriedSending {
    fn number(&self) -> u64 {
        either!(self, one => one.number())
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        either!(self, one => one.write(bytes).await)
    }

    fn finish(&mut self) {
        either!(self, one => one.finish());
    }

    fn reset(&mut self, code: u32) {
        either!(self, one => one.reset(code));
    }

    async fn delivered(&mut self) -> Result<(), StreamError> {
        either!(self, one => one.delivered().await)
    }
}

impl Receiving for CarriedReceiving {
    async fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Result<bool, StreamError> {
        either!(self, one => one.read(most, out).await)
    }

    fn consumed(&mut self, bytes: usize) {
        either!(self, one => one.consumed(bytes));
    }

    fn unread(&self) -> Size {
        either!(self, one => one.unread())
    }

    fn stop(&mut self, code: u32) {
        either!(self, one => one.stop(code));
    }
}
