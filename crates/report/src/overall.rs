//! Which system is ahead over all cells, metric by metric.

use crate::{number, pivot};
use results::{Overall, Results, metrics};
use stats::Direction;

/// Heads and rows of a table with one column per system. The best values are marked.
#[derive(Debug)]
pub(crate) struct OverallTable {
    /// The number of leading columns with names.
    pub(crate) names: usize,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<Figure>>,
}

/// A name, or a mean.
#[derive(Debug, Default)]
pub(crate) struct Figure {
    pub(crate) text: String,
    /// The number of cells in which the value's system is the best.
    pub(crate) wins: Option<u64>,
    /// Whether no other system's mean is better.
    pub(crate) ahead: bool,
}

impl Figure {
    pub(crate) fn line(&self, counts: bool) -> String {
        let wins = self.wins.filter(|_| counts).map(|wins| format!(" ({wins})"));
        let mark = if self.ahead { " ◂" } else { "" };
        format!("{}{}{mark}", self.text, wins.unwrap_or_default())
    }

    fn name(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Builds the table with one row per metric.
pub(crate) fn table(results: &Results) -> Option<OverallTable> {
    if results.overall.is_empty() {
        return None;
    }
    let systems = pivot::systems(results);
    let mut heads = vec!["metric".to_owned(), "mean".to_owned(), "cells".to_owned()];
    heads.extend(systems.iter().cloned());
    let rows = results.overall.iter().map(|one| {
        let names = [named(one), one.mean.word().to_owned(), one.cells.to_string()];
        names.map(Figure::name).into_iter().chain(figures(one, &systems)).collect()
    });
    Some(OverallTable { names: 2, rows: rows.collect(), heads })
}

/// Builds the table of one metric with one row per group of cells.
pub(crate) fn by_group(results: &Results, metric: &str) -> Option<OverallTable> {
    let systems = pivot::systems(results);
    let mut heads = vec!["unusual".to_owned(), "cells".to_owned()];
    heads.extend(systems.iter().cloned());
    let rows: Vec<Vec<Figure>> = results
        .groups
        .iter()
        .filter_map(|group| {
            let one = group.means.iter().find(|one| one.metric == metric)?;
            let name = if group.name.is_empty() { "nothing" } else { &group.name };
            let names = [Figure::name(name), Figure::name(one.cells.to_string())];
            Some(names.into_iter().chain(figures(one, &systems)).collect())
        })
        .collect();
    (rows.len() > 1).then_some(OverallTable { names: 1, heads, rows })
}

/// Returns the metrics that several groups have, in the order of the means over all cells.
pub(crate) fn grouped_metrics(results: &Results) -> Vec<&Overall> {
    let known = |one: &&Overall| {
        let has = |group: &&results::Group| group.means.iter().any(|m| m.metric == one.metric);
        results.groups.iter().filter(has).count() > 1
    };
    results.overall.iter().filter(known).collect()
}

pub(crate) fn named(one: &Overall) -> String {
    pivot::with_unit(&metrics::meaning(&one.metric).label, &one.unit)
}

pub(crate) fn note(counts: bool) -> &'static str {
    match counts {
        true => {
            "Means over the cells in which every system has the metric; the best is marked with ◂, \
             and parentheses show in how many cells a system was the best."
        }
        false => {
            "Means over the cells in which every system has the metric; the best is marked with ◂."
        }
    }
}

/// Builds sentences that compare the lab's system with other systems by their means: the metrics in
/// which the lab's system is ahead, and the metrics in which it is not ahead.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    let Some(view) = &results.view else { return Vec::new() };
    let against = view.system.iter().flat_map(|system| {
        view.against.iter().filter_map(move |other| sentence(results, system, other))
    });
    winners(results, &view.metric).into_iter().chain(against).collect()
}

