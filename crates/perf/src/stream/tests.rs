use super::*;
use crate::event::Datagrams;
use crate::options::Amount;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::time::Duration;
use units::{Bytes, Rate, Span};

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let one = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

/// Returns the options of a UDP test whose datagrams have `block` bytes.
fn udp_options(block: u64) -> TestOptions {
    let block = Some(Bytes::new(block));
    TestOptions { protocol: Protocol::Udp, block, ..TestOptions::default() }
}

fn start(sends: bool, sockets: Vec<DataSocket>, options: &TestOptions) -> Running {
    let opened = (1..).zip(sockets).map(|(id, socket)| Opened { id, sends, socket }).collect();
    Running::start(opened, options, None, Stop::default()).unwrap()
}

/// Starts `count` TCP streams; returns the sending and the receiving side.
fn tcp_ends(count: usize, options: &TestOptions) -> (Running, Running) {
    let (clients, servers): (Vec<_>, Vec<_>) = (0..count)
        .map(|_| tcp_pair())
        .map(|(client, server)| (DataSocket::Tcp(client), DataSocket::Tcp(server)))
        .unzip();
    (start(true, clients, options), start(false, servers, options))
}

fn udp_ends(options: &TestOptions) -> (Running, Running) {
    let (client, server) = udp_pair();
    for socket in [&client, &server] {
        on_unconnected(socket, options, false).unwrap();
    }
    let sender = start(true, vec![DataSocket::Udp(client)], options);
    (sender, start(false, vec![DataSocket::Udp(server)], options))
}

/// Polls until the condition is true. If the condition stays false, the test hangs, and its name
/// shows which test hangs.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn sum(snapshots: &[StreamSnapshot]) -> u64 {
    snapshots.iter().map(|snapshot| snapshot.bytes.count()).sum()
}

#[test]
fn no_data_is_sent_before_the_start() {
    let (sender, receiver) = tcp_ends(1, &TestOptions::default());
    receiver.go();
    assert_eq!(sum(&sender.snapshot()), 0);
    assert_eq!(sum(&sender.finish()), 0);
    assert_eq!(sum(&receiver.finish()), 0);
}

#[test]
fn streams_share_a_budget_of_whole_blocks_and_all_of_it_arrives() {
    for zero_copy in [false, true] {
        let options = TestOptions {
            amount: Amount::Bytes(10_000_001),
            block: Some(Bytes::new(100_000)),
            zero_copy,
            skip_receive_copy: zero_copy,
            ..TestOptions::default()
        };
        let (sender, receiver) = tcp_ends(3, &options);
        receiver.go();
        sender.go();
        until(|| sender.is_spent() && sender.is_delivered());
        assert_eq!(sum(&sender.finish()), 10_100_000);
        until(|| receiver.failure().is_some() && sum(&receiver.snapshot()) == 10_100_000);
        assert_eq!(receiver.failure().map(|failure| failure.ending), Some(Ending::Closed));
    }
}

#[test]
fn omitted_bytes_are_counted_separately_and_no_byte_is_lost() {
    let (sender, receiver) = tcp_ends(2, &TestOptions::default());
    receiver.go();
    sender.go();
    until(|| sum(&receiver.snapshot()) > 1_000_000);
    sender.reset();
    receiver.reset();
    let both = |snapshots: &[StreamSnapshot]| {
        sum(snapshots) + snapshots.iter().map(|s| s.omitted.bytes.count()).sum::<u64>()
    };
    until(|| sum(&receiver.snapshot()) > 1_000_000);
    sender.stop_sending();
    until(|| sender.streams.iter().all(|stream| stream.thread.as_ref().unwrap().is_finished()));
    let sent = sender.finish();
    until(|| both(&receiver.snapshot()) == both(&sent));
    let received = receiver.finish();
    for end in [sent, received] {
        assert!(end.iter().any(|stream| stream.omitted.bytes.count() > 0));
    }
}

#[test]
fn a_sender_whose_peer_does_not_read_ends_with_the_test() {
    let (client, server) = tcp_pair();
    let sender = start(true, vec![DataSocket::Tcp(client)], &TestOptions::default());
    sender.go();
    until(|| sum(&sender.snapshot()) > 0);
    assert!(sum(&sender.finish()) > 0);
    drop(server);
}

#[test]
fn a_receiver_whose_peer_does_not_send_ends_with_the_test() {
    let options = TestOptions { protocol: Protocol::Udp, ..TestOptions::default() };
    for (socket, options) in [
        (DataSocket::Tcp(tcp_pair().0), TestOptions::default()),
        (DataSocket::Udp(udp_pair().0), options),
    ] {
        let receiver = start(false, vec![socket], &options);
        receiver.go();
        receiver.finish();
    }
    let (client, _server) = tcp_pair();
    let receiver = start(false, vec![DataSocket::Tcp(client)], &TestOptions::default());
    receiver.go();
    assert_eq!(receiver.finish()[0].bytes.count(), 0);
}

