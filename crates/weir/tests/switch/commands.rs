//! The commands of `weir switch`.

use super::captures::{self, udp};
use super::test_switch::{TestSwitch, sandbox};
use crate::support::await_some;
use std::process::Command;

#[test]
fn rules_are_added_changed_dumped_and_deleted() {
    let Some(sandbox) = sandbox() else { return };
    let words = ["--bridge", "br0", "--port", "br0:p1=dummy", "--port", "br0:p2=dummy"];
    let switch = TestSwitch::start(sandbox, &words);
    // The output has ages in seconds, so the clock is stopped.
    switch.appctl(&["time/stop"]);
    switch.weir(&["add-flow", "br0", "in_port=p1,ip actions=output:p2"]);
    switch.sandbox.write("rules", "# two\ntable=1,arp actions=drop\ntable=1,udp actions=normal\n");
    switch.weir(&["add-flows", "br0", "rules"]);
    let text = switch.weir(&["dump-flows", "br0", "table=1"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(
        text.contains("table=1, n_packets=0, n_bytes=0, idle_age=0, udp actions=NORMAL"),
        "{text}"
    );
    switch.weir(&["mod-flows", "br0", "table=1,udp actions=drop"]);
    switch.weir(&["del-flows", "--strict", "br0", "table=1,arp"]);
    let text = switch.ofctl(&["--no-stats", "dump-flows", "br0"]);
    assert_eq!(text, " ip,in_port=1 actions=output:2\n table=1, udp actions=drop\n");
    let document = switch.weir(&["dump-flows", "--json", "br0", "table=0"]);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["flows"][0]["actions"], "output:2");
    switch.sandbox.write("rules", "ip actions=drop\nip,foo=1 actions=drop\n");
    let refused = switch.try_weir(&["add-flows", "br0", "rules"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stderr.contains("line 2") && refused.stderr.contains("unknown keyword foo"));
    let unread = switch.try_weir(&["add-flows", "br0", "missing"]);
    assert_eq!(unread.status.code(), Some(2), "{unread:?}");
    assert!(unread.stderr.contains("cannot read missing"), "{unread:?}");
    switch.sandbox.write("rules", "arp actions=drop\n");
    switch.weir(&["replace-flows", "br0", "rules"]);
    assert_eq!(switch.ofctl(&["--no-stats", "dump-flows", "br0"]).trim(), "arp actions=drop");
    switch.weir(&["del-flows", "br0"]);
    assert_eq!(switch.weir(&["dump-flows", "br0"]), "");
    switch.end();
}

#[test]
fn ports_bridges_and_threads_change_while_packets_flow() {
    let Some(sandbox) = sandbox() else { return };
    captures::write(&sandbox, "in.pcap", &(0..16).map(udp).collect::<Vec<_>>());
    let port = "br0:p1=pcap:in.pcap,loop,queues=2";
    let words = ["--bridge", "br0", "--port", port, "--port", "br0:p2=null", "--pmd-cpus", "0"];
    let switch = TestSwitch::start(sandbox, &words);
    switch.ofctl(&["add-flow", "br0", "in_port=1 actions=output:2,output:3"]);
    let sent = |port: &str| {
        let text = switch.weir(&["dump-ports", "br0", port]);
        let number = text.split_once("tx pkts=").unwrap().1.split_once(',').unwrap().0;
        number.parse::<u64>().unwrap()
    };
    await_some("packets", || (sent("p2") > 1000).then_some(()));
    switch.weir(&["port", "add", "br0", "p3", "null"]);
    await_some("packets at the new port", || (sent("p3") > 1000).then_some(()));
    switch.weir(&["port", "del", "br0", "p3"]);
    assert!(!switch.ofctl(&["show", "br0"]).contains("3(p3)"));
    switch.weir(&["bridge", "add", "br1"]);
    switch.ofctl(&["add-flow", "br1", "actions=normal"]);
    switch.weir(&["bridge", "del", "br1"]);
    assert!(!switch.sandbox.path("run/br1.mgmt").exists());
    switch.weir(&["set", "pmd-cpu-mask", "3"]);
    switch.weir(&["port", "set", "br0", "p1", "--rxq-affinity", "0:0,1:1"]);
    let text = await_some("two threads", || {
        let text = switch.appctl(&["dpif-netdev/pmd-rxq-show"]);
        (text.matches("port: p1").count() == 2).then_some(text)
    });
    assert_eq!(text.matches("isolated : true").count(), 2, "{text}");
    await_some("both queues", || {
        let text = switch.weir(&["show", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        let threads = status["threads"].as_array().unwrap();
        let busy = threads.iter().filter(|thread| thread["received"].as_u64() > Some(0)).count();
        (busy == 2).then_some(())
    });
    let view = switch.weir(&["top", "--json", "--count", "1", "--interval", "0.1"]);
    let view: serde_json::Value = serde_json::from_str(&view).unwrap();
    assert!(view["ports"].as_array().unwrap().iter().any(|port| port["name"] == "p1"), "{view}");
    switch.end();
}

#[test]
fn an_unreadable_rule_file_is_a_usage_error_and_a_file_with_mistakes_is_not() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.write("wrong.toml", "[bridge.br0]\nfail-mod = \"secure\"\n");
    sandbox.write("binary.toml", [0xff, 0xfe]);
    for (file, status) in [("missing.toml", 2), (".", 2), ("binary.toml", 2), ("wrong.toml", 1)] {
        for words in [&["switch", "check", file][..], &["switch", "check", "--json", file]] {
            let output = sandbox.weir(words);
            assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
            if status == 2 {
                let is_told =
                    output.stderr.contains(file) && output.stderr.contains("name another");
                assert!(is_told && output.stdout.is_empty(), "{words:?}: {output:?}");
            }
        }
    }
}

#[test]
fn a_reload_changes_only_settings_that_differ() {
    let Some(sandbox) = sandbox() else { return };
    captures::write(&sandbox, "in.pcap", &[udp(0)]);
    sandbox.write("rules", "in_port=1 actions=output:2\n");
    let file = |ports: &str| format!("[bridge.br0]\nflows = \"rules\"\n[bridge.br0.port]\n{ports}");
    let first =
        "p1 = { type = \"pcap\", file = \"in.pcap\", loop = true }\np2 = { type = \"null\" }\n";
    sandbox.write("switch.toml", file(first));
    let checked = sandbox.weir(&["switch", "check", "switch.toml"]);
    assert_eq!(checked.stdout, "switch.toml: valid\n", "{checked:?}");
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    await_some("packets", || (switch.packets("br0", "in_port=1") > 100).then_some(()));
    switch.sandbox.write("switch.toml", file(&format!("{first}p3 = {{ type = \"nul\" }}\n")));
    let refused = switch.try_weir(&["reload"]);
    assert!(refused.stderr.contains("(did you mean `null`?)"), "{refused:?}");
    let checked = switch.sandbox.weir(&["switch", "check", "switch.toml"]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    switch.sandbox.write("switch.toml", file(&format!("{first}p3 = {{ type = \"null\" }}\n")));
    switch.weir(&["reload"]);
    assert!(switch.ofctl(&["show", "br0"]).contains("3(p3)"));
    assert!(switch.packets("br0", "in_port=1") > 100);
    let standalone = file(first).replace("flows", "fail-mode = \"standalone\"\nflows");
    switch.sandbox.write("switch.toml", standalone);
    switch.weir(&["reload"]);
    let rules = switch.ofctl(&["dump-flows", "br0"]);
    let has = |rule: &str| rules.contains(rule);
    assert!(has("priority=0 actions=NORMAL") && has("actions=output:2"), "{rules}");
    switch.end();
}

/// open(2) of a pipe waits for the other end, and the switch must serve its ports meanwhile.
#[test]
fn a_pipe_instead_of_a_file_is_refused_and_the_switch_still_answers() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.write("rules", "in_port=1 actions=drop\n");
    let settings = "[bridge.br0]\nflows = \"rules\"\n[bridge.br0.port]\np1 = { type = \"null\" }\n";
    sandbox.write("switch.toml", settings);
    let made = Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(made.unwrap().success());
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    let pipe = switch.sandbox.path("pipe").display().to_string();
    let (reads, writes) = (format!("pcap:{pipe}"), format!("pcap,write={pipe}"));
    for words in [
        &["port", "add", "br0", "p2", &reads][..],
        &["port", "add", "br0", "p2", &writes],
        &["add-flows", "br0", &pipe],
        &["replace-flows", "br0", &pipe],
        &["reload"],
    ] {
        let replaced = words == ["reload"];
        if replaced {
            std::fs::rename(switch.sandbox.path("pipe"), switch.sandbox.path("switch.toml"))
                .unwrap();
        }
        let refused = switch.try_weir(words);
        assert!(matches!(refused.status.code(), Some(1 | 2)), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("is a pipe (FIFO)"), "{words:?}: {refused:?}");
        assert!(switch.weir(&["show"]).contains("Port p1"), "{words:?}");
    }
    switch.end();
}
