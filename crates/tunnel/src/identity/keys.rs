use super::{Certificate, IdentityError, Pin, handed};
use aws_lc_rs::hmac;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rcgen::{KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// This end's own certificate and private key.
#[derive(Debug, Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    certificate: Certificate,
    secret: Secret,
}

/// A secret derived from the private key, so that it survives a restart. The secret lets an end
/// prove to peers that it has lost their connections (RFC 9000, section 10.3.2).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn random() -> Self {
        Self(rand::random())
    }

    fn of(private: &PrivateKeyDer<'_>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, private.secret_der());
        let mut secret = [0; 32];
        secret.copy_from_slice(hmac::sign(&key, b"weir-tunnel secret of an end").as_ref());
        Self(secret)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Identity {
    /// Loads PEM files; the certificate file may hold a chain. The key must match the certificate
    /// and be unreadable for others, and the certificate must be valid today. If the key file does
    /// not match or cannot be read, a matching key that another process handed over replaces it.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let chain = chain(certificate, &read(certificate)?)?;
        let text = match read(key) {
            Ok(text) => text,
            // systemd 256 and earlier hide the credentials from the processes of ExecReload= (its
            // issue 35227).
            Err(error) => {
                let handed = handed::key().map(|handed| Self::of(chain, handed));
                return handed.and_then(Result::ok).ok_or(error);
            }
        };
        let secret = private(key, &text)?;
        let mode =
            fs::metadata(key).map_err(|source| IdentityError::file("read", key, source))?.mode();
        if mode & 0o007 != 0 {
            return Err(IdentityError::OpenKey { path: key.to_owned() });
        }
        let is_mismatch = |error: &IdentityError| {
            matches!(error, IdentityError::Tls(rustls::Error::InconsistentKeys(_)))
        };
        match Self::of(chain.clone(), secret) {
            Err(error) if is_mismatch(&error) => {
                let handed = handed::key().map(|handed| Self::of(chain, handed));
                handed.and_then(Result::ok).ok_or_else(|| IdentityError::Mismatch {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                })
            }
            loaded => loaded,
        }
    }

    /// Parses the certificate in this file, which may have expired.
    pub fn load_of_any_age(certificate: &Path) -> Result<Certificate, IdentityError> {
        let chain = chain(certificate, &read(certificate)?)?;
        Certificate::parse(chain.first().ok_or(IdentityError::Nothing)?)
    }

    /// Generates an ECDSA P-256 key and a self-signed certificate, valid for `days` from today.
    /// Returns the identity with both in PEM form.
    pub fn generate(name: &str, days: u32) -> Result<(Self, NewCertificate), IdentityError> {
        Self::certify(&KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?, name, days)
    }

    /// Generates a self-signed certificate for the key in this file. The key's pin stays the same.
    pub fn renew(
        key: &Path,
        name: &str,
        days: u32,
    ) -> Result<(Self, NewCertificate), IdentityError> {
        let text = String::from_utf8_lossy(&read(key)?).into_owned();
        let pair = KeyPair::from_pem(&text).map_err(|error| IdentityError::Pem {
            path: key.to_owned(),
            what: "private key",
            reason: error.to_string(),
        })?;
        Self::certify(&pair, name, days)
    }

    fn certify(
        pair: &KeyPair,
        name: &str,
        days: u32,
    ) -> Result<(Self, NewCertificate), IdentityError> {
        let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let day = Duration::from_secs(24 * 3600);
        // Backdate by a day, because the other end's clock may be behind.
        parameters.not_before = (std::time::UNIX_EPOCH + now.saturating_sub(day)).into();
        parameters.not_after = (std::time::UNIX_EPOCH + now + day * days).into();
        let certificate = parameters.self_signed(pair)?;
        let made = NewCertificate { certificate: certificate.pem(), key: pair.serialize_pem() };
        let secret = PrivateKeyDer::Pkcs8(pair.serialize_der().into());
        Ok((Self::of(vec![certificate.der().clone()], secret)?, made))
    }

    pub fn pin(&self) -> Pin {
        self.certificate.pin
    }

    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Loads an identity without checking its validity period.
    #[cfg(test)]
    pub(super) fn of_any_age(certificate: CertificateDer<'static>, key: Vec<u8>) -> Self {
        let reported = Certificate::parse(&certificate).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = PrivateKeyDer::Pkcs8(key.into());
        let secret = Secret::of(&key);
        let certified = CertifiedKey::from_der(vec![certificate], key, &provider).unwrap();
        Self { certified: Arc::new(certified), certificate: reported, secret }
    }

    fn of(
        chain: Vec<CertificateDer<'static>>,
        private: PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityError> {
        let secret = Secret::of(&private);
        let certificate = Certificate::parse(chain.first().ok_or(IdentityError::Nothing)?)?;
        certificate.check_time(UnixTime::now())?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certified = Arc::new(CertifiedKey::from_der(chain, private, &provider)?);
        Ok(Self { certified, certificate, secret })
    }
}

/// A new certificate and its key, in PEM form.
pub struct NewCertificate {
    certificate: String,
    key: String,
}

impl NewCertificate {
    #[cfg(test)]
    pub(super) fn of(certificate: String, key: String) -> Self {
        Self { certificate, key }
    }

    /// Writes both files; only the owner can read the key. Without `force`, existing files are kept
    /// and cause an error.
    pub fn write(&self, certificate: &Path, key: &Path, force: bool) -> Result<(), IdentityError> {
        if !force && let Some(path) = [certificate, key].into_iter().find(|path| path.exists()) {
            return Err(IdentityError::Exists { path: path.to_owned() });
        }
        write(key, &self.key, 0o600, force)?;
        // The certificate is world-readable: a service that receives only its key reads the
        // certificate itself.
        write(certificate, &self.certificate, 0o644, force)
    }

    /// Replaces only the certificate. The key's file stays as it is, with its owner and its mode.
    pub fn replace(&self, certificate: &Path) -> Result<(), IdentityError> {
        write(certificate, &self.certificate, 0o644, true)
    }
}

impl std::fmt::Debug for NewCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Renames the files `present` to `previous` and then `next` to `present`. Each pair is a
/// certificate and a key. If a call was interrupted, a second call completes its renames.
pub fn use_next(
    next: [&Path; 2],
    present: [&Path; 2],
    previous: [&Path; 2],
) -> Result<(), IdentityError> {
    if next.iter().all(|path| !path.exists()) {
        return Err(IdentityError::NoNext { path: next[0].to_owned() });
    }
    // The resulting certificate and key must match, also after an interrupted call.
    let result = [0, 1].map(|at| if next[at].exists() { next[at] } else { present[at] });
    Identity::load(result[0], result[1])?;
    for index in 0..2 {
        if !next[index].exists() {
            continue;
        }
        let place = |from: &Path, to: &Path| {
            fs::rename(from, to).map_err(|source| IdentityError::file("write", to, source))
        };
        if present[index].exists() {
            place(present[index], previous[index])?;
        }
        place(next[index], present[index])?;
    }
    Ok(())
}

/// Parses the private key in this file's text.
pub(super) fn private(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, IdentityError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| IdentityError::Pem {
        path: path.to_owned(),
        what: "private key",
        reason: error.to_string(),
    })
}

