use std::fmt::Write;

use serde_json::{Value, json};

use super::bench::{LatencyAt, SizeResult, Stop};
use super::search::{GoalResult, Verdict};
use super::tester::Invalid;
use crate::Frequency;

pub fn text(results: &[(String, SizeResult)]) -> String {
    let mut out = answer(results);
    for (name, result) in results {
        let _ = writeln!(out, "frames of {name}:");
        for goal in &result.goals {
            let _ = writeln!(out, "  {:<20} {}", goal.goal.name(), verdict(goal));
        }
        for latency in &result.latency {
            let _ = writeln!(out, "  {}", latency_line(latency));
        }
        for line in remarks(result) {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// Builds the first line of the report: the rate of the first goal for each frame size.
fn answer(results: &[(String, SizeResult)]) -> String {
    let Some(goal) = results.iter().find_map(|(_, result)| result.goals.first()) else {
        return "no rate was found: the lines below have the reason\n".to_owned();
    };
    let rate = |(name, result): &(String, SizeResult)| {
        let found = match result.goals.first().map(|goal| &goal.verdict) {
            Some(Verdict::Found { lower, .. }) => lower.to_string(),
            Some(Verdict::AtMaximum { load } | Verdict::GeneratorLimited { load }) => {
                format!("≥ {load}")
            }
            Some(Verdict::BelowMinimum { load }) => format!("below {load}"),
            None => "not decided".to_owned(),
        };
        format!("{found} with frames of {name}")
    };
    let rates: Vec<String> = results.iter().map(rate).collect();
    format!("highest rate with {}: {}\n", goal.goal.name(), rates.join(", "))
}

/// Returns the report of RFC 2544 section 26 and RFC 9004 in Markdown.
pub fn markdown(results: &[(String, SizeResult)], environment: &[(String, String)]) -> String {
    let mut out = String::from("# Benchmark of a device\n\n");
    for (key, value) in environment {
        let _ = writeln!(out, "- {key}: {value}");
    }
    out.push_str(
        "\n## Throughput\n\nMLRsearch: the bounds are loads in packets a second; `forwarded` is the \
         conditional throughput.\n\n| frames | goal | lower | upper | forwarded | verdict |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, result) in results {
        for goal in &result.goals {
            let (lower, upper, forwarded) = numbers(goal);
            let show = |rate: Option<Frequency>| {
                rate.map_or_else(|| "–".to_owned(), |rate| format!("{:.0}", rate.events()))
            };
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} |",
                goal.goal.name(),
                show(lower),
                show(upper),
                show(forwarded),
                verdict(goal)
            );
        }
    }
    if results.iter().any(|(_, result)| !result.latency.is_empty()) {
        out.push_str(
            "\n## Latency\n\nAt parts of the first rate found, in microseconds.\n\n\
             | frames | load | p50 | p90 | p99 | p99.9 | max | lost |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for (name, result) in results {
            for at in &result.latency {
                let value =
                    |quantile: f64| at.trial.latency.value_at_quantile(quantile) as f64 / 1e3;
                let _ = writeln!(
                    out,
                    "| {name} | {} % | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {}{} |",
                    at.percent,
                    value(0.5),
                    value(0.9),
                    value(0.99),
                    value(0.999),
                    at.trial.latency.max() as f64 / 1e3,
                    at.trial.lost(),
                    if at.trial.invalid.is_some() { " (invalid)" } else { "" },
                );
            }
        }
    }
    if results.iter().any(|(_, result)| result.back_to_back.is_some()) {
        out.push_str(
            "\n## Back-to-back frames (RFC 9004)\n\n| frames | burst without loss | sent at | \
             corrected buffer |\n| --- | --- | --- | --- |\n",
        );
        for (name, result) in results {
            if let Some(burst) = &result.back_to_back {
                let least = if burst.at_maximum { "≥ " } else { "" };
                let _ = writeln!(
                    out,
                    "| {name} | {least}{:.0} | {} | {:.3} ms |",
                    burst.frames,
                    burst.rate,
                    burst.buffer.millis_f64()
                );
            }
        }
    }
    out.push_str("\n## Remarks\n\n");
    for (name, result) in results {
        for line in remarks(result) {
            let _ = writeln!(out, "- {name}: {line}");
        }
    }
    out
}

pub fn json(results: &[(String, SizeResult)]) -> Value {
    let sizes: Vec<Value> = results.iter().map(|(name, result)| size(name, result)).collect();
    json!({
        "valid": results.iter().all(|(_, result)| result.is_valid()),
        "sizes": sizes,
    })
}

fn size(name: &str, result: &SizeResult) -> Value {
    let goals: Vec<Value> = result
        .goals
        .iter()
        .map(|goal| {
            let (lower, upper, forwarded) = numbers(goal);
            let events = |rate: Option<Frequency>| rate.map(Frequency::events);
            json!({
                "goal": goal.goal.name(),
                "loss_percent": goal.goal.loss.percent(),
                "final_trial_s": goal.goal.final_trial.secs_f64(),
                "duration_sum_s": goal.goal.duration_sum.secs_f64(),
                "exceed_ratio": goal.goal.exceed.fraction(),
                "width": goal.goal.width.fraction(),
                "ndr_pps": events(lower),
                "upper_pps": events(upper),
                "forwarded_pps": events(forwarded),
                "generator_limited": matches!(goal.verdict, Verdict::GeneratorLimited { .. }),
                "verdict": verdict(goal),
            })
        })
        .collect();
    let latency: Vec<Value> = result
        .latency
        .iter()
        .map(|at| {
            let value = |quantile: f64| at.trial.latency.value_at_quantile(quantile) as f64 / 1e3;
            json!({
                "percent": at.percent,
                "load_pps": at.trial.load.events(),
                "valid": at.trial.invalid.is_none(),
                "lost": at.trial.lost(),
                "latency_us": {
                    "p50": value(0.5), "p90": value(0.9), "p99": value(0.99),
                    "p99.9": value(0.999), "max": at.trial.latency.max() as f64 / 1e3,
                },
            })
        })
        .collect();
    json!({
        "size": name,
        "valid": result.is_valid(),
        "goals": goals,
        "latency": latency,
        "back_to_back": result.back_to_back.map(|burst| json!({
            "frames": burst.frames,
            "rate_pps": burst.rate.events(),
            "at_maximum": burst.at_maximum,
            "buffer_ms": burst.buffer.millis_f64(),
        })),
        "trials": result.trials,
        "invalid_trials": result.invalid_trials,
        "invalid_kinds": result.invalid_kinds,
        "min_pps": result.lowest.events(),
        "max_pps": result.highest.events(),
        "max_taken_pps": result.taken.map(Frequency::events),
        "duplicates": result.duplicates,
        "reordered": result.reordered,
        "returned": result.returned,
        "foreign": result.foreign,
        "stopped": result.stopped.as_ref().map(stop),
    })
}

pub(super) fn verdict(goal: &GoalResult) -> String {
    let is_lossless = goal.goal.loss.is_zero();
    match goal.verdict {
        Verdict::Found { lower, upper, .. } => format!("{lower} (the next bound is {upper})"),
        Verdict::AtMaximum { load } => format!("≥ {load}, the highest load that was asked for"),
        Verdict::GeneratorLimited { load } => format!("≥ {load}, generator-limited"),
        Verdict::BelowMinimum { load } if is_lossless => {
            format!("no lossless rate down to the minimum load of {load}")
        }
        Verdict::BelowMinimum { load } => {
            format!("no rate with {} down to the minimum load of {load}", goal.goal.name())
        }
    }
}

fn numbers(goal: &GoalResult) -> (Option<Frequency>, Option<Frequency>, Option<Frequency>) {
    match goal.verdict {
        Verdict::Found { lower, upper, forwarded } => (Some(lower), Some(upper), Some(forwarded)),
        Verdict::AtMaximum { load } | Verdict::GeneratorLimited { load } => {
            (Some(load), None, Some(load))
        }
        Verdict::BelowMinimum { load } => (None, Some(load), None),
    }
}

fn latency_line(at: &LatencyAt) -> String {
    let value = |quantile: f64| at.trial.latency.value_at_quantile(quantile) as f64 / 1e3;
    let state = match &at.trial.invalid {
        Some(reason) => format!(" (invalid: {reason})"),
        None => String::new(),
    };
    format!(
        "latency at {} %      p50 {:.1} us, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}, {} lost{state}",
        at.percent,
        value(0.5),
        value(0.9),
        value(0.99),
        value(0.999),
        at.trial.latency.max() as f64 / 1e3,
        at.trial.lost(),
    )
}

fn remarks(result: &SizeResult) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(burst) = &result.back_to_back {
        let least = if burst.at_maximum { "at least " } else { "" };
        lines.push(format!(
            "back-to-back         {least}{:.0} frames at {}, a buffer of {:.3} ms",
            burst.frames,
            burst.rate,
            burst.buffer.millis_f64()
        ));
    }
    let kinds: Vec<_> =
        result.invalid_kinds.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
    lines.push(format!(
        "{} trials, {} of them invalid and repeated{}; loads from {} to {}",
        result.trials,
        result.invalid_trials,
        if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) },
        result.lowest,
        result.highest
    ));
    if let Some(taken) = result.taken {
        lines.push(format!(
            "when the highest load was found, the device took {taken} and its ring was full: the \
             generator's rate into a faster device is not known"
        ));
    }
    let counts = [
        (result.duplicates, "packets came twice"),
        (result.reordered, "packets came out of order"),
        (result.returned, "packets came back at the port that had sent them, which is a loss"),
        (result.foreign, "frames were not the generator's"),
    ];
    for (count, what) in counts {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    if result.received == 0 && result.trials > result.invalid_trials {
        lines.push(
            "no packet arrived: check that the device is on, that it has rules or routes for these \
             packets, and that the ports are its own"
                .to_owned(),
        );
    }
    lines.extend(result.stopped.as_ref().map(stop));
    lines
}

fn stop(stop: &Stop) -> String {
    match stop {
        Stop::Cancelled => {
            "the test was cancelled; the goals without a verdict are open".to_owned()
        }
        Stop::Failed(problem) => format!(
            "INVALID: {problem}; the goals without a verdict are open: check the ports and repeat the \
             test"
        ),
        Stop::Silent { load, times } => format!(
            "INVALID: the device forwards nothing any more: every packet of {times} trials in sequence              was lost, the last ones at {load}, and it had forwarded packets at a load as high; the              goals without a verdict are open: check the device and repeat the test"
        ),
        Stop::Invalid { load, reason, times, in_sequence } => format!(
            "INVALID: {times} trials{} say nothing about the device; the last one at {load}: {reason}. \
             {}",
            if *in_sequence { " in sequence" } else { "" },
            match reason {
                Invalid::Port { .. } => "Check the other ends of the ports",
                _ =>
                    "Free this machine's CPUs, use fewer or more threads (-c), or lower --max-rate",
            }
        ),
    }
}
