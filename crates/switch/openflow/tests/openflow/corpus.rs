//! Rules that use every field and every action: ovs-ofctl must dump the rules that it added.

use super::server::{Server, is_installed};

/// Returns the rules that ovs-ofctl dumps, without counters, sorted.
fn dumped(server: &Server, options: &[&str]) -> Vec<String> {
    let mut options = options.to_vec();
    options.push("--no-stats");
    let text = server.ok(&options, "dump-flows", &[]);
    let lines = text.lines().filter(|line| line.contains("actions="));
    let mut rules: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    rules.sort();
    rules
}

fn check(options: &[&str], given: &str, expected: &str) {
    let server = Server::start();
    let ran = server.run(options, "add-flow", &[given]);
    assert!(ran.is_success, "{options:?} {given}: {}", ran.stderr);
    assert_eq!(dumped(&server, options), [expected], "{options:?} {given}");
}

#[test]
fn ovs_ofctl_dumps_the_rules_that_it_added() {
    if !is_installed() {
        return;
    }
    let mut failures = Vec::new();
    for version in ["OpenFlow10", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let server = Server::start();
        for given in RULES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (versions, given) = given.split_once(": ").unwrap_or(("", given));
            if !versions.is_empty() && !versions.contains(&version[8..]) {
                continue;
            }
            let options = ["-O", version];
            let (given, expected) = given.split_once(" => ").unwrap_or((given, given));
            server.bridge.lock().unwrap().flows.clear();
            let ran = server.run(&options, "add-flow", &[given]);
            if !ran.is_success {
                failures.push(format!("{version} {given}\n  {}", ran.stderr));
                continue;
            }
            let found = dumped(&server, &options);
            if found != [expected.trim()] {
                failures.push(format!("{version} {given}\n  {found:?}\n  {expected}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn ovs_ofctl_dumps_the_rules_of_the_reference_report() {
    if !is_installed() {
        return;
    }
    check(
        &[],
        "table=0,arp,in_port=2,arp_op=1,arp_tpa=192.168.20.1 \
         actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:ac:10:ff:01:02,\
         load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
         load:0x02ac10ff0102->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
         load:0xc0a81401->NXM_OF_ARP_SPA[],IN_PORT",
        "arp,in_port=2,arp_tpa=192.168.20.1,arp_op=1 \
         actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:ac:10:ff:01:02,\
         load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
         load:0x2ac10ff0102->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
         load:0xc0a81401->NXM_OF_ARP_SPA[],IN_PORT",
    );
    check(
        &[],
        "table=0,ip,priority=10,in_port=1,nw_dst=48.0.0.0/8 \
         actions=ct(commit,table=1,nat(src=48.128.0.10))",
        "priority=10,ip,in_port=1,nw_dst=48.0.0.0/8 \
         actions=ct(commit,table=1,nat(src=48.128.0.10))",
    );
}

/// Rules, one per line, as ovs-ofctl dumps them. A prefix `VERSIONS: ` limits the versions. ` => `
/// separates an added rule from its dump if the two differ.
const RULES: &str = include_str!("rules.txt");
