//! Who is at the other end: keys, pins and certificates. Both ends show one, always, in TLS 1.3.
//!
//! A peer is known by the hash of its public key (a [`Pin`]) or by a certificate of an authority. Either
//! way its certificate must be valid today, and not be on a revocation list of the authority. Nothing is resumed:
//! whoever is let in has just shown it all.

mod authorities;
mod certificate;
mod error;
mod exchange;
mod keys;
mod pin;
mod tls;
mod trust;

#[cfg(test)]
mod handshakes;

pub use authorities::Authorities;
pub use certificate::Certificate;
pub use error::IdentityError;
pub use keys::{Identity, Secret};
pub use pin::Pin;
pub use tls::{
    ALPN, ClientCredentials, Credentials, ServerCredentials, client_config, server_config,
};
pub(crate) use trust::good_until;
pub use trust::{PeerName, Proof, ServerTrust, TrustedPeer, peer_name};
