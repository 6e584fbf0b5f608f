//! Counts of a lab's diagnostic verdicts, by case.

use super::figures;
use crate::model::{Measurement, Outcome};
use indexmap::IndexMap;
use results::{Confusion, ConfusionRow, Results};
use units::{Share, shown};

/// Counts the valid turns with a verdict. `None` if no turn has a verdict.
pub(super) fn confusion(outcomes: &[Outcome]) -> Option<Confusion> {
    let told = |outcome: &&Outcome| verdict_of(outcome).is_some();
    let first = outcomes.iter().find(told)?;
    // A drawn composition counts in the row of the case from which the composition was drawn.
    let axis = match verdict_of(first).is_some_and(|(m, _)| m.labels.contains_key(CASE)) {
        true => CASE.to_owned(),
        false => first.axes.keys().next().cloned().unwrap_or_default(),
    };
    let mut rows: IndexMap<String, ConfusionRow> = IndexMap::new();
    let mut totals: IndexMap<String, u64> = IndexMap::new();
    for outcome in outcomes {
        let Some((measured, verdict)) = verdict_of(outcome) else { continue };
        let name = measured.labels.get(CASE).or_else(|| outcome.axes.get(&axis));
        let name = name.unwrap_or(&outcome.system).clone();
        let row = rows
            .entry(name.clone())
            .or_insert_with(|| ConfusionRow { name, ..ConfusionRow::default() });
        let expected = measured.labels.get(EXPECTED).map_or("", String::as_str);
        // The right verdict may depend on the sender: list each right verdict once.
        if !row.expected.split(" or ").any(|known| known == expected) {
            let joint = if row.expected.is_empty() { "" } else { " or " };
            row.expected += &format!("{joint}{expected}");
        }
        row.turns += 1;
        row.right += u64::from(value(measured, FIRST) >= 1.0);
        *row.counts.entry(verdict.to_owned()).or_default() += 1;
        *totals.entry(verdict.to_owned()).or_default() += 1;
    }
    let mut rows: Vec<ConfusionRow> = rows.into_values().collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    for row in &mut rows {
        row.counts.sort_by(|_, a, _, b| b.cmp(a));
    }
    totals.sort_by(|name, a, other, b| b.cmp(a).then_with(|| name.cmp(other)));
    Some(Confusion { axis, verdicts: totals.into_keys().collect(), rows })
}

/// Builds the sentences with the shares of right verdicts.
pub(super) fn answer(results: &Results, outcomes: &[Outcome]) -> Option<String> {
    let confusion = results.confusion.as_ref()?;
    let sum = |rows: &[&ConfusionRow]| {
        let of = |count: fn(&ConfusionRow) -> u64| rows.iter().map(|row| count(row)).sum::<u64>();
        (of(|row| row.right), of(|row| row.turns))
    };
    let part = |what: &str, rows: Vec<&ConfusionRow>| {
        let (right, turns) = sum(&rows);
        (turns > 0).then(|| format!("{what}: {}", counted(right, turns)))
    };
    let is_healthy = |row: &&ConfusionRow| row.expected == "nothing";
    let is_pair = |row: &&ConfusionRow| row.expected.contains('+');
    let rows = || confusion.rows.iter();
    let single = rows().filter(|row| !is_pair(row) && !is_healthy(row)).collect();
    let parts = [
        part("First verdicts right about single faults", single),
        part("about healthy cases", rows().filter(is_healthy).collect()),
        part("about pairs", rows().filter(is_pair).collect()),
    ];
    let mut answer = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    if confusion.axis == CASE {
        answer += &drawn(outcomes);
    }
    let pairs: Vec<&ConfusionRow> = rows().filter(is_pair).collect();
    let both = outcomes.iter().filter_map(|outcome| {
        let (measured, _) = verdict_of(outcome)?;
        let name = measured.labels.get(CASE).or_else(|| outcome.axes.get(&confusion.axis))?;
        let is_pair = pairs.iter().any(|row| row.name == *name);
        is_pair.then(|| value(measured, BOTH) >= 1.0)
    });
    let both: Vec<bool> = both.collect();
    if !both.is_empty() {
        let count = both.iter().filter(|both| **both).count() as u64;
        let share = counted(count, both.len() as u64);
        answer += &format!("; both causes of a pair among the first two: {share}");
    }
    let least = rows().filter(|row| !is_pair(row)).min_by(|a, b| {
        let share = |row: &ConfusionRow| row.right as f64 / row.turns.max(1) as f64;
        share(a).total_cmp(&share(b))
    });
    if let Some(least) = least.filter(|row| row.right < row.turns) {
        answer += &format!(
            ". The least of a single case: {} of {} for {}",
            least.right, least.turns, least.name
        );
    }
    Some(answer + ".")
}

