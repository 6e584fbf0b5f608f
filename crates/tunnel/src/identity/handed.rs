//! A private key that another process handed to this process. A service has no access to its new
//! key: systemd gave the service a copy of the key when the service started.

use super::IdentityError;
use super::keys::private;
use rustls::pki_types::PrivateKeyDer;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Keeps the private key of this PEM text for later calls of [`super::Identity::load`]. The key
/// replaces a key that was kept before.
pub(crate) fn keep(text: &[u8]) -> Result<(), IdentityError> {
    let key = private(Path::new("the key that was handed over"), text)?;
    let text = String::from_utf8_lossy(text).into_owned();
    *HANDED.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, text));
    Ok(())
}

/// Returns the PEM text of the kept key, for the process that takes over from this process.
pub(crate) fn text() -> Option<String> {
    HANDED.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, text)| text.clone())
}

pub(super) fn key() -> Option<PrivateKeyDer<'static>> {
    HANDED.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(key, _)| key.clone_key())
}

static HANDED: Mutex<Option<(PrivateKeyDer<'static>, String)>> = Mutex::new(None);
