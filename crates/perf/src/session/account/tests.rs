use super::*;
use crate::stream::Omitted;
use proptest::prelude::*;
use serde_json::json;
use std::time::Instant;

fn account(protocol: Protocol, snapshots: Vec<StreamSnapshot>) -> Account {
    Account {
        options: TestOptions { protocol, ..TestOptions::default() },
        elapsed: Span::from_secs(2),
        congestion: Some("cubic".to_owned()),
        snapshots,
        observed: None,
    }
}

fn stream(id: u32, sends: bool, bytes: u64, datagrams: Option<(u64, u64)>) -> StreamSnapshot {
    let datagrams = datagrams.map(|(count, lost)| Datagrams {
        count,
        received: count - lost,
        lost,
        ..Datagrams::default()
    });
    let omitted = Omitted {
        bytes: Bytes::new(10),
        datagrams: datagrams.map(|_| Datagrams {
            count: 5,
            received: 4,
            lost: 1,
            ..Datagrams::default()
        }),
    };
    let bytes = Bytes::new(bytes);
    StreamSnapshot { at: Instant::now(), id, sends, bytes, datagrams, omitted }
}

#[test]
fn datagrams_of_the_omitted_time_are_counted_and_also_reported_separately() {
    let account = account(Protocol::Udp, vec![stream(1, false, 1000, Some((100, 7)))]);
    let results = account.results(Additions::Nothing);
    let reported = &results.streams[0];
    assert_eq!((reported.packets, reported.omitted_packets), (105.0, 5.0));
    assert_eq!((reported.errors, reported.omitted_errors), (8.0, 1.0));
    assert_eq!((reported.retransmits, results.sender_has_retransmits), (-1.0, -1.0));
    assert!(results.weir.is_none());
}

#[test]
fn without_the_peers_results_its_measurements_are_unknown() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let streams = vec![stream(1, true, 1000, None), stream(3, false, 500, None)];
        let ended = account(protocol, streams).alone();
        assert_eq!(ended.remote_cpu, None);
        let [sent, received] = ended.streams.as_slice() else { panic!("{ended:?}") };
        assert!(sent.sent.is_known() && !sent.received.is_known());
        assert!(!received.sent.is_known() && received.received.is_known());
        assert_eq!((sent.datagrams, received.datagrams_sent), (None, None));
        assert_eq!(received.retransmits, None);
    }
}

#[test]
fn a_value_missing_from_the_peers_results_is_unknown_and_not_zero() {
    for (protocol, reported) in [
        (Protocol::Tcp, json!({})),
        (Protocol::Tcp, json!({"streams": [{"id": 1}, {"id": 3}]})),
        (Protocol::Udp, json!({"streams": [{"id": 1}, {"id": 3}]})),
    ] {
        let peer: Results = serde_json::from_value(reported).unwrap();
        let counted = Some((100, 0));
        let streams = vec![stream(1, true, 1000, counted), stream(3, false, 500, counted)];
        let ended = account(protocol, streams).ended(&peer);
        assert_eq!(ended.remote_cpu, None);
        assert!(!ended.streams[0].received.is_known() && !ended.streams[1].sent.is_known());
        assert_eq!((ended.streams[0].datagrams, ended.streams[1].datagrams_sent), (None, None));
        assert_eq!(ended.streams[1].retransmits, None);
    }
}

#[test]
fn the_local_omitted_count_replaces_the_count_that_an_older_iperf3_does_not_send() {
    let account = account(Protocol::Udp, vec![stream(1, true, 1000, Some((100, 0)))]);
    let peer: Results = serde_json::from_value(json!({
        "streams": [{"id": 1, "bytes": 900, "packets": 103, "errors": 3, "jitter": 0.001, "end_time": 2.5}],
    }))
    .unwrap();
    let total = account.ended(&peer).streams.remove(0);
    let datagrams = total.datagrams.unwrap();
    assert_eq!((datagrams.count, datagrams.lost, datagrams.received), (98, 3, 95));
    assert_eq!(datagrams.jitter, Span::from_millis(1));
    assert_eq!(total.datagrams_sent, Some(100));
    assert_eq!(total.received.elapsed, Span::from_millis(2500));
    assert_eq!((total.sent.bytes.count(), total.received.bytes.count()), (1000, 900));
}

