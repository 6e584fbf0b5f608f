//! UDP ASSOCIATE of SOCKS5: the client opens a socket for one application, which sends datagrams
//! for any targets to that socket.

use super::Shared;
use crate::datagrams::{self, LARGEST, LocalFlows, ReturnPath};
use crate::journal::{Kind, Line};
use crate::local::Local;
use crate::proxy::socks5::{self, Outcome};
use crate::target::{HostPort, Target};
use crate::transport::Carried;
use bytes::BytesMut;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Serves the association until the application ends its TCP connection (RFC 1928, section 7).
/// `announced` is the port from which the application sends, or 0.
pub(super) async fn run(shared: &Arc<Shared>, local: Local, announced: u16) -> io::Result<()> {
    let unknown = || io::Error::from(io::ErrorKind::NotConnected);
    let application = local.remote().ok_or_else(unknown)?.ip().to_canonical();
    let here = local.address().ok_or_else(unknown)?.ip().to_canonical();
    let owner = match Owner::of(&local) {
        Ok(owner) => owner,
        Err(_) if !is_of_this_host(application) => Owner::OnOtherHost,
        Err(reason) => {
            if let Some(Line { omitted }) = shared.line(application, Kind::Denial) {
                tracing::warn!(address = %application, %reason, omitted, "proxy request refused");
            }
            let nowhere = SocketAddr::new(here, 0);
            return local.write_all(&socks5::reply(Outcome::GeneralFailure, nowhere)).await;
        }
    };
    let socket = UdpSocket::bind((here, 0)).await?;
    let bound = socket.local_addr()?;
    local.write_all(&socks5::reply(Outcome::Succeeded, bound)).await?;
    let flows = LocalFlows::new(socket, shared.limits.datagrams_idle, FLOWS);
    let sources = Sources {
        application,
        announced,
        owner,
        first: OnceLock::new(),
        refused: Mutex::default(),
    };
    tokio::select! {
        () = receive(shared, &flows, &sources) => {}
        () = ended(&local) => {}
        () = shared.ended.cancelled() => {}
    }
    flows.end();
    Ok(())
}

/// Whether the address belongs to this host. Only such an address can be bound.
fn is_of_this_host(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// The source address from which the application may send: the host of its TCP connection, and a
/// single port. On this host, the port must belong to the user of the TCP connection.
struct Sources {
    application: IpAddr,
    announced: u16,
    owner: Owner,
    first: OnceLock<SocketAddr>,
    /// Ports that belong to other users, each with the time until which this end does not check the
    /// port again.
    refused: Mutex<HashMap<u16, Instant>>,
}

/// The user of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// A user of another host. This host cannot distinguish the users of the other host.
    OnOtherHost,
    User(u32),
}

impl Owner {
    /// Returns the user of this application on this host. The error is a reason for the log.
    fn of(local: &Local) -> Result<Self, String> {
        let unknown = "the user of the application is unknown: its connection has ended";
        let (Some(application), Some(here)) = (local.remote(), local.address()) else {
            return Err(unknown.to_owned());
        };
        match probe::owner::of_tcp(application, here) {
            Ok(user) => user.map(Self::User).ok_or_else(|| unknown.to_owned()),
            Err(error) => Err(format!("the user of the application is unknown: {error}")),
        }
    }

    /// Whether all UDP sockets with this port on this host belong to this user.
    fn holds(self, port: u16) -> bool {
        let Self::User(user) = self else { return true };
        let owners = probe::owner::of_udp(port).unwrap_or_default();
        !owners.is_empty() && owners.iter().all(|owner| *owner == user)
    }
}

