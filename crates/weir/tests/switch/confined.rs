//! A switch gives up the rights that none of its ports needs.

use crate::test_switch::{TestSwitch, sandbox};
use std::fs;
use testing::Need;

#[test]
fn every_thread_is_confined_and_ports_can_still_be_added() {
    for need in [Need::Confinement, Need::Tun] {
        if !need.is_met() {
            return testing::skip(need);
        }
    }
    let Some(sandbox) = sandbox() else { return };
    for folder in ["captures", "elsewhere"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    let dummy = |file: &str| format!("dummy,write={}", sandbox.path(file).display());
    let first = format!("br0:d0={}", dummy("captures/first.pcap"));
    let (second, elsewhere) = (dummy("captures/second.pcap"), dummy("elsewhere/third.pcap"));
    let words = ["--bridge", "br0", "--port", &first];
    let switch = TestSwitch::start(sandbox, &[&words[..], &["--confine-files"]].concat());
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
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let threads = statuses(switch.running.pid());
    assert!(threads.len() > 3, "{threads:?}");
    for thread in threads {
        assert!(thread.contains("NoNewPrivs:\t1") && thread.contains("Seccomp:\t2"), "{thread}");
        if rustix::process::geteuid().is_root() {
            for set in ["CapEff", "CapBnd"] {
                assert_eq!(capabilities(&thread, set) & !KEPT, 0, "{set}: {thread}");
                let missing = KEPT & capabilities(&own, "CapBnd") & !capabilities(&thread, set);
                assert_eq!(missing, 0, "{set}: {thread}");
            }
        }
    }
    let TestSwitch { sandbox, running } = switch;
    running.signal("INT");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("this process can still"), "{ended:?}");
    assert!(fs::read_dir(sandbox.path("run")).unwrap().next().is_none());
    let mut sandbox = sandbox;
    for (flags, mode) in [(&[][..], 2), (&["--unconfined"], 0)] {
        let switch = TestSwitch::start(sandbox, &[&words[..], flags].concat());
        let status = &statuses(switch.running.pid())[0];
        assert!(status.contains(&format!("Seccomp:\t{mode}")), "{status}");
        switch.weir(&["port", "add", "br0", "d2", &elsewhere]);
        let TestSwitch { sandbox: same, running } = switch;
        running.signal("INT");
        assert_eq!(running.end().status.code(), Some(0));
        sandbox = same;
    }
}

/// The capabilities that the switch keeps: CAP_DAC_OVERRIDE, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN,
/// CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF.
const KEPT: u64 = 0x80_0000_7402;

fn capabilities(thread: &str, set: &str) -> u64 {
    let line = thread.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    u64::from_str_radix(line.unwrap(), 16).unwrap()
}

/// Returns the rights of each thread, as /proc shows them.
fn statuses(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.filter_map(|it| fs::read_to_string(it.path().join("status")).ok()).collect()
}
