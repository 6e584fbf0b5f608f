//! Requests that change a running end, over its status socket. A request and its reply are one JSON
//! object each.

use crate::server::Kicked;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Ends all sessions of an identity (`laptop`) or one session (`laptop/17`).
    Kick { session: String },
    /// Makes the end accept no new sessions and tunnels, and end with its last tunnel or after this
    /// time.
    Drain { timeout_seconds: f64 },
    /// Makes the end hand all sockets to the process that asks, and end with its last session or
    /// after this time ([`crate::hand_over`]).
    TakeOver { timeout_seconds: f64 },
    /// Makes the end send the private key that another process has handed to it, for a process that
    /// takes over.
    Key {},
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Kicked(Vec<KickedSession>),
    /// The end drains, and has this many open tunnels.
    Draining {
        tunnels: u64,
    },
    /// The private key in PEM, if another process has handed one to this end.
    Key(Option<String>),
    /// The end has changed nothing, for this reason.
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KickedSession {
    pub session: String,
    pub remote: String,
    pub tunnels: u64,
}

impl From<Kicked> for KickedSession {
    fn from(Kicked { peer, session, remote, tunnels }: Kicked) -> Self {
        let (session, remote) = (format!("{peer}/{session}"), super::canonical(remote).to_string());
        Self { session, remote, tunnels: tunnels as u64 }
    }
}

impl Request {
    /// Whether these bytes begin a request and not a private key.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        bytes.first() == Some(&b'{')
    }

    /// Parses a request. The error says why the request is refused.
    pub fn from_json(bytes: &[u8]) -> Result<Self, String> {
        let request = serde_json::from_slice(bytes).map_err(|error| {
            format!("this end does not understand the request: {error}; use the weir that runs it")
        })?;
        match request {
            Self::Drain { timeout_seconds } | Self::TakeOver { timeout_seconds }
                if !(0.0..=MOST_SECONDS).contains(&timeout_seconds) =>
            {
                Err(format!("a drain lasts 0 to {MOST_SECONDS} seconds, not {timeout_seconds}"))
            }
            request => Ok(request),
        }
    }
}

/// Maximum time limit of a request: thirty days.
const MOST_SECONDS: f64 = 2_592_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_request_parses_to_itself_and_a_malformed_request_is_refused() {
        for request in [
            Request::Kick { session: "laptop/17".to_owned() },
            Request::Drain { timeout_seconds: 600.0 },
        ] {
            let text = serde_json::to_vec(&request).unwrap();
            assert!(Request::begins(&text));
            assert_eq!(Request::from_json(&text).unwrap(), request);
        }
        assert!(!Request::begins(b"-----BEGIN PRIVATE KEY-----"));
        for text in [
            r#"{"kick":{}}"#,
            r#"{"kick":{"session":"a","force":true}}"#,
            r#"{"stop":{}}"#,
            r#"{"drain":{"timeout_seconds":-1}}"#,
            r#"{"drain":{"timeout_seconds":1e300}}"#,
        ] {
            let refused = Request::from_json(text.as_bytes()).unwrap_err();
            assert!(!refused.is_empty(), "{text}");
        }
    }
}
