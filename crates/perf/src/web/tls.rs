//! The client's side of TLS.

use super::{Trust, WebOptions};
use crate::PerfError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the TLS configuration. The configuration disables session resumption, so that every
/// connection has a full handshake, whose cost at the server resumption would hide.
pub(super) fn config(options: &WebOptions) -> Result<Arc<ClientConfig>, PerfError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let wrong = |error: String| PerfError::Usage(format!("TLS: {error}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| wrong(error.to_string()))?;
    let verifier: Arc<dyn ServerCertVerifier> = match &options.trust {
        Trust::Anything => Arc::new(AnyCertificate(provider)),
        Trust::File(path) => {
            let (roots, named) = roots_of(path)?;
            Arc::new(Named { named, others: trusting(roots, provider)? })
        }
        Trust::System => trusting(system_roots()?, provider)?,
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the library's text about an error, or advice if the library's text alone does not help.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the server does not offer TLS 1.3, which this client needs".to_owned()
        }
        Error::InvalidCertificate(reason) => format!(
            "the certificate is not trusted ({reason:?}): name it or its authority with --ca, or use --insecure"
        ),
        other => other.to_string(),
    }
}

/// Makes a handshake before the measurement, because the TLS libraries of client and server
/// initialise themselves in their first handshake. Ignores errors: the measurement reports them.
pub(super) fn warm_up(
    mut socket: TcpStream,
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    patience: Duration,
) {
    let until = Instant::now() + patience;
    let Ok(mut tls) = ClientConnection::new(Arc::clone(config), name.clone()) else { return };
    let limited = socket
        .set_read_timeout(Some(patience))
        .and_then(|()| socket.set_write_timeout(Some(patience)));
    if limited.is_err() {
        return;
    }
    while tls.is_handshaking() && Instant::now() < until {
        let done = match tls.wants_write() {
            true => tls.write_tls(&mut socket),
            false => tls.read_tls(&mut socket),
        };
        let is_over = !matches!(done, Ok(count) if count > 0);
        if is_over || tls.process_new_packets().is_err() {
            return;
        }
    }
}

fn trusting(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, PerfError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| PerfError::Usage(format!("TLS: {error}")))
}

fn roots_of(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), PerfError> {
    let name = path.display();
    let wrong = |reason: String| PerfError::Usage(format!("--ca {name}: {reason}"));
    let pem = host::read_regular_bytes(path).map_err(|error| wrong(error.to_string()))?;
    let (mut roots, mut named) = (RootCertStore::empty(), Vec::new());
    for one in CertificateDer::pem_slice_iter(&pem) {
        let one = one.map_err(|error| wrong(format!("not a certificate in PEM: {error:?}")))?;
        named.push(one.clone());
        roots.add(one).map_err(|error| wrong(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(wrong("it holds no certificate in PEM".to_owned())),
        false => Ok((roots, named)),
    }
}

fn system_roots() -> Result<RootCertStore, PerfError> {
    for bundle in BUNDLES {
        let Ok(pem) = std::fs::read(bundle) else { continue };
        let mut roots = RootCertStore::empty();
        // Ignore certificates of the bundle that this library does not support.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
        if !roots.is_empty() {
            return Ok(roots);
        }
    }
    Err(PerfError::Usage(
        "this machine has no certificates of authorities: install ca-certificates, name a file with --ca, or use \
         --insecure"
            .to_owned(),
    ))
}

/// Accepts the certificates of a file, and certificates that they have issued. A certificate of the
/// file may be marked as an authority, as `openssl req -x509` does.
#[derive(Debug)]
struct Named {
    named: Vec<CertificateDer<'static>>,
    others: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.named.iter().any(|named| named == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.others.verify_server_cert(certificate, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.others.supported_verify_schemes()
    }
}

/// Accepts any certificate, but checks that the server has the certificate's key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Usual files with the certificates that a machine trusts: Debian and Ubuntu, Fedora, SUSE,
/// Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
