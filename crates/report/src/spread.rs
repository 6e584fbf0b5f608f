//! Ratios over many paths: the median, the worst decile and the worst path.

use crate::{axis, number};
use results::{Results, metrics};

/// Returns heads and rows of the table. `None` if the lab has no spreads.
pub(crate) fn table(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let heads = ["ratio", "of", "at", "paths", "median", "worst decile", "worst", "worst at"];
    let row = |one: &results::Spread| {
        vec![
            format!("{} / {}", one.a, one.b),
            metrics::meaning(&one.metric).label.to_lowercase(),
            axis::describe(&one.axes),
            one.places.to_string(),
            number::ratio(one.median),
            number::ratio(one.worst_decile),
            number::ratio(one.worst),
            axis::describe(&one.worst_at),
        ]
    };
    let rows: Vec<Vec<String>> = results.spreads.iter().map(row).collect();
    (!rows.is_empty()).then(|| (heads.map(str::to_owned).to_vec(), rows))
}

pub(crate) const TITLE: &str = "Over all paths";
pub(crate) const NOTE: &str = "Each path counts once, with the median ratio of its repeats. A tenth of the paths is \
    worse than the worst decile.";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Form, Spread};

    #[test]
    fn a_spread_names_its_worst_path() {
        let mut results = Results::new("x", Form::Full);
        assert!(table(&results).is_none());
        let axes = |axis: &str, value: &str| Axes::from([(axis.to_owned(), value.to_owned())]);
        results.spreads.push(Spread {
            metric: "kbyte_s".to_owned(),
            a: "tcpa".to_owned(),
            b: "bbr".to_owned(),
            axes: axes("file", "8MB"),
            places: 12,
            median: 1.1,
            worst_decile: 0.96,
            worst: 0.9,
            worst_at: axes("path", "drawn3"),
            best: 2.0,
        });
        let (heads, rows) = table(&results).unwrap();
        assert_eq!(heads.len(), rows[0].len());
        let row = rows[0].join(" | ");
        assert_eq!(
            row,
            "tcpa / bbr | download rate | file 8MB | 12 | 1.10× | 0.960× | 0.900× | path drawn3"
        );
    }
}
