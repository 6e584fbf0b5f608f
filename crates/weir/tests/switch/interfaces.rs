//! Ports on interfaces: veth pairs and TAP devices between hosts in namespaces.

use super::test_switch::{TestSwitch, sandbox};
use crate::support::{Sandbox, await_some};
use host::{Address, Namespace};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const MTU: u32 = 1500;

/// A host that is connected to the switch's namespace by a veth pair.
pub struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
}

/// Removes the veth pair. Otherwise, a TCP connection whose last packets were lost, for example
/// because the switch has ended, would keep the namespace and its interfaces for minutes.
impl Drop for Host {
    fn drop(&mut self) {
        let _ = host::remove_interface(&self.namespace, "eth0");
    }
}

impl Host {
    /// Creates a host with a veth pair whose end at the switch has the name `name`.
    pub fn cabled(sandbox: &Sandbox, name: &str, address: Ipv4Addr) -> Self {
        let namespace = Namespace::create(name).unwrap();
        let outer = sandbox.inside(|| Namespace::current().unwrap());
        host::connect((&outer, name), (&namespace, "eth0"), MTU).unwrap();
        let host = Self { namespace, address };
        host.configure("eth0");
        host
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn configure(&self, interface: &str) {
        let address = Address { ip: IpAddr::V4(self.address), prefix: 24 };
        host::add_address(&self.namespace, interface, address).unwrap();
        host::bring_up(&self.namespace, interface).unwrap();
    }

    /// Sends `bytes` to the other host over TCP, and returns what arrived there.
    pub fn transfers_to(&self, other: &Self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let address = SocketAddr::from((other.address, 7000));
        let listener = other.namespace.run(|| Ok(TcpListener::bind(address))).unwrap()?;
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || -> std::io::Result<Vec<u8>> {
                let (mut stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut received = Vec::new();
                stream.read_to_end(&mut received)?;
                Ok(received)
            });
            let sent = self.namespace.run(|| {
                Ok(TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
                    stream.set_write_timeout(Some(PATIENCE))?;
                    stream.write_all(bytes)
                }))
            });
            let sent = sent.unwrap();
            if sent.is_err() {
                // This connection ends the receiver's accept(2).
                let _ = other.namespace.run(|| Ok(TcpStream::connect(address)));
            }
            let received = receiver.join().unwrap();
            sent.and(received)
        })
    }
}

pub fn hosts(sandbox: &Sandbox) -> [Host; 2] {
    [1, 2].map(|n| Host::cabled(sandbox, &format!("p{n}"), Ipv4Addr::new(10, 9, 0, n)))
}

const BRIDGE: [&str; 6] = ["--bridge", "br0", "--port", "br0:p1=packet", "--port", "br0:p2=packet"];

