//! The events of invented tests, as input for the output formats.

use perf::event::{
    CoreUse, CpuUse, Datagrams, End, Ended, Event, Interval, Latency, LatencySource, PathFacts,
    Role, ServerOutput, Started, StreamFacts, StreamInterval, StreamTotal,
};
use perf::options::{Direction, Protocol, TestOptions};
use probe::tcp::TcpInfo;
use std::time::{Duration, UNIX_EPOCH};
use units::{Bytes, Rate, Span};

pub(crate) struct Case {
    pub(crate) started: Started,
    pub(crate) idle: Option<Latency>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) ended: Ended,
}

impl Case {
    pub(crate) fn new(role: Role, options: TestOptions) -> Self {
        let ids: Vec<u32> = std::iter::once(1).chain(3..).take(stream_count(&options)).collect();
        let streams: Vec<(u32, bool)> =
            ids.iter().enumerate().map(|(place, id)| (*id, sends(role, &options, place))).collect();
        let idle = latency(42, 113, 0);
        let intervals = (0..3).map(|second| interval(&options, &streams, second)).collect();
        let ended = ended(&options, &streams, &idle);
        Self { started: started(role, options, &streams), idle: Some(idle), intervals, ended }
    }

    pub(crate) fn tell(&self, mut hear: impl FnMut(&Event<'_>)) {
        hear(&Event::Started(&self.started));
        if let Some(idle) = &self.idle {
            hear(&Event::Idle(idle));
        }
        for interval in &self.intervals {
            hear(&Event::Interval(interval));
        }
        hear(&Event::Ended(&self.ended));
    }
}

pub(crate) fn tcp(direction: Direction, streams: u32) -> TestOptions {
    TestOptions { direction, streams, ..TestOptions::default() }
}

pub(crate) fn udp(direction: Direction, streams: u32) -> TestOptions {
    TestOptions {
        protocol: Protocol::Udp,
        rate: Some(Rate::from_mbit(20)),
        block: Some(Bytes::new(1448)),
        ..tcp(direction, streams)
    }
}

pub(crate) fn latency(p50: u64, p99: u64, lost: u64) -> Latency {
    Latency {
        by: LatencySource::Echo,
        samples: 50,
        lost,
        p50: Span::from_micros(p50),
        p99: Span::from_micros(p99),
        max: Span::from_micros(p99 * 2),
    }
}

pub(crate) fn server_text() -> ServerOutput {
    ServerOutput::Text("Accepted connection\n\u{1b}[31mred\u{1b}[0m".to_owned())
}

fn stream_count(options: &TestOptions) -> usize {
    let ways = if options.direction == Direction::Both { 2 } else { 1 };
    options.streams as usize * ways
}

fn sends(role: Role, options: &TestOptions, place: usize) -> bool {
    let client_sends = match options.direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        Direction::Both => place < options.streams as usize,
    };
    client_sends == (role == Role::Client)
}

fn started(role: Role, options: TestOptions, streams: &[(u32, bool)]) -> Started {
    let tcp = options.protocol == Protocol::Tcp;
    let streams = streams
        .iter()
        .map(|(id, sends)| StreamFacts {
            id: *id,
            sends: *sends,
            local: format!("192.0.2.1:{}", 47_190 + id).parse().unwrap(),
            remote: "198.51.100.7:5201".parse().unwrap(),
            congestion: tcp.then(|| "cubic".to_owned()),
            send_buffer: Bytes::kib(16),
            receive_buffer: Bytes::kib(128),
        })
        .collect();
    Started {
        role,
        at: UNIX_EPOCH + Duration::from_secs(1_795_244_721),
        cookie: "u7is64ojd5dnltdwlty5vmo6ztinrhffnrsg".to_owned(),
        peer: "far.example".to_owned(),
        local: "192.0.2.1:47190".parse().unwrap(),
        remote: "198.51.100.7:5201".parse().unwrap(),
        mss: Some(Bytes::new(1448)),
        peer_version: None,
        peer_is_weir: false,
        options,
        streams,
    }
}

fn interval(options: &TestOptions, streams: &[(u32, bool)], second: u64) -> Interval {
    let omitted = Span::from_secs(second) < options.omit;
    Interval {
        start: Span::from_secs(second),
        end: Span::from_secs(second + 1),
        omitted,
        streams: streams.iter().map(|stream| progress(options, *stream, second)).collect(),
        cpu: Some(CpuUse { user: 1.5, system: 10.5, cores: cores() }),
        latency: Some(latency(1_200 * (second + 1), 8_530 * (second + 1), second)),
    }
}

