//! Ports that lead to other processes, and AF_XDP ports. `weir gen` or hosts in namespaces are at
//! both ends.

use super::interfaces::{Host, hosts};
use super::test_switch::{TestSwitch, sandbox};
use crate::support::{Sandbox, await_some};
use serde_json::Value;
use std::process::Command;

/// Sends for a while through a switch with two ports. Returns the generator's report.
fn generate(switch: &TestSwitch, ports: [&str; 2]) -> Value {
    let profile = "- duration : 1\n  generator :\n          distribution : \"seq\"\n          \
         clients_start : \"16.0.0.1\"\n          clients_end   : \"16.0.0.255\"\n          \
         servers_start : \"48.0.0.1\"\n          servers_end   : \"48.0.0.255\"\n          \
         clients_per_gb : 201\n          min_clients    : 101\n          \
         dual_port_mask : \"1.0.0.0\"\n          tcp_aging      : 0\n          \
         udp_aging      : 0\n  cap_info :\n     - name: cap2/dns.pcap\n       cps   : 1000.0\n       \
         ipg   : 10000\n       rtt   : 10000\n       w     : 1\n       limit : 255\n";
    switch.sandbox.write("dns.yaml", profile);
    let [first, second] = ports;
    let output = switch.sandbox.weir(&[
        "gen", "-f", "dns.yaml", "-m", "2", "-d", "1", "-l", "100", "--json", "--port", first,
        "--port", second,
    ]);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Repeats runs until a run loses no packet. If the machine stalls for longer than a queue can hold
/// packets, some packets are lost or not sent. A switch that loses packets loses packets in every
/// run.
fn passes_all(switch: &TestSwitch, ports: [&str; 2]) {
    let mut wrong = Vec::new();
    for _ in 0..3 {
        let document = generate(switch, ports);
        let packets = &document["packets"];
        assert_eq!(document["error"], Value::Null, "{document}");
        let streams = document["streams"].as_array().unwrap();
        let has_lost = packets["drop"] != 0 || streams.iter().any(|stream| stream["lost"] != 0);
        if packets["sent"].as_u64() > Some(3000) && !has_lost {
            return;
        }
        wrong.push(document.to_string());
        if !ports[0].starts_with("xdp:") {
            await_some("the end", || {
                ["p1", "p2"].iter().all(|port| state(switch, port) == "down").then_some(())
            });
        }
    }
    panic!("{}", wrong.join("\n"));
}

fn patch(switch: &TestSwitch) {
    switch.ofctl(&["add-flow", "br0", "in_port=p1,actions=output:p2"]);
    switch.ofctl(&["add-flow", "br0", "in_port=p2,actions=output:p1"]);
}

fn state(switch: &TestSwitch, port: &str) -> String {
    let text = switch.weir(&["dump-ports", "--json", "br0", port]);
    let document: Value = serde_json::from_str(&text).unwrap();
    document["ports"][0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn the_generator_sends_through_rings_again_and_again() {
    let Some(sandbox) = sandbox() else { return };
    let paths = ["r1", "r2"].map(|name| sandbox.path(name).display().to_string());
    let words = [1, 2].map(|n| format!("br0:p{n}=ring:{}", paths[n - 1]));
    let words = ["--bridge", "br0", "--port", &words[0], "--port", &words[1]];
    let switch = TestSwitch::start(sandbox, &words);
    patch(&switch);
    assert_eq!(state(&switch, "p1"), "down");
    for _ in 0..2 {
        let ports = paths.clone().map(|path| format!("ring:{path}"));
        passes_all(&switch, [&ports[0], &ports[1]]);
        await_some("the end", || (state(&switch, "p1") == "down").then_some(()));
    }
    // A killed generator must not hinder the next generator.
    let ring = format!("ring:{}", paths[0]);
    let running = switch.sandbox.start(&[
        "gen", "-f", "dns.yaml", "-m", "50", "-d", "30", "--port", &ring, "--port", "null",
    ]);
    await_some("the connection", || (state(&switch, "p1") == "up").then_some(()));
    running.signal("KILL");
    running.end();
    await_some("the end", || (state(&switch, "p1") == "down").then_some(()));
    let ports = paths.map(|path| format!("ring:{path}"));
    passes_all(&switch, [&ports[0], &ports[1]]);
    switch.end();
}

#[test]
fn the_generator_drives_vhost_user_devices() {
    let Some(sandbox) = sandbox() else { return };
    let paths = ["v1", "v2"].map(|name| sandbox.path(name).display().to_string());
    let words = [1, 2].map(|n| format!("br0:p{n}=vhost-user:{}", paths[n - 1]));
    let words = ["--bridge", "br0", "--port", &words[0], "--port", &words[1]];
    let switch = TestSwitch::start(sandbox, &words);
    patch(&switch);
    let ports = paths.map(|path| format!("vhost-user:{path}"));
    for _ in 0..2 {
        passes_all(&switch, [&ports[0], &ports[1]]);
        await_some("the end", || (state(&switch, "p2") == "down").then_some(()));
    }
    let text = switch.weir(&["show"]);
    assert!(text.contains("vhost-user device, listens at"), "{text}");
    switch.end();
}

#[test]
fn a_generator_without_a_peer_reports_the_missing_peer() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["gen", "-f", "cap2/dns.yaml", "--port", "ring:nobody"]);
    assert!(!output.status.success());
    sandbox.write("one.yaml", "- duration : 1\n  generator :\n          distribution : \"seq\"\n          clients_start : \"16.0.0.1\"\n          clients_end   : \"16.0.0.9\"\n          servers_start : \"48.0.0.1\"\n          servers_end   : \"48.0.0.9\"\n  cap_info :\n     - name: cap2/dns.pcap\n       cps   : 1.0\n       ipg   : 10000\n       rtt   : 10000\n       w     : 1\n");
    let output = sandbox.weir(&["gen", "-f", "one.yaml", "--port", "ring:./nobody"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("nobody listens at ./nobody"), "{output:?}");
}

/// Switches off a host's offloads, because XDP does not complete a veth peer's partial checksums.
fn without_offloads(host: &Host) {
    let status = host.namespace().run(|| {
        let mut command = Command::new("ethtool");
        command.args(["-K", "eth0", "tx", "off", "tso", "off", "gso", "off"]);
        Ok(command.stdout(std::process::Stdio::null()).status())
    });
    assert!(status.unwrap().unwrap().success());
}

#[test]
fn tcp_passes_between_hosts_on_xdp_ports() {
    let Some(sandbox) = sandbox() else { return };
    if !crate::support::is_installed("ethtool") {
        return testing::skip(testing::Need::Program("ethtool"));
    }
    let [a, b] = hosts(&sandbox);
    without_offloads(&a);
    without_offloads(&b);
    let words = ["--bridge", "br0", "--port", "br0:p1=xdp,copy", "--port", "br0:p2=xdp:p2"];
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "priority=0 actions=NORMAL"]);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(a.transfers_to(&b, &bytes).unwrap() == bytes);
    assert!(b.transfers_to(&a, &bytes).unwrap() == bytes);
    let text = switch.weir(&["show"]);
    assert!(text.contains("AF_XDP on queue 0, native program, copy mode"), "{text}");
    let outer = switch.sandbox.inside(|| host::Namespace::current().unwrap());
    host::remove_interface(&outer, "p2").unwrap();
    await_some("its end", || (state(&switch, "p2") == "down").then_some(()));
    drop(b);
    let b = Host::cabled(&switch.sandbox, "p2", std::net::Ipv4Addr::new(10, 9, 0, 2));
    without_offloads(&b);
    await_some("its return", || (state(&switch, "p2") == "up").then_some(()));
    // The other host still has the former interface's address in its ARP table.
    assert!(b.transfers_to(&a, &bytes).unwrap() == bytes);
    drop((a, b));
    switch.end();
}