#[test]
fn tcp_passes_between_hosts_on_veth_pairs() {
    let Some(sandbox) = sandbox() else { return };
    let [a, b] = hosts(&sandbox);
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(a.transfers_to(&b, &bytes).unwrap() == bytes);
    assert!(b.transfers_to(&a, &bytes).unwrap() == bytes);
    let text = switch.appctl(&["fdb/show", "br0"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    drop((a, b));
    switch.end();
}

#[test]
fn other_ports_work_while_a_port_disappears_and_returns() {
    let Some(sandbox) = sandbox() else { return };
    let [a, b] = hosts(&sandbox);
    let words = [&BRIDGE[..], &["--port", "br0:p3=packet"]].concat();
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let (_, said) = switch.running.output_so_far();
    assert!(said.contains("port p3") && said.contains("the port is down"), "{said}");
    let state = |port: &str| {
        let text = switch.weir(&["dump-ports", "--json", "br0", port]);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        document["ports"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state("p3"), "down");
    let c = Host::cabled(&switch.sandbox, "p3", Ipv4Addr::new(10, 9, 0, 3));
    await_some("the third port", || (state("p3") == "up").then_some(()));
    assert_eq!(a.transfers_to(&c, b"first").unwrap(), b"first");
    let outer = switch.sandbox.inside(|| Namespace::current().unwrap());
    host::remove_interface(&outer, "p3").unwrap();
    await_some("its end", || (state("p3") == "down").then_some(()));
    drop(c);
    assert_eq!(a.transfers_to(&b, b"second").unwrap(), b"second");
    let text = switch.ofctl(&["show", "br0"]);
    assert!(text.contains("3(p3)") && text.contains("LINK_DOWN"), "{text}");
    let c = Host::cabled(&switch.sandbox, "p3", Ipv4Addr::new(10, 9, 0, 3));
    await_some("its return", || (state("p3") == "up").then_some(()));
    assert_eq!(c.transfers_to(&b, b"third").unwrap(), b"third");
    drop((a, b, c));
    switch.end();
}

#[test]
fn mod_port_disables_the_interface_of_a_port_until_someone_enables_the_interface() {
    let Some(sandbox) = sandbox() else { return };
    let [a, b] = hosts(&sandbox);
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let ip = |words: &'static [&'static str]| {
        switch.sandbox.inside(move || {
            let ran = std::process::Command::new("ip").args(words).output().unwrap();
            assert!(ran.status.success(), "{words:?}: {ran:?}");
            String::from_utf8(ran.stdout).unwrap()
        })
    };
    let is_enabled = || ip(&["link", "show", "p1"]).contains("UP");
    let is_down = || {
        let text = switch.ofctl(&["show", "br0"]);
        let shown = text.split("1(p1)").nth(1).unwrap().split("2(p2)").next().unwrap();
        (shown.contains("PORT_DOWN"), shown.contains("LINK_DOWN"))
    };
    assert!(is_enabled() && is_down() == (false, false));
    switch.ofctl(&["mod-port", "br0", "p1", "down"]);
    assert!(!is_enabled() && is_down() == (true, true));
    // Another change of the port does not change the interface.
    switch.ofctl(&["mod-port", "br0", "p1", "no-flood"]);
    assert!(!is_enabled());
    switch.ofctl(&["mod-port", "br0", "p1", "flood"]);
    switch.ofctl(&["mod-port", "br0", "p1", "up"]);
    assert!(is_enabled());
    await_some("the port", || (is_down() == (false, false)).then_some(()));
    assert_eq!(a.transfers_to(&b, b"first").unwrap(), b"first");
    switch.ofctl(&["mod-port", "br0", "p1", "down"]);
    ip(&["link", "set", "p1", "up"]);
    await_some("the interface", || (is_down() == (false, false)).then_some(()));
    ip(&["link", "set", "p1", "down"]);
    await_some("its end", || (is_down() == (true, true)).then_some(()));
    ip(&["link", "set", "p1", "up"]);
    await_some("its return", || (is_down() == (false, false)).then_some(()));
    assert_eq!(a.transfers_to(&b, b"second").unwrap(), b"second");
    drop((a, b));
    switch.end();
}

#[test]
fn a_port_is_down_while_its_interface_has_no_carrier() {
    let Some(sandbox) = sandbox() else { return };
    let [a, b] = hosts(&sandbox);
    let set = |host: &Host, state: &str| {
        let words = ["link", "set", "eth0", state];
        let run = || Ok(std::process::Command::new("ip").args(words).status());
        assert!(host.namespace.run(run).unwrap().unwrap().success());
    };
    set(&b, "down");
    let address = sandbox.inside(|| {
        let run = std::process::Command::new("cat").arg("/sys/class/net/p1/address").output();
        String::from_utf8(run.unwrap().stdout).unwrap()
    });
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let down = || switch.ofctl(&["show", "br0"]).matches("LINK_DOWN").count();
    assert_eq!(down(), 1);
    set(&b, "up");
    await_some("the link", || (down() == 0).then_some(()));
    assert_eq!(a.transfers_to(&b, b"first").unwrap(), b"first");
    set(&a, "down");
    await_some("its end", || (down() == 1).then_some(()));
    set(&a, "up");
    await_some("its return", || (down() == 0).then_some(()));
    assert_eq!(a.transfers_to(&b, b"second").unwrap(), b"second");
    // The port has the address of its interface.
    let text = switch.ofctl(&["show", "br0"]);
    assert!(text.contains(&format!("1(p1): addr:{}", address.trim())), "{address} {text}");
    drop((a, b));
    switch.end();
}

#[test]
fn a_port_has_the_speed_and_the_error_counters_of_its_interface() {
    let Some(sandbox) = sandbox() else { return };
    let host = Host::cabled(&sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1));
    let words = [
        "--bridge",
        "br0",
        "--port",
        "br0:p1=packet",
        "--port",
        "br0:p2=null",
        "--port",
        "br0:p3=null,rate=40mbit",
    ];
    let switch = TestSwitch::start(sandbox, &words);
    // A veth interface reports 10 Gbit/s. A port without an interface reports only its rate.
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
        let text = switch.ofctl(&["-O", version, "show", "br0"]);
        let speeds: Vec<_> = text.lines().filter(|line| line.contains("speed:")).collect();
        let has =
            |mbit| speeds.iter().any(|line| line.contains(&format!("speed: {mbit} Mbps now")));
        assert!(has(10000) && has(0), "{text}");
        // OpenFlow 1.0 has no bit for this speed.
        assert_eq!(has(40), version != "OpenFlow10", "{text}");
    }
    let counters = |port| {
        let text = switch.ofctl(&["dump-ports", "br0", port]);
        let found = text.split([',', ' ', '\n']).filter(|word| {
            ["drop=", "errs=", "frame=", "over=", "crc=", "coll="]
                .iter()
                .any(|name| word.starts_with(name))
        });
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    let listed = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let of_interface = counters("p1");
    assert!(of_interface.len() == 8 && of_interface.iter().all(|c| !c.contains('?')));
    // OpenFlow writes a missing counter as all ones, and ovs-ofctl prints `?`.
    assert_eq!(counters("p2"), listed("drop=? errs=? frame=? over=? crc=? drop=0 errs=? coll=?"));
    let ours = switch.weir(&["dump-ports", "br0", "p1"]);
    assert!(ours.contains("frame=0, over=0, crc=0") && ours.contains("coll=0"), "{ours}");
    let json: serde_json::Value =
        serde_json::from_str(&switch.weir(&["dump-ports", "br0", "p2", "--json"])).unwrap();
    let port = &json["ports"][0];
    assert_eq!((&port["crc_errors"], &port["sent_dropped"]), (&serde_json::Value::Null, &0.into()));
    drop(host);
    switch.end();
}

#[test]
fn a_tap_device_serves_a_host_in_its_own_namespace() {
    let Some(sandbox) = sandbox() else { return };
    let a = Host::cabled(&sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1));
    let words = ["--bridge", "br0", "--port", "br0:p1=packet", "--port", "br0:t0=tap"];
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let b =
        Host { namespace: Namespace::create("tap").unwrap(), address: Ipv4Addr::new(10, 9, 0, 2) };
    move_interface(&switch.sandbox, "t0", &b.namespace);
    b.configure("t0");
    let bytes: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(a.transfers_to(&b, &bytes).unwrap() == bytes);
    assert!(b.transfers_to(&a, &bytes).unwrap() == bytes);
    drop((a, b));
    switch.end();
}

