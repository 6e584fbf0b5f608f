//! Compares ratios with their goals: the reference's own ratio, the ideal, and the required ratio.

use crate::{axis, number};
use results::{Comparison, Goal, Results, metrics};
use std::fmt::Write as _;

/// Returns heads and rows of the table. `None` if no ratio has a goal.
pub(crate) fn table(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    // The table of states shows the reference's differences beside the measured differences.
    if results.states.is_some() {
        return None;
    }
    let held: Vec<(&Comparison, &Goal)> =
        results.comparisons.iter().filter_map(|one| Some((one, one.goal.as_ref()?))).collect();
    let (ideals, metrics) = (ideals(results), metrics_of(results));
    let mut heads =
        ["ratio", "at", "measured", "interval", "reference"].map(str::to_owned).to_vec();
    for name in &ideals {
        heads.push(label(name));
        if is_asked(results, name) {
            heads.extend(["asked", "met"].map(str::to_owned));
        }
    }
    // Leave out axes that have the same value everywhere.
    let varies = |axis: &String| {
        let mut values = held.iter().map(|(one, _)| one.axes.get(axis));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let row = |(one, goal): &(&Comparison, &Goal)| {
        let ratio = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), as_ratio);
        let systems = format!("{} / {}", one.a, one.b);
        let mut row = vec![
            if metrics.len() > 1 {
                format!("{}, {systems}", name_of(&one.metric))
            } else {
                systems
            },
            axis::describe(
                &one.axes.iter().filter(|(axis, _)| varies(axis)).map(clone_of).collect(),
            ),
            as_ratio(one.ratio.median),
            match one.ratio.ci95 {
                Some([low, high]) => format!("[{}, {}]", as_ratio(low), as_ratio(high)),
                None => "none".to_owned(),
            },
            ratio(goal.reference),
        ];
        for name in &ideals {
            row.push(ratio(goal.ideals.get(*name).copied()));
            if is_asked(results, name) {
                row.push(ratio(goal.asks.get(*name).copied()));
                row.push(answer(one, goal, name).map_or("", Answer::word).to_owned());
            }
        }
        row
    };
    let rows: Vec<Vec<String>> = held.iter().map(row).collect();
    (!rows.is_empty()).then_some((heads, rows))
}

/// Whether a cell of the table reports a missed goal.
pub(crate) fn is_missed(text: &str) -> bool {
    [Answer::Missed, Answer::OutOfReach].iter().any(|answer| answer.word() == text)
}

/// Whether a measured ratio meets the ratio that an ideal requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The worse end of the interval reaches the required ratio.
    Met,
    /// The better end of the interval does not reach the required ratio.
    Missed,
    /// The required ratio lies within the interval, or there is no interval.
    Open,
    /// The required ratio is not met, and exceeds another ideal.
    OutOfReach,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::Missed => "NO",
            Self::Open => "open",
            Self::OutOfReach => "NO*",
        }
    }
}

fn answer(one: &Comparison, goal: &Goal, ideal: &str) -> Option<Answer> {
    let least = *goal.asks.get(ideal)?;
    let beyond = goal.ideals.values().any(|most| least > *most);
    Some(match one.ratio.ci95 {
        Some([worse, _]) if worse >= least => Answer::Met,
        Some([_, better]) if better < least && beyond => Answer::OutOfReach,
        Some([_, better]) if better < least => Answer::Missed,
        _ => Answer::Open,
    })
}

/// Returns the lab's ideals, in its order.
fn ideals(results: &Results) -> Vec<&str> {
    let mut ideals: Vec<&str> = Vec::new();
    let goals = results.comparisons.iter().filter_map(|one| one.goal.as_ref());
    for name in goals.flat_map(|goal| goal.ideals.keys()) {
        if !ideals.contains(&name.as_str()) {
            ideals.push(name);
        }
    }
    ideals
}

fn metrics_of(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for one in results.comparisons.iter().filter(|one| one.goal.is_some()) {
        if !names.contains(&one.metric.as_str()) {
            names.push(&one.metric);
        }
    }
    names
}

fn is_asked(results: &Results, ideal: &str) -> bool {
    let mut goals = results.comparisons.iter().filter_map(|one| one.goal.as_ref());
    goals.any(|goal| goal.asks.contains_key(ideal))
}

fn label(ideal: &str) -> String {
    name_of(ideal).replace(" rate", "")
}

fn name_of(metric: &str) -> String {
    metrics::meaning(metric).label.to_lowercase()
}

fn clone_of((axis, value): (&String, &String)) -> (String, String) {
    (axis.clone(), value.clone())
}

