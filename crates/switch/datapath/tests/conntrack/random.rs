//! Random packets, processed by the tracker and by the model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use datapath::Tracked;
use datapath::conntrack::{Settings, Timeouts};
use flow::Field;
use flow::action::Nat;
use flow::step::Track;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Span;

use crate::frames::{End, Frame, Tcp, echo, plain, sctp, tcp, udp, unreachable};
use crate::model::{Model, Tuple, ends_of, timeout, tuple_of};
use crate::tracking::{Tracker, commit, dnat, look, snat};

#[test]
fn the_tracker_agrees_with_the_model() {
    for seed in 0..4 {
        agree(seed, 1, 10_000);
    }
    agree(9, 4, 10_000);
}

#[test]
#[ignore = "a million packets"]
fn the_tracker_agrees_with_the_model_in_a_long_run() {
    for seed in 100..120 {
        agree(seed, if seed % 4 == 0 { 8 } else { 1 }, 50_000);
    }
}

fn agree(seed: u64, threads: usize, packets: u32) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let settings = Settings { seed, threads, timeouts: timeouts(), ..Settings::default() };
    let mut tracker = Tracker::with(&settings);
    let mut model = Model::default();
    let mut dropped = 0;
    for number in 0..packets {
        advance(&mut random, &mut tracker, &mut model);
        let (frame, quoted) = packet(&mut random, &model);
        let mut track = call(&mut random);
        let mut frame = frame;
        let mut prior = 0;
        let passes = if random.random_ratio(1, 5) { 2 } else { 1 };
        for pass in 0..passes {
            if pass > 0 {
                let zone = track.zone;
                track = Track { zone, ..call(&mut random) };
            }
            let context = format!("seed {seed} packet {number} pass {pass} {track:?}");
            let before = frame.clone();
            let quoted = quoted.map(|tuple| Tuple { zone: track.zone, ..tuple });
            let quoted = if prior & 0xc0 == 0 { quoted } else { None };
            if pass > 0 && is_error(&frame) && quoted.is_none() {
                break;
            }
            let now = tracker.now.nanos() / 1_000_000;
            let outcome = tracker.track(&mut frame, &track);
            let predicted = model.track(&before, quoted, &track, prior, now);
            if outcome == Tracked::Dropped {
                dropped += 1;
                assert_eq!(model.refuse(&track), Ok(()), "{context}");
                break;
            }
            frame.check();
            let flags = frame.key.read(Field::CtState) as u16;
            assert_eq!(flags, predicted.flags, "{context} {before:?}");
            assert_eq!(frame.key.read(Field::CtMark) as u32, predicted.mark, "{context}");
            assert_eq!(frame.key.read(Field::CtLabel), predicted.label, "{context}");
            check_original(&frame, predicted.original.as_ref());
            match predicted.ends {
                Some(ends) => assert_eq!(ends_of(&frame), ends, "{context}"),
                None if quoted.is_none() => {
                    let (from, to) = ends_of(&frame);
                    assert_eq!(model.adopt(&track, from, to), Ok(()), "{context}");
                }
                None => {}
            }
            assert_eq!(tracker.table.connections() as usize, model.connections.len(), "{context}");
            prior = flags;
        }
    }
    assert!(dropped > 0, "no translation ran out of ports");
    assert!(model.connections.len() > 20);
    assert_eq!(tracker.dump().len(), model.connections.len());
    assert!(tracker.table.statistics().expired > 0);
}

fn timeouts() -> Timeouts {
    Timeouts {
        tcp_syn_sent: Span::from_millis(timeout::SYN_SENT),
        tcp_syn_recv: Span::from_millis(timeout::SYN_RECV),
        tcp_established: Span::from_millis(timeout::ESTABLISHED),
        tcp_fin_wait: Span::from_millis(timeout::FIN_WAIT),
        tcp_time_wait: Span::from_millis(timeout::TIME_WAIT),
        tcp_close: Span::from_millis(timeout::CLOSE),
        udp_first: Span::from_millis(timeout::UDP_FIRST),
        udp_single: Span::from_millis(timeout::UDP_SINGLE),
        udp_multiple: Span::from_millis(timeout::UDP_MULTIPLE),
        icmp_first: Span::from_millis(timeout::ICMP_FIRST),
        icmp_reply: Span::from_millis(timeout::ICMP_REPLY),
    }
}

fn advance(random: &mut Pcg64Mcg, tracker: &mut Tracker, model: &mut Model) {
    // Times are multiples of the wheel's precision. Now and then a long time passes without
    // packets.
    if !tracker.now.nanos().is_multiple_of(256_000_000) {
        tracker.now = units::Time::from_nanos(20 * 256_000_000);
    }
    let ticks = match random.random_range(0..1000) {
        0 => random.random_range(0..20_000),
        1..50 => random.random_range(0..60),
        50..400 => random.random_range(0..2),
        _ => return,
    };
    tracker.pass(Span::from_millis(ticks * 256));
    let now = tracker.now.nanos() / 1_000_000;
    model.expire(now);
    for _ in 0..400 {
        if tracker.table.connections() as usize == model.connections.len() {
            break;
        }
        tracker.table.expire(tracker.now);
    }
    assert_eq!(tracker.table.connections() as usize, model.connections.len());
}

