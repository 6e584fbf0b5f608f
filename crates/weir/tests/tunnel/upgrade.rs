//! A new process takes over from a running end.

use crate::ends::{Ends, NEVER_LONGER, echo, get, through};
use crate::support::{Sandbox, await_some, signal};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

fn open(sandbox: &Sandbox, port: u16) -> TcpStream {
    let stream = sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    stream
}

/// Sends many bytes through each connection in both directions.
fn exchange(streams: &mut [TcpStream], round: u8) {
    for stream in &mut *streams {
        stream.write_all(&[round; 20_000]).unwrap();
    }
    for stream in streams {
        let mut got = vec![0; 20_000];
        stream.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == round));
    }
}

/// Sends a datagram through the client, and returns the port from which the target receives the
/// datagram.
fn port_of_flow(asking: &UdpSocket, answering: &UdpSocket, round: u8) -> u16 {
    let unique = format!("{round} {}", asking.local_addr().unwrap());
    let mut got = [0; 100];
    await_some("a datagram at the target", || {
        asking.send_to(unique.as_bytes(), "127.0.0.1:6003").unwrap();
        answering.set_read_timeout(Some(AGAIN)).unwrap();
        let (length, from) = answering.recv_from(&mut got).ok()?;
        (got[..length] == *unique.as_bytes()).then_some(from.port())
    })
}

/// Returns the status of the end behind a socket; `None` while another process takes the socket
/// over.
fn status(sandbox: &Sandbox, socket: &str) -> Option<Value> {
    let output = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", socket]);
    let all: Value = serde_json::from_str(&output.stdout).ok()?;
    all.get(0).cloned()
}

