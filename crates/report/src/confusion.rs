//! Verdicts by case: rows for a terminal, and the whole matrix.

use results::{Confusion, ConfusionRow};
use units::Share;

pub(crate) const TITLE: &str = "Verdicts by case";

/// Builds one row for each case, with its verdicts as text.
pub(crate) fn lines(confusion: &Confusion) -> (Vec<String>, Vec<Vec<String>>) {
    let heads = [confusion.axis.as_str(), "expected", "right", INTERVAL, "first verdicts"];
    let rows = confusion.rows.iter().map(|row| {
        let counts = row.counts.iter().map(|(name, count)| format!("{name} ×{count}"));
        let counts: Vec<String> = counts.collect();
        let own = [row.name.clone(), row.expected.clone(), right(row), interval(row)];
        own.into_iter().chain([counts.join(", ")]).collect()
    });
    (heads.map(str::to_owned).to_vec(), rows.collect())
}

/// Builds the matrix, with one column for each verdict. An empty entry is zero.
pub(crate) fn matrix(confusion: &Confusion) -> (Vec<String>, Vec<Vec<String>>) {
    let own = [confusion.axis.as_str(), "expected", "right", INTERVAL].map(str::to_owned);
    let heads = own.into_iter().chain(confusion.verdicts.iter().cloned()).collect();
    let rows = confusion.rows.iter().map(|row| {
        let counts = confusion
            .verdicts
            .iter()
            .map(|verdict| row.counts.get(verdict).map_or_else(String::new, ToString::to_string));
        let own = [row.name.clone(), row.expected.clone(), right(row), interval(row)];
        own.into_iter().chain(counts).collect()
    });
    (heads, rows.collect())
}

/// Whether every turn of the case had a right first verdict.
pub(crate) fn is_all_right(row: &ConfusionRow) -> bool {
    row.right == row.turns
}

fn right(row: &ConfusionRow) -> String {
    format!("{}/{}", row.right, row.turns)
}

/// Computes the Clopper-Pearson interval of the share of right verdicts.
fn interval(row: &ConfusionRow) -> String {
    let level = Share::from_percent(95.0).unwrap_or_default();
    let bounds = stats::binomial::clopper_pearson(row.right, row.turns, level);
    bounds.map_or_else(
        |_| String::new(),
        |(low, high)| format!("{:.0}–{:.0} %", low.fraction() * 100.0, high.fraction() * 100.0),
    )
}

const INTERVAL: &str = "95 % interval";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_a_row_for_each_case_and_a_column_for_each_verdict() {
        let row = ConfusionRow {
            name: "tiny-queue".to_owned(),
            expected: "loss".to_owned(),
            turns: 3,
            right: 2,
            counts: [("loss".to_owned(), 2), ("path".to_owned(), 1)].into(),
        };
        let confusion = Confusion {
            axis: "fault".to_owned(),
            verdicts: ["cpu", "loss", "path"].map(str::to_owned).to_vec(),
            rows: vec![row],
        };
        assert_eq!(
            lines(&confusion).1,
            [["tiny-queue", "loss", "2/3", "9–99 %", "loss ×2, path ×1"]]
        );
        let (heads, rows) = matrix(&confusion);
        assert_eq!(heads, ["fault", "expected", "right", "95 % interval", "cpu", "loss", "path"]);
        assert_eq!(rows, [["tiny-queue", "loss", "2/3", "9–99 %", "", "2", "1"]]);
        assert!(!is_all_right(&confusion.rows[0]));
    }
}
