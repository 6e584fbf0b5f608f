use std::net::IpAddr;

use datapath::Tracked;
use datapath::conntrack::Settings;
use flow::action::Nat;
use flow::step::Track;

use crate::frames::{Frame, SYN, Tcp, echo, end, plain, sctp, tcp, udp, unreachable};
use crate::tracking::{Tracker, commit, dnat, flags, look, snat, tracker, v4};

fn sent(tracker: &Tracker, frame: Frame, track: &Track) -> Frame {
    let mut frame = frame;
    assert_eq!(tracker.track(&mut frame, track), Tracked::Continues);
    frame.check();
    frame
}

fn for_each_shard_count(test: impl Fn(&Tracker)) {
    for threads in [1, 4] {
        test(&Tracker::with(&Settings { threads, seed: 11, ..Settings::default() }));
    }
}

#[test]
fn source_nat_translates_packets_and_their_replies() {
    for_each_shard_count(|tracker| {
        for (client, server, public) in [
            ("10.0.0.1:1000", "10.0.0.2:80", "192.0.2.1:1000"),
            ("[fd00::1]:1000", "[fd00::2]:80", "[2001:db8::1]:1000"),
        ] {
            let (client, server, public) = (end(client), end(server), end(public));
            let track = snat(0, &public.0.to_string(), None);
            for make in [udp, sctp, |from, to| tcp(from, to, Tcp::new(SYN, 1, 0))] {
                let out = sent(tracker, make(client, server), &track);
                assert_eq!(flags(&out), "new|trk|snat");
                assert_eq!(out.ends(), (public, server));
                let again = sent(tracker, make(client, server), &look(0));
                assert_eq!(again.ends(), (public, server));
                // A `ct` call without `nat` does not translate the packet.
                let plain = sent(tracker, make(client, server), &Track::default());
                assert_eq!(plain.ends(), (client, server));
                assert_eq!(flags(&plain), "new|trk");
            }
            let back = sent(tracker, udp(server, public), &look(0));
            assert_eq!(back.ends(), (server, client));
            assert_eq!(flags(&back), "est|rpl|trk|dnat");
        }
    });
}

#[test]
fn destination_nat_translates_packets_and_their_replies() {
    for_each_shard_count(|tracker| {
        let (client, service) = (end("10.0.0.1:1000"), end("192.0.2.1:80"));
        let track = dnat(5, "10.0.0.2", Some((8080, 8080)));
        let out = sent(tracker, udp(client, service), &track);
        assert_eq!(out.ends(), (client, end("10.0.0.2:8080")));
        assert_eq!(flags(&out), "new|trk|dnat");
        let back = sent(tracker, udp(end("10.0.0.2:8080"), client), &look(5));
        assert_eq!(back.ends(), (service, client));
        assert_eq!(flags(&back), "est|rpl|trk|snat");
    });
}

#[test]
fn source_nat_replaces_a_port_in_use() {
    for_each_shard_count(|tracker| {
        let server = end("10.0.0.9:80");
        let track = snat(0, "192.0.2.1", None);
        let first = sent(tracker, udp(end("10.0.0.1:1000"), server), &track);
        let second = sent(tracker, udp(end("10.0.0.2:1000"), server), &track);
        assert_eq!(first.ends().0, end("192.0.2.1:1000"));
        assert_eq!(second.ends().0, end("192.0.2.1:1001"));
        // A privileged port is replaced by a privileged port.
        sent(tracker, udp(end("10.0.0.1:123"), server), &track);
        let privileged = sent(tracker, udp(end("10.0.0.2:123"), server), &track);
        assert_eq!(privileged.ends().0, end("192.0.2.1:124"));
        // A connection to another server, or in another zone, has another tuple, and keeps its
        // port.
        let other = sent(tracker, udp(end("10.0.0.3:1000"), end("10.0.0.8:80")), &track);
        assert_eq!(other.ends().0, end("192.0.2.1:1000"));
        let zone = snat(1, "192.0.2.1", None);
        let other = sent(tracker, udp(end("10.0.0.4:1000"), server), &zone);
        assert_eq!(other.ends().0, end("192.0.2.1:1000"));
    });
}