fn address(random: &mut Pcg64Mcg, is_v6: bool) -> IpAddr {
    let number = random.random_range(1..6);
    if is_v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number).into()
    } else {
        Ipv4Addr::new(10, 0, 0, number as u8).into()
    }
}

fn any_end(random: &mut Pcg64Mcg, is_v6: bool) -> End {
    let ports = [80, 90, 700, 1000, 1001, 5000, 5001];
    (address(random, is_v6), ports[random.random_range(0..ports.len())])
}

/// Builds a random packet. Three of five packets belong to a known connection. An ICMP error comes
/// with the tuple of the packet that it quotes.
fn packet(random: &mut Pcg64Mcg, model: &Model) -> (Frame, Option<Tuple>) {
    let is_known = !model.connections.is_empty() && random.random_ratio(3, 5);
    let (from, to, protocol, kind) = if is_known {
        let index = random.random_range(0..model.connections.len());
        let connection = &model.connections[index];
        let tuple = if random.random_bool(0.5) { connection.original } else { connection.reply };
        (tuple.from, tuple.to, tuple.protocol, tuple.kind)
    } else {
        let is_v6 = random.random_ratio(1, 3);
        let protocols = [6, 6, 17, 17, 132, 47, if is_v6 { 58 } else { 1 }];
        let protocol = protocols[random.random_range(0..protocols.len())];
        let kinds = if is_v6 { [128, 128, 129] } else { [8, 8, 0] };
        let kind = matches!(protocol, 1 | 58).then(|| kinds[random.random_range(0..3)]);
        (any_end(random, is_v6), any_end(random, is_v6), protocol, kind)
    };
    let frame = match protocol {
        6 => tcp(from, to, segment(random)),
        17 => udp(from, to),
        132 => sctp(from, to),
        1 | 58 => echo(from.0, to.0, kind.unwrap_or(8), from.1),
        other => plain(from.0, to.0, other),
    };
    if random.random_ratio(1, 10) {
        let quoted = tuple_of(&frame, 0);
        let router = address(random, frame.is_v6());
        return (unreachable(router, from.0, &frame), Some(quoted));
    }
    (frame, None)
}

fn segment(random: &mut Pcg64Mcg) -> Tcp {
    let flags = [2, 2, 18, 18, 16, 16, 16, 17, 4, 20, 24, 0, 3];
    let near = |random: &mut Pcg64Mcg| match random.random_range(0..4) {
        0 => 0,
        1 => random.random_range(0..200),
        2 => u32::MAX - random.random_range(0..200),
        _ => random.random(),
    };
    let payloads = [0, 0, 1, 100];
    Tcp {
        flags: flags[random.random_range(0..flags.len())],
        sequence: near(random),
        acknowledgement: near(random),
        window: if random.random_bool(0.5) { random.random() } else { 8000 },
        scale: random.random_bool(0.5).then(|| random.random_range(0..16)),
        payload: payloads[random.random_range(0..4)],
    }
}

fn call(random: &mut Pcg64Mcg) -> Track {
    let zone = random.random_range(0..2);
    let mut track = match random.random_range(0..12) {
        0..4 => look(zone),
        4 => Track { zone, ..Track::default() },
        5..7 => commit(zone),
        7 => Track { force: true, ..commit(zone) },
        8 => snat(zone, "10.0.0.1-10.0.0.2", None),
        9 => snat(zone, "192.0.2.1", Some((5000, 5002))),
        10 => dnat(zone, "10.0.0.5", None),
        _ => dnat(zone, "fd00::5", Some((90, 99))),
    };
    if track.commit && random.random_ratio(1, 4) {
        track.mark = Some((random.random(), random.random()));
        track.label = Some((random.random(), random.random()));
    }
    if let Some(nat) = &mut track.nat {
        let (persistent, random) = (random.random_bool(0.2), random.random_bool(0.2));
        *nat = Nat { persistent, random: random && nat.ports.is_some(), ..nat.clone() };
    }
    track
}

fn is_error(frame: &Frame) -> bool {
    let kind = frame.bytes[frame.headers.transport];
    (frame.protocol() == 1 && kind == 3) || (frame.protocol() == 58 && kind == 1)
}

fn check_original(frame: &Frame, tuple: Option<&Tuple>) {
    let Some(tuple) = tuple else {
        return;
    };
    let (from, to) = match (tuple.from.0, tuple.to.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            assert_eq!(frame.key.read(Field::CtNwSrc), u32::from(from).into());
            assert_eq!(frame.key.read(Field::CtNwDst), u32::from(to).into());
            (0, 0)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => (u128::from(from), u128::from(to)),
        _ => unreachable!("one IP version"),
    };
    assert_eq!(frame.key.read(Field::CtIpv6Src), from);
    assert_eq!(frame.key.read(Field::CtIpv6Dst), to);
    assert_eq!(frame.key.read(Field::CtNwProto), tuple.protocol.into());
    let ports = match tuple.kind {
        Some(kind) => (kind.into(), 0),
        None => (tuple.from.1, tuple.to.1),
    };
    assert_eq!(frame.key.read(Field::CtTpSrc), ports.0.into());
    assert_eq!(frame.key.read(Field::CtTpDst), ports.1.into());
}
