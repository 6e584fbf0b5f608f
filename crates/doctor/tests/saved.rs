//! Results that other verbs saved. The documents here are synthetic.
#![allow(clippy::unwrap_used)]

use doctor::observe::Focus;
use doctor::{Diagnosis, Question, VerdictKind, diagnose, saved};
use serde_json::{Value, json};
use std::path::Path;

/// Builds a test of `weir perf` with one stream of 100 Mbit/s over 20 ms.
fn perf(info: impl Fn(u64) -> Value, busy: f64) -> Value {
    let interval = |at: u64| {
        let mut tcp = json!({"rtt_us": 20_100, "min_rtt_us": 20_000, "rto_us": 220_000,
            "cwnd_bytes": 362_000, "unacked_segments": 170, "notsent_bytes": 90_000,
            "delivery_rate_bits_per_second": 100_000_000, "delivery_rate_app_limited": false,
            "busy_us": 1_000_000 * (at + 1), "receive_window_limited_us": 0,
            "send_buffer_limited_us": 0, "reorder_seen": 0});
        merge(&mut tcp, &info(at));
        json!({"streams": [{"socket": 1, "start": at, "end": at + 1, "seconds": 1.0,
                "bytes": 12_500_000, "retransmits": 0, "snd_cwnd": 362_000,
                "snd_wnd": 3_000_000, "rtt": 20_100, "rttvar": 50, "pmtu": 1500,
                "omitted": false, "sender": true}],
            "sum": {"omitted": false},
            "weir": {"cpu": {"user_percent": 1.0, "system_percent": busy,
                    "cores": [{"core": 0, "busy_percent": busy, "softirq_percent": 0.0},
                        {"core": 1, "busy_percent": 2.0, "softirq_percent": 1.0}]},
                "streams": [{"socket": 1, "tcp_info": tcp}]}})
    };
    json!({"start": {"connected": [{"socket": 1, "local_host": "10.0.0.1", "local_port": 4000,
                "remote_host": "10.0.0.2", "remote_port": 5201}],
            "system_info": "Linux board 6.1.0-28 #1", "tcp_mss_default": 1448,
            "connecting_to": {"host": "10.0.0.2", "port": 5201},
            "test_start": {"protocol": "TCP", "num_streams": 1}},
        "intervals": (0..5).map(interval).collect::<Vec<_>>(),
        "end": {"streams": [{"sender": {"socket": 1, "sender": true}}],
            "sender_tcp_congestion": "cubic",
            "cpu_utilization_percent": {"host_user": 1.0, "host_system": busy,
                "remote_user": 1.0, "remote_system": 10.0}},
        "weir": {"peer_is_weir": true, "cpu": {"remote": {"cores": []}}}})
}