#[test]
fn connections_beyond_the_ports_of_a_range_are_dropped() {
    for_each_shard_count(|tracker| {
        let server = end("10.0.0.9:80");
        let track = snat(0, "192.0.2.1-192.0.2.2", Some((5000, 5003)));
        let mut seen = Vec::new();
        for host in 1..=8 {
            let client = (v4(host), 1000);
            let out = sent(tracker, udp(client, server), &track);
            let (source, _) = out.ends();
            assert!((5000..=5003).contains(&source.1));
            assert!(!seen.contains(&source), "{source:?} twice");
            seen.push(source);
        }
        for host in 9..12 {
            let mut frame = udp((v4(host), 1000), server);
            assert_eq!(tracker.track(&mut frame, &track), Tracked::Dropped);
            let mut known = udp((v4(1), 1000), server);
            assert_eq!(tracker.track(&mut known, &track), Tracked::Continues);
        }
        assert_eq!(tracker.table.statistics().exhausted, 3);
        assert_eq!(tracker.table.connections(), 8);
        assert_eq!(tracker.table.flush(None), 8);
        sent(tracker, udp((v4(20), 1000), server), &track);
    });
}

#[test]
fn nat_to_address_zero_translates_only_a_port_in_use() {
    for_each_shard_count(|tracker| {
        let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.9:80"));
        let track = snat(0, "0.0.0.0", None);
        let out = sent(tracker, udp(client, server), &track);
        assert_eq!(out.ends().0, client);
        // 10.0.0.2 is translated to 10.0.0.1, whose port is taken.
        let masked = sent(tracker, udp(end("10.0.0.2:1000"), server), &snat(0, "10.0.0.1", None));
        assert_eq!(masked.ends().0, end("10.0.0.1:1001"));
        let own = sent(tracker, udp(end("10.0.0.1:1001"), server), &track);
        assert_eq!(own.ends().0, end("10.0.0.1:1002"));
        // Without `nat`, this connection would receive the replies for another connection.
        let mut plain = udp(end("10.0.0.1:1002"), server);
        tracker.track(&mut plain, &commit(0));
        assert_eq!(tracker.table.statistics().clashed, 1);
    });
}

#[test]
fn a_persistent_address_depends_on_the_source_alone() {
    let tracker = tracker();
    let nat = |track: Track| Nat { persistent: true, ..track.nat.unwrap_or_default() };
    let track = snat(0, "192.0.2.0-192.0.2.255", None);
    let track = Track { nat: Some(nat(track.clone())), ..track };
    let mut addresses = Vec::new();
    for host in 1..20 {
        let mut own = Vec::new();
        for port in 1000..1020 {
            let server = (v4(200), port);
            own.push(sent(&tracker, udp((v4(host), port), server), &track).source());
        }
        own.dedup();
        assert_eq!(own.len(), 1);
        addresses.push(own[0]);
    }
    addresses.sort();
    addresses.dedup();
    assert!(addresses.len() > 10);
}

#[test]
fn nat_with_random_chooses_varying_ports() {
    let tracker = tracker();
    let track = snat(0, "192.0.2.1", Some((2000, 60_000)));
    let nat = Nat { random: true, ..track.nat.clone().unwrap_or_default() };
    let track = Track { nat: Some(nat), ..track };
    let mut ports: Vec<u16> = (1..=100)
        .map(|port| sent(&tracker, udp((v4(1), port), (v4(2), port)), &track).ports().0)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() > 90);
}

#[test]
fn echo_identifiers_are_translated_like_ports() {
    for_each_shard_count(|tracker| {
        for (one, two, server, public, request, reply) in [
            ("10.0.0.1", "10.0.0.2", "10.0.0.9", "192.0.2.1", 8, 0),
            ("fd00::1", "fd00::2", "fd00::9", "2001:db8::1", 128, 129),
        ] {
            let parse = |text: &str| text.parse::<IpAddr>().expect("address");
            let (one, two, server, public) = (parse(one), parse(two), parse(server), parse(public));
            let track = snat(0, &public.to_string(), None);
            let first = sent(tracker, echo(one, server, request, 7000), &track);
            let second = sent(tracker, echo(two, server, request, 7000), &track);
            assert_eq!(first.ends(), ((public, 7000), (server, 7000)));
            assert_eq!(second.ends(), ((public, 7001), (server, 7001)));
            let back = sent(tracker, echo(server, public, reply, 7001), &look(0));
            assert_eq!(back.ends(), ((server, 7000), (two, 7000)));
        }
    });
}

