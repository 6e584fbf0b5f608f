//! Compares the simulator's own model with theory and published figures.

mod simulated;

use super::{CellWorkload, Workload};
use crate::bench::simulator::SimulatorStep;
use crate::model::file::{Document, FileError, Loopback, SystemKind};
use crate::model::{Failure, Measurement, Plan};
use results::{Axes, Cell};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Validate;

impl Workload for Validate {
    fn kind(&self) -> &'static str {
        "validate"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Model]
    }

    fn loopback(&self) -> Loopback {
        Err("the workload judges an emulated link, and `loopback` is none: leave `via` out")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        let cases = sim::validate::cases().into_iter();
        let told = |case: &sim::validate::Case| {
            let variant = match case.variant {
                Some(variant) => format!("; variant: {variant}"),
                None => String::new(),
            };
            format!("{}: {}; in {}{variant}", case.layer, case.note, case.unit)
        };
        let terms = [("verdict", VERDICT), ("grid's own", OWN)];
        let terms = terms.map(|(term, text)| (term, text.to_owned()));
        terms.into_iter().chain(cases.map(|case| (case.name, told(&case)))).collect()
    }

    fn judge(&self, cell: &mut Cell) {
        simulated::judge_cell(cell);
    }

    fn at(&self, _document: &Document, _axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(Case))
    }

    fn own_axis(&self, _document: &Document) -> Option<(&'static str, Vec<&'static str>)> {
        Some((CASE, sim::validate::cases().into_iter().map(|case| case.name).collect()))
    }

    fn has_hosts(&self) -> bool {
        false
    }

    fn refused_by_machine(&self) -> Option<&'static str> {
        Some("this workload exists only in virtual time")
    }

    fn simulator_time(&self, _document: &Document, _axes: &Axes, plan: &Plan) -> Duration {
        plan.duration.as_duration()
    }
}

/// The case of the simulator's validation that the axis `case` names.
#[derive(Debug)]
struct Case;

impl CellWorkload for Case {
    fn simulate(&self, step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        simulated::measure(step)
    }
}

const VERDICT: &str = "within is 1 if the median of the repeats differs from the expected number by at most the \
    tolerance and the interval of the difference, from both numbers' intervals, is no wider than that to either \
    side; 0 if the difference is larger; 0.5 (undecided) if the interval is wider. The command exits 0 only if \
    every row is within";
const OWN: &str = "where a case is a variant: the figure of the simulator's defaults and of cc-grid's own \
    algorithm in the same world. It is shown and not judged, because the expected number assumes the variant";
/// The name of the axis whose values are the simulator's cases.
const CASE: &str = "case";
