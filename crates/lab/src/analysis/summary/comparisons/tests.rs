//! Tests comparisons and intervals over many seeded runs, by the code that summarises a run.

use crate::analysis::summary::whole_run::{figure, invented};
use crate::bench::LabFile;
use crate::model::file::FileError;
use crate::model::{Flaw, Measurement, Verdict};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use results::{Comparison, CpuLimit, Results};

/// Builds a lab with two systems at `places` places.
fn lab(places: usize, repeats: u32, more: &str) -> LabFile {
    parsed(places, repeats, more).unwrap()
}

fn parsed(places: usize, repeats: u32, more: &str) -> Result<LabFile, FileError> {
    let values: Vec<String> = (1..=places).map(|place| format!("\"{place}ms\"")).collect();
    let text = format!(
        r#"name = "x"
hosts = ["a", "b"]
[axes]
rtt = [{}]
[[link]]
between = ["a", "b"]
rate = "10mbit"
rtt = "{{rtt}}"
[workload]
kind = "bulk"
from = "a"
to = "b"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "bbr"
kind = "tcp"
congestion = "bbr"
[form.full]
repeats = {repeats}
duration = "1s"
[form.quick]
repeats = 1
duration = "1s"
[compare]
baseline = "cubic"
metrics = ["goodput_mbit_s"]
{more}"#,
        values.join(", ")
    );
    LabFile::parse("x.toml", &text)
}

/// Builds the results of a run. `verdict` invents the verdict of each system and block.
fn results(lab: &LabFile, mut verdict: impl FnMut(&str, u32) -> Verdict) -> Results {
    invented(lab, |system, _, block| verdict(system, block))
}

fn measured(goodput: f64) -> Verdict {
    figure("goodput_mbit_s", goodput)
}

/// Invents a measurement that is not valid.
fn late(goodput: f64) -> Verdict {
    let Verdict::Measured(mut measurement) = measured(goodput) else { unreachable!() };
    measurement.invalid.push(Flaw { what: "late".to_owned(), detail: "3 ms".to_owned() });
    Verdict::Measured(measurement)
}

fn only(results: &Results) -> &Comparison {
    assert_eq!(results.comparisons.len(), 1, "{:?}", results.comparisons);
    &results.comparisons[0]
}

/// Draws from a skewed distribution with a second mode and ties.
fn noise(random: &mut Pcg64Mcg) -> f64 {
    let uniform: f64 = random.random();
    match random.random_range(0..10) {
        0 => 60.0,
        1..3 => 100.0,
        _ => 100.0 - 10.0 * uniform.ln(),
    }
}

fn decides(one: &Comparison) -> bool {
    matches!(one.verdict, results::Verdict::Better | results::Verdict::Worse)
}

#[test]
fn a_table_of_50_equal_pairs_rarely_shows_a_difference() {
    equal_tables(RUNS);
}

#[test]
#[ignore = "takes minutes"]
fn two_thousand_tables_of_50_equal_pairs_rarely_show_a_difference() {
    equal_tables(MANY_RUNS);
}

fn equal_tables(runs: u64) {
    let lab = lab(50, 6, "");
    let shown = (0..runs).filter(|seed| {
        let mut random = Pcg64Mcg::seed_from_u64(*seed);
        let results = results(&lab, |_, _| measured(noise(&mut random)));
        assert_eq!(results.comparisons.len(), 50);
        results.comparisons.iter().any(decides)
    });
    let shown = shown.count();
    // Upper limit of the count: the mean at 5 %, plus three standard deviations.
    let most = 0.05 * runs as f64 + 3.0 * (runs as f64 * 0.05 * 0.95).sqrt();
    println!("{shown} of {runs} tables show a difference");
    assert!((shown as f64) < most, "{shown} of {runs} runs");
}

#[test]
fn intervals_contain_the_median_at_the_stated_rate() {
    contain_the_median(&[2, 5, 6, 9, 20], 100);
}

/// Each of the 2,000 runs has one cell of two systems.
#[test]
#[ignore = "takes minutes"]
fn intervals_of_2000_runs_contain_the_median_at_the_stated_rate() {
    contain_the_median(&(2..=30).collect::<Vec<u32>>(), MANY_RUNS);
}