#[test]
fn protocols_without_ports_are_translated_by_address() {
    let tracker = tracker();
    let track = snat(0, "192.0.2.1", None);
    let out = sent(&tracker, plain(v4(1), v4(9), 47), &track);
    assert_eq!(out.source(), "192.0.2.1".parse::<IpAddr>().expect("address"));
    let mut second = plain(v4(2), v4(9), 47);
    assert_eq!(tracker.track(&mut second, &track), Tracked::Dropped);
}

#[test]
fn icmp_errors_are_translated_with_the_packet_that_they_quote() {
    for_each_shard_count(|tracker| {
        for (client, server, public, router) in [
            ("10.0.0.1:1000", "10.0.0.9:80", "192.0.2.1:1000", "10.0.0.254"),
            ("[fd00::1]:1000", "[fd00::9]:80", "[2001:db8::1]:1000", "fd00::fe"),
        ] {
            let (client, server, public) = (end(client), end(server), end(public));
            let router: IpAddr = router.parse().expect("address");
            for make in [udp, sctp, |from, to| tcp(from, to, Tcp::new(SYN, 1, 0))] {
                let track = snat(0, &public.0.to_string(), None);
                let request = make(client, server);
                let out = sent(tracker, request.clone(), &track);
                // A router behind the switch sends an error. The client gets the error, which
                // quotes the client's packet as the client sent it.
                let error = unreachable(router, public.0, &out);
                let back = sent(tracker, error, &look(0));
                assert_eq!(flags(&back), "rel|rpl|trk|dnat");
                assert_eq!(back.bytes, unreachable(router, client.0, &request).bytes);
                // A second pass in the zone finds the connection, and does not translate the packet
                // again.
                let twice = sent(tracker, back.clone(), &look(0));
                assert_eq!(twice.bytes, back.bytes);
                assert_eq!(flags(&twice), flags(&back));
            }
        }
    });
}

#[test]
fn an_icmp_error_from_a_translated_server_hides_its_real_address() {
    let tracker = tracker();
    let (client, service, server) = (end("10.0.0.1:1000"), end("192.0.2.1:80"), end("10.0.0.9:80"));
    let request = udp(client, service);
    let out = sent(&tracker, request.clone(), &dnat(0, "10.0.0.9", None));
    assert_eq!(out.ends(), (client, server));
    let error = unreachable(server.0, client.0, &out);
    let back = sent(&tracker, error, &look(0));
    assert_eq!(back.bytes, unreachable(service.0, client.0, &request).bytes);
}

#[test]
fn a_second_pass_in_a_zone_finds_the_translated_connection() {
    for_each_shard_count(|tracker| {
        let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.9:80"));
        let out = sent(tracker, udp(client, server), &snat(2, "192.0.2.1", None));
        let mut twice = sent(tracker, out.clone(), &look(2));
        assert_eq!(twice.bytes, out.bytes);
        assert_eq!(flags(&twice), "new|trk|snat");
        // In another zone, the translated packet has no connection yet.
        tracker.track(&mut twice, &commit(3));
        assert_eq!(flags(&twice), "new|trk");
        assert_eq!(tracker.table.connections(), 2);
    });
}

#[test]
fn nat_leaves_a_udp_packet_without_a_checksum() {
    let tracker = tracker();
    let mut frame = udp(end("10.0.0.1:1000"), end("10.0.0.9:80"));
    frame.bytes[40..42].fill(0);
    tracker.track(&mut frame, &snat(0, "192.0.2.1", None));
    assert_eq!(frame.bytes[40..42], [0, 0]);
    assert_eq!(frame.ends().0, end("192.0.2.1:1000"));
}
