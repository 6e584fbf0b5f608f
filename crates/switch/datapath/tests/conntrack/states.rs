use datapath::Tracked;
use datapath::conntrack::{Settings, Timeouts};
use flow::Field;
use flow::connection::TupleMatch;
use flow::step::Track;
use units::Span;

use crate::frames::{
    ACK, FIN, Frame, RST, SYN, Tcp, echo, end, plain, sctp, tcp, udp, unreachable,
};
use crate::tracking::{Tracker, commit, flags, look, tracker, v4};

#[test]
fn an_uncommitted_connection_stays_new() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    for _ in 0..3 {
        assert_eq!(tracker.state(udp(client, server), &look(0)), "new|trk");
    }
    assert_eq!(tracker.table.connections(), 0);
}

#[test]
fn a_reply_establishes_a_udp_connection() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    assert_eq!(tracker.state(udp(client, server), &commit(3)), "new|trk");
    assert_eq!(tracker.state(udp(client, server), &look(3)), "new|trk");
    assert_eq!(tracker.state(udp(client, server), &look(4)), "new|trk");
    assert_eq!(tracker.state(udp(server, client), &look(3)), "est|rpl|trk");
    assert_eq!(tracker.state(udp(client, server), &look(3)), "est|trk");
    assert_eq!(
        tracker.dump(),
        ["udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=53),\
          reply=(src=10.0.0.2,dst=10.0.0.1,sport=53,dport=1000),zone=3"]
    );
}

#[test]
fn a_packet_shows_the_original_tuple_in_both_directions() {
    let tracker = tracker();
    let (client, server) = (end("[fd00::1]:1000"), end("[fd00::2]:53"));
    let mut request = udp(client, server);
    tracker.track(&mut request, &commit(3));
    let mut answer = udp(server, client);
    tracker.track(&mut answer, &look(3));
    for frame in [&request, &answer] {
        assert_eq!(frame.key.read(Field::CtZone), 3);
        assert_eq!(frame.key.read(Field::CtNwProto), 17);
        assert_eq!(frame.key.read(Field::CtIpv6Src), 0xfd00 << 112 | 1);
        assert_eq!(frame.key.read(Field::CtIpv6Dst), 0xfd00 << 112 | 2);
        assert_eq!(frame.key.read(Field::CtTpSrc), 1000);
        assert_eq!(frame.key.read(Field::CtTpDst), 53);
    }
}

#[test]
fn a_tcp_connection_goes_through_its_states() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let to = |segment| tcp(client, server, segment);
    let back = |segment| tcp(server, client, segment);
    let state = || {
        let line = tracker.dump().pop().unwrap_or_default();
        line.split("state=").nth(1).unwrap_or_default().trim_end_matches(')').to_owned()
    };
    assert_eq!(tracker.state(to(Tcp::new(SYN, 100, 0)), &commit(0)), "new|trk");
    assert_eq!(state(), "SYN_SENT");
    assert_eq!(tracker.state(to(Tcp::new(SYN, 100, 0)), &look(0)), "new|trk");
    assert_eq!(tracker.state(back(Tcp::new(SYN | ACK, 500, 101)), &look(0)), "est|rpl|trk");
    assert_eq!(state(), "ESTABLISHED");
    assert_eq!(tracker.state(to(Tcp::new(ACK, 101, 501)), &look(0)), "est|trk");
    let data = Tcp { payload: 1000, ..Tcp::new(ACK, 101, 501) };
    assert_eq!(tracker.state(to(data), &look(0)), "est|trk");
    let outside = Tcp { payload: 10, ..Tcp::new(ACK, 900_000, 501) };
    assert_eq!(tracker.state(to(outside), &look(0)), "inv|trk");
    assert_eq!(tracker.state(to(Tcp::new(FIN | ACK, 1101, 501)), &look(0)), "est|trk");
    assert_eq!(state(), "CLOSING");
    assert_eq!(tracker.state(back(Tcp::new(ACK, 501, 1102)), &look(0)), "est|rpl|trk");
    assert_eq!(tracker.state(back(Tcp::new(FIN | ACK, 501, 1102)), &look(0)), "est|rpl|trk");
    assert_eq!(tracker.state(to(Tcp::new(ACK, 1102, 502)), &look(0)), "est|trk");
    assert_eq!(state(), "TIME_WAIT");
    // A new connection with the same ports replaces the closed connection.
    assert_eq!(tracker.state(to(Tcp::new(SYN, 7000, 0)), &commit(0)), "new|trk");
    assert_eq!(state(), "SYN_SENT");
    assert_eq!(tracker.table.connections(), 1);
}

