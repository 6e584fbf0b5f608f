//! What measures the turns of one lab, whatever world it lives in.

use crate::file::{LabFile, SystemSpec};
use crate::outcome::Verdict;
use crate::plan::{Plan, PlannedCell, Turn};
use crate::{Cancel, LabError};
use indexmap::IndexMap;
use std::path::Path;
use std::time::Duration;

/// One turn, and all that is around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub lab: &'a LabFile,
    pub plan: &'a Plan,
    pub turn: &'a Turn,
    pub cell: &'a PlannedCell,
    pub system: &'a SystemSpec,
    /// For the programs' own temporary files.
    pub programs: &'a Path,
    pub cancel: &'a Cancel,
}

/// An executor that is ready for one lab.
pub(crate) trait Bench: Sync {
    /// How many turns it measures at once.
    fn threads(&self) -> usize;

    fn notes(&self) -> Vec<String>;

    /// What is worth a word in the report but does not belong to it.
    fn degradation(&self) -> Option<String>;

    /// What must be known to repeat the run.
    fn facts(&self) -> IndexMap<String, serde_json::Value>;

    /// Why a system cannot run here; `asked` if it was asked for by name.
    fn missing(&self, system: &SystemSpec, asked: bool) -> Option<String>;

    /// What these turns take.
    fn estimate(&self, plan: &Plan, left: &[&Turn]) -> Duration;

    /// `None` if it was interrupted.
    fn measure(&self, job: &Job<'_>) -> Result<Option<Verdict>, LabError>;
}
