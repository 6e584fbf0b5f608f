use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The packets that the kernel dropped during a period, by the kernel's reasons.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drops {
    /// Packets by reason, as the kernel names them without `SKB_DROP_REASON_`.
    pub reasons: BTreeMap<String, u64>,
    /// Drop locations, the location with the most packets first. The counts are estimates if a
    /// reason dropped many packets.
    pub places: Vec<DropPlace>,
}

impl Drops {
    /// Returns the reasons that are faults, with their packets.
    pub fn faults(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.reasons.iter().map(|(reason, packets)| (reason.as_str(), *packets));
        all.filter(|(reason, packets)| *packets >= Self::FEW && !USUAL.contains(reason))
    }

    /// Minimum number of packets for a reason to be a fault.
    pub const FEW: u64 = 10;
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DropPlace {
    pub reason: String,
    pub packets: u64,
    /// The interface at which the packets were dropped, or from which they were received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The kernel's function. Missing if no reason of the period is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The number of the IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<SocketAddr>,
}

/// Packets that a healthy machine drops all the time.
const USUAL: &[&str] = &[
    "NOT_SPECIFIED",
    "OTHERHOST",
    "UNHANDLED_PROTO",
    "TCP_OLD_ACK",
    "TCP_OLD_DATA",
    "TCP_OLD_SEQUENCE",
    "TCP_RESET",
    "TCP_FLAGS",
    "CONSUMED",
    "UNICAST_IN_L2_MULTICAST",
];
