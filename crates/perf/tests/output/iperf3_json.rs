//! Compares weir's JSON with the output of iperf3 3.12 on the same kernel, key by key.
//!
//! The fixtures are outputs of `iperf3 -J` over loopback, each with a single interval. Every JSON
//! path of a fixture must be in weir's output with the same type. Paths that only weir's output has
//! are named below, or lie under `weir`.

use crate::events::{Case, server_text, tcp, udp};
use perf::PerfError;
use perf::event::{Audience, End, Event, Role, ServerOutput};
use perf::options::{Amount, Direction, Protocol, TestOptions};
use perf::output::{Document, Json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use units::{Bytes, Rate};

#[test]
fn a_clients_json_has_the_keys_and_types_of_iperf3() {
    let client = |options| Case::new(Role::Client, options);
    for (name, case) in [
        ("tcp", client(tcp(Direction::Forward, 1))),
        ("tcp_reverse", client(tcp(Direction::Reverse, 1))),
        ("tcp_bidir", client(tcp(Direction::Both, 1))),
        ("tcp_parallel", client(tcp(Direction::Forward, 2))),
        ("tcp_options", client(with_options())),
        ("tcp_titled", client(titled(tcp(Direction::Forward, 1)))),
        ("tcp_server_output", with_output(client(tcp(Direction::Forward, 1)), server_text())),
        ("udp", client(udp(Direction::Forward, 1))),
        ("udp_reverse", client(udp(Direction::Reverse, 1))),
        ("udp_bidir", client(udp(Direction::Both, 2))),
        ("udp_parallel", with_output(client(titled(udp(Direction::Forward, 2))), server_text())),
    ] {
        compare(name, &fixture(name), &document(&case));
    }
}

#[test]
fn a_servers_json_has_the_keys_and_types_of_iperf3() {
    for (name, case) in [
        ("server_tcp_bidir", Case::new(Role::Server, tcp(Direction::Both, 2))),
        ("server_udp_bidir", Case::new(Role::Server, udp(Direction::Both, 1))),
    ] {
        compare(name, &fixture(name), &document(&case));
    }
}

#[test]
fn the_clients_json_contains_the_servers_json_output() {
    let server = document(&Case::new(Role::Server, tcp(Direction::Forward, 1)));
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let case = with_output(case, ServerOutput::Json(server));
    compare("tcp_json_server_output", &fixture("tcp_json_server_output"), &document(&case));
}

#[test]
fn a_failure_before_the_server_replies_gives_a_json_document() {
    let error = PerfError::Refused { peer: "127.0.0.1:5399".to_owned() };
    let mut json = Json::new(Vec::new());
    json.event(&Event::Failed(&error));
    let ours: Value = serde_json::from_slice(&json.finish().unwrap()).unwrap();
    compare("refused", &fixture("refused"), &ours);
    assert_eq!(ours["end"], json!({}));
    assert_eq!(ours["error"], error.to_string());
}

#[test]
fn a_failed_test_keeps_its_measurements_in_the_json() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let mut document = Document::default();
    document.event(&Event::Started(&case.started));
    document.event(&Event::Interval(&case.intervals[0]));
    document.event(&Event::Failed(&PerfError::EndedByPeer { peer: "far".to_owned() }));
    let value = document.value();
    assert_eq!(value["intervals"].as_array().unwrap().len(), 1);
    assert_eq!(value["start"]["connecting_to"]["host"], "far.example");
    assert_eq!(value["error"], "far ended the test");
}

#[test]
fn json_paths_that_scripts_read_hold_their_values() {
    let value = document(&Case::new(Role::Client, tcp(Direction::Forward, 2)));
    let end = &value["end"];
    assert_eq!(end["sum_sent"]["bytes"], 150_208_512_u64 + 150_208_512 / 3);
    assert_eq!(end["sum_sent"]["retransmits"], 24);
    assert_eq!(end["sum_received"]["seconds"], 3.001);
    assert_eq!(end["streams"][0]["sender"]["mean_rtt"], 2370);
    assert_eq!(end["cpu_utilization_percent"]["host_total"], 12.1);
    assert_eq!(end["receiver_tcp_congestion"], "bbr");
    assert_eq!(value["intervals"][0]["sum"]["seconds"], 1);
    assert_eq!(value["start"]["timestamp"]["time"], "Sat, 21 Nov 2026 07:05:21 GMT");
    let limits = &value["weir"]["limited_by"];
    assert_eq!(limits["receive_window_percent"], 5);
    assert_eq!(limits["application_percent"].as_f64().unwrap().round(), 2.0);
}

