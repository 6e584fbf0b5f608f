//! Means of every metric over all cells, which show the better system for each metric.

use indexmap::IndexMap;
use results::{Axes, Cell, Group, Mean, Overall, Results, metrics};
use stats::Direction;
use std::collections::BTreeMap;

/// Returns one row for each metric that more than one system has in the same cells.
pub(crate) fn means(results: &Results) -> Vec<Overall> {
    means_of(results.cells.iter(), &[])
}

/// Computes the means for groups of cells. The axes on which a cell has an unusual value determine
/// its group, without the axes in `over`: `loss`, `flows, beside`. A metric has the same kind of
/// mean in all groups.
pub(crate) fn groups(results: &Results, usual: &Axes, over: &[&str]) -> Vec<Group> {
    let all = means(results);
    // Sort by the number of unusual axes, then by the order of the axes.
    let mut groups: BTreeMap<(usize, Vec<usize>), Vec<&Cell>> = BTreeMap::new();
    for cell in &results.cells {
        let unusual = |(axis, value): &(&String, &String)| {
            !over.contains(&axis.as_str()) && usual.get(*axis).is_some_and(|usual| usual != *value)
        };
        let named = cell.axes.iter().enumerate().filter(|(_, axis)| unusual(axis));
        let places: Vec<usize> = named.map(|(place, _)| place).collect();
        groups.entry((places.len(), places)).or_default().push(cell);
    }
    let name = |cell: &Cell, places: &[usize]| {
        let names: Vec<&str> = places
            .iter()
            .filter_map(|place| cell.axes.get_index(*place))
            .map(|(axis, _)| axis.as_str())
            .collect();
        names.join(", ")
    };
    groups
        .into_iter()
        .map(|((_, places), cells)| Group {
            name: cells.first().map(|cell| name(cell, &places)).unwrap_or_default(),
            means: means_of(cells.into_iter(), &all),
        })
        .filter(|group| !group.means.is_empty())
        .collect()
}

/// Computes the means, with the kind of mean that `like` has for the metric, if any.
fn means_of<'a>(cells: impl Iterator<Item = &'a Cell>, like: &[Overall]) -> Vec<Overall> {
    let mut systems: Vec<&str> = Vec::new();
    let mut metrics: IndexMap<&str, &str> = IndexMap::new();
    let mut places: IndexMap<String, IndexMap<&str, &Cell>> = IndexMap::new();
    for cell in cells.filter(|cell| cell.is_measured()) {
        if !systems.contains(&cell.system.as_str()) {
            systems.push(&cell.system);
        }
        for (name, metric) in &cell.metrics {
            metrics.entry(name).or_insert(&metric.unit);
        }
        places.entry(format!("{:?}", cell.axes)).or_default().insert(&cell.system, cell);
    }
    if systems.len() < 2 {
        return Vec::new();
    }
    metrics
        .into_iter()
        // Skip queue lengths in bytes: a mean over fast and slow paths is meaningful only for queue
        // delays.
        .filter(|(metric, _)| !metric.starts_with("queue_kbyte"))
        .filter_map(|(metric, unit)| {
            // A place is a row, and a system is a column. Skip places where a system has no value:
            // such a place would favour another system.
            let rows: Vec<Vec<f64>> = places
                .values()
                .filter_map(|place| systems.iter().map(|s| value(place.get(s)?, metric)).collect())
                .collect();
            let known = like.iter().find(|one| one.metric == metric).map(|one| one.mean);
            let kind = known.unwrap_or_else(|| kind_of(metric, &rows));
            (!rows.is_empty()).then(|| mean(metric, unit, kind, &systems, &rows))
        })
        .collect()
}

fn value(cell: &Cell, metric: &str) -> Option<f64> {
    cell.metrics.get(metric).map(|metric| metric.value()).filter(|value| value.is_finite())
}

/// Chooses the geometric mean for values that span decades, and the arithmetic mean for shares of a
/// whole and for values that can be zero.
fn kind_of(metric: &str, rows: &[Vec<f64>]) -> Mean {
    let positive = rows.iter().flatten().all(|value| *value > 0.0);
    let share = metric.ends_with("_percent") || SHARES.contains(&metric);
    if positive && !share { Mean::Geometric } else { Mean::Arithmetic }
}

fn mean(metric: &str, unit: &str, kind: Mean, systems: &[&str], rows: &[Vec<f64>]) -> Overall {
    let count = rows.len() as f64;
    let mean = |column: usize| {
        let values = rows.iter().map(|row| row[column]);
        match kind {
            Mean::Geometric => (values.map(f64::ln).sum::<f64>() / count).exp(),
            Mean::Arithmetic => values.sum::<f64>() / count,
        }
    };
    let means: Vec<f64> = (0..systems.len()).map(mean).collect();
    let direction = metrics::direction(metric);
    // If all systems have equal means, no system has the best mean.
    let differ = |best: &usize| means.iter().any(|mean| !is_near(*mean, means[*best]));
    let best = direction.and_then(|direction| best_of(&means, direction)).filter(differ);
    let ahead = direction.map(|direction| {
        let wins = |column: usize| {
            let wins = |row: &&Vec<f64>| {
                best_of(row, direction).is_some_and(|best| is_near(row[column], row[best]))
            };
            rows.iter().filter(wins).count() as u64
        };
        systems.iter().enumerate().map(|(at, name)| ((*name).to_owned(), wins(at))).collect()
    });
    Overall {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        mean: kind,
        cells: rows.len() as u64,
        systems: systems.iter().map(|name| (*name).to_owned()).zip(means).collect(),
        best: best.map(|at| systems[at].to_owned()),
        ahead: ahead.unwrap_or_default(),
    }
}

