//! From what was told to what the two ends are made of.

use super::{ClientConfig, Forward, ServerConfig, Settings};
use crate::access::Resolve;
use crate::client::{ClientLimits, ClientParts, ListenAt, Listener, Reverse, ServerAt};
use crate::identity::{self, IdentityError};
use crate::server::{Guard, Limits, ServerParts};
use crate::target::{HostPort, Target};
use crate::transport::Tuning;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

impl ServerConfig {
    pub fn parts(&self, resolver: Arc<dyn Resolve>) -> Result<ServerParts, IdentityError> {
        Ok(ServerParts {
            listen: self.listen_on,
            tls: identity::server_config(&self.identity, &self.peers)?,
            guard: Guard { trusted: self.peers.clone(), access: self.access.clone() },
            resolver,
            tuning: self.settings.tuning(),
            limits: Limits { dial: self.settings.dial_timeout.as_duration(), ..Limits::default() },
            shards: Some(self.settings.endpoints),
        })
    }
}

impl ClientConfig {
    pub fn parts(&self, resolver: Arc<dyn Resolve>) -> Result<ClientParts, IdentityError> {
        let server = |far: &super::FarServer| {
            Ok(ServerAt {
                address: far.endpoint.clone(),
                trust: far.trust.clone(),
                tls: identity::client_config(&self.identity, &far.trust)?,
            })
        };
        Ok(ClientParts {
            servers: self.servers.iter().map(server).collect::<Result<_, IdentityError>>()?,
            listeners: self.forwards.iter().map(listener).collect(),
            reverse: self.reverses.iter().map(reverse).collect(),
            resolver,
            tuning: self.settings.tuning(),
            limits: ClientLimits {
                // The server's dial, and the way there and back.
                answer: self.settings.dial_timeout.as_duration() + ROUND_TRIPS,
                ..ClientLimits::default()
            },
            connections: self.connections,
            shards: Some(self.settings.endpoints),
        })
    }
}

impl Settings {
    fn tuning(&self) -> Tuning {
        Tuning {
            congestion: self.congestion,
            keepalive: self.keepalive.as_duration(),
            memory: self.memory,
            ..Tuning::default()
        }
    }
}

fn reverse(forward: &Forward) -> Reverse {
    Reverse { listen: forward.listen_on.clone(), target: forward.target.clone() }
}

fn listener(forward: &Forward) -> Listener {
    let listen = match &forward.listen_on {
        Target::Tcp(host) => ListenAt::Tcp(address(host)),
        Target::Udp(host) => ListenAt::Udp(address(host)),
        Target::Unix(path) => ListenAt::Unix(path.clone()),
    };
    Listener { listen, target: forward.target.clone() }
}

/// Names were refused when the file was checked.
fn address(host: &HostPort) -> SocketAddr {
    let address = host.host().parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    SocketAddr::new(address, host.port())
}

const ROUND_TRIPS: Duration = Duration::from_secs(5);
