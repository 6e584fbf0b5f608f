//! The start and the end of a switch.

use super::captures::{self, udp};
use super::test_switch::{TestSwitch, await_control, run, sandbox, socket};
use crate::support::{Sandbox, await_some};

const BRIDGE: [&str; 4] = ["--bridge", "br0", "--port", "br0:p1=null"];

#[test]
fn a_second_switch_in_the_same_folder_is_refused() {
    let Some(sandbox) = sandbox() else { return };
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    let second = run(&switch.sandbox, &BRIDGE).end();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(second.stderr.contains("another switch runs in"), "{second:?}");
    switch.ofctl(&["add-flow", "br0", "actions=drop"]);
    switch.end();
}

#[test]
fn a_new_switch_replaces_a_killed_switch_in_its_folder() {
    let Some(sandbox) = sandbox() else { return };
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.running.signal("KILL");
    let TestSwitch { sandbox, running } = switch;
    assert!(!running.end().status.success());
    assert!(socket(&sandbox, "br0.mgmt").exists());
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.ofctl(&["add-flow", "br0", "actions=drop"]);
    switch.end();
}

#[test]
fn signals_end_a_switch_that_forwards() {
    for signal in ["INT", "TERM"] {
        let Some(sandbox) = sandbox() else { return };
        captures::write(&sandbox, "in.pcap", &[udp(0)]);
        let port = "br0:p1=pcap:in.pcap,loop";
        let words = ["--bridge", "br0", "--port", port, "--port", "br0:p2=null"];
        let running = run(&sandbox, &words);
        await_control(&sandbox, &running);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(std::fs::read_dir(sandbox.path("run")).unwrap().count(), 0);
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    }
}

fn refused(sandbox: &Sandbox, words: &[&str], part: &str) {
    let ended = run(sandbox, words).end();
    assert_eq!(ended.status.code(), Some(2), "{words:?}: {ended:?}");
    assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
}

#[test]
fn usage_errors_of_the_switch_are_explained() {
    let Some(sandbox) = sandbox() else { return };
    refused(&sandbox, &[], "there is no bridge: add one by --bridge br0");
    refused(&sandbox, &["--bridge", "br0", "--port", "br1:p=null"], "there is no bridge br1");
    refused(&sandbox, &["--bridge", "br0", "--port", "br0:p=nul"], "(did you mean `null`?)");
    refused(&sandbox, &["--bridge", "br0", "--port", "br0:p=pcap:x.pcap"], "cannot read x.pcap");
    refused(&sandbox, &["--bridge", "br0", "--pmd-cpus", "x"], "for example 1,2");
    refused(&sandbox, &["--bridge", "br0", "--pmd-cpus", "999"], "CPU 999 is not available");
    sandbox.write("rules", "actions=drop\nip,foo actions=drop\n");
    sandbox.write("switch.toml", "[bridge.br0]\nflows = \"rules\"\n");
    refused(&sandbox, &["--config", "switch.toml"], "rules:2: ");
    sandbox.write("switch.toml", "[bridge.br0]\nflow = \"rules\"\n");
    refused(
        &sandbox,
        &["--config", "switch.toml"],
        "switch.toml:2: unknown key `flow` (did you mean `flows`?)",
    );
    let nobody = sandbox.weir(&["switch", "show", "--rundir", "none"]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert!(nobody.stderr.contains("no switch runs at none/weir-switch.ctl"), "{nobody:?}");
}

#[test]
fn a_flooded_socket_does_not_block_other_peers() {
    let Some(sandbox) = sandbox() else { return };
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    let path = socket(&switch.sandbox, "br0.mgmt");
    let hello = [1, 0, 0, 8, 0, 0, 0, 1];
    // Each peer asks for all tables again and again, and does not read.
    let mut floods = Vec::new();
    for _ in 0..20 {
        use std::io::Write;
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(&hello).unwrap();
        let request = [1, 16, 0, 12, 0, 0, 0, 2, 0, 3, 0, 0].repeat(1000);
        let mut at = 0;
        while let Ok(written) = stream.write(&request[at..]) {
            at = (at + written) % request.len();
        }
        floods.push(stream);
    }
    switch.ofctl(&["add-flow", "br0", "actions=drop"]);
    let pid = switch.running.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 200 << 10, "{kib} KiB");
    drop(floods);
    await_some("the answers", || {
        switch.ofctl(&["dump-flows", "br0"]).contains("drop").then_some(())
    });
    switch.end();
}

/// The TCP peers have sent a hello, ask for all tables again and again, and do not read.
#[test]
fn tcp_peers_do_not_use_up_the_owners_connections() {
    use std::io::Write;
    let Some(sandbox) = sandbox() else { return };
    sandbox.write(
        "switch.toml",
        "[bridge.br0]\nlisten = [\"127.0.0.1:6653\"]\n[bridge.br0.port]\np1 = { type = \"null\" }\n",
    );
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    for (peers, request) in [
        (129, &[][..]),
        (300, &[1, 16, 0, 12, 0, 0, 0, 2, 0, 3, 0, 0].repeat(500)),
        (150, &[1, 5, 0, 8, 0, 0, 0, 3].repeat(2000)),
    ] {
        let floods = switch.sandbox.inside(|| {
            let connect = |_| {
                let mut stream = std::net::TcpStream::connect("127.0.0.1:6653").unwrap();
                stream.set_nonblocking(true).unwrap();
                // The switch may have refused the connection already.
                let _ = stream.write(&[&[1, 0, 0, 8, 0, 0, 0, 1], request].concat());
                stream
            };
            (0..peers).map(connect).collect::<Vec<_>>()
        });
        await_some("the refusals", || {
            let (_, said) = switch.running.output_so_far();
            said.contains("refused a connection: 128 by TCP are open").then_some(())
        });
        let path = socket(&switch.sandbox, "br0.mgmt");
        let own: Vec<_> =
            (0..50).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap()).collect();
        switch.ofctl(&["add-flow", "br0", "actions=drop"]);
        assert!(switch.ofctl(&["dump-flows", "br0"]).contains("actions=drop"), "{peers}");
        switch.ofctl(&["--bundle", "add-flow", "br0", "priority=7,actions=drop"]);
        drop((floods, own));
    }
    switch.end();
}
