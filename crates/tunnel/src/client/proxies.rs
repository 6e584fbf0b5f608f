//! Connections of applications that name their targets: SOCKS5 and HTTP's CONNECT.

use super::listener::{Front, hand_over};
use super::negotiations::Negotiations;
use super::{Shared, associate};
use crate::frame::{Request, Status};
use crate::journal::{Kind, Line};
use crate::local::{DetachedLocal, Local};
use crate::proxy::Users;
use crate::proxy::connect::{self, ConnectError, ConnectRequest};
use crate::proxy::socks5::{self, Greeting, Login, Method, NO_ADDRESS, Outcome, SocksError};
use crate::relay::RelayError;
use crate::target::{HostPort, Target};
use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// The protocol in which an application names its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Socks5,
    Http,
}

/// Serves one application. `negotiations` bounds the applications that have not named their target
/// yet.
pub(super) async fn handle(
    shared: Arc<Shared>,
    connection: DetachedLocal,
    dialect: Dialect,
    users: Option<Arc<Users>>,
    place: OwnedSemaphorePermit,
    negotiations: Arc<Negotiations>,
) {
    let negotiation = negotiations.begin();
    let application =
        connection.remote().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |remote| remote.ip());
    let Ok(local) = connection.bind() else { return };
    let negotiated = timeout(NEGOTIATION, negotiate(&local, dialect, users.as_deref()));
    let negotiated = tokio::select! {
        negotiated = negotiated => negotiated,
        () = negotiation.evicted() => {
            shared.counters.tunnels_over_limit.increment();
            return local.abort();
        }
    };
    let asked = match negotiated {
        Ok(Ok(asked)) => asked,
        Ok(Err(refusal)) => {
            refusal.count(&shared, application);
            farewell(local, &refusal.reply).await;
            return drop(negotiation);
        }
        Err(_) => {
            shared.counters.not_understood.increment();
            return local.abort();
        }
    };
    drop(negotiation);
    match asked {
        Asked::Connect(target, early) => {
            let Ok(connection) = local.detach() else { return };
            let request = Request::Forward(Target::Tcp(target));
            let front = Some(Box::new(Front { dialect, early }));
            hand_over(shared, connection, request, front, place).await;
        }
        Asked::Associate(port) => {
            if let Err(error) = associate::run(&shared, local, port).await {
                tracing::debug!(%error, "an association ended early");
            }
            drop(place);
        }
    }
}

/// An application's request.
enum Asked {
    /// A connection to the target, and the bytes after the request, which go to the target.
    Connect(HostPort, Bytes),
    /// A socket for datagrams that the application sends from this port; 0 means any port.
    Associate(u16),
}

/// The reason why a request is refused, and the reply to the application.
struct Refusal {
    why: Why,
    reply: Bytes,
}

enum Why {
    /// The request does not follow the protocol.
    NotUnderstood(String),
    Login,
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self { why: Why::Io(error), reply: Bytes::new() }
    }
}

impl Refusal {
    fn count(&self, shared: &Shared, application: IpAddr) {
        let line = || shared.line(application, Kind::Denial);
        match &self.why {
            Why::NotUnderstood(reason) => {
                shared.counters.not_understood.increment();
                if let Some(Line { omitted }) = line() {
                    tracing::warn!(address = %application, %reason, omitted, "proxy request refused");
                }
            }
            Why::Login => {
                shared.counters.logins_refused.increment();
                if let Some(Line { omitted }) = line() {
                    tracing::warn!(address = %application, omitted, "proxy login refused");
                }
            }
            Why::Io(error) => tracing::debug!(%error, "lost a local connection"),
        }
    }
}

async fn negotiate(
    local: &Local,
    dialect: Dialect,
    users: Option<&Users>,
) -> Result<Asked, Refusal> {
    let mut reader = Reader { local, bytes: BytesMut::new() };
    match dialect {
        Dialect::Socks5 => socks(&mut reader, users).await,
        Dialect::Http => http(&mut reader, users).await,
    }
}

async fn socks(reader: &mut Reader<'_>, users: Option<&Users>) -> Result<Asked, Refusal> {
    let silent = |error: SocksError| Refusal {
        why: Why::NotUnderstood(error.to_string()),
        reply: Bytes::new(),
    };
    let greeting = reader.take(Greeting::decode).await?.map_err(silent)?;
    match users {
        None if greeting.without_login => {
            reader.local.write_all(&Method::WithoutLogin.encode()).await?;
        }
        Some(users) if greeting.with_password => {
            reader.local.write_all(&Method::Password.encode()).await?;
            let login = reader.take(Login::decode).await?.map_err(silent)?;
            let is_right = users.admit(&login.name, &login.password);
            let verdict = Login::verdict(is_right);
            if !is_right {
                return Err(Refusal { why: Why::Login, reply: Bytes::copy_from_slice(&verdict) });
            }
            reader.local.write_all(&verdict).await?;
        }
        _ => {
            let reply = Bytes::copy_from_slice(&Method::NoneAcceptable.encode());
            return Err(Refusal { why: Why::Login, reply });
        }
    }
    let request = reader.take(socks5::Request::decode).await?;
    let request = request.map_err(|error| Refusal {
        why: Why::NotUnderstood(error.to_string()),
        reply: socks5::reply(error.outcome(), NO_ADDRESS).freeze(),
    })?;
    Ok(match request {
        socks5::Request::Connect(target) => {
            Asked::Connect(target, std::mem::take(&mut reader.bytes).freeze())
        }
        socks5::Request::Associate { port } => Asked::Associate(port),
    })
}

