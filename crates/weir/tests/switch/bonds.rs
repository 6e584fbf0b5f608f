//! Bonds of several ports, which negotiate by LACP.

use super::test_switch::{TestSwitch, sandbox};
use crate::support::await_some;

/// Tests two bridges of one switch: two rings connect the bond of one bridge to the bond of the
/// other bridge.
#[test]
fn two_bonds_negotiate_by_lacp_and_carry_packets_by_the_members_that_are_up() {
    let Some(sandbox) = sandbox() else { return };
    let ring = |name: &str| sandbox.path("run").join(name).display().to_string();
    let bridge = |name: &str, ports: [&str; 3], role: &str, lacp: &str| {
        let [first, second, host] = ports;
        let (a, b) = (ring("a"), ring("b"));
        format!(
            "[bridge.{name}]\nfail-mode = \"standalone\"\n\
             [bridge.{name}.bond.bond-{name}]\nmembers = [\"{first}\", \"{second}\"]\n\
             mode = \"balance-tcp\"\nlacp = \"{lacp}\"\nlacp-time = \"fast\"\n\
             [bridge.{name}.port]\n\
             {first} = {{ type = \"ring\", path = \"{a}\", role = \"{role}\" }}\n\
             {second} = {{ type = \"ring\", path = \"{b}\", role = \"{role}\" }}\n\
             {host} = {{ type = \"dummy\" }}\n"
        )
    };
    let settings = bridge("br0", ["p1", "p2", "h0"], "server", "active")
        + &bridge("br1", ["p3", "p4", "h1"], "client", "passive");
    sandbox.write("switch.toml", settings);
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    let show = |bond: &str| switch.appctl(&["bond/show", bond]);
    for (bond, members) in [("bond-br0", ["p1", "p2"]), ("bond-br1", ["p3", "p4"])] {
        await_some("two members with a partner", || {
            let text = show(bond);
            let is_up = |member: &&str| text.contains(&format!("member {member}: enabled"));
            (text.contains("lacp_status: negotiated\n") && members.iter().all(is_up)).then_some(())
        });
    }
    let text = switch.appctl(&["lacp/show", "bond-br1"]);
    assert!(text.contains("  status: passive negotiated\n"), "{text}");
    assert_eq!(text.matches("  partner key: 1\n").count(), 2, "{text}");
    let text = switch.appctl(&["lacp/show-stats"]);
    assert_eq!(text.matches("  RX Bad PDUs: 0\n").count(), 4, "{text}");
    assert!(!switch.try_appctl(&["lacp/show", "p9"]).status.success());
    let hash = |words: &[&str]| switch.try_appctl(&[&["bond/hash"], words].concat());
    assert_eq!(hash(&["50:54:00:00:00:01", "10", "7"]).stdout.trim(), "70");
    for (words, error) in [
        (&["x"][..], "invalid mac"),
        (&["50:54:00:00:00:01", "x"], "invalid vlan"),
        (&["50:54:00:00:00:01", "1", "x"], "invalid basis"),
    ] {
        let refused = hash(words);
        assert!(refused.stderr.contains(error), "{refused:?}");
    }

    let former = switch.try_appctl(&["bond/set-active-slave", "bond9", "p2"]);
    assert!(former.stderr.contains("no such bond"), "{former:?}");
    assert!(!switch.appctl(&["list-commands"]).contains("slave"));

    // Frames from h0 reach h1 by either ring.
    let received = || {
        let text = switch.ofctl(&["dump-ports", "br1", "h1"]);
        let sent = text.split("tx pkts=").nth(1).unwrap();
        sent.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    for down in ["p1", "p2"] {
        switch.ofctl(&["mod-port", "br0", down, "down"]);
        await_some("one member", || {
            show("bond-br0").contains(&format!("member {down}: disabled")).then_some(())
        });
        let before = received();
        await_some("the packet", || {
            // On a busy machine the other bond may have lost its partner for a moment.
            switch.appctl(&["netdev-dummy/receive", "h0", PACKET]);
            (received() > before).then_some(())
        });
        switch.ofctl(&["mod-port", "br0", down, "up"]);
        await_some("both members", || {
            (show("bond-br0").matches(": enabled\n").count() == 2).then_some(())
        });
    }
    switch.end();
}

const PACKET: &str = "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
                      ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
