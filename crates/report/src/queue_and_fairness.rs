//! Queue and fairness of a simulated run, in sentences. A high goodput may come from a full queue,
//! or from one flow alone.

use crate::answer::counted;
use crate::{number, pivot};
use results::{Results, metrics};
use stats::Direction;

/// Builds sentences such as `Queue delay p95 over 3 cells (worst): bbr 2.1, cubic 40 ms.`, and the
/// same for Jain's index. Empty for a run on a machine; leaves out the main metric.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    if !results.environment.contains_key(OF_VIRTUAL_TIME) {
        return Vec::new();
    }
    let has = |metric: &&str| results.cells.iter().any(|cell| cell.metrics.contains_key(*metric));
    let queue = QUEUES.into_iter().find(has);
    let fairness = Some(FAIRNESS).filter(has);
    let told = pivot::headline(results);
    let metrics = queue.into_iter().chain(fairness).filter(|metric| told != Some(*metric));
    metrics.map(|metric| sentence(results, metric)).collect()
}

fn sentence(results: &Results, metric: &str) -> String {
    let less = metrics::direction(metric) == Some(Direction::LowerIsBetter);
    let worst = |system: &String| {
        let cells = results.cells.iter().filter(|cell| cell.system == *system);
        let figures = cells.filter_map(|cell| Some(cell.metrics.get(metric)?.median));
        figures.reduce(if less { f64::max } else { f64::min })
    };
    let mut known: Vec<(String, f64)> = pivot::systems(results)
        .into_iter()
        .filter_map(|system| worst(&system).map(|figure| (system, figure)))
        .collect();
    known.sort_by(|(_, a), (_, b)| if less { a.total_cmp(b) } else { b.total_cmp(a) });
    let figures: Vec<String> = known
        .iter()
        .map(|(system, figure)| format!("{system} {}", number::format(*figure)))
        .collect();
    let cells = results.cells.iter().filter(|cell| cell.metrics.contains_key(metric));
    let places = cells.map(|cell| &cell.axes).fold(Vec::new(), |mut places, axes| {
        if !places.contains(&axes) {
            places.push(axes);
        }
        places
    });
    let over = match places.len() {
        1 => String::new(),
        count => format!(", worst of {}", counted(count, "setting")),
    };
    let unit = pivot::unit(results, metric);
    let unit = if unit.is_empty() { unit } else { format!(" {unit}") };
    format!("{}{over}: {}{unit}.", metrics::meaning(metric).label, figures.join(", "))
}

/// The key in the environment that only a run in virtual time has.
pub(crate) const OF_VIRTUAL_TIME: &str = "result_hash";
const QUEUES: [&str; 4] = ["queue_ms.p95", "queue_kbyte.p95", "queue_kbyte.mean", "queue_bdp.p95"];
const FAIRNESS: &str = "jain";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Cell, Form, Metric};

    fn run() -> Results {
        let mut results = Results::new("x", Form::Quick);
        for (rtt, system, queue, jain) in [
            ("1ms", "cubic", 40.0, 0.97),
            ("1ms", "caqm", 1.5, 0.003),
            ("9ms", "cubic", 12.0, 0.99),
            ("9ms", "caqm", 0.5, 0.99),
        ] {
            let mut cell = Cell::new(system, Axes::from([("rtt".to_owned(), rtt.to_owned())]));
            for (name, value, unit) in [
                ("goodput_mbit_s", 9.0, "Mbit/s"),
                ("queue_ms.p95", queue, "ms"),
                ("jain", jain, ""),
            ] {
                cell.metrics.insert(name.to_owned(), Metric::single(value, unit));
            }
            results.cells.push(cell);
        }
        results.environment.insert(OF_VIRTUAL_TIME.to_owned(), "0".into());
        results
    }

    #[test]
    fn the_answer_of_a_simulation_names_queue_and_fairness() {
        let mut results = run();
        let expected = [
            "Queue delay p95, worst of 2 settings: caqm 1.50, cubic 40.0 ms.",
            "Jain fairness, worst of 2 settings: cubic 0.970, caqm 0.00300.",
        ];
        assert_eq!(sentences(&results), expected);
        let answer = crate::answer::sentences(&results);
        assert!(expected.iter().all(|one| answer.iter().any(|said| said == one)), "{answer:?}");
        results.headline = Some("CAQM has the shorter queue.".to_owned());
        let terminal = crate::terminal::render(&results, 200, false);
        for sentence in expected {
            assert!(terminal.lines().any(|line| line == sentence), "{sentence}: {terminal}");
        }
        results.cells.truncate(2);
        assert_eq!(sentences(&results)[0], "Queue delay p95: caqm 1.50, cubic 40.0 ms.");
        results.environment.clear();
        assert_eq!(sentences(&results), [""; 0]);
    }

    #[test]
    fn the_main_metric_is_not_named_twice() {
        let mut results = run();
        results.view =
            Some(results::View { metric: "jain".to_owned(), ..results::View::default() });
        let said = sentences(&results);
        assert!(said.len() == 1 && said[0].starts_with("Queue delay"), "{said:?}");
    }
}
