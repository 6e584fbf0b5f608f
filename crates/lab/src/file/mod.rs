//! The lab file: an experiment in TOML.
//!
//! [`LabFile::parse`] reads the TOML and checks everything that can be checked without touching the
//! machine. A lab that passes can be planned and built. Every error names the file, the line and,
//! where a similar word exists, the right spelling.

mod check;
mod commands;
mod conditions;
mod demand;
mod download;
mod flows;
mod link;
mod locate;
mod messages;
mod part;
mod placeholders;
mod schema;
mod system;
mod tcp;
mod topology;
mod workload;

pub(crate) use check::{CASE, COMMAND_WORDS};
pub use commands::CommandLine;
pub use demand::{Arrivals, Cross, Demand};
pub use download::{DownloadSettings, Way};
pub(crate) use flows::MOST_ARRIVALS;
pub use flows::{Beside, FlowsSettings};
pub use link::{DirectionSettings, Directions, LinkSettings, Medium};
pub use locate::FileError;
pub(crate) use locate::nearest;
pub use messages::{CrowdSettings, MessageSettings};
pub use part::Part;
pub(crate) use placeholders::fill;
pub use schema::{
    CellFilter, CompareSpec, FormSpec, HeatSpec, LabFile, Pinning, ReferenceSpec, SystemKind,
    SystemSpec, TraceSpec, Traffic, WorkloadKind,
};
pub use system::SystemSettings;
pub use tcp::TcpSpec;
pub use topology::{Rtts, Shape, TopologySettings, TopologySpec};
pub use workload::WorkloadSettings;
