//! The identity of the other end: keys, pins and certificates. Both ends always present a
//! certificate, in TLS 1.3.
//!
//! A peer is identified by the hash of its public key (a [`Pin`]) or by a certificate of an
//! authority. In both cases its certificate must be valid today and not be on a revocation list of
//! the authority. Sessions are not resumed: every connection proves the identity afresh.

mod authorities;
mod certificate;
mod error;
mod exchange;
pub(crate) mod handed;
mod keys;
mod pin;
mod tls;
mod trust;

#[cfg(test)]
mod handshakes;

pub use authorities::Authorities;
pub use certificate::Certificate;
pub(crate) use certificate::date;
pub use error::IdentityError;
pub use keys::{Identity, NewCertificate, Secret, use_next};
pub use pin::Pin;
pub(crate) use tls::explained;
pub use tls::{
    ALPN, ClientCredentials, Credentials, ServerCredentials, client_config, server_config,
};
pub(crate) use trust::good_until;
pub use trust::{PeerName, Proof, ServerTrust, TrustedPeer, peer_name};
