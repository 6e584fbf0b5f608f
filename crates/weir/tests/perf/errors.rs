//! `weir perf` when no test is possible: one sentence, status 1, within the requested time.

use crate::support::{CommandOutput, Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;
use testing::Attempt;

#[test]
fn a_closed_port_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sentence(&sandbox, &["127.0.0.1"], 1);
    assert!(output.contains("127.0.0.1") && output.contains("5201"), "{output}");
    let output = sentence(&sandbox, &["::1", "-u", "-R", "-p", "6000"], 1);
    assert!(output.contains("6000"), "{output}");
}

/// Runs the client in a namespace without any route.
#[test]
fn a_missing_route_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    for host in ["192.0.2.1", "2001:db8::1"] {
        let output = sentence(&sandbox, &[host, "--connect-timeout", "2000"], 1);
        assert!(output.contains(host), "{output}");
    }
}

#[test]
fn an_address_of_the_wrong_family_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sentence(&sandbox, &["127.0.0.1", "-6"], 1);
    assert!(output.contains("IPv6") || output.contains("-6"), "{output}");
    let output = sentence(&sandbox, &["::1", "-4"], 1);
    assert!(output.contains("IPv4") || output.contains("-4"), "{output}");
}

/// Tests a web server, and a service that answers nothing.
#[test]
fn another_service_on_the_port_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let web = answering(&sandbox, b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n");
    let output = sentence(&sandbox, &["127.0.0.1", "-p", &web.port().to_string()], 1);
    assert!(output.contains("HTTP/1.1 400"), "{output}");
    let mute = answering(&sandbox, b"");
    let port = mute.port().to_string();
    sentence(&sandbox, &["127.0.0.1", "-p", &port, "--connect-timeout", "300"], 1);
}

#[test]
fn a_firewall_that_drops_packets_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !is_installed("nft") {
        return testing::skip(testing::Need::Program("nft"));
    }
    let tried = |rules: &str| {
        let mut command = Command::new("nft");
        command.arg(rules);
        sandbox.start_command(command).end()
    };
    let nft = |rules: &str| {
        let output = tried(rules);
        assert!(output.status.success(), "{rules}: {}", output.stderr);
    };
    let chain = "add table inet wall; \
                 add chain inet wall in { type filter hook input priority 0; }";
    let made = tried(chain);
    if !made.status.success() {
        return testing::skip_because(testing::Need::Nftables, made.stderr);
    }
    nft("add rule inet wall in tcp dport 5201 drop");
    let watch = testing::Watch::start();
    let output = sentence(&sandbox, &["127.0.0.1", "--connect-timeout", "700"], 1);
    // The limit is far below the default of 10 s and the kernel's own two minutes.
    testing::within("connection timeout of a perf client", Duration::from_secs(8), watch);
    assert!(output.contains("700") || output.contains("0.7"), "how long it waited: {output}");

    // The firewall admits the control connection and drops datagrams, like a firewall made for TCP
    // only.
    nft("flush chain inet wall in");
    nft("add rule inet wall in udp dport 5201 drop");
    let mut server = Command::new(env!("CARGO_BIN_EXE_weir"));
    server.args(["perf", "server"]);
    let server = sandbox.start_command(server);
    await_some("the server", || server.listens(5201).then_some(()));
    // A server that stalls for 0.7 s does not even answer over TCP.
    testing::undisturbed("datagrams behind a firewall", |_| {
        let output = sentence(&sandbox, &["127.0.0.1", "-u", "--connect-timeout", "700"], 1);
        match output.contains("UDP") || output.contains("datagram") {
            true => Attempt::Right(()),
            false => Attempt::Wrong(output),
        }
    });
    server.signal("INT");
    assert!(server.end().status.success());
}

/// Tests a failure in JSON, as iperf3 writes it: the sentence is under `error`, and the status is
/// still 1.
#[test]
fn a_failed_test_with_json_prints_one_document() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["perf", "client", "127.0.0.1", "-J"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(document["error"].as_str().is_some_and(|error| error.contains("5201")), "{document}");
    let lines = sandbox.weir(&["perf", "client", "127.0.0.1", "--json-stream"]);
    assert_eq!(lines.status.code(), Some(1), "{lines:?}");
    for line in lines.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _web = answering_at(&sandbox, "0.0.0.0:5201", b"");
    let output = one_line(&sandbox.weir(&["perf", "server", "-4", "-1"]), 1);
    assert!(output.contains("5201"), "{output}");
}

/// The server answers the first fetch but not the second fetch.
#[test]
fn an_interrupted_perf_download_has_exit_status_1() {
    let Some(sandbox) = Sandbox::new() else { return };
    let listener = sandbox.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("http://{}/file", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let _ = first.read(&mut [0; 1024]);
        let _ = first.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        let second = listener.accept();
        let _ = second.map(|(mut second, _)| second.read_to_end(&mut Vec::new()));
    });
    let running = sandbox.start(&["perf", "download", &url, "--times", "2"]);
    await_some("the first fetch", || running.output_so_far().0.starts_with("1: ").then_some(()));
    running.signal("INT");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.starts_with("1: "), "{output:?}");
}

#[test]
fn contradictory_arguments_are_a_usage_error() {
    let Some(sandbox) = Sandbox::new() else { return };
    for words in [
        &["127.0.0.1", "-t", "soon"][..],
        &["127.0.0.1", "-R", "--bidir"],
        &["127.0.0.1", "-t", "1", "-n", "1M"],
        &["127.0.0.1", "-b", "10mbut"],
        &["127.0.0.1", "-4", "-6"],
        &["127.0.0.1", "-P", "0"],
        &["127.0.0.1", "--dscp", "gold"],
        &[],
    ] {
        let output = sandbox.weir(&[&["perf", "client"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(
            output.stdout.is_empty() && output.stderr.starts_with("error: "),
            "{words:?} {output:?}"
        );
    }
}

/// Runs the client, which must end with that status and without any result. Returns the client's
/// single line of output.
fn sentence(sandbox: &Sandbox, words: &[&str], status: i32) -> String {
    one_line(&sandbox.weir(&[&["perf", "client"], words].concat()), status)
}

fn one_line(output: &CommandOutput, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert_eq!(output.stderr.trim_end().lines().count(), 1, "{}", output.stderr);
    output.stderr.clone()
}

/// Starts a server of another protocol, which sends `greeting` to every client and then waits.
fn answering(sandbox: &Sandbox, greeting: &'static [u8]) -> SocketAddr {
    answering_at(sandbox, "127.0.0.1:0", greeting)
}

fn answering_at(sandbox: &Sandbox, address: &str, greeting: &'static [u8]) -> SocketAddr {
    let listener = sandbox.inside(|| TcpListener::bind(address).unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut one in listener.incoming().flatten() {
            let _ = one.read(&mut [0; 64]).and_then(|_| one.write_all(greeting));
            let _ = one.read(&mut [0; 64]);
        }
    });
    address
}
