//! A switch gives up the rights that none of its ports needs.

use crate::test_switch::{TestSwitch, sandbox};
use std::fs;

#[test]
fn every_thread_is_confined_and_ports_can_still_be_added() {
    let Some(sandbox) = sandbox() else { return };
    for folder in ["captures", "elsewhere"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    let dummy = |file: &str| format!("dummy,write={}", sandbox.path(file).display());
    let first = format!("br0:d0={}", dummy("captures/first.pcap"));
    let (second, elsewhere) = (dummy("captures/second.pcap"), dummy("elsewhere/third.pcap"));
    let words = ["--bridge", "br0", "--port", &first];
    let switch = TestSwitch::start(sandbox, &words);
    let ring = format!("ring:{}", switch.path("run/ring"));
    for (port, kind) in [("t0", "tap"), ("p0", "packet:t0"), ("d1", &second), ("r0", &ring)] {
        switch.weir(&["port", "add", "br0", port, kind]);
    }
    switch.weir(&["bridge", "add", "br1"]);
    let refused = switch.try_weir(&["port", "add", "br0", "d2", &elsewhere]);
    assert!(!refused.status.success(), "{refused:?}");
    let advice = "elsewhere is in none of the directories that this process could open";
    assert!(refused.stderr.contains(advice), "{refused:?}");
    assert!(refused.stderr.contains("restart `weir switch run`"), "{refused:?}");
    let threads = statuses(switch.running.pid());
    assert!(threads.len() > 3, "{threads:?}");
    for thread in threads {
        assert!(thread.contains("NoNewPrivs:\t1") && thread.contains("Seccomp:\t2"), "{thread}");
        if rustix::process::geteuid().is_root() {
            // CAP_DAC_OVERRIDE, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK and
            // CAP_BPF.
            assert!(thread.contains("CapEff:\t0000008000007402"), "{thread}");
            assert!(thread.contains("CapBnd:\t0000008000007402"), "{thread}");
        }
    }
    let TestSwitch { sandbox, running } = switch;
    running.signal("INT");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("this process can still"), "{ended:?}");
    assert!(fs::read_dir(sandbox.path("run")).unwrap().next().is_none());
    let switch = TestSwitch::start(sandbox, &[&words[..], &["--unconfined"]].concat());
    assert!(statuses(switch.running.pid())[0].contains("Seccomp:\t0"));
    switch.weir(&["port", "add", "br0", "d2", &elsewhere]);
    switch.end();
}

/// Returns the rights of each thread, as /proc shows them.
fn statuses(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.filter_map(|it| fs::read_to_string(it.path().join("status")).ok()).collect()
}
