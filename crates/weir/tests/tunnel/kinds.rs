//! UNIX sockets, datagrams and listeners at the server, each within the rights of its identity.

use crate::ends::{Ends, NEVER_LONGER, echo, through};
use crate::support::{Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

#[test]
fn unix_sockets_are_reached_by_their_path_at_either_side() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let (path, near) = (sandbox.path("app.sock"), sandbox.path("near.sock"));
    let (path, near) = (path.display(), near.display());
    let listener = UnixListener::bind(sandbox.path("app.sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received);
            received.reverse();
            let _ = stream.write_all(&received);
        }
    });
    let _server = ends.server(&[&format!("unix:{path}")]);
    let mut client = ends.client(&[
        &format!("tcp:127.0.0.1:6000=unix:{path}"),
        &format!("unix:{near}=unix:{path}"),
        &format!("tcp:127.0.0.1:6001=unix:{path}.other"),
    ]);
    assert_eq!(sandbox.inside(|| through(6000, b"abc")).unwrap(), b"cba");
    let mut stream = UnixStream::connect(sandbox.path("near.sock")).unwrap();
    stream.write_all(b"over unix").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"xinu revo");
    assert!(sandbox.inside(|| through(6001, b"abc")).map_or(true, |got| got.is_empty()));
    client.signal("INT");
    await_some("a clean end", || client.has_ended().then_some(()));
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn forwarded_udp_datagrams_arrive_unchanged() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(udp_echo);
    let _server = ends.server(&[&format!("udp:127.0.0.1:{target}")]);
    let _client = ends.client(&[
        &format!("udp:127.0.0.1:6000=udp:127.0.0.1:{target}"),
        "udp:127.0.0.1:6001=udp:127.0.0.1:9",
    ]);
    sandbox.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(NEVER_LONGER)).unwrap();
        for size in [0, 1, 100, 1_000] {
            let sent: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
            socket.send_to(&sent, "127.0.0.1:6000").unwrap();
            let mut got = [0; 2_000];
            let count = socket.recv(&mut got).unwrap();
            assert_eq!(&got[..count], sent, "{size} bytes");
        }
        socket.send_to(b"not listed", "127.0.0.1:6001").unwrap();
        // The client drops and counts a datagram larger than a packet, and the next datagram
        // arrives.
        socket.send_to(&[1; 9_000], "127.0.0.1:6000").unwrap();
        socket.send_to(b"after it", "127.0.0.1:6000").unwrap();
        let mut got = [0; 10_000];
        let count = socket.recv(&mut got).unwrap();
        assert_eq!(&got[..count], b"after it");
    });
    let status = status(&sandbox, "client.sock");
    assert_eq!(status["counters"]["datagrams_oversize"], 1, "{status}");
    await_some("the refusal", || {
        (self::status(&sandbox, "server.sock")["refused"]["not-listed"] == 1).then_some(())
    });
}

#[test]
fn a_server_listens_for_a_client_only_on_listed_addresses() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let _server = ends.server_with(&["--allow-reverse", "tcp:127.0.0.1:8080"]);
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    let (may, may_not) = (
        format!("tcp:127.0.0.1:8080=tcp:127.0.0.1:{target}"),
        format!("tcp:127.0.0.1:8081=tcp:127.0.0.1:{target}"),
    );
    words.extend(["--reverse", &may, "--reverse", &may_not, "--status-socket", "client.sock"]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let mut client = ends.started(&words, "connected to");
    await_some("the listener", || {
        sandbox.inside(|| through(8080, b"back here")).ok().filter(|got| got == b"back here")
    });
    await_some("the refusal", || {
        client.output_so_far().1.contains("no rule of laptop lets it listen on").then_some(())
    });
    assert!(sandbox.inside(|| TcpStream::connect("127.0.0.1:8081")).is_err());
    // The client asks the server again for the listener, and logs an unchanged refusal once.
    await_some("further refusals", || {
        let refused = status(&sandbox, "server.sock")["refused"]["listen-not-listed"].as_u64();
        (refused > Some(2)).then_some(())
    });
    assert_eq!(client.output_so_far().1.matches("the server does not listen").count(), 1);
    // The listener closes when the client disconnects.
    client.signal("TERM");
    await_some("a clean end", || client.has_ended().then_some(()));
    let said = client.output_so_far().1;
    assert!(said.contains("connection closed") && !said.contains("connection lost"), "{said}");
    await_some("the listener's end", || {
        sandbox.inside(|| TcpStream::connect("127.0.0.1:8080")).is_err().then_some(())
    });
}

