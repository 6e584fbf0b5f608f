use super::certificate::date;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use units::foreign;

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot {doing} {path}: {source}{}", remedy(.source))]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path} already exists: --force replaces it, and the other ends must then be given the new pin"
    )]
    Exists { path: PathBuf },
    #[error(
        "an authority signed the certificate in {path}, and the other end would refuse a self-signed \
         certificate: ask the authority for a new certificate"
    )]
    OfAuthority { path: PathBuf },
    #[error("there is no next key at {path}: weir tunnel keys makes one with --next")]
    NoNext { path: PathBuf },
    #[error("{path} holds no {what} in PEM form: {reason}; name another file")]
    Pem { path: PathBuf, what: &'static str, reason: String },
    #[error("{path} holds no revocation list in PEM or DER form: {reason}; name another file")]
    RevocationList { path: PathBuf, reason: String },
    #[error("anyone on this machine may read the key in {path}: chmod 600 {path}")]
    OpenKey { path: PathBuf },
    #[error(
        "the key in {key} does not belong to the certificate in {certificate}: name a pair, or give \
         a service its new key with `weir tunnel reload --key-file`"
    )]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("the certificate is valid only from {} on: check the clocks of both ends", date(*.from))]
    NotYetValid { from: Duration },
    #[error(
        "the certificate expired on {}: renew the certificate at its end (weir tunnel keys --renew)",
        date(*.until)
    )]
    Expired { until: Duration },
    #[error("the certificate cannot be read: {}", foreign(.0))]
    Certificate(String),
    #[error(
        "the server's key is {0}, and the client has another pin: if `weir tunnel keys server` prints \
         that key at the server, give the client --pin {0}"
    )]
    UnknownServer(super::Pin),
    #[error("the server knows no client with the key {0}: add the client there by --peer NAME={0}")]
    UnknownClient(super::Pin),
    #[error("no authority that this end trusts has signed the certificate: {}; name its authority by `ca-file`", foreign(.0))]
    Untrusted(String),
    #[error(
        "the certificate is an authority's own (CA:TRUE) and identifies no end: let the authority sign \
         a certificate for the end, or pin the key (--pin at the client, --peer at the server)"
    )]
    IsAuthority,
    #[error("the authority has revoked the certificate: ask the authority for a new certificate")]
    Revoked,
    #[error(
        "no peer has a `certificate-name` among the names of the certificate ({}): add a peer with one \
         of the names",
        foreign(.0)
    )]
    UnknownName(String),
    #[error(
        "the configuration now lists the certificate or key under the name of peer {0}: the next \
         connection has this name"
    )]
    Renamed(super::PeerName),
    #[error("the peer presented no certificate: start the peer with --cert-file and --key-file")]
    Nothing,
    #[error("`{0}` is not a pin: it is written sha256/ and 43 letters of base64, or 64 of hex")]
    Pin(String),
    #[error("`{0}` cannot name a peer: 1 to 64 letters, digits, dots, dashes and underscores")]
    PeerName(String),
    #[error("`{0}` is not the name of a server's certificate: write a DNS name or an address")]
    ServerName(String),
    #[error("cannot generate a key: {0}")]
    Making(#[from] rcgen::Error),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

impl IdentityError {
    /// Whether the user can mend the error by naming or preparing other files.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::File { .. }
                | Self::Exists { .. }
                | Self::OfAuthority { .. }
                | Self::NoNext { .. }
                | Self::Pem { .. }
                | Self::RevocationList { .. }
                | Self::OpenKey { .. }
                | Self::Mismatch { .. }
        )
    }

    pub(super) fn file(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { doing, path: path.to_owned(), source }
    }
}

/// Returns the advice to add to the operating system's message.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this command as the file's owner, or as root",
        io::ErrorKind::NotFound => "; check the path",
        _ => "",
    }
}
