//! At its start an end gives up the rights that it never needs, with or without systemd.

use crate::ends::{Ends, echo, through};
use crate::support::{Running, Sandbox};
use std::fs;

#[test]
fn every_thread_of_both_ends_is_confined_and_names_are_still_looked_up() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let server = ends.server(&[&format!("tcp:127.0.0.1:{target}"), "tcp:localhost:*"]);
    let client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:localhost:{target}")]);
    assert_eq!(sandbox.inside(|| through(6000, b"by name")).unwrap(), b"by name");
    for end in [&server, &client] {
        let threads = threads(end);
        assert!(threads.len() > 1, "{threads:?}");
        for thread in threads {
            assert!(thread.contains("NoNewPrivs:\t1"), "{thread}");
            assert!(thread.contains("Seccomp:\t2"), "{thread}");
            // Every thread but `lookup` keeps CAP_NET_BIND_SERVICE and CAP_NET_ADMIN.
            let is_lookup = thread.contains("Name:\tlookup");
            let kept = if is_lookup { 0 } else { 1 << 10 | 1 << 12 };
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                assert_eq!(capabilities(&thread, set) & !kept, 0, "{set}: {thread}");
            }
            if rustix::process::geteuid().is_root() {
                assert_eq!(thread.contains("Uid:\t65534\t65534\t65534\t65534"), is_lookup);
                assert_eq!(capabilities(&thread, "CapEff"), kept, "{thread}");
                assert_eq!(capabilities(&thread, "CapBnd"), kept, "{thread}");
            }
        }
    }
    for end in [server, client] {
        end.signal("TERM");
        let output = end.end();
        assert!(!output.stderr.contains("this process can still"), "{output:?}");
    }
    assert!(!sandbox.path("server.sock").exists());
}

#[test]
fn a_reload_that_needs_a_directory_unknown_at_the_start_asks_for_a_restart() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    fs::copy(sandbox.path("keys/client.crt"), sandbox.path("elsewhere/ca.pem")).unwrap();
    fs::create_dir(sandbox.path("conf")).unwrap();
    let with_authority =
        format!("[server]\nca-file = \"../elsewhere/ca.pem\"\n{}", ends.peer_table());
    let socket = sandbox.path("conf/run.sock");
    let socket = socket.to_str().unwrap();
    let start = |flags: &[&str]| {
        sandbox.write("conf/server.toml", ends.peer_table());
        let own = ends.own("server");
        let mut words = vec!["tunnel", "server", "--config", "conf/server.toml"];
        words.extend(["--listen-on", "127.0.0.1:7500", "--status-socket", socket]);
        words.extend(own.iter().map(String::as_str).chain(flags.iter().copied()));
        let end = ends.started(&words, "listening on");
        sandbox.write("conf/server.toml", &with_authority);
        end
    };
    let reload = || sandbox.weir(&["tunnel", "reload", "--status-socket", socket]);
    let confined = start(&[]);
    let output = reload();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("elsewhere is in none of the directories"), "{output:?}");
    assert!(output.stdout.contains("restart weir tunnel"), "{output:?}");
    // A reload may change a file within a directory that the end opened at its start.
    sandbox
        .write("conf/server.toml", format!("[server]\nmemory = \"64MiB\"\n{}", ends.peer_table()));
    assert_eq!(reload().status.code(), Some(0));
    confined.signal("TERM");
    confined.end();

    let free = start(&["--unconfined"]);
    assert!(threads(&free)[0].contains("Seccomp:\t0"));
    let output = reload();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    free.signal("TERM");
    free.end();
}

fn capabilities(thread: &str, set: &str) -> u64 {
    let line = thread.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    u64::from_str_radix(line.unwrap(), 16).unwrap()
}

/// Returns the confinement of each thread, as /proc shows it.
fn threads(end: &Running) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{}/task", end.pid())).unwrap();
    let texts =
        all.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok());
    texts.collect()
}
