use crate::example_data::HOSTILE;
use crate::page::{attributes, balanced};
use perf::event::{
    CoreUse, CpuUse, Datagrams, End, Ended, Interval, Latency, LatencySource, PathFacts, Role,
    Started, StreamFacts, StreamInterval, StreamTotal,
};
use perf::observe::cpu::CpuOf;
use perf::observe::{Line, Observed, Series};
use perf::options::{Direction, Protocol, TestOptions};
use perf::output::LOOPBACK;
use report::measurement::Measurement;
use std::time::{Duration, UNIX_EPOCH};
use units::{Bytes, Rate, Span};

#[test]
fn the_markdown_of_a_tcp_test_is_as_recorded() {
    insta::assert_snapshot!(measurement(Protocol::Tcp, Direction::Forward, 2).markdown());
}

#[test]
fn the_markdown_of_a_bidirectional_udp_test_is_as_recorded() {
    insta::assert_snapshot!(measurement(Protocol::Udp, Direction::Both, 1).markdown());
}

#[test]
fn the_answer_names_a_cpu_that_was_the_limit() {
    let mut measurement = measurement(Protocol::Tcp, Direction::Both, 1);
    measurement.ended.observed.as_mut().unwrap().limiting_core = Some(3);
    let text = measurement.markdown();
    assert_eq!(text.matches("This machine's CPU was the limit: core 3 was busy.").count(), 1);
}

#[test]
fn the_answer_explains_round_trips_over_loopback() {
    let mut measurement = measurement(Protocol::Tcp, Direction::Forward, 1);
    let remarks = |measurement: &Measurement| measurement.markdown().matches(LOOPBACK).count();
    assert_eq!(remarks(&measurement), 0, "the peer is another machine");
    measurement.started.local = "127.0.0.1:47188".parse().unwrap();
    measurement.started.remote = "127.0.0.1:5201".parse().unwrap();
    assert_eq!(remarks(&measurement), 1);
    assert!(measurement.html().contains(LOOPBACK));
    (measurement.ended.idle_latency, measurement.ended.loaded_latency) = (None, None);
    assert_eq!(remarks(&measurement), 0, "the test measured no round trips");
}

#[test]
fn the_charts_of_a_page_stand_above_its_warnings() {
    let page = measurement(Protocol::Tcp, Direction::Forward, 1).html();
    let place = |id: &str| page.find(&format!("id=\"{id}\"")).unwrap();
    assert!(place("outcome") < place("charts") && place("charts") < place("warnings"));
    assert!(page.contains("href=\"#warnings\""), "the first screen has the number of warnings");
}

#[test]
fn pages_are_well_formed_and_load_nothing() {
    for measurement in [
        measurement(Protocol::Tcp, Direction::Forward, 1),
        measurement(Protocol::Tcp, Direction::Both, 20),
        measurement(Protocol::Udp, Direction::Reverse, 2),
        hostile(),
    ] {
        let page = measurement.html();
        balanced(&page);
        for (name, value) in attributes(&page) {
            let loads = matches!(name, "src" | "href" | "srcset" | "action" | "data" | "poster");
            assert!(!loads || value.starts_with('#'), "{name}={value}");
            assert!(!name.starts_with("on") && name != "style", "{name}={value}");
        }
    }
}

#[test]
fn hostile_text_stays_text() {
    let page = hostile().html();
    assert!(!page.contains("<script>alert"), "a script got through");
    assert_eq!(page.matches("<script").count(), 2, "only the page's own data and script");
    assert!(!page.contains("<!--"));
}

#[test]
fn a_chart_has_no_more_lines_than_colours() {
    let page = measurement(Protocol::Tcp, Direction::Forward, 20).html();
    let data = data(&page);
    let throughput = &data[0];
    assert_eq!(throughput["name"], "Throughput");
    assert_eq!(throughput["lines"].as_array().unwrap().len(), 1);
    assert_eq!(throughput["lines"][0]["name"], "all 20");
    let rtt = data
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "Round-trip time of the streams, smoothed");
    assert_eq!(rtt.unwrap()["lines"].as_array().unwrap().len(), 3);
}

