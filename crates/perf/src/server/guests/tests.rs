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

fn seat(guests: &Arc<Guests>, peer: &str) -> (Seat, Cookie) {
    let cookie = Cookie::random();
    let ends = (address(peer), address("127.0.0.1:5201"));
    let seat = guests.seat(cookie, &connection(), ends, 8);
    seat.begin_test(most(8, 8)).unwrap();
    (seat, cookie)
}

fn most(sessions: usize, per_address: usize) -> MostTests {
    MostTests { sessions, per_address }
}

#[test]
fn one_address_leaves_sessions_to_others() {
    let guests = Arc::new(Guests::default());
    let begin = |peer: &str| {
        let ends = (address(peer), address("127.0.0.1:5201"));
        let seat = guests.seat(Cookie::random(), &connection(), ends, 64);
        seat.begin_test(most(5, 2)).map(|()| seat)
    };
    let refused = |peer: &str| begin(peer).unwrap_err();
    let held = ["10.0.0.1:1", "[::ffff:10.0.0.1]:2"].map(|peer| begin(peer).unwrap());
    assert_eq!(refused("10.0.0.1:3"), Full::OfAddress);
    assert_eq!(guests.room(address("10.0.0.1:3"), most(5, 2)), Err(Full::OfAddress));
    let network = ["[2001:db8::1]:1", "[2001:db8::ffff:0:0:1]:1"];
    let network = network.map(|peer| begin(peer).unwrap());
    assert_eq!(refused("[2001:db8::2]:1"), Full::OfAddress);
    let other = begin("[2001:db8:0:1::1]:1").unwrap();
    assert_eq!(refused("10.0.0.2:1"), Full::Sessions);
    drop((held, network, other));
    begin("10.0.0.1:3").unwrap();
}

#[test]
fn one_address_leaves_memory_to_others() {
    let guests = Arc::new(Guests::default());
    let (first, _) = seat(&guests, "10.0.0.1:1");
    let (second, _) = seat(&guests, "10.0.0.1:2");
    let (other, _) = seat(&guests, "10.0.0.2:1");
    assert!(first.reserve(MOST_MEMORY_OF_ADDRESS - 1));
    assert!(!second.reserve(2));
    assert!(second.reserve(1));
    assert!(other.reserve(MOST_MEMORY_OF_ADDRESS));
    drop((first, second));
    let (third, _) = seat(&guests, "10.0.0.1:3");
    assert!(third.reserve(MOST_MEMORY_OF_ADDRESS));
}

#[test]
fn a_connection_reaches_the_session_that_wants_it() {
    let guests = Arc::new(Guests::default());
    let (seat, cookie) = seat(&guests, "127.0.0.1:1000");
    let place = |order| guests.place(&cookie, connection(), order).map_err(|(why, _)| why);
    assert!(matches!(place(1), Err(Placement::Unwanted)));
    seat.want_connections(1);
    assert!(place(2).is_ok());
    assert!(matches!(place(3), Err(Placement::Unwanted)));
    assert!(matches!(seat.next(PATIENCE), Some(Arrival::Connection { order: 2, .. })));
    drop(seat);
    assert!(matches!(place(4), Err(Placement::New)));
    assert_eq!(guests.room(address("127.0.0.1:1000"), most(1, 1)), Ok(()));
}

#[test]
fn a_client_without_parameters_keeps_nobody_out() {
    let guests = Arc::new(Guests::default());
    let ends = (address("127.0.0.1:1000"), address("127.0.0.1:5201"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let clients: Vec<_> =
        (0..3).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    let connections: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
    let seats: Vec<_> =
        connections.iter().map(|socket| guests.seat(Cookie::random(), socket, ends, 2)).collect();
    assert_eq!(guests.room(ends.0, most(1, 1)), Ok(()));
    // The oldest of three was disconnected.
    let is_closed = |socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        matches!((&mut &*socket).read(&mut [0]), Ok(0))
    };
    assert!(is_closed(&connections[0]));
    assert!(!is_closed(&connections[1]) && !is_closed(&connections[2]));
    drop(clients);
    assert_eq!(seats[1].begin_test(most(1, 1)), Ok(()));
    assert_eq!(seats[2].begin_test(most(1, 1)), Err(Full::Sessions));
}

#[test]
fn a_second_hello_opens_no_second_stream() {
    let guests = Arc::new(Guests::default());
    let (seat, _) = seat(&guests, "[::ffff:127.0.0.1]:1000");
    let from = address("127.0.0.1:2000");
    assert_eq!(guests.expects_datagrams(from), None);
    seat.want_datagrams(2);
    assert_eq!(guests.expects_datagrams(from), Some(address("127.0.0.1:5201")));
    guests.bring_datagrams(from, UdpSocket::bind("127.0.0.1:0").unwrap(), Vec::new());
    assert_eq!(guests.expects_datagrams(from), None);
    assert!(guests.expects_datagrams(address("127.0.0.1:2001")).is_some());
    assert_eq!(guests.expects_datagrams(address("127.0.0.2:2001")), None);
    assert!(matches!(seat.next(PATIENCE), Some(Arrival::Datagrams { .. })));
}

#[test]
fn a_session_learns_that_its_connection_found_no_room() {
    let guests = Arc::new(Guests::default());
    let (seat, cookie) = seat(&guests, "127.0.0.1:1000");
    let full = || io::Error::from(io::ErrorKind::OutOfMemory);
    assert!(!guests.has_no_room(&Cookie::random(), full()));
    assert!(guests.has_no_room(&cookie, full()));
    assert!(matches!(seat.next(PATIENCE), Some(Arrival::NoRoom(_))));
    seat.want_datagrams(1);
    guests.has_no_room_for_datagrams(address("127.0.0.2:2000"), full());
    guests.has_no_room_for_datagrams(address("127.0.0.1:2000"), full());
    assert!(matches!(seat.next(PATIENCE), Some(Arrival::NoRoom(_))));
    assert!(seat.next(Duration::ZERO).is_none());
}

#[test]
fn sessions_of_one_address_take_turns() {
    let guests = Arc::new(Guests::default());
    let (first, _) = seat(&guests, "127.0.0.1:1000");
    let (second, _) = seat(&guests, "127.0.0.1:1001");
    let (elsewhere, _) = seat(&guests, "127.0.0.2:1001");
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
    let guests = Arc::new(Guests::default());
    let (seat, _) = seat(&guests, "127.0.0.1:1000");
    let token = seat.new_token();
    assert!(guests.knows_token(&token, address("127.0.0.1:9")));
    assert!(!guests.knows_token(&token, address("127.0.0.2:9")));
    drop(seat);
    assert!(!guests.knows_token(&token, address("127.0.0.1:9")));
}
