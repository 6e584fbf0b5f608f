//! Splits a step that measured several places of an axis at once into one outcome per place.

use crate::bench::LabFile;
use crate::model::plan::PlannedCell;
use crate::model::{Outcome, Verdict};

pub(super) fn outcomes(lab: &LabFile, outcomes: &[Outcome]) -> Vec<Outcome> {
    let Some(axis) = lab.axis_of_ways() else { return Vec::new() };
    let of_one = |outcome: &Outcome| -> Vec<Outcome> {
        let Verdict::Measured(whole) = &outcome.verdict else { return Vec::new() };
        // A step of one place already is that place's outcome.
        if whole.members.len() < 2 {
            return Vec::new();
        }
        let of_member = |member: &crate::model::Member| {
            let mut axes = outcome.axes.clone();
            axes.insert(axis.to_owned(), member.name.clone());
            let mut measurement = member.measurement.clone();
            measurement.invalid.clone_from(&whole.invalid);
            measurement.cpu_limited = whole.cpu_limited;
            measurement.cpu_limit.clone_from(&whole.cpu_limit);
            measurement.fingerprint.clone_from(&whole.fingerprint);
            measurement.congestion_control.clone_from(&whole.congestion_control);
            Outcome {
                system: outcome.system.clone(),
                axes,
                block: outcome.block,
                verdict: Verdict::Measured(Box::new(measurement)),
            }
        };
        whole.members.iter().map(of_member).collect()
    };
    outcomes.iter().flat_map(of_one).collect()
}

/// In the order of their first occurrence.
pub(super) fn cells(members: &[Outcome]) -> Vec<PlannedCell> {
    let mut cells: Vec<PlannedCell> = Vec::new();
    for outcome in members {
        let cell = PlannedCell { system: outcome.system.clone(), axes: outcome.axes.clone() };
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    cells
}
