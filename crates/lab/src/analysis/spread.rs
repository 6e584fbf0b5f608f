//! The spread of a ratio of two systems over many paths: the median, the worst decile and the worst
//! path.

use crate::bench::LabFile;
use crate::model::file::{SpreadSpec, baselines};
use crate::model::plan::{Plan, PlannedCell};
use crate::model::{Measurement, Outcome, Verdict};
use indexmap::IndexMap;
use results::{Axes, Spread, metrics};
use stats::Direction;
use toml::Spanned;
use units::Share;

/// Computes the spreads of the lab. The groups are in the order of the plan.
pub(super) fn spreads(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Vec<Spread> {
    let place = |group: &Axes| {
        let agrees = |cell: &PlannedCell| {
            group.iter().all(|(axis, value)| cell.axes.get(axis) == Some(value))
        };
        plan.cells.iter().position(agrees)
    };
    let specs = lab.spread.iter().map(Spanned::get_ref);
    specs
        .flat_map(|spec| {
            let mut groups = groups(spec, outcomes);
            groups.sort_by_key(|(group, _)| place(group));
            spec.systems.iter().flat_map(move |system| {
                let of = |(group, places): &(Axes, Places)| {
                    spread(spec, system.get_ref(), group, places)
                };
                groups.iter().filter_map(of).collect::<Vec<_>>()
            })
        })
        .collect()
}

/// Each place with the values of each system and repeat.
type Places = Vec<(Axes, IndexMap<(String, u32), f64>)>;

/// Collects the places of each group of cells. A step that measured several places at once is a
/// group.
fn groups(spec: &SpreadSpec, outcomes: &[Outcome]) -> Vec<(Axes, Places)> {
    let metric = spec.metric.get_ref();
    let less = metrics::direction(metric) == Some(Direction::LowerIsBetter);
    let worst = if less { f64::INFINITY } else { 0.0 };
    let mut groups: Vec<(Axes, Places)> = Vec::new();
    for outcome in outcomes {
        let none = Measurement::default();
        let whole = match &outcome.verdict {
            Verdict::Measured(whole) if !whole.invalid.is_empty() => continue,
            Verdict::Measured(whole) => &**whole,
            Verdict::Failed(_) if outcome.is_left_out() => continue,
            Verdict::Failed(_) => &none,
        };
        let is_over = |axis: &str| spec.over.iter().any(|one| one.get_ref() == axis);
        let mut keep = |group: Axes, place: Axes, value: Option<f64>| {
            let Some(value) = value else { return };
            let values = entry(entry(&mut groups, group), place);
            values.insert((outcome.system.clone(), outcome.block), value);
        };
        if whole.members.len() > 1 {
            for member in &whole.members {
                let place = Axes::from([("path".to_owned(), member.name.clone())]);
                let value = member.measurement.metrics.get(metric).map(|value| value.value);
                keep(outcome.axes.clone(), place, value);
            }
        } else if spec.over.is_empty() {
            // A step without members measured one place, or failed as a whole.
        } else {
            let (place, group) =
                outcome.axes.clone().into_iter().partition(|(axis, _)| is_over(axis));
            // A failed repeat has no value, and ranks worst.
            let value = whole.metrics.get(metric).map(|value| value.value);
            let failed = matches!(outcome.verdict, Verdict::Failed(_)).then_some(worst);
            keep(group, place, value.or(failed));
        }
    }
    groups
}

/// Returns the value at `axes`, after adding a default value if there is none.
fn entry<T: Default>(all: &mut Vec<(Axes, T)>, axes: Axes) -> &mut T {
    let place = match all.iter().position(|(known, _)| *known == axes) {
        Some(place) => place,
        None => {
            all.push((axes, T::default()));
            all.len() - 1
        }
    };
    &mut all[place].1
}

fn spread(spec: &SpreadSpec, system: &str, group: &Axes, places: &Places) -> Option<Spread> {
    let baseline = spec.baseline.get_ref();
    let less = metrics::direction(spec.metric.get_ref()) == Some(Direction::LowerIsBetter);
    let mut ratios: Vec<(f64, &Axes)> = places
        .iter()
        .filter_map(|(place, values)| Some((ratio(values, system, baseline, less)?, place)))
        .collect();
    // A single path has no spread.
    if ratios.len() < 2 {
        return None;
    }
    ratios.sort_by(|a, b| if less { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
    let values: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
    let share = Share::from_percent(if less { 90.0 } else { 10.0 })?;
    let (worst, worst_at) = *ratios.first()?;
    let (best, _) = *ratios.last()?;
    Some(Spread {
        metric: spec.metric.get_ref().clone(),
        a: system.to_owned(),
        b: baseline.clone(),
        axes: group.clone(),
        places: ratios.len() as u64,
        median: median(&values)?,
        worst_decile: quantile(&values, share)?,
        worst,
        worst_at: worst_at.clone(),
        best,
    })
}

/// Computes the median ratio over the repeats that `system` and all baselines have. If `baseline`
/// names several systems, the best system of each repeat counts.
fn ratio(
    values: &IndexMap<(String, u32), f64>,
    system: &str,
    baseline: &str,
    less: bool,
) -> Option<f64> {
    let own = values.iter().filter(|((name, _), _)| name == system);
    let against = |block: u32| {
        let each = baselines(baseline).map(|name| values.get(&(name.to_owned(), block)).copied());
        let each = each.collect::<Option<Vec<f64>>>()?;
        each.into_iter().reduce(if less { f64::min } else { f64::max })
    };
    let ratios: Vec<f64> = own
        .filter_map(|((_, block), value)| Some(value / against(*block)?))
        .filter(|ratio| !ratio.is_nan())
        .collect();
    median(&ratios)
}

fn median(ratios: &[f64]) -> Option<f64> {
    quantile(ratios, Share::new(0.5)?)
}

/// Returns the quantile `at` of the ratios. If less of a metric is better, the ratio of a failed
/// repeat is infinite, and ranks above all other ratios.
fn quantile(ratios: &[f64], at: Share) -> Option<f64> {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let above = (at.fraction() * last as f64).ceil() as usize;
    if sorted[above.min(last)] == f64::INFINITY {
        return Some(f64::INFINITY);
    }
    sorted.iter_mut().for_each(|ratio| *ratio = ratio.min(f64::MAX));
    stats::quantile(&sorted, at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Measurement, Member};

    fn outcome(system: &str, block: u32, speeds: &[f64]) -> Outcome {
        let of = |(number, speed): (usize, &f64)| {
            let mut measurement = Measurement::default();
            measurement.record("kbyte_s", Some(*speed));
            Member { name: format!("p{number}"), measurement }
        };
        let members = speeds.iter().enumerate().map(of).collect();
        let whole = Measurement { members, ..Measurement::default() };
        let axes = Axes::from([("path".to_owned(), "drawn".to_owned())]);
        Outcome::measured(system, axes, block, whole)
    }

    fn spec() -> SpreadSpec {
        let text = |text: &str| Spanned::new(0..0, text.to_owned());
        SpreadSpec {
            metric: text("kbyte_s"),
            baseline: text("bbr"),
            systems: vec![text("tcpa")],
            over: Vec::new(),
        }
    }

    #[test]
    fn the_worst_path_of_a_population_is_named() {
        let outcomes = [
            outcome("tcpa", 0, &[20.0, 9.0, 11.0]),
            outcome("bbr", 0, &[10.0, 10.0, 10.0]),
            outcome("tcpa", 1, &[40.0, 18.0, 22.0]),
            outcome("bbr", 1, &[20.0, 20.0, 20.0]),
        ];
        let spec = spec();
        let groups = groups(&spec, &outcomes);
        let (group, places) = &groups[0];
        let found = spread(&spec, "tcpa", group, places).unwrap();
        assert_eq!((found.places, found.median, found.worst, found.best), (3, 1.1, 0.9, 2.0));
        assert_eq!(found.worst_at["path"], "p1");
        assert!((found.worst_decile - 0.94).abs() < 1e-9, "{}", found.worst_decile);
    }

    #[test]
    fn each_path_is_compared_with_the_better_of_two_baselines() {
        let values = |cubic: f64, bbr: f64| {
            let each = [("tcpa", 6.0), ("cubic", cubic), ("bbr", bbr)];
            each.map(|(name, value)| ((name.to_owned(), 0), value)).into_iter().collect()
        };
        let found = |cubic, bbr, less| ratio(&values(cubic, bbr), "tcpa", "cubic|bbr", less);
        assert_eq!(found(3.0, 2.0, false), Some(2.0));
        assert_eq!(found(3.0, 12.0, false), Some(0.5));
        assert_eq!(found(3.0, 12.0, true), Some(2.0));
    }

    /// Builds three places with these times of `tcpa`, and with a time of 2 of `bbr`.
    fn beside_bbr(times: [f64; 3]) -> Places {
        let place = |(number, took): (usize, f64)| {
            let values = [(("tcpa".to_owned(), 0), took), (("bbr".to_owned(), 0), 2.0)];
            let place = Axes::from([("queue".to_owned(), number.to_string())]);
            (place, values.into_iter().collect())
        };
        times.into_iter().enumerate().map(place).collect()
    }

    #[test]
    fn the_worst_path_of_a_time_metric_has_the_highest_ratio() {
        let spec = SpreadSpec { metric: Spanned::new(0..0, "fct_ms.p50".to_owned()), ..spec() };
        let found = spread(&spec, "tcpa", &Axes::new(), &beside_bbr([1.0, 2.0, 4.0])).unwrap();
        assert_eq!((found.worst, found.best, found.median), (2.0, 0.5, 1.0));
    }

    fn at(system: &str, rtt: &str, block: u32, verdict: Verdict) -> Outcome {
        let axes = Axes::from([("rtt".to_owned(), rtt.to_owned())]);
        Outcome { system: system.to_owned(), axes, block, verdict }
    }

    fn measured(metric: &str, value: f64) -> Verdict {
        let mut measurement = Measurement::default();
        measurement.record(metric, Some(value));
        Verdict::Measured(Box::new(measurement))
    }

    /// Returns the ratio at each of two places. `last`: the verdict of the last repeat at 80 ms.
    fn ratios(metric: &str, last: Option<Verdict>) -> Vec<Option<f64>> {
        let text = |text: &str| Spanned::new(0..0, text.to_owned());
        let spec = SpreadSpec { metric: text(metric), over: vec![text("rtt")], ..spec() };
        let mut outcomes = Vec::new();
        for rtt in ["10ms", "80ms"] {
            outcomes.push(at("tcpa", rtt, 0, measured(metric, 20.0)));
            outcomes.extend([0, 1].map(|block| at("bbr", rtt, block, measured(metric, 10.0))));
        }
        outcomes.extend(last.map(|verdict| at("tcpa", "80ms", 1, verdict)));
        let groups = groups(&spec, &outcomes);
        assert_eq!(groups.len(), 1, "{groups:?}");
        let less = metrics::direction(metric) == Some(Direction::LowerIsBetter);
        groups[0].1.iter().map(|(_, values)| ratio(values, "tcpa", "bbr", less)).collect()
    }

    #[test]
    fn a_failed_repeat_ranks_worst_and_a_repeat_without_the_metric_is_skipped() {
        let both = |second: f64| vec![Some(2.0), Some(second)];
        let failed = Verdict::Failed("no route".to_owned());
        assert_eq!(ratios("kbyte_s", Some(failed.clone())), both(1.0), "median of 2 and 0");
        assert_eq!(ratios("fct_ms.p50", Some(failed)), both(f64::INFINITY));
        let left_out = Verdict::Failed("not run: needs 3 CPUs".to_owned());
        assert_eq!(ratios("kbyte_s", Some(left_out)), both(2.0));
        let Verdict::Measured(mut late) = measured("kbyte_s", 60.0) else { unreachable!() };
        assert_eq!(ratios("kbyte_s", Some(Verdict::Measured(late.clone()))), both(4.0));
        late.invalid.push(crate::model::Flaw { what: "late".to_owned(), detail: String::new() });
        assert_eq!(ratios("kbyte_s", Some(Verdict::Measured(late))), both(2.0));
    }

    #[test]
    fn a_failed_repeat_of_a_lower_is_better_metric_ranks_worst() {
        let spec = SpreadSpec { metric: Spanned::new(0..0, "fct_ms.p50".to_owned()), ..spec() };
        let found =
            spread(&spec, "tcpa", &Axes::new(), &beside_bbr([1.0, f64::INFINITY, 4.0])).unwrap();
        assert_eq!((found.places, found.best, found.median), (3, 0.5, 2.0));
        assert_eq!((found.worst, found.worst_decile), (f64::INFINITY, f64::INFINITY));
        assert_eq!(found.worst_at["queue"], "1");
        let repeats = [1.0, 3.0, f64::INFINITY];
        assert_eq!(median(&repeats), Some(3.0));
        assert_eq!(median(&repeats[..1]), Some(1.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_step_with_a_single_path_has_no_spread() {
        assert!(groups(&spec(), &[outcome("tcpa", 0, &[20.0])]).is_empty());
        assert_eq!(groups(&spec(), &[outcome("tcpa", 0, &[20.0, 30.0])])[0].1.len(), 2);
    }
}
