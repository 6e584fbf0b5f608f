//! Accounts as iperf3 has them: the client proves with its first message who it is.
//!
//! The client encrypts user name, password and time of day with the server's public key (the token). The
//! server decrypts it and compares the password's SHA-256 with its file of users. Nothing else is encrypted:
//! neither the control connection nor the data.
//!
//! A token holds no challenge of the server's and does not name the server. Whoever reads it on the way can
//! send it again until its time is too old: to a stock iperf3 as often as it likes, to ours once the server
//! has been started again, and to any other server with the same key. `Gate` refuses a token that it has
//! accepted before.
//!
//! PKCS#1 v1.5 padding (iperf3 before 3.17) lets an attacker decrypt tokens, if a server tells it apart
//! whether a padding was right (CVE-2024-26306). aws-lc checks the padding without a branch on it, but its
//! result tells. So a token that cannot be decrypted becomes a claim that fits no user, takes the same way
//! as a wrong password, and every refusal leaves at the same time after the message came
//! (`REFUSED_AFTER`).

mod credentials;
mod gate;
mod keys;
mod seen;
mod users;

pub use credentials::Credentials;
pub(crate) use gate::Gate;

use crate::PerfError;
use keys::PrivateKey;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How text is padded before RSA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// OAEP with SHA-1, which is OpenSSL's default and iperf3's since 3.17.
    #[default]
    Oaep,
    /// PKCS#1 v1.5, the only one that iperf3 before 3.17 knows.
    Pkcs1,
}

/// A server's users, and the key to their tokens.
#[derive(Debug, Clone)]
pub struct Accounts {
    /// Read again for each client, as iperf3 does.
    users: PathBuf,
    key: PrivateKey,
    padding: Padding,
    /// By how much a client's clock may differ.
    skew: Duration,
}

impl Accounts {
    /// Refuses files that would let nobody in.
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

/// Since the client's parameters came. It is longer than the slowest decryption takes.
pub(crate) const REFUSED_AFTER: Duration = Duration::from_secs(1);
