//! A handshake whose messages have the lengths of TLS 1.3 with certificates on both sides. The
//! messages carry only the transport parameters, and zeros in place of all other fields.
//!
//! | message | sender | keys available after the message |
//! | --- | --- | --- |
//! | client hello | client | |
//! | server hello | server | handshake |
//! | server's flight: extensions, certificate, finished | server | application |
//! | client's flight: certificate, finished | client | application |

use super::{Tally, initial_keys, keys, retry_tag, with_headers};
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use std::any::Any;
use std::sync::Arc;

pub(super) struct PlainSession {
    own: Side,
    params: Vec<u8>,
    peer_params: Option<TransportParameters>,
    next: Step,
    /// Whether the session has the handshake keys. A client has the keys once it has read the
    /// server hello.
    has_handshake_keys: bool,
    /// The part of a message that has arrived so far.
    arrived: Vec<u8>,
    phase: u64,
    tally: Arc<Tally>,
}

/// The message to write or to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    ClientHello,
    ServerHello,
    ServerFlight,
    ClientFlight,
    Done,
}

impl PlainSession {
    pub(super) fn new(own: Side, params: &TransportParameters, tally: Arc<Tally>) -> Self {
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        Self {
            own,
            params: encoded,
            peer_params: None,
            next: Step::ClientHello,
            has_handshake_keys: false,
            arrived: Vec::new(),
            phase: 0,
            tally,
        }
    }

    /// Writes a message: the step, the length of the parameters, the parameters, and zeros.
    fn write(&self, step: Step, out: &mut Vec<u8>) {
        let params: &[u8] = if step.has_params() { &self.params } else { &[] };
        let length = step.length().max(HEADER + params.len());
        let start = out.len();
        out.push(step as u8);
        out.extend_from_slice(&(length as u16).to_be_bytes());
        out.extend_from_slice(&(params.len() as u16).to_be_bytes());
        out.extend_from_slice(params);
        out.resize(start + length, 0);
    }

    fn read(&mut self, message: &[u8]) -> Result<(), TransportError> {
        if message[0] != self.next as u8 {
            return Err(malformed("handshake message out of order"));
        }
        let length = usize::from(u16::from_be_bytes([message[3], message[4]]));
        let params = message.get(HEADER..HEADER + length);
        let mut params = params.ok_or_else(|| malformed("truncated transport parameters"))?;
        if self.next.has_params() {
            self.peer_params = Some(TransportParameters::read(self.own, &mut params)?);
        }
        self.next = self.next.following();
        Ok(())
    }

    /// Takes the first complete message from the received bytes.
    fn take_message(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        let Some(header) = self.arrived.get(..HEADER) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[1], header[2]]));
        if length < HEADER {
            return Err(malformed("handshake message too short"));
        }
        if self.arrived.len() < length {
            return Ok(None);
        }
        let rest = self.arrived.split_off(length);
        Ok(Some(std::mem::replace(&mut self.arrived, rest)))
    }

    fn handshake_keys(&self) -> Keys {
        with_headers(keys(self.own, HANDSHAKE, 0, &self.tally))
    }

    fn application_keys(&mut self) -> KeyPair<Box<dyn PacketKey>> {
        let phase = self.phase;
        self.phase += 1;
        keys(self.own, APPLICATION, phase, &self.tally)
    }
}

impl Step {
    fn writer(self) -> Option<Side> {
        match self {
            Self::ClientHello | Self::ClientFlight => Some(Side::Client),
            Self::ServerHello | Self::ServerFlight => Some(Side::Server),
            Self::Done => None,
        }
    }

    fn following(self) -> Self {
        match self {
            Self::ClientHello => Self::ServerHello,
            Self::ServerHello => Self::ServerFlight,
            Self::ServerFlight => Self::ClientFlight,
            Self::ClientFlight | Self::Done => Self::Done,
        }
    }

    fn has_params(self) -> bool {
        matches!(self, Self::ClientHello | Self::ServerFlight)
    }

    /// Returns the length of rustls's message with an X25519 key share and with P-256 certificates
    /// and signatures.
    fn length(self) -> usize {
        match self {
            Self::ClientHello => 300,
            Self::ServerHello => 122,
            Self::ServerFlight => 1080,
            Self::ClientFlight => 900,
            Self::Done => 0,
        }
    }
}