fn contain_the_median(all_repeats: &[u32], runs: u64) {
    // The median of `noise`: half of the values are above the median.
    let mut random = Pcg64Mcg::seed_from_u64(0);
    let mut many: Vec<f64> = (0..400_001).map(|_| noise(&mut random)).collect();
    many.sort_by(f64::total_cmp);
    let truth = many[200_000];
    for repeats in all_repeats.iter().copied() {
        let places = if runs > 1_000 { 1 } else { 5 };
        let lab = lab(places, repeats, "");
        let (mut covered, mut all, mut stated) = (0, 0, None);
        for seed in 0..runs {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            for cell in results(&lab, |_, _| measured(noise(&mut random))).cells {
                let metric = &cell.metrics["goodput_mbit_s"];
                assert_eq!(metric.ci95.is_some(), repeats >= 6, "{metric:?}");
                assert_eq!(metric.range.is_some(), repeats < 6, "{metric:?}");
                let Some([low, high]) = metric.ci95 else { continue };
                covered += usize::from((low..=high).contains(&truth));
                all += 1;
                stated = metric.coverage;
            }
        }
        if let Some(stated) = stated {
            let slack = 3.0 * (stated * (1.0 - stated) / all as f64).sqrt() + 0.002;
            let rate = covered as f64 / all as f64;
            println!("n = {repeats}: {rate:.4} of {stated:.4}");
            assert!(stated >= 0.95 && rate > stated - slack, "{repeats}: {rate} of {stated}");
        }
    }
}

#[test]
fn a_failed_or_starved_repeat_ranks_worst() {
    let lab = lab(1, 8, "");
    let failing = results(&lab, |system, _| match system {
        "bbr" => Verdict::Failed("it broke".to_owned()),
        _ => measured(10.0),
    });
    let one = only(&failing);
    assert_eq!((one.ratio.median, one.verdict), (0.0, results::Verdict::Worse));
    let starved = results(&lab, |system, _| measured(if system == "cubic" { 0.0 } else { 10.0 }));
    let one = only(&starved);
    assert_eq!((one.ratio.median, one.verdict), (f64::INFINITY, results::Verdict::Better));
    // Half of the repeats are fast, half failed: the fast half must not decide.
    let half = results(&lab, |system, block| match (system, block % 2) {
        ("bbr", 0) => Verdict::Failed("it broke".to_owned()),
        ("bbr", _) => measured(20.0),
        _ => measured(10.0),
    });
    assert_eq!(only(&half).verdict, results::Verdict::Undecided);
    let both = results(&lab, |_, _| Verdict::Failed("no network".to_owned()));
    assert!(both.comparisons.is_empty());
}

#[test]
fn a_cell_that_was_not_run_has_not_failed_and_is_not_compared() {
    let primary =
        "[[primary]]\nmetric = \"goodput_mbit_s\"\nsystem = \"bbr\"\nbaseline = \"cubic\"\n";
    let lab = lab(2, 8, primary);
    let run = invented(&lab, |system, axes, _| match (system, axes["rtt"].as_str()) {
        ("bbr", "1ms") => Verdict::Failed("not run: needs 3 CPUs, this machine has 2".to_owned()),
        ("bbr", _) => measured(40.0),
        _ => measured(10.0),
    });
    let one = only(&run);
    assert_eq!((one.axes["rtt"].as_str(), one.ratio.median), ("2ms", 4.0));
    let cell = run.cells.iter().find(|cell| !cell.is_measured()).unwrap();
    assert_eq!(cell.not_run.as_deref(), Some("needs 3 CPUs, this machine has 2"));
    assert!(cell.failed.is_none() && !cell.has_failed());
    let json: serde_json::Value = serde_json::from_str(&run.to_json().unwrap()).unwrap();
    let written = json["cells"].as_array().unwrap();
    assert!(written.iter().all(|cell| cell["failed"].is_null()), "{json}");
    let means = crate::analysis::overall::means(&run);
    assert_eq!(means[0].systems["bbr"], 40.0, "{means:?}");
    let page = report::markdown::render(&run, "");
    assert!(!page.contains("∞") && !page.contains("| 0×"), "{page}");
    assert!(page.contains("## Not run") && !page.contains("## Failed"), "{page}");
    // A cell has failed if one repeat failed and the other repeats were not run.
    let mixed = results(&lab, |system, block| match (system, block) {
        ("bbr", 0) => Verdict::Failed("it broke".to_owned()),
        ("bbr", _) => Verdict::Failed("not run: needs 3 CPUs".to_owned()),
        _ => measured(10.0),
    });
    let cell = mixed.cells.iter().find(|cell| cell.system == "bbr").unwrap();
    assert_eq!((cell.failed.as_deref(), &cell.not_run), (Some("it broke"), &None));
}

