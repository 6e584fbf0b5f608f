//! The interval or the range beside a value, and its label.

use crate::number;
use indexmap::IndexMap;
use results::{Metric, Ratio};

/// The ends of the interval or range beside a value, and their label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Around {
    /// `[55.0, 58.9]`
    pub(crate) ends: String,
    /// `96.9 % interval` or `range of 3`
    pub(crate) label: String,
    /// `96.9 %` or `n=3`
    short: String,
}

impl Around {
    pub(crate) fn metric(metric: &Metric) -> Option<Self> {
        if let Some(share) = metric.share {
            let label = SHARE.to_owned();
            let short = format!("{}/{}", share.count, share.total);
            return Some(Self { ends: number::interval(share.value(), share.ci95), label, short });
        }
        let around = Self::of(metric.median, metric.ci95, metric.coverage, metric.range, metric.n);
        around.map(|around| around.of_one_start(metric.one_start))
    }

    pub(crate) fn ratio(ratio: &Ratio) -> Option<Self> {
        let around = Self::of(ratio.median, ratio.ci95, ratio.coverage, ratio.range, ratio.n);
        around.map(|around| around.of_one_start(ratio.one_start))
    }

    fn of_one_start(self, one_start: bool) -> Self {
        let what = if one_start { " windows of one start" } else { "" };
        Self { label: self.label + what, ..self }
    }

    fn of(
        median: f64,
        ci95: Option<[f64; 2]>,
        coverage: Option<f64>,
        range: Option<[f64; 2]>,
        n: u64,
    ) -> Option<Self> {
        let (label, short) = match (ci95, coverage.map(|coverage| coverage * 100.0)) {
            (Some(_), Some(percent)) => {
                let percent = format!("{percent:.1}");
                let percent = percent.trim_end_matches(".0");
                (format!("{percent} % interval"), format!("{percent} %"))
            }
            // Older writers did not state the coverage.
            (Some(_), None) => ("interval".to_owned(), "interval".to_owned()),
            (None, _) => (format!("range of {n}"), format!("n={n}")),
        };
        Some(Self { ends: number::interval(median, ci95.or(range)?), label, short })
    }

    /// Formats ends and label: `[55.0, 58.9] (range of 3)`.
    pub(crate) fn labelled(&self) -> String {
        format!("{} ({})", self.ends, self.label)
    }
}

/// A column of intervals. The head of the column is the most frequent label; a row with another
/// label states its own.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) head: String,
}

impl Column {
    pub(crate) fn of(all: impl Iterator<Item = Around>) -> Self {
        let mut counts: IndexMap<String, usize> = IndexMap::new();
        for around in all {
            *counts.entry(around.label).or_default() += 1;
        }
        // The first of equally frequent labels counts.
        let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
        Self { head: most.map_or_else(|| "interval".to_owned(), |(label, _)| label) }
    }

    /// Formats an interval for the column; `–` for a value that has neither interval nor range.
    pub(crate) fn text(&self, around: Option<Around>) -> String {
        match around {
            None => "–".to_owned(),
            Some(around) if around.label != self.head => around.labelled(),
            Some(around) => around.ends,
        }
    }

    /// Formats an interval for a terminal, with a short label only if it differs from the column's
    /// head: `[55.0, 58.9] n=3`.
    pub(crate) fn short(&self, around: Around) -> String {
        match around.label == self.head {
            true => around.ends,
            false => format!("{} {}", around.ends, around.short),
        }
    }
}

/// Builds the note: `Median, with its 96.9 % interval in brackets.`
pub(crate) fn note(all: impl Iterator<Item = Around>, place: &str) -> String {
    let mut labels = labels(all);
    match (labels.pop(), labels.pop()) {
        (None, _) => "Median of the repeats.".to_owned(),
        (Some(only), None) if only == SHARE => format!(
            "Share of the repeats, its {only} {place}; the count and the repeats in parentheses."
        ),
        (Some(only), None) => format!("Median of the repeats, its {only} {place}."),
        (Some(last), Some(before)) => {
            labels.push(before);
            let first = labels.join(", ");
            format!("Median of the repeats, its interval or range {place}: {first} or {last}.")
        }
    }
}

const SHARE: &str = "95 % Clopper-Pearson interval of the share";

fn labels(all: impl Iterator<Item = Around>) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for around in all {
        if !labels.contains(&around.label) {
            labels.push(around.label);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::Proportion;

    fn metric(ci95: Option<[f64; 2]>, coverage: Option<f64>, n: u64) -> Metric {
        let range = ci95.is_none().then_some([55.0, 58.9]);
        Metric { ci95, coverage, range, n, ..Metric::single(57.1, "ms") }
    }

    #[test]
    fn a_label_states_the_coverage_or_the_range() {
        let of = |metric: &Metric| Around::metric(metric).map(|around| around.labelled());
        let interval = metric(Some([55.0, 58.9]), Some(0.96875), 6);
        assert_eq!(of(&interval).unwrap(), "[55.0, 58.9] (96.9 % interval)");
        assert_eq!(of(&metric(None, None, 3)).unwrap(), "[55.0, 58.9] (range of 3)");
        assert_eq!(of(&metric(Some([55.0, 58.9]), None, 5)).unwrap(), "[55.0, 58.9] (interval)");
        assert_eq!(of(&Metric::single(1.0, "ms")), None);
        let windows = Metric { one_start: true, ..metric(None, None, 7) };
        assert_eq!(of(&windows).unwrap(), "[55.0, 58.9] (range of 7 windows of one start)");
    }

    #[test]
    fn a_share_of_repeats_has_its_count_and_a_binomial_interval() {
        let share = Proportion { count: 5, total: 6, ci95: [0.359, 0.996] };
        let metric = Metric { share: Some(share), n: 6, ..Metric::single(1.0, "") };
        assert_eq!(number::with_interval(&metric), "0.833 [0.359, 0.996] (5/6)");
        let label = Around::metric(&metric).unwrap().label;
        assert_eq!(label, "95 % Clopper-Pearson interval of the share");
        let note = note(Around::metric(&metric).into_iter(), "in brackets");
        assert!(note.starts_with("Share of the repeats"), "{note}");
    }

    #[test]
    fn a_column_has_its_most_frequent_label_as_its_head() {
        let six = metric(Some([55.0, 58.9]), Some(0.96875), 6);
        let three = metric(None, None, 3);
        let metrics = [&three, &six, &six];
        let column = Column::of(metrics.into_iter().filter_map(Around::metric));
        assert_eq!(column.head, "96.9 % interval");
        assert_eq!(column.text(Around::metric(&six)), "[55.0, 58.9]");
        assert_eq!(column.text(Around::metric(&three)), "[55.0, 58.9] (range of 3)");
        assert_eq!(column.short(Around::metric(&three).unwrap()), "[55.0, 58.9] n=3");
        assert_eq!(column.short(Around::metric(&six).unwrap()), "[55.0, 58.9]");
        assert_eq!(column.text(None), "–");
        assert_eq!(Column::of(std::iter::empty()).head, "interval");
        let both = [&six, &three].into_iter().filter_map(Around::metric);
        assert_eq!(
            note(both, "in brackets"),
            "Median of the repeats, its interval or range in brackets: 96.9 % interval or range of 3."
        );
    }
}
