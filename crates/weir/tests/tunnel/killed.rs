//! If an end is killed, cut off or restarted in the middle of a transfer, both applications must
//! get an error. An end of file would make a part of the data look complete.

use crate::ends::{Ends, NEVER_LONGER};
use crate::support::{Running, Sandbox, await_some};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

/// Both ends with one open transfer that has carried bytes in both directions.
struct Transfer<'a> {
    ends: Ends<'a>,
    server: Running,
    client: Running,
    application: TcpStream,
    target: TcpStream,
}

fn forward(sandbox: &Sandbox) -> Transfer<'_> {
    let ends = quick(sandbox);
    let (listener, port) = listen(sandbox);
    let server = ends.server(&[&format!("tcp:127.0.0.1:{port}")]);
    let client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{port}")]);
    let (application, target) = open(sandbox, 6000, &listener);
    Transfer { ends, server, client, application, target }
}

/// Opens a transfer whose application connects to a listener at the server.
fn reverse(sandbox: &Sandbox) -> Transfer<'_> {
    let ends = quick(sandbox);
    let (listener, port) = listen(sandbox);
    let server = ends.server_with(&["--allow-reverse", "tcp:127.0.0.1:8080"]);
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    let at_server = format!("tcp:127.0.0.1:8080=tcp:127.0.0.1:{port}");
    words.extend(["--reverse", &at_server, "--status-socket", "client.sock"]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let client = ends.started(&words, "the server listens");
    let (application, target) = open(sandbox, 8080, &listener);
    Transfer { ends, server, client, application, target }
}

/// Makes ends with a keepalive of a second, which soon detect a dead peer.
fn quick(sandbox: &Sandbox) -> Ends<'_> {
    Ends { keepalive: "1s", ..Ends::new(sandbox) }
}

type Begin = for<'a> fn(&'a Sandbox) -> Transfer<'a>;
const BEGINNINGS: [Begin; 2] = [forward, reverse];

#[test]
fn neither_application_reads_an_end_of_file_after_the_client_is_killed() {
    for begin in BEGINNINGS {
        let Some(sandbox) = Sandbox::new() else { return };
        let mut transfer = begin(&sandbox);
        kill(&mut transfer.client);
        is_reset(&mut transfer.application);
        is_reset(&mut transfer.target);
    }
}

#[test]
fn neither_application_reads_an_end_of_file_after_the_server_is_killed() {
    for begin in BEGINNINGS {
        let Some(sandbox) = Sandbox::new() else { return };
        let mut transfer = begin(&sandbox);
        // Permit three keepalives of one second, and the delay of a busy machine.
        soon(Duration::from_secs(8), || {
            kill(&mut transfer.server);
            is_reset(&mut transfer.target);
            is_reset(&mut transfer.application);
        });
        // The applications are idle, so the client probes the server. The kernel reports that the
        // server's port is closed, and the client ends the session without waiting for keepalives.
        let words = ["tunnel", "status", "--json", "--status-socket", "client.sock"];
        let status = sandbox.weir(&words).stdout;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let counters = &status[0]["counters"];
        assert!(counters["connections_unreachable"].as_u64() >= Some(1), "{counters}");
        let log = transfer.client.output_so_far().1;
        assert!(log.contains("no process has the peer's port"), "{log}");
    }
}

/// The application sends nothing, so only a keepalive can detect the restart.
#[test]
fn a_silent_application_soon_learns_that_the_server_was_restarted() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut transfer = forward(&sandbox);
    kill(&mut transfer.server);
    // Permit a keepalive of one second, and the delay of a busy machine.
    let _server = soon(Duration::from_secs(4), || {
        let server = transfer.ends.server(&["tcp:127.0.0.1:9"]);
        is_reset(&mut transfer.application);
        server
    });
}

