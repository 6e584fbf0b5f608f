//! Means of every metric over all cells: which system is ahead where.

use crate::stats::Direction;
use crate::summary::direction;
use indexmap::IndexMap;
use report::{Cell, Mean, Overall, Results};

/// A row for each metric of which more than one system has something in the same cells.
pub(crate) fn means(results: &Results) -> Vec<Overall> {
    let mut systems: Vec<&str> = Vec::new();
    let mut metrics: IndexMap<&str, &str> = IndexMap::new();
    let mut places: IndexMap<String, IndexMap<&str, &Cell>> = IndexMap::new();
    for cell in results.cells.iter().filter(|cell| cell.failed.is_none()) {
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
        .filter_map(|(metric, unit)| {
            // A row a place, a column a system; places where one has nothing would favour another.
            let rows: Vec<Vec<f64>> = places
                .values()
                .filter_map(|place| systems.iter().map(|s| value(place.get(s)?, metric)).collect())
                .collect();
            (!rows.is_empty()).then(|| mean(metric, unit, &systems, &rows))
        })
        .collect()
}

fn value(cell: &Cell, metric: &str) -> Option<f64> {
    cell.metrics.get(metric).map(|metric| metric.median).filter(|value| value.is_finite())
}

fn mean(metric: &str, unit: &str, systems: &[&str], rows: &[Vec<f64>]) -> Overall {
    let positive = rows.iter().flatten().all(|value| *value > 0.0);
    let kind = if positive { Mean::Geometric } else { Mean::Arithmetic };
    let count = rows.len() as f64;
    let mean = |column: usize| {
        let values = rows.iter().map(|row| row[column]);
        match kind {
            Mean::Geometric => (values.map(f64::ln).sum::<f64>() / count).exp(),
            Mean::Arithmetic => values.sum::<f64>() / count,
        }
    };
    let means: Vec<f64> = (0..systems.len()).map(mean).collect();
    let direction = direction(metric);
    let best = direction.and_then(|direction| best_of(&means, direction));
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

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Axes, Form, Metric};

    #[test]
    fn systems_are_compared_where_all_of_them_are() {
        let mut results = Results::new("x", Form::Full);
        for (system, loss, value) in [
            ("a", "0%", 4.0),
            ("b", "0%", 1.0),
            ("a", "1%", 1.0),
            ("b", "1%", 4.0),
            ("b", "5%", 9.0),
        ] {
            let mut cell = Cell::new(system, Axes::from([("loss".to_owned(), loss.to_owned())]));
            let metric = Metric { median: value, ci95: None, n: 1, unit: String::new() };
            cell.metrics.insert("goodput_mbit_s".to_owned(), metric);
            results.cells.push(cell);
        }
        let means = means(&results);
        assert_eq!(means.len(), 1);
        let one = &means[0];
        assert_eq!((one.mean, one.cells), (Mean::Geometric, 2));
        assert!((one.systems["a"] - 2.0).abs() < 1e-9 && (one.systems["b"] - 2.0).abs() < 1e-9);
        assert_eq!((one.ahead["a"], one.ahead["b"]), (1, 1));
    }
}