#[test]
fn a_reset_closes_a_connection_only_with_the_expected_sequence_number() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    tracker.state(tcp(client, server, Tcp::new(SYN, 100, 0)), &commit(0));
    tracker.state(tcp(server, client, Tcp::new(SYN | ACK, 500, 101)), &look(0));
    tracker.state(tcp(client, server, Tcp::new(ACK, 101, 501)), &look(0));
    let wrong = tcp(server, client, Tcp::new(RST, 777, 0));
    assert_eq!(tracker.state(wrong, &look(0)), "inv|trk");
    assert!(tracker.dump()[0].contains("ESTABLISHED"));
    let right = tcp(server, client, Tcp::new(RST, 501, 0));
    assert_eq!(tracker.state(right, &look(0)), "est|rpl|trk");
    assert!(tracker.dump()[0].contains("TIME_WAIT"));
}

#[test]
fn a_tcp_connection_may_begin_with_data_but_not_with_a_syn_ack() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let answer = Tcp::new(SYN | ACK, 500, 101);
    assert_eq!(tracker.state(tcp(server, client, answer), &commit(0)), "inv|trk");
    assert_eq!(tracker.table.connections(), 0);
    let data = Tcp { payload: 100, ..Tcp::new(ACK, 101, 501) };
    assert_eq!(tracker.state(tcp(client, server, data), &commit(0)), "new|trk");
    // The tracker knows neither the window nor whether the peer scales its window.
    let data = Tcp { payload: 100, ..Tcp::new(ACK, 50_000, 501) };
    assert_eq!(tracker.state(tcp(client, server, data), &look(0)), "est|trk");
    let back = Tcp { payload: 100, ..Tcp::new(ACK, 501, 50_100) };
    assert_eq!(tracker.state(tcp(server, client, back), &look(0)), "est|rpl|trk");
}

#[test]
fn segments_beyond_a_scaled_window_are_invalid() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let syn = Tcp { scale: Some(7), window: 1000, ..Tcp::new(SYN, 0, 0) };
    let answer = Tcp { scale: Some(7), window: 1000, ..Tcp::new(SYN | ACK, 0, 1) };
    tracker.state(tcp(client, server, syn), &commit(0));
    tracker.state(tcp(server, client, answer), &look(0));
    let acknowledge = Tcp { window: 1000, ..Tcp::new(ACK, 1, 1) };
    tracker.state(tcp(client, server, acknowledge), &look(0));
    let far = Tcp { payload: 1000, window: 1000, ..Tcp::new(ACK, 100_000, 1) };
    assert_eq!(tracker.state(tcp(server, client, far), &look(0)), "est|rpl|trk");
    let too_far = Tcp { payload: 1000, window: 1000, ..Tcp::new(ACK, 300_000, 1) };
    assert_eq!(tracker.state(tcp(server, client, too_far), &look(0)), "inv|trk");
    tracker.table.set_checks_tcp_sequence(false);
    assert_eq!(tracker.state(tcp(server, client, too_far), &look(0)), "est|rpl|trk");
}

