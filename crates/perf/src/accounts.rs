//! Accounts as in iperf3: the client's first message proves its identity.
//!
//! The client encrypts user name, password and time of day with the server's public key (the
//! token). The server decrypts the token and compares the password's SHA-256 with its file of
//! users. Nothing else is encrypted: neither the control connection nor the data.
//!
//! A token contains no challenge from the server and does not name the server. An eavesdropper can
//! replay it until its time is too old: any number of times to a stock iperf3, to a weir server
//! after a restart, and to any other server with the same key. `Authenticator` refuses a token
//! that it has accepted before.
//!
//! PKCS#1 v1.5 padding (iperf3 before 3.17) lets an attacker decrypt tokens if a server reveals
//! whether a padding was right (CVE-2024-26306). aws-lc checks the padding in constant time, but
//! its result reveals the outcome. So a token that cannot be decrypted becomes a claim that fits no
//! user and takes the same path as a wrong password. Every refusal is sent the same time after the
//! message arrived (`REFUSED_AFTER`).

mod authenticator;
mod credentials;
mod keys;
mod replay_cache;
mod users;

pub(crate) use authenticator::Authenticator;
pub use credentials::Credentials;

use crate::PerfError;
use keys::PrivateKey;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// OAEP with SHA-1, which is OpenSSL's default and iperf3's since 3.17.
    #[default]
    Oaep,
    /// PKCS#1 v1.5, the only padding that iperf3 before 3.17 supports.
    Pkcs1,
}

#[derive(Debug, Clone)]
pub struct Accounts {
    /// The server reads this file again for each client, as iperf3 does.
    users: PathBuf,
    key: PrivateKey,
    padding: Padding,
    /// Accepted difference between the client's clock and the server's.
    skew: Duration,
}

impl Accounts {
    /// Returns the path of the file of users.
    pub(crate) fn users(&self) -> &Path {
        &self.users
    }

    /// Refuses files that would admit nobody.
    pub fn open(
        users: &Path,
        key: &Path,
        padding: Padding,
        skew: Duration,
    ) -> Result<Self, PerfError> {
        let key = PrivateKey::read(key)?;
        users::read(users).map_err(PerfError::Usage)?;
        Ok(Self { users: users.to_owned(), key, padding, skew })
    }
}

/// Time from the arrival of the client's parameters to a refusal. Longer than the slowest
/// decryption.
pub(crate) const REFUSED_AFTER: Duration = Duration::from_secs(1);