impl Session for PlainSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        initial_keys(dst_cid, side, &self.tally)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.own.is_client().then_some(false)
    }

    fn is_handshaking(&self) -> bool {
        self.next != Step::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.arrived.extend_from_slice(buf);
        // Stop before this end's own messages: the engine asks for these messages afterwards.
        while self.next.writer() == Some(!self.own)
            && let Some(message) = self.take_message()?
        {
            self.read(&message)?;
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer_params)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let step = self.next;
        if self.own.is_client() && step > Step::ServerHello && !self.has_handshake_keys {
            self.has_handshake_keys = true;
            return Some(self.handshake_keys());
        }
        if step.writer() != Some(self.own) {
            return None;
        }
        self.write(step, buf);
        self.next = step.following();
        match step {
            Step::ClientHello | Step::Done => None,
            Step::ServerHello => Some(self.handshake_keys()),
            Step::ServerFlight | Step::ClientFlight => Some(with_headers(self.application_keys())),
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        (self.phase > 0).then(|| self.application_keys())
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(end) = payload.len().checked_sub(super::TAG) else { return false };
        let packet = [header, &payload[..end]].concat();
        payload[end..] == retry_tag(orig_dst_cid, &packet)
    }

    /// Always an error, because this handshake has no secret.
    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn malformed(reason: &str) -> TransportError {
    TransportError {
        code: TransportErrorCode::PROTOCOL_VIOLATION,
        frame: None,
        reason: reason.to_owned(),
    }
}

const HEADER: usize = 5;
const HANDSHAKE: u64 = 2;
const APPLICATION: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn session(own: Side) -> PlainSession {
        let params = TransportParameters::read(own, &mut &[][..]).unwrap();
        PlainSession::new(own, &params, Arc::default())
    }

    /// Returns all messages that a session writes, and the keys that become available after them.
    fn written(session: &mut PlainSession) -> (Vec<Vec<u8>>, Vec<Keys>) {
        let (mut messages, mut keys) = (Vec::new(), Vec::new());
        loop {
            let mut message = Vec::new();
            let new = session.write_handshake(&mut message);
            if message.is_empty() && new.is_none() {
                return (messages, keys);
            }
            messages.extend((!message.is_empty()).then_some(message));
            keys.extend(new);
        }
    }

    /// Passes all messages from one session to the other. Returns the lengths of the messages.
    fn passed(
        from: &mut PlainSession,
        to: &mut PlainSession,
        part: usize,
    ) -> (Vec<usize>, Vec<Keys>) {
        let (messages, keys) = written(from);
        for piece in messages.iter().flat_map(|message| message.chunks(part)) {
            to.read_handshake(piece).unwrap();
        }
        (messages.iter().map(Vec::len).collect(), keys)
    }

    #[test]
    fn both_ends_derive_the_same_keys_from_messages_of_tls_lengths() {
        for part in [1, 7, 300, 2000] {
            let (mut client, mut server) = (session(Side::Client), session(Side::Server));
            let (hello, none) = passed(&mut client, &mut server, part);
            assert_eq!((hello, none.len()), (vec![300], 0));
            let (flight, server_keys) = passed(&mut server, &mut client, part);
            assert_eq!((flight, server_keys.len()), (vec![122, 1080], 2));
            assert!(client.is_handshaking() && server.is_handshaking());
            let (flight, client_keys) = passed(&mut client, &mut server, part);
            assert_eq!((flight, client_keys.len()), (vec![900], 2));
            assert!(!client.is_handshaking() && !server.is_handshaking());
            for session in [&client, &server] {
                assert!(session.transport_parameters().unwrap().is_some());
            }
            let mut packet = vec![0; 64];
            client_keys[1].packet.local.encrypt(5, &mut packet, 10);
            let mut payload = packet[10..].into();
            server_keys[1].packet.remote.decrypt(5, &packet[..10], &mut payload).unwrap();
            let (next, expected) = (client.next_1rtt_keys(), server.next_1rtt_keys());
            next.unwrap().local.encrypt(6, &mut packet, 10);
            let mut payload = packet[10..].into();
            expected.unwrap().remote.decrypt(6, &packet[..10], &mut payload).unwrap();
        }
    }

    #[test]
    fn a_message_out_of_order_ends_the_handshake() {
        let mut server = session(Side::Server);
        let mut flight = Vec::new();
        session(Side::Client).write(Step::ClientFlight, &mut flight);
        assert!(server.read_handshake(&flight).is_err());
        assert!(session(Side::Server).read_handshake(&[0; 300]).is_err());
    }
}