#[test]
fn icmp_echo_requests_with_the_same_identifier_are_one_connection() {
    let tracker = tracker();
    for (one, two, request, reply) in
        [(v4(1), v4(2), 8, 0), ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), 128, 129)]
    {
        assert_eq!(tracker.state(echo(two, one, reply, 7), &commit(0)), "inv|trk");
        assert_eq!(tracker.state(echo(one, two, request, 7), &commit(0)), "new|trk");
        assert_eq!(tracker.state(echo(one, two, request, 7), &look(0)), "new|trk");
        assert_eq!(tracker.state(echo(two, one, reply, 8), &look(0)), "inv|trk");
        assert_eq!(tracker.state(echo(two, one, reply, 7), &look(0)), "est|rpl|trk");
        // An echo request from the other endpoint with the same identifier belongs to another
        // connection.
        assert_eq!(tracker.state(echo(two, one, request, 7), &commit(0)), "new|trk");
    }
    let lines = tracker.dump();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[0],
        "icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=7,type=8,code=0),\
         reply=(src=10.0.0.2,dst=10.0.0.1,id=7,type=0,code=0)"
    );
}

#[test]
fn icmp_errors_are_related_to_the_connection_that_they_quote() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    let packet = udp(client, server);
    let error = unreachable(v4(9), v4(1), &packet);
    assert_eq!(tracker.state(error.clone(), &look(0)), "inv|trk");
    tracker.state(packet.clone(), &commit(0));
    assert_eq!(tracker.state(error, &look(0)), "rel|rpl|trk");
    let wrong = unreachable(v4(9), v4(3), &packet);
    assert_eq!(tracker.state(wrong, &look(0)), "inv|trk");
    let packet = udp(server, client);
    let error = unreachable(v4(9), v4(2), &packet);
    assert_eq!(tracker.state(error, &look(0)), "rel|trk");
    let (client, server) = (end("[fd00::1]:1000"), end("[fd00::2]:53"));
    let packet = udp(client, server);
    tracker.state(packet.clone(), &commit(0));
    let error = unreachable("fd00::9".parse().unwrap(), client.0, &packet);
    assert_eq!(tracker.state(error, &look(0)), "rel|rpl|trk");
}

#[test]
fn packets_without_ports_are_one_connection_per_protocol_and_address_pair() {
    let tracker = tracker();
    assert_eq!(tracker.state(plain(v4(1), v4(2), 47), &commit(0)), "new|trk");
    assert_eq!(tracker.state(plain(v4(2), v4(1), 47), &look(0)), "est|rpl|trk");
    assert_eq!(tracker.state(plain(v4(2), v4(1), 50), &look(0)), "new|trk");
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:2000"));
    assert_eq!(tracker.state(sctp(client, server), &commit(0)), "new|trk");
    assert_eq!(tracker.state(sctp(server, client), &look(0)), "est|rpl|trk");
}

#[test]
fn only_masked_bits_of_marks_and_labels_change() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    let set = |mark, label| Track { mark, label, ..commit(0) };
    let mut frame = udp(client, server);
    tracker.track(&mut frame, &set(Some((0x0f, 0xff)), Some((1 << 100, 1 << 100))));
    assert_eq!(frame.key.read(Field::CtMark), 0x0f);
    let mut frame = udp(client, server);
    tracker.track(&mut frame, &set(Some((0x100, 0xf01)), Some((7, 7))));
    assert_eq!(frame.key.read(Field::CtMark), 0x10e);
    let mut answer = udp(server, client);
    tracker.track(&mut answer, &look(0));
    assert_eq!(answer.key.read(Field::CtMark), 0x10e);
    assert_eq!(answer.key.read(Field::CtLabel), 1 << 100 | 7);
    assert!(tracker.dump()[0].contains(",mark=270,labels=0x10000000000000000000000007"));
}

#[test]
fn ct_force_replaces_a_connection_in_the_other_direction() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    let force = Track { force: true, ..commit(0) };
    tracker.state(udp(client, server), &commit(0));
    assert_eq!(tracker.state(udp(client, server), &force), "new|trk");
    assert_eq!(tracker.state(udp(server, client), &force), "new|trk");
    assert_eq!(tracker.table.connections(), 1);
    assert_eq!(tracker.state(udp(client, server), &look(0)), "est|rpl|trk");
}

