//! TLS of OpenFlow connections: the switch's key and certificate, and the CA of its peers.
//!
//! As in Open vSwitch, the CA must have signed the certificate of a peer. The switch ignores the
//! names in the certificate, because the settings name a controller by its IP address.

mod peers;
mod stream;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use settings::table;
use thiserror::Error;

use self::peers::{Authorities, Bootstrap};
pub(super) use self::stream::TlsStream;
use super::confinement;
use super::error::SwitchError;
use super::ordered::{Mutex, rank};
use super::progress::{Part, Progress};

table! {
    /// The files for TLS, in PEM.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TlsSettings in kebab {
        pub private_key: PathBuf,
        /// The switch's certificate, followed by the certificates between this certificate and its
        /// CA.
        pub certificate: PathBuf,
        /// The CA that signs the certificates of controllers.
        pub ca_certificate: PathBuf,
        /// Whether the switch gets a missing CA certificate from its first controller.
        pub bootstrap_ca_certificate: bool = false,
    }
}

#[derive(Debug, Error)]
pub enum TlsError {
    #[error(
        "TLS has no private key and certificates: name them by ovs-vsctl set-ssl, or by [tls] in \
         the configuration file"
    )]
    NoFiles,
    #[error("cannot read the {what} {}: {error}; check the path and the permissions", path.display())]
    Read { what: &'static str, path: PathBuf, error: std::io::Error },
    #[error("{} has no {what} in PEM: name another file", path.display())]
    Pem { what: &'static str, path: PathBuf },
    #[error("the CA certificate {}: {reason}: name another file", path.display())]
    Ca { path: PathBuf, reason: String },
    #[error(
        "the private key {} and the certificate {} cannot be used together: {reason}; name a key \
         and its certificate",
        key.display(), certificate.display()
    )]
    Pair { key: PathBuf, certificate: PathBuf, reason: String },
    #[error("the CA certificate `none` would accept any controller: name the file of the CA")]
    NoVerification,
    #[error(
        "the CA certificate {} is missing, and the switch gets the certificate from a controller \
         to which it connects",
        path.display()
    )]
    NoCaYet { path: PathBuf },
    #[error(
        "files for TLS are in {}, which this process could not open at its start: move the files \
         into the rundir or beside a file of the settings, or restart `weir switch run`, without \
         --confine-files if the settings are in a database",
        path.display()
    )]
    Confined { path: PathBuf },
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The settings in force, and the contents of their files at the last reading.
#[derive(Debug, Default)]
pub(super) struct Tls {
    state: Mutex<State, { rank::LAST }>,
}

#[derive(Debug, Default)]
struct State {
    settings: Option<TlsSettings>,
    credentials: Option<Arc<Credentials>>,
    /// The files at the last attempt to read them.
    seen: Vec<Stamp>,
    /// Whether `credentials` are the contents that the files had at this attempt.
    is_current: bool,
}

/// The identity of a file's contents; `None` if there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

#[derive(Debug)]
struct Credentials {
    client: Arc<ClientConfig>,
    /// `None` if the CA certificate is missing.
    server: Option<Arc<ServerConfig>>,
}

impl Tls {
    /// Applies settings. If the settings come from a settings file, unusable TLS files are an
    /// error. If the settings come from a database, they are applied nevertheless, and connections
    /// fail until the TLS files are usable.
    pub(super) fn change(
        &self,
        wanted: Option<&TlsSettings>,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let seen = wanted.map(TlsSettings::stamps).unwrap_or_default();
        let is_same = |state: &State| {
            state.settings.as_ref() == wanted && state.seen == seen && state.is_current
        };
        if is_same(&self.state.lock()) {
            return Ok(());
        }
        let credentials = match wanted.map(TlsSettings::load).transpose() {
            Ok(credentials) => credentials.map(Arc::new),
            Err(error) => {
                progress.check(Part::Tls, Err(error.into()))?;
                None
            }
        };
        let mut state = self.state.lock();
        let is_other = state.settings.as_ref() != wanted;
        // Unusable new contents of the same files leave the former contents in force.
        state.is_current = credentials.is_some();
        if is_other || state.is_current {
            state.credentials = credentials;
        }
        (state.settings, state.seen) = (wanted.cloned(), seen);
        Ok(())
    }

