use crate::device::{ip, json, link, start_switch};
use crate::support::{CommandOutput, Sandbox};
use serde_json::Value;
use testing::Attempt;

const QUICK: [&str; 12] = [
    "gen",
    "ndr",
    "--port",
    "gen0",
    "--port",
    "gen1",
    "--trial",
    "400ms",
    "--sum",
    "4s",
    "--no-latency",
    "--json",
];

fn take_down(sandbox: &Sandbox, device: crate::support::Running) {
    device.signal("INT");
    device.end();
    ip(sandbox, "link del gen0");
    ip(sandbox, "link del gen1");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Returns the goals of the only packet size, or the reason why the search is invalid.
fn goals(output: &CommandOutput) -> Result<Vec<Value>, String> {
    let document = json(&output.stdout);
    if document["valid"] != true {
        assert_eq!(output.status.code(), Some(1), "{document}");
        let reason = document["sizes"][0]["stopped"].to_string();
        assert_ne!(reason, "null", "{document}");
        return Err(reason);
    }
    assert_eq!(output.status.code(), Some(0), "{document}");
    Ok(document["sizes"][0]["goals"].as_array().unwrap().clone())
}

/// Runs a search, and returns whether it was valid. A valid search's goals must be right. On a
/// stalled machine the device may deliver too late, so a disturbed search is repeated.
fn finds(sandbox: &Sandbox, words: &[&str], is_right: impl Fn(&[Value]) -> bool) -> bool {
    let found = testing::undisturbed("search for the highest lossless rate", |_| {
        match goals(&sandbox.weir(&[&QUICK[..], words].concat())) {
            Ok(goals) if is_right(&goals) => Attempt::Right(()),
            Ok(goals) => Attempt::Wrong(format!("{goals:?}")),
            Err(reason) => Attempt::Invalid(reason),
        }
    });
    found.is_some()
}

/// Whether the goal's rate is the link's capacity, within this relative error.
fn is_capacity(goal: &Value, off: f64) -> bool {
    let found = goal["ndr_pps"].as_f64();
    found.is_some_and(|found| (found / 12_345.0 - 1.0).abs() < off)
}

#[test]
fn the_capacity_of_a_link_is_found_within_one_percent() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    // The link carries 12,345 frames of 60 bytes a second.
    let device = link(&sandbox, &["--rate", "5925600bit", "--queue", "droptail:30p"]);
    let words = ["--no-back-to-back", "--max-rate", "40k", "--report", "ndr.md"];
    if finds(&sandbox, &words, |goals| goals.iter().all(|goal| is_capacity(goal, 0.01))) {
        assert!(sandbox.read("ndr.md").contains("| 64 | no loss | 12"));
    }
    take_down(&sandbox, device);
}

/// A port of the switch carries 100 Mbit/s: 8,256 frames of 1514 bytes a second. Beside other tests
/// the switch's thread may wait for a CPU and lose frames at that rate. This test therefore checks
/// only the upper bound; `twenty_of_twenty_searches_find_a_switch_port_s_capacity` checks both
/// bounds.
#[test]
fn no_search_finds_more_than_a_switch_port_carries() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = start_switch(&sandbox, "in_port=1 actions=output:2\n", PORT_OF_100_MBIT);
    let size = ["--size", "1518", "--no-back-to-back", "--max-rate", "20k", "--goal", "0"];
    let is_bounded = |found: f64| found < PORT_PPS * 1.01;
    finds(&sandbox, &size, |goals| goals[0]["ndr_pps"].as_f64().is_some_and(is_bounded));
    take_down(&sandbox, device);
}

/// Makes 20 searches. Every valid search must find the capacity.
fn twenty_searches(sandbox: &Sandbox, capacity: f64, more: &[&str]) {
    let (mut right, mut found) = (0, Vec::new());
    let mut tries = 0;
    while found.len() < 20 && tries < 40 {
        tries += 1;
        let output = sandbox.weir(&[&QUICK[..], &["--no-back-to-back"], more].concat());
        let Ok(goals) = goals(&output) else { continue };
        let rate = goals[0]["ndr_pps"].as_f64().unwrap();
        right += usize::from((rate / capacity - 1.0).abs() < 0.01);
        found.push(rate);
    }
    println!("{right} of {} within 1 % of {capacity}; {tries} runs: {found:.0?}", found.len());
    assert_eq!((right, found.len()), (20, 20));
}

#[test]
#[ignore = "it takes half an hour"]
fn twenty_of_twenty_searches_find_a_link_s_capacity() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(&sandbox, &["--rate", "5925600bit", "--queue", "droptail:30p"]);
    twenty_searches(&sandbox, 12_345.0, &["--max-rate", "40k", "--goal", "0"]);
    take_down(&sandbox, device);
}

#[test]
#[ignore = "it takes half an hour"]
fn twenty_of_twenty_searches_find_a_switch_port_s_capacity() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = start_switch(&sandbox, "in_port=1 actions=output:2\n", PORT_OF_100_MBIT);
    let size = ["--size", "1518", "--max-rate", "20k", "--goal", "0"];
    twenty_searches(&sandbox, PORT_PPS, &size);
    take_down(&sandbox, device);
}

#[test]
fn a_deep_queue_does_not_raise_the_lossless_rate() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(&sandbox, &["--rate", "5925600bit", "--queue", "droptail:4000p"]);
    let words = ["--no-back-to-back", "--max-rate", "20k", "--goal", "0"];
    finds(&sandbox, &words, |goals| is_capacity(&goals[0], 0.015));
    take_down(&sandbox, device);
}

#[test]
fn random_loss_leaves_no_lossless_rate() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(
        &sandbox,
        &["--rate", "5925600bit", "--queue", "droptail:30p", "--loss", "0.1%", "--seed", "3"],
    );
    let rates = ["--no-back-to-back", "--max-rate", "20k", "--min-rate", "9k"];
    finds(&sandbox, &rates, |goals| {
        let verdict = goals[0]["verdict"].as_str().unwrap_or_default();
        let is_none = verdict.contains("no lossless rate down to the minimum load");
        is_none && is_capacity(&goals[1], 0.01)
    });
    take_down(&sandbox, device);
}

#[test]
fn a_slow_generator_and_a_dead_device_end_the_search_with_the_reason() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let device = link(&sandbox, &["--rate", "5925600bit", "--queue", "droptail:30p"]);
    // No machine sends 500 million packets a second with one thread and packet sockets.
    let rates = ["--max-rate", "900mpps", "--min-rate", "500mpps"];
    let output = sandbox.weir(&[&QUICK[..], &rates].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json(&output.stdout);
    assert_eq!(document["valid"], false);
    let stopped = document["sizes"][0]["stopped"].as_str().unwrap();
    assert!(
        stopped.contains("did not keep its own load") || stopped.contains("dropped"),
        "{stopped}"
    );

    device.signal("KILL");
    device.end();
    finds(&sandbox, &["--max-rate", "2k", "--min-rate", "1k"], |goals| {
        let verdict = goals[1]["verdict"].as_str().unwrap_or_default();
        verdict.contains("down to the minimum load")
    });
    ip(&sandbox, "link del gen0");
    ip(&sandbox, "link del gen1");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

const PORT_OF_100_MBIT: &str = ",rate=100mbit,queue=droptail:64KiB";
const PORT_PPS: f64 = 100e6 / 8.0 / 1514.0;
