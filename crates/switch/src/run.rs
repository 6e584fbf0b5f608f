//! A running switch: ports, threads, control sockets.

mod client;
mod config;
mod pcap;
mod ports;
mod unixctl;

pub use client::{CONTROL_SOCKET, ClientError, call};
pub use config::{BridgeConfig, Config, ConfigError, DEFAULT_RUNDIR, PortConfig};
