//! Proxies of a client: applications name their targets in SOCKS5 and in HTTP's CONNECT.

use crate::ends::{Ends, NEVER_LONGER, echo};
use crate::support::{Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::Command;

fn connected(sandbox: &Sandbox, port: u16) -> TcpStream {
    let stream = sandbox.inside(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    stream.set_read_timeout(Some(NEVER_LONGER)).unwrap();
    stream
}

/// Sends the parts one after the other, and returns `count` bytes, or all bytes until the end.
fn exchanged(stream: &mut TcpStream, sent: &[u8], count: usize) -> Vec<u8> {
    stream.write_all(sent).unwrap();
    let mut got = vec![0; count];
    stream.read_exact(&mut got).unwrap();
    got
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    got
}

fn to_address(address: Ipv4Addr, port: u16) -> Vec<u8> {
    [&[5, 1, 0, 1][..], &address.octets(), &port.to_be_bytes()].concat()
}

fn to_name(name: &str, port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

fn counters(sandbox: &Sandbox, socket: &str) -> serde_json::Value {
    let output = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", socket]);
    let mut all: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    all[0].take()
}

#[test]
fn applications_reach_listed_targets_by_address_and_by_name() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let rule = format!("tcp:localhost:{target}");
    let address = format!("tcp:127.0.0.1:{target}");
    let _server = ends.server(&[&rule, &address]);
    let _client = ends.client(&["socks5:127.0.0.1:1080", "http:127.0.0.1:3128"]);
    for request in [to_name("localhost", target), to_address(Ipv4Addr::LOCALHOST, target)] {
        let mut stream = connected(&sandbox, 1080);
        assert_eq!(exchanged(&mut stream, &[5, 1, 0], 2), [5, 0]);
        // The application's first bytes follow the request without a pause.
        let early = [&request[..], b"early"].concat();
        assert_eq!(exchanged(&mut stream, &early, 10), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(exchanged(&mut stream, b" and late", 14), b"early and late");
    }
    let mut stream = connected(&sandbox, 3128);
    let request = format!("CONNECT localhost:{target} HTTP/1.1\r\nHost: localhost\r\n\r\nearly");
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    let got = exchanged(&mut stream, request.as_bytes(), established.len() + 5);
    assert_eq!(got, [&established[..], b"early"].concat());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), b"");
}

#[test]
fn a_refusal_of_a_target_is_sent_in_the_applications_protocol_and_counted() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    let _server = ends.server(&["tcp:10.0.0.0/8:*", "tcp:*.example:*", "udp:10.0.0.0/8:53"]);
    let _client = ends.client(&["socks5:127.0.0.1:1080", "http:127.0.0.1:3128"]);
    let socks = |request: &[u8]| {
        let mut stream = connected(&sandbox, 1080);
        assert_eq!(exchanged(&mut stream, &[5, 1, 0], 2), [5, 0]);
        stream.write_all(request).unwrap();
        rest(&mut stream)[1]
    };
    let not_allowed = 2;
    assert_eq!(socks(&to_address(Ipv4Addr::LOCALHOST, target)), not_allowed);
    assert_eq!(socks(&to_name("localhost", target)), not_allowed);
    assert_eq!(socks(&to_name("127.0.0.1", target)), not_allowed);
    let mapped = [&[5, 1, 0, 4][..], &[0; 10], &[0xff, 0xff, 127, 0, 0, 1], &target.to_be_bytes()];
    assert_eq!(socks(&mapped.concat()), not_allowed);
    let metadata = to_address(Ipv4Addr::new(169, 254, 169, 254), 80);
    assert_eq!(socks(&metadata), not_allowed);
    // The proxy does not support BIND.
    assert_eq!(socks(&[5, 2, 0, 1, 10, 0, 0, 1, 0, 1]), 7);
    let http = |request: &str| {
        let mut stream = connected(&sandbox, 3128);
        stream.write_all(request.as_bytes()).unwrap();
        String::from_utf8(rest(&mut stream)).unwrap()
    };
    let refused = http(&format!("CONNECT [::ffff:127.0.0.1]:{target} HTTP/1.1\r\n\r\n"));
    assert!(
        refused.starts_with("HTTP/1.1 403 ") && refused.contains("no rule of laptop"),
        "{refused}"
    );
    assert!(http("GET http://10.0.0.1/ HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let smuggled = "CONNECT 10.0.0.1:80 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(http(smuggled).starts_with("HTTP/1.1 400 "));
    let long = format!("CONNECT 10.0.0.1:80 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert!(http(&long).starts_with("HTTP/1.1 431 "));
    await_some("the counts", || {
        let status = counters(&sandbox, "server.sock");
        (status["refused"]["not-listed"] == 5 && status["refused"]["name-not-listed"] == 1)
            .then_some(())
    });
    let status = counters(&sandbox, "client.sock");
    assert_eq!(status["counters"]["tunnels_refused"], 6, "{status}");
    assert_eq!(status["counters"]["not_understood"], 4, "{status}");
}

#[test]
fn a_proxy_at_a_public_address_needs_a_login() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(echo);
    sandbox.write("users", "me:secret\n");
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        let mode = PermissionsExt::from_mode(mode);
        std::fs::set_permissions(sandbox.path("users"), mode).unwrap();
    };
    let refused = |flags: &[&str]| {
        let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
        words.extend(flags);
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        output.stderr
    };
    let open = ["--forward", "socks5:0.0.0.0:1080"];
    assert!(refused(&open).contains("listen on 127.0.0.1:1080"));
    mode(0o644);
    let with_users = [&open[..], &["--users-file", "users"]].concat();
    assert!(refused(&with_users).contains("chmod 600"));
    mode(0o600);
    let _server = ends.server(&[&format!("tcp:127.0.0.1:{target}")]);
    let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
    words.extend(with_users);
    words.extend(["--forward", "http:127.0.0.1:3128", "--status-socket", "client.sock"]);
    let own = ends.own("client");
    words.extend(own.iter().map(String::as_str));
    let _client = ends.started(&words, "connected to");
    let login = |password: &str| {
        [&[1, 2][..], b"me", &[password.len() as u8], password.as_bytes()].concat()
    };
    // Try to connect without a login, with a wrong password, and with the right password.
    let mut stream = connected(&sandbox, 1080);
    assert_eq!(exchanged(&mut stream, &[5, 1, 0], 2), [5, 0xff]);
    let mut stream = connected(&sandbox, 1080);
    assert_eq!(exchanged(&mut stream, &[5, 2, 0, 2], 2), [5, 2]);
    assert_eq!(exchanged(&mut stream, &login("guess"), 2), [1, 1]);
    assert_eq!(rest(&mut stream), b"");
    let mut stream = connected(&sandbox, 1080);
    assert_eq!(exchanged(&mut stream, &[5, 1, 2], 2), [5, 2]);
    assert_eq!(exchanged(&mut stream, &login("secret"), 2), [1, 0]);
    let request = to_address(Ipv4Addr::LOCALHOST, target);
    assert_eq!(exchanged(&mut stream, &request, 10)[1], 0);
    assert_eq!(exchanged(&mut stream, b"in", 2), b"in");
    let http = |field: &str| {
        let mut stream = connected(&sandbox, 3128);
        let request = format!("CONNECT 127.0.0.1:{target} HTTP/1.1\r\n{field}\r\n");
        String::from_utf8(exchanged(&mut stream, request.as_bytes(), 12)).unwrap()
    };
    assert_eq!(http(""), "HTTP/1.1 407");
    assert_eq!(http("Proxy-Authorization: Basic bWU6Z3Vlc3M=\r\n"), "HTTP/1.1 407");
    assert_eq!(http("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"), "HTTP/1.1 200");
    let status = counters(&sandbox, "client.sock");
    assert_eq!(status["counters"]["logins_refused"], 4, "{status}");
}

#[test]
fn socks_datagrams_reach_listed_targets_until_the_connection_ends() {
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut datagram = [0; 2_000];
            while let Ok((count, from)) = socket.recv_from(&mut datagram) {
                let _ = socket.send_to(&datagram[..count], from);
            }
        });
        port
    });
    let _server = ends.server(&[&format!("udp:127.0.0.1:{target}")]);
    let _client = ends.client(&["socks5:127.0.0.1:1080"]);
    let mut control = connected(&sandbox, 1080);
    assert_eq!(exchanged(&mut control, &[5, 1, 0], 2), [5, 0]);
    let reply = exchanged(&mut control, &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], 10);
    assert_eq!(reply[..8], [5, 0, 0, 1, 127, 0, 0, 1]);
    let port = u16::from_be_bytes([reply[8], reply[9]]);
    let (socket, other) = sandbox.inside(|| {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(NEVER_LONGER)).unwrap();
            socket
        };
        (socket(), socket())
    });
    let head = |port: u16| [&[0, 0, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    let sent = [&head(target)[..], b"question"].concat();
    let mut got = [0; 2_000];
    // A program of another user must not become the association's sender before the application.
    let stranger = sandbox.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    std::os::unix::fs::fchown(&stranger, Some(65_534), None).unwrap();
    stranger.send_to(&sent, ("127.0.0.1", port)).unwrap();
    await_some("the count", || {
        let counters = &counters(&sandbox, "client.sock")["counters"];
        (counters["datagrams_dropped"] == 1).then_some(())
    });
    socket.send(&sent).unwrap();
    let count = socket.recv(&mut got).unwrap();
    assert_eq!(got[..count], sent);
    // The proxy drops datagrams of another program, fragments, datagrams to an unlisted target, and
    // malformed datagrams.
    other.send(&sent).unwrap();
    let mut fragment = sent.clone();
    fragment[2] = 1;
    socket.send(&fragment).unwrap();
    socket.send(&[&head(9)[..], b"question"].concat()).unwrap();
    socket.send(b"x").unwrap();
    await_some("the counts", || {
        let (client, server) =
            (counters(&sandbox, "client.sock"), counters(&sandbox, "server.sock"));
        let refused = server["refused"]["not-listed"] == 1;
        (client["counters"]["datagrams_dropped"] == 4 && refused).then_some(())
    });
    socket.send(&sent).unwrap();
    let count = socket.recv(&mut got).unwrap();
    assert_eq!(got[..count], sent);
    drop(control);
    await_some("the end of the flows", || {
        (counters(&sandbox, "server.sock")["counters"]["tunnels"] == 0).then_some(())
    });
}

#[test]
fn curl_works_through_both_proxies() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("curl") {
        return testing::skip(testing::Need::Program("curl"));
    }
    let ends = Ends::new(&sandbox);
    let target = sandbox.inside(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 2_000];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nit works\n");
            }
        });
        port
    });
    let _server = ends.server(&[&format!("tcp:localhost:{target}")]);
    let _client = ends.client(&["socks5:127.0.0.1:1080", "http:127.0.0.1:3128"]);
    for proxy in [&["-x", "socks5h://127.0.0.1:1080"][..], &["-px", "http://127.0.0.1:3128"]] {
        let url = format!("http://localhost:{target}/");
        let output = sandbox.inside(|| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--noproxy", "", "--max-time", "60"]);
            curl.args(proxy).arg(&url).output()
        });
        let output = output.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it works\n", "{output:?}");
    }
}
