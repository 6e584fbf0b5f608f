//! The interface of the benches, which measure the steps of one lab on machines or in virtual time.

use crate::bench::LabFile;
use crate::model::file::SystemSpec;
use crate::model::plan::{Plan, PlannedCell, Step};
use crate::model::{Cancel, LabError, Verdict};
use indexmap::IndexMap;
use report::profile::SystemProfile;
use results::Results;
use std::path::Path;
use std::time::Duration;

/// A step to measure, and everything that the bench needs for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub lab: &'a LabFile,
    pub plan: &'a Plan,
    pub step: &'a Step,
    pub cell: &'a PlannedCell,
    pub system: &'a SystemSpec,
    /// Folder for the programs' temporary files.
    pub programs: &'a Path,
    pub cancel: &'a Cancel,
}

/// An executor that is prepared to measure the steps of one lab.
pub(crate) trait Bench: Sync {
    /// Returns the number of steps that the bench measures at once.
    fn threads(&self) -> usize;

    fn notes(&self) -> Vec<String>;

    /// Returns a table that the user sees before the first step.
    fn preface(&self) -> Option<String> {
        None
    }

    /// Returns a remark for the user that does not belong in the report.
    fn degradation(&self) -> Option<String>;

    /// Returns the facts that a repetition of the run needs.
    fn facts(&self) -> IndexMap<String, serde_json::Value>;

    /// Returns the bounds of a valid turn, and how near the run came to them: terms and
    /// explanations.
    fn validity(&self, _results: &Results) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the reason why a system cannot run here. `asked`: the user named the system.
    fn missing(&self, system: &SystemSpec, asked: bool) -> Option<String>;

    /// Checks before the first step whether a problem would make every step of these systems fail.
    fn check(&self, _systems: &[SystemSpec]) -> Result<(), LabError> {
        Ok(())
    }

    /// Estimates the time that the steps `left` take.
    fn estimate(&self, plan: &Plan, left: &[&Step]) -> Duration;

    /// Ends everything that steps have kept for later steps.
    fn finish(&self) {}

    /// Returns the stacks of each system, if the user asked for a profile.
    fn profile(&self) -> Option<Vec<SystemProfile>> {
        None
    }

    /// Measures one step. `None` if the step was interrupted.
    fn measure(&self, job: &Job<'_>) -> Result<Option<Verdict>, LabError>;
}