/// The switch forwards super-packets as a whole, even if rules rewrite addresses and ports. A port
/// that accepts only finished frames gets frames as on a wire.
#[test]
fn super_packets_pass_between_hosts_whose_addresses_are_rewritten() {
    let Some(sandbox) = sandbox() else { return };
    let a = Host::cabled(&sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1));
    let copies = format!("br0:copies=dummy,write={}", sandbox.path("copies.pcap").display());
    let words = ["--bridge", "br0", "--port", "br0:p1=packet", "--port", "br0:t0=tap"];
    let switch = TestSwitch::start(sandbox, &[&words[..], &["--port", &copies]].concat());
    let b =
        Host { namespace: Namespace::create("tap").unwrap(), address: Ipv4Addr::new(10, 9, 0, 2) };
    move_interface(&switch.sandbox, "t0", &b.namespace);
    b.configure("t0");
    // The switch rewrites the address and the port by which each host knows the other.
    for rule in [
        "priority=9,arp actions=NORMAL",
        "in_port=p1,tcp,nw_dst=10.9.0.22 actions=mod_nw_src:10.9.0.11,mod_nw_dst:10.9.0.2,\
         mod_tp_dst:7000,dec_ttl,output:t0,push_vlan:0x8100,mod_vlan_vid:7,output:copies",
        "in_port=t0,tcp,nw_dst=10.9.0.11 actions=mod_nw_src:10.9.0.22,mod_nw_dst:10.9.0.1,\
         mod_tp_src:9000,output:p1",
    ] {
        switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", rule]);
    }
    for (host, interface, other, shown) in
        [(&a, "eth0", (&b, "t0"), 22), (&b, "t0", (&a, "eth0"), 11)]
    {
        let hardware = hardware_address(&other.0.namespace, other.1);
        let shown = IpAddr::V4(Ipv4Addr::new(10, 9, 0, shown));
        host::add_neighbour(&host.namespace, interface, shown, hardware).unwrap();
    }
    let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let listen = SocketAddr::from((b.address, 7000));
    let listener = b.namespace.run(|| Ok(TcpListener::bind(listen))).unwrap().unwrap();
    let shown = SocketAddr::from((Ipv4Addr::new(10, 9, 0, 22), 9000));
    let client =
        a.namespace.run(|| Ok(TcpStream::connect_timeout(&shown, PATIENCE))).unwrap().unwrap();
    let (stream, _) = listener.accept().unwrap();
    for (mut from, mut to) in [(&client, &stream), (&stream, &client)] {
        from.set_write_timeout(Some(PATIENCE)).unwrap();
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            let bytes = &bytes;
            scope.spawn(move || from.write_all(bytes).unwrap());
            to.read_exact(&mut received).unwrap();
        });
        assert!(received == bytes);
    }
    // Ports and rules count frames as on a wire; the port received far fewer packets.
    let text = switch.weir(&["dump-ports", "--json", "br0", "p1"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let received = document["ports"][0]["received_packets"].as_u64().unwrap();
    assert!(received as usize >= bytes.len() / 1448, "{text}");
    let packets = switch.counted("packets received");
    assert!(packets < received, "{packets} of {received}");
    let payload = |frame: &Vec<u8>| frame.len() - 38 - usize::from(frame[50] >> 4) * 4;
    let copies = await_some("the copies", || {
        let frames = super::captures::read(&switch.sandbox, "copies.pcap");
        (frames.iter().map(payload).sum::<usize>() >= bytes.len()).then_some(frames)
    });
    for frame in copies {
        assert!(frame.len() <= 1500 + 18 && frame[12..16] == [0x81, 0, 0, 7]);
        // With the pseudo-header, the sum of a segment with a right checksum is 0xffff.
        let words = frame[30..]
            .chunks(2)
            .map(|two| u64::from(u16::from_be_bytes([two[0], two.get(1).copied().unwrap_or(0)])));
        let sum = words.sum::<u64>() + 6 + (frame.len() - 38) as u64;
        assert_eq!(sum % 0xffff, 0, "{frame:x?}");
    }
    drop((client, stream, listener, a, b));
    switch.end();
}

#[test]
fn source_nat_hides_the_address_of_a_host() {
    let Some(sandbox) = sandbox() else { return };
    let [a, b] = hosts(&sandbox);
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    for rule in [
        "table=0,priority=20,arp actions=NORMAL",
        "table=0,priority=10,ip,in_port=p1 \
         actions=ct(commit,zone=1,nat(src=10.9.0.100),table=1)",
        "table=0,priority=10,ip,in_port=p2 actions=ct(zone=1,nat,table=1)",
        "table=1,ip,in_port=p1 actions=output:p2",
        "table=1,ip,in_port=p2,ct_state=+est actions=output:p1",
    ] {
        switch.ofctl(&["add-flow", "br0", rule]);
    }
    // No host owns the hiding address, so no host answers ARP for it.
    let hardware = hardware_address(&a.namespace, "eth0");
    let hidden = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 100));
    host::add_neighbour(&b.namespace, "eth0", hidden, hardware).unwrap();
    let address = SocketAddr::from((b.address, 7001));
    let listener = b.namespace.run(|| Ok(TcpListener::bind(address))).unwrap().unwrap();
    let mut client =
        a.namespace.run(|| Ok(TcpStream::connect_timeout(&address, PATIENCE))).unwrap().unwrap();
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), hidden);
    assert_eq!(peer.port(), client.local_addr().unwrap().port());
    client.write_all(b"question").unwrap();
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"question");
    stream.write_all(b"an answer").unwrap();
    let mut bytes = [0; 9];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"an answer");
    let text = switch.appctl(&["dpctl/dump-conntrack"]);
    assert!(text.contains("tcp,orig=(src=10.9.0.1,dst=10.9.0.2,"), "{text}");
    assert!(text.contains("reply=(src=10.9.0.2,dst=10.9.0.100,"), "{text}");
    assert!(text.contains("zone=1") && text.contains("state=ESTABLISHED"), "{text}");
    // An open socket keeps its namespace, which keeps the veth pairs.
    drop((client, stream, listener));
    drop((a, b));
    switch.end();
}