#[test]
fn neither_application_reads_an_end_of_file_after_the_path_is_cut() {
    for begin in BEGINNINGS {
        let Some(sandbox) = Sandbox::new() else { return };
        let mut transfer = begin(&sandbox);
        let cut = sandbox.inside(|| {
            let rule = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                        add rule inet t c udp sport 7500 drop; add rule inet t c udp dport 7500 drop";
            Command::new("nft").arg(rule).status().is_ok_and(|status| status.success())
        });
        if !cut {
            return testing::skip(testing::Need::Nftables);
        }
        soon(Duration::from_secs(8), || {
            is_reset(&mut transfer.application);
            is_reset(&mut transfer.target);
        });
    }
}

/// An end that shuts down waits three seconds for its tunnels.
#[test]
fn an_end_that_shuts_down_in_the_middle_of_a_transfer_resets_the_transfer() {
    for role in ["server", "client"] {
        let Some(sandbox) = Sandbox::new() else { return };
        let mut transfer = forward(&sandbox);
        let end = if role == "server" { &transfer.server } else { &transfer.client };
        end.signal("TERM");
        is_reset(&mut transfer.application);
        is_reset(&mut transfer.target);
    }
}

/// The target has finished its half, and the client has passed on all of it. The kernel delivers
/// these bytes and the end of file even if the client is killed. The upload is not complete.
#[test]
fn a_download_stays_complete_if_the_client_is_killed_after_its_end_of_file() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut transfer = forward(&sandbox);
    transfer.target.write_all(&[7; 100_000]).unwrap();
    transfer.target.shutdown(Shutdown::Write).unwrap();
    let port = transfer.application.local_addr().unwrap().port();
    await_some("the end of file", || sandbox.inside(|| has_received_the_end(port)).then_some(()));
    kill(&mut transfer.client);
    let mut received = Vec::new();
    transfer.application.read_to_end(&mut received).unwrap();
    assert_eq!(received, [7; 100_000]);
    // The application's upload gets a reset.
    await_some("a reset", || transfer.application.write_all(b"more").is_err().then_some(()));
    is_reset(&mut transfer.target);
}

#[test]
fn a_half_closed_upload_is_reset_if_its_answer_is_cut_off() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut transfer = forward(&sandbox);
    transfer.application.shutdown(Shutdown::Write).unwrap();
    transfer.target.read_to_end(&mut Vec::new()).unwrap();
    transfer.target.write_all(b"a part of the answer").unwrap();
    transfer.application.read_exact(&mut [0; 20]).unwrap();
    kill(&mut transfer.client);
    is_reset(&mut transfer.application);
}

#[test]
fn an_end_of_file_passes_the_tunnel_in_both_directions() {
    for application_first in [true, false] {
        let Some(sandbox) = Sandbox::new() else { return };
        let mut transfer = forward(&sandbox);
        let Transfer { application, target, .. } = &mut transfer;
        let (first, second) =
            if application_first { (application, target) } else { (target, application) };
        first.write_all(&[1; 300_000]).unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        second.read_to_end(&mut received).unwrap();
        assert!(received == [1; 300_000], "{} bytes", received.len());
        second.write_all(&[2; 300_000]).unwrap();
        second.shutdown(Shutdown::Write).unwrap();
        received.clear();
        first.read_to_end(&mut received).unwrap();
        assert!(received == [2; 300_000], "{} bytes", received.len());
        let statuses = ["client.sock", "server.sock"].map(|socket| {
            let words = ["tunnel", "status", "--status-socket", socket];
            sandbox.weir(&words).stdout
        });
        assert!(statuses.iter().all(|one| one.contains(" 0 broken;")), "{statuses:?}");
    }
}

