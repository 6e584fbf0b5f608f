//! The verification of the certificates of controllers.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

/// The CAs of the switch's peers.
#[derive(Debug)]
pub(super) struct Authorities {
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    /// The certificates in the file. A peer may also present one of these certificates itself, as
    /// OpenSSL allows.
    listed: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Authorities {
    pub(super) fn new(
        listed: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &listed {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let roots = Arc::new(roots);
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let clients = clients.map_err(|error| error.to_string())?;
        Ok(Self { roots, clients, listed, provider })
    }

    fn check_server(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.allow_listed(shown, self.check_signatures(shown, between, now))
    }

    /// Checks that a CA of the switch's peers has signed the chain.
    fn check_signatures(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let known = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(shown)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, known)
    }

    /// Accepts a certificate of the file during its validity period, although it is marked as a CA
    /// certificate, which makes the verification fail.
    fn allow_listed(
        &self,
        shown: &CertificateDer<'_>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        match outcome {
            Err(error) if is_outside_its_time(&error) => Err(error),
            Err(_) if self.listed.iter().any(|listed| listed == shown) => Ok(()),
            outcome => outcome,
        }
    }
}

fn is_outside_its_time(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(
        error,
        Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
        )
    )
}

/// Verifies signatures with the algorithms of the provider, for both verifiers.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, shown, signature, known)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, shown, signature, known)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_server(shown, between, now)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Authorities {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let outcome = self.clients.verify_client_cert(shown, between, now).map(drop);
        self.allow_listed(shown, outcome)?;
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

/// Trusts the first controller, and stores the CA certificate of its chain in a file.
#[derive(Debug)]
pub(super) struct Bootstrap {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl Bootstrap {
    pub(super) fn new(file: PathBuf, provider: Arc<CryptoProvider>) -> Self {
        Self { file, provider }
    }

    /// Writes a new file. Never changes an existing file.
    fn store(&self, authority: &CertificateDer<'_>) -> std::io::Result<()> {
        let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
        for line in STANDARD.encode(authority).as_bytes().chunks(64) {
            text.extend(line.iter().map(|byte| char::from(*byte)));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o444).open(&self.file)?;
        let written = file.write_all(text.as_bytes());
        if written.is_err() {
            // An incomplete file would prevent every later attempt.
            let _ = std::fs::remove_file(&self.file);
        }
        written
    }
}

impl ServerCertVerifier for Bootstrap {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let path = self.file.display();
        let authority = between.last().unwrap_or(shown).clone().into_owned();
        let found = Authorities::new(vec![authority.clone()], self.provider.clone());
        let checked = found.map_err(Error::General).and_then(|found| {
            let is_unsigned = |error: &Error| {
                matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer))
            };
            let outcome = match found.check_signatures(shown, between, now) {
                // The peer sent only its own certificate, which another certificate has signed.
                Err(error) if is_unsigned(&error) => Err(error),
                outcome => found.allow_listed(shown, outcome),
            };
            outcome.map_err(|_| {
                Error::General(
                    "the peer sent no CA certificate: copy the file of its CA instead".to_owned(),
                )
            })
        });
        checked?;
        self.store(&authority).map_err(|error| {
            Error::General(format!(
                "cannot write the CA certificate {path}: {error}; check the folder and its \
                 permissions"
            ))
        })?;
        tracing::warn!("TLS: {path} is now the CA certificate of the first controller");
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}