/// Counts the cells in which each system is the best: `Goodput: tcpa is the best, or within 1 % of
/// it, in 24 of 60 cells, bbr in 20, cubic in 16.`
fn winners(results: &Results, metric: &str) -> Option<String> {
    let one = results.overall.iter().find(|one| one.metric == metric)?;
    let mut ahead: Vec<(&String, u64)> =
        one.ahead.iter().map(|(name, wins)| (name, *wins)).collect();
    ahead.sort_by_key(|(_, wins)| std::cmp::Reverse(*wins));
    let ((first, most), rest) = ahead.split_first()?;
    let rest = rest.iter().map(|(system, wins)| format!(", {system} in {wins}"));
    let label = metrics::meaning(metric).label;
    Some(format!(
        "{label}: {first} is the best, or within 1 % of it, in {most} of {} cells{}.",
        one.cells,
        rest.collect::<String>()
    ))
}

fn sentence(results: &Results, system: &str, other: &str) -> Option<String> {
    let (mut ahead, mut behind, mut same) = (Vec::new(), Vec::new(), 0);
    for one in &results.overall {
        let direction = metrics::meaning(&one.metric).direction;
        let (Some(own), Some(theirs)) = (one.systems.get(system), one.systems.get(other)) else {
            continue;
        };
        let better = match direction {
            Some(Direction::HigherIsBetter) => own > theirs,
            Some(Direction::LowerIsBetter) => own < theirs,
            None => continue,
        };
        let label = metrics::meaning(&one.metric).label;
        match (better, (own - theirs).abs() <= theirs.abs() * NEAR) {
            (_, true) => same += 1,
            (true, _) => ahead.push(label),
            (false, _) => behind.push(label),
        }
    }
    let all = ahead.len() + behind.len() + same;
    let part = |what: &str, those: &[String]| match those {
        [] => format!("{what} in none"),
        those => format!("{what} in {} ({})", those.len(), those.join(", ")),
    };
    (all > 0).then(|| {
        format!(
            "{system} against {other}, by its means over all cells, of {all} metrics: {}, {}{}.",
            part("ahead", &ahead),
            part("behind", &behind),
            if same > 0 { format!(", within 1 % in {same}") } else { String::new() }
        )
    })
}

fn figures(one: &Overall, systems: &[String]) -> Vec<Figure> {
    let figure = |system: &String| {
        let Some(mean) = one.systems.get(system) else { return Figure::name("–") };
        Figure {
            text: number::format(*mean),
            wins: one.ahead.get(system).copied(),
            ahead: one.best.as_ref() == Some(system),
        }
    };
    systems.iter().map(figure).collect()
}

const NEAR: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Form, View};

    #[test]
    fn sentences_name_the_system_that_is_ahead() {
        let one = |metric: &str, own: f64, theirs: f64| Overall {
            metric: metric.to_owned(),
            systems: [("a".to_owned(), own), ("b".to_owned(), theirs)].into_iter().collect(),
            cells: 3,
            ..Overall::default()
        };
        let results = Results {
            view: Some(View {
                system: Some("a".to_owned()),
                against: vec!["b".to_owned()],
                ..View::default()
            }),
            overall: vec![
                one("share_of_ideal", 0.9, 0.8),
                one("queue_ms.p95", 20.0, 10.0),
                one("jain", 1.0, 0.999),
                one("fair_share", 2.0, 1.0),
            ],
            ..Results::new("x", Form::Quick)
        };
        assert_eq!(
            sentences(&results),
            ["a against b, by its means over all cells, of 3 metrics: ahead in 1 (Share of \
              ideal), behind in 1 (Queue delay p95), within 1 % in 1."]
        );
        let mut results = results;
        results.view.as_mut().unwrap().metric = "share_of_ideal".to_owned();
        results.overall[0].ahead = [("b".to_owned(), 1), ("a".to_owned(), 2)].into_iter().collect();
        assert_eq!(
            sentences(&results)[0],
            "Share of ideal: a is the best, or within 1 % of it, in 2 of 3 cells, b in 1."
        );
    }
}
