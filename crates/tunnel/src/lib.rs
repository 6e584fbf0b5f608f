//! Tunnels that carry TCP, UNIX sockets and UDP over QUIC across lossy and long paths, or over TLS
//! where a network blocks UDP.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | a tunnel's configuration, from its file and flags |
//! | [`identity`] | keys, pins, certificates: the identity of the other end |
//! | [`access_log`] | a line for each tunnel that has ended |
//! | [`account`] | carried bytes, and the quotas of identities |
//! | [`access`] | which identity may reach which target, checked on the resolved address |
//! | [`proxy`] | SOCKS5 and HTTP's CONNECT, by which applications name their targets |
//! | [`quic_tun`] | flags, files, tokens and status of quic-tun |
//! | [`frame`] | the frames at the beginning of a stream |
//! | [`transport`] | connections, streams, datagrams: endpoints of `quic`, and TLS over TCP |
//! | `windows` | how many bytes each connection may buffer |
//! | `silence` | when a peer that sends nothing counts as gone |
//! | `revocation` | closing connections whose peer is no longer trusted |
//! | [`server`], [`client`] | the two ends |
//! | [`check`] | checks of a configuration before a tunnel starts |
//! | [`run`] | either end as a process |
//! | [`hand_over`] | passing the sockets of an end to another process |
//! | [`status`] | status reports, for people and for Prometheus |

pub mod access;
pub mod access_log;
pub mod account;
pub mod check;
pub mod client;
pub mod config;
mod confinement;
mod counters;
mod datagrams;
mod descriptors;
mod dial;
pub mod frame;
pub mod hand_over;
pub mod health;
pub mod identity;
mod inbound;
mod journal;
mod local;
mod memory;
mod peer_key;
pub mod proxy;
pub mod quic_tun;
mod relay;
mod reset_order;
mod revocation;
pub mod run;
pub mod server;
mod session;
mod silence;
pub mod status;
mod target;
pub mod transport;
mod windows;

pub use counters::{Counted, Counters};
pub use target::{HostPort, Target, TargetError};

/// Congestion control of a tunnel.
pub mod congestion {
    pub use quic::{Congestion, CongestionError, Reading};
}
