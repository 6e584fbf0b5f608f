//! Converts a configuration into the parts of a server or a client.

use super::{ClientConfig, Forward, Proxy, ServerConfig, Settings};
use crate::access::Resolve;
use crate::client::{ClientLimits, ClientParts, ListenAt, Listener, Reverse, Route, ServerAt};
use crate::identity::{ClientCredentials, Credentials, IdentityError, ServerCredentials};
use crate::quic_tun::Tunnels;
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
            tcp: self.tcp,
            tls: credentials.tls()?,
            guard: self.guard(),
            resolver,
            tuning: Tuning {
                secret: Some(self.identity.secret().clone()),
                ..self.settings.tuning()
            },
            limits: Limits {
                dial: self.settings.dial_timeout.as_duration(),
                connections_each: match self.peers.iter().any(|peer| peer.proof.is_shared()) {
                    true => CONNECTIONS_SHARED,
                    false => Limits::default().connections_each,
                },
                ..Limits::default()
            },
            quotas: self.quotas.clone(),
            access_log: self.access_log.clone(),
            shards: Some(self.settings.endpoints),
            tokens: self.tokens,
            tunnels: self.tunnels_at.is_some().then(|| Tunnels::new(true)),
        })
    }
}

impl ClientConfig {
    /// Returns the credentials for each server, in the order of the servers.
    pub fn credentials(&self) -> Vec<Arc<ClientCredentials>> {
        let each = self.servers.iter();
        each.map(|far| Credentials::new(&self.identity, far.trust.clone())).collect()
    }

    pub fn listeners(&self) -> Vec<Listener> {
        let proxies = self.proxies.iter().map(Proxy::listener);
        let tokens = self.tokens.iter().map(|forward| Listener {
            listen: listen_at(&forward.listen_on),
            route: Route::Token(Arc::clone(&forward.source)),
        });
        self.forwards.iter().map(listener).chain(proxies).chain(tokens).collect()
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
                tcp_port: far.tcp_port,
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
                // The server's dial timeout, plus the time for round trips.
                answer: self.settings.dial_timeout.as_duration() + ROUND_TRIPS,
                ..ClientLimits::default()
            },
            connections: self.connections,
            carrier: self.carrier,
            shards: Some(self.settings.endpoints),
            tunnels: self.tunnels_at.is_some().then(|| Tunnels::new(false)),
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
    Listener { listen: listen_at(&forward.listen_on), route: forward.target.clone().into() }
}

fn listen_at(target: &Target) -> ListenAt {
    match target {
        Target::Tcp(host) => ListenAt::Tcp(address(host)),
        Target::Udp(host) => ListenAt::Udp(address(host)),
        Target::Unix(path) => ListenAt::Unix(path.clone()),
        Target::Service(_) => unreachable!("`check` refuses services as listeners"),
    }
}

/// Host names were rejected when the file was checked.
fn address(host: &HostPort) -> SocketAddr {
    let address = host.host().parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    SocketAddr::new(address, host.port())
}

/// Maximum number of connections of an identity that many clients share.
const CONNECTIONS_SHARED: usize = 4096;
const ROUND_TRIPS: Duration = Duration::from_secs(5);
