use super::Padding;
use super::keys::PublicKey;
use crate::PerfError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, PartialEq)]
pub struct Credentials {
    user: String,
    password: String,
    key: PublicKey,
    padding: Padding,
}

/// The content of a token.
#[derive(PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) user: String,
    pub(super) password: String,
    /// Seconds since 1970.
    pub(super) at: i64,
}

impl Credentials {
    /// `key` is the server's public key.
    pub fn new(
        user: &str,
        password: &str,
        key: &Path,
        padding: Padding,
    ) -> Result<Self, PerfError> {
        let key = PublicKey::read(key)?;
        Self::with(user, password, key, padding)
    }

    pub(super) fn with(
        user: &str,
        password: &str,
        key: PublicKey,
        padding: Padding,
    ) -> Result<Self, PerfError> {
        let refused = |text: &str| Err(PerfError::Usage(text.to_owned()));
        if user.is_empty() || user.contains([',', '\n', '\r']) {
            return refused("a user name must not be empty, nor contain a comma or a line break");
        }
        if password.contains(['\n', '\r']) {
            return refused("a password must not contain a line break");
        }
        let credentials =
            Self { user: user.to_owned(), password: password.to_owned(), key, padding };
        let (takes, most) =
            (credentials.claim(i64::MAX).text().len(), credentials.key.longest(padding));
        if takes > most {
            return Err(PerfError::Usage(format!(
                "user name and password take {takes} bytes with the time, and the server's key encrypts {most}: \
                 shorten the password, or make a longer key"
            )));
        }
        Ok(credentials)
    }

    /// Returns a token for one test. A server accepts the token near the time `now` only.
    pub(crate) fn token(&self, now: SystemTime) -> Result<String, PerfError> {
        let text = self.claim(seconds(now)).text();
        let bytes = self.key.encrypt(text.as_bytes(), self.padding).map_err(|_| {
            PerfError::Usage("the server's public key cannot encrypt: make another".to_owned())
        })?;
        Ok(STANDARD.encode(bytes))
    }

    fn claim(&self, at: i64) -> Claim {
        Claim { user: self.user.clone(), password: self.password.clone(), at }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Claim {
    /// Encodes the claim as iperf3 does, in three lines.
    pub(super) fn text(&self) -> String {
        format!("{USER}{}\n{PASSWORD}{}\n{TIME}{}", self.user, self.password, self.at)
    }

    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.split('\n');
        let mut next = |name: &str| lines.next()?.strip_prefix(name);
        let (user, password, at) = (next(USER)?, next(PASSWORD)?, next(TIME)?);
        let at = at.parse().ok()?;
        lines.next().is_none().then(|| Self {
            user: user.to_owned(),
            password: password.to_owned(),
            at,
        })
    }

    pub(super) fn nobody() -> Self {
        Self { user: String::new(), password: String::new(), at: 0 }
    }
}

pub(super) fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

const USER: &str = "user: ";
const PASSWORD: &str = "pwd:  ";
const TIME: &str = "ts:   ";

#[cfg(test)]
mod tests {
    use super::super::keys::tests::pair;
    use super::*;

    #[test]
    fn credentials_are_encoded_in_three_lines() {
        let text = "user: ann\npwd:  two words\nts:   1700000000";
        let claim = Claim::read(text.as_bytes()).unwrap();
        assert_eq!((claim.user.as_str(), claim.password.as_str()), ("ann", "two words"));
        assert_eq!((claim.at, claim.text().as_str()), (1_700_000_000, text));
        for wrong in ["", "user: ann", "user: a\npwd:  b\nts:   1\n", "user: a\npwd:  b\nts:   x"] {
            assert!(Claim::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_token_text_is_refused_or_decodes_to_a_claim_that_encodes_back(text: Vec<u8>, user: String) {
            let lines = [USER, &user, "\n", PASSWORD, &user, "\n", TIME, "7"].concat();
            for text in [text, lines.into_bytes()] {
                if let Some(claim) = Claim::read(&text) {
                    assert!(Claim::read(claim.text().as_bytes()) == Some(claim));
                }
            }
        }
    }

    #[test]
    fn credentials_that_a_token_cannot_carry_are_refused() {
        let (_, key) = pair();
        let with = |user: &str, password: &str| {
            Credentials::with(user, password, key.clone(), Padding::Oaep)
        };
        assert!(with("ann", "secret").is_ok());
        assert!(with("a,b", "secret").is_err() && with("", "").is_err());
        let error = with("ann", &"x".repeat(300)).unwrap_err().to_string();
        assert!(error.contains("shorten the password"), "{error}");
        assert!(!format!("{:?}", with("ann", "secret").unwrap()).contains("secret"));
    }
}
