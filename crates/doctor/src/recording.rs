//! The signals behind a diagnosis, at several times. A recording is a JSON document
//! (`docs/reference/doctor.md`), which a colleague can judge on another machine.

pub mod chosen;
mod connection;
mod drops;
mod far;
mod file;
mod machine;
mod sample;

pub use connection::{Connection, ConnectionState, Holder, Listener, Tcp, UdpSocket};
pub use drops::{DropPlace, Drops};
pub use far::{Attempt, FarEnd, Refusal};
pub(crate) use file::{bound, bounded};
pub use machine::{
    Bus, Clock, Interface, InterruptPlace, LinkModes, Machine, Neighbour, Offloads, Path, Queue,
    Rings,
};
pub use sample::{
    Conntrack, CoreTimes, Group, InterfaceCounters, Qdisc, RemotePorts, Sample, SocketLimit,
    SocketMemory, Softnet, Stall, Task,
};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use units::{Bytes, Span};

/// The version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// [`Unseen::what`] of a recording whose connections could not be read.
pub const TCP_CONNECTIONS: &str = "TCP connections";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The format's version, at most [`VERSION`].
    pub weir_recording: u32,
    #[serde(default)]
    pub origin: Origin,
    /// Free text about the origin of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The connections that the user asked about; `None`: the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    #[serde(default)]
    pub machine: Machine,
    #[serde(default)]
    pub periods: Vec<Period>,
    /// The signals that could not be read, with the reason.
    #[serde(default)]
    pub unseen: Vec<Unseen>,
}

/// The origin of the values in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    #[default]
    Measured,
    /// Values that another command saved, see [`crate::saved`].
    Saved,
    /// Packets of a capture, see [`crate::capture`].
    Captured,
    /// Values copied by hand from another program's output.
    Transcribed,
    /// Values written for a test.
    Synthetic,
}

/// The samples of the machine while the doctor watches it, or during a direction of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Period {
    /// A name for the period, such as "this machine".
    pub label: String,
    /// At least two samples, in the order of time.
    pub samples: Vec<Sample>,
    /// Whether the machine served only the flows of this period.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nothing_else_ran: bool,
    /// The process of the observation, which does not count as the machine's own work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer: Option<u32>,
    /// The CPU time that the observation took, with the CPU time before its first sample that
    /// counts as the observation's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cpu: Option<Span>,
    /// The far ends in other network namespaces of this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub far_ends: Vec<InnerEnd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_lived: Option<ShortLived>,
    /// The packets that the kernel dropped; `None` if the packets could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<Drops>,
    /// The test during this period; `None` without a test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// Connections that opened and ended within half of the observation. Each of these connections was
/// in at most a single sample, or lasted at most [`ShortLived::ROUND_TRIPS`]. On a busy machine
/// more connections may have opened and ended between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShortLived {
    pub connections: u64,
    /// The bytes that these connections had sent and received when they were last seen.
    pub bytes: Bytes,
}

impl ShortLived {
    /// Maximum length of a short-lived connection, in round trips; later its window has grown.
    pub const ROUND_TRIPS: u64 = 32;
}

/// The processes behind an end of a connection on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerEnd {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    #[serde(default)]
    pub holders: Vec<Holder>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unseen {
    pub what: String,
    pub reason: String,
}

impl Recording {
    pub fn new(machine: Machine) -> Self {
        Self {
            weir_recording: VERSION,
            origin: Origin::Measured,
            note: None,
            focus: None,
            machine,
            periods: Vec::new(),
            unseen: Vec::new(),
        }
    }
}