#[test]
fn a_udp_sender_counts_datagrams_unknown_to_the_receiver() {
    let value = document(&Case::new(Role::Client, udp(Direction::Forward, 1)));
    let end = &value["end"];
    assert_eq!(end["sum_sent"]["packets"], 5178);
    assert_eq!(end["sum_received"]["packets"], 5177);
    assert_eq!(end["sum"]["lost_packets"], 2);
    assert_eq!(end["streams"][0]["udp"]["out_of_order"], 9);
    assert_eq!(value["weir"]["streams"][0]["datagrams"]["duplicates"], 1);
}

#[test]
fn a_test_that_broke_off_gives_a_single_complete_document() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let error = PerfError::EndedByPeer { peer: "far".to_owned() };
    let mut out = Vec::new();
    let mut json = Json::new(&mut out);
    case.tell(|event| json.event(event));
    json.event(&Event::Failed(&error));
    json.finish().unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["error"], "far ended the test");
    assert!(value["end"]["sum_sent"].is_object());
    // A server drops its clients' audiences without `finish`.
    out.clear();
    let mut json = Json::new(&mut out);
    case.tell(|event| json.event(event));
    case.tell(|event| json.event(event));
    drop(json);
    let documents = serde_json::Deserializer::from_slice(&out).into_iter::<Value>();
    assert_eq!(documents.map(Result::unwrap).count(), 2);
}

#[test]
fn values_that_the_peer_did_not_report_are_left_out() {
    for mut options in [tcp(Direction::Forward, 1), tcp(Direction::Forward, 2)] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            options.protocol = protocol;
            let mut case = Case::new(Role::Client, options.clone());
            case.ended.remote_cpu = None;
            for stream in &mut case.ended.streams {
                stream.received = End::default();
                stream.datagrams = None;
            }
            let end = &document(&case)["end"];
            assert!(end["sum_sent"].is_object() && end.get("sum_received").is_none());
            assert!(end["cpu_utilization_percent"].get("remote_total").is_none());
            assert!(end["streams"][0].get("receiver").is_none());
        }
    }
}

fn document(case: &Case) -> Value {
    let mut json = Json::new(Vec::new());
    case.tell(|event| json.event(event));
    serde_json::from_slice(&json.finish().unwrap()).unwrap()
}

fn with_options() -> TestOptions {
    TestOptions {
        amount: Amount::Blocks(10),
        window: Some(Bytes::new(102_400)),
        mss: Some(1000),
        kernel_rate: Some(Rate::from_mbit(100)),
        ..tcp(Direction::Forward, 1)
    }
}

fn titled(options: TestOptions) -> TestOptions {
    TestOptions { title: Some("tt".to_owned()), extra_data: Some("xx".to_owned()), ..options }
}

fn with_output(mut case: Case, output: ServerOutput) -> Case {
    case.ended.server_output = Some(output);
    case
}

fn fixture(name: &str) -> Value {
    let file = format!("{}/tests/fixtures/iperf3/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn compare(name: &str, theirs: &Value, ours: &Value) {
    let (theirs, ours) = (paths(theirs), paths(ours));
    let mut wrong = Vec::new();
    for (path, kind) in &theirs {
        match ours.get(path) {
            None => wrong.push(format!("{path} is missing")),
            Some(other) if other != kind => {
                wrong.push(format!("{path} is {other:?}, not {kind:?}"));
            }
            Some(_) => {}
        }
    }
    for path in ours.keys().filter(|path| !theirs.contains_key(*path)) {
        let known = OURS_ALONE.iter().any(|known| path.ends_with(known));
        if !path.contains(".weir") && !known {
            wrong.push(format!("{path} is new"));
        }
    }
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

/// Returns each JSON path with the type of its value. All elements of an array have the same path.
fn paths(value: &Value) -> BTreeMap<String, &'static str> {
    fn walk(value: &Value, path: &str, paths: &mut BTreeMap<String, &'static str>) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        paths.insert(path.to_owned(), kind);
        match value {
            Value::Array(each) => {
                each.iter().for_each(|one| walk(one, &format!("{path}[]"), paths))
            }
            Value::Object(map) => {
                map.iter().for_each(|(key, one)| walk(one, &format!("{path}.{key}"), paths));
            }
            _ => {}
        }
    }
    let mut paths = BTreeMap::new();
    walk(value, "", &mut paths);
    paths
}

/// JSON paths that only weir's output has. The first three paths are from later versions of iperf3.
/// A weir server gets the other values from its client; iperf3's server leaves them out.
const OURS_ALONE: &[&str] = &[
    ".fq_rate",
    ".test_start.bidir",
    ".test_start.fqrate",
    ".end.sum_sent.retransmits",
    ".end.sender_tcp_congestion",
    ".end.receiver_tcp_congestion",
    ".sender.retransmits",
    ".sender.max_snd_cwnd",
    ".sender.max_snd_wnd",
    ".sender.max_rtt",
    ".sender.min_rtt",
    ".sender.mean_rtt",
];
