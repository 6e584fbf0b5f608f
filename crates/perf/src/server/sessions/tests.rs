use super::*;
use std::io::Read;
use std::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(5);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn connection() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap()
}

fn reserve(sessions: &Arc<Sessions>, peer: &str) -> (Reservation, Cookie) {
    let cookie = Cookie::random();
    let ends = (address(peer), address("127.0.0.1:5201"));
    let reservation = sessions.reserve(cookie, &connection(), ends, (8, &Stop::default()));
    reservation.begin_test(most(8, 8)).unwrap();
    (reservation, cookie)
}

/// Marks a reservation's test as one with traffic, which keeps its slot.
fn transferring(reservation: Reservation) -> Reservation {
    reservation.progress().traffic(Instant::now() + Duration::from_secs(3600), None);
    reservation
}

fn most(sessions: usize, per_address: usize) -> TestLimits {
    TestLimits { sessions, per_address }
}

#[test]
fn clients_from_the_same_address_cannot_take_all_sessions() {
    let sessions = Arc::new(Sessions::default());
    let begin = |peer: &str| {
        let ends = (address(peer), address("127.0.0.1:5201"));
        let reservation =
            sessions.reserve(Cookie::random(), &connection(), ends, (64, &Stop::default()));
        reservation.begin_test(most(5, 2)).map(|()| transferring(reservation))
    };
    let refused = |peer: &str| begin(peer).unwrap_err();
    let held = ["10.0.0.1:1", "[::ffff:10.0.0.1]:2"].map(|peer| begin(peer).unwrap());
    assert_eq!(refused("10.0.0.1:3"), LimitReached::PerAddress);
    assert_eq!(sessions.room(address("10.0.0.1:3"), most(5, 2)), Err(LimitReached::PerAddress));
    let network = ["[2001:db8::1]:1", "[2001:db8::ffff:0:0:1]:1"];
    let network = network.map(|peer| begin(peer).unwrap());
    assert_eq!(refused("[2001:db8::2]:1"), LimitReached::PerAddress);
    let other = begin("[2001:db8:0:1::1]:1").unwrap();
    assert_eq!(refused("10.0.0.2:1"), LimitReached::Sessions);
    drop((held, network, other));
    begin("10.0.0.1:3").unwrap();
}

#[test]
fn a_stalled_test_loses_its_slot_and_a_test_with_traffic_keeps_it() {
    let sessions = Arc::new(Sessions::default());
    let reserve = |peer: &str| {
        let ends = (address(peer), address("127.0.0.1:5201"));
        sessions.reserve(Cookie::random(), &connection(), ends, (64, &Stop::default()))
    };
    let most = most(3, 2);
    let [stalls, busy, second] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"].map(&reserve);
    for one in [&stalls, &busy, &second] {
        one.begin_test(most).unwrap();
    }
    let busy = transferring(busy);
    let _second = transferring(second);
    stalls.progress().end();
    std::thread::scope(|scope| {
        let new = reserve("10.0.0.3:1");
        let begins = scope.spawn(move || new.begin_test(most).map(|()| new));
        while !stalls.stop().is_called() {
            std::thread::yield_now();
        }
        assert!(stalls.gave_way() && !busy.stop().is_called());
        drop(stalls);
        let _new = transferring(begins.join().unwrap().unwrap());
        // All tests transfer data now.
        assert_eq!(reserve("10.0.0.4:1").begin_test(most), Err(LimitReached::Sessions));
    });
}

/// A quarter of the memory is reserved for small tests.
#[test]
fn large_tests_leave_memory_to_small_tests() {
    let sessions = Arc::new(Sessions::default());
    let large: Vec<_> =
        (1..=2).map(|host| reserve(&sessions, &format!("10.0.0.{host}:1")).0).collect();
    assert!(large.iter().all(|one| one.reserve_memory(MOST_MEMORY_OF_ADDRESS)));
    let (other, _) = reserve(&sessions, "10.0.0.9:1");
    assert!(!other.reserve_memory(SMALL_MEMORY + 1));
    assert!(other.reserve_memory(SMALL_MEMORY));
}

#[test]
fn clients_from_the_same_address_cannot_take_all_memory() {
    let sessions = Arc::new(Sessions::default());
    let (first, _) = reserve(&sessions, "10.0.0.1:1");
    let (second, _) = reserve(&sessions, "10.0.0.1:2");
    let (other, _) = reserve(&sessions, "10.0.0.2:1");
    assert!(first.reserve_memory(MOST_MEMORY_OF_ADDRESS - 1));
    assert!(!second.reserve_memory(2));
    assert!(second.reserve_memory(1));
    assert!(other.reserve_memory(MOST_MEMORY_OF_ADDRESS));
    drop((first, second));
    let (third, _) = reserve(&sessions, "10.0.0.1:3");
    assert!(third.reserve_memory(MOST_MEMORY_OF_ADDRESS));
}

