//! Hosts with CAQM, and ports with or without CAQM.
#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use cc::caqm::CaqmSettings;
use link::{Capacity, LinkConfig, LinkError};
use sim::{CaqmHosts, FlowSpec, Incast, Opening, Outcome, TcpConfig, World, WorldConfig, jain};
use std::sync::Arc;
use units::{Bytes, Rate, Share, Span, Time};

/// Senders with 25 Gbit/s each into one port.
struct Fabric {
    senders: usize,
    mbit: u64,
    rtt: Span,
    queue: &'static str,
}

const TWO_INTO_ONE: Fabric =
    Fabric { senders: 2, mbit: 10_000, rtt: Span::from_micros(200), queue: "caqm:143KB,limit=2MB" };
const TARGET: u64 = 143_000;

impl Fabric {
    fn run(&self, algorithm: Algorithm, hosts: TcpConfig, millis: u64) -> (Outcome, Port) {
        self.tried(algorithm, hosts, millis, None).unwrap()
    }

    fn tried(
        &self,
        algorithm: Algorithm,
        hosts: TcpConfig,
        millis: u64,
        size: Option<Bytes>,
    ) -> Result<(Outcome, Port), LinkError> {
        let access = LinkConfig {
            rate: Capacity::Fixed(Rate::from_mbit(self.mbit * 5 / 2)),
            ..LinkConfig::default()
        };
        let delay = self.rtt / 2;
        let port = LinkConfig {
            rate: Capacity::Fixed(Rate::from_mbit(self.mbit)),
            delay,
            queue: self.queue.parse()?,
            ..LinkConfig::default()
        };
        let back = LinkConfig { delay, ..LinkConfig::default() };
        let shape = Incast::with_ways_back(self.senders, &access, &port, &back);
        let hosts = Arc::new(hosts);
        let mut late = link::Stream::new(7, "starts");
        let flows = shape.senders.iter().map(|from| {
            let start = Span::from_nanos((late.unit() * self.rtt.nanos() as f64) as u64);
            let flow = match size {
                Some(size) => FlowSpec::sized(*from, shape.receiver, algorithm, size),
                None => FlowSpec::bulk(*from, shape.receiver, algorithm),
            };
            flow.with(Arc::clone(&hosts)).starting(Time::ZERO + start)
        });
        let from = if size.is_some() { Span::ZERO } else { self.rtt * 50 };
        let config = WorldConfig {
            measure_from: Time::ZERO + from,
            until: Time::ZERO + from + Span::from_millis(millis),
            ..WorldConfig::default()
        };
        let outcome = World::new(&shape.topology, flows.collect(), config).unwrap().run();
        assert!(outcome.packets.holds(), "{:?}", outcome.packets);
        let link = outcome.link(shape.port).unwrap();
        let port = Port {
            usage: link.throughput.mbit_per_second() / self.mbit as f64,
            mean: link.occupancy.mean(),
            p99: link.occupancy.quantile(Share::new(0.99).unwrap()).count(),
            drops: link.dropped.total().packets,
            refused: link.marked.packets,
        };
        Ok((outcome, port))
    }
}

#[derive(Debug)]
struct Port {
    usage: f64,
    mean: f64,
    p99: u64,
    drops: u64,
    refused: u64,
}

/// Returns hosts with super-packets, receive coalescing, and pacing.
fn hosts() -> TcpConfig {
    TcpConfig { paces: true, coalesce: Some(Span::from_micros(50)), ..TcpConfig::default() }
}

fn speaking(caqm: CaqmHosts) -> TcpConfig {
    TcpConfig { caqm, ..hosts() }
}

fn share(outcome: &Outcome) -> f64 {
    let rates: Vec<f64> = outcome.flows.iter().map(|f| f.goodput.mbit_per_second()).collect();
    jain(&rates)
}

fn tagged(outcome: &Outcome) -> u64 {
    outcome.flows.iter().map(|flow| flow.tagged).sum()
}