/// A queue of an interface takes one AF_XDP socket, so the switch closes the former socket first.
#[test]
fn a_reload_opens_an_xdp_port_again_with_other_settings() {
    let Some(sandbox) = sandbox() else { return };
    if !crate::support::is_installed("ethtool") {
        return testing::skip(testing::Need::Program("ethtool"));
    }
    let [a, b] = hosts(&sandbox);
    without_offloads(&a);
    without_offloads(&b);
    let file = |settings: &str| {
        format!(
            "[bridge.br0]\nfail-mode = \"standalone\"\n[bridge.br0.port]\n\
             p1 = {{ type = \"xdp\", {settings} }}\np2 = {{ type = \"packet\", number = 2 }}\n"
        )
    };
    sandbox.write("switch.toml", file("number = 5"));
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    for (settings, shown) in [
        ("number = 7", "7(p1)"),
        ("number = 7, copy-mode = \"copy\"", "7(p1)"),
        ("number = 9, copy-mode = \"copy\"", "9(p1)"),
    ] {
        switch.sandbox.write("switch.toml", file(settings));
        switch.weir(&["reload"]);
        let ports = switch.ofctl(&["show", "br0"]);
        assert!(ports.contains(shown), "{ports}");
        assert_eq!(state(&switch, "p1"), "up");
        assert_eq!(a.transfers_to(&b, settings.as_bytes()).unwrap(), settings.as_bytes());
    }
    drop((a, b));
    switch.end();
}