#[test]
fn a_packet_that_is_tracked_twice_in_a_zone_keeps_its_state() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    tracker.state(tcp(client, server, Tcp::new(SYN, 100, 0)), &commit(0));
    tracker.state(tcp(server, client, Tcp::new(SYN | ACK, 500, 101)), &look(0));
    tracker.state(tcp(client, server, Tcp::new(ACK, 101, 501)), &look(0));
    let mut data = tcp(client, server, Tcp { payload: 50, ..Tcp::new(ACK, 101, 501) });
    tracker.track(&mut data, &look(0));
    tracker.track(&mut data, &commit(0));
    assert_eq!(flags(&data), "est|trk");
    // In another zone, the connection is new.
    tracker.track(&mut data, &look(1));
    assert_eq!(flags(&data), "new|trk");
}

#[test]
fn malformed_packets_are_invalid() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    let spoil = |at: usize, value: u8| {
        let mut frame = tcp(client, server, Tcp::new(SYN, 100, 0));
        frame.bytes[at] ^= value;
        tracker.state(frame, &commit(0))
    };
    assert_eq!(spoil(24, 1), "inv|trk", "IP checksum");
    assert_eq!(spoil(50, 1), "inv|trk", "TCP checksum");
    let mut frame = tcp(client, server, Tcp::new(SYN, 100, 0));
    frame.bytes[46] = 0xf0;
    frame.complete();
    assert_eq!(tracker.state(frame, &commit(0)), "inv|trk", "data offset");
    for flags in [0, FIN, SYN | FIN, SYN | RST, 8, 32] {
        let frame = tcp(client, server, Tcp::new(flags, 100, 0));
        assert_eq!(tracker.state(frame, &commit(0)), "inv|trk", "flags {flags}");
    }
    let frame = udp((client.0, 0), server);
    assert_eq!(tracker.state(frame, &commit(0)), "inv|trk", "port 0");
    assert_eq!(tracker.table.connections(), 0);
    let lenient = Tracker::with(&Settings { verify_checksums: false, ..Settings::default() });
    let mut frame = tcp(client, server, Tcp::new(SYN, 100, 0));
    frame.bytes[50] ^= 1;
    assert_eq!(lenient.state(frame, &commit(0)), "new|trk");
}

#[test]
fn later_fragments_are_invalid_and_first_fragments_are_tracked() {
    let tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    let mut first = udp(client, server);
    first.bytes[20] = 0x20;
    // The UDP length includes the other fragments.
    first.bytes[39] = 200;
    let wrong = first.bytes[40] ^ 0x55;
    first.complete();
    first.bytes[40] = wrong;
    assert_eq!(tracker.state(first, &commit(0)), "new|trk");
    let mut later = udp(client, server);
    later.bytes[21] = 9;
    later.complete();
    assert_eq!(tracker.state(later, &commit(0)), "inv|trk");
}

#[test]
fn connections_end_at_their_timeouts() {
    let timeouts = Timeouts { udp_single: Span::from_secs(7), ..Timeouts::default() };
    let mut tracker = Tracker::with(&Settings { timeouts, ..Settings::default() });
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:53"));
    tracker.state(udp(client, server), &commit(0));
    tracker.pass(Span::from_millis(59_999));
    assert_eq!(tracker.state(udp(client, server), &look(0)), "new|trk");
    tracker.pass(Span::from_millis(6_999));
    tracker.table.expire(tracker.now);
    assert_eq!(tracker.table.connections(), 1);
    assert_eq!(tracker.state(udp(server, client), &look(0)), "est|rpl|trk");
    tracker.pass(Span::from_secs(30));
    assert_eq!(tracker.state(udp(server, client), &look(0)), "new|trk");
    assert_eq!(tracker.table.connections(), 0);
    assert_eq!(tracker.table.statistics().expired, 1);
}