/// Builds the text about drawn faults: how often the right verdict is among the first two, the
/// share of right verdicts by sender, and the list of wrong verdicts.
fn drawn(outcomes: &[Outcome]) -> String {
    let turns = || outcomes.iter().filter_map(|one| Some((one, verdict_of(one)?)));
    let label = |measured: &Measurement, name: &str| measured.labels.get(name).cloned();
    let is_fault = |measured: &Measurement| {
        measured.labels.get(EXPECTED).is_some_and(|expected| expected != "nothing")
    };
    let mut by_sender: IndexMap<&str, (u64, u64)> = IndexMap::new();
    let (mut among, mut faults) = (0, 0);
    let mut confused: IndexMap<String, u64> = IndexMap::new();
    for (outcome, (measured, verdict)) in turns() {
        let is_right = value(measured, FIRST) >= 1.0;
        if is_fault(measured) {
            faults += 1;
            among += u64::from(value(measured, BOTH) >= 1.0);
            let (right, turns) = by_sender.entry(&outcome.system).or_default();
            *turns += 1;
            *right += u64::from(is_right);
        }
        if !is_right {
            let case = label(measured, CASE).unwrap_or_default();
            *confused.entry(format!("{case} by {}: {verdict}", outcome.system)).or_default() += 1;
        }
    }
    let mut text = String::new();
    if faults > 0 {
        text += &format!("; right ones among the first two: {}", counted(among, faults));
    }
    by_sender.sort_keys();
    for (sender, (right, turns)) in by_sender {
        text += &format!("; with {sender}: {}", counted(right, turns));
    }
    confused.sort_by(|name, a, other, b| b.cmp(a).then_with(|| name.cmp(other)));
    if !confused.is_empty() {
        let list = confused.iter().map(|(words, count)| format!("{words} ×{count}"));
        text += &format!(". Wrong: {}", list.collect::<Vec<_>>().join(", "));
    }
    text
}

/// Returns a share such as `35 of 36 (97.2 %, 95 % Clopper-Pearson interval 85.5 to 99.9 %)`.
fn counted(count: u64, total: u64) -> String {
    let share = shown::percent(count as f64 * 100.0 / total.max(1) as f64);
    let level = Share::from_percent(95.0).unwrap_or_default();
    let interval = stats::binomial::clopper_pearson(count, total, level).map(|(low, high)| {
        let [low, high] = [low, high].map(|end| end.fraction() * 100.0);
        format!(", 95 % Clopper-Pearson interval {low:.1} to {high:.1} %")
    });
    format!("{count} of {total} ({share}{})", interval.unwrap_or_default())
}

/// Returns the measurement and its verdict. Invalid turns have no verdict.
fn verdict_of(outcome: &Outcome) -> Option<(&Measurement, &str)> {
    let measured = figures(outcome).filter(|measured| measured.invalid.is_empty())?;
    Some((measured, measured.labels.get("verdict")?.as_str()))
}

fn value(measured: &Measurement, metric: &str) -> f64 {
    measured.metrics.get(metric).map_or(0.0, |value| value.value)
}

