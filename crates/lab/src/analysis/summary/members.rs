//! Splits the outcome of a step that measured several places of an axis at once into one outcome
//! for each place.

use crate::bench::LabFile;
use crate::model::plan::PlannedCell;
use crate::model::{Outcome, Verdict};

pub(super) fn outcomes(lab: &LabFile, outcomes: &[Outcome]) -> Vec<Outcome> {
    let Some(axis) = lab.axis_of_ways() else { return Vec::new() };
    let of_one = |outcome: &Outcome| -> Vec<Outcome> {
        let Verdict::Measured(whole) = &outcome.verdict else { return Vec::new() };
        // A step of a single place needs no split: the outcome of the step is the outcome of the
        // place.
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
            Outcome::measured(&outcome.system, axes, outcome.block, measurement)
        };
        whole.members.iter().map(of_member).collect()
    };
    outcomes.iter().flat_map(of_one).collect()
}

/// Returns the distinct cells of the outcomes, in the order of their first occurrence.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Flaw, Measurement, Member};
    use results::Axes;

    fn step(block: u32, names: &[&str]) -> Outcome {
        let member = |name: &&str| {
            let mut measurement = Measurement::default();
            measurement.record("goodput_mbit_s", Some(f64::from(block) + 1.0));
            Member { name: (*name).to_owned(), measurement }
        };
        let whole = Measurement {
            members: names.iter().map(member).collect(),
            invalid: vec![Flaw { what: "late".to_owned(), detail: "2 ms".to_owned() }],
            cpu_limited: true,
            fingerprint: Some("f".to_owned()),
            congestion_control: Some("cubic".to_owned()),
            ..Measurement::default()
        };
        let axes = Axes::from([("streams".to_owned(), "4".to_owned())]);
        Outcome::measured("sockets", axes, block, whole)
    }

    #[test]
    fn each_member_of_a_step_has_the_flaws_of_the_whole_step() {
        let lab = crate::builtin::open("perf-overhead").unwrap();
        let failed = Outcome { verdict: Verdict::Failed("no route".to_owned()), ..step(2, &[]) };
        let both = ["loopback", "veth"];
        let steps = [step(0, &both), step(1, &both), step(3, &both[..1]), step(4, &[]), failed];
        let found = outcomes(&lab, &steps);
        let places: Vec<(&str, u32)> =
            found.iter().map(|one| (one.axes["path"].as_str(), one.block)).collect();
        assert_eq!(places, [("loopback", 0), ("veth", 0), ("loopback", 1), ("veth", 1)]);
        for one in &found {
            let Verdict::Measured(measured) = &one.verdict else { panic!("{one:?}") };
            assert_eq!(measured.metrics["goodput_mbit_s"].value, f64::from(one.block) + 1.0);
            assert_eq!((measured.invalid.len(), measured.cpu_limited), (1, true));
            assert_eq!(measured.fingerprint.as_deref(), Some("f"));
            assert_eq!(measured.congestion_control.as_deref(), Some("cubic"));
            assert_eq!(one.axes["streams"], "4");
        }
        let cells = cells(&found);
        assert_eq!(cells.len(), 2, "a cell has several repeats: {cells:?}");
        let without = crate::builtin::open("quic-tun").unwrap();
        assert!(outcomes(&without, &steps).is_empty(), "no axis of that lab is a way");
    }
}