#[test]
fn goodput_above_the_link_rate_is_marked() {
    // 10 Mbit/s carry 9.56 Mbit/s of payload.
    let lab = lab(1, 6, "");
    let run = results(&lab, |system, _| measured(if system == "bbr" { 9.9 } else { 9.6 }));
    let above: Vec<Option<f64>> = run.cells.iter().map(|cell| cell.above_link_mbit_s).collect();
    assert!(above[0].is_none(), "{above:?}");
    assert!((above[1].unwrap() - 9.564).abs() < 0.001, "{above:?}");
    let text = report::markdown::render(&run, "");
    assert!(text.contains("9.90 [9.90, 9.90] ^") && text.contains("^ above the link"), "{text}");
    assert!(report::terminal::render(&run, 120, false).contains("9.90 ^"));
}

#[test]
fn a_proportion_has_a_binomial_interval_and_its_count() {
    let judged = |right| figure("first_verdict_right", right);
    for (total, count, low, high) in [(6, 5, 0.359, 0.996), (20, 17, 0.621, 0.968)] {
        let lab = lab(1, total, "");
        let run = results(&lab, |_, block| judged(f64::from(u8::from(block < count))));
        let metric = &run.cells[0].metrics["first_verdict_right"];
        let share = metric.share.unwrap();
        assert_eq!((share.count, share.total), (u64::from(count), u64::from(total)));
        // The interval has the bounds of Clopper and Pearson's tables.
        assert!(
            (share.ci95[0] - low).abs() < 1e-3 && (share.ci95[1] - high).abs() < 1e-3,
            "{share:?}"
        );
        assert_eq!((metric.ci95, metric.range), (None, None));
        let text = report::terminal::render(&run, 160, false);
        assert!(text.contains(&format!("({count}/{total})")), "{text}");
    }
    // A case that expects two verdicts has the value 0.5 if one verdict is right.
    let lab = lab(1, 6, "");
    let halves = results(&lab, |_, _| figure("among_first_two", 0.5));
    assert_eq!(halves.cells[0].metrics["among_first_two"].share, None);
}

/// Builds results in which the noise of the goodput is correlated from repeat to repeat.
fn drifting(lab: &LabFile, correlation: f64) -> Results {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut state: std::collections::HashMap<String, f64> = std::collections::HashMap::new();
    results(lab, |system, _| {
        let fresh: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let value = state.entry(system.to_owned()).or_insert(fresh);
        *value = correlation * *value + (1.0 - correlation * correlation).sqrt() * fresh;
        measured(100.0 + *value)
    })
}

#[test]
fn correlated_repeats_warn_in_results_terminal_and_report() {
    let lab = lab(1, 40, "");
    let run = drifting(&lab, 0.8);
    let found = run.correlations.iter().find(|one| !one.ratios).unwrap();
    assert!(found.shown && found.estimate > 0.4 && found.series == 2, "{found:?}");
    let told = "successive repeats are correlated, in Goodput";
    assert!(run.warnings.iter().any(|warning| warning.starts_with(told)), "{:?}", run.warnings);
    assert!(report::markdown::render(&run, "").contains(told));
    assert!(report::terminal::render(&run, 400, false).contains(told));
    let quiet = drifting(&lab, 0.0);
    assert!(quiet.warnings.is_empty(), "{:?}", quiet.warnings);
    assert!(report::markdown::render(&quiet, "").contains("If the repeats are independent"));
}

/// Checks `results.json`, the terminal's text and the report.
#[test]
fn windows_of_one_start_have_a_range_and_no_verdict() {
    let lab = LabFile::parse("x.toml", WINDOWS).unwrap();
    let run = results(&lab, |system, block| {
        let rate = if system == "weir-switch" { 8e6 } else { 5e6 };
        figure("capacity_pps", rate + f64::from(block))
    });
    let metric = &run.cells[0].metrics["capacity_pps"];
    assert!(metric.one_start && metric.ci95.is_none() && metric.range.is_some(), "{metric:?}");
    let one = only(&run);
    assert_eq!((one.verdict, one.more_blocks), (results::Verdict::Undecided, None));
    assert!(one.ratio.one_start && one.ratio.ci95.is_none(), "{one:?}");
    assert_eq!(one.goal.as_ref().and_then(|goal| goal.reference), None, "one row beside both");
    let page = report::markdown::render(&run, "");
    assert!(page.contains("range of 7 windows of one start"), "{page}");
    assert!(page.contains("one start (primary)") && !page.contains(" % interval"), "{page}");
}