#[test]
fn each_impossible_value_from_the_peer_counts_as_unknown() {
    let account =
        account(Protocol::Tcp, vec![stream(1, false, 1000, None), stream(3, true, 5, None)]);
    let peer: Results = serde_json::from_value(json!({
        "cpu_util_user": 1e300, "cpu_util_system": 12.5, "congestion_used": "\u{1b}[2J",
        "streams": [{"id": 1, "bytes": -5, "retransmits": 18446744073709551615_u64, "end_time": 1e99}],
        "weir": {"cpu": {"cores": [{"core": 0, "busy_percent": 1e9}, 7]}, "streams": "none"},
    }))
    .unwrap();
    let ended = account.ended(&peer);
    let total = &ended.streams[0];
    assert!(!total.sent.is_known());
    assert_eq!((total.retransmits, total.datagrams), (None, None));
    let there = ended.remote_cpu.unwrap();
    assert_eq!((there.user, there.system), (0.0, 12.5));
    assert!(there.cores.is_empty());
    assert_eq!(ended.remote_congestion, None);
    assert!(ended.warnings[0].contains("stream 3"), "{:?}", ended.warnings);
}

#[test]
fn a_weir_client_and_server_exchange_exact_results() {
    let receiver = account(
        Protocol::Udp,
        vec![StreamSnapshot {
            datagrams: Some(Datagrams {
                count: 50,
                received: 45,
                lost: 5,
                reordered: 3,
                duplicates: 2,
                jitter: Span::from_micros(20),
            }),
            ..stream(1, false, 1000, Some((0, 0)))
        }],
    );
    let sender = account(Protocol::Udp, vec![stream(1, true, 1000, Some((50, 0)))]);
    let reported = serde_json::to_string(&receiver.results(Additions::Ours)).unwrap();
    let total = sender.ended(&serde_json::from_str(&reported).unwrap()).streams.remove(0);
    assert_eq!(total.datagrams, receiver.snapshots[0].datagrams);
}

proptest! {
    #[test]
    fn any_results_from_a_peer_are_tolerated(
        numbers in proptest::collection::vec(any::<f64>(), 12),
        text: String,
        count: u64,
    ) {
        let reported = StreamResult {
            id: 1.0,
            bytes: numbers[0],
            retransmits: numbers[1],
            jitter: numbers[2],
            errors: numbers[3],
            omitted_errors: numbers[4],
            packets: numbers[5],
            omitted_packets: numbers[6],
            start_time: numbers[7],
            end_time: numbers[8],
        };
        let weir = json!({
            "cpu": {"cores": [{"core": count, "busy_percent": numbers[9], "softirq_percent": 1.0}]},
            "datagrams": [{"id": 1, "count": count, "received": count, "lost": count,
                "reordered": count, "duplicates": count, "jitter_us": numbers[10]}],
            "streams": [{"id": 1, "min_rtt_us": numbers[11], "max_cwnd_bytes": count}, text],
        });
        let peer = Results {
            cpu_util_user: numbers[9],
            cpu_util_system: numbers[10],
            congestion_used: Some(text),
            streams: vec![reported; 3],
            weir: Some(weir),
            ..Results::default()
        };
        for (protocol, sends) in [(Protocol::Tcp, true), (Protocol::Udp, true), (Protocol::Udp, false)] {
            let account = account(protocol, vec![stream(1, sends, 1000, Some((100, 7)))]);
            let ended = account.ended(&peer);
            let total = &ended.streams[0];
            prop_assert!(total.sent.elapsed <= Span::from_secs(100_000));
            prop_assert!(total.received.elapsed <= Span::from_secs(100_000));
            let there = ended.remote_cpu.unwrap_or_default();
            prop_assert!(there.user.is_finite() && there.system.is_finite());
        }
    }
}