pub(super) fn chain(
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let wrong =
        |reason: String| IdentityError::Pem { path: path.to_owned(), what: "certificate", reason };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| wrong(error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong("nothing between BEGIN and END CERTIFICATE".to_owned()));
    }
    Ok(chain)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    host::read_regular_bytes(path).map_err(|source| IdentityError::file("read", path, source))
}

/// Writes to a temporary name first, so that the file is always complete.
fn write(path: &Path, text: &str, mode: u32, force: bool) -> Result<(), IdentityError> {
    let failed = |source| IdentityError::file("write", path, source);
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = Path::new(&beside);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(beside).map_err(failed)?;
    let placed = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| if force { fs::rename(beside, path) } else { fs::hard_link(beside, path) });
    if !force || placed.is_err() {
        let _ = fs::remove_file(beside);
    }
    match placed {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(IdentityError::Exists { path: path.to_owned() })
        }
        placed => placed.map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_keys_load_again_and_are_overwritten_only_with_force() {
        let home = tempfile::tempdir().unwrap();
        let (certificate, key) = (home.path().join("a.crt"), home.path().join("a.key"));
        let (identity, made) = Identity::generate("laptop", 730).unwrap();
        made.write(&certificate, &key, false).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Identity::load(&certificate, &key).unwrap().pin(), identity.pin());
        assert_eq!(identity.certificate().names, ["laptop"]);

        let (other, made) = Identity::generate("laptop", 730).unwrap();
        let error = made.write(&certificate, &key, false).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(Identity::load(&certificate, &key).unwrap().pin(), identity.pin());
        made.write(&certificate, &key, true).unwrap();
        assert_eq!(Identity::load(&certificate, &key).unwrap().pin(), other.pin());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
        assert!(!format!("{made:?}{other:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_renewed_certificate_keeps_its_pin_and_the_next_key_replaces_the_present_key() {
        let home = tempfile::tempdir().unwrap();
        let files = |name: &str| {
            [format!("{name}.crt"), format!("{name}.key")].map(|file| home.path().join(file))
        };
        let (present, next, previous) = (files("a"), files("a.next"), files("a.previous"));
        let paths = |pair: &'_ [std::path::PathBuf; 2]| [pair[0].clone(), pair[1].clone()];
        let load = |pair: &[std::path::PathBuf; 2]| Identity::load(&pair[0], &pair[1]).unwrap();
        let (old, made) = Identity::generate("laptop", 1).unwrap();
        made.write(&present[0], &present[1], false).unwrap();
        let (renewed, made) = Identity::renew(&present[1], "laptop", 700).unwrap();
        made.write(&present[0], &present[1], true).unwrap();
        assert_eq!((renewed.pin(), load(&present).pin()), (old.pin(), old.pin()));
        assert!(load(&present).certificate().valid_until() > old.certificate().valid_until());

        let switch = || {
            let [next, present, previous] = [paths(&next), paths(&present), paths(&previous)];
            use_next([&next[0], &next[1]], [&present[0], &present[1]], [&previous[0], &previous[1]])
        };
        assert!(switch().unwrap_err().to_string().contains("--next"));
        let (new, made) = Identity::generate("laptop", 1).unwrap();
        made.write(&next[0], &next[1], false).unwrap();
        // Simulate a call that was killed between its renames of the two files.
        fs::rename(&present[0], &previous[0]).unwrap();
        fs::rename(&next[0], &present[0]).unwrap();
        switch().unwrap();
        assert_eq!((load(&present).pin(), load(&previous).pin()), (new.pin(), old.pin()));
        assert!(!next[0].exists() && !next[1].exists());
    }

    #[test]
    fn unusable_key_files_are_refused_with_advice() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let make = |name: &str| {
            let (_, made) = Identity::generate(name, 1).unwrap();
            made.write(&path(&format!("{name}.crt")), &path(&format!("{name}.key")), false)
                .unwrap();
        };
        make("a");
        make("b");
        let reported = |certificate: &str, key: &str| {
            Identity::load(&path(certificate), &path(key)).unwrap_err().to_string()
        };
        assert!(reported("a.crt", "b.key").contains("does not belong to the certificate"));
        assert!(reported("a.key", "a.key").contains("no certificate"));
        assert!(reported("a.crt", "a.crt").contains("no private key"));
        assert!(reported("a.crt", "c.key").contains("cannot read"));
        // A process that received the new key over its status socket does not need the file.
        handed::keep(&fs::read(path("a.key")).unwrap()).unwrap();
        let loaded = Identity::load(&path("a.crt"), &path("b.key")).unwrap();
        assert_eq!(loaded.pin(), Identity::load(&path("a.crt"), &path("a.key")).unwrap().pin());
        assert!(reported("b.crt", "a.key").contains("does not belong to the certificate"));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(path("a.key"), open).unwrap();
        assert!(reported("a.crt", "a.key").contains("chmod 600"));
    }
}
