//! The kernel's information about a port's interface.

use flow::request::PortStatistics;
use probe::ethtool::{self, Driver, Link};
use probe::interface::{Counters, Interface};

use super::config::PortConfig;
use super::device::interface_of;

/// Reads the link state of a port's interface. Without an interface, the speed is unknown.
pub(super) fn link_of(port: &str, config: &PortConfig) -> Link {
    interface_of(port, config).and_then(|name| ethtool::link(name).ok()).unwrap_or_default()
}

/// Returns the driver of a port's interface; `None` without an interface.
pub(super) fn driver_of(port: &str, config: &PortConfig) -> Option<Driver> {
    interface_of(port, config).and_then(|name| ethtool::driver(name).ok())
}

/// Reads the counters that only the kernel has, since the interface was created. Returns no
/// counters for a port without an interface.
pub(super) fn kernel_counters(port: &str, config: &PortConfig) -> PortStatistics {
    let found = interface_of(port, config).and_then(|name| Interface::read(name).ok());
    found.map_or_else(PortStatistics::default, |found| counters_of(&found, &config.kind))
}

fn counters_of(interface: &Interface, kind: &str) -> PortStatistics {
    let Interface { counters: Counters { received, sent }, link_errors, .. } = interface;
    // The switch receives the frames that the kernel sends into a TAP device.
    let (received, sent) = if kind == TAP { (sent, received) } else { (received, sent) };
    PortStatistics {
        received_dropped: Some(received.drops),
        received_errors: Some(received.errors),
        sent_errors: Some(sent.errors),
        frame_errors: Some(link_errors.frame),
        overruns: Some(link_errors.overrun),
        crc_errors: Some(link_errors.crc),
        collisions: Some(link_errors.collisions),
        ..PortStatistics::default()
    }
}

const TAP: &str = "tap";

#[cfg(test)]
mod tests {
    use super::*;
    use probe::interface::Direction;

    #[test]
    fn a_tap_port_receives_the_frames_that_the_kernel_sends() {
        let direction = |errors, drops| Direction { errors, drops, ..Direction::default() };
        let counters = Counters { received: direction(1, 2), sent: direction(3, 4) };
        let interface = Interface { counters, ..Interface::default() };
        for (kind, expected) in [("packet", [2, 1, 3]), ("xdp", [2, 1, 3]), ("tap", [4, 3, 1])] {
            let port = counters_of(&interface, kind);
            let found = [port.received_dropped, port.received_errors, port.sent_errors];
            assert_eq!(found, expected.map(Some), "{kind}");
        }
    }
}
