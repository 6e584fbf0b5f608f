//! Ratios beside what they are held against: the reference's own, what is possible, what is wanted.

use crate::results::{Comparison, Goal, Results};
use crate::{axis, metrics, number};
use std::fmt::Write as _;

/// Heads and rows of the table; `None` where nothing is held against anything.
pub(crate) fn table(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let held: Vec<(&Comparison, &Goal)> =
        results.comparisons.iter().filter_map(|one| Some((one, one.goal.as_ref()?))).collect();
    let mut ideals: Vec<&str> = Vec::new();
    for name in held.iter().flat_map(|(_, goal)| goal.ideals.keys()) {
        if !ideals.contains(&name.as_str()) {
            ideals.push(name);
        }
    }
    let mut heads = ["ratio", "at", "measured", "reference"].map(str::to_owned).to_vec();
    let short = |name: &&str| metrics::meaning(name).label.to_lowercase().replace(" rate", "");
    heads.extend(ideals.iter().map(short));
    heads.extend(["at least", "met"].map(str::to_owned));
    // What is the same everywhere is said elsewhere.
    let varies = |axis: &String| {
        let mut values = held.iter().map(|(one, _)| one.axes.get(axis));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let row = |(one, goal): &(&Comparison, &Goal)| {
        let ratio = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), as_ratio);
        let mut row = vec![
            format!("{} / {}", one.a, one.b),
            axis::describe(
                &one.axes.iter().filter(|(axis, _)| varies(axis)).map(clone_of).collect(),
            ),
            as_ratio(one.ratio.median),
            ratio(goal.reference),
        ];
        row.extend(ideals.iter().map(|name| ratio(goal.ideals.get(*name).copied())));
        row.push(ratio(goal.least));
        row.push(match goal.met {
            None => String::new(),
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
        });
        row
    };
    let rows: Vec<Vec<String>> = held.iter().map(row).collect();
    (!rows.is_empty()).then_some((heads, rows))
}

fn clone_of((axis, value): (&String, &String)) -> (String, String) {
    (axis.clone(), value.clone())
}

/// What the columns mean.
pub(crate) fn note(results: &Results) -> String {
    let metrics_held = results.comparisons.iter().filter(|one| one.goal.is_some());
    let name = metrics_held.map(|one| one.metric.as_str()).next().unwrap_or_default();
    let mut text = format!(
        "Ratios of {}; “reference” is that of the reference numbers, an ideal is what is possible \
         over the measured second system.",
        metrics::meaning(name).label.to_lowercase()
    );
    let goals = || results.comparisons.iter().filter_map(|one| one.goal.as_ref());
    let met = goals().filter(|goal| goal.met == Some(true)).count();
    let asked = goals().filter(|goal| goal.met.is_some()).count();
    if asked > 0 {
        let _ = write!(text, " {met} of {asked} are met.");
    }
    text
}

/// Two decimals more than a ratio's usual three digits would have near one.
fn as_ratio(value: f64) -> String {
    match value.is_finite() && value < 100.0 {
        true => format!("{value:.3}"),
        false => number::ratio(value),
    }
}

pub(crate) const TITLE: &str = "Held against the reference and the ideal";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axes, Form, Ratio, Verdict};

    #[test]
    fn only_what_is_held_against_something_is_shown() {
        let mut results = Results::new("x", Form::Full);
        assert!(table(&results).is_none());
        let goal = Goal {
            reference: Some(1.5),
            ideals: [("ideal_kbyte_s".to_owned(), 1.4)].into(),
            least: Some(1.33),
            met: Some(false),
        };
        for goal in [None, Some(goal)] {
            results.comparisons.push(Comparison {
                metric: "kbyte_s".to_owned(),
                axes: Axes::from([("file".to_owned(), "8MB".to_owned())]),
                a: "tcpa".to_owned(),
                b: "cubic".to_owned(),
                ratio: Ratio { median: 1.25, ci95: None },
                verdict: Verdict::Better,
                threshold: None,
                goal,
            });
        }
        let (heads, rows) = table(&results).unwrap();
        assert_eq!(heads.join(" | "), "ratio | at | measured | reference | ideal | at least | met");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].join(" | "), "tcpa / cubic |  | 1.250 | 1.500 | 1.400 | 1.330 | NO");
        assert!(note(&results).ends_with("0 of 1 are met."));
    }
}
