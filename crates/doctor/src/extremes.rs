//! Tests that a recording with any value in any field causes no panic, no share outside 0 to 1, and
//! no control characters in the output.

use crate::recording::{Conntrack, Group, Listener, Qdisc, SocketLimit, UdpSocket};
use crate::rules::sketch::Sketch;
use crate::{Diagnosis, Question, Recording, diagnose, output};
use serde_json::{Value, json};
use units::{Bytes, Rate, Span};

/// Builds a recording in which most signals occur.
fn full() -> Value {
    let sketch = Sketch::new()
        .with_receiver(|_, _| {})
        .counter("TcpExtTCPRetransFail", 1)
        .counter("TcpExtListenOverflows", 1)
        .counter("TcpEstabResets", 1)
        .counter("TcpInErrs", 1)
        .counter("TcpExtTCPDSACKOldSent", 1)
        .counter("TcpExtTCPSynRetrans", 1)
        .counter("UdpNoPorts", 1)
        .counter("UdpInCsumErrors", 1)
        .counter("UdpOutDatagrams", 1)
        .counter("IpReasmReqds", 1)
        .counter("IpReasmFails", 1)
        .counter("IpInAddrErrors", 1)
        .counter("NeighbourTableFull", 1)
        .each(|at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "tbf".to_owned(),
                handle: "1:".to_owned(),
                sent: Bytes::new(at * 1000),
                drops: at,
                overlimits: at * 90,
                backlog: Bytes::new(3000),
                flow_limit: Some(Rate::from_mbit(400)),
            });
            sample.groups.push(Group {
                path: "/sys/fs/cgroup/x".to_owned(),
                pids: vec![7],
                granted: Some(Span::from_millis(10)),
                period: Some(Span::from_millis(100)),
                periods: at * 10,
                throttled: at,
                throttled_time: Span::from_millis(at),
            });
            sample.socket_limits.push(SocketLimit {
                path: "/sys/fs/cgroup/memory/x".to_owned(),
                pids: vec![7],
                most: Some(Bytes::new(262_144)),
                used: Some(Bytes::new(262_144)),
                refused: at * 9,
            });
            sample.conntrack =
                Some(Conntrack { entries: Some(9), most: Some(10), ..Conntrack::default() });
            let (local, remote) = ("10.0.0.1:4000".parse().unwrap(), "10.0.0.53:53".parse().ok());
            let (inode, receive_queue) = (7, Bytes::new(9));
            let holders = Vec::new();
            sample.udp.push(UdpSocket { local, remote, inode, holders, receive_queue, drops: at });
            let local = "0.0.0.0:80".parse().unwrap();
            sample.listeners.push(Listener { local, holders: Vec::new(), waiting: 4, limit: 4 });
        });
    serde_json::to_value(sketch.recording()).unwrap()
}

/// Collects the JSON pointers of all numbers, times and strings.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                places(value, &format!("{at}/{}", escaped(key)), found);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn assert_in_bounds(diagnosis: &Diagnosis, what: &str) {
    let flows = diagnosis.periods.iter().flat_map(|period| &period.flows);
    for flow in flows.clone() {
        let allows = flow.causes.iter().filter_map(|found| found.finding.allows);
        assert!(allows.min().is_none_or(|allows| allows >= flow.rate), "{what}: {flow:?}");
    }
    let causes = flows.flat_map(|flow| &flow.causes);
    let machine = diagnosis.periods.iter().flat_map(|period| &period.machine);
    for found in causes.chain(machine) {
        let share = found.finding.explains.unwrap_or(0.0);
        assert!((0.0..=1.0).contains(&share), "{what}: {found:?}");
    }
    let text = output::text(diagnosis, 80, true) + &output::json(diagnosis);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{what}: {text:?}");
}

#[test]
fn a_recording_with_any_value_in_a_field_is_diagnosed() {
    let full = full();
    let mut all = Vec::new();
    places(&full, "", &mut all);
    let extremes = [
        json!(0),
        json!(1),
        json!(u32::MAX),
        json!(u64::MAX),
        json!("0ns"),
        json!("500000000s"),
        json!("18446744073709551615B"),
        json!("9000000000gbit"),
        json!("\u{1b}[31m"),
        json!(true),
        Value::Null,
    ];
    // Rules compare the first sample with the last.
    all.retain(|place| !place.contains("/samples/1/") && !place.contains("/samples/2/"));
    let (mut judged, mut failed) = (0, Vec::new());
    for place in &all {
        for extreme in &extremes {
            let mut changed = full.clone();
            *changed.pointer_mut(place).unwrap() = extreme.clone();
            let Ok(recording) = Recording::parse(&changed.to_string()) else { continue };
            judged += 1;
            let what = format!("{place} {extreme}");
            let judge = || assert_in_bounds(&diagnose(&recording, Question::Flow), &what);
            if std::panic::catch_unwind(judge).is_err() {
                failed.push(what);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(judged > all.len(), "{judged} of {}", all.len());
}
