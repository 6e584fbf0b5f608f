//! Whom this end believes.

use super::{Certificate, IdentityError, Pin, keys};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What an identity is called here: in the list of what it may reach, in logs and in figures.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

/// An identity that a server lets in.
#[derive(Debug, Clone)]
pub struct TrustedPeer {
    pub name: PeerName,
    pub proof: Proof,
}

/// How an identity is recognised.
#[derive(Debug, Clone)]
pub enum Proof {
    /// It has one of these keys.
    Pins(Vec<Pin>),
    /// It has a certificate of these authorities for this DNS name, exactly.
    Certified { authorities: Arc<RootCertStore>, name: String },
}

/// How a client recognises its server.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    Pins(Vec<Pin>),
    /// A certificate of these authorities for this DNS name or address.
    Certified {
        authorities: Arc<RootCertStore>,
        name: String,
    },
}

impl PeerName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ServerTrust {
    /// What to ask for in the handshake.
    pub fn server_name(&self) -> &str {
        match self {
            Self::Pins(_) => "weir-tunnel",
            Self::Certified { name, .. } => name,
        }
    }

    pub(super) fn check(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        let certificate = Certificate::parse(shown)?;
        certificate.check_time(now)?;
        match self {
            Self::Pins(pins) if pins.contains(&certificate.pin) => Ok(()),
            Self::Pins(_) => Err(IdentityError::UnknownKey(certificate.pin)),
            Self::Certified { authorities, name } => {
                let verifier = WebPkiServerVerifier::builder_with_provider(
                    Arc::clone(authorities),
                    super::tls::provider(),
                );
                let verifier = verifier.build().map_err(untrusted)?;
                let name = ServerName::try_from(name.as_str())
                    .map_err(|_| IdentityError::ServerName(name.clone()))?;
                let verified = verifier.verify_server_cert(shown, chain, &name, &[], now);
                verified.map(|_| ()).map_err(untrusted)
            }
        }
    }
}

/// The authorities in a PEM file.
pub fn authorities(path: &Path) -> Result<Arc<RootCertStore>, IdentityError> {
    let mut store = RootCertStore::empty();
    for certificate in keys::chain(path, &keys::read(path)?)? {
        store.add(certificate).map_err(|error| IdentityError::Pem {
            path: path.to_owned(),
            what: "certificate of an authority",
            reason: error.to_string(),
        })?;
    }
    Ok(Arc::new(store))
}

/// Whose certificate this is, the first in `shown`. All is verified again: the list of those trusted may
/// be another one than it was at the handshake.
pub fn peer_name(
    shown: &[CertificateDer<'_>],
    trusted: &[TrustedPeer],
    now: UnixTime,
) -> Result<PeerName, IdentityError> {
    let (first, chain) = shown.split_first().ok_or(IdentityError::Nothing)?;
    let certificate = Certificate::parse(first)?;
    certificate.check_time(now)?;
    let mut doubt = IdentityError::UnknownKey(certificate.pin);
    for peer in trusted {
        if matches!(&peer.proof, Proof::Pins(pins) if pins.contains(&certificate.pin)) {
            return Ok(peer.name.clone());
        }
    }
    // Peers share their authorities as a rule: each is asked once.
    let mut asked: Option<(&Arc<RootCertStore>, Result<(), IdentityError>)> = None;
    for peer in trusted {
        let Proof::Certified { authorities, name } = &peer.proof else { continue };
        if !asked.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, authorities)) {
            asked = Some((authorities, vouched(authorities, first, chain, now)));
        }
        match asked.as_mut() {
            Some((_, Ok(())))
                if certificate.names.iter().any(|own| own.eq_ignore_ascii_case(name)) =>
            {
                return Ok(peer.name.clone());
            }
            Some((_, Ok(()))) => doubt = IdentityError::UnknownName(certificate.names.join(", ")),
            Some((_, Err(IdentityError::Untrusted(reason)))) => {
                doubt = IdentityError::Untrusted(std::mem::take(reason));
            }
            _ => {}
        }
    }
    Err(doubt)
}

fn vouched(
    authorities: &Arc<RootCertStore>,
    shown: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), IdentityError> {
    let authorities = Arc::clone(authorities);
    let verifier = WebPkiClientVerifier::builder_with_provider(authorities, super::tls::provider());
    let verifier = verifier.build().map_err(untrusted)?;
    verifier.verify_client_cert(shown, chain, now).map(|_| ()).map_err(untrusted)
}

fn untrusted(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Untrusted(error.to_string())
}

impl FromStr for PeerName {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(good) {
            return Ok(Self(text.into()));
        }
        Err(IdentityError::PeerName(text.to_owned()))
    }
}

impl std::fmt::Display for PeerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl std::fmt::Debug for PeerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}