#[test]
fn two_senders_fill_the_port_with_a_short_queue() {
    let product = Rate::from_mbit(TWO_INTO_ONE.mbit).bytes_in(TWO_INTO_ONE.rtt).count();
    let plain = Fabric { queue: "droptail:2MB", ..TWO_INTO_ONE };
    let (_, bbr) = plain.run(Algorithm::Bbr, hosts(), 100);
    for opening in [Opening::BySender, Opening::ByReceiver] {
        let hosts = TcpConfig { opening, ..hosts() };
        let (outcome, port) = TWO_INTO_ONE.run(Algorithm::Caqm, hosts, 100);
        assert!(port.usage >= 0.95 && port.drops == 0 && port.refused > 0, "{port:?}");
        assert!(port.p99 <= TARGET + product, "{port:?}");
        assert!(port.mean <= 0.4 * bbr.mean, "{port:?} {bbr:?}");
        assert!(share(&outcome) >= 0.98, "{:?}", outcome.flows);
        let sent: u64 = outcome.flows.iter().map(|flow| flow.packets_sent).sum();
        assert_eq!(tagged(&outcome), sent);
    }
}

/// The two connections leave one host through one interface.
#[test]
fn two_connections_of_one_host_share_the_port() {
    let port = LinkConfig {
        rate: Capacity::Fixed(Rate::from_mbit(10_000)),
        delay: TWO_INTO_ONE.rtt / 2,
        queue: TWO_INTO_ONE.queue.parse().unwrap(),
        ..LinkConfig::default()
    };
    let access =
        LinkConfig { rate: Capacity::Fixed(Rate::from_mbit(25_000)), ..LinkConfig::default() };
    let back = LinkConfig { delay: TWO_INTO_ONE.rtt / 2, ..LinkConfig::default() };
    let shape = Incast::with_ways_back(1, &access, &port, &back);
    let hosts = Arc::new(hosts());
    let flows = [0, 1].map(|late| {
        FlowSpec::bulk(shape.senders[0], shape.receiver, Algorithm::Caqm)
            .with(Arc::clone(&hosts))
            .starting(Time::ZERO + TWO_INTO_ONE.rtt * (50 * late))
    });
    let config = WorldConfig {
        measure_from: Time::ZERO + TWO_INTO_ONE.rtt * 100,
        until: Time::ZERO + Span::from_millis(100),
        ..WorldConfig::default()
    };
    let outcome = World::new(&shape.topology, flows.into(), config).unwrap().run();
    let link = outcome.link(shape.port).unwrap();
    assert!(link.throughput.mbit_per_second() >= 9500.0, "{link:?}");
    assert_eq!(link.dropped.total().packets, 0);
    assert!(share(&outcome) >= 0.98, "{:?}", outcome.flows);
}

/// The new flow joins at a full port. The measurement takes ten round trips, and begins at most
/// forty round trips after the flow. With the reference's law, the windows would converge within
/// hundreds of round trips.
#[test]
fn a_latecomer_has_its_share_within_fifty_round_trips() {
    for (mbit, micros, senders) in
        [(10_000, 200, 2), (10_000, 200, 8), (1000, 4000, 2), (200, 20_000, 2), (10_000, 4000, 2)]
    {
        let rtt = Span::from_micros(micros);
        let queue = format!("caqm:143KB,limit=2MB,period={micros}us");
        let settings = CaqmSettings { rtt_standard_us: micros as u32, ..CaqmSettings::default() };
        let hosts = Arc::new(speaking(CaqmHosts { settings, ..CaqmHosts::default() }));
        let link = |mbit, delay, queue: &str| LinkConfig {
            rate: Capacity::Fixed(Rate::from_mbit(mbit)),
            delay,
            queue: queue.parse().unwrap(),
            ..LinkConfig::default()
        };
        let port = link(mbit, rtt / 2, &queue);
        let back = LinkConfig { delay: rtt / 2, ..LinkConfig::default() };
        let access = link(mbit * 5 / 2, Span::ZERO, "droptail:100MB");
        let shape = Incast::with_ways_back(senders, &access, &port, &back);
        let began = Time::ZERO + rtt * 150;
        let flows = shape.senders.iter().enumerate().map(|(number, from)| {
            let start = if number == 0 { began } else { Time::ZERO + rtt * number as u64 };
            let flow = FlowSpec::bulk(*from, shape.receiver, Algorithm::Caqm);
            flow.with(Arc::clone(&hosts)).starting(start).traced()
        });
        let config = WorldConfig {
            until: began + rtt * 60,
            sample_every: rtt / 2,
            ..WorldConfig::default()
        };
        let outcome = World::new(&shape.topology, flows.collect(), config).unwrap().run();
        let received = |flow: &sim::FlowOutcome, by: Time| {
            let points = flow.trace.as_ref().unwrap().points();
            let passed = points.partition_point(|point| point.at <= by);
            passed.checked_sub(1).map_or(0, |last| points[last].received.count())
        };
        let fair = (10..60).find(|rounds| {
            let (from, to) = (began + rtt * (rounds - 10), began + rtt * *rounds);
            let came = outcome.flows.iter().map(|flow| received(flow, to) - received(flow, from));
            jain(&came.map(|bytes| bytes as f64).collect::<Vec<_>>()) >= 0.98
        });
        assert!(fair.is_some_and(|rounds| rounds <= 50), "{mbit} {micros} {senders}: {fair:?}");
        let dropped = outcome.link(shape.port).unwrap().dropped.total().packets;
        assert_eq!(dropped, 0, "{mbit} {micros} {senders}");
    }
}

