//! The parts of a running switch that do I/O.
//!
//! | module | for |
//! | --- | --- |
//! | `start`, `confinement` | the process of a switch, from its settings to its end; its rights |
//! | `switch` | the running switch: bridges, ports, packet threads, and their changes |
//! | `bridge`, `bridge_session`, `bridge_thread`, `connection`, `snapshots`, `snoop` | a bridge and its OpenFlow connections |
//! | `pmd`, `worker` | packet threads |
//! | `bonds`, `lacp` | bonds: ports that NORMAL uses as one; the negotiation of bonds |
//! | `ports`, `port_counts`, `port_table`, `device`, `interface_facts`, `capture_source`, `pcap`, `shaper`, `policing` | ports |
//! | `unixctl`, `unixctl_thread`, `pid_file`, `commands` | the control protocol of ovs-appctl |
//! | `client` | the client of that protocol, for `weir switch` |
//! | `metrics`, `metrics_thread` | metrics for Prometheus |
//! | `coverage` | events and their rates, for `coverage/show` |
//! | `ovsdb` | an Open vSwitch database that holds the settings |
//! | `remote`, `tls` | addresses of controllers, and TLS to them |
//! | `config`, `table_settings`, `vlan_settings`, `flow_file`, `progress` | settings, rules in files, changes |
//! | `clock`, `waker`, `stream`, `outgoing` | helpers of the modules above |

mod bonds;
mod bridge;
mod bridge_session;
mod bridge_thread;
mod capture_source;
mod client;
mod clock;
mod commands;
mod config;
mod confinement;
mod connection;
mod coverage;
mod device;
mod duplex;
mod egress_queues;
mod error;
mod flow_file;
mod inactivity;
mod interface_facts;
pub mod lacp;
mod metrics;
mod metrics_thread;
mod ordered;
mod outgoing;
mod ovsdb;
pub mod pcap;
mod pid_file;
mod pmd;
mod policing;
mod port_counts;
mod port_table;
mod ports;
mod progress;
mod remote;
mod shaper;
mod snapshots;
mod snoop;
mod start;
mod stream;
mod switch;
mod table_settings;
mod tls;
pub mod unixctl;
mod unixctl_thread;
mod vlan_settings;
mod waker;
mod worker;

pub use bridge::BridgeState;
pub use client::{CONTROL_SOCKET, ClientError, call};
pub use config::{
    BridgeConfig, Config, ConfigError, DEFAULT_RUNDIR, FailMode, OVS_RUNDIR, OvsdbAddress,
    PortConfig, RxqAffinity, parse_cpu_mask,
};
pub use egress_queues::{EgressQueue, EgressQueues};
pub use error::SwitchError;
pub use policing::Policing;
pub use ports::{OpenError, SwitchPort};
pub use remote::{Protocols, Remote};
pub use settings::Leaf;
pub use start::{Confinement, Process, run};
pub use switch::Switch;
pub use table_settings::{Overflow, TableSettings};
pub use tls::{TlsError, TlsSettings};
pub use vlan_settings::{MirrorSettings, QinqEthtype, VlanModeSetting};