#[test]
fn an_invalid_repeat_is_left_out_with_its_pair() {
    let lab = lab(1, 8, "");
    let two = results(&lab, |system, block| match (system, block) {
        ("bbr", 0 | 1) => late(1.0),
        ("bbr", _) => measured(20.0),
        _ => measured(10.0),
    });
    let one = only(&two);
    assert_eq!((one.ratio.n, one.verdict), (6, results::Verdict::Better));
    let all = results(&lab, |system, _| if system == "bbr" { late(20.0) } else { measured(10.0) });
    let one = only(&all);
    assert_eq!((one.ratio.median, one.verdict), (2.0, results::Verdict::Undecided));
    assert!(!all.cells[1].valid);
    assert_eq!(all.invalid_reasons, ["late in 1 cell, for example 3 ms"]);
    let reasons: Vec<String> =
        all.cells[1].invalid_reasons.iter().map(ToString::to_string).collect();
    assert_eq!(reasons, ["late: 3 ms"]);
    assert!(two.cells.iter().all(|cell| cell.invalid_reasons.is_empty()));
}

#[test]
fn a_pair_without_the_metric_is_left_out() {
    let without = || {
        let mut measurement = Measurement::default();
        measurement.record("loss_percent", Some(1.0));
        measurement
    };
    let lab = lab(1, 8, "");
    // `once`: results with a figure that only the first repeat has.
    let once = results(&lab, |system, block| match (system, block) {
        ("bbr", 0) => measured(20.0),
        (_, 0) => measured(10.0),
        _ => Verdict::Measured(Box::new(without())),
    });
    let one = only(&once);
    assert_eq!((one.ratio.median, one.ratio.n), (2.0, 1));
    // A repeat that names the metric as missing is neither slow nor failed.
    let missing = results(&lab, |system, block| match (system, block % 2) {
        ("bbr", 0) => {
            let mut measurement = without();
            measurement.miss(&["goodput_mbit_s"], "at least 9 Mbit/s".to_owned(), false);
            Verdict::Measured(Box::new(measurement))
        }
        ("bbr", _) => measured(20.0),
        _ => measured(10.0),
    });
    let one = only(&missing);
    assert_eq!((one.ratio.median, one.ratio.n), (2.0, 4));
}

#[test]
fn a_cpu_limited_cell_names_the_cpu_user_of_its_median_repeat() {
    let lab = lab(1, 3, "");
    let run = results(&lab, |_, block| {
        let Verdict::Measured(mut measurement) = measured(1.0) else { unreachable!() };
        let percent = [70.0, 95.0, 80.0][block as usize % 3];
        measurement.cpu_limited = true;
        measurement.cpu_limit =
            Some(CpuLimit { by: "softirqs".to_owned(), cpus: vec![1], percent });
        Verdict::Measured(measurement)
    });
    let told: Vec<String> =
        run.cells.iter().flat_map(|cell| &cell.cpu_limit).map(ToString::to_string).collect();
    assert_eq!(told, ["softirqs used 80 % of CPU 1"; 2]);
}

#[test]
fn six_repeats_decide_a_table_of_50_comparisons() {
    let primary = "[[primary]]\nmetric = \"goodput_mbit_s\"\nsystem = \"bbr\"\n\
                   baseline = \"cubic\"\nat = { rtt = \"7ms\" }\n";
    let lab = lab(50, 6, primary);
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let mut with_noise = |rate: f64| measured(rate * (1.0 + 0.1 * random.random::<f64>()));
    let run = results(&lab, |system, _| with_noise(if system == "bbr" { 20.0 } else { 10.0 }));
    assert_eq!(run.comparisons.len(), 50);
    for one in &run.comparisons {
        assert_eq!(one.primary, one.axes["rtt"] == "7ms");
        assert!(decides(one) && one.more_blocks.is_none(), "{one:?}");
    }
    let mut with_noise = |rate: f64| measured(rate * (1.0 + 0.1 * random.random::<f64>()));
    let five = Results { comparisons: Vec::new(), ..run };
    assert_eq!(five.more_blocks(), None);
    let five = results(&self::lab(50, 5, primary), |system, _| {
        with_noise(if system == "bbr" { 20.0 } else { 10.0 })
    });
    assert!(five.comparisons.iter().all(|one| one.more_blocks == Some(1)), "{five:?}");
}

