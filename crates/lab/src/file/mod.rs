//! The lab file: an experiment as a person writes it.
//!
//! [`LabFile::parse`] reads the TOML and checks everything that can be checked without touching the
//! machine; whatever passes can be planned and built. Every refusal names file, line and, where one is
//! near, the right spelling.

mod check;
mod flows;
mod link;
mod locate;
mod placeholders;
mod schema;
mod workload;

pub(crate) use check::{CASE, COMMAND_WORDS, METRICS};
pub use flows::{Beside, FlowsSettings};
pub use link::{Directions, LinkSettings, Medium};
pub use locate::FileError;
pub(crate) use locate::nearest;
pub(crate) use placeholders::fill;
pub use schema::{
    CellFilter, CompareSpec, FormSpec, HeatSpec, LabFile, Pinning, ReferenceSpec, SystemKind,
    SystemSpec, Traffic, WorkloadKind,
};
pub use workload::WorkloadSettings;