const FIRST: &str = "first_verdict_right";
const BOTH: &str = "among_first_two";
/// The label with the case from which a composition was drawn.
const CASE: &str = "case";
const EXPECTED: &str = "expected";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verdict;
    use results::{Axes, Form};

    fn turn(fault: &str, expected: &str, verdict: &str, right: f64) -> Outcome {
        let mut measured = Measurement::default();
        measured.record(FIRST, Some(right));
        measured.record(BOTH, Some(right));
        for (name, text) in [("verdict", verdict), ("expected", expected)] {
            measured.labels.insert(name.to_owned(), text.to_owned());
        }
        let axes = Axes::from([("fault".to_owned(), fault.to_owned())]);
        Outcome::measured("doctor", axes, 0, measured)
    }

    #[test]
    fn verdicts_on_drawn_faults_are_counted_by_case_and_sender() {
        let drawn = |sender: &str, case: &str, expected: &str, verdict: &str, right: f64| {
            let mut turn = turn("12 4711", expected, verdict, right);
            sender.clone_into(&mut turn.system);
            if let Verdict::Measured(measured) = &mut turn.verdict {
                measured.labels.insert(CASE.to_owned(), case.to_owned());
            }
            turn
        };
        let outcomes = [
            drawn("cubic", "random-loss", "loss", "loss", 1.0),
            drawn("bbr", "random-loss", "path", "loss", 0.0),
            drawn("bbr", "healthy-idle", "nothing", "nothing", 1.0),
        ];
        let mut results = Results::new("drawn", Form::Full);
        results.confusion = confusion(&outcomes);
        let told = results.confusion.as_ref().unwrap();
        assert_eq!(told.axis, "case");
        let row = told.rows.iter().find(|row| row.name == "random-loss").unwrap();
        assert_eq!((row.turns, row.right, row.expected.as_str()), (2, 1, "loss or path"));
        let text = answer(&results, &outcomes).unwrap();
        for part in [
            "single faults: 1 of 2",
            "healthy cases: 1 of 1",
            "among the first two: 1 of 2",
            "with bbr: 0 of 1",
            "with cubic: 1 of 1",
            "Wrong: random-loss by bbr: loss ×1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn verdicts_are_counted_by_case() {
        let mut stolen = turn("loss", "loss", "cpu", 0.0);
        if let Verdict::Measured(measured) = &mut stolen.verdict {
            let (what, detail) = ("stolen".to_owned(), String::new());
            measured.invalid.push(crate::model::Flaw { what, detail });
        }
        let outcomes = [
            turn("loss", "loss", "loss", 1.0),
            turn("loss", "loss", "path", 0.0),
            turn("idle", "nothing", "nothing", 1.0),
            turn("both", "quota + loss", "loss", 1.0),
            stolen,
        ];
        let mut results = Results::new("faults", Form::Full);
        results.confusion = confusion(&outcomes);
        let told = results.confusion.as_ref().unwrap();
        assert_eq!(told.verdicts, ["loss", "nothing", "path"]);
        assert_eq!((told.rows[2].right, told.rows[2].turns), (1, 2));
        assert_eq!(
            answer(&results, &outcomes).unwrap(),
            "First verdicts right about single faults: 1 of 2 (50.0 %, 95 % Clopper-Pearson interval 1.3 to \
             98.7 %); about healthy cases: 1 of 1 (100 %, 95 % Clopper-Pearson interval 2.5 to 100.0 %); about \
             pairs: 1 of 1 (100 %, 95 % Clopper-Pearson interval 2.5 to 100.0 %); both causes of a pair among \
             the first two: 1 of 1 (100 %, 95 % Clopper-Pearson interval 2.5 to 100.0 %). The least of a single \
             case: 1 of 2 for loss."
        );
        assert!(confusion(&[]).is_none());
    }

    fn of(outcomes: &[Outcome]) -> (Confusion, String) {
        let mut results = Results::new("faults", Form::Full);
        results.confusion = confusion(outcomes);
        let text = answer(&results, outcomes).unwrap();
        (results.confusion.unwrap(), text)
    }

    /// Builds the turn of a drawn composition whose right verdict is the second verdict.
    fn second(mut turn: Outcome, case: &str) -> Outcome {
        let Verdict::Measured(measured) = &mut turn.verdict else { unreachable!() };
        measured.record(BOTH, Some(1.0));
        measured.labels.insert(CASE.to_owned(), case.to_owned());
        turn
    }

    #[test]
    fn verdicts_are_counted_most_frequent_first() {
        let outcomes = [
            turn("loss", "loss", "zero window", 0.0),
            turn("loss", "loss", "loss", 1.0),
            turn("loss", "loss", "zero window", 0.0),
        ];
        let (told, text) = of(&outcomes);
        assert_eq!(told.verdicts, ["zero window", "loss"]);
        let counts: Vec<(&str, u64)> =
            told.rows[0].counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(counts, [("zero window", 2), ("loss", 1)]);
        assert!(!text.contains("pairs") && !text.contains("healthy"), "{text}");
    }

    #[test]
    fn a_run_with_only_right_verdicts_lists_no_wrong_verdicts() {
        let (_, text) = of(&[turn("idle", "nothing", "nothing", 1.0)]);
        assert!(text.starts_with("about healthy cases: 1 of 1"), "{text}");
        assert!(!text.contains("The least") && !text.contains("Wrong"), "{text}");
        let (_, text) = of(&[second(turn("7", "nothing", "nothing", 1.0), "healthy")]);
        assert!(!text.contains("among the first two"), "no fault was drawn: {text}");
    }

    #[test]
    fn right_second_verdicts_are_counted_separately() {
        let outcomes = [
            second(turn("1", "loss", "path", 0.0), "random-loss"),
            second(turn("2", "loss", "path", 0.0), "random-loss"),
            second(turn("3", "loss", "loss", 1.0), "random-loss"),
        ];
        let (told, text) = of(&outcomes);
        assert_eq!((told.rows[0].right, told.rows[0].turns), (1, 3));
        assert!(text.contains("right ones among the first two: 3 of 3"), "{text}");
        assert!(text.contains("with doctor: 1 of 3"), "{text}");
        assert!(text.contains("Wrong: random-loss by doctor: path ×2"), "{text}");
    }
}
