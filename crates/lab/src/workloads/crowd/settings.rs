//! Parses the numbers of connections in one cell.

use super::IDLE;
use crate::model::file::{Document, FileError};
use results::Axes;

/// The numbers of idle connections, and of busy connections at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CrowdSettings {
    pub(crate) idle: u32,
    pub(crate) busy: u32,
}

impl CrowdSettings {
    pub(super) fn parse(document: &Document, axes: &Axes, busy: u32) -> Result<Self, FileError> {
        let idle = document.workload_count(axes, IDLE, 0..=MOST_IDLE)?.unwrap_or(0);
        Ok(Self { idle, busy })
    }
}

/// Maximum number of idle connections. Each connection takes a port and, on each side, a file
/// descriptor.
const MOST_IDLE: u32 = 20_000;
