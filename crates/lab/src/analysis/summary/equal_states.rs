//! Tests the comparisons of `labs/before-after.toml` over many seeded runs: with two equal states,
//! and with one row that is slower after the change.

use super::comparisons;
use super::whole_run::figure;
use crate::bench::LabFile;
use crate::model::plan::{Plan, Step};
use crate::model::{Outcome, Verdict};
use crate::workloads::builtin;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use results::{Axes, Comparison, Form};
use std::collections::HashMap;

/// Simulates the figures of a run. The machine's speed differs from block to block, every figure
/// has noise of its own, and some repeats are slow.
struct Bench {
    random: Pcg64Mcg,
    speeds: HashMap<u32, f64>,
    /// The row in which `after` is slower than `before`, and the share of the slowdown.
    slower: Option<(Axes, f64)>,
}

impl Bench {
    fn new(seed: u64, slower: Option<(Axes, f64)>) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed), speeds: HashMap::new(), slower }
    }

    /// Draws a nearly normal number with a standard deviation of 1: the sum of three uniform
    /// numbers.
    fn normal(&mut self) -> f64 {
        (0..3).map(|_| self.random.random::<f64>() * 2.0 - 1.0).sum()
    }

    fn measure(&mut self, system: &str, axes: &Axes, block: u32) -> Verdict {
        let drawn = self.normal();
        let speed = *self.speeds.entry(block).or_insert((DRIFT * drawn).exp());
        let own = (NOISE * self.normal()).exp();
        let slow = if self.random.random_bool(OFTEN_SLOW) { SLOW } else { 1.0 };
        let cost = match &self.slower {
            Some((at, share)) if system == "after" && at == axes => 1.0 - share,
            _ => 1.0,
        };
        let speed = speed * own * slow * cost;
        let test = axes["test"].as_str();
        let (metric, value) = match test {
            "TCP_STREAM" | "UDP_STREAM" => ("goodput_mbit_s", 1000.0 * speed),
            "lat_unix" | "lat_tcp" => ("latency_us.mean", 10.0 / speed),
            "bw_pipe" | "bw_unix" | "bw_tcp" => ("mbyte_s", 3000.0 * speed),
            _ => ("requests_s", 40_000.0 * speed),
        };
        figure(metric, value)
    }

    /// Simulates a whole run of the full form and returns its comparisons.
    fn table(&mut self, lab: &LabFile) -> Vec<Comparison> {
        let systems = ["before", "after"].map(str::to_owned);
        let plan = Plan::new(lab, Form::Full, &systems, None);
        let outcome = |step: &Step| {
            let cell = &plan.cells[step.cell];
            let verdict = self.measure(&cell.system, &cell.axes, step.block);
            let (system, axes) = (cell.system.clone(), cell.axes.clone());
            Outcome { system, axes, block: step.block, verdict }
        };
        let outcomes: Vec<Outcome> = plan.steps.iter().map(outcome).collect();
        let comparisons = comparisons::comparisons(lab, &plan, &outcomes);
        assert_eq!(comparisons.len(), ROWS);
        comparisons
    }
}

fn lab() -> LabFile {
    builtin::open("before-after").unwrap()
}

/// Whether the interval of the row's ratio excludes 1, whatever the verdict.
fn excludes_1(row: &Comparison) -> bool {
    row.ratio.ci95.is_some_and(|[low, high]| low > 1.0 || high < 1.0)
}

fn decides(row: &Comparison) -> bool {
    matches!(row.verdict, results::Verdict::Better | results::Verdict::Worse)
}

#[test]
fn a_table_of_equal_states_has_the_rows_of_the_report_and_none_better_or_worse() {
    equal_states(1);
}

#[test]
#[ignore = "takes minutes"]
fn in_1000_tables_of_equal_states_at_least_95_percent_have_no_row_better_or_worse() {
    equal_states(1_000);
}

fn equal_states(runs: u64) {
    let lab = lab();
    let (mut wrong, mut rows_same) = (0, 0);
    for seed in 0..runs {
        let table = Bench::new(seed, None).table(&lab);
        wrong += u64::from(table.iter().any(decides));
        rows_same += table.iter().filter(|row| row.verdict == results::Verdict::Same).count();
    }
    let same = 100.0 * rows_same as f64 / (runs as f64 * ROWS as f64);
    println!("{wrong} of {runs} tables have a row better or worse; {same:.1} % of rows: the same");
    assert!(wrong as f64 <= (0.05 * runs as f64).floor(), "{wrong} of {runs}");
}

#[test]
fn the_interval_of_a_row_slower_by_3_percent_excludes_1_and_no_other_row_is_decided() {
    slowdown(1, 0.03);
}

#[test]
#[ignore = "takes minutes"]
fn in_1000_tables_the_interval_of_a_row_slower_by_3_or_4_percent_excludes_1() {
    slowdown(1_000, 0.03);
    slowdown(1_000, 0.04);
}

/// Checks that runs with one slower row exclude 1 for that row. Each run has the slowdown in
/// another row.
fn slowdown(runs: u64, share: f64) {
    let lab = lab();
    let systems = ["after".to_owned()];
    let cells = Plan::new(&lab, Form::Full, &systems, None).cells;
    let places: Vec<Axes> = cells.into_iter().map(|cell| cell.axes).collect();
    let (mut excluding, mut worse, mut elsewhere) = (0, 0, 0);
    for seed in 0..runs {
        let at = places[(seed as usize * 17) % places.len()].clone();
        let table = Bench::new(seed, Some((at.clone(), share))).table(&lab);
        let (own, others): (Vec<_>, Vec<_>) = table.iter().partition(|row| row.axes == at);
        excluding += u64::from(excludes_1(own[0]));
        worse += u64::from(own[0].verdict == results::Verdict::Worse);
        elsewhere += u64::from(others.into_iter().any(decides));
        assert_ne!(own[0].verdict, results::Verdict::Better, "{:?}", own[0]);
    }
    println!(
        "{share}: the interval excludes 1 in {excluding} of {runs} tables, {worse} say worse, {elsewhere} have \
         another row better or worse"
    );
    assert!(excluding as f64 >= 0.95 * runs as f64, "{excluding} of {runs}");
    assert!(elsewhere as f64 <= 0.05 * runs as f64, "{elsewhere} of {runs}");
}

/// Number of rows: 13 netperf tests at two `ends`, pinned and not pinned; 5 tests of lmbench; 4 of
/// nginx.
const ROWS: usize = 13 * 2 * 2 + 5 + 4;
/// Standard deviations of the logarithms of the invented figures.
const DRIFT: f64 = 0.05;
const NOISE: f64 = 0.02;
const OFTEN_SLOW: f64 = 0.03;
const SLOW: f64 = 0.85;