#[test]
fn no_open_session_breaks_when_new_processes_take_over_from_both_ends() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let allow = format!("tcp:127.0.0.1:{target}");
    let bind = || UdpSocket::bind("127.0.0.1:0");
    let (answering, asking) = (sandbox.inside(bind).unwrap(), sandbox.inside(bind).unwrap());
    let datagrams = format!("udp:{}", answering.local_addr().unwrap());
    let flags = ["--allow", &allow, "--allow-reverse", "tcp:127.0.0.1:6002", "--endpoints", "2"];
    let flags = [&flags[..], &["--allow", &datagrams]].concat();
    let mut server = ends.server_with(&flags);
    let client = ends.client(&[&format!("tcp:127.0.0.1:6000={allow}")]);
    let far = format!("tcp:127.0.0.1:6002={allow}");
    let path = format!("unix:{}={allow}", sandbox.path("app.sock").display());
    let [stream, flow] =
        [format!("tcp:127.0.0.1:6001={allow}"), format!("udp:127.0.0.1:6003={datagrams}")];
    let other = ends.client_at(&[&path, &stream, &flow], "other.sock");
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    words.extend(["--status-socket", "far.sock", "--reverse", &far]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let reversed = ends.started(&words, "connected to");
    await_some("the listener at the server", || {
        sandbox.inside(|| through(6002, b"far")).ok().filter(|got| got == b"far")
    });
    let flow = port_of_flow(&asking, &answering, 1);
    let mut streams: Vec<_> =
        [6000, 6000, 6000, 6000, 6001, 6002].map(|port| open(&sandbox, port)).into();
    exchange(&mut streams, 1);

    // Take over from the server.
    let again = [&flags[..], &["--take-over=10min"]].concat();
    let next = ends.server_with(&again);
    exchange(&mut streams, 2);
    let path = format!("server.sock.{}", server.pid());
    let former = await_some("the former server's status", || status(&sandbox, &path));
    assert_eq!(former["is_draining"], true, "{former}");
    let present = await_some("the new server's sessions", || {
        let now = status(&sandbox, "server.sock")?;
        let sessions = now["connections"].as_array()?.len();
        (now["pid"] == next.pid() && sessions >= 6).then_some(now)
    });
    assert_eq!(present["is_draining"], false, "{present}");
    let ready = sandbox.inside(|| get(9150, "/readyz"));
    assert!(ready.contains("200 OK"), "{ready}");
    for port in [6000, 6001, 6002] {
        await_some("a new tunnel", || {
            sandbox.inside(|| through(port, b"new")).ok().filter(|got| got == b"new")
        });
    }
    exchange(&mut streams, 3);
    assert!(!server.has_ended());
    // A flow ends after a minute without datagrams, which a slow machine may need for this test.
    assert_eq!(port_of_flow(&asking, &answering, 2), flow);

    // Take over from the client, whose tunnels lead to the former server.
    let before = client.pid();
    let upgraded = sandbox.weir(&["tunnel", "upgrade", "--status-socket", "client.sock", "--json"]);
    assert_eq!(upgraded.status.code(), Some(0), "{upgraded:?}");
    let upgraded: Value = serde_json::from_str(&upgraded.stdout).unwrap();
    assert_eq!(upgraded["pid"], before, "{upgraded}");
    exchange(&mut streams, 4);
    assert_eq!(sandbox.inside(|| through(6000, b"newer")).unwrap(), b"newer");
    let unchanged =
        sandbox.weir(&["tunnel", "upgrade", "--status-socket", "client.sock", "--if-changed"]);
    assert!(unchanged.stdout.contains("no upgrade"), "{unchanged:?}");

    // A flow of datagrams stays with its process, and a new flow begins in the new process.
    assert_eq!(port_of_flow(&asking, &answering, 3), flow);
    let upgraded = sandbox.weir(&["tunnel", "upgrade", "--status-socket", "other.sock"]);
    assert_eq!(upgraded.status.code(), Some(0), "{upgraded:?}");
    assert_eq!(port_of_flow(&asking, &answering, 4), flow);
    assert_ne!(port_of_flow(&sandbox.inside(bind).unwrap(), &answering, 5), flow);
    let words =
        ["tunnel", "drain", "--no-wait", "--timeout", "1s", "--status-socket", "other.sock"];
    let drained = sandbox.weir(&words);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");

    // The former processes end with their last tunnel, and the new processes keep the sockets.
    drop(streams);
    let mut client = client;
    await_some("the end of the former client", || client.has_ended().then_some(()));
    assert!(sandbox.path("server.sock").exists() && sandbox.path("client.sock").exists());
    assert_eq!(sandbox.inside(|| through(6000, b"last")).unwrap(), b"last");
    let drained = sandbox.weir(&["tunnel", "drain", "--status-socket", "client.sock"]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    await_some("the removal of the socket", || {
        (!sandbox.path("client.sock").exists()).then_some(())
    });
    drop((other, reversed, next));
}

#[test]
fn a_failed_upgrade_leaves_the_running_process_unchanged() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let allow = format!("tcp:127.0.0.1:{target}");
    let server = ends.server(&[&allow]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000={allow}")]);
    let mut streams = vec![open(&sandbox, 6000)];
    exchange(&mut streams, 1);
    let mut words = vec!["tunnel", "server", "--listen-on", "127.0.0.1:7501"];
    words.extend(["--peer", &ends.peer, "--status-socket", "server.sock", "--take-over"]);
    let own = ends.own("server");
    words.extend(own.iter().map(String::as_str));
    let refused = sandbox.weir(&words);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("serves 127.0.0.1:7500"), "{refused:?}");
    exchange(&mut streams, 2);
    assert_eq!(sandbox.inside(|| through(6000, b"new")).unwrap(), b"new");
    let now = status(&sandbox, "server.sock").unwrap();
    assert_eq!((&now["pid"], &now["is_draining"]), (&server.pid().into(), &false.into()), "{now}");
}

#[test]
fn a_draining_process_keeps_no_copy_of_its_listener() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let allow = format!("tcp:127.0.0.1:{target}");
    let _server = ends.server(&[&allow]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000={allow}")]);
    let mut streams = vec![open(&sandbox, 6000)];
    exchange(&mut streams, 1);
    for (socket, port) in [("server.sock", 7500), ("client.sock", 6000)] {
        let begun = sandbox.weir(&["tunnel", "drain", "--no-wait", "--status-socket", socket]);
        assert_eq!(begun.status.code(), Some(0), "{begun:?}");
        await_some("the refusal of a connection", || {
            sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).err()
        });
        exchange(&mut streams, 2);
    }
}

