use crate::access::{Admitted, Destination};
use crate::frame::{Answer, Status};
use crate::local::{Local, LocalPort};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The reason for which a dial failed, as this end reports it to the peer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the target did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the target cannot be reached: {0}")]
    Failed(#[from] io::Error),
    #[error("{0}")]
    NoPort(String),
}

/// A function that takes a local port for a connection to an address, or returns the reason for
/// which no port is free.
pub(crate) type TakePort<'a> =
    &'a (dyn Fn(SocketAddr) -> Result<Option<Box<dyn LocalPort>>, String> + Sync);

/// Tries each address in turn and leaves time for the last address. All attempts share `patience`,
/// counted from `began`.
pub(crate) async fn dial(
    destination: &Admitted,
    patience: Duration,
    began: Instant,
    port: TakePort<'_>,
) -> Result<Local, DialError> {
    let left = (began + patience).saturating_duration_since(Instant::now());
    let addresses = match destination.destination() {
        Destination::Unix(path) => {
            let dialled = tokio::time::timeout(left, Local::dial_unix(path)).await;
            return Ok(dialled.map_err(|_| DialError::TimedOut(patience))??);
        }
        // Only a server has services, and the server connects to services without `dial`.
        Destination::Service(_) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
        Destination::Tcp(addresses) | Destination::Udp(addresses) => addresses,
    };
    let each = left / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = DialError::TimedOut(patience);
    for address in addresses {
        let port = match port(*address) {
            Ok(port) => port,
            Err(reason) => {
                failure = DialError::NoPort(reason);
                continue;
            }
        };
        match tokio::time::timeout(each, Local::dial_tcp(*address)).await {
            Ok(Ok(local)) => return Ok(local.with_port(port)),
            Ok(Err(error)) => failure = error.into(),
            Err(_) => failure = DialError::TimedOut(patience),
        }
    }
    Err(failure)
}

impl From<DialError> for Answer {
    fn from(error: DialError) -> Self {
        let status = match &error {
            DialError::TimedOut(_) => Status::TimedOut,
            DialError::Failed(_) => Status::Unreachable,
            DialError::NoPort(_) => Status::Busy,
        };
        Self { status, message: error.to_string() }
    }
}
