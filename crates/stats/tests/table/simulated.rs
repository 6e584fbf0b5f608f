//! Errors, coverage and power. `cargo test -p weir-stats --test table -- --nocapture` prints the
//! measured rates.

use crate::noise::{ALL, Noise, tables};
use stats::Verdict;
use stats::table::Judged;

/// A table is wrong if an interval misses the true ratio of its row. Rows with a difference have
/// intervals as wide as rows without a difference, so tables of equal systems measure two rates:
/// the rate of tables that show a difference is at most the rate of tables with a wrong interval.
#[test]
fn at_most_5_percent_of_tables_have_a_wrong_interval() {
    for noise in ALL {
        for of_system in [0.0, 0.03] {
            for (rows, runs) in [(1, 500), (2, 500), (10, 300), (50, 120)] {
                covers(noise, rows, 6, of_system, runs);
            }
        }
    }
}

#[test]
fn more_blocks_do_not_raise_the_rate_of_wrong_intervals() {
    for noise in ALL {
        for (rows, blocks, runs) in [(10, 7, 200), (20, 9, 80), (3, 12, 30)] {
            covers(noise, rows, blocks, 0.0, runs);
        }
    }
}

fn covers(noise: Noise, rows: usize, blocks: usize, of_system: f64, runs: usize) {
    let effects: Vec<f64> = (0..rows).map(|row| [1.0, 1.2, 2.0, 100.0][row % 4]).collect();
    let found = tables(noise, &effects, blocks, of_system, runs);
    let is_wrong = |table: &&Vec<Judged>| {
        table.iter().zip(&effects).any(|(row, truth)| !contains(row, *truth))
    };
    let wrong = found.iter().filter(is_wrong).count();
    println!(
        "{noise:?}, {rows} rows, {blocks} blocks, {of_system}: {wrong} of {runs} tables wrong"
    );
    assert!(wrong <= most(runs), "{noise:?}, {rows} rows, {blocks} blocks: {wrong} of {runs}");
}

#[test]
fn the_verdict_same_is_wrong_in_at_most_5_percent_of_tables() {
    // Use differences just beyond the threshold, and noise low enough for narrow intervals: a wrong
    // "the same" is then most likely.
    let effects = [1.0501; 10];
    for (noise, blocks) in [(Noise::Metrics, 6), (Noise::Quiet, 6), (Noise::Quiet, 9)] {
        let found = tables(noise, &effects, blocks, 0.0, 200);
        let says = |table: &&Vec<Judged>| table.iter().any(|row| row.verdict == Verdict::Same);
        let wrong = found.iter().filter(says).count();
        println!("{noise:?}, {blocks} blocks: {wrong} of 200 tables wrongly say the same");
        assert!(wrong <= most(200), "{noise:?}: {wrong} of 200");
    }
    let equal = tables(Noise::Quiet, &[1.0; 10], 6, 0.0, 20);
    let same = equal.iter().flatten().filter(|row| row.verdict == Verdict::Same).count();
    println!("{same} of 200 equal rows are the same within 5 %");
    assert!(same >= 190, "{same} of 200 equal rows are the same within 5 %");
}

/// The required rates are a little below the rates that this test measured.
#[test]
fn six_blocks_find_differences_in_tables_of_any_size() {
    for (noise, rows, fifth, double, hundredfold) in [
        (Noise::LogNormal, 10, 0.95, 1.0, 1.0),
        (Noise::LogNormal, 50, 0.93, 1.0, 1.0),
        (Noise::Skewed, 10, 0.90, 1.0, 1.0),
        (Noise::Skewed, 50, 0.88, 1.0, 1.0),
        (Noise::Bimodal, 10, 0.95, 1.0, 1.0),
        (Noise::Bimodal, 50, 0.95, 1.0, 1.0),
        (Noise::Unequal, 10, 0.60, 0.97, 1.0),
        (Noise::Unequal, 50, 0.38, 0.95, 1.0),
        (Noise::Metrics, 50, 0.60, 0.82, 1.0),
        (Noise::Stalls, 10, 0.60, 0.83, 0.99),
        (Noise::Stalls, 50, 0.48, 0.83, 0.99),
    ] {
        let runs = 2_000 / rows;
        let half = rows / 2;
        let mut effects = vec![1.0; rows];
        effects[0] = 100.0;
        effects[1..=half / 2].fill(1.2);
        effects[half / 2 + 1..=half].fill(2.0);
        let found = tables(noise, &effects, 6, 0.0, runs);
        let rate = |rows: std::ops::RangeInclusive<usize>| {
            let rows: Vec<&Judged> = found.iter().flat_map(|table| &table[rows.clone()]).collect();
            let better = rows.iter().filter(|row| row.verdict == Verdict::Better).count();
            better as f64 / rows.len() as f64
        };
        let rates = [rate(1..=half / 2), rate(half / 2 + 1..=half), rate(0..=0)];
        println!(
            "{noise:?}, {rows} rows: 1.2× {:.3}, 2× {:.3}, 100× {:.3}",
            rates[0], rates[1], rates[2]
        );
        for (rate, floor) in rates.iter().zip([fifth, double, hundredfold]) {
            assert!(*rate >= floor, "{noise:?}, {rows} rows: {rates:?}");
        }
    }
}

/// Returns the maximum number of wrong tables: 5 % and three standard deviations of the count.
fn most(runs: usize) -> usize {
    let runs = runs as f64;
    (0.05 * runs + 3.0 * (runs * 0.05 * 0.95).sqrt()) as usize
}

fn contains(row: &Judged, truth: f64) -> bool {
    let (low, high) = row.ratio.ci95.unwrap();
    low <= truth * (1.0 + 1e-9) && truth * (1.0 - 1e-9) <= high
}
