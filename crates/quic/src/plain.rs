//! Endpoints without encryption, for simulations: equal seeds give equal runs.
//!
//! Messages and packets have the lengths of a TLS 1.3 handshake with certificates on both sides.
//! Instead of an AEAD tag, a packet carries a checksum over its number, header and payload, so that
//! the receiver drops a corrupted packet as in reality. The checksum does not protect against
//! deliberate forgery.

mod checksum;
mod handshake;

use crate::endpoint::{Endpoint, Key, RefusedError, Settings};
use checksum::{Checksum, Word};
use handshake::PlainSession;
use quinn_proto::crypto::{
    AeadKey, ClientConfig, CryptoError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys,
    PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{
    ConnectError, ConnectionId, ConnectionIdGenerator, EndpointConfig, Incoming, Side, TimeSource,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Creates endpoints and their connections. Endpoints of one seed generate the same connection IDs
/// and packet numbers.
#[derive(Debug)]
pub struct Plain {
    seed: Word,
    drawn: u64,
    crypto: Arc<Crypto>,
}

/// Starts sessions, and counts the packets that their keys process.
#[derive(Debug, Default)]
struct Crypto {
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    sealed: AtomicU64,
    refused: AtomicU64,
    forge: OnceLock<Mutex<Forge>>,
}

/// A function that changes the frames of a packet.
type Forge = Box<dyn FnMut(&mut [u8]) + Send>;

impl Plain {
    /// Creates a source of endpoints whose random decisions all derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed: Word::new(seed), drawn: 0, crypto: Arc::default() }
    }

    /// Creates an endpoint that opens connections and accepts no connections.
    pub fn client(&mut self, settings: Settings) -> Endpoint {
        let (config, seed) = self.endpoint_config(&settings);
        Endpoint::new(config, None, settings, true, Some(seed))
    }

    /// Creates an endpoint that also accepts connections, through [`Self::accept`].
    pub fn server(&mut self, settings: Settings) -> Endpoint {
        let (config, seed) = self.endpoint_config(&settings);
        let token_key = Arc::new(PlainSecret(self.draw()));
        let mut server = quinn_proto::ServerConfig::new(self.crypto.clone(), token_key);
        server.time_source(Arc::new(FixedClock));
        Endpoint::new(config, Some(server), settings, true, Some(seed))
    }

    /// Opens a connection from `endpoint` to `server`; see [`Endpoint::connect`].
    pub fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        server: SocketAddr,
    ) -> Result<Key, RefusedError> {
        let initial_id = connection_id(self.draw());
        endpoint.connect(now, self.crypto.clone(), initial_id, server, SERVER_NAME)
    }

    /// Accepts the connection of a peer on `endpoint`; see [`Endpoint::accept`].
    pub fn accept(
        &self,
        endpoint: &mut Endpoint,
        now: Instant,
        incoming: Incoming,
    ) -> Result<Key, RefusedError> {
        endpoint.accept(now, incoming, self.crypto.clone())
    }

    /// Makes each client pass the frames of its packets to `forge` before it seals them, so that
    /// servers receive frames of a hostile client. A second call has no effect.
    pub fn forge_clients(&self, forge: impl FnMut(&mut [u8]) + Send + 'static) {
        let _ = self.crypto.tally.forge.set(Mutex::new(Box::new(forge)));
    }

    /// Returns the number of packets sent, including those of handshakes.
    pub fn sealed(&self) -> u64 {
        self.crypto.tally.sealed.load(Ordering::Relaxed)
    }

    /// Returns the number of packets dropped because of a wrong checksum.
    pub fn refused(&self) -> u64 {
        self.crypto.tally.refused.load(Ordering::Relaxed)
    }

    fn endpoint_config(&mut self, settings: &Settings) -> (EndpointConfig, [u8; 32]) {
        let ids = self.draw();
        let mut config = EndpointConfig::new(Arc::new(PlainSecret(self.draw())));
        config.cid_generator(move || Box::new(DrawnIds(ids)));
        // An error means that the size is out of bounds; then the default size stays.
        let _ = config.max_udp_payload_size(settings.largest_packet.max(LARGEST_PAYLOAD));
        let mut seed = [0; 32];
        self.draw().fill(&mut seed);
        (config, seed)
    }

    fn draw(&mut self) -> Word {
        self.drawn += 1;
        self.seed.number(self.drawn)
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut tally = f.debug_struct("Tally");
        tally.field("sealed", &self.sealed).field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl ClientConfig for Crypto {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(PlainSession::new(Side::Client, params, self.tally.clone())))
    }
}

