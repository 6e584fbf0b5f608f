//! Reads real TCP connections in a namespace, by inet_diag and by getsockopt(2).

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use probe::tcp::{self, CongestionInfo, Diag, Filter, Queues, TcpSocket, TcpState};
use units::{Bytes, Span};

mod namespace;

#[test]
fn a_tcp_connection_is_listed_with_its_congestion_control() {
    namespace::run(|| {
        for algorithm in ["reno", "cubic", "bbr"] {
            let (mut client, mut server) = connect(Ipv4Addr::LOCALHOST.into());
            if let Err(refused) = tcp::set_congestion_control(&client, algorithm) {
                assert!(!refused.available.iter().any(|name| name == algorithm));
                testing::skip_part(testing::Need::Congestion(algorithm));
                continue;
            }
            assert_eq!(tcp::congestion_control_of(&client).unwrap(), algorithm);
            client.write_all(&[7; SENT]).unwrap();
            server.read_exact(&mut [0; SENT]).unwrap();

            let seen = find(&client);
            assert_eq!(seen.congestion_control.as_deref(), Some(algorithm));
            assert_eq!(seen.state, TcpState::Established);
            assert!(seen.inode > 0 && seen.cookie > 0 && seen.memory.is_some());
            let bbr = matches!(seen.congestion, Some(CongestionInfo::Bbr { .. }));
            assert_eq!(bbr, algorithm == "bbr", "{:?}", seen.congestion);

            let by_diag = seen.info.unwrap();
            let by_socket = tcp::of_socket(&client).unwrap();
            assert_eq!(by_diag.bytes_sent, Some(Bytes::new(SENT as u64)));
            assert_eq!(by_diag.bytes_sent, by_socket.bytes_sent);
            assert_eq!(by_diag.snd_mss, by_socket.snd_mss);
            assert!(by_socket.rtt.unwrap() > Span::ZERO);
            let received = tcp::of_socket(&server).unwrap().bytes_received;
            assert_eq!(received, Some(Bytes::new(SENT as u64)));
        }
    });
}

#[test]
fn a_congestion_control_algorithm_that_the_kernel_lacks_is_refused() {
    namespace::run(|| {
        let (client, _server) = connect(Ipv4Addr::LOCALHOST.into());
        let before = tcp::congestion_control_of(&client).unwrap();
        let refused = tcp::set_congestion_control(&client, "nosuch").unwrap_err();
        assert_eq!((refused.wanted.as_str(), &refused.has), ("nosuch", &before));
        assert!(refused.available.contains(&before));
        let message = refused.to_string();
        assert!(message.contains("no such algorithm") && message.contains(&before), "{message}");
        assert_eq!(tcp::congestion_control_of(&client).unwrap(), before);
    });
}

#[test]
fn a_tcp_socket_is_listed_with_its_queues_if_the_filter_matches_it() {
    namespace::run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&[1; 100]).unwrap();

        let listening = tcp::sockets(&Filter::listening()).unwrap();
        assert_eq!(listening.len(), 1);
        assert!(matches!(listening[0].queues, Queues::Accept { waiting: 1, limit } if limit > 0));
        assert_eq!(listening[0].info.unwrap().unacked, Some(1));

        let (server, _) = listener.accept().unwrap();
        let unread = find(&server).queues;
        let receive = Bytes::new(100);
        assert!(matches!(unread, Queues::Data { receive: found, .. } if found == receive));

        let count = |filter: Filter| tcp::sockets(&filter).unwrap().len();
        assert_eq!(count(Filter::all()), 3);
        assert_eq!(count(Filter::established()), 2);
        assert_eq!(count(Filter::all().local_port(address.port())), 2);
        assert_eq!(count(Filter::established().remote(address)), 1);
        assert_eq!(count(Filter::all().remote_address([10, 0, 0, 1].into())), 0);
        let client_port = client.local_addr().unwrap().port();
        let ports = [address.port(), client_port, 1];
        assert_eq!(ports.map(|port| tcp::has_port(port).unwrap()), [true, true, false]);
        drop((client, server));
    });
}

#[test]
fn ipv6_and_mapped_ipv4_connections_are_listed_and_looked_up() {
    namespace::run(|| {
        let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
            return testing::skip(testing::Need::Ipv6);
        };
        let port = listener.local_addr().unwrap().port();
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let _client = TcpStream::connect((ip, port)).unwrap();
            let (server, _) = listener.accept().unwrap();
            let address = SocketAddr::new(ip, port);
            let filter = Filter::established().local(address);
            let seen = tcp::sockets(&filter).unwrap();
            assert_eq!(seen.len(), 1, "{address}");
            assert_eq!(seen[0].local, address);
            let peer = server.peer_addr().unwrap();
            let by_ends = tcp::connection(address, peer).unwrap().unwrap();
            assert_eq!(by_ends.cookie, seen[0].cookie);
            // The listening socket would accept this connection, but the connection does not exist.
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert_eq!(tcp::connection(address, other).unwrap(), None);
            drop(server);
        }
    });
}

#[test]
fn a_listing_without_attributes_has_queues_and_inodes() {
    namespace::run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap();
        let mut diag = Diag::without_algorithm();
        let mut bare = Vec::new();
        let filter = Filter::listening();
        diag.each_bare(&filter, |one| {
            bare.push((one.queues(), one.inode() > 0, one.info().is_some()))
        })
        .unwrap();
        let [(Queues::Accept { waiting: 0, limit: 1.. }, true, false)] = bare[..] else {
            panic!("{bare:?}")
        };
        // Later listings have attributes again.
        let mut has_info = Vec::new();
        diag.each(&Filter::established(), |one| has_info.push(one.info().is_some())).unwrap();
        assert_eq!(has_info, [true; 2]);
        drop((client, server));
    });
}

#[test]
fn connections_of_other_namespaces_are_not_listed() {
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = outside.local_addr().unwrap().port();
    assert_eq!(tcp::sockets(&Filter::all().local_port(port)).unwrap().len(), 1);
    namespace::run(|| assert!(tcp::sockets(&Filter::all()).unwrap().is_empty()));
}

fn connect(ip: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn find(stream: &TcpStream) -> TcpSocket {
    let filter = Filter::established()
        .local(stream.local_addr().unwrap())
        .remote(stream.peer_addr().unwrap());
    let mut found = tcp::sockets(&filter).unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

const SENT: usize = 20_000;
