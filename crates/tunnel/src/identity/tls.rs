//! TLS 1.3 with both ends' certificates.

use super::trust::{self, ServerTrust, TrustedPeer};
use super::{Identity, IdentityError, exchange};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use std::fmt::{Debug, Display};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The application protocol of both ends. A new version of the frames needs a new name.
pub const ALPN: &[u8] = b"weir-tunnel/2";

/// An end's certificate and its trust. Certificate and trust may be replaced at run time; new
/// handshakes use the new values.
#[derive(Debug)]
pub struct Credentials<T> {
    own: RwLock<Arc<CertifiedKey>>,
    trust: RwLock<Arc<T>>,
}

/// A server's credentials, with the peers that it admits.
pub type ServerCredentials = Credentials<Vec<TrustedPeer>>;
/// A client's credentials, with the trust in its server.
pub type ClientCredentials = Credentials<ServerTrust>;

impl<T> Credentials<T> {
    pub fn new(identity: &Identity, trust: T) -> Arc<Self> {
        let (own, trust) = (RwLock::new(identity.certified()), RwLock::new(Arc::new(trust)));
        Arc::new(Self { own, trust })
    }

    pub fn replace(&self, identity: &Identity, trust: T) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = identity.certified();
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(trust);
    }

    /// Returns this end's only certificate, whatever the other end asks for in its handshake.
    fn own(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.own.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn trust(&self) -> Arc<T> {
        Arc::clone(&self.trust.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ServerCredentials {
    pub fn tls(self: &Arc<Self>) -> Result<ServerConfig, IdentityError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::clone(self) as _)
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Disable resumption, which would admit a peer without a new check, and early data, which
        // an attacker could replay.
        config.max_early_data_size = 0;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}

impl ClientCredentials {
    pub fn tls(self: &Arc<Self>) -> Result<ClientConfig, IdentityError> {
        self.tls_by(provider())
    }

    pub(super) fn tls_by(
        self: &Arc<Self>,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientConfig, IdentityError> {
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(self) as _)
            .with_client_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        Ok(config)
    }
}

/// Returns the TLS configuration of a server whose credentials never change.
pub fn server_config(
    identity: &Identity,
    trusted: &[TrustedPeer],
) -> Result<ServerConfig, IdentityError> {
    Credentials::new(identity, trusted.to_vec()).tls()
}

/// Returns the TLS configuration of a client whose credentials never change.
pub fn client_config(
    identity: &Identity,
    server: &ServerTrust,
) -> Result<ClientConfig, IdentityError> {
    Credentials::new(identity, server.clone()).tls()
}

/// Returns the TLS provider. AES-128 comes first: it costs a third less CPU time per byte, and no
/// practical attack breaks it.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            kx_groups: exchange::groups(),
            ..aws_lc_rs::default_provider()
        })
    });
    Arc::clone(&PROVIDER)
}

/// The part that both verifiers share: the provider's checks of TLS 1.3 signatures.
macro_rules! signatures_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &provider().signature_verification_algorithms;
            verify_tls13_signature(message, shown, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for ServerCredentials {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let all: Vec<_> = std::iter::once(shown).chain(chain).cloned().collect();
        trust::peer_name(&all, &self.trust(), now).map_err(|error| refused(error, now))?;
        Ok(ClientCertVerified::assertion())
    }

    signatures_of_tls13!();
}

impl ServerCertVerifier for ClientCredentials {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.trust().check(shown, chain, now).map_err(|error| refused(error, now))?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_of_tls13!();
}

impl<T: Debug + Send + Sync> ResolvesServerCert for Credentials<T> {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.own())
    }
}

impl<T: Debug + Send + Sync> ResolvesClientCert for Credentials<T> {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.own())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// rustls and quinn-proto print errors with `Debug`; this wrapper's `Debug` prints a readable
/// message.
#[derive(thiserror::Error)]
#[error(transparent)]
struct Reason(IdentityError);

impl Debug for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Returns the text of a connection's error. rustls appends the time of the check to an error about
/// an expired certificate, so the error differs at each attempt: this text has the remedy instead.
pub(crate) fn explained(error: &impl Display) -> String {
    let text = error.to_string();
    let Some((happened, _)) = text.split_once(": verification time ") else { return text };
    let remedy = match happened.ends_with("revocation list expired") {
        true => "get a newer list for `crl-file`",
        false => "renew the certificate at its end (weir tunnel keys --renew), or set the clocks",
    };
    format!("{happened}: {remedy}")
}

/// Sends the matching alert to the other end, and logs the full reason here.
fn refused(error: IdentityError, now: UnixTime) -> rustls::Error {
    let time = now;
    let at = UnixTime::since_unix_epoch;
    match error {
        IdentityError::Expired { until } => {
            CertificateError::ExpiredContext { time, not_after: at(until) }.into()
        }
        IdentityError::NotYetValid { from } => {
            CertificateError::NotValidYetContext { time, not_before: at(from) }.into()
        }
        IdentityError::Revoked => CertificateError::Revoked.into(),
        IdentityError::Tls(error) => error,
        other => CertificateError::Other(OtherError(Arc::new(Reason(other)))).into(),
    }
}