fn best_of(values: &[f64], direction: Direction) -> Option<usize> {
    let better = |a: &usize, b: &usize| match direction {
        Direction::HigherIsBetter => values[*a].total_cmp(&values[*b]),
        Direction::LowerIsBetter => values[*b].total_cmp(&values[*a]),
    };
    (0..values.len()).max_by(better)
}

fn is_near(value: f64, best: f64) -> bool {
    (value - best).abs() <= best.abs() * NEAR
}

const NEAR: f64 = 0.01;
const SHARES: [&str; 5] = ["share_of_ideal", "jain", "harm", "fair_share", "port_use"];

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, Metric};

    #[test]
    fn shares_and_metrics_with_a_zero_have_an_arithmetic_mean() {
        let positive = [vec![1.0, 4.0]];
        assert_eq!(kind_of("retransmit_percent", &positive), Mean::Arithmetic);
        assert_eq!(kind_of("jain", &positive), Mean::Arithmetic);
        assert_eq!(kind_of("goodput_mbit_s", &positive), Mean::Geometric);
        assert_eq!(kind_of("goodput_mbit_s", &[vec![0.0, 4.0]]), Mean::Arithmetic);
    }

    #[test]
    fn means_cover_only_cells_that_all_systems_have() {
        let cell = |system, loss, value| (system, loss, "goodput_mbit_s", value);
        let results = results(&[
            cell("a", "0%", 4.0),
            cell("b", "0%", 1.0),
            cell("a", "1%", 1.0),
            cell("b", "1%", 4.0),
            cell("b", "5%", 9.0),
        ]);
        let all = means(&results);
        assert_eq!(all.len(), 1);
        let one = &all[0];
        assert_eq!((one.mean, one.cells), (Mean::Geometric, 2));
        assert!((one.systems["a"] - 2.0).abs() < 1e-9 && (one.systems["b"] - 2.0).abs() < 1e-9);
        assert_eq!((one.ahead["a"], one.ahead["b"]), (1, 1));
        assert_eq!(one.best, None, "both have the same mean");
        let usual = Axes::from([("loss".to_owned(), "0%".to_owned())]);
        let groups = groups(&results, &usual, &[]);
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["", "loss"]);
        assert_eq!(groups[0].means[0].best.as_deref(), Some("a"));
        assert_eq!(groups[1].means[0].best.as_deref(), Some("b"));
        assert!(super::groups(&results, &usual, &["loss"]).len() == 1);
    }

    fn results(cells: &[(&str, &str, &str, f64)]) -> Results {
        let mut results = Results::new("x", Form::Full);
        for (system, loss, metric, value) in cells {
            let mut cell =
                Cell::new(*system, Axes::from([("loss".to_owned(), (*loss).to_owned())]));
            cell.metrics.insert((*metric).to_owned(), Metric::single(*value, ""));
            results.cells.push(cell);
        }
        results
    }

    #[test]
    fn means_need_two_systems_and_the_mean_of_shares_is_arithmetic() {
        let alone = [("a", "0%", "jain", 0.5), ("a", "1%", "jain", 1.0)];
        assert!(means(&results(&alone)).is_empty());
        let three = ["a", "b", "c"].map(|system| (system, "0%", "jain", 0.5));
        assert_eq!(means(&results(&three))[0].systems.len(), 3);
        let mut both = alone.to_vec();
        both.extend([("b", "0%", "jain", 0.25), ("b", "1%", "jain", 0.25)]);
        let found = &means(&results(&both))[0];
        assert_eq!((found.mean, found.cells), (Mean::Arithmetic, 2));
        assert_eq!((found.systems["a"], found.systems["b"]), (0.75, 0.25));
        assert_eq!(found.best.as_deref(), Some("a"));
    }

    #[test]
    fn the_lowest_queue_delay_leads_and_queue_bytes_have_no_mean() {
        let of = |metric| {
            means(&results(&[
                ("a", "0%", metric, 10.0),
                ("b", "0%", metric, 40.0),
                ("a", "1%", metric, 20.0),
                ("b", "1%", metric, 20.1),
            ]))
        };
        let delay = &of("queue_ms.p95")[0];
        assert_eq!(delay.best.as_deref(), Some("a"));
        assert_eq!((delay.ahead["a"], delay.ahead["b"]), (2, 1), "half a percent is no lead");
        assert!(of("queue_kbyte.p95").is_empty());
    }

    /// A zero at 1 % of loss makes the mean of all cells arithmetic.
    #[test]
    fn all_groups_have_the_same_kind_of_mean() {
        let cells = [("0%", 4.0, 2.0), ("1%", 0.0, 1.0)];
        let cells: Vec<(&str, &str, &str, f64)> = cells
            .into_iter()
            .flat_map(|(loss, a, b)| {
                [("a", loss, "goodput_mbit_s", a), ("b", loss, "goodput_mbit_s", b)]
            })
            .collect();
        let usual = Axes::from([("loss".to_owned(), "0%".to_owned())]);
        let groups = groups(&results(&cells), &usual, &[]);
        assert_eq!(groups.len(), 2);
        for group in groups {
            assert_eq!(group.means[0].mean, Mean::Arithmetic, "{}", group.name);
        }
    }
}
