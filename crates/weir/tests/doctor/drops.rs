//! Packets that the kernel drops, of each kind on purpose: `weir doctor` must report the kernel's
//! reason, the interface and the connection.

use crate::support::is_installed;
use host::Namespace;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use testing::Attempt;

/// A kind of drop: the kernel's reasons, which differ between versions, the interface, and the
/// port that the packets are sent to.
struct Kind {
    reasons: &'static [&'static str],
    interface: &'static str,
    protocol: u8,
    port: u16,
}

const fn kind(reasons: &'static [&'static str], interface: &'static str, port: u16) -> Kind {
    Kind { reasons, interface, protocol: UDP, port }
}

const fn of_tcp(kind: Kind) -> Kind {
    Kind { protocol: TCP, ..kind }
}

impl Kind {
    /// Returns the report's entry for drops of this kind.
    fn place_of<'a>(&self, drops: &'a Value) -> Option<&'a Value> {
        let port = format!(":{}", self.port);
        let is_right = |place: &&Value| {
            place["to"].as_str().is_some_and(|to| to.ends_with(&port))
                && place["protocol"] == self.protocol
                && self.reasons.iter().any(|reason| place["reason"] == *reason)
        };
        drops["places"].as_array()?.iter().find(is_right)
    }
}

const UDP: u8 = 17;
const TCP: u8 = 6;

const KINDS: [Kind; 20] = [
    kind(&["NETFILTER_DROP"], "lo", 7001),
    kind(&["NO_SOCKET"], "lo", 7002),
    kind(&["SOCKET_RCVBUFF"], "lo", 7003),
    kind(&["QDISC_DROP", "QDISC_OVERLIMIT"], "c", 7004),
    kind(&["IP_INHDR"], "a", 7005),
    kind(&["PKT_TOO_BIG"], "a", 7006),
    kind(&["IP_RPFILTER"], "a", 7007),
    kind(&["IP_LOCAL_SOURCE", "NOT_SPECIFIED"], "a", 7008),
    kind(&["UDP_CSUM"], "a", 7009),
    kind(&["IPV6DISABLED"], "a", 7010),
    kind(&["OTHERHOST"], "a", 7011),
    kind(&["NEIGH_FAILED"], "a", 7012),
    kind(&["NEIGH_QUEUEFULL"], "a", 7013),
    of_tcp(kind(&["NO_SOCKET"], "lo", 7014)),
    of_tcp(kind(&["TCP_CSUM"], "a", 7015)),
    kind(&["NETFILTER_DROP", "NETFILTER_INGRESS"], "a", 7016),
    kind(&["SOCKET_FILTER"], "lo", 7017),
    kind(&["UNICAST_IN_L2_MULTICAST"], "a", 7018),
    kind(&["IP_INNOROUTES"], "a", 7019),
    kind(&["FRAG_REASM_TIMEOUT"], "a", 7020),
];

const NEAR: &str = "\
    ip link set lo up; ip address add 10.7.0.1/24 dev a; ip address add 10.7.0.3/24 dev a
    ip address add 10.8.0.1/24 dev c; ip link set c mtu 1000
    ip neigh add 10.8.0.9 lladdr 02:00:00:00:00:09 dev c
    tc qdisc add dev c root tbf rate 8kbit burst 1600 limit 2000
    sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.a.rp_filter=1 net.ipv6.conf.a.disable_ipv6=1
    sysctl -qw net.ipv4.neigh.a.retrans_time_ms=20 net.ipv4.neigh.a.mcast_solicit=1
    sysctl -qw net.ipv4.neigh.a.unres_qlen=2
    nft add table inet t
    nft 'add chain inet t in { type filter hook input priority 0; }'
    nft add rule inet t in udp dport 7001 drop
    nft 'add chain inet t raw { type filter hook prerouting priority -300; }'
    nft add rule inet t raw udp dport 7009 udp checksum set 1
    nft add rule inet t raw tcp dport 7015 tcp checksum set 1
    nft add table netdev t
    nft 'add chain netdev t in { type filter hook ingress device a priority 0; }'
    nft add rule netdev t in udp dport 7016 drop
    nft add rule netdev t in ip frag-off '&' 0x1fff != 0 drop
    ip address add 10.7.0.4/24 dev a
    sysctl -qw net.ipv4.conf.a.drop_unicast_in_l2_multicast=1 net.ipv4.ipfrag_time=1";
const FAR: &str = "\
    ip link set lo up; ip address add 10.7.0.2/24 dev b; ip address add fd00::2/64 dev b nodad
    ip address add 10.9.9.9/32 dev lo; ip address add 10.7.0.3/32 dev lo
    ip route add 10.8.0.0/24 via 10.7.0.1; ip route add 10.99.0.0/24 via 10.7.0.1
    ip neigh add 10.7.0.4 lladdr 01:00:5e:00:00:05 dev b
    ip neigh add 10.7.0.77 lladdr 02:00:00:00:00:99 dev b
    ip neigh replace 10.7.0.1 lladdr $MAC dev b; ip neigh add fd00::1 lladdr $MAC dev b
    ethtool -K b tx off >/dev/null
    nft add table inet t
    nft 'add chain inet t in { type filter hook input priority 0; }'
    nft add rule inet t in icmp type destination-unreachable drop";

fn shell(namespace: &Namespace, script: &str, mac: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).env("MAC", mac);
    let output = namespace.run(|| Ok(command.output())).unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn socket(namespace: &Namespace, from: &str) -> UdpSocket {
    let address: IpAddr = from.parse().unwrap();
    socket_at(namespace, &SocketAddr::new(address, 0).to_string())
}