/// If the queue cannot hold bursts, it runs empty, as the reference report found.
#[test]
fn a_caqm_target_without_room_for_bursts_costs_throughput() {
    let none = Fabric { queue: "caqm:0B,limit=2MB", ..TWO_INTO_ONE };
    let (_, port) = none.run(Algorithm::Caqm, hosts(), 100);
    assert!((0.5..0.95).contains(&port.usage), "{port:?}");
}

#[test]
fn a_host_without_a_caqm_partner_uses_reno_without_tags() {
    let reno = |queue| Fabric { queue, ..TWO_INTO_ONE }.run(Algorithm::Reno, hosts(), 100);
    let caqm = |queue, caqm| {
        let fabric = Fabric { queue, ..TWO_INTO_ONE };
        let (outcome, port) = fabric.run(Algorithm::Caqm, speaking(caqm), 100);
        assert_eq!((tagged(&outcome), port.refused), (0, 0));
        (outcome, port)
    };
    let usual = CaqmHosts::default();
    let (expected, at_port) = reno(TWO_INTO_ONE.queue);
    let (nobody, _) =
        caqm(TWO_INTO_ONE.queue, CaqmHosts { sender: false, receiver: false, ..usual });
    assert_eq!(nobody.hash(), expected.hash());
    let alone = [
        CaqmHosts { receiver: false, ..usual },
        CaqmHosts { sender: false, ..usual },
        // The port has another TPID than the two hosts.
        CaqmHosts { tpid: 0x88b5, ..usual },
        CaqmHosts { kind: 2, ..usual },
    ];
    for hosts in alone {
        let (_, port) = caqm(TWO_INTO_ONE.queue, hosts);
        assert!((port.usage - at_port.usage).abs() < 0.02, "{hosts:?}: {port:?} {at_port:?}");
    }
    let (_, at_plain) = reno("droptail:500KB");
    let (_, port) = caqm("droptail:500KB", usual);
    assert!((port.usage - at_plain.usage).abs() < 0.02, "{port:?} {at_plain:?}");
}

/// The hosts assume that the path has CAQM ports, until the first loss without an earlier refusal.
#[test]
fn a_loss_on_a_path_that_never_refuses_ends_caqm_for_reno() {
    let plain = Fabric { queue: "droptail:500KB", ..TWO_INTO_ONE };
    let trusting = CaqmHosts { trusts_path: true, ..CaqmHosts::default() };
    let (outcome, port) = plain.run(Algorithm::Caqm, speaking(trusting), 200);
    let (reno, at_reno) = plain.run(Algorithm::Reno, hosts(), 200);
    let sent: u64 = outcome.flows.iter().map(|flow| flow.packets_sent).sum();
    let tagged = tagged(&outcome);
    assert!(tagged > 0 && tagged < sent / 10, "{tagged} of {sent}");
    assert!((port.usage - at_reno.usage).abs() < 0.05, "{port:?} {at_reno:?}");
    let again = |outcome: &Outcome| -> u64 {
        outcome.flows.iter().map(|flow| flow.retransmitted.count()).sum()
    };
    assert!(again(&outcome) < 3 * again(&reno) + 1_000_000, "{} {}", again(&outcome), again(&reno));
}