#[test]
fn an_upgrade_names_the_server_that_the_new_process_replaces_among_several() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let own = ends.own("server");
    let words_at = |at| {
        let words = ["tunnel", "server", "--peer", &ends.peer, "--listen-on", at];
        words.into_iter().chain(own.iter().map(String::as_str)).collect::<Vec<_>>()
    };
    // The default sockets of root lie in /run. Every command gets a directory of the sandbox as its
    // /run, so that nothing is left on the machine.
    let run = sandbox.path("run");
    std::fs::create_dir(&run).unwrap();
    let weir = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /run && exec \"$@\""]);
        command.arg(&run).arg(env!("CARGO_BIN_EXE_weir")).args(words);
        sandbox.start_command(command)
    };
    let [mut first, mut other] = ["127.0.0.1:7500", "127.0.0.1:7501"].map(|at| {
        let server = weir(&words_at(at));
        await_some("a server", || server.output_so_far().1.contains("listening on").then_some(()));
        server
    });

    // A new process that cannot choose among several servers changes nothing.
    let is_no_server = std::process::id();
    let named = format!("--take-over-from={is_no_server}");
    for (choice, said) in [
        (&["--take-over"][..], "name the process to take over from (--take-over-from=PID)"),
        (&["--take-over", &named][..], "is no server that can hand over its sockets"),
    ] {
        let refused = weir(&[&words_at("127.0.0.1:7500")[..], choice].concat()).end();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    let unknown = weir(&["tunnel", "upgrade", "--pid", &is_no_server.to_string()]).end();
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(!first.has_ended() && !other.has_ended());

    // The process that has taken over is upgraded like the first process.
    let mut pid = first.pid();
    for _ in 0..2 {
        let upgraded = weir(&["tunnel", "upgrade", "--json", "--pid", &pid.to_string()]).end();
        assert_eq!(upgraded.status.code(), Some(0), "{upgraded:?}");
        let upgraded: Value = serde_json::from_str(&upgraded.stdout).unwrap();
        assert_eq!(upgraded["pid"], pid, "{upgraded}");
        pid = upgraded["successor"].as_u64().unwrap().try_into().unwrap();
    }
    await_some("the end of the first process", || first.has_ended().then_some(()));
    assert!(!other.has_ended(), "{:?}", other.output_so_far());
    for pid in [pid, other.pid()] {
        signal(pid, "TERM");
    }
    await_some("the end of both servers", || {
        sandbox.running(&["tunnel", "server"]).is_empty().then_some(())
    });
}

#[test]
fn an_upgrade_by_process_finds_the_status_socket_that_the_process_names() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    // The flags of the server name its socket, and the file of the client names the other socket.
    let server = ends.server(&["tcp:127.0.0.1:9"]);
    std::fs::create_dir(sandbox.path("files")).unwrap();
    let file = format!(
        "[client]\nstatus-socket = \"own.sock\"\n\
         [[client.server]]\nendpoint = \"127.0.0.1:7500\"\npin = \"{}\"\n\
         [[client.forward]]\nlisten-on = \"tcp:127.0.0.1:6000\"\ntarget = \"tcp:127.0.0.1:9\"\n",
        ends.pin
    );
    sandbox.write("files/client.toml", file);
    let own = ends.own("client");
    let mut words = vec!["tunnel", "client", "--config", "files/client.toml"];
    words.extend(own.iter().map(String::as_str));
    let client = ends.started(&words, "connected to");
    // The command runs in another folder than the ends.
    let upgrade = |pid: u32| {
        let mut command = Command::new("sh");
        command.args(["-c", "cd / && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_weir")]);
        command.args(["tunnel", "upgrade", "--json", "--pid", &pid.to_string()]);
        sandbox.start_command(command).end()
    };
    for (end, socket) in [(server, "server.sock"), (client, "files/own.sock")] {
        let upgraded = upgrade(end.pid());
        assert_eq!(upgraded.status.code(), Some(0), "{upgraded:?}");
        let upgraded: Value = serde_json::from_str(&upgraded.stdout).unwrap();
        let now = await_some("the status of the new process", || status(&sandbox, socket));
        assert_eq!((&now["pid"], &upgraded["pid"]), (&upgraded["successor"], &end.pid().into()));
    }
    let unknown = upgrade(std::process::id());
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("--status-socket PATH"), "{unknown:?}");
}

#[test]
fn an_upgrade_by_process_reports_the_error_of_the_status_socket_that_the_process_names() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let mut server = ends.server(&["tcp:127.0.0.1:9"]);
    let pid = server.pid();
    let upgrade = || sandbox.weir(&["tunnel", "upgrade", "--pid", &pid.to_string()]);

    // A stopped process accepts the connection and sends no answer.
    server.signal("STOP");
    let stopped = upgrade();
    server.signal("CONT");
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    let text = &stopped.stderr;
    assert!(text.contains(&format!("process {pid} does not answer")), "{text}");
    assert!(text.contains("server.sock") && text.contains("continue it, or restart it"), "{text}");

    std::fs::remove_file(sandbox.path("server.sock")).unwrap();
    let gone = upgrade();
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert!(gone.stderr.contains("server.sock, which does not exist"), "{gone:?}");
    assert!(gone.stderr.contains("--status-socket PATH"), "{gone:?}");
    assert!(!server.has_ended());
}

/// Time for which the test waits for a datagram before it sends the datagram again.
const AGAIN: Duration = Duration::from_millis(200);