#[test]
fn a_primary_comparison_outside_compare_is_judged() {
    let primary = "[[primary]]\nmetric = \"goodput_mbit_s\"\nsystem = \"cubic\"\n\
                   baseline = \"bbr\"\n";
    let lab = lab(2, 6, primary);
    let run = results(&lab, |system, _| measured(if system == "bbr" { 20.0 } else { 10.0 }));
    let one = run.comparisons.iter().find(|one| one.primary).unwrap();
    assert_eq!((one.a.as_str(), one.axes["rtt"].as_str()), ("cubic", "1ms"));
    assert_eq!(one.verdict, results::Verdict::Worse);
}

#[test]
fn an_invalid_primary_comparison_is_refused() {
    let with = |metric: &str, system: &str, rest: &str| {
        format!(
            "[[primary]]\nmetric = \"{metric}\"\nsystem = \"{system}\"\nbaseline = \"cubic\"\n{rest}\n"
        )
    };
    let right = |rest: &str| with("goodput_mbit_s", "bbr", rest);
    for (more, told) in [
        (with("goodput_mbit", "bbr", ""), "did you mean `goodput_mbit_s`"),
        (with("downloads", "bbr", ""), "neither more nor less of `downloads` is better"),
        (with("goodput_mbit_s", "bbx", ""), "did you mean `bbr`"),
        (with("goodput_mbit_s", "cubic", ""), "`cubic` compared with itself"),
        (right("at = { rt = \"1ms\" }"), "did you mean `rtt`"),
        (right("at = { rtt = \"9ms\" }"), "axis `rtt` has no value `9ms`"),
        (right("") + &right(""), "the same `[[primary]]` twice"),
        (right("").repeat(4), "at most 3 `[[primary]]`"),
    ] {
        let error = parsed(2, 6, &more).unwrap_err().to_string();
        assert!(error.contains(told), "{more}: {error}");
    }
    let text = lab(2, 6, &right("at = { rtt = \"2ms\" }")).text();
    let quick = "[form.quick]\n";
    let text = text.replace(quick, &format!("{quick}cells = [{{ rtt = [\"1ms\"] }}]\n"));
    let error = LabFile::parse("x.toml", &text).unwrap_err().to_string();
    assert!(error.contains("the quick form measures no cell at rtt=2ms"), "{error}");
}

#[test]
fn a_failed_baseline_ranks_worst() {
    let lab = lab(1, 8, "");
    let half = results(&lab, |system, block| match (system, block % 2) {
        ("cubic", 0) => Verdict::Failed("it broke".to_owned()),
        ("cubic", _) => measured(20.0),
        _ => measured(10.0),
    });
    let one = only(&half);
    assert_eq!((one.ratio.n, one.verdict), (8, results::Verdict::Undecided));
    assert_eq!(one.ratio.ci95, Some([0.5, f64::INFINITY]));
}

#[test]
fn a_metric_that_one_system_never_has_is_not_compared() {
    let lab = lab(1, 8, "");
    for without in ["cubic", "bbr"] {
        let run = results(&lab, |system, _| {
            if system == without { figure("loss_percent", 1.0) } else { measured(10.0) }
        });
        assert!(run.comparisons.is_empty(), "{without}: {:?}", run.comparisons);
    }
}

#[test]
fn a_comparison_without_a_verdict_has_the_range_of_its_ratios() {
    let run = results(&lab(1, 7, ""), |system, block| match system {
        "bbr" => late(20.0 + f64::from(block)),
        _ => measured(10.0),
    });
    let ratio = &only(&run).ratio;
    assert_eq!((ratio.range, ratio.n, ratio.ci95), (Some([2.0, 2.6]), 7, None));
    assert!((ratio.median - 2.3).abs() < 1e-9, "{ratio:?}");
    let five = results(&lab(1, 5, ""), |system, block| match system {
        "bbr" => measured(20.0 + f64::from(block)),
        _ => measured(10.0),
    });
    let ratio = &only(&five).ratio;
    assert_eq!((ratio.range, ratio.n, ratio.ci95), (Some([2.0, 2.4]), 5, None));
}