#[test]
fn a_reset_shortens_the_lifetime_of_an_established_connection() {
    let mut tracker = tracker();
    let (client, server) = (end("10.0.0.1:1000"), end("10.0.0.2:80"));
    tracker.state(tcp(client, server, Tcp::new(SYN, 100, 0)), &commit(0));
    tracker.state(tcp(server, client, Tcp::new(SYN | ACK, 500, 101)), &look(0));
    tracker.state(tcp(client, server, Tcp::new(ACK, 101, 501)), &look(0));
    // The wheel moves the connection to the slot for an expiry in a day.
    tracker.pass(Span::from_secs(60));
    tracker.table.expire(tracker.now);
    tracker.state(tcp(client, server, Tcp::new(RST, 101, 0)), &look(0));
    assert_eq!(tracker.table.connections(), 1);
    tracker.pass(Span::from_secs(31));
    tracker.table.expire(tracker.now);
    assert_eq!(tracker.table.connections(), 0);
}

#[test]
fn expiry_collects_all_connections_in_bounded_steps() {
    let mut tracker = tracker();
    for port in 1..3000 {
        tracker.state(udp(end(&format!("10.0.0.1:{port}")), end("10.0.0.2:53")), &commit(0));
    }
    // A day passes without packets. The first call does more work after the pause.
    tracker.pass(Span::from_secs(86_400));
    let mut calls = 0;
    while tracker.table.connections() > 0 {
        let before = tracker.table.connections();
        tracker.table.expire(tracker.now);
        assert!(before - tracker.table.connections() <= if calls == 0 { 2000 } else { 256 });
        calls += 1;
        assert!(calls < 1000);
    }
    assert!(calls > 3);
}

#[test]
fn a_full_table_refuses_new_connections_and_keeps_the_old_connections() {
    let tracker = Tracker::with(&Settings { max_connections: 10, ..Settings::default() });
    let server = end("10.0.0.2:53");
    let client = |number: u16| end(&format!("10.0.0.1:{number}"));
    for number in 1..20 {
        assert_eq!(tracker.state(udp(client(number), server), &commit(0)), "new|trk");
    }
    assert_eq!(tracker.table.connections(), 10);
    assert_eq!(tracker.table.statistics().full, 9);
    assert_eq!(tracker.state(udp(server, client(10)), &look(0)), "est|rpl|trk");
    assert_eq!(tracker.state(udp(server, client(11)), &look(0)), "new|trk");
    tracker.table.set_max_connections(11);
    tracker.state(udp(client(11), server), &commit(0));
    assert_eq!(tracker.table.connections(), 11);
}

#[test]
fn half_open_connections_end_early_in_a_nearly_full_table() {
    let mut tracker = Tracker::with(&Settings { max_connections: 16, ..Settings::default() });
    let server = end("10.0.0.2:80");
    let syn = |number: u16| tcp(end(&format!("10.0.0.1:{number}")), server, Tcp::new(SYN, 1, 0));
    tracker.state(udp(end("10.0.0.1:1"), server), &commit(0));
    for number in 100..116 {
        tracker.state(syn(number), &commit(0));
    }
    assert_eq!(tracker.table.connections(), 16);
    assert_eq!(tracker.table.statistics().full, 1);
    tracker.pass(Span::from_secs(6));
    tracker.state(syn(200), &commit(0));
    assert_eq!(tracker.table.statistics().reclaimed, 15);
    assert_eq!(tracker.table.connections(), 2);
    assert!(tracker.dump()[1].starts_with("udp"));
}

#[test]
fn the_limit_of_a_zone_refuses_further_connections() {
    let tracker = tracker();
    let server = end("10.0.0.2:53");
    let client = |number: u16| end(&format!("10.0.0.1:{number}"));
    tracker.table.set_default_zone_limit(3);
    tracker.table.set_zone_limit(7, 5);
    for number in 1..10 {
        tracker.state(udp(client(number), server), &commit(6));
        tracker.state(udp(client(number), server), &commit(7));
    }
    let limits = tracker.table.zone_limits();
    assert_eq!(limits.len(), 1);
    assert_eq!((limits[0].zone, limits[0].limit, limits[0].count), (7, 5, 5));
    assert_eq!(tracker.table.zone_limit(6).count, 3);
    assert_eq!(tracker.table.zone_limit(6).limit, 3);
    assert_eq!(tracker.table.statistics().zone_full, 10);
    tracker.table.remove_zone_limit(7);
    tracker.table.set_default_zone_limit(0);
    tracker.state(udp(client(100), server), &commit(7));
    assert_eq!(tracker.table.zone_limit(7).count, 6);
}

