use super::credentials::{Claim, seconds};
use super::replay_cache::ReplayCache;
use super::{Accounts, users};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Admits clients that have an account. The authenticator lasts as long as the server runs.
#[derive(Debug)]
pub(crate) struct Authenticator<'a> {
    accounts: &'a Accounts,
    seen: Mutex<ReplayCache>,
}

/// The reason why a client was not admitted. Only the server's log shows the reason; the client
/// gets no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("it has no account here: a client names one with --username and --rsa-public-key")]
    NoToken,
    #[error(
        "its token fits no account: the user name, the password, the key or the padding \
         (--use-pkcs1-padding) differs"
    )]
    Wrong,
    #[error(
        "the time in its token is {seconds} s off: set the clocks, or raise --time-skew-threshold"
    )]
    Time { seconds: i64 },
    #[error("its token was used before: a token is good for one test")]
    Replayed,
    #[error("{0}")]
    Users(String),
}

impl<'a> Authenticator<'a> {
    pub(crate) fn new(accounts: &'a Accounts) -> Self {
        Self { accounts, seen: Mutex::default() }
    }

    /// Returns the user's name. A token that cannot be decrypted takes the same path as a wrong
    /// password.
    pub(crate) fn admit(&self, token: Option<&str>, now: SystemTime) -> Result<String, Denied> {
        let Accounts { users, key, padding, skew } = self.accounts;
        let users = users::read(users).map_err(Denied::Users)?;
        let token = token.ok_or(Denied::NoToken)?;
        let ciphertext = STANDARD.decode(token).unwrap_or_default();
        let text = key.decrypt(&ciphertext, *padding).unwrap_or_default();
        let claim = Claim::read(&text).unwrap_or_else(Claim::nobody);
        if !users::has(&users, &claim.user, &claim.password) {
            return Err(Denied::Wrong);
        }
        let now = seconds(now);
        let skew = i64::try_from(skew.as_secs()).unwrap_or(i64::MAX);
        let off = now.saturating_sub(claim.at);
        if off.saturating_abs() > skew {
            return Err(Denied::Time { seconds: off });
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.is_new(&ciphertext, claim.at.saturating_add(skew), now) {
            return Err(Denied::Replayed);
        }
        Ok(claim.user)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::tests::pair;
    use super::super::{Credentials, Padding};
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// SHA-256 of `{mario}rossi`.
    const MARIO: &str = "mario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b\n";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn only_a_fresh_token_with_the_right_password_is_admitted() {
        let (key, public) = pair();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), MARIO).unwrap();
        for padding in [Padding::Oaep, Padding::Pkcs1] {
            let accounts = Accounts {
                users: file.path().to_owned(),
                key: key.clone(),
                padding,
                skew: Duration::from_secs(10),
            };
            let authenticator = Authenticator::new(&accounts);
            let token = |user: &str, password: &str, padding, second| {
                let with = Credentials::with(user, password, public.clone(), padding).unwrap();
                with.token(at(second)).unwrap()
            };
            let admit = |token: &str| authenticator.admit(Some(token), at(1000));
            for second in [990, 1000, 1010] {
                let token = token("mario", "rossi", padding, second);
                assert_eq!(admit(&token), Ok("mario".to_owned()));
                assert_eq!(admit(&token), Err(Denied::Replayed));
            }
            let off = |second| admit(&token("mario", "rossi", padding, second));
            assert_eq!(off(989), Err(Denied::Time { seconds: 11 }));
            assert_eq!(off(1011), Err(Denied::Time { seconds: -11 }));
            let other = if padding == Padding::Oaep { Padding::Pkcs1 } else { Padding::Oaep };
            let wrong = [
                String::new(),
                "!".to_owned(),
                STANDARD.encode([7; 256]),
                STANDARD.encode([255; 256]),
                STANDARD.encode([7; 100]),
                token("mario", "bianchi", padding, 1000),
                token("luigi", "rossi", padding, 1000),
                token("mario", "rossi", other, 1000),
            ];
            for token in wrong {
                assert_eq!(admit(&token), Err(Denied::Wrong), "{token}");
            }
            assert_eq!(authenticator.admit(None, at(1000)), Err(Denied::NoToken));
        }
    }

    #[test]
    fn a_user_removed_from_the_file_is_no_longer_admitted() {
        let (key, public) = pair();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), MARIO).unwrap();
        let (padding, skew) = (Padding::Oaep, Duration::from_secs(10));
        let accounts = Accounts { users: file.path().to_owned(), key, padding, skew };
        let authenticator = Authenticator::new(&accounts);
        let mario = Credentials::with("mario", "rossi", public, padding).unwrap();
        let admit = || authenticator.admit(Some(&mario.token(at(1000)).unwrap()), at(1000));
        assert!(admit().is_ok());
        std::fs::write(file.path(), MARIO.replace("mario", "luigi")).unwrap();
        assert_eq!(admit(), Err(Denied::Wrong));
        std::fs::write(file.path(), "").unwrap();
        assert!(matches!(admit(), Err(Denied::Users(_))));
    }
}
