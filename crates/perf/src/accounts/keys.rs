//! RSA keys in PEM, as `openssl genrsa` and `openssl rsa -pubout` write them.

use super::Padding;
use crate::PerfError;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::{
    KeyPair, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey,
    Pkcs1PrivateDecryptingKey, Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use std::io::Read;
use std::path::Path;

#[derive(Debug, Clone)]
pub(super) struct PublicKey(PublicEncryptingKey);

#[derive(Debug, Clone)]
pub(super) struct PrivateKey(PrivateDecryptingKey);

impl PublicKey {
    pub(super) fn read(file: &Path) -> Result<Self, PerfError> {
        let wrong = |advice: &str| PerfError::Usage(format!("{}: {advice}", file.display()));
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&contents(file)?).map_err(|_| {
            wrong("is no public key in PEM: write it with `openssl rsa -in private.pem -pubout`")
        })?;
        PublicEncryptingKey::from_der(&der).map(Self).map_err(|_| wrong(UNFIT))
    }

    /// Returns the maximum length of a text that [`Self::encrypt`] accepts.
    pub(super) fn longest(&self, padding: Padding) -> usize {
        let longest = match padding {
            Padding::Oaep => OaepPublicEncryptingKey::new(self.0.clone())
                .map(|key| key.max_plaintext_size(&OAEP_SHA1_MGF1SHA1)),
            Padding::Pkcs1 => {
                Pkcs1PublicEncryptingKey::new(self.0.clone()).map(|key| key.max_plaintext_size())
            }
        };
        longest.unwrap_or(0)
    }

    pub(super) fn encrypt(&self, text: &[u8], padding: Padding) -> Result<Vec<u8>, Unspecified> {
        let mut bytes = vec![0; self.0.key_size_bytes()];
        let length = match padding {
            Padding::Oaep => OaepPublicEncryptingKey::new(self.0.clone())?
                .encrypt(&OAEP_SHA1_MGF1SHA1, text, &mut bytes, None)?
                .len(),
            Padding::Pkcs1 => {
                Pkcs1PublicEncryptingKey::new(self.0.clone())?.encrypt(text, &mut bytes)?.len()
            }
        };
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Keys are equal if their DER encodings are equal.
impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        let der = |key: &Self| key.0.as_der().map(|der| der.as_ref().to_vec()).ok();
        der(self) == der(other)
    }
}

impl PrivateKey {
    pub(super) fn read(file: &Path) -> Result<Self, PerfError> {
        let wrong = |advice: &str| PerfError::Usage(format!("{}: {advice}", file.display()));
        let der = PrivateKeyDer::from_pem_slice(&contents(file)?).map_err(|_| {
            wrong(
                "is no private key in PEM without a passphrase: write it with `openssl genrsa -out private.pem \
                 2048`, or take the passphrase off with `openssl rsa -in private.pem -out plain.pem`",
            )
        })?;
        Self::of(&der).ok_or_else(|| wrong(UNFIT))
    }

    fn of(der: &PrivateKeyDer<'_>) -> Option<Self> {
        let key = match der {
            PrivateKeyDer::Pkcs8(der) => {
                PrivateDecryptingKey::from_pkcs8(der.secret_pkcs8_der()).ok()?
            }
            // The older format, `BEGIN RSA PRIVATE KEY`.
            PrivateKeyDer::Pkcs1(der) => {
                let pkcs8 = KeyPair::from_der(der.secret_pkcs1_der()).ok()?.as_der().ok()?;
                PrivateDecryptingKey::from_pkcs8(pkcs8.as_ref()).ok()?
            }
            _ => return None,
        };
        Some(Self(key))
    }

    pub(super) fn decrypt(&self, bytes: &[u8], padding: Padding) -> Result<Vec<u8>, Unspecified> {
        let mut text = vec![0; self.0.key_size_bytes()];
        let length = match padding {
            Padding::Oaep => OaepPrivateDecryptingKey::new(self.0.clone())?
                .decrypt(&OAEP_SHA1_MGF1SHA1, bytes, &mut text, None)?
                .len(),
            Padding::Pkcs1 => {
                Pkcs1PrivateDecryptingKey::new(self.0.clone())?.decrypt(bytes, &mut text)?.len()
            }
        };
        text.truncate(length);
        Ok(text)
    }
}

fn contents(file: &Path) -> Result<Vec<u8>, PerfError> {
    let mut bytes = Vec::new();
    let read =
        host::open_regular_file(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| {
        PerfError::Usage(format!("{} cannot be read: {error}: name another file", file.display()))
    })
}

/// Largest key file that is read. A key of 8192 bits takes a tenth of this size.
const LONGEST: u64 = 64 * 1024;
const UNFIT: &str = "is not an RSA key of 2048 to 8192 bits: make one with `openssl genrsa 2048`";

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use aws_lc_rs::rsa::KeySize;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    pub(in crate::accounts) fn pair() -> (PrivateKey, PublicKey) {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let public = PublicKey(key.public_key());
        (PrivateKey(key), public)
    }

    fn pem(name: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", lines.join("\n"))
    }

    #[test]
    fn the_private_key_decrypts_only_with_the_same_padding() {
        let (private, public) = pair();
        for padding in [Padding::Oaep, Padding::Pkcs1] {
            let text = vec![b'x'; public.longest(padding)];
            let bytes = public.encrypt(&text, padding).unwrap();
            assert_eq!(private.decrypt(&bytes, padding).unwrap(), text);
            assert!(public.encrypt(&[text, vec![0]].concat(), padding).is_err());
        }
        let bytes = public.encrypt(b"text", Padding::Oaep).unwrap();
        // By chance the result may have valid PKCS#1 padding.
        assert_ne!(private.decrypt(&bytes, Padding::Pkcs1).unwrap_or_default(), b"text");
    }

    #[test]
    fn rsa_keys_are_read_in_the_formats_that_openssl_writes() {
        let (private, public) = pair();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let der = private.0.as_der().unwrap();
        let pkcs8 = file("pkcs8", &pem("PRIVATE KEY", der.as_ref()));
        // PKCS#8 of an RSA key is 26 bytes of names and lengths around PKCS#1.
        let pkcs1 = file("pkcs1", &pem("RSA PRIVATE KEY", &der.as_ref()[26..]));
        let spki = file("public", &pem("PUBLIC KEY", public.0.as_der().unwrap().as_ref()));
        assert_eq!(PublicKey::read(&spki).unwrap(), public);
        let bytes = public.encrypt(b"text", Padding::Oaep).unwrap();
        for key in [&pkcs8, &pkcs1] {
            let key = PrivateKey::read(key).unwrap();
            assert_eq!(key.decrypt(&bytes, Padding::Oaep).unwrap(), b"text");
        }
        assert!(PublicKey::read(&pkcs8).is_err() && PrivateKey::read(&spki).is_err());
        let absent = PrivateKey::read(&folder.path().join("absent")).unwrap_err().to_string();
        assert!(absent.contains("cannot be read"), "{absent}");
        let other = file("other", &pem("PRIVATE KEY", b"no key"));
        assert!(PrivateKey::read(&other).unwrap_err().to_string().contains("2048 to 8192"));
    }
}
