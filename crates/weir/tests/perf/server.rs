//! `weir perf server` as a user runs it: with many clients, at its end, and at its limits.

use crate::support::{Running, Sandbox, await_some, intervals};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

fn serve(sandbox: &Sandbox, words: &[&str]) -> Running {
    await_listening(sandbox.start(&[&["perf", "server"], words].concat()))
}

fn await_listening(server: Running) -> Running {
    await_some("a server", || server.output_so_far().0.contains("listening").then_some(()));
    server
}

/// Starts a client that measures until it receives a signal; returns once the test has begun.
fn endless(sandbox: &Sandbox) -> Running {
    let client =
        sandbox.start(&["perf", "client", "127.0.0.1", "-b", "5M", "-i", "0.1", "-t", "600"]);
    await_some("an interval", || (intervals(&client.output_so_far().0) >= 1).then_some(()));
    client
}

#[test]
fn a_server_serves_concurrent_and_successive_clients_until_a_signal() {
    for signal in ["INT", "TERM"] {
        let Some(sandbox) = Sandbox::new() else { return };
        let server = serve(&sandbox, &[]);
        let mut first = endless(&sandbox);
        for words in [
            &["-n", "1M"][..],
            &["-n", "1M", "-R"],
            &["-u", "-k", "20", "-l", "1000"],
            &["-t", "0.3", "-P", "3"],
        ] {
            let output = sandbox.weir(&[&["perf", "client", "127.0.0.1"], words].concat());
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        assert!(!first.has_ended(), "{:?}", first.output_so_far());
        first.signal("INT");
        assert_eq!(first.end().stderr, "weir: interrupted\n");

        // Ends the server during a test, whose client must learn of the signal.
        let last = endless(&sandbox);
        server.signal(signal);
        let output = server.end();
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""), "{signal}");
        assert_eq!(output.stdout.matches("summary").count(), 6, "{}", output.stdout);
        let message = last.end();
        assert_eq!(message.status.code(), Some(1));
        assert!(message.stderr.contains("127.0.0.1:5201 ended the test"), "{}", message.stderr);
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());

        // The port is free for the next server at once.
        let next = serve(&sandbox, &["-1"]);
        assert!(sandbox.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]).status.success());
        assert!(next.end().status.success());
    }
}

#[test]
fn a_server_of_root_serves_all_kinds_of_tests_as_another_user() {
    if !rustix::process::geteuid().is_root() {
        return testing::skip(testing::Need::Root);
    }
    let Some(sandbox) = Sandbox::new() else { return };
    // Distributions give this user different numbers.
    let daemon = host::User::named("daemon").unwrap().uid().to_string();
    let cpu = probe::cpu::affinity().unwrap()[0];
    let pinned = format!("{cpu},{cpu}");
    for (user, uid) in [(&[][..], "65534"), (&["--user", "daemon"], daemon.as_str())] {
        let words = ["--pidfile", "server.pid", "--port", "900"];
        let server = serve(&sandbox, &[&words[..], user].concat());
        // The server prints its address before it gives up its rights.
        await_some("a confined server", || {
            let threads = statuses(server.pid());
            threads.iter().all(|thread| thread.contains("Seccomp:\t2")).then_some(())
        });
        for kind in [
            &["client", "127.0.0.1", "-n", "1M"][..],
            &["client", "127.0.0.1", "-n", "1M", "-R", "-Z", "--get-server-output"],
            &["client", "127.0.0.1", "-n", "1M", "--bidir", "-A", pinned.as_str()],
            &["client", "127.0.0.1", "-u", "-k", "20", "-R"],
            &["client", "127.0.0.1", "-n", "1M", "-R", "-C", "reno"],
            &["rr", "127.0.0.1", "-t", "0.3"],
            &["crr", "127.0.0.1", "-t", "0.3"],
            &["udp-rr", "127.0.0.1", "-t", "0.3"],
            &["stream", "127.0.0.1", "-t", "0.3"],
        ] {
            let output = sandbox.weir(&[&["perf"], kind, &["--port", "900"]].concat());
            assert!(output.status.success(), "{kind:?}: {output:?}");
        }
        let threads = statuses(server.pid());
        let (own, other): (Vec<_>, Vec<_>) =
            threads.iter().partition(|thread| !thread.contains("Name:\tpidfile"));
        assert_eq!((own.is_empty(), other.len()), (false, 1), "{threads:?}");
        for thread in own {
            assert!(thread.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}")), "{thread}");
            // Each thread keeps CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_IPC_LOCK.
            assert!(thread.contains("CapEff:\t0000000000005400"), "{thread}");
            assert!(thread.contains("CapBnd:\t0000000000005400"), "{thread}");
        }
        assert!(sandbox.path("server.pid").exists());
        server.signal("TERM");
        let output = server.end();
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""));
        assert!(!sandbox.path("server.pid").exists());
    }
    let output = sandbox.weir(&["perf", "server", "--user", "no-such-user"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("no user no-such-user"), "{output:?}");
}

/// Returns the rights of each thread, as /proc shows them.
fn statuses(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.filter_map(|it| std::fs::read_to_string(it.path().join("status")).ok()).collect()
}