impl ServerConfig for Crypto {
    fn initial_keys(
        &self,
        _version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        Ok(initial_keys(dst_cid, Side::Server, &self.tally))
    }

    fn retry_tag(&self, _version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        Box::new(PlainSession::new(Side::Server, params, self.tally.clone()))
    }
}

/// The key of one direction, packet number space and key phase. A packet sealed with any other key
/// fails to open.
struct PlainKey {
    checksum: Checksum,
    tally: Arc<Tally>,
    of_client: bool,
}

/// A header key that leaves headers readable. The key's sample has the length of a real sample,
/// because the length of small packets depends on the sample.
struct PlainHeader;

fn keys(own: Side, space: u64, phase: u64, tally: &Arc<Tally>) -> KeyPair<Box<dyn PacketKey>> {
    let key = |side: Side| -> Box<dyn PacketKey> {
        let direction = u64::from(side.is_server());
        let checksum = Checksum::new(space).with(direction).with(phase);
        Box::new(PlainKey { checksum, tally: tally.clone(), of_client: side.is_client() })
    };
    KeyPair { local: key(own), remote: key(!own) }
}

fn with_headers(packet: KeyPair<Box<dyn PacketKey>>) -> Keys {
    Keys { header: KeyPair { local: Box::new(PlainHeader), remote: Box::new(PlainHeader) }, packet }
}

fn initial_keys(dst_cid: &ConnectionId, own: Side, tally: &Arc<Tally>) -> Keys {
    let space = Checksum::new(0).over(dst_cid).value();
    with_headers(keys(own, space, 0, tally))
}

fn retry_tag(orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
    Checksum::new(1).over(orig_dst_cid).over(packet).tag()
}

impl PacketKey for PlainKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.tally.sealed.fetch_add(1, Ordering::Relaxed);
        let (sealed, tag) = buf.split_at_mut(buf.len() - TAG);
        let (header, payload) = sealed.split_at_mut(header_len);
        if let Some(forge) = self.tally.forge.get().filter(|_| self.of_client) {
            forge.lock().unwrap_or_else(PoisonError::into_inner)(payload);
        }
        tag.copy_from_slice(&self.checksum.with(packet).over(header).over(payload).tag());
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut bytes::BytesMut,
    ) -> Result<(), CryptoError> {
        let fits = payload.len().checked_sub(TAG).filter(|end| {
            let checksum = self.checksum.with(packet).over(header).over(&payload[..*end]);
            payload[*end..] == checksum.tag()
        });
        let Some(end) = fits else {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
            return Err(CryptoError);
        };
        payload.truncate(end);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    /// Returns the limit of AES-GCM (RFC 9001, section 6.6), so that the engine updates keys as
    /// often as with AES-GCM.
    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

impl HeaderKey for PlainHeader {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        16
    }
}

/// The key for stateless resets and tokens.
struct PlainSecret(Word);

impl HmacKey for PlainSecret {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        let value = Checksum::new(self.0.value()).over(data).value();
        Word::new(value).fill(signature_out);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        if signature == expected { Ok(()) } else { Err(CryptoError) }
    }
}

impl HandshakeTokenKey for PlainSecret {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(PlainSeal(Checksum::new(self.0.value()).over(random_bytes)))
    }
}

struct PlainSeal(Checksum);

