//! Decides which identities this end trusts.

use super::{Authorities, Certificate, IdentityError, Pin};
use rustls::pki_types::{CertificateDer, UnixTime};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The local name of an identity, used in rules, logs and metrics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

/// An identity that a server admits.
#[derive(Debug, Clone)]
pub struct TrustedPeer {
    pub name: PeerName,
    pub proof: Proof,
}

/// The way in which a peer proves its identity.
#[derive(Debug, Clone)]
pub enum Proof {
    /// The peer has one of these keys.
    Pins(Vec<Pin>),
    /// The peer has a certificate of these authorities for exactly this DNS name.
    Certified { authorities: Arc<Authorities>, name: String },
    /// The peer has a certificate that one of these authorities signed.
    CertifiedWhoever { authorities: Arc<Authorities> },
    /// The peer may be anyone. Only [`crate::quic_tun`] makes this proof, when its user gives the
    /// flag [`crate::quic_tun::settings::INSECURE`].
    Anyone,
}

/// The way in which a client recognises its server.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    Pins(Vec<Pin>),
    /// A certificate of these authorities for this DNS name or address.
    Certified {
        authorities: Arc<Authorities>,
        name: String,
    },
    /// The server may be anyone. Only [`crate::quic_tun`] makes this trust, when its user gives the
    /// flag [`crate::quic_tun::settings::INSECURE`] or [`crate::quic_tun::settings::SKIP_VERIFY`].
    Anyone,
}

impl PeerName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Proof {
    /// Whether many peers share this proof, and so this identity.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::CertifiedWhoever { .. } | Self::Anyone)
    }
}

impl ServerTrust {
    /// Returns the server name to request in the handshake.
    pub fn server_name(&self) -> &str {
        match self {
            Self::Pins(_) | Self::Anyone => "weir-tunnel",
            Self::Certified { name, .. } => name,
        }
    }

    /// Like [`good_until`], for a connection to the server that presented these certificates.
    pub(crate) fn good_until(
        &self,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<Duration>, IdentityError> {
        let (first, chain) = shown.split_first().ok_or(IdentityError::Nothing)?;
        if let Self::Anyone = self {
            return Ok(None);
        }
        if let Self::Pins(pins) = self {
            let pin = Certificate::parse(first)?.pin;
            return if pins.contains(&pin) {
                Ok(None)
            } else {
                Err(IdentityError::UnknownServer(pin))
            };
        }
        self.check(first, chain, now)?;
        Ok(next_end(shown, now))
    }

    pub(super) fn check(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        if let Self::Anyone = self {
            return Ok(());
        }
        let certificate = Certificate::parse(shown)?;
        certificate.check_time(now)?;
        match self {
            Self::Anyone => Ok(()),
            Self::Pins(pins) if pins.contains(&certificate.pin) => Ok(()),
            Self::Pins(_) => Err(IdentityError::UnknownServer(certificate.pin)),
            Self::Certified { authorities, name } => {
                authorities.vouch_for_server(shown, chain, name, now)
            }
        }
    }
}

/// Returns the time since 1970 at which the caller has to check this peer's connection again.
/// `None`: only after a change of the list of trusted peers. A pin never expires, although each
/// new handshake requires a valid certificate.
pub(crate) fn good_until(
    peer: &PeerName,
    shown: &[CertificateDer<'_>],
    trusted: &[TrustedPeer],
    now: UnixTime,
) -> Result<Option<Duration>, IdentityError> {
    let certificate = Certificate::parse(shown.first().ok_or(IdentityError::Nothing)?)?;
    let (name, end) = match pinned(&certificate, trusted) {
        Some(pinned) => (pinned.name.clone(), None),
        None => (peer_name(shown, trusted, now)?, next_end(shown, now)),
    };
    if name == *peer { Ok(end) } else { Err(IdentityError::Renamed(name)) }
}

/// Returns the next expiry among the chain's certificates. Skips expired certificates: the chain
/// was valid without these certificates.
fn next_end(shown: &[CertificateDer<'_>], now: UnixTime) -> Option<Duration> {
    let now = Duration::from_secs(now.as_secs());
    let ends = shown.iter().filter_map(|one| Certificate::parse(one).ok());
    ends.map(|certificate| certificate.valid_until()).filter(|end| *end >= now).min()
}

fn pinned<'a>(certificate: &Certificate, trusted: &'a [TrustedPeer]) -> Option<&'a TrustedPeer> {
    trusted
        .iter()
        .find(|peer| matches!(&peer.proof, Proof::Pins(pins) if pins.contains(&certificate.pin)))
}

/// Finds the peer to which the first certificate in `shown` belongs. Verifies the chain again,
/// because the list of trusted peers may have changed since the handshake.
pub fn peer_name(
    shown: &[CertificateDer<'_>],
    trusted: &[TrustedPeer],
    now: UnixTime,
) -> Result<PeerName, IdentityError> {
    let (first, chain) = shown.split_first().ok_or(IdentityError::Nothing)?;
    let certificate = Certificate::parse(first)?;
    certificate.check_time(now)?;
    let mut doubt = IdentityError::UnknownClient(certificate.pin);
    if let Some(peer) = pinned(&certificate, trusted) {
        return Ok(peer.name.clone());
    }
    // Peers usually share their authorities, so each authority is consulted once.
    let mut asked: Option<(&Arc<Authorities>, bool)> = None;
    for peer in trusted {
        let (authorities, name) = match &peer.proof {
            Proof::Certified { authorities, name } => (authorities, Some(name)),
            Proof::CertifiedWhoever { authorities } => (authorities, None),
            Proof::Anyone => return Ok(peer.name.clone()),
            Proof::Pins(_) => continue,
        };
        let vouched = match asked {
            Some((before, vouched)) if Arc::ptr_eq(before, authorities) => vouched,
            _ => {
                let verdict = authorities.vouch_for_client(first, chain, now);
                let vouched = verdict.is_ok();
                doubt = verdict.err().unwrap_or(doubt);
                asked = Some((authorities, vouched));
                vouched
            }
        };
        if !vouched {
            continue;
        }
        let is_named =
            |name: &String| certificate.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        if name.is_none_or(is_named) {
            return Ok(peer.name.clone());
        }
        doubt = IdentityError::UnknownName(certificate.names.join(", "));
    }
    Err(doubt)
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
