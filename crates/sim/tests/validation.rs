//! Runs the validation of the simulator, and checks that the validation finds mistakes.

#![allow(clippy::unwrap_used)]

use sim::Flaw;
use sim::validate::{Case, Figures, Judgement, Middle, Verdict, cases};

/// The seeds of the runs. Fewer runs give no interval.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// Each seed's world runs on a thread of its own.
fn judged(case: &Case, flaw: Option<Flaw>) -> (Judgement, f64, f64) {
    let runs: Vec<Figures> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            SEEDS.map(|seed| scope.spawn(move || case.run_with(flaw, seed))).collect();
        let runs = runs.into_iter().map(|run| run.join().unwrap());
        runs.map(|run| run.unwrap_or_else(|| panic!("{} was not measured", case.name))).collect()
    });
    let measured: Vec<f64> = runs.iter().map(|run| run.measured).collect();
    let measured = stats::estimate(&measured).unwrap();
    let expected: Vec<f64> = runs.iter().map(|run| run.expected).collect();
    let expected = Middle { value: stats::median(&expected).unwrap(), ends: runs[0].expected_ends };
    let middle = Middle { value: measured.median, ends: measured.ci95 };
    (case.judge(expected, middle), expected.value, measured.median)
}

/// Runs repeat exactly, so a case that is undecided with these seeds is always undecided. The
/// interval of such a case is wider than its tolerance, so the case could not find a wrong model.
#[test]
fn every_validation_case_is_within_its_tolerance() {
    let mut off: Vec<&str> = Vec::new();
    for case in cases() {
        let (judged, expected, measured) = judged(&case, None);
        println!(
            "{:15} {:45} {expected:9.3} {measured:9.3} {:?} {:+.1} % ± {:.1} %",
            case.layer,
            case.name,
            judged.verdict,
            judged.difference * 100.0,
            judged.half_width.unwrap_or(f64::NAN) * 100.0,
        );
        if judged.verdict != Verdict::Within {
            off.push(case.name);
        }
    }
    assert!(off.is_empty(), "{off:?}");
}

/// For each mistake in the model, some case passes without the mistake and fails with the mistake.
/// The test tries first the cases in which the mistake matters most.
#[test]
fn each_mistake_in_the_model_fails_a_validation_case() {
    let mut cases = cases();
    for (flaw, likely) in [
        (Flaw::LongDelay, "a window of half"),
        (Flaw::NoPacing, "BBR alone"),
        (Flaw::WrongBeta, "CUBIC's response, 400 ms, 0.1 %"),
        (Flaw::NoSack, "Mathis by chance, reno, 1 %"),
    ] {
        cases.sort_by_key(|case| !case.name.starts_with(likely));
        let found = cases.iter().find(|case| {
            let (with, _, _) = judged(case, Some(flaw));
            with.verdict == Verdict::Off && judged(case, None).0.verdict == Verdict::Within
        });
        let found = found.unwrap_or_else(|| panic!("no row fails with {flaw:?}"));
        println!("{flaw:?}: {} fails", found.name);
    }
}