#[test]
fn a_lab_without_comparisons_compares_with_its_first_system() {
    let text = lab(2, 6, "").text();
    let (text, _) = text.split_once("[compare]").unwrap();
    let lab = LabFile::parse("x.toml", text).unwrap();
    let run = results(&lab, |system, _| measured(if system == "bbr" { 20.0 } else { 10.0 }));
    assert_eq!(run.comparisons.len(), 2);
    for one in &run.comparisons {
        assert_eq!((one.a.as_str(), one.b.as_str()), ("bbr", "cubic"));
        assert_eq!((one.metric.as_str(), one.ratio.median), ("goodput_mbit_s", 2.0));
    }
}

/// A row without noise takes its spread from the other rows of its metric, and nothing from another
/// metric.
#[test]
fn rows_share_the_spread_of_their_own_metric() {
    let width = |metrics: &str| {
        let text = lab(5, 6, "").text().replace("\"goodput_mbit_s\"]", metrics);
        let lab = LabFile::parse("x.toml", &text).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(8);
        let run = invented(&lab, |_, axes, _| {
            let mut around = |value: f64, spread: f64| {
                let sum: f64 = (0..3).map(|_| random.random::<f64>() * 2.0 - 1.0).sum();
                Some(value * (spread * sum).exp())
            };
            let mut measurement = Measurement::default();
            measurement.record("goodput_mbit_s", Some(10.0));
            let queue = if axes["rtt"] == "1ms" { 0.02 } else { 0.3 };
            measurement.record("queue_ms.p95", around(10.0, queue));
            measurement.record("retransmit_percent", around(1.0, 0.001));
            Verdict::Measured(Box::new(measurement))
        });
        let calm = run
            .comparisons
            .iter()
            .find(|one| one.metric == "queue_ms.p95" && one.axes["rtt"] == "1ms");
        let [low, high] = calm.unwrap().ratio.ci95.unwrap();
        (high / low).ln()
    };
    let alone = width("\"queue_ms.p95\"]");
    let beside = width("\"queue_ms.p95\", \"retransmit_percent\"]");
    assert!((0.7..1.4).contains(&(beside / alone)), "{alone} alone, {beside} beside");
}

#[test]
fn repeats_in_virtual_time_and_windows_have_no_correlation() {
    let lab = lab(1, 40, "");
    let drift = |_: &str, block| {
        let Verdict::Measured(mut measurement) = measured(10.0 + f64::from(block)) else {
            unreachable!()
        };
        for name in ["downloads", "idle_percent", "first_verdict_right"] {
            measurement.record(name, Some(f64::from(block % 20) / 20.0));
        }
        measurement
    };
    let real = results(&lab, |system, block| Verdict::Measured(drift(system, block)));
    let metrics: Vec<&str> = real.correlations.iter().map(|one| one.metric.as_str()).collect();
    assert!(
        !metrics.is_empty() && metrics.iter().all(|name| *name == "goodput_mbit_s"),
        "{metrics:?}"
    );
    let simulated = results(&lab, |system, block| {
        let mut measurement = drift(system, block);
        measurement.fingerprint = Some("f".to_owned());
        Verdict::Measured(measurement)
    });
    assert_eq!(simulated.correlations, []);
    let windows = LabFile::parse("x.toml", WINDOWS).unwrap();
    let run = results(&windows, |_, block| figure("capacity_pps", 8e6 + f64::from(block)));
    assert_eq!(run.correlations, []);
}

const WINDOWS: &str = r#"name = "x"
[axes]
rules = ["65536"]
[workload]
kind = "flow-rules"
set = "nat"
rules = "{rules}"
pmds = "1"
[[system]]
name = "weir-switch"
kind = "switch"
[[system]]
name = "ovs-dpdk"
kind = "switch"
optional = true
[form.full]
repeats = 7
duration = "1s"
[[primary]]
metric = "capacity_pps"
system = "weir-switch"
baseline = "ovs-dpdk"
at = { rules = "65536" }
[[compare]]
baseline = "ovs-dpdk"
metrics = ["capacity_pps"]
[[reference]]
system = "theirs"
systems = ["weir-switch", "ovs-dpdk"]
axes = { rules = "65536" }
metrics = { capacity_pps = 400000 }
source = "a report"
"#;
const RUNS: u64 = 150;
const MANY_RUNS: u64 = 2_000;