#[test]
fn a_tcp_reset_is_reported_as_a_reset() {
    let (client, server) = tcp_pair();
    socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
    let receiver = start(false, vec![DataSocket::Tcp(client)], &TestOptions::default());
    receiver.go();
    drop(server);
    until(|| receiver.failure().is_some());
    let failure = receiver.failure().unwrap();
    assert_eq!(failure.ending, Ending::Reset);
    assert_eq!(failure.to_string(), "stream 1: the data connection was reset");
}

#[test]
fn an_oversized_datagram_is_reported_with_the_size_that_fits() {
    let options = TestOptions { dont_fragment: true, ..udp_options(65_507) };
    // The loopback interface's MTU is 65536, which holds the largest IPv4 datagram.
    let Ok(receiver) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) else {
        testing::skip(testing::Need::Ipv6);
        return;
    };
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    socket.connect(receiver.local_addr().unwrap()).unwrap();
    on_unconnected(&socket, &options, true).unwrap();
    let sender = start(true, vec![DataSocket::Udp(socket)], &options);
    sender.go();
    until(|| sender.failure().is_some());
    let ending = sender.failure().unwrap().ending;
    assert!(matches!(ending, Ending::TooLarge { fits: Some(_) }) && ending.is_own(), "{ending:?}");
    assert!(ending.to_string().ends_with(" or less"), "{ending}");
}

#[test]
fn a_peer_that_no_longer_takes_datagrams_is_reported() {
    let options = TestOptions {
        protocol: Protocol::Udp,
        rate: Some(Rate::from_mbit(8)),
        ..TestOptions::default()
    };
    let (client, server) = udp_pair();
    drop(server);
    let sender = start(true, vec![DataSocket::Udp(client)], &options);
    sender.go();
    until(|| sender.failure().is_some());
    let ending = sender.failure().unwrap().ending;
    assert_eq!(ending, Ending::Refused);
    assert!(!ending.is_own());
}

#[test]
fn all_sent_data_is_counted_once_senders_have_stopped() {
    let (sender, receiver) = tcp_ends(8, &TestOptions::default());
    receiver.go();
    sender.go();
    until(|| sum(&receiver.snapshot()) > 10_000_000);
    sender.stop_sending();
    sender.await_senders();
    let counted = sum(&sender.snapshot());
    assert_eq!(counted, sum(&sender.finish()));
}

#[test]
fn a_call_to_stop_stops_the_senders() {
    let (client, server) = tcp_pair();
    let stop = Stop::default();
    let opened = vec![Opened { id: 1, sends: true, socket: DataSocket::Tcp(client) }];
    let sender = Running::start(opened, &TestOptions::default(), Some(0), stop.clone()).unwrap();
    sender.go();
    stop.call();
    until(|| sender.streams[0].thread.as_ref().unwrap().is_finished());
    assert_eq!(sender.failure(), None);
    drop(server);
}

#[test]
fn datagrams_are_numbered_segmented_and_counted() {
    // The receiver's buffer holds all datagrams, however late its thread reads.
    for (wide, block, blocks) in
        [(false, 16, 100), (true, 200, 100), (true, 1000, 100), (false, 20_000, 10)]
    {
        let options = TestOptions {
            protocol: Protocol::Udp,
            amount: Amount::Blocks(blocks),
            block: Some(Bytes::new(block)),
            // A rate so high that several datagrams are due at once.
            rate: Some(Rate::from_mbit(200)),
            burst: 10,
            udp_wide_counters: wide,
            ..TestOptions::default()
        };
        let (sender, receiver) = udp_ends(&options);
        receiver.go();
        sender.go();
        until(|| sender.is_spent());
        let sent = sender.finish()[0];
        assert!(sent.bytes.count() >= blocks * block);
        let count = sent.datagrams.unwrap().count;
        until(|| receiver.snapshot()[0].datagrams.unwrap().count == count);
        let received = receiver.finish()[0];
        let datagrams = received.datagrams.unwrap();
        assert_eq!((datagrams.received, datagrams.lost, datagrams.reordered), (count, 0, 0));
        assert_eq!(received.bytes, sent.bytes);
    }
}

