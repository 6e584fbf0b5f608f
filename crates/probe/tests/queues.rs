//! Interfaces, queues and counters of a new namespace.

#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::process::Command;

use probe::interface::InterfaceSnapshot;
use probe::qdisc::{Handle, Qdisc, QdiscSnapshot};
use probe::snmp::SnmpSnapshot;
use units::Bytes;

mod namespace;

#[test]
fn snmp_counters_come_from_the_namespace_of_the_thread() {
    namespace::run(|| {
        let (links, counters) = (InterfaceSnapshot::read().unwrap(), SnmpSnapshot::read().unwrap());
        assert!(links.get("lo").unwrap().enabled);
        assert_eq!(counters.value("UdpOutDatagrams"), Some(0), "a fresh namespace");

        send_to_self(5);
        let sent = |links: &InterfaceSnapshot| links.get("lo").unwrap().counters.sent;
        let (before, after) = (sent(&links), sent(&InterfaceSnapshot::read().unwrap()));
        assert!(after.packets >= before.packets + 5, "{after:?}");
        assert!(after.bytes >= before.bytes + Bytes::new(5 * 100), "{after:?}");
        let counted = SnmpSnapshot::read().unwrap().since(&counters);
        assert_eq!(counted.count("UdpOutDatagrams"), Some(5));
        assert_eq!(counted.count("UdpInDatagrams"), Some(5));
        assert!(counted.count("IpExtOutOctets").unwrap() > 0);
        assert_eq!(counted.count("NoSuchCounter"), None);
    });
}

#[test]
fn a_qdisc_counts_passing_packets() {
    namespace::run(|| {
        let shaped = "qdisc add dev lo root handle 1: tbf rate 1gbit burst 64kb limit 64kb";
        let status = Command::new("tc").args(shaped.split(' ')).status();
        if !status.is_ok_and(|status| status.success()) {
            return testing::skip(testing::Need::Tbf);
        }
        let loopback = InterfaceSnapshot::read().unwrap().get("lo").unwrap().index;
        let root = || {
            let all = QdiscSnapshot::read().unwrap().qdiscs;
            let is_root = |one: &Qdisc| one.interface == loopback && one.parent == Handle::ROOT;
            all.into_iter().find(is_root).unwrap()
        };
        let before = root();
        assert_eq!((before.kind.as_str(), before.handle), ("tbf", Handle { major: 1, minor: 0 }));

        send_to_self(5);
        let (before, after) = (before.counters, root().counters);
        assert!(after.packets >= before.packets + 5, "{after:?}");
        assert!(after.bytes >= before.bytes + Bytes::new(5 * 100), "{after:?}");
    });
}

#[test]
fn the_properties_of_an_interface_are_read_until_its_removal() {
    namespace::run(|| {
        let pair = "link add name left mtu 1400 type veth peer name right";
        if !Command::new("ip").args(pair.split(' ')).status().unwrap().success() {
            return testing::skip(testing::Need::Veth);
        }
        let earlier = InterfaceSnapshot::read().unwrap();
        let left = earlier.get("left").unwrap();
        assert_eq!(left.kind.as_deref(), Some("veth"));
        assert_eq!(left.mtu, Some(Bytes::new(1400)));
        assert!(left.mac.is_some() && !left.enabled);
        Command::new("ip").args(["link", "del", "left"]).status().unwrap();
        let later = InterfaceSnapshot::read().unwrap();
        assert_eq!(later.interfaces.keys().collect::<Vec<_>>(), ["lo"]);
    });
}

fn send_to_self(count: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    for _ in 0..count {
        socket.send(&[0; 100]).unwrap();
        socket.recv(&mut [0; 100]).unwrap();
    }
}
