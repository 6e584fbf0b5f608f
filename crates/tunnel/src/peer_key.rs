//! The keys that peers proved in their handshakes, and how many connections use each of them.

use crate::identity::{Certificate, Pin};
use rustls::pki_types::CertificateDer;
use std::fmt::Display;

/// The key of a peer, and the time at which its certificate expires, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerKey {
    pub pin: Pin,
    pub expires: u64,
}

impl PeerKey {
    /// Reads the key from the first of the certificates that the peer presented.
    pub(crate) fn of(certificates: &[CertificateDer<'_>]) -> Option<Self> {
        let certificate = Certificate::parse(certificates.first()?).ok()?;
        Some(Self { pin: certificate.pin, expires: certificate.valid_until().as_secs() })
    }
}

/// The number of connections that use one of a peer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUse {
    pub peer: String,
    pub pin: Pin,
    pub connections: usize,
}

/// Returns the number of connections of each key, for a peer with several keys. `used`: the key of
/// each connection of the peer.
pub(crate) fn key_uses(peer: &dyn Display, pins: &[Pin], used: &[Pin]) -> Vec<KeyUse> {
    let of_pin = |pin: &Pin| KeyUse {
        peer: peer.to_string(),
        pin: *pin,
        connections: used.iter().filter(|one| *one == pin).count(),
    };
    if pins.len() < 2 { Vec::new() } else { pins.iter().map(of_pin).collect() }
}