/// The bottleneck is a plain port behind a CAQM port. When the plain port overflows, the windows
/// must follow the losses.
#[test]
fn a_plain_bottleneck_behind_a_caqm_port_is_not_flooded() {
    let fast = LinkConfig {
        rate: "10gbit".parse().unwrap(),
        queue: TWO_INTO_ONE.queue.parse().unwrap(),
        ..LinkConfig::default()
    };
    let slow = LinkConfig {
        rate: "1gbit".parse().unwrap(),
        delay: Span::from_micros(100),
        queue: "droptail:100KB".parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut topology = sim::Topology::new();
    let (from, switch, to) = (topology.node(), topology.node(), topology.node());
    topology.link("speaks", from, switch, &fast);
    let bottleneck = topology.link("plain", switch, to, &slow);
    topology.link(
        "back",
        to,
        from,
        &LinkConfig { delay: Span::from_micros(100), ..LinkConfig::default() },
    );
    let flow = FlowSpec::bulk(from, to, Algorithm::Caqm).with(Arc::new(hosts()));
    let config = WorldConfig { until: Time::ZERO + Span::from_secs(1), ..WorldConfig::default() };
    let outcome = World::new(&topology, vec![flow], config).unwrap().run();
    let (flow, link) = (&outcome.flows[0], outcome.link(bottleneck).unwrap());
    assert!(flow.goodput > "850mbit".parse().unwrap(), "{flow:?}");
    let lost = link.dropped.total().packets as f64 / flow.packets_sent as f64;
    assert!(lost < 0.02, "{lost} {flow:?}");
}

/// 512 windows of one segment fit into 1 MB of buffer: the port is full, without a drop or a
/// timeout.
#[test]
fn five_hundred_and_twelve_senders_fill_a_port_without_a_drop() {
    let rtt = Span::from_micros(50);
    let incast =
        Fabric { senders: 512, rtt, queue: "caqm:143KB,limit=1MB,period=50us", ..TWO_INTO_ONE };
    let settings = CaqmSettings { rtt_standard_us: 50, ..CaqmSettings::default() };
    let caqm = CaqmHosts { settings, ..CaqmHosts::default() };
    let hosts = || TcpConfig { initial_window: 1, ..speaking(caqm) };
    let (_, port) = incast.run(Algorithm::Caqm, hosts(), 20);
    assert!(port.drops == 0 && port.usage >= 0.95, "{port:?}");
    let size = Some(Bytes::new(64_000));
    let (outcome, port) = incast.tried(Algorithm::Caqm, hosts(), 500, size).unwrap();
    let last = outcome.flows.iter().map(|flow| flow.completion.unwrap()).max().unwrap();
    // All flows together need 27 ms on the wire.
    assert!(port.drops == 0 && last < Span::from_millis(35), "{port:?} {last}");
}

/// Small windows request much with each packet, so a port that served requests in order would
/// hardly ever grant a request.
#[test]
fn many_windows_of_few_segments_share_a_caqm_port() {
    let rtt = Span::from_micros(50);
    let queue = "caqm:100KB,limit=1MB,period=50us";
    let settings = CaqmSettings { rtt_standard_us: 50, ..CaqmSettings::default() };
    let caqm = CaqmHosts { settings, ..CaqmHosts::default() };
    for senders in [8, 32] {
        let (outcome, port) =
            Fabric { senders, rtt, queue, ..TWO_INTO_ONE }.run(Algorithm::Caqm, speaking(caqm), 40);
        assert!(port.drops == 0 && port.usage >= 0.95, "{senders}: {port:?}");
        assert!(share(&outcome) >= 0.97, "{senders}: {}", share(&outcome));
    }
}
