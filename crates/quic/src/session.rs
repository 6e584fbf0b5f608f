//! TLS sessions whose packet keys report every packet to [`Control`].
//!
//! quinn-proto gets its keys from a [`Session`], and passes each packet's number and plaintext to
//! the keys. No other public interface of quinn-proto shows which packets an acknowledgement names,
//! which delay the peer reports, and which packets arrived after the sender had counted the packets
//! as lost.

use crate::ack::{AckFrame, is_ack_eliciting, is_size_probe, is_urgent};
use crate::control::Shared;
use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use std::any::Any;
use std::sync::Arc;

/// Starts the sessions of one connection. Each connection needs its own value, because the value
/// refers to the connection's [`Control`].
pub(crate) struct Observing<C: ?Sized> {
    pub(crate) inner: Arc<C>,
    pub(crate) control: Shared,
}

struct ObservedSession {
    inner: Box<dyn Session>,
    control: Shared,
    /// Whether the session has given out its handshake keys. These keys come before the
    /// application's keys (RFC 9001, section 4.1.4).
    has_handshake_keys: bool,
}

struct ObservedKey {
    inner: Box<dyn PacketKey>,
    control: Shared,
}

/// The key that opens the peer's Handshake packets.
struct HandshakeKey {
    inner: Box<dyn PacketKey>,
    control: Shared,
}

impl ClientConfig for Observing<dyn ClientConfig> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        Ok(observed(inner, &self.control))
    }
}

impl ServerConfig for Observing<dyn ServerConfig> {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.inner.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        observed(Arc::clone(&self.inner).start_session(version, params), &self.control)
    }
}

fn observed(inner: Box<dyn Session>, control: &Shared) -> Box<dyn Session> {
    let control = control.clone();
    Box::new(ObservedSession { inner, control, has_handshake_keys: false })
}

impl ObservedSession {
    fn observe(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let observe = |inner| -> Box<dyn PacketKey> {
            Box::new(ObservedKey { inner, control: self.control.clone() })
        };
        KeyPair { local: observe(keys.local), remote: observe(keys.remote) }
    }
}

impl Session for ObservedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    /// Weir's endpoints never send early data, because an attacker could replay it.
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.inner.write_handshake(buf)?;
        let is_application = std::mem::replace(&mut self.has_handshake_keys, true);
        if is_application {
            return Some(Keys { header, packet: self.observe(packet) });
        }
        let remote = HandshakeKey { inner: packet.remote, control: self.control.clone() };
        let packet =
            KeyPair { local: packet.local, remote: Box::new(remote) as Box<dyn PacketKey> };
        Some(Keys { header, packet })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.observe(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

impl PacketKey for ObservedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let payload = &buf[header_len..buf.len() - self.inner.tag_len()];
        let (is_ack_eliciting, is_size_probe) = (is_ack_eliciting(payload), is_size_probe(payload));
        self.control.lock().on_sent(packet, buf.len() as u64, is_ack_eliciting, is_size_probe);
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        let mut control = self.control.lock();
        control.on_arrival(packet, is_urgent(payload));
        if let Some(frame) = AckFrame::find(payload)
            && let Some(ranges) = control.on_ack(&frame)
        {
            *payload = BytesMut::from(&frame.replaced(payload, &ranges)[..]);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

impl PacketKey for HandshakeKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        self.control.lock().on_handshake_packet();
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