fn socket_at(namespace: &Namespace, at: &str) -> UdpSocket {
    let socket = namespace.run(|| Ok(UdpSocket::bind(at))).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Sends a SYN, always from the same port: the drops of a port are one entry of the report.
fn knock(namespace: &Namespace, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let from = SocketAddr::from(([0, 0, 0, 0], 7100));
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        // The handshake cannot end, because its packets are dropped.
        let _ = socket.connect(&to.into());
        Ok::<(), std::io::Error>(())
    };
    namespace.run(|| Ok(connect())).unwrap().unwrap();
}

/// Runs `weir doctor` in `near` while packets of all kinds are dropped repeatedly.
fn doctor(near: &Namespace, far: &Namespace) -> Output {
    let never_read = socket_at(near, "127.0.0.1:7003");
    socket2::SockRef::from(&never_read).set_recv_buffer_size(2048).unwrap();
    let filtered = socket_at(near, "127.0.0.1:7017");
    // A socket filter of a single instruction, which accepts no byte of the packet.
    let refuse = [socket2::SockFilter::new(0x06, 0, 0, 0)];
    socket2::SockRef::from(&filtered).attach_filter(&refuse).unwrap();
    let (here, there) = (socket(near, "0.0.0.0"), socket(far, "10.7.0.2"));
    let short = socket(far, "10.7.0.2");
    short.set_ttl(1).unwrap();
    let (stranger, forger) = (socket(far, "10.9.9.9"), socket(far, "10.7.0.3"));
    let six = socket(far, "fd00::2");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["doctor", "--json", "-t", "2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = near.run(|| Ok(command.spawn())).unwrap().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        let sends: [(&UdpSocket, usize, usize, &str); 18] = [
            (&here, 1, 100, "127.0.0.1:7001"),
            (&here, 1, 100, "127.0.0.1:7002"),
            (&here, 3, 1000, "127.0.0.1:7003"),
            (&here, 4, 900, "10.8.0.9:7004"),
            (&short, 1, 100, "10.8.0.9:7005"),
            (&there, 1, 1400, "10.8.0.9:7006"),
            (&stranger, 1, 100, "10.7.0.1:7007"),
            (&forger, 1, 100, "10.7.0.1:7008"),
            (&there, 1, 100, "10.7.0.1:7009"),
            (&six, 1, 100, "[fd00::1]:7010"),
            (&there, 1, 100, "10.7.0.77:7011"),
            (&here, 1, 100, "10.7.0.55:7012"),
            (&here, 9, 100, "10.7.0.56:7013"),
            (&there, 1, 100, "10.7.0.1:7016"),
            (&here, 1, 100, "127.0.0.1:7017"),
            (&there, 1, 100, "10.7.0.4:7018"),
            (&there, 1, 100, "10.99.0.9:7019"),
            (&there, 1, 2000, "10.7.0.1:7020"),
        ];
        for (socket, count, size, to) in sends {
            for _ in 0..count {
                // Errors are expected: a full queue refuses packets, which is a kind of drop.
                let _ = socket.send_to(&vec![7; size], to.parse::<SocketAddr>().unwrap());
            }
        }
        knock(near, "127.0.0.1:7014");
        knock(far, "10.7.0.1:7015");
        std::thread::sleep(Duration::from_millis(15));
    }
    drop((never_read, filtered));
    // The command still runs only if it exceeds the deadline.
    child.kill().unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn twenty_kinds_of_drops_are_reported_with_reason_interface_and_connection() {
    for program in ["ip", "tc", "nft", "ethtool"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    if !testing::Need::Ipv6.is_met() {
        return testing::skip(testing::Need::Ipv6);
    }
    let near = match Namespace::create("near") {
        Ok(near) => near,
        Err(error) => return testing::skip_because(testing::Need::NetworkNamespaces, error),
    };
    if !testing::Need::Nftables.is_met() {
        return testing::skip(testing::Need::Nftables);
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return testing::skip_because(testing::Need::StructOps, "no BTF");
    }
    let far = Namespace::create("far").unwrap();
    host::connect((&near, "a"), (&far, "b"), 1500).unwrap();
    host::connect((&near, "c"), (&far, "d"), 1500).unwrap();
    let mac = shell(&near, "ip -br link show a | awk '{print $3}'", "");
    shell(&near, NEAR, &mac);
    shell(&far, FAR, &mac);
    // If the machine stalls for the whole observation, the kernel drops no packets of some kinds.
    let diagnosis = testing::undisturbed("drops of all kinds", |_| {
        let ended = doctor(&near, &far);
        assert!(ended.status.success(), "{ended:?}");
        let diagnosis: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let drops = &diagnosis["periods"][0]["drops"];
        assert!(drops.is_object(), "{:#}", diagnosis["not_seen"]);
        match KINDS.iter().find(|kind| kind.place_of(drops).is_none()) {
            Some(kind) => Attempt::Wrong(format!("{:?}: {drops:#}", kind.reasons)),
            None => Attempt::Right(diagnosis),
        }
    });
    let diagnosis = diagnosis.unwrap();
    let drops = &diagnosis["periods"][0]["drops"];
    for kind in KINDS {
        let place = kind.place_of(drops).unwrap();
        assert_eq!(place["interface"], kind.interface, "{place}");
        assert!(place["function"].is_string(), "{place}");
    }
    let found = diagnosis["periods"][0]["machine"].as_array().unwrap();
    let told = found.iter().find(|one| one["cause"] == "kernel-drops").unwrap();
    assert!(told["advice"].as_array().is_some_and(|advice| !advice.is_empty()), "{told:#}");
}