/// Returns a receiver that waits for the start, and a function that sends datagrams into its
/// queue. Over loopback a datagram has arrived when `send` returns.
fn queue(options: &TestOptions) -> (Running, impl Fn(std::ops::RangeInclusive<u64>)) {
    let (client, server) = udp_pair();
    let receiver = start(false, vec![DataSocket::Udp(server)], options);
    let send = move |numbers: std::ops::RangeInclusive<u64>| {
        for number in numbers {
            let mut datagram = [0; 100];
            let header = udp::Header::new(Duration::from_secs(1), number);
            header.write(&mut datagram, udp::Counter::Narrow);
            client.send(&datagram).unwrap();
        }
    };
    (receiver, send)
}

#[test]
fn datagrams_still_in_the_queue_when_a_test_ends_are_counted() {
    let options = udp_options(100);
    let (receiver, send) = queue(&options);
    send(1..=200);
    // The cut is far in the future: the kernel may start to timestamp datagrams only shortly after
    // the request.
    receiver.cut_datagrams(probe::clock::now() + Span::from_secs(600));
    receiver.go();
    receiver.await_datagrams();
    assert!(receiver.streams[0].has_ended());
    let datagrams = receiver.snapshot()[0].datagrams.unwrap();
    assert_eq!((datagrams.received, datagrams.lost), (200, 0));
    assert_eq!(receiver.failure(), None);
    assert_eq!(receiver.finish()[0].datagrams.unwrap(), datagrams);
}

#[test]
fn datagrams_that_arrive_after_the_test_are_not_counted() {
    let options = udp_options(100);
    let (receiver, send) = queue(&options);
    receiver.cut_datagrams(probe::clock::now());
    send(1..=200);
    receiver.go();
    receiver.await_datagrams();
    assert!(receiver.streams[0].has_ended());
    assert_eq!(receiver.snapshot()[0].datagrams.unwrap(), Datagrams::default());
}

#[test]
fn a_udp_receiver_with_an_empty_queue_ends_with_the_test() {
    let options = TestOptions { protocol: Protocol::Udp, ..TestOptions::default() };
    let receiver = start(false, vec![DataSocket::Udp(udp_pair().1)], &options);
    receiver.go();
    receiver.cut_datagrams(probe::clock::now());
    receiver.await_datagrams();
    assert!(receiver.streams[0].has_ended());
    assert_eq!(receiver.snapshot()[0].datagrams.unwrap(), Datagrams::default());
}

#[test]
fn udp_headers_are_read_whole_if_the_data_is_not_copied() {
    let options =
        TestOptions { amount: Amount::Blocks(20), skip_receive_copy: true, ..udp_options(1000) };
    let (sender, receiver) = udp_ends(&options);
    receiver.go();
    sender.go();
    until(|| receiver.snapshot()[0].bytes.count() >= 20_000);
    assert_eq!(sum(&sender.snapshot()), sum(&receiver.snapshot()));
}

#[test]
fn a_sender_goes_on_if_its_peer_lacks_bytes_of_the_amount() {
    let options = TestOptions { amount: Amount::Blocks(2), ..TestOptions::default() };
    let (sender, receiver) = tcp_ends(1, &options);
    receiver.go();
    sender.go();
    until(|| sum(&receiver.snapshot()) >= 3 * 128 * 1024);
}

#[test]
fn a_block_without_room_for_a_udp_header_is_refused() {
    let options = udp_options(15);
    let error = Running::start(Vec::new(), &options, None, Stop::default()).unwrap_err();
    assert!(error.is_misuse(), "{error}");
}

#[test]
fn sender_and_receiver_count_omitted_and_later_datagrams_alike() {
    let options = TestOptions {
        protocol: Protocol::Udp,
        block: Some(Bytes::new(100)),
        // The receiver's buffer holds all datagrams that are due after a stall.
        rate: Some(Rate::from_bits_per_second(80_000)),
        omit: Span::from_secs(1),
        ..TestOptions::default()
    };
    let (sender, receiver) = udp_ends(&options);
    receiver.go();
    sender.go();
    until(|| receiver.snapshot()[0].bytes.count() > 1000);
    receiver.reset();
    sender.reset();
    until(|| receiver.snapshot()[0].bytes.count() > 1000);
    let sent = sender.finish()[0];
    let all = |snapshot: &StreamSnapshot| {
        snapshot.omitted.datagrams.unwrap().count + snapshot.datagrams.unwrap().count
    };
    until(|| all(&receiver.snapshot()[0]) == all(&sent));
    let received = receiver.finish()[0];
    assert_eq!(received.omitted.datagrams.unwrap().lost, 0);
    assert_eq!(received.datagrams.unwrap().lost, 0);
    assert_eq!(received.bytes.count(), received.datagrams.unwrap().count * 100);
}
