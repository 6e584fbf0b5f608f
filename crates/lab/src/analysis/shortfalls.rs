//! The reasons for which the command of a run ends with status 1.

use results::{Cell, Results};

/// Returns the reasons for which `weir lab run` and `weir sim run` end with status 1, each a
/// sentence. Empty if the commands end with status 0.
pub fn all(results: &Results) -> Vec<String> {
    let mut reasons = Vec::new();
    let failed: Vec<&Cell> = results.cells.iter().filter(|cell| cell.has_failed()).collect();
    if let Some(first) = failed.first() {
        let what = "failed as a whole or in part";
        reasons.push(format!("{} {what}, for example {}", cells(failed.len()), place(first)));
    }
    if !results.valid {
        let invalid: Vec<&Cell> = results.cells.iter().filter(|cell| !cell.valid).collect();
        let example = invalid.first().map(|first| format!(", for example {}", place(first)));
        let example = example.unwrap_or_default();
        reasons.push(match invalid.len() {
            0 => "the run is not valid".to_owned(),
            1 => format!("1 cell is not valid: {}", place(invalid[0])),
            count => format!("{count} cells are not valid{example}"),
        });
    }
    reasons.extend(of_valid_cells(results));
    reasons
}

/// Returns the reasons of status 1 that leave the measurement valid.
pub fn of_valid_cells(results: &Results) -> Vec<String> {
    let mut reasons: Vec<String> = outside(results).into_iter().collect();
    reasons.extend(
        results
            .bounds
            .iter()
            .filter(|bound| !bound.holds)
            .map(|bound| format!("the bound `{}` of the lab file does not hold", bound.bound)),
    );
    reasons
}

/// Returns the sentence about figures that are outside their expected range, or whose intervals are
/// too wide to decide.
fn outside(results: &Results) -> Option<String> {
    let is_outside =
        |cell: &&Cell| cell.metrics.get(WITHIN).is_some_and(|within| within.median < 1.0);
    let outside: Vec<&Cell> = results.cells.iter().filter(is_outside).collect();
    let first = *outside.first()?;
    let (count, example) = (cells(outside.len()), place(first));
    // The lab `validate` compares the simulator with theory; other labs compare the simulator with
    // the kernel.
    let is_beside = |name: &String| name.starts_with(SIMULATED);
    if !outside.iter().any(|cell| cell.metrics.keys().any(is_beside)) {
        return Some(format!(
            "in {count} the simulator's figure is not within its tolerance, or too imprecise to tell, for \
             example {example}"
        ));
    }
    let differing = first.metrics.iter().filter(|(_, within)| within.median < 1.0);
    let parts: Vec<&str> = differing.filter_map(|(name, _)| name.strip_prefix(PARTS)).collect();
    let parts = match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    };
    Some(format!(
        "in {count} the kernel's figures and the simulator's differ by more than 15 %, for example \
         {example}{parts}: one of the two is wrong there, and the measurement itself is valid"
    ))
}

fn cells(count: usize) -> String {
    if count == 1 { "1 cell".to_owned() } else { format!("{count} cells") }
}

fn place(cell: &Cell) -> String {
    let axes = cell.axes.iter().map(|(name, value)| format!(" {name}={value}"));
    format!("{}{}", cell.system, axes.collect::<String>())
}

const WITHIN: &str = "within";
const PARTS: &str = "within.";
const SIMULATED: &str = "simulated.";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Bound, Form, Metric};

    fn cell(figures: &[(&str, f64)]) -> Cell {
        let axes = Axes::from([("flows".to_owned(), "2".to_owned())]);
        let mut cell = Cell::new("caqm", axes);
        for (name, median) in figures {
            let metric = Metric {
                median: *median,
                ci95: None,
                coverage: None,
                range: None,
                n: 1,
                unit: String::new(),
                one_start: false,
                share: None,
            };
            cell.metrics.insert((*name).to_owned(), metric);
        }
        cell
    }

    fn of(cells: Vec<Cell>) -> Vec<String> {
        let mut results = Results::new("caqm", Form::Quick);
        results.valid = cells.iter().all(|cell| cell.valid);
        results.cells = cells;
        all(&results)
    }

    #[test]
    fn a_run_without_shortfalls_exits_with_status_0() {
        assert_eq!(of(vec![cell(&[("within", 1.0), ("goodput_mbit_s", 90.0)])]), [""; 0]);
    }

    #[test]
    fn every_reason_for_a_failing_status_is_named() {
        let disagrees = cell(&[
            ("within", 0.0),
            ("within.queue", 0.0),
            ("within.use", 1.0),
            ("simulated.jain", 1.0),
        ]);
        let said = of(vec![disagrees.clone(), disagrees]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("in 2 cells the kernel's figures and the simulator's"),
            "{said:?}"
        );
        assert!(said[0].contains("caqm flows=2 (queue): "), "{said:?}");
        let said = of(vec![cell(&[("within", 0.5)])]);
        assert!(said[0].starts_with("in 1 cell the simulator's figure is not within"), "{said:?}");
        let (mut failed, mut late) = (cell(&[]), cell(&[]));
        failed.failed = Some("no route".to_owned());
        late.valid = false;
        assert_eq!(
            of(vec![failed, late]),
            [
                "1 cell failed as a whole or in part, for example caqm flows=2",
                "1 cell is not valid: caqm flows=2",
            ]
        );
        let mut results = Results::new("caqm", Form::Quick);
        let text = "goodput_mbit_s >= 90".to_owned();
        results.bounds = vec![Bound { bound: text, holds: false, cells: 1, missed: Vec::new() }];
        assert_eq!(all(&results).len(), 1);
        assert!(all(&results)[0].contains("`goodput_mbit_s >= 90`"));
    }
}
