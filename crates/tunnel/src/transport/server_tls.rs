//! TLS sessions of a QUIC server. A session frees its handshake state as soon as the handshake is
//! complete, and keeps only the peer's certificates and the secrets of later key updates. The
//! engine's own session keeps the complete state: 6 kB of each idle connection.

use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Suite, Version};
use rustls::{AlertDescription, CipherSuite};
use std::any::Any;
use std::sync::Arc;

/// Starts the sessions of a server.
pub(super) struct ServerTls {
    tls: Arc<rustls::ServerConfig>,
    /// The engine's sessions, for the drafts of QUIC.
    engine: Arc<QuicServerConfig>,
    initial: Option<Suite>,
}

struct ServerSession {
    initial: Suite,
    state: State,
    secrets: Option<Secrets>,
}

enum State {
    Handshake(Box<ServerConnection>),
    Complete(Vec<CertificateDer<'static>>),
}

impl ServerTls {
    pub(super) fn new(tls: rustls::ServerConfig) -> Result<Self, NoInitialCipherSuite> {
        let tls = Arc::new(tls);
        let engine = Arc::new(QuicServerConfig::try_from(Arc::clone(&tls))?);
        let mut suites = tls.crypto_provider().cipher_suites.iter();
        // RFC 9001, section 5.2: the suite of Initial packets.
        let initial = suites.find(|one| one.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let initial = initial.and_then(|suite| suite.tls13()?.quic_suite());
        Ok(Self { tls, engine, initial })
    }

    fn session(&self, version: u32, params: &TransportParameters) -> Option<ServerSession> {
        let initial = self.initial.filter(|_| version == QUIC_V1)?;
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        let tls = ServerConnection::new(Arc::clone(&self.tls), Version::V1, encoded).ok()?;
        let state = State::Handshake(Box::new(tls));
        Some(ServerSession { initial, state, secrets: None })
    }
}

impl ServerConfig for ServerTls {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.engine.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.engine.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        match self.session(version, params) {
            Some(session) => Box::new(session),
            None => Arc::clone(&self.engine).start_session(version, params),
        }
    }
}

impl ServerSession {
    /// Frees the handshake state if nothing of the handshake is left to do.
    fn complete(&mut self) {
        let State::Handshake(tls) = &self.state else { return };
        if tls.is_handshaking() || self.secrets.is_none() {
            return;
        }
        self.state = State::Complete(certificates(tls));
    }
}

impl Session for ServerSession {
    fn initial_keys(&self, id: &ConnectionId, _: Side) -> Keys {
        keys(self.initial.keys(id, rustls::Side::Server, Version::V1))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(match &self.state {
            State::Handshake(tls) => certificates(tls),
            State::Complete(shown) => shown.clone(),
        }))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Handshake(tls) => tls.is_handshaking(),
            State::Complete(_) => false,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let State::Handshake(tls) = &mut self.state else {
            // A client has nothing to send after its handshake (RFC 9001, section 6).
            let reason = "TLS message after the handshake".to_owned();
            return Err(alert(AlertDescription::UnexpectedMessage, reason));
        };
        let Err(error) = tls.read_hs(bytes) else { return Ok(false) };
        Err(match tls.alert() {
            Some(description) => alert(description, error.to_string()),
            None => TransportError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame: None,
                reason: format!("TLS error: {error}"),
            },
        })
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Handshake(tls) = &self.state else { return Ok(None) };
        let Some(mut encoded) = tls.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut encoded)?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let State::Handshake(tls) = &mut self.state else { return None };
        match tls.write_hs(out) {
            Some(KeyChange::Handshake { keys: all }) => Some(keys(all)),
            Some(KeyChange::OneRtt { keys: all, next }) => {
                self.secrets = Some(next);
                Some(keys(all))
            }
            None => {
                if out.is_empty() {
                    self.complete();
                }
                None
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let next = self.secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(next.local), remote: Box::new(next.remote) })
    }

    /// Only servers send a Retry.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    /// The tunnel exports no keys.
    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

