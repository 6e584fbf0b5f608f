use quinn_proto::ConnectionError;
use units::foreign;

/// Why a connection ended or could not be established.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Lost {
    /// No packet arrived within the idle time, or the handshake had no answer.
    #[error("the peer does not answer")]
    Silent,
    /// The peer's application closed the connection; the value is the peer's reason.
    #[error("the peer closed the connection: {}", foreign(.0))]
    ByPeer(String),
    /// This end closed the connection, or it accepts no connections.
    #[error("this end closed the connection")]
    Here,
    /// The peer sent a stateless reset (RFC 9000, section 10.3), so it has restarted.
    #[error("the peer does not know the connection: it was restarted")]
    Restarted,
    /// This end closed the connection because of the violation.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// The engine failed the connection; the peer may have chosen the text.
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
            other => Self::Failed(without_wrapping(other.to_string())),
        }
    }
}

/// Strips rustls's `Debug` form around the reason of this project's verifiers.
fn without_wrapping(text: String) -> String {
    let wrapped = text.split_once("invalid peer certificate: Other(OtherError(");
    match wrapped.and_then(|(before, reason)| Some((before, reason.strip_suffix("))")?))) {
        Some((before, reason)) => format!("{before}{reason}"),
        None => text,
    }
}