fn progress(options: &TestOptions, (id, sends): (u32, bool), second: u64) -> StreamInterval {
    if options.protocol == Protocol::Udp {
        let lost = if sends { 0 } else { second };
        let datagrams = Datagrams {
            count: 1726,
            received: 1726 - lost,
            lost,
            reordered: 3 * second,
            duplicates: second / 2,
            jitter: Span::from_micros(15),
        };
        return StreamInterval {
            id,
            sends,
            bytes: Bytes::new((1726 - lost) * 1448),
            retransmits: None,
            datagrams: Some(datagrams),
            tcp: None,
        };
    }
    let mut info = TcpInfo::default();
    info.snd_mss = Some(Bytes::new(1448));
    info.snd_cwnd = Some(480 + 10 * id);
    info.snd_wnd = Some(Bytes::new(1_114_112));
    info.rtt = Some(Span::from_micros(1_370 + 1_000 * second));
    info.rttvar = Some(Span::from_micros(30));
    info.pmtu = Some(Bytes::new(1500));
    info.delivery_rate = Some(Rate::from_mbit(480));
    StreamInterval {
        id,
        sends,
        bytes: Bytes::new(25_034_752 * (second + 1) / u64::from(id)),
        retransmits: sends.then_some(second * 4),
        datagrams: None,
        tcp: Some(info),
    }
}

fn ended(options: &TestOptions, streams: &[(u32, bool)], idle: &Latency) -> Ended {
    let tcp = options.protocol == Protocol::Tcp;
    let mut warnings = Vec::new();
    if streams.len() > 2 {
        warnings.push(
            "the far end had no idle CPU: what it could have done with more is not known"
                .to_owned(),
        );
    }
    Ended {
        duration: Span::from_secs(3),
        streams: streams.iter().map(|stream| total(options, *stream)).collect(),
        local_cpu: CpuUse { user: 1.5, system: 10.6, cores: cores() },
        remote_cpu: Some(CpuUse { user: 0.0, system: 23.1, cores: Vec::new() }),
        local_congestion: tcp.then(|| "cubic".to_owned()),
        remote_congestion: tcp.then(|| "bbr".to_owned()),
        idle_latency: Some(idle.clone()),
        loaded_latency: Some(latency(1_200, 25_590, 3)),
        server_output: None,
        peer_extras: None,
        observed: None,
        warnings,
    }
}

fn total(options: &TestOptions, (id, sends): (u32, bool)) -> StreamTotal {
    let each = |bytes, millis| End { bytes: Bytes::new(bytes), elapsed: Span::from_millis(millis) };
    if options.protocol == Protocol::Udp {
        return StreamTotal {
            id,
            sends,
            sent: each(5178 * 1448, 3000),
            received: each(5175 * 1448, 3001),
            retransmits: None,
            datagrams_sent: Some(5178),
            datagrams: Some(Datagrams {
                count: 5177,
                received: 5175,
                lost: 2,
                reordered: 9,
                duplicates: 1,
                jitter: Span::from_micros(15),
            }),
            path: None,
        };
    }
    StreamTotal {
        id,
        sends,
        sent: each(150_208_512 / u64::from(id), 3000),
        received: each(150_000_000 / u64::from(id), 3001),
        retransmits: Some(12),
        datagrams_sent: None,
        datagrams: None,
        path: Some(PathFacts {
            min_rtt: Some(Span::from_micros(1_300)),
            mean_rtt: Some(Span::from_micros(2_370)),
            max_rtt: Some(Span::from_micros(3_370)),
            max_cwnd: Some(Bytes::new(709_520)),
            max_send_window: Some(Bytes::new(1_114_112)),
            reorder_seen: Some(0),
            busy: Some(Span::from_millis(2_940)),
            rwnd_limited: Some(Span::from_millis(150)),
            sndbuf_limited: Some(Span::ZERO),
            bytes_retransmitted: Some(Bytes::new(17_376)),
            full_link: None,
        }),
    }
}

fn cores() -> Vec<CoreUse> {
    vec![
        CoreUse { core: 0, busy: 63.2, softirq: 36.4 },
        CoreUse { core: 1, busy: 5.0, softirq: 0.0 },
    ]
}