impl Sources {
    fn admit(&self, source: SocketAddr) -> bool {
        let is_right = source.ip().to_canonical() == self.application
            && (self.announced == 0 || self.announced == source.port());
        if !is_right {
            return false;
        }
        if let Some(first) = self.first.get() {
            return *first == source;
        }
        // Remember refused ports, because listing this host's sockets costs much more than a
        // datagram.
        let now = Instant::now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.get(&source.port()).is_some_and(|until| now < *until) {
            return false;
        }
        if !self.owner.holds(source.port()) {
            refused.insert(source.port(), now + LOOK_AGAIN);
            return false;
        }
        refused.clear();
        *self.first.get_or_init(|| source) == source
    }
}

/// An application, and the target to which one of its flows sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Associated {
    application: SocketAddr,
    target: HostPort,
}

impl ReturnPath for Associated {
    fn application(&self) -> IpAddr {
        self.application.ip()
    }

    async fn send(&self, socket: &UdpSocket, payload: &[u8]) -> io::Result<usize> {
        let mut out = BytesMut::with_capacity(HEAD + payload.len());
        socks5::put_datagram_head(&mut out, &self.target);
        out.extend_from_slice(payload);
        socket.send_to(&out, self.application).await
    }
}

/// Passes the application's datagrams to the tunnel. Runs for ever.
async fn receive(shared: &Shared, flows: &Arc<LocalFlows<Associated, Carried>>, sources: &Sources) {
    loop {
        if flows.socket().readable().await.is_err() {
            return std::future::pending().await;
        }
        // Allocate the buffer in each iteration, so that an idle application has no buffer.
        let mut buffer = BytesMut::with_capacity(LARGEST);
        for _ in 0..AT_ONCE {
            buffer.clear();
            match flows.socket().try_recv_buf_from(&mut buffer) {
                Ok((_, source)) => forward(shared, flows, sources, source, &buffer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}

fn forward(
    shared: &Shared,
    flows: &Arc<LocalFlows<Associated, Carried>>,
    sources: &Sources,
    application: SocketAddr,
    datagram: &[u8],
) {
    let parsed = socks5::datagram(datagram).filter(|_| sources.admit(application));
    let Some((target, payload)) = parsed else {
        shared.counters.datagrams_dropped.increment();
        return;
    };
    let opening = |flow| datagrams::opening(Target::Udp(target.clone()), flow);
    let path = Associated { application, target: target.clone() };
    let pick = || shared.links.pick().filter(|_| !shared.draining.is_cancelled());
    flows.forward(path, payload, &pick, &opening);
}

/// Waits until the application ends the TCP connection, and ignores all bytes on the connection.
async fn ended(local: &Local) {
    let mut buffer = BytesMut::new();
    loop {
        if local.readable().await.is_err() {
            return;
        }
        buffer.clear();
        buffer.reserve(64);
        match local.try_read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// Maximum number of targets of one application at a time.
const FLOWS: usize = 256;
/// Maximum number of datagrams that this task passes on before other tasks run.
const AT_ONCE: usize = 64;
/// Time for which a port counts as another user's port before this end checks its owner again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum length of a datagram's header.
const HEAD: usize = 4 + 1 + 255 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_associate_accepts_datagrams_from_one_port_of_the_application_only() {
        let sources = |announced| Sources {
            application: [127, 0, 0, 1].into(),
            announced,
            owner: Owner::OnOtherHost,
            first: OnceLock::new(),
            refused: Mutex::default(),
        };
        let at = |text: &str| text.parse().unwrap();
        let any = sources(0);
        assert!(!any.admit(at("127.0.0.2:5")));
        assert!(any.admit(at("[::ffff:127.0.0.1]:5")));
        assert!(any.admit(at("[::ffff:127.0.0.1]:5")) && !any.admit(at("127.0.0.1:6")));
        let one = sources(7);
        assert!(!one.admit(at("127.0.0.1:5")) && one.admit(at("127.0.0.1:7")));
        // On this host, all sockets with the port must belong to the application's user.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = socket.local_addr().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let of = |user| Sources { owner: Owner::User(user), ..sources(0) };
        assert!(of(user).admit(from) && !of(user + 1).admit(from));
    }
}