#[test]
fn an_idle_server_ends_at_a_signal_without_output() {
    let Some(sandbox) = Sandbox::new() else { return };
    for signal in ["INT", "TERM", "HUP"] {
        let server = serve(&sandbox, &[]);
        server.signal(signal);
        let output = server.end();
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""), "{signal}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

/// Starts a server with a low limit of descriptors.
fn cramped(sandbox: &Sandbox, files: u32) -> Running {
    let mut command = Command::new("sh");
    let weir = env!("CARGO_BIN_EXE_weir");
    command.args(["-c", &format!("ulimit -n {files}; exec '{weir}' perf server")]);
    await_listening(sandbox.start_command(command))
}

#[test]
fn a_server_without_descriptors_names_the_limit_and_the_remedy() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = cramped(&sandbox, 24);
    for words in [&["-P", "40"][..], &["-u", "-P", "40"], &["-R", "-P", "40"]] {
        let words = [&["perf", "client", "127.0.0.1"], words].concat();
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(output.stderr.contains("raise its `ulimit -n`"), "{words:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{words:?}: {}", output.stderr);
    }
    // The server still serves other clients.
    let output = sandbox.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]);
    assert!(output.status.success(), "{output:?}");
    server.signal("INT");
    assert!(server.end().status.success());
}

/// All connections have sent their cookie and stay, so the server must refuse the first connection
/// beyond the limit.
#[test]
fn a_client_beyond_the_limit_is_refused_at_once() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = cramped(&sandbox, 24);
    let mut clients: Vec<TcpStream> = Vec::new();
    let output = loop {
        let mut client = sandbox.inside(|| TcpStream::connect("127.0.0.1:5201").unwrap());
        let cookie = format!("{:036}\0", clients.len());
        client.write_all(cookie.as_bytes()).unwrap();
        let mut state = [0];
        client.read_exact(&mut state).unwrap();
        // iperf3's PARAM_EXCHANGE: the server admitted this client.
        if state[0] != 9 {
            let mut rest = vec![state[0]];
            client.read_to_end(&mut rest).unwrap();
            break rest;
        }
        clients.push(client);
        assert!(clients.len() < 24, "more than there can be descriptors for");
    };
    // The server sends SERVER_ERROR, the error "unable to initialise the test", and EMFILE.
    assert_eq!(output, [254, 0, 0, 0, 101, 0, 0, 0, 24]);
    let message = sandbox.weir(&["perf", "client", "127.0.0.1", "-n", "1M"]);
    assert!(message.stderr.contains("raise its `ulimit -n`"), "{message:?}");
    drop(clients);
    server.signal("INT");
    let output = server.end();
    assert!(output.status.success() && output.stderr.contains("ulimit -n"), "{output:?}");
}

#[test]
fn a_client_without_free_descriptors_names_the_remedy() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = serve(&sandbox, &[]);
    let mut command = Command::new("sh");
    let weir = env!("CARGO_BIN_EXE_weir");
    command.args(["-c", &format!("ulimit -n 20; exec '{weir}' perf client 127.0.0.1 -P 40")]);
    let output = sandbox.start_command(command).end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("with `ulimit -n`"), "{}", output.stderr);
    server.signal("INT");
    assert!(server.end().status.success());
}

#[test]
fn a_server_writes_neither_through_links_nor_to_files_of_other_users() {
    let Some(sandbox) = Sandbox::new() else { return };
    let Some(shared) = sandbox.shared_directory("precious") else { return };
    for (name, reason) in [
        ("link", "symbolic link of user"),
        ("new", "symbolic link of user"),
        ("way/absent", "symbolic link of user"),
        ("theirs", "belongs to user"),
    ] {
        for flag in ["-I", "--logfile"] {
            let path = format!("{shared}/{name}");
            let ended = sandbox.weir(&["perf", "server", "-1", "--idle-timeout", "1", flag, &path]);
            assert_eq!(ended.status.code(), Some(2), "{flag} {name}: {ended:?}");
            assert!(ended.stderr.contains(reason), "{flag} {name}: {ended:?}");
        }
    }
    assert_eq!(sandbox.read("precious"), "precious");
    assert_eq!(sandbox.read("shared/theirs"), "theirs");
    assert!(!sandbox.path("absent").exists());
    let (log, pid) = (format!("{shared}/log"), format!("{shared}/pid"));
    let words = ["perf", "server", "--idle-timeout", "500ms", "-I", &pid, "--logfile", &log];
    let ended = sandbox.weir(&words);
    assert!(ended.status.success(), "{ended:?}");
    assert!(sandbox.read("shared/log").contains("listening"));
}

/// Downloads from a web server that accepts and sends nothing.
#[test]
fn a_download_from_a_silent_server_ends() {
    let Some(sandbox) = Sandbox::new() else { return };
    let listener = sandbox.inside(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("http://{}/file", listener.local_addr().unwrap());
    for words in [&["--rcv-timeout", "300ms"][..], &["--timeout", "400ms"], &[]] {
        let ended = sandbox.weir(&[&["perf", "download", &url], words].concat());
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("said nothing for"), "{ended:?}");
    }
}