pub(crate) fn note(results: &Results) -> String {
    let held = || results.comparisons.iter().filter_map(|one| Some((one, one.goal.as_ref()?)));
    let names: Vec<String> = metrics_of(results).into_iter().map(name_of).collect();
    let mut text = format!(
        "Ratios of {}; “reference” is the ratio of the reference numbers, an ideal is the possible \
         value over the measured second system.",
        names.join(" and ")
    );
    let ideals = ideals(results);
    if ideals.iter().any(|ideal| is_asked(results, ideal)) {
        text.push_str(" Each ideal is followed by the required ratio, and whether it is met.");
    }
    let mut beyond = false;
    for ideal in &ideals {
        let answers: Vec<_> = held().filter_map(|(one, goal)| answer(one, goal, ideal)).collect();
        if answers.is_empty() {
            continue;
        }
        let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
        let (met, out_of_reach) = (count(Answer::Met), count(Answer::OutOfReach));
        let open = count(Answer::Open);
        let all = answers.len();
        let by =
            if ideals.len() > 1 { format!("By the {}, ", label(ideal)) } else { String::new() };
        let _ = write!(text, " {by}{met} of {all} are met by the worse end of the interval");
        if open > 0 {
            let _ = write!(text, ", {open} are open");
        }
        if out_of_reach > 0 {
            let _ = write!(text, ", and {out_of_reach} are out of reach (*)");
            beyond = true;
        }
        text.push('.');
    }
    if beyond {
        text.push_str(" * The required ratio exceeds another of the ideals.");
    }
    text
}

/// Formats a ratio; near 1 with two more decimals than the usual three digits.
fn as_ratio(value: f64) -> String {
    match value.is_finite() && value < 100.0 {
        true => format!("{value:.3}"),
        false => number::ratio(value),
    }
}

pub(crate) const TITLE: &str = "Compared with the reference and the ideal";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Form, Ratio, Verdict};

    #[test]
    fn only_ratios_with_a_goal_are_shown() {
        let mut results = Results::new("x", Form::Full);
        assert!(table(&results).is_none());
        let goal = Goal {
            reference: Some(1.5),
            ideals: [("ideal_kbyte_s".to_owned(), 1.4)].into(),
            least: Some(1.33),
            met: Some(false),
            asks: [("ideal_kbyte_s".to_owned(), 1.33)].into(),
        };
        for goal in [None, Some(goal)] {
            results.comparisons.push(Comparison {
                metric: "kbyte_s".to_owned(),
                axes: Axes::from([("file".to_owned(), "8MB".to_owned())]),
                a: "tcpa".to_owned(),
                b: "cubic".to_owned(),
                ratio: Ratio { ci95: Some([1.24, 1.26]), n: 6, ..Ratio::single(1.25) },
                verdict: Verdict::Better,
                threshold: None,
                primary: false,
                more_blocks: None,
                goal,
            });
        }
        let (heads, rows) = table(&results).unwrap();
        assert_eq!(
            heads.join(" | "),
            "ratio | at | measured | interval | reference | ideal | asked | met"
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(
            rows[0].join(" | "),
            "tcpa / cubic |  | 1.250 | [1.240, 1.260] | 1.500 | 1.400 | 1.330 | NO"
        );
        assert!(note(&results).ends_with(" 0 of 1 are met by the worse end of the interval."));
        // An ordinary client's ideal is less than the ratio that the path's ideal asks for.
        let goal = results.comparisons[1].goal.as_mut().unwrap();
        goal.ideals.insert("ideal_kbyte_s.client".to_owned(), 1.3);
        goal.asks.insert("ideal_kbyte_s.client".to_owned(), 1.24);
        let (heads, rows) = table(&results).unwrap();
        let heads = heads[5..].join(" | ");
        assert_eq!(heads, "ideal | asked | met | ideal client | asked | met");
        assert_eq!(rows[0][5..].join(" | "), "1.400 | 1.330 | NO* | 1.300 | 1.240 | yes");
        assert!(is_missed(&rows[0][7]) && !is_missed(&rows[0][10]));
        let note = note(&results);
        assert!(
            note.contains("By the ideal, 0 of 1 are met by the worse end of the interval, and 1 are out of reach (*)."),
            "{note}"
        );
        assert!(note.contains("By the ideal client, 1 of 1 are met by the worse end"), "{note}");
        // If there are several metrics, each row names its metric.
        results.comparisons[0].goal = results.comparisons[1].goal.clone();
        results.comparisons[0].metric = "ndr_pps".to_owned();
        let (_, rows) = table(&results).unwrap();
        assert_eq!(rows[0][0], "highest without loss, tcpa / cubic");
        assert!(super::note(&results).starts_with("Ratios of highest without loss and "));
        results.comparisons[0].goal = None;
        // An interval around the goal, or no interval, leaves the goal open.
        for ci95 in [Some([1.2, 1.4]), None] {
            results.comparisons[1].ratio.ci95 = ci95;
            let (_, rows) = table(&results).unwrap();
            assert_eq!((rows[0][7].as_str(), rows[0][10].as_str()), ("open", "open"));
        }
    }
}