fn merge(into: &mut Value, other: &Value) {
    for (key, value) in other.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn judged(folder: &Path, file: &str, document: &Value) -> Diagnosis {
    let path = folder.join(file);
    std::fs::write(&path, document.to_string()).unwrap();
    let recording = saved::open(&path, &Focus::All).unwrap();
    diagnose(&recording, Question::of(&recording))
}

#[test]
fn a_saved_test_is_judged_by_its_saved_signals() {
    let folder = tempfile::tempdir().unwrap();
    let window = |at: u64| json!({"receive_window_limited_us": 900_000 * (at + 1)});
    let diagnosis = judged(folder.path(), "results.json", &perf(window, 5.0));
    assert_eq!(diagnosis.verdict.cause, Some("receiver-window"), "{:?}", diagnosis.verdict);
    assert_eq!(diagnosis.kernel, "6.1.0-28");
    let text = doctor::output::text(&diagnosis, 100, true);
    for part in
        ["10.0.0.1:4000 → 10.0.0.2:5201", "weir perf", "interfaces and queueing disciplines"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let flow = &diagnosis.periods[0].flows[0];
    assert_eq!(flow.rate.mbit_per_second().round() as u64, 100);
    // Signals that were not saved rule nothing out.
    let by_absence = |cause: &str| flow.ruled_out.iter().any(|one| one.cause == cause);
    for cause in ["quota", "disk", "link", "cpu-contention"] {
        assert!(!by_absence(cause), "{cause}: {:?}", flow.ruled_out);
    }
}

#[test]
fn a_saved_test_shows_the_limits_by_application_cpu_and_path() {
    let folder = tempfile::tempdir().unwrap();
    let cause = |info: &dyn Fn(u64) -> Value, busy: f64| {
        judged(folder.path(), "results.json", &perf(info, busy)).verdict.cause
    };
    assert_eq!(
        cause(&|_| json!({"notsent_bytes": 0, "unacked_segments": 20}), 5.0),
        Some("application")
    );
    assert_eq!(cause(&|_| json!({"notsent_bytes": 0}), 99.0), Some("cpu"));
    assert_eq!(cause(&|_| json!({"rtt_us": 40_000}), 5.0), Some("path"));
}

/// Each sample has the cores of the sample before.
#[test]
fn a_small_file_with_many_cores_and_intervals_makes_no_huge_recording() {
    let mut document = perf(|_| json!({}), 5.0);
    let core = |core: u32| json!({"core": core, "busy_percent": 1.0});
    let mut intervals = vec![json!({"streams": [{"seconds": 1.0}]}); 4000];
    intervals[0]["weir"] = json!({"cpu": {"cores": (0..4096).map(core).collect::<Vec<_>>()}});
    document["intervals"] = json!(intervals);
    let recording = saved::parse(&document.to_string(), None).unwrap();
    let samples = &recording.periods[0].samples;
    let entries: usize = samples.iter().map(|sample| sample.cores.len()).sum();
    assert!(samples.len() > 100 && entries < 600_000, "{} {entries}", samples.len());
    assert!(recording.unseen.iter().any(|unseen| unseen.what == "the end of the test"));
}

#[test]
fn a_saved_test_names_connections_and_cores_beyond_the_bounds() {
    let mut document = perf(|_| json!({}), 5.0);
    let stream = document["start"]["connected"][0].clone();
    document["start"]["connected"] = json!(vec![stream; 257]);
    let core = |core: u32| json!({"core": core, "busy_percent": 1.0});
    let cores: Vec<_> = (0..4097).map(core).collect();
    document["intervals"][0]["weir"]["cpu"]["cores"] = json!(cores);
    let recording = saved::parse(&document.to_string(), None).unwrap();
    for what in ["further connections", "further cores"] {
        let is_named = recording.unseen.iter().any(|unseen| unseen.what == what);
        assert!(is_named, "{what}: {:?}", recording.unseen);
    }
}

/// The client and the server of the test run on the same machine: the result has neither the
/// server's process nor other programs.
#[test]
fn full_cores_of_a_saved_test_are_the_limit_whichever_programs_fill_them() {
    let folder = tempfile::tempdir().unwrap();
    let judge = |other: f64, own: f64, softirq: f64| {
        let mut document =
            perf(|_| json!({"rtt_us": 750, "min_rtt_us": 150, "notsent_bytes": 90_000}), own);
        for interval in document["intervals"].as_array_mut().unwrap() {
            let cores = interval["weir"]["cpu"]["cores"].as_array_mut().unwrap();
            for core in cores {
                let number = core["core"].clone();
                *core = json!({"core": number, "busy_percent": other, "softirq_percent": softirq});
            }
        }
        judged(folder.path(), "results.json", &document).verdict
    };
    let full = judge(100.0, 14.0, 5.0);
    assert_eq!((full.kind, full.cause), (VerdictKind::Limited, Some("cpu")), "{full:?}");
    assert!(full.sentence.contains("all cores of this machine"), "{}", full.sentence);
    assert_ne!(judge(60.0, 14.0, 5.0).cause, Some("cpu"));
    // The test itself uses little CPU time; the packets of other programs use more.
    assert_ne!(judge(100.0, 2.0, 5.0).cause, Some("cpu"));
    assert_ne!(judge(100.0, 2.0, 30.0).cause, Some("cpu"));
}

#[test]
fn the_softirqs_of_a_far_core_count_once_as_work_of_the_test() {
    let folder = tempfile::tempdir().unwrap();
    let judge = |server: f64, softirq: f64| {
        let mut document = perf(|_| json!({}), 5.0);
        let core = json!({"core": 0, "busy_percent": 99.0, "softirq_percent": softirq});
        document["weir"]["cpu"]["remote"]["cores"] = json!([core]);
        document["end"]["cpu_utilization_percent"]["remote_system"] = json!(server);
        judged(folder.path(), "results.json", &document).verdict.cause
    };
    assert_eq!(judge(30.0, 60.0), Some("cpu"));
    assert_ne!(judge(30.0, 2.0), Some("cpu"));
    // The server's time includes softirqs of the core: other programs use more than half of it.
    assert_ne!(judge(25.0, 25.0), Some("cpu"));
    assert_eq!(judge(98.0, 30.0), Some("cpu"));
}

#[test]
fn a_result_of_iperf3_has_fewer_signals() {
    let folder = tempfile::tempdir().unwrap();
    let mut stock = perf(|_| json!({}), 5.0);
    stock.as_object_mut().unwrap().remove("weir");
    for interval in stock["intervals"].as_array_mut().unwrap() {
        interval.as_object_mut().unwrap().remove("weir");
    }
    let diagnosis = judged(folder.path(), "iperf3.json", &stock);
    assert_eq!(diagnosis.verdict.kind, VerdictKind::NotEnoughEvidence, "{:?}", diagnosis.verdict);
    assert!(diagnosis.not_seen.iter().any(|one| one.reason.contains("weir perf")));
}

#[test]
fn a_result_without_tcp_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |document: &Value| {
        let path = folder.path().join("results.json");
        std::fs::write(&path, document.to_string()).unwrap();
        saved::open(&path, &Focus::All).unwrap_err().to_string()
    };
    let udp = json!({"start": {"test_start": {"protocol": "UDP"}}, "end": {}});
    assert!(refused(&udp).contains("UDP"));
    let broken = json!({"start": {"connected": []}, "end": {}, "error": "refused\u{1b}"});
    let message = refused(&broken);
    assert!(message.contains("refused") && !message.contains('\u{1b}'), "{message}");
    assert!(refused(&json!({"weir": 1})).contains("cannot be judged"));
    assert!(refused(&json!([])).contains("cannot be judged"));
}

/// Builds a lab of two cells: one limited by the receiver's window, one with a full machine.
fn lab() -> (Value, String) {
    let cell = |rtt: &str| json!({"system": "tcp", "axes": {"rtt": rtt}});
    let results = json!({"lab": "example", "valid": true,
        "method": {"measured for": "3s", "left out at the start": "500ms"},
        "environment": {"kernel_release": "6.1.0", "workload_cpus": [0, 1], "cores_online": [0, 1]},
        "cells": [cell("20ms"), cell("1ms"), cell("7ms")]});
    let line = |name: &str, value: f64| json!({"name": name, "unit": "", "values": [null, value, value, value]});
    let series = |name: &str, lines: Vec<Value>| json!({"name": name, "time_s": [0.6, 1.6, 2.6, 3.6], "lines": lines});
    let turn = |rtt: &str, window: f64, idle: f64, invalid: Value| {
        json!({"system": "tcp", "axes": {"rtt": rtt}, "block": 0, "measured": {
            "metrics": {"goodput_mbit_s": {"value": 100.0}, "idle_percent": {"value": idle},
                "steal_percent": {"value": 0.0}, "cpu_softirq_percent": {"value": 20.0},
                "retransmit_percent": {"value": 0.0}},
            "congestion_control": "cubic", "invalid": invalid,
            "series": [series("throughput", vec![line("acknowledged", 100.0)]),
                series("rtt", vec![line("smoothed", if rtt == "1ms" { 1.1 } else { 20.0 })]),
                series("cwnd", vec![line("congestion window", 900.0)]),
                series("limited_by", vec![line("congestion control", 100.0 - window),
                    line("receiver's window", window), line("send buffer", 0.0), line("application", 0.0)])]}})
    };
    let turns = [
        turn("20ms", 0.0, 90.0, json!([{"what": "late"}])),
        turn("20ms", 95.0, 90.0, json!([])),
        turn("1ms", 0.0, 2.0, json!([])),
    ];
    let journal = turns.map(|turn| turn.to_string()).join("\n") + "\n{\"cut";
    (results, journal)
}

#[test]
fn each_cell_of_a_lab_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let (results, journal) = lab();
    std::fs::write(folder.path().join("journal.jsonl"), journal).unwrap();
    let diagnosis = judged(folder.path(), "results.json", &results);
    let causes: Vec<_> = diagnosis.periods.iter().map(|p| p.flows[0].causes[0].cause).collect();
    assert_eq!(causes, ["receiver-window", "cpu"], "{:?}", diagnosis.periods);
    let sentence = &diagnosis.verdict.sentence;
    assert!(sentence.starts_with("The limits of the 2 cells"), "{sentence}");
    let text = doctor::output::text(&diagnosis, 100, true);
    for part in [
        "tcp, rtt 20ms",
        "sender → receiver",
        "1 cell: no valid turn",
        "tcp, rtt 7ms",
        "median rate",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The rate of the emulated link is an axis. The system `tunnel` carries the connection, so the
/// sender's kernel sees only the way to the tunnel's client.
#[test]
fn cells_of_a_lab_show_a_full_link_and_a_full_thread_of_a_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let cell = |system: &str, rate: &str| json!({"system": system, "axes": {"rate": rate}});
    let turn = |system: &str, rate: &str, mbit: f64, metrics: Value| {
        let line = |name: &str, value: f64| json!({"name": name, "values": [null, value, value]});
        let mut all = json!({"goodput_mbit_s": {"value": mbit}, "idle_percent": {"value": 40.0}});
        merge(&mut all, &metrics);
        json!({"system": system, "axes": {"rate": rate}, "measured": {"metrics": all, "invalid": [],
            "series": [{"name": "throughput", "time_s": [0.0, 1.0, 2.0],
                "lines": [line("acknowledged", mbit)]},
                {"name": "limited_by", "lines": [line("receiver's window", 100.0),
                    line("congestion control", 0.0), line("send buffer", 0.0)]}]}})
    };
    let thread = |side: &str| {
        json!({format!("threads_at_work.{side}"): {"value": 1.0},
               format!("cpu_percent.{side}"): {"value": 98.0}})
    };
    let turns = [
        turn("tcp", "100mbit", 94.1, json!({})),
        turn("tunnel", "600mbit", 240.0, json!({})),
        turn("tunnel", "10gbit", 900.0, thread("client")),
        turn("tunnel", "20gbit", 900.0, thread("server")),
        turn("tunnel", "600mbit", 561.0, json!({})),
        turn("tunnel", "600mbit", 563.0, json!({})),
    ];
    let journal = turns.map(|turn| turn.to_string()).join("\n");
    let cells =
        [("tcp", "100mbit"), ("tunnel", "10gbit"), ("tunnel", "20gbit"), ("tunnel", "600mbit")];
    let results = json!({"lab": "example", "method": {},
        "environment": {"workload_cpus": [0, 1], "cores_online": [0, 1],
            "systems": {"tunnel": {"connect": "127.0.0.1:6500"}}},
        "cells": cells.map(|(system, rate)| cell(system, rate))});
    std::fs::write(folder.path().join(saved::JOURNAL), &journal).unwrap();
    let diagnosis = judged(folder.path(), "results.json", &results);
    let first = |diagnosis: &Diagnosis| -> Vec<(String, Option<&'static str>)> {
        let of = |period: &doctor::PeriodReport| {
            let cause = period.flows[0].causes.iter().find(|one| one.finding.explains.is_some());
            (period.label.clone(), cause.map(|one| one.cause))
        };
        diagnosis.periods.iter().map(of).collect()
    };
    let causes: Vec<_> = first(&diagnosis).into_iter().map(|(_, cause)| cause).collect();
    let expected = [Some("link"), Some("cpu"), Some("cpu"), Some("link")];
    assert_eq!(causes, expected, "{:?}", diagnosis.periods);
    assert!(diagnosis.not_seen.iter().any(|one| one.what == "connections between tunnels"));
    let text = doctor::output::text(&diagnosis, 200, false);
    assert!(text.contains("tunnel, rate 600mbit, 561 Mbit/s: the link is full"), "{text}");

    // A run that was stopped has a journal and no results.
    let alone = saved::open(&folder.path().join(saved::JOURNAL), &Focus::All).unwrap();
    let stopped = diagnose(&alone, Question::of(&alone));
    assert_eq!(stopped.periods.len(), 4);
    assert!(first(&stopped).contains(&("tcp, rate 100mbit".to_owned(), Some("link"))));
}

#[test]
fn a_lab_names_cells_turns_and_cores_beyond_the_bounds() {
    let (mut results, journal) = lab();
    let cells = results["cells"].as_array_mut().unwrap();
    cells.extend((0..1000).map(|at| json!({"system": "none", "axes": {"at": at}})));
    results["environment"]["workload_cpus"] = json!((0..513).collect::<Vec<u32>>());
    let journal = journal + "\n" + &"cut\n".repeat(65_536);
    let recording = saved::parse(&results.to_string(), Some(&journal)).unwrap();
    for what in ["further cells", "further cores", "the last 4 turns"] {
        let is_named = recording.unseen.iter().any(|unseen| unseen.what == what);
        assert!(is_named, "{what}: {:?}", recording.unseen);
    }
    // A run that was stopped names its cells in its turns.
    let turn = |at: u32| json!({"system": "tcp", "axes": {"at": at}}).to_string() + "\n";
    let (_, first) = lab();
    let journal = first.lines().nth(1).unwrap().to_owned() + "\n";
    let journal = journal + &(0..1000).map(turn).collect::<String>();
    let stopped = saved::parse("null", Some(&journal)).unwrap();
    assert!(stopped.unseen.iter().any(|unseen| unseen.what == "further cells"));
}

#[test]
fn a_lab_without_runs_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    std::fs::write(&path, lab().0.to_string()).unwrap();
    assert!(saved::open(&path, &Focus::All).unwrap_err().to_string().contains("journal.jsonl"));
    std::fs::write(folder.path().join("journal.jsonl"), "").unwrap();
    assert!(
        saved::open(&path, &Focus::All).unwrap_err().to_string().contains("valid turn with a rate")
    );
}