/// A browser may close a download early, and a target may refuse the rest of a request. The ends do
/// not count such a tunnel as broken.
#[test]
fn a_reset_by_an_application_or_a_target_counts_as_no_broken_tunnel() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let (listener, port) = listen(&sandbox);
    let _server = ends.server(&[&format!("tcp:127.0.0.1:{port}")]);
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:127.0.0.1:{port}")]);
    let reset = |stream: TcpStream| {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    };
    for at_target in [false, true] {
        for _ in 0..3 {
            let (application, target) = open(&sandbox, 6000, &listener);
            let (first, mut second) =
                if at_target { (target, application) } else { (application, target) };
            reset(first);
            is_reset(&mut second);
        }
    }
    for socket in ["client.sock", "server.sock"] {
        let words = ["tunnel", "status", "--json", "--status-socket", socket];
        let counters = await_some("the tunnels' ends", || {
            let status = sandbox.weir(&words).stdout;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            let counters = status[0]["counters"].clone();
            (counters["tunnels"] == 0).then_some(counters)
        });
        assert_eq!(
            (&counters["tunnels_broken"], &counters["tunnels_reset"]),
            (&0.into(), &6.into())
        );
        let shown =
            sandbox.weir(&words[..2].iter().chain(&words[3..]).copied().collect::<Vec<_>>());
        assert!(shown.stdout.contains("6 reset by an application, 0 broken;"), "{shown:?}");
    }
}

/// A UNIX socket has no reset, but the kernel reports one if the killed end has left a byte unread.
#[test]
fn a_killed_end_gives_applications_at_unix_sockets_an_error() {
    for role in ["client", "server"] {
        let Some(sandbox) = Sandbox::new() else { return };
        let ends = quick(&sandbox);
        let (near, far) = (sandbox.path("near.sock"), sandbox.path("far.sock"));
        let listener = UnixListener::bind(&far).unwrap();
        let mut server = ends.server(&[&format!("unix:{}", far.display())]);
        let forward = format!("unix:{}=unix:{}", near.display(), far.display());
        let mut client = ends.client(&[&forward]);
        let mut application = UnixStream::connect(&near).unwrap();
        application.write_all(b"a request").unwrap();
        let (mut target, _) = listener.accept().unwrap();
        for stream in [&application, &target] {
            stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
        }
        target.read_exact(&mut [0; 9]).unwrap();
        target.write_all(b"a part").unwrap();
        application.read_exact(&mut [0; 6]).unwrap();
        kill(if role == "client" { &mut client } else { &mut server });
        for stream in [&mut application, &mut target] {
            let end = stream.read(&mut [0]);
            let is_reset = end.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset);
            assert!(is_reset, "{role}: {end:?}");
        }
    }
}

fn kill(end: &mut Running) {
    end.signal("KILL");
    end.child.wait().unwrap();
}

/// Opens a listener in the sandbox. Returns the listener with its port.
fn listen(sandbox: &Sandbox) -> (TcpListener, u16) {
    let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(sandbox.inside(up).unwrap().success());
    let listener = sandbox.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Connects through the tunnel, and sends a byte in each direction.
fn open(sandbox: &Sandbox, port: u16, target: &TcpListener) -> (TcpStream, TcpStream) {
    let mut application = await_some("the listener", || {
        sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).ok()
    });
    application.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    application.write_all(b"a").unwrap();
    let (mut target, _) = target.accept().unwrap();
    target.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    target.read_exact(&mut [0]).unwrap();
    target.write_all(b"b").unwrap();
    application.read_exact(&mut [0]).unwrap();
    (application, target)
}

/// Asserts that the event takes less than `most`, unless the machine was disturbed.
fn soon<T>(most: Duration, event: impl FnOnce() -> T) -> T {
    let watch = testing::Watch::start();
    let result = event();
    testing::within("end of a connection after a kill", most, watch);
    result
}

fn is_reset(stream: &mut TcpStream) {
    let end = stream.read(&mut [0]);
    let is_reset = end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(is_reset, "{end:?}");
}

/// Whether the socket with this local port is in the state CLOSE_WAIT.
fn has_received_the_end(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&local) && words.nth(1) == Some("08")
    })
}