/// Returns the certificates that the peer has shown; empty before the peer has shown a certificate.
fn certificates(tls: &ServerConnection) -> Vec<CertificateDer<'static>> {
    let shown = tls.peer_certificates().unwrap_or_default();
    shown.iter().map(|one| one.clone().into_owned()).collect()
}

fn keys(all: rustls::quic::Keys) -> Keys {
    let rustls::quic::Keys { local, remote } = all;
    Keys {
        header: KeyPair { local: Box::new(local.header), remote: Box::new(remote.header) },
        packet: KeyPair { local: Box::new(local.packet), remote: Box::new(remote.packet) },
    }
}

fn alert(description: AlertDescription, reason: String) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(description.into()), frame: None, reason }
}

const QUIC_V1: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{
        Identity, PeerName, Pin, Proof, ServerTrust, TrustedPeer, client_config, server_config,
    };
    use crate::peer_key::PeerKey;
    use bytes::BytesMut;
    use quinn_proto::crypto::ClientConfig;
    use quinn_proto::crypto::rustls::QuicClientConfig;

    /// Returns the client and the server after a complete handshake, and the client's pin.
    fn complete() -> (Box<dyn Session>, ServerSession, Pin) {
        let own = |name: &str| Identity::generate(name, 1).unwrap().0;
        let (client, server) = (own("client"), own("server"));
        let pin = client.pin();
        let name: PeerName = "client".parse().unwrap();
        let peer = TrustedPeer { name, proof: Proof::Pins(vec![pin]) };
        let trust = ServerTrust::Pins(vec![server.pin()]);
        let params = TransportParameters::read(Side::Client, &mut &[][..]).unwrap();
        let client = QuicClientConfig::try_from(client_config(&client, &trust).unwrap()).unwrap();
        let mut client = Arc::new(client).start_session(QUIC_V1, "server", &params).unwrap();
        let tls = ServerTls::new(server_config(&server, &[peer]).unwrap()).unwrap();
        let mut server = tls.session(QUIC_V1, &params).unwrap();
        for _ in 0..4 {
            exchange(&mut *client, &mut server);
            exchange(&mut server, &mut *client);
        }
        (client, server, pin)
    }

    /// Moves all handshake bytes of one end to the other end.
    fn exchange(from: &mut dyn Session, to: &mut dyn Session) {
        loop {
            let mut bytes = Vec::new();
            let keys = from.write_handshake(&mut bytes);
            if keys.is_none() && bytes.is_empty() {
                return;
            }
            if !bytes.is_empty() {
                to.read_handshake(&bytes).unwrap();
            }
        }
    }

    #[test]
    fn a_complete_session_keeps_the_peers_certificates_without_the_handshake() {
        let (client, server, pin) = complete();
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert!(matches!(server.state, State::Complete(_)));
        let identity = server.peer_identity().unwrap();
        let shown = identity.downcast::<Vec<CertificateDer<'static>>>().unwrap();
        assert_eq!(PeerKey::of(&shown).unwrap().pin, pin);
    }

    #[test]
    fn both_ends_update_their_keys_after_the_handshake() {
        let (mut client, mut server, _) = complete();
        for packet in 0..3 {
            let client = client.next_1rtt_keys().unwrap();
            let server = server.next_1rtt_keys().unwrap();
            for (from, to) in [(client.local, server.remote), (server.local, client.remote)] {
                let mut bytes = b"headdata".to_vec();
                bytes.resize(bytes.len() + from.tag_len(), 0);
                from.encrypt(packet, &mut bytes, 4);
                let mut payload = BytesMut::from(&bytes[4..]);
                to.decrypt(packet, &bytes[..4], &mut payload).unwrap();
                assert_eq!(&payload[..], b"data");
            }
        }
    }

    #[test]
    fn a_tls_message_after_the_handshake_is_an_error() {
        let (_, mut server, _) = complete();
        // A KeyUpdate of TLS, which QUIC forbids (RFC 9001, section 6).
        let error = server.read_handshake(&[24, 0, 0, 1, 0]).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::crypto(10));
    }
}
