use quinn_proto::ConnectionError;
use units::foreign;

/// The reason for which a connection ended or could not be established.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Lost {
    /// No packet arrived within the idle time, or the peer did not answer the handshake.
    #[error("the peer does not answer")]
    Silent,
    /// The peer's application closed the connection. The value is the peer's reason.
    #[error("the peer closed the connection: {}", foreign(.0))]
    ByPeer(String),
    /// This end closed the connection, or this end accepts no connections.
    #[error("this end closed the connection")]
    Here,
    /// The peer sent a stateless reset (RFC 9000, section 10.3), which shows that the peer has
    /// restarted.
    #[error("the peer does not know the connection: it was restarted")]
    Restarted,
    /// This end closed the connection because the peer violated the protocol. The value names the
    /// violation.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// This end does not accept the peer's certificate. The value is the reason.
    #[error("the handshake failed: {}", foreign(.0))]
    Untrusted(String),
    /// The peer does not accept this end's certificate. The value is the peer's text.
    #[error("the peer refused the handshake: {}", foreign(.0))]
    Refused(String),
    /// The engine failed the connection. The value is the reason, which the peer may have chosen.
    #[error("{}", foreign(.0))]
    Failed(String),
}

impl From<ConnectionError> for Lost {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::LocallyClosed => Self::Here,
            ConnectionError::Reset => Self::Restarted,
            ConnectionError::ApplicationClosed(close) => {
                Self::ByPeer(String::from_utf8_lossy(&close.reason).into_owned())
            }
            ConnectionError::TransportError(error) => match reason_of_verifier(&error.reason) {
                Some(reason) => Self::Untrusted(reason),
                None => Self::Failed(error.to_string()),
            },
            ConnectionError::ConnectionClosed(close) => {
                match reason_of_verifier(&String::from_utf8_lossy(&close.reason)) {
                    Some(reason) => Self::Refused(reason),
                    None => Self::Failed(ConnectionError::ConnectionClosed(close).to_string()),
                }
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Returns the reason that a verifier of this project gave, without the `Debug` output of rustls
/// around it.
fn reason_of_verifier(text: &str) -> Option<String> {
    let (_, reason) = text.split_once("invalid peer certificate: Other(OtherError(")?;
    Some(reason.strip_suffix("))")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{ConnectionClose, TransportError, TransportErrorCode};

    #[test]
    fn the_error_of_a_refused_certificate_shows_which_end_refused_the_certificate() {
        let wrapped = "invalid peer certificate: Other(OtherError(nobody knows this key))";
        let by_this_end = |reason: &str| {
            let (code, reason) = (TransportErrorCode::crypto(46), reason.to_owned());
            let error = TransportError { code, frame: None, reason };
            Lost::from(ConnectionError::TransportError(error))
        };
        let by_the_peer = |reason: &str| {
            let (error_code, reason) =
                (TransportErrorCode::crypto(46), reason.as_bytes().to_vec().into());
            let close = ConnectionClose { error_code, frame_type: None, reason };
            Lost::from(ConnectionError::ConnectionClosed(close))
        };
        assert_eq!(by_this_end(wrapped).to_string(), "the handshake failed: nobody knows this key");
        assert_eq!(
            by_the_peer(wrapped).to_string(),
            "the peer refused the handshake: nobody knows this key"
        );
        let other = "peer doesn't support any known protocol";
        for lost in [by_this_end(other), by_the_peer(other)] {
            assert!(matches!(lost, Lost::Failed(_)), "{lost:?}");
            assert!(lost.to_string().contains(other), "{lost}");
        }
    }
}