#[test]
fn each_identity_reaches_only_the_targets_of_its_own_rules() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (ends, others) = (Ends::new(&sandbox), Ends::named(&sandbox, "others", "desktop"));
    let (one, other) = (sandbox.inside(echo), sandbox.inside(echo));
    let table = |who: &Ends<'_>, port: u16| {
        format!("{}allow = [\"tcp:127.0.0.1:{port}\"]\n", who.peer_table())
    };
    sandbox.write("server.toml", table(&ends, one) + &table(&others, other));
    let own = ends.own("server");
    let mut words = vec!["tunnel", "server", "--config", "server.toml"];
    words.extend(["--listen-on", "127.0.0.1:7500", "--status-socket", "server.sock"]);
    words.extend(own.iter().map(String::as_str));
    let _server = ends.started(&words, "listening on");
    let client = |who: &Ends<'_>, first: u16, socket: &str| {
        let forwards = [(first, one), (first + 1, other)]
            .map(|(port, target)| format!("tcp:127.0.0.1:{port}=tcp:127.0.0.1:{target}"));
        let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
        words.extend(["--status-socket", socket]);
        words.extend(forwards.iter().flat_map(|forward| ["--forward", forward]));
        let own = who.own("client");
        words.extend(own.iter().map(String::as_str));
        who.started(&words, "connected to")
    };
    let _laptop = client(&ends, 6000, "laptop.sock");
    let _desktop = client(&others, 7000, "desktop.sock");
    let output = |port: u16| sandbox.inside(|| through(port, b"x")).unwrap_or_default();
    assert_eq!((output(6000), output(6001)), (b"x".to_vec(), Vec::new()));
    assert_eq!((output(7000), output(7001)), (Vec::new(), b"x".to_vec()));
    assert_eq!(status(&sandbox, "server.sock")["refused"]["not-listed"], 2);
}

/// The server connects to the address that it resolved. The server resolves the name again for each
/// new tunnel.
#[test]
fn a_name_that_later_resolves_elsewhere_is_refused_and_open_tunnels_continue() {
    let Some(sandbox) = Sandbox::new() else { return };
    for needed in ["unshare", "sh"] {
        if !is_installed(needed) {
            return testing::skip(testing::Need::Program(needed));
        }
    }
    let ends = Ends::new(&sandbox);
    let outside =
        || Command::new("ip").args(["addr", "add", "10.9.9.9/32", "dev", "lo"]).status().unwrap();
    assert!(sandbox.inside(outside).success());
    let target = sandbox.inside(echo_everywhere);
    sandbox.write("hosts", "10.9.9.9 app.test\n");
    let hosts = sandbox.path("hosts");
    // Run the server in a mount namespace, in which the test controls /etc/hosts.
    let own = ends.own("server").join(" ");
    let script = format!(
        "mount --bind {hosts} /etc/hosts && exec {weir} tunnel server --listen-on 127.0.0.1:7500 \
         --peer {peer} --allow tcp:app.test:{target} --allow tcp:10.9.9.9:{target} \
         --status-socket server.sock {own}",
        hosts = hosts.display(),
        weir = env!("CARGO_BIN_EXE_weir"),
        peer = ends.peer,
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    let server = sandbox.start_command(command);
    await_some("the server", || server.output_so_far().1.contains("listening on").then_some(()));
    let _client = ends.client(&[&format!("tcp:127.0.0.1:6000=tcp:app.test:{target}")]);
    let mut standing = sandbox.inside(|| TcpStream::connect("127.0.0.1:6000")).unwrap();
    standing.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    let mut exchange = || {
        standing.write_all(b"a").unwrap();
        standing.read_exact(&mut [0]).unwrap();
    };
    exchange();
    // Write the file in place, because a bind mount refers to the file and not to its name.
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(&hosts);
    file.unwrap().write_all(b"127.0.0.1 app.test\n").unwrap();
    assert!(sandbox.inside(|| through(6000, b"x")).map_or(true, |got| got.is_empty()));
    assert_eq!(status(&sandbox, "server.sock")["refused"]["special-address"], 1);
    exchange();
}

fn status(sandbox: &Sandbox, socket: &str) -> serde_json::Value {
    let output = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", socket]);
    let all: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    all[0].clone()
}

fn udp_echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut received = [0; 10_000];
        while let Ok((count, from)) = socket.recv_from(&mut received) {
            let _ = socket.send_to(&received[..count], from);
        }
    });
    port
}

/// Starts an echo server like [`echo`], at all addresses of this sandbox.
fn echo_everywhere() -> u16 {
    crate::ends::echo_at("0.0.0.0:0")
}