fn hardware_address(namespace: &Namespace, interface: &str) -> [u8; 6] {
    let output = namespace.run(|| {
        Ok(std::process::Command::new("ip").args(["-br", "link", "show", interface]).output())
    });
    let text = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
    let address = text.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap();
    let bytes: Vec<u8> =
        address.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Moves an interface by `ip link set … netns PID`, where PID is a process in the namespace.
fn move_interface(sandbox: &Sandbox, interface: &str, to: &Namespace) {
    let mut process =
        to.run(|| Ok(std::process::Command::new("sleep").arg("300").spawn())).unwrap().unwrap();
    let pid = process.id().to_string();
    let status = sandbox.inside(|| {
        std::process::Command::new("ip")
            .args(["link", "set", interface, "netns", &pid])
            .status()
            .unwrap()
    });
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(status.success());
}

const PATIENCE: Duration = Duration::from_secs(60);

/// `switch show` prints the port's ring, and not the limit of its socket's queue.
#[test]
fn show_prints_the_memory_that_a_packet_port_uses() {
    let Some(sandbox) = sandbox() else { return };
    let host = Host::cabled(&sandbox, "p1", Ipv4Addr::new(10, 9, 0, 1));
    let switch = TestSwitch::start(sandbox, &["--bridge", "br0", "--port", "br0:p1=packet"]);
    let text = switch.weir(&["show"]);
    assert!(text.contains("device: p1: packet socket, ring of "), "{text}");
    assert!(!text.contains("MiB") && !text.contains("super-packets"), "{text}");
    drop(host);
    switch.end();
}

/// A TAP device can be open only once, so the switch closes the device before it opens the device
/// again.
#[test]
fn a_reload_opens_a_tap_device_again_under_another_port_number() {
    let Some(sandbox) = sandbox() else { return };
    let file = |number: u16| {
        format!("[bridge.br0]\n[bridge.br0.port]\nt0 = {{ type = \"tap\", number = {number} }}\n")
    };
    sandbox.write("switch.toml", file(5));
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    for number in [7, 9] {
        switch.sandbox.write("switch.toml", file(number));
        switch.weir(&["reload"]);
        let ports = switch.ofctl(&["show", "br0"]);
        assert!(ports.contains(&format!("{number}(t0)")), "{ports}");
    }
    switch.end();
}