async fn http(reader: &mut Reader<'_>, users: Option<&Users>) -> Result<Asked, Refusal> {
    let request = reader.take(ConnectRequest::decode).await?.map_err(|error| {
        let reply = match error {
            ConnectError::NotHttp => Bytes::new(),
            _ => connect::refusal(error.status(), &error.to_string()).into(),
        };
        Refusal { why: Why::NotUnderstood(error.to_string()), reply }
    })?;
    if let Some(users) = users {
        let login = request.login.as_ref();
        if !login.is_some_and(|(name, password)| users.admit(name, password)) {
            let reply = connect::refusal(connect::LOGIN_REQUIRED, "this proxy needs a valid login");
            return Err(Refusal { why: Why::Login, reply: reply.into() });
        }
    }
    Ok(Asked::Connect(request.to, std::mem::take(&mut reader.bytes).freeze()))
}

/// Reads complete messages, and keeps the bytes that follow them.
struct Reader<'a> {
    local: &'a Local,
    bytes: BytesMut,
}

impl Reader<'_> {
    /// Reads one message. The decoders bound the message's length.
    async fn take<T, E>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> io::Result<Result<T, E>> {
        loop {
            match decode(&self.bytes) {
                Ok(Some((message, length))) => {
                    self.bytes.advance(length);
                    return Ok(Ok(message));
                }
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
            self.local.readable().await?;
            self.bytes.reserve(READ);
            match self.local.try_read(&mut self.bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
}

impl Dialect {
    pub(super) fn established(self) -> Bytes {
        match self {
            Self::Socks5 => socks5::reply(Outcome::Succeeded, NO_ADDRESS).freeze(),
            Self::Http => Bytes::from_static(connect::ESTABLISHED),
        }
    }

    /// Replies to the application that this client has no connection to a server.
    pub(super) async fn no_server(self, local: Local) {
        let why = "no connection to any server of the tunnel";
        self.refuse(local, Outcome::NetworkUnreachable, "503 Service Unavailable", why).await;
    }

    /// Replies to the application with the reason for which its tunnel was not opened.
    pub(super) async fn failed(self, local: Local, error: &RelayError) {
        let (outcome, status) = match error {
            RelayError::Refused(Status::Denied, _) => (Outcome::NotAllowed, "403 Forbidden"),
            RelayError::Refused(Status::Unreachable, _) => {
                (Outcome::HostUnreachable, "502 Bad Gateway")
            }
            RelayError::Refused(Status::TimedOut, _) | RelayError::Unanswered(_) => {
                (Outcome::TimedOut, "504 Gateway Timeout")
            }
            RelayError::Refused(Status::Busy, _) => {
                (Outcome::GeneralFailure, "503 Service Unavailable")
            }
            _ => (Outcome::GeneralFailure, "502 Bad Gateway"),
        };
        self.refuse(local, outcome, status, &error.to_string()).await;
    }

    async fn refuse(self, local: Local, outcome: Outcome, status: &str, why: &str) {
        let reply = match self {
            Self::Socks5 => socks5::reply(outcome, NO_ADDRESS).freeze(),
            Self::Http => connect::refusal(status, why).into(),
        };
        farewell(local, &reply).await;
    }
}

/// Sends the reply and waits until the application ends its side. If this end closed the socket
/// with unread bytes, the kernel would send a reset, which could overtake the reply.
async fn farewell(local: Local, reply: &[u8]) {
    let goodbye = async {
        local.write_all(reply).await?;
        local.finish()?;
        let mut buffer = BytesMut::new();
        for _ in 0..MOST_READS {
            local.readable().await?;
            buffer.clear();
            buffer.reserve(READ);
            match local.try_read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    let _ = timeout(FAREWELL, goodbye).await;
}

/// Maximum number of applications of one listener that have not named their target.
pub(super) const NEGOTIATIONS: usize = 256;
/// Maximum time that an application may take to name its target.
const NEGOTIATION: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(2);
const READ: usize = 1024;
const MOST_READS: usize = 64;
