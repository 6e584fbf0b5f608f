//! The properties of a network device that ethtool(8) shows. Reads link modes by netlink (Linux
//! 5.6) and otherwise by ioctl; a driver's own statistics have only an ioctl. All calls only read,
//! and concern the calling thread's namespace.

mod ioctl;
mod modes;
mod netlink;

use std::collections::BTreeMap;

use units::Rate;

use crate::ProbeError;

pub use modes::fastest;

/// The link as the driver reports it; `None` if the driver does not report a property.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    pub speed: Option<Rate>,
    pub full_duplex: Option<bool>,
    pub negotiates: Option<bool>,
    /// The fastest mode that this device supports; then the fastest mode that it advertises, and
    /// the fastest mode that the link partner advertises.
    pub supported_most: Option<Rate>,
    pub advertised_most: Option<Rate>,
    pub peer_most: Option<Rate>,
}

/// Entries of the receive and transmit rings, and the maximum number that the device supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rings {
    pub receive: u32,
    pub receive_most: u32,
    pub transmit: u32,
    pub transmit_most: u32,
}

/// How long, and for how many packets, the device delays an interrupt for received packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coalescing {
    pub receive_usecs: u32,
    pub receive_frames: u32,
    pub adaptive_receive: bool,
}

/// Receive queues, and the maximum number that the device supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Channels {
    pub now: u32,
    pub most: u32,
}

/// Offloads that save CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    pub segmentation: Option<bool>,
    pub generic_segmentation: Option<bool>,
    pub generic_receive: Option<bool>,
    pub transmit_checksum: Option<bool>,
    pub receive_checksum: Option<bool>,
    pub scatter_gather: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    /// The bus address, such as `0000:00:03.0`.
    pub bus_address: String,
}

pub fn link(interface: &str) -> Result<Link, ProbeError> {
    let by_netlink = netlink::link(interface);
    match by_netlink {
        Ok(link) if link.speed.is_some() || link.supported_most.is_some() => Ok(link),
        _ => ioctl::link(interface),
    }
}

pub fn driver(interface: &str) -> Result<Driver, ProbeError> {
    ioctl::driver(interface)
}

/// Returns the driver's own counters by name. Each driver defines the meaning of its counters.
pub fn statistics(interface: &str) -> Result<BTreeMap<String, u64>, ProbeError> {
    ioctl::statistics(interface)
}

pub fn rings(interface: &str) -> Result<Rings, ProbeError> {
    let [_, receive_most, _, _, transmit_most, receive, _, _, transmit] =
        ioctl::words(interface, ioctl::Ask::Rings)?;
    Ok(Rings { receive, receive_most, transmit, transmit_most })
}

pub fn coalescing(interface: &str) -> Result<Coalescing, ProbeError> {
    let words: [u32; 23] = ioctl::words(interface, ioctl::Ask::Coalescing)?;
    Ok(Coalescing {
        receive_usecs: words[1],
        receive_frames: words[2],
        adaptive_receive: words[10] != 0,
    })
}

pub fn channels(interface: &str) -> Result<Channels, ProbeError> {
    let [_, receive_most, _, _, combined_most, receive, _, _, combined] =
        ioctl::words(interface, ioctl::Ask::Channels)?;
    Ok(Channels {
        now: receive.saturating_add(combined),
        most: receive_most.saturating_add(combined_most),
    })
}

/// Reads whether each offload is on; `None` if the driver does not tell.
pub fn offloads(interface: &str) -> Offloads {
    let flag = |ask| ioctl::words(interface, ask).ok().map(|[_, value]: [u32; 2]| value != 0);
    Offloads {
        segmentation: flag(ioctl::Ask::Segmentation),
        generic_segmentation: flag(ioctl::Ask::GenericSegmentation),
        generic_receive: flag(ioctl::Ask::GenericReceive),
        transmit_checksum: flag(ioctl::Ask::TransmitChecksum),
        receive_checksum: flag(ioctl::Ask::ReceiveChecksum),
        scatter_gather: flag(ioctl::Ask::ScatterGather),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_offloads_and_no_link() {
        let offloads = offloads("lo");
        assert!(offloads.scatter_gather.is_some(), "{offloads:?}");
        assert_eq!(link("lo").unwrap_or_default().full_duplex, None);
        assert!(rings("lo").is_err());
    }

    #[test]
    fn ethtool_reports_a_missing_interface_as_an_error() {
        for name in ["nosuch0", "", "a-name-that-is-far-too-long", "a\0b"] {
            assert!(statistics(name).is_err() && link(name).is_err(), "{name:?}");
            assert_eq!(offloads(name), Offloads::default());
        }
    }
}
