use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn json_paths_used_by_scripts_have_values() {
    let mut results = Results::new("quic-tun", Form::Quick);
    let axes = Axes::from([("loss".to_owned(), "1%".to_owned())]);
    let mut cell = Cell::new("tcp-cubic", axes.clone());
    cell.metrics.insert("goodput_mbit_s".to_owned(), mbit(57.1, Some([55.0, 58.9])));
    cell.metrics.insert("cpu_percent.ksoftirqd".to_owned(), mbit(2.0, None));
    results.cells.push(cell);
    results.comparisons.push(Comparison {
        metric: "goodput_mbit_s".to_owned(),
        axes,
        a: "weir-tunnel".to_owned(),
        b: "tcp-cubic".to_owned(),
        ratio: Ratio {
            ci95: Some([9.1, 10.4]),
            coverage: Some(0.96875),
            n: 6,
            ..Ratio::single(9.8)
        },
        verdict: Verdict::Better,
        threshold: None,
        primary: true,
        more_blocks: None,
        goal: None,
    });
    let written: serde_json::Value = serde_json::from_str(&results.to_json().unwrap()).unwrap();
    assert_eq!(
        written,
        json!({
            "lab": "quic-tun", "form": "quick", "quick": true, "valid": true,
            "environment": {}, "reference": [],
            "cells": [{
                "system": "tcp-cubic", "axes": {"loss": "1%"}, "failed": null,
                "valid": true, "cpu_limited": false,
                "metrics": {
                    "goodput_mbit_s":
                        {"median": 57.1, "ci95": [55.0, 58.9], "n": 5, "unit": "Mbit/s"},
                    "cpu_percent.ksoftirqd":
                        {"median": 2.0, "ci95": null, "n": 5, "unit": "Mbit/s"},
                },
            }],
            "comparisons": [{
                "metric": "goodput_mbit_s", "axes": {"loss": "1%"},
                "a": "weir-tunnel", "b": "tcp-cubic",
                "ratio": {"median": 9.8, "ci95": [9.1, 10.4], "coverage": 0.96875, "n": 6},
                "verdict": "better", "primary": true,
            }],
        })
    );
}

#[test]
fn results_of_older_and_newer_writers_are_read() {
    let least = r#"{"lab":"x","valid":true,"cells":[{"system":"a"}]}"#;
    let read = Results::from_json(least, Path::new("results.json")).unwrap();
    assert!(read.cells[0].valid && read.cells[0].failed.is_none());
    assert_eq!(read.form, Form::Full);

    let newer = r#"{"lab":"x","valid":false,"form":"overnight","colour":"red","cells":[
        {"system":"a","axes":{},"mood":1,
         "metrics":{"m":{"median":null,"ci95":[null,2],"n":1,"unit":"s","p99":3}}}],
        "comparisons":[{"metric":"m","a":"a","b":"b","ratio":{"median":1},"verdict":"puzzling"},
        {"metric":"m","a":"a","b":"b","ratio":{"median":1},"verdict":"inconclusive","needs_repeats":7}]}"#;
    let read = Results::from_json(newer, Path::new("results.json")).unwrap();
    assert_eq!(read.form, Form::Other);
    assert!(read.cells[0].metrics["m"].median.is_nan());
    assert_eq!(read.cells[0].metrics["m"].ci95, None);
    assert!(read.comparisons.iter().all(|one| one.verdict == Verdict::Undecided));
}

#[test]
fn cells_that_older_writers_marked_failed_are_read_as_not_run() {
    let older = r#"{"lab":"x","valid":true,"cells":[
        {"system":"a","axes":{"n":"1"},"failed":"not run: needs 3 CPUs"},
        {"system":"b","axes":{"n":"1"},"failed":"it broke"},{"system":"a","axes":{"n":"2"}}],
        "comparisons":[
        {"metric":"m","axes":{"n":"1"},"a":"a","b":"b","ratio":{"median":null},"verdict":"worse"},
        {"metric":"m","axes":{"n":"2"},"a":"a","b":"b","ratio":{"median":1},"verdict":"same"}]}"#;
    let read = Results::from_json(older, Path::new("results.json")).unwrap();
    let [first, second, _] = read.cells.as_slice() else { panic!("{:?}", read.cells) };
    assert_eq!((&first.failed, first.not_run.as_deref()), (&None, Some("needs 3 CPUs")));
    assert!(!first.is_measured() && !first.has_failed() && second.has_failed());
    assert_eq!(read.comparisons.len(), 1);
    assert_eq!(read.comparisons[0].axes["n"], "2");
}

