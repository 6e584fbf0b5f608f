//! Converts a configuration into the parts of a server or a client.

use super::{ClientConfig, Forward, ServerConfig, Settings};
use crate::access::Resolve;
use crate::client::{ClientLimits, ClientParts, ListenAt, Listener, Reverse, ServerAt};
use crate::identity::{ClientCredentials, Credentials, IdentityError, ServerCredentials};
use crate::server::{Guard, Limits, ServerParts};
use crate::target::{HostPort, Target};
use crate::transport::Tuning;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

impl ServerConfig {
    pub fn credentials(&self) -> Arc<ServerCredentials> {
        Credentials::new(&self.identity, self.peers.clone())
    }

    pub fn guard(&self) -> Guard {
        Guard { trusted: self.peers.clone(), access: self.access.clone() }
    }

    pub fn parts(
        &self,
        credentials: &Arc<ServerCredentials>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<ServerParts, IdentityError> {
        Ok(ServerParts {
            listen: self.listen_on,
            tls: credentials.tls()?,
            guard: self.guard(),
            resolver,
            tuning: Tuning {
                secret: Some(self.identity.secret().clone()),
                ..self.settings.tuning()
            },
            limits: Limits { dial: self.settings.dial_timeout.as_duration(), ..Limits::default() },
            shards: Some(self.settings.endpoints),
        })
    }
}

impl ClientConfig {
    /// The credentials for each server, in their order.
    pub fn credentials(&self) -> Vec<Arc<ClientCredentials>> {
        let each = self.servers.iter();
        each.map(|far| Credentials::new(&self.identity, far.trust.clone())).collect()
    }

    pub fn listeners(&self) -> Vec<Listener> {
        self.forwards.iter().map(listener).collect()
    }

    pub fn reverse(&self) -> Vec<Reverse> {
        self.reverses.iter().map(reverse).collect()
    }

    pub fn parts(
        &self,
        credentials: &[Arc<ClientCredentials>],
        resolver: Arc<dyn Resolve>,
    ) -> Result<ClientParts, IdentityError> {
        let server = |(far, credentials): (&super::FarServer, &Arc<ClientCredentials>)| {
            Ok(ServerAt {
                address: far.endpoint.clone(),
                trust: far.trust.clone(),
                tls: credentials.tls()?,
            })
        };
        let servers = self.servers.iter().zip(credentials).map(server);
        Ok(ClientParts {
            servers: servers.collect::<Result<_, IdentityError>>()?,
            listeners: self.listeners(),
            reverse: self.reverse(),
            resolver,
            tuning: self.settings.tuning(),
            limits: ClientLimits {
                // The server's dial timeout, plus the round trips.
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

/// Host names were rejected when the file was checked.
fn address(host: &HostPort) -> SocketAddr {
    let address = host.host().parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    SocketAddr::new(address, host.port())
}

const ROUND_TRIPS: Duration = Duration::from_secs(5);
