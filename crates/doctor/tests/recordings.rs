//! Recordings of other machines, and their verdicts.
#![allow(clippy::unwrap_used)]

use doctor::{Diagnosis, Question, Recording, VerdictKind, diagnose};
use serde_json::{Value, json};

#[test]
fn the_board_with_one_core_is_limited_by_its_cpu() {
    let recording = doctor::examples::open("slow-nic").unwrap();
    let diagnosis = diagnose(&recording, Question::of(&recording));
    let verdict = &diagnosis.verdict;
    assert_eq!((verdict.kind, verdict.cause), (VerdictKind::Limited, Some("cpu")), "{verdict:?}");
    for part in ["the only core", "63 % system", "36 % softirq", "439 Mbit/s of a 1 Gbit/s link"] {
        assert!(verdict.sentence.contains(part), "{part}: {}", verdict.sentence);
    }
    let text = doctor::output::text(&diagnosis, 100, true);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("RPS, RFS, XPS and more queues do not help"), "{text}");
    assert!(words.contains("Transcribed from the reference report"), "{text}");
    // The report's own counters show no errors.
    assert!(diagnosis.periods[0].machine.is_empty(), "{:?}", diagnosis.periods[0].machine);
}

/// Synthetic: an idle machine with many cores.
#[test]
fn an_idle_machine_with_one_or_512_cores_has_nothing_wrong() {
    for cores in [1, 512] {
        let times = |at: u64| -> serde_json::Map<String, Value> {
            let idle = json!({"idle": format!("{at}s"), "user": "0s", "system": "0s"});
            (0..cores).map(|core: u32| (core.to_string(), idle.clone())).collect()
        };
        let sample = |at: u64| {
            json!({"at": format!("{at}s"), "cores": times(at),
                   "counters": {"TcpRetransSegs": 7, "TcpExtIPReversePathFilter": 0}})
        };
        let diagnosis = judged(&json!([sample(0), sample(1), sample(3)]));
        assert_eq!(diagnosis.verdict.kind, VerdictKind::NothingWrong, "{:?}", diagnosis.verdict);
    }
}

/// Synthetic: every counter falls, as after a reset or a wrap, and names have control characters.
#[test]
fn reset_counters_and_strange_names_give_no_false_verdict() {
    let sample = |at: u64| {
        let count = 9_000_000 - at * 1_000_000;
        json!({"at": format!("{at}s"),
            "cores": {"0": {"idle": format!("{}s", 90 - at), "system": format!("{}s", 50 - at)}},
            "counters": {"TcpRetransSegs": count, "TcpExtListenOverflows": count,
                "TcpExtIPReversePathFilter": count, "UdpRcvbufErrors": count,
                "IpOutNoRoutes": count, "TcpAttemptFails": count},
            "interfaces": {"eth\u{1b}[31m0": {"received_drops": count, "carrier_changes": count}},
            "tasks": [{"pid": 1, "tid": 1, "name": "a\u{1b}]0;b\u{7}", "ran": format!("{}s", 20 - at)}]})
    };
    let diagnosis = judged(&json!([sample(0), sample(1), sample(2), sample(1), sample(3)]));
    assert_eq!(diagnosis.verdict.cause, None, "{:?}", diagnosis.verdict);
    let text = doctor::output::text(&diagnosis, 80, true) + &doctor::output::json(&diagnosis);
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
}

fn judged(samples: &Value) -> Diagnosis {
    let text = json!({"weir_recording": 1, "origin": "synthetic",
        "periods": [{"label": "x\u{1b}", "samples": samples}]})
    .to_string();
    let recording = Recording::parse(&text).unwrap();
    diagnose(&recording, Question::of(&recording))
}
