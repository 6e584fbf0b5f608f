use super::certificate::date;
use super::{IdentityError, keys, tls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

/// Certificate authorities, and their revocation lists.
#[derive(Debug)]
pub struct Authorities {
    of_clients: Arc<dyn ClientCertVerifier>,
    of_servers: Arc<WebPkiServerVerifier>,
}

impl Authorities {
    /// Loads the authorities of a PEM file, and their revocation lists (RFC 5280, section 5) in PEM
    /// or DER form. If any list is given, every authority of a chain needs a list that is not past
    /// its next update: without such a list, a revoked certificate could pass.
    pub fn load(path: &Path, lists: &[PathBuf]) -> Result<Arc<Self>, IdentityError> {
        let mut store = RootCertStore::empty();
        for certificate in keys::chain(path, &keys::read(path)?)? {
            store.add(certificate).map_err(|error| IdentityError::Pem {
                path: path.to_owned(),
                what: "certificate of an authority",
                reason: error.to_string(),
            })?;
        }
        let store = Arc::new(store);
        let mut revoked = Vec::new();
        for list in lists {
            let read = revocation_lists(list)?;
            read.iter().for_each(|one| warn_of_age(list, one));
            // Check each list separately first, so that an error names the file.
            Self::of(&store, read.clone()).map_err(|error| wrong_list(list, error.to_string()))?;
            revoked.extend(read);
        }
        Self::of(&store, revoked).map(Arc::new).map_err(untrusted)
    }

    fn of(
        store: &Arc<RootCertStore>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, VerifierBuilderError> {
        let by = tls::provider();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(store), Arc::clone(&by));
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(store), by);
        let clients = clients.with_crls(revoked.clone()).enforce_revocation_expiration();
        let servers = servers.with_crls(revoked).enforce_revocation_expiration();
        Ok(Self { of_clients: clients.build()?, of_servers: servers.build()? })
    }

    pub(super) fn vouch_for_client(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        let verified = self.of_clients.verify_client_cert(shown, chain, now);
        verified.map(|_| ()).map_err(doubted)
    }

    pub(super) fn vouch_for_server(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &str,
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        let name =
            ServerName::try_from(name).map_err(|_| IdentityError::ServerName(name.to_owned()))?;
        let verified = self.of_servers.verify_server_cert(shown, chain, &name, &[], now);
        verified.map(|_| ()).map_err(doubted)
    }
}

fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, IdentityError> {
    let bytes = keys::read(path)?;
    // DER begins with the tag of a sequence, PEM with text.
    if bytes.first() == Some(&SEQUENCE) {
        return Ok(vec![bytes.into()]);
    }
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let lists = lists.map_err(|error| wrong_list(path, error.to_string()))?;
    if lists.is_empty() {
        return Err(wrong_list(path, "nothing between BEGIN and END X509 CRL".to_owned()));
    }
    Ok(lists)
}

/// Warns that an outdated list locks out every peer of its authority until the user loads a
/// current list.
fn warn_of_age(path: &Path, list: &[u8]) {
    let parsed: Result<CertificateList, _> = CertificateList::from_der(list);
    let next = parsed.ok().and_then(|parsed| parsed.tbs_cert_list.next_update);
    let Some(next) = next.map(|next| next.to_unix_duration()) else { return };
    if next.as_secs() < UnixTime::now().as_secs() {
        let since = date(next);
        tracing::warn!(path = %path.display(), %since, "a revocation list is out of date: fetch a new one and reload");
    }
}

fn wrong_list(path: &Path, reason: String) -> IdentityError {
    IdentityError::RevocationList { path: path.to_owned(), reason }
}

fn doubted(error: rustls::Error) -> IdentityError {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => IdentityError::Revoked,
        // rustls has no variant for this error of webpki.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => IdentityError::IsAuthority,
        other => untrusted(other),
    }
}

fn untrusted(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Untrusted(error.to_string())
}

const SEQUENCE: u8 = 0x30;