#[test]
fn a_packet_whose_tuple_a_rule_changes_counts_for_both_connections() {
    let tracker = tracker();
    let (client, outside) = (end("10.0.0.2:40000"), end("10.0.1.1:80"));
    let (shown, server) = (end("10.0.1.2:40000"), end("10.0.0.1:80"));
    let rewrite = |frame: &mut Frame, addresses: [u8; 8]| {
        frame.bytes[26..34].copy_from_slice(&addresses);
        frame.parse();
        frame.complete();
    };
    let mut syn = tcp(client, outside, Tcp::new(SYN, 1, 0));
    tracker.track(&mut syn, &commit(0));
    rewrite(&mut syn, [10, 0, 1, 2, 10, 0, 0, 1]);
    tracker.track(&mut syn, &commit(0));
    assert_eq!((tracker.table.connections(), flags(&syn)), (2, "new|trk".to_owned()));
    let mut answer = tcp(server, shown, Tcp::new(SYN | ACK, 7, 2));
    tracker.track(&mut answer, &look(0));
    rewrite(&mut answer, [10, 0, 1, 1, 10, 0, 0, 2]);
    tracker.track(&mut answer, &look(0));
    assert_eq!(flags(&answer), "est|rpl|trk");
    // The first connection has also counted the reply packet.
    assert_eq!(tracker.state(tcp(client, outside, Tcp::new(ACK, 2, 8)), &look(0)), "est|trk");
    let states: Vec<_> = tracker.dump();
    assert!(states.iter().all(|line| line.contains("state=ESTABLISHED")), "{states:?}");
    // A packet with a wrong checksum is invalid in each pass.
    let mut wrong = tcp(client, outside, Tcp::new(ACK, 2, 8));
    wrong.bytes[50] ^= 1;
    for _ in 0..2 {
        tracker.track(&mut wrong, &look(0));
        assert_eq!(flags(&wrong), "inv|trk");
    }
}

#[test]
fn a_flush_removes_all_connections_or_the_connections_of_a_zone_or_of_a_tuple() {
    let tracker = tracker();
    let server = end("10.0.0.2:53");
    let client = |number: u16| end(&format!("10.0.0.1:{number}"));
    for number in 1..5 {
        tracker.state(udp(client(number), server), &commit(6));
        tracker.state(udp(client(number), server), &commit(7));
    }
    let original = TupleMatch {
        source: Some(v4(1)),
        destination: Some(v4(2)),
        protocol: Some(17),
        source_port: Some(2),
        destination_port: Some(53),
        ..TupleMatch::default()
    };
    let any = TupleMatch::default();
    assert_eq!(tracker.table.flush_tuples(None, &original, &any), 0);
    // A complete tuple also matches a connection whose reply direction has this tuple.
    let reversed = TupleMatch {
        source: original.destination,
        destination: original.source,
        source_port: original.destination_port,
        destination_port: original.source_port,
        ..original
    };
    assert_eq!(tracker.table.flush_tuples(Some(6), &reversed, &any), 1);
    tracker.state(udp(client(2), server), &commit(6));
    assert_eq!(tracker.table.flush_tuples(Some(6), &original, &any), 1);
    // An incomplete tuple matches in all zones.
    tracker.state(udp(client(9), server), &commit(6));
    tracker.state(udp(client(9), server), &commit(7));
    let part = TupleMatch { protocol: Some(17), source_port: Some(9), ..TupleMatch::default() };
    assert_eq!(tracker.table.flush_tuples(None, &part, &any), 2);
    assert_eq!(tracker.state(udp(client(2), server), &look(6)), "new|trk");
    assert_eq!(tracker.table.flush(Some(6)), 3);
    assert_eq!(tracker.table.counts(None, tracker.now).udp, 4);
    assert_eq!(tracker.table.flush(None), 4);
    assert_eq!(tracker.table.connections(), 0);
    assert_eq!(tracker.track(&mut udp(client(2), server), &look(6)), Tracked::Continues);
}