    /// Returns the configuration of a connection to a controller.
    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        Ok(self.credentials()?.client.clone())
    }

    /// Returns the configuration of an accepted connection.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let path = || self.state.lock().settings.as_ref().map(|tls| tls.ca_certificate.clone());
        let server = self.credentials()?.server.clone();
        server.ok_or_else(|| TlsError::NoCaYet { path: path().unwrap_or_default() })
    }

    /// Reads the files again if they have changed. Unusable new contents leave the former contents
    /// in force.
    fn credentials(&self) -> Result<Arc<Credentials>, TlsError> {
        let mut state = self.state.lock();
        let settings = state.settings.clone().ok_or(TlsError::NoFiles)?;
        let seen = settings.stamps();
        match &state.credentials {
            Some(known) if seen == state.seen => return Ok(known.clone()),
            _ => state.seen = seen,
        }
        let loaded = settings.load();
        state.is_current = loaded.is_ok();
        match loaded {
            Ok(new) => Ok(state.credentials.insert(Arc::new(new)).clone()),
            Err(error) => match &state.credentials {
                Some(former) => {
                    tracing::warn!("{error}; connections use the former contents of the files");
                    Ok(former.clone())
                }
                None => Err(error),
            },
        }
    }
}

impl TlsSettings {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
        };
        [&self.private_key, &self.certificate, &self.ca_certificate].map(stamp).to_vec()
    }

    /// Checks that the files can be used.
    pub(super) fn check(&self) -> Result<(), TlsError> {
        self.load().map(drop)
    }

    fn load(&self) -> Result<Credentials, TlsError> {
        if self.ca_certificate.as_os_str() == "none" {
            return Err(TlsError::NoVerification);
        }
        if let Some(path) = confinement::tls_outside(self) {
            return Err(TlsError::Confined { path });
        }
        let key = PrivateKeyDer::from_pem_slice(&read("private key", &self.private_key)?).map_err(
            |_| TlsError::Pem {
                what: "private key without a passphrase",
                path: self.private_key.clone(),
            },
        )?;
        let chain = certificates("certificate", &self.certificate)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authorities = match self.bootstrap_ca_certificate && !self.ca_certificate.exists() {
            true => None,
            false => Some(Arc::new(self.authorities(&provider)?)),
        };
        let pair = |error: rustls::Error| TlsError::Pair {
            key: self.private_key.clone(),
            certificate: self.certificate.clone(),
            reason: error.to_string(),
        };
        let versions = [&rustls::version::TLS13];
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_protocol_versions(&versions)?.dangerous();
        let client = match &authorities {
            Some(known) => client.with_custom_certificate_verifier(known.clone()),
            None => {
                let bootstrap = Bootstrap::new(self.ca_certificate.clone(), provider.clone());
                client.with_custom_certificate_verifier(Arc::new(bootstrap))
            }
        };
        let mut client =
            client.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(pair)?;
        // A resumed session would not verify the certificates again.
        client.resumption = rustls::client::Resumption::disabled();
        let server = authorities.map(|authorities| {
            let server = ServerConfig::builder_with_provider(provider);
            let server = server.with_protocol_versions(&versions)?;
            let server = server.with_client_cert_verifier(authorities);
            let mut server = server.with_single_cert(chain, key).map_err(pair)?;
            server.send_tls13_tickets = 0;
            server.session_storage = Arc::new(NoServerSessionStorage {});
            Ok::<_, TlsError>(Arc::new(server))
        });
        Ok(Credentials { client: Arc::new(client), server: server.transpose()? })
    }

    fn authorities(&self, provider: &Arc<CryptoProvider>) -> Result<Authorities, TlsError> {
        let listed = certificates("certificate of a CA", &self.ca_certificate)?;
        Authorities::new(listed, provider.clone())
            .map_err(|reason| TlsError::Ca { path: self.ca_certificate.clone(), reason })
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    host::read_regular_bytes(path).map_err(|error| TlsError::Read {
        what,
        path: path.to_owned(),
        error,
    })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(what, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::Pem { what, path: path.to_owned() }),
    }
}