impl AeadKey for PlainSeal {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let tag = self.0.over(additional_data).over(data).tag();
        data.extend_from_slice(&tag);
        Ok(())
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let end = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        let (opened, tag) = data.split_at_mut(end);
        let expected = self.0.over(additional_data).over(opened).tag();
        if *tag == expected { Ok(opened) } else { Err(CryptoError) }
    }
}

/// Generates connection IDs from a seed, with the length of the engine's own connection IDs.
struct DrawnIds(Word);

impl ConnectionIdGenerator for DrawnIds {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0 = self.0.number(1);
        connection_id(self.0)
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn connection_id(drawn: Word) -> ConnectionId {
    let mut id = [0; ID];
    drawn.fill(&mut id);
    ConnectionId::new(&id)
}

/// A clock that always shows the same time, so that tokens never expire. With the time of day, two
/// runs would differ.
struct FixedClock;

impl TimeSource for FixedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

const SERVER_NAME: &str = "plain";
const TAG: usize = 16;
const ID: usize = 8;
/// Maximum UDP payload in a full Ethernet frame.
const LARGEST_PAYLOAD: u16 = 1472;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn sealed(key: &dyn PacketKey, number: u64, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut packet = [header, payload, &[0; TAG]].concat();
        key.encrypt(number, &mut packet, header.len());
        packet
    }

    proptest! {
        #[test]
        fn a_sealed_packet_opens_unchanged_and_is_refused_with_any_bit_flipped(
            number in 0u64..(1 << 62),
            header in proptest::collection::vec(any::<u8>(), 1..30),
            payload in proptest::collection::vec(any::<u8>(), 1..200),
            flip in any::<prop::sample::Index>(),
        ) {
            let tally = Arc::new(Tally::default());
            let client = keys(Side::Client, 7, 0, &tally);
            let server = keys(Side::Server, 7, 0, &tally);
            let mut packet = sealed(&*client.local, number, &header, &payload);
            let mut opened = BytesMut::from(&packet[header.len()..]);
            server.remote.decrypt(number, &header, &mut opened).unwrap();
            prop_assert_eq!(&opened[..], &payload[..]);
            // A key of another direction or phase, or a key used with another packet number, does
            // not match.
            let mut other = BytesMut::from(&packet[header.len()..]);
            prop_assert!(server.local.decrypt(number, &header, &mut other).is_err());
            prop_assert!(server.remote.decrypt(number + 1, &header, &mut other).is_err());
            let next = keys(Side::Server, 7, 1, &tally);
            prop_assert!(next.remote.decrypt(number, &header, &mut other).is_err());
            let bit = flip.index(packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
            let (header, payload) = packet.split_at(header.len());
            prop_assert!(server.remote.decrypt(number, header, &mut payload.into()).is_err());
            prop_assert_eq!(tally.refused.load(Ordering::Relaxed), 4);
        }

        #[test]
        fn a_sealed_token_opens_unchanged(token in proptest::collection::vec(any::<u8>(), 0..60)) {
            let secret = PlainSecret(Word::new(3));
            let key = secret.aead_from_hkdf(b"nonce");
            let mut sealed = token.clone();
            key.seal(&mut sealed, &[]).unwrap();
            let mut copy = sealed.clone();
            prop_assert_eq!(key.open(&mut copy, &[]).unwrap(), &token[..]);
            sealed[0] ^= 1;
            prop_assert!(key.open(&mut sealed, &[]).is_err());
            prop_assert!(key.open(&mut token.clone(), &[]).is_err());
        }
    }

    #[test]
    fn equal_seeds_give_equal_connection_ids_that_never_repeat() {
        let ids = |seed| {
            let mut generator = DrawnIds(Word::new(seed));
            (0..1000).map(|_| generator.generate_cid()).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
        let set: std::collections::HashSet<_> = ids(1).into_iter().collect();
        assert_eq!(set.len(), 1000);
    }
}