#[test]
fn an_xdp_port_whose_mtu_is_refused_says_why() {
    let Some(sandbox) = sandbox() else { return };
    let host = Host::cabled(&sandbox, "p1", std::net::Ipv4Addr::new(10, 9, 0, 1));
    let file = |mtu: u32| {
        format!("[bridge.br0]\n[bridge.br0.port]\np1 = {{ type = \"xdp\", mtu = {mtu} }}\n")
    };
    sandbox.write("switch.toml", file(5_000));
    let rundir = sandbox.path("run").display().to_string();
    let words = ["switch", "run", "--rundir", &rundir, "--config", "switch.toml"];
    let refused = sandbox.weir(&words);
    let reason = "port p1: p1: an MTU of 5000 is too large: use at most 3822";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    sandbox.write("switch.toml", file(1_400));
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    switch.sandbox.write("switch.toml", file(1_300));
    let refused = switch.try_weir(&["reload"]);
    let reason = "port p1: an open xdp port keeps its MTU, here 1400: remove the port";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    drop(host);
    switch.end();
}

#[test]
fn the_generator_sends_by_xdp_and_wrong_uses_are_explained() {
    let Some(sandbox) = sandbox() else { return };
    for (near, far) in [("gen1", "p1"), ("gen2", "p2")] {
        sandbox.inside(|| {
            for words in [
                format!("link add {near} type veth peer name {far}"),
                format!("link set {near} up"),
                format!("link set {far} up"),
            ] {
                let status = Command::new("ip").args(words.split(' ')).status().unwrap();
                assert!(status.success(), "ip {words}");
            }
        });
    }
    let words = ["--bridge", "br0", "--port", "br0:p1=xdp", "--port", "br0:p2=xdp"];
    let switch = TestSwitch::start(sandbox, &words);
    patch(&switch);
    passes_all(&switch, ["xdp:gen1", "xdp:gen2"]);
    for (port, expected) in [
        ("xdp:p1", "another"),
        ("xdp:gen1,queue=9", "there is no queue 9: the last is 0"),
        ("xdp:gen1,zerocopy", "its driver has no zero-copy"),
        ("xdp:gen3", "there is no interface \"gen3\" (did you mean"),
    ] {
        let output = switch.sandbox.weir(&["gen", "-f", "dns.yaml", "--port", port]);
        assert!(!output.status.success() && output.stderr.contains(expected), "{port}: {output:?}");
    }
    // No program stays attached.
    let shown = switch.sandbox.inside(|| {
        let output = Command::new("ip").args(["link", "show", "gen1"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    assert!(!shown.contains("xdp"), "{shown}");
    for name in ["gen1", "gen2"] {
        let outer = switch.sandbox.inside(|| host::Namespace::current().unwrap());
        host::remove_interface(&outer, name).unwrap();
    }
    switch.end();
}
