//! Compares the results for 200 tables with a second implementation, in Python.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use stats::table::{Pair, judged};
use stats::{Direction, Row, default_threshold};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn a_second_implementation_agrees_on_200_tables() {
    if !testing::is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let mut draw = Pcg64Mcg::seed_from_u64(11);
    let tables: Vec<Vec<Drawn>> = (0..200).map(|_| table(&mut draw)).collect();
    let found = by_python(&tables);
    assert_eq!(found.len(), tables.len());
    let mut compared = 0;
    for (table, found) in tables.iter().zip(&found) {
        let rows: Vec<Row> = table.iter().map(Drawn::row).collect();
        for (row, other) in judged(&rows).unwrap().iter().zip(found.as_array().unwrap()) {
            let own = row.ratio.ci95.map(|(low, high)| [low, high]);
            let other = other.as_array().map(|ends| [0, 1].map(|end| number(&ends[end])));
            let agree = match (own, other) {
                (None, None) => true,
                (Some(own), Some(other)) => own.iter().zip(&other).all(|(a, b)| near(*a, *b)),
                _ => false,
            };
            assert!(agree, "{own:?}, by Python {other:?}");
            compared += usize::from(own.is_some());
        }
    }
    assert!(compared > 1_000, "{compared} intervals");
}

/// A row for both implementations: the values of system `a`, if the values of `b` are 1.
struct Drawn {
    kind: usize,
    blocks: Vec<Option<Option<f64>>>,
}

impl Drawn {
    fn row(&self) -> Row {
        let blocks: Vec<Option<Pair>> =
            self.blocks.iter().map(|a| a.map(|a| (a, Some(1.0)))).collect();
        Row::new(&blocks, Direction::LowerIsBetter, default_threshold(), self.kind).unwrap()
    }

    /// Returns the row in JSON. Lower is better, so a failure is infinite.
    fn json(&self) -> Value {
        let ratio = |a: &Option<Option<f64>>| match a {
            None => Value::Null,
            Some(None) => json!("inf"),
            Some(Some(value)) => json!(value),
        };
        json!({ "kind": self.kind, "ratios": self.blocks.iter().map(ratio).collect::<Vec<_>>() })
    }
}

/// Builds a table of six to eight blocks, in which some rows have lost blocks, failures, zeros or
/// ties.
fn table(draw: &mut Pcg64Mcg) -> Vec<Drawn> {
    let blocks = draw.random_range(6..9);
    (0..draw.random_range(1..14))
        .map(|_| {
            let spread = draw.random_range(0.0..0.5);
            let effect = draw.random_range(-2.0..2.0);
            let damage = draw.random_range(0.0..0.2);
            let value = |draw: &mut Pcg64Mcg| {
                let noise: f64 = (0..4).map(|_| draw.random_range(-1.0..1.0)).sum();
                // Round to thousandths, so that some values are equal and JSON keeps all of them.
                let ratio = ((effect + spread * noise).exp() * 1_000.0).round() / 1_000.0;
                match draw.random_range(0..4) {
                    _ if !draw.random_bool(damage) => Some(Some(ratio)),
                    0 => None,
                    1 => Some(None),
                    2 => Some(Some(0.0)),
                    _ => Some(Some(1.0)),
                }
            };
            let first = Some(Some(1.5));
            let rest = (1..blocks).map(|_| value(draw));
            let blocks = std::iter::once(first).chain(rest).collect();
            Drawn { kind: draw.random_range(0..2), blocks }
        })
        .collect()
}

fn by_python(tables: &[Vec<Drawn>]) -> Vec<Value> {
    let of_table = |table: &Vec<Drawn>| table.iter().map(Drawn::json).collect::<Vec<_>>();
    let input = json!(tables.iter().map(of_table).collect::<Vec<_>>()).to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/table/independent.py");
    let mut child = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::INFINITY)
}

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs()
}