#[test]
fn a_stream_connection_reaches_the_session_of_its_cookie() {
    let sessions = Arc::new(Sessions::default());
    let (reservation, cookie) = reserve(&sessions, "127.0.0.1:1000");
    let deliver = |order| sessions.deliver(&cookie, connection(), order).map_err(|(why, _)| why);
    assert!(matches!(deliver(1), Err(Undelivered::Unexpected)));
    reservation.want_connections(1);
    assert!(deliver(2).is_ok());
    assert!(matches!(deliver(3), Err(Undelivered::Unexpected)));
    assert!(matches!(reservation.next(PATIENCE), Some(Arrival::Connection { order: 2, .. })));
    drop(reservation);
    assert!(matches!(deliver(4), Err(Undelivered::NewClient)));
    assert_eq!(sessions.room(address("127.0.0.1:1000"), most(1, 1)), Ok(()));
}

#[test]
fn a_client_that_sends_no_parameters_blocks_no_other_client() {
    let sessions = Arc::new(Sessions::default());
    let ends = (address("127.0.0.1:1000"), address("127.0.0.1:5201"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let clients: Vec<_> =
        (0..3).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    let connections: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
    let reservations: Vec<_> = connections
        .iter()
        .map(|socket| sessions.reserve(Cookie::random(), socket, ends, (2, &Stop::default())))
        .collect();
    assert_eq!(sessions.room(ends.0, most(1, 1)), Ok(()));
    // The oldest of three was disconnected.
    let is_closed = |socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        matches!((&mut &*socket).read(&mut [0]), Ok(0))
    };
    assert!(is_closed(&connections[0]));
    assert!(!is_closed(&connections[1]) && !is_closed(&connections[2]));
    drop(clients);
    assert_eq!(reservations[1].begin_test(most(1, 1)), Ok(()));
    reservations[1].progress().traffic(Instant::now() + Duration::from_secs(3600), None);
    assert_eq!(reservations[2].begin_test(most(1, 1)), Err(LimitReached::Sessions));
}

#[test]
fn a_repeated_udp_hello_opens_no_second_stream() {
    let sessions = Arc::new(Sessions::default());
    let (reservation, _) = reserve(&sessions, "[::ffff:127.0.0.1]:1000");
    let from = address("127.0.0.1:2000");
    assert_eq!(sessions.expects_datagrams(from), None);
    reservation.want_datagrams(2);
    assert_eq!(sessions.expects_datagrams(from), Some(address("127.0.0.1:5201")));
    sessions.deliver_datagrams(from, UdpSocket::bind("127.0.0.1:0").unwrap(), Vec::new());
    assert_eq!(sessions.expects_datagrams(from), None);
    assert!(sessions.expects_datagrams(address("127.0.0.1:2001")).is_some());
    assert_eq!(sessions.expects_datagrams(address("127.0.0.2:2001")), None);
    assert!(matches!(reservation.next(PATIENCE), Some(Arrival::Datagrams { .. })));
}

#[test]
fn a_session_learns_that_the_server_had_no_room_for_its_connection() {
    let sessions = Arc::new(Sessions::default());
    let (reservation, cookie) = reserve(&sessions, "127.0.0.1:1000");
    let full = || io::Error::from(io::ErrorKind::OutOfMemory);
    assert!(!sessions.report_no_room(&Cookie::random(), full()));
    assert!(sessions.report_no_room(&cookie, full()));
    assert!(matches!(reservation.next(PATIENCE), Some(Arrival::NoRoom(_))));
    reservation.want_datagrams(1);
    sessions.report_no_room_for_datagrams(address("127.0.0.2:2000"), full());
    sessions.report_no_room_for_datagrams(address("127.0.0.1:2000"), full());
    assert!(matches!(reservation.next(PATIENCE), Some(Arrival::NoRoom(_))));
    assert!(reservation.next(Duration::ZERO).is_none());
}

#[test]
fn sessions_from_the_same_address_open_udp_streams_one_after_another() {
    let sessions = Arc::new(Sessions::default());
    let (first, _) = reserve(&sessions, "127.0.0.1:1000");
    let (second, _) = reserve(&sessions, "127.0.0.1:1001");
    let (elsewhere, _) = reserve(&sessions, "127.0.0.2:1001");
    assert!(first.take_turn(Duration::ZERO));
    assert!(!second.take_turn(Duration::ZERO));
    assert_eq!(second.turns_ahead(), 1);
    assert!(elsewhere.take_turn(Duration::ZERO));
    first.end_turn();
    assert!(second.take_turn(Duration::ZERO));
    assert!(!first.take_turn(Duration::ZERO));
    drop(second);
    assert!(first.take_turn(Duration::ZERO));
}

#[test]
fn a_token_belongs_to_its_session_and_address() {
    let sessions = Arc::new(Sessions::default());
    let (reservation, _) = reserve(&sessions, "127.0.0.1:1000");
    let token = reservation.new_token();
    assert!(sessions.knows_token(&token, address("127.0.0.1:9")));
    assert!(!sessions.knows_token(&token, address("127.0.0.2:9")));
    drop(reservation);
    assert!(!sessions.knows_token(&token, address("127.0.0.1:9")));
}
