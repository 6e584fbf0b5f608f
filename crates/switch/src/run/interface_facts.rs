//! The kernel's facts about the interface of a port.

use probe::ethtool::{self, Link};
use probe::interface::Interface;

use super::config::PortConfig;
use crate::request::PortStatistics;

/// The link of a port's interface. A port without an interface has no speed.
pub(super) fn link_of(port: &str, config: &PortConfig) -> Link {
    interface(port, config).and_then(|name| ethtool::link(name).ok()).unwrap_or_default()
}

/// The counters that the kernel alone has, since the interface exists. A port without an interface
/// has none of them.
pub(super) fn kernel_counters(port: &str, config: &PortConfig) -> PortStatistics {
    let found = interface(port, config).and_then(|name| Interface::read(name).ok());
    let Some(Interface { counters, link_errors, .. }) = found else {
        return PortStatistics::default();
    };
    PortStatistics {
        received_dropped: Some(counters.received.drops),
        received_errors: Some(counters.received.errors),
        sent_errors: Some(counters.sent.errors),
        frame_errors: Some(link_errors.frame),
        overruns: Some(link_errors.overrun),
        crc_errors: Some(link_errors.crc),
        collisions: Some(link_errors.collisions),
        ..PortStatistics::default()
    }
}

fn interface<'a>(port: &'a str, config: &'a PortConfig) -> Option<&'a str> {
    matches!(config.kind.as_str(), "packet" | "tap" | "xdp")
        .then(|| config.interface.as_deref().unwrap_or(port))
}