#[test]
fn an_infinite_ratio_is_written_as_null() {
    let mut results = Results::new("x", Form::Full);
    results.comparisons.push(Comparison {
        metric: "goodput_mbit_s".to_owned(),
        axes: Axes::new(),
        a: "a".to_owned(),
        b: "b".to_owned(),
        ratio: Ratio { range: Some([2.0, f64::INFINITY]), n: 3, ..Ratio::single(f64::INFINITY) },
        verdict: Verdict::Undecided,
        threshold: None,
        primary: false,
        more_blocks: Some(11),
        goal: None,
    });
    let text = results.to_json().unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ratio = &written["comparisons"][0]["ratio"];
    assert_eq!(*ratio, json!({"median": null, "ci95": null, "range": [2.0, null], "n": 3}));
    assert_eq!(Results::from_json(&text, Path::new("r")).unwrap(), results);
}

#[test]
fn more_blocks_count_for_primary_comparisons_first() {
    let comparison = |primary, verdict, more_blocks| Comparison {
        metric: "goodput_mbit_s".to_owned(),
        axes: Axes::new(),
        a: "a".to_owned(),
        b: "b".to_owned(),
        ratio: Ratio::single(1.1),
        verdict,
        threshold: None,
        primary,
        more_blocks,
        goal: None,
    };
    let of = |comparisons: &[Comparison]| {
        let mut results = Results::new("x", Form::Full);
        results.comparisons = comparisons.to_vec();
        results.more_blocks().map(|more| (more.blocks, more.decides, more.undecided))
    };
    let mut all = vec![
        comparison(false, Verdict::Better, None),
        comparison(false, Verdict::Undecided, None),
        comparison(false, Verdict::Undecided, Some(3)),
        comparison(false, Verdict::Undecided, Some(90)),
        comparison(false, Verdict::Undecided, Some(7)),
    ];
    assert_eq!(of(&all), Some((7, 2, 4)));
    all.push(comparison(true, Verdict::Undecided, Some(20)));
    assert_eq!(of(&all), Some((20, 3, 5)));
    assert_eq!(of(&all[..2]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn an_invalid_results_file_is_reported_with_its_name_and_key_path() {
    let wrong =
        r#"{"lab":"x","valid":true,"cells":[{"system":"a","metrics":{"m":{"median":"fast"}}}]}"#;
    let error = Results::from_json(wrong, Path::new("/runs/1/results.json")).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("/runs/1/results.json"), "{message}");
    assert!(message.contains("cells[0].metrics.m.median"), "{message}");
}

#[test]
fn a_reference_row_belongs_to_every_cell_with_its_axis_values() {
    let row = Reference {
        system: "tcp".to_owned(),
        systems: vec!["tcp-cubic".to_owned()],
        axes: Axes::from([("loss".to_owned(), "1%".to_owned())]),
        ..Reference::default()
    };
    let at = |system: &str, loss: &str| {
        Cell::new(system, Axes::from([("loss".to_owned(), loss.to_owned())]))
    };
    assert!(row.belongs_to(&at("tcp-cubic", "1%")));
    assert!(!row.belongs_to(&at("tcp-cubic", "5%")));
    assert!(!row.belongs_to(&at("tcp", "1%")));
}

proptest! {
    #[test]
    fn results_are_unchanged_by_writing_and_reading_json(
        lab in ".{0,12}", system in ".{0,12}", axis in ".{0,6}", value in ".{0,6}",
        failed in proptest::option::of(".{0,20}"), eighths in -1_000_000i32..1_000_000, n in 0u64..1000, valid: bool, cpu_limited: bool,
    ) {
        let mut cell = Cell::new(system, Axes::from([(axis, value)]));
        cell.failed = failed;
        cell.valid = valid;
        cell.cpu_limited = cpu_limited;
        // Use eighths, because serde_json may lose the last bit of an arbitrary float.
        let median = f64::from(eighths) / 8.0;
        let metric = Metric { ci95: Some([median, median + 1.0]), n, ..Metric::single(median, "ms") };
        cell.metrics.insert("m.p50".to_owned(), metric);
        let mut results = Results::new(lab, Form::Smoke);
        results.cells.push(cell);
        let text = results.to_json().unwrap();
        prop_assert_eq!(Results::from_json(&text, Path::new("r")).unwrap(), results);
    }
}

fn mbit(median: f64, ci95: Option<[f64; 2]>) -> Metric {
    Metric { ci95, n: 5, ..Metric::single(median, "Mbit/s") }
}
