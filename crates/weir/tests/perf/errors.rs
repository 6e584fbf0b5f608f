//! `weir perf` when no test is possible: one sentence, status 1, within the requested time.

use crate::support::{Said, World, await_some, is_installed};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Instant;

#[test]
fn a_closed_port_is_reported() {
    let Some(world) = World::new() else { return };
    let said = sentence(&world, &["127.0.0.1"], 1);
    assert!(said.contains("127.0.0.1") && said.contains("5201"), "{said}");
    let said = sentence(&world, &["::1", "-u", "-R", "-p", "6000"], 1);
    assert!(said.contains("6000"), "{said}");
}

/// In a namespace without any route.
#[test]
fn a_missing_route_is_reported() {
    let Some(world) = World::new() else { return };
    for host in ["192.0.2.1", "2001:db8::1"] {
        let said = sentence(&world, &[host, "--connect-timeout", "2000"], 1);
        assert!(said.contains(host), "{said}");
    }
}

#[test]
fn an_address_of_the_wrong_family() {
    let Some(world) = World::new() else { return };
    let said = sentence(&world, &["127.0.0.1", "-6"], 1);
    assert!(said.contains("IPv6") || said.contains("-6"), "{said}");
    let said = sentence(&world, &["::1", "-4"], 1);
    assert!(said.contains("IPv4") || said.contains("-4"), "{said}");
}

/// A web server, and a service that answers nothing.
#[test]
fn another_service_on_the_port_is_reported() {
    let Some(world) = World::new() else { return };
    let web = answering(&world, b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n");
    let said = sentence(&world, &["127.0.0.1", "-p", &web.port().to_string()], 1);
    assert!(said.contains("HTTP/1.1 400"), "{said}");
    let mute = answering(&world, b"");
    let port = mute.port().to_string();
    sentence(&world, &["127.0.0.1", "-p", &port, "--connect-timeout", "300"], 1);
}

#[test]
fn a_firewall_in_between_is_reported() {
    let Some(world) = World::new() else { return };
    if !is_installed("nft") {
        eprintln!("SKIPPED: nft is needed to drop what the client sends");
        return;
    }
    let nft = |rules: &str| {
        let mut command = Command::new("nft");
        command.arg(rules);
        let said = world.start_command(command).end();
        assert!(said.status.success(), "{rules}: {}", said.stderr);
    };
    nft("add table inet wall");
    nft("add chain inet wall in { type filter hook input priority 0; }");
    nft("add rule inet wall in tcp dport 5201 drop");
    let began = Instant::now();
    let said = sentence(&world, &["127.0.0.1", "--connect-timeout", "700"], 1);
    assert!(said.contains("700") || said.contains("0.7"), "how long it waited: {said}");
    // Far from both the default of 10 s and the kernel's own two minutes.
    assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());

    // The control connection passes and datagrams do not, as with a firewall made for TCP only.
    nft("flush chain inet wall in");
    nft("add rule inet wall in udp dport 5201 drop");
    let mut server = Command::new(env!("CARGO_BIN_EXE_weir"));
    server.args(["perf", "server"]);
    let server = world.start_command(server);
    await_some("the server", || {
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp6", server.pid())).ok()?;
        table.contains(":1451 0000").then_some(())
    });
    let said = sentence(&world, &["127.0.0.1", "-u", "--connect-timeout", "700"], 1);
    assert!(said.contains("UDP") || said.contains("datagram"), "{said}");
    server.signal("INT");
    assert!(server.end().status.success());
}

/// The same in JSON, as iperf3 writes it: the sentence under `error`, the status still 1.
#[test]
fn a_failure_in_json_is_one_document() {
    let Some(world) = World::new() else { return };
    let said = world.weir(&["perf", "client", "127.0.0.1", "-J"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert!(document["error"].as_str().is_some_and(|error| error.contains("5201")), "{document}");
    let lines = world.weir(&["perf", "client", "127.0.0.1", "--json-stream"]);
    assert_eq!(lines.status.code(), Some(1), "{lines:?}");
    for line in lines.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let Some(world) = World::new() else { return };
    let _web = answering_at(&world, "0.0.0.0:5201", b"");
    let said = one_line(&world.weir(&["perf", "server", "-4", "-1"]), 1);
    assert!(said.contains("5201"), "{said}");
}

#[test]
fn contradictory_arguments_are_wrong_use() {
    let Some(world) = World::new() else { return };
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
        let said = world.weir(&[&["perf", "client"], words].concat());
        assert_eq!(said.status.code(), Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stdout.is_empty() && said.stderr.starts_with("error: "), "{words:?} {said:?}");
    }
}

/// The client's single line of output when it ends with that status, without any result.
fn sentence(world: &World, words: &[&str], status: i32) -> String {
    one_line(&world.weir(&[&["perf", "client"], words].concat()), status)
}

fn one_line(said: &Said, status: i32) -> String {
    assert_eq!(said.status.code(), Some(status), "{said:?}");
    assert_eq!(said.stderr.trim_end().lines().count(), 1, "{}", said.stderr);
    said.stderr.clone()
}

/// A server of another protocol in that world, which sends this to every client and then waits.
fn answering(world: &World, greeting: &'static [u8]) -> SocketAddr {
    answering_at(world, "127.0.0.1:0", greeting)
}

fn answering_at(world: &World, address: &str, greeting: &'static [u8]) -> SocketAddr {
    let listener = world.inside(|| TcpListener::bind(address).unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut one in listener.incoming().flatten() {
            let _ = one.read(&mut [0; 64]).and_then(|_| one.write_all(greeting));
            let _ = one.read(&mut [0; 64]);
        }
    });
    address
}