#[test]
fn a_point_over_almost_no_time_is_not_drawn() {
    let page = measurement(Protocol::Tcp, Direction::Forward, 1).html();
    let data = data(&page);
    assert_eq!(data[0]["time"], serde_json::json!([0.5, 1.0, 1.5, 2.0]));
    let again = data.as_array().unwrap().iter().find(|one| one["name"] == "Segments sent again");
    assert_eq!(again.unwrap()["lines"][0]["values"], serde_json::json!([0.0, 5.0, 0.0, 1.0]));
}

#[test]
fn without_series_the_intervals_are_drawn() {
    let mut measurement = measurement(Protocol::Udp, Direction::Reverse, 1);
    measurement.ended.observed = None;
    let data = data(&measurement.html());
    let names: Vec<&str> =
        data.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["Throughput", "Datagrams lost", "Jitter"]);
}

fn data(page: &str) -> serde_json::Value {
    let start = page.find("id=\"series-data\">").unwrap() + "id=\"series-data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

fn hostile() -> Measurement {
    let mut measurement = measurement(Protocol::Tcp, Direction::Forward, 1);
    measurement.started.peer = HOSTILE.to_owned();
    measurement.started.options.title = Some(HOSTILE.to_owned());
    measurement.started.peer_version = Some(HOSTILE.to_owned());
    measurement.ended.remote_congestion = Some(HOSTILE.to_owned());
    measurement.ended.warnings = vec![HOSTILE.to_owned()];
    measurement.command = HOSTILE.to_owned();
    measurement
}

fn measurement(protocol: Protocol, direction: Direction, streams: u32) -> Measurement {
    let ways = if direction == Direction::Both { 2 } else { 1 };
    let ids = std::iter::once(1).chain(3..).take((streams * ways) as usize);
    let streams: Vec<(u32, bool)> = ids
        .enumerate()
        .map(|(place, id)| match direction {
            Direction::Forward => (id, true),
            Direction::Reverse => (id, false),
            Direction::Both => (id, place < streams as usize),
        })
        .collect();
    let options = TestOptions {
        protocol,
        direction,
        streams: streams.len() as u32 / ways,
        rate: (protocol == Protocol::Udp).then(|| Rate::from_mbit(20)),
        ..TestOptions::default()
    };
    Measurement {
        started: started(options, &streams),
        idle: None,
        intervals: (0..2).map(|second| interval(protocol, &streams, second)).collect(),
        ended: ended(protocol, &streams),
        command: "weir perf client far.example".to_owned(),
        machine: None,
        profile: None,
    }
}

fn started(options: TestOptions, streams: &[(u32, bool)]) -> Started {
    let facts = |(id, sends): &(u32, bool)| StreamFacts {
        id: *id,
        sends: *sends,
        local: "192.0.2.1:47190".parse().unwrap(),
        remote: "198.51.100.7:5201".parse().unwrap(),
        congestion: Some("cubic".to_owned()),
        send_buffer: Bytes::kib(16),
        receive_buffer: Bytes::kib(128),
    };
    Started {
        role: Role::Client,
        at: UNIX_EPOCH + Duration::from_secs(1_795_244_721),
        cookie: String::new(),
        peer: "far.example".to_owned(),
        local: "192.0.2.1:47188".parse().unwrap(),
        remote: "198.51.100.7:5201".parse().unwrap(),
        mss: Some(Bytes::new(1448)),
        peer_version: Some("0.1.0".to_owned()),
        peer_is_weir: true,
        options,
        streams: streams.iter().map(facts).collect(),
    }
}

fn interval(protocol: Protocol, streams: &[(u32, bool)], second: u64) -> Interval {
    let datagrams = Datagrams {
        count: 1726,
        received: 1724,
        lost: 2,
        reordered: 3,
        duplicates: 1,
        jitter: Span::from_micros(15),
    };
    let one = |(id, sends): &(u32, bool)| StreamInterval {
        id: *id,
        sends: *sends,
        bytes: Bytes::new(2_500_000),
        retransmits: None,
        datagrams: (protocol == Protocol::Udp).then_some(datagrams),
        tcp: None,
    };
    Interval {
        start: Span::from_secs(second),
        end: Span::from_secs(second + 1),
        omitted: false,
        streams: streams.iter().map(one).collect(),
        cpu: None,
        latency: None,
    }
}

fn ended(protocol: Protocol, streams: &[(u32, bool)]) -> Ended {
    let tcp = protocol == Protocol::Tcp;
    let end = |bytes, millis| End { bytes: Bytes::new(bytes), elapsed: Span::from_millis(millis) };
    let total = |(id, sends): &(u32, bool)| StreamTotal {
        id: *id,
        sends: *sends,
        sent: end(250_000_000, 2000),
        received: end(249_000_000, 2001),
        retransmits: tcp.then_some(6),
        datagrams_sent: (!tcp).then_some(3453),
        datagrams: (!tcp).then_some(Datagrams {
            count: 3452,
            received: 3448,
            lost: 4,
            reordered: 6,
            duplicates: 2,
            jitter: Span::from_micros(15),
        }),
        path: tcp.then(|| PathFacts {
            mean_rtt: Some(Span::from_micros(20_100)),
            max_cwnd: Some(Bytes::new(709_520)),
            busy: Some(Span::from_millis(1_900)),
            rwnd_limited: Some(Span::from_millis(100)),
            sndbuf_limited: Some(Span::ZERO),
            bytes_retransmitted: Some(Bytes::new(8_688)),
            ..PathFacts::default()
        }),
    };
    let cpu = |busy| CpuUse {
        user: 1.5,
        system: 10.5,
        cores: vec![CoreUse { core: 0, busy, softirq: 36.4 }],
    };
    let latency = |p50, p99| Latency {
        by: LatencySource::Echo,
        samples: 50,
        lost: 1,
        p50: Span::from_micros(p50),
        p99: Span::from_micros(p99),
        max: Span::from_micros(p99 + 10),
    };
    Ended {
        duration: Span::from_secs(2),
        streams: streams.iter().map(total).collect(),
        local_cpu: cpu(63.2),
        remote_cpu: Some(cpu(5.0)),
        local_congestion: tcp.then(|| "cubic".to_owned()),
        remote_congestion: tcp.then(|| "bbr".to_owned()),
        idle_latency: Some(latency(20_000, 20_300)),
        loaded_latency: Some(latency(48_000, 91_000)),
        server_output: None,
        peer_extras: None,
        observed: Some(observed(tcp, streams)),
        warnings: vec!["the probe lost its way".to_owned()],
    }
}

/// Returns observed samples. One sample comes directly after another sample, as at the end of an
/// interval.
fn observed(tcp: bool, streams: &[(u32, bool)]) -> Observed {
    let times = vec![0.5, 1.0, 1.001, 1.5, 2.0];
    let series = |name, unit, values: [f64; 5]| Series {
        name,
        stream: None,
        stacked: false,
        time_s: times.clone(),
        lines: streams
            .iter()
            .map(|(id, _)| Line { name: id.to_string(), unit, values: values.map(Some).to_vec() })
            .collect(),
    };
    let mut all = vec![series("throughput", "Mbit/s", [900.0, 1000.0, 80.0, 1010.0, 990.0])];
    if tcp {
        all.push(series("rtt", "ms", [20.0, 21.0, 21.0, 22.0, 20.0]));
        all.push(series("retransmits", "segments", [0.0, 3.0, 2.0, 0.0, 1.0]));
        all.push(Series {
            name: "limited_by",
            stream: Some(1),
            stacked: true,
            time_s: times.clone(),
            lines: ["application", "congestion"]
                .map(|name| Line { name: name.to_owned(), unit: "%", values: vec![Some(50.0); 5] })
                .to_vec(),
        });
    }
    Observed {
        cpu: CpuUse::default(),
        cpu_of: CpuOf::Process,
        paths: Vec::new(),
        idle: None,
        loaded: None,
        series: all,
        limiting_core: None,
        warnings: Vec::new(),
        cost: Span::from_micros(1_234),
        probe_cost: None,
    }
}
