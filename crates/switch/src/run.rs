//! The parts of a running switch that touch the machine: ports, settings, the control protocol.

pub mod client;
pub mod config;
pub mod pcap;
pub mod ports;
pub mod unixctl;

pub use client::{CONTROL_SOCKET, ClientError, call};
pub use config::{BridgeConfig, Config, ConfigError, DEFAULT_RUNDIR, PortConfig};
