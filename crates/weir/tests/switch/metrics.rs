//! Metrics for Prometheus.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::captures::{self, udp};
use super::test_switch::{TestSwitch, sandbox};
use crate::support::await_some;

#[test]
fn metrics_of_threads_ports_and_connections_are_served() {
    let Some(sandbox) = sandbox() else { return };
    captures::write(&sandbox, "in.pcap", &[udp(0), udp(1)]);
    let address = format!("unix:{}", sandbox.path("metrics").display());
    let switch = TestSwitch::start(
        sandbox,
        &[
            "--bridge",
            "br0",
            "--port",
            "br0:p0=pcap:in.pcap,loop",
            "--port",
            "br0:p1=null",
            "--metrics-on",
            &address,
        ],
    );
    switch.ofctl(&["add-flow", "br0", "ip,actions=ct(commit,table=1)"]);
    switch.ofctl(&["add-flow", "br0", "table=1,actions=output:2"]);
    let text = await_some("figures of packets", || {
        let text = fetch(&switch, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        (value(&text, "weir_switch_port_sent_packets_total{bridge=\"br0\",port=\"p1\"}") > 10_000.0
            && value(&text, "weir_switch_connections") == 2.0)
            .then_some(text)
    });
    assert_eq!(value(&text, "weir_switch_rules{bridge=\"br0\"}"), 2.0);
    for stage in ["parse", "cache", "classifier", "conntrack", "actions", "transmit"] {
        let part = format!(",stage=\"{stage}\"}}");
        let sum: f64 = text.lines().filter(|line| line.contains(&part)).map(last).sum();
        assert!(sum > 0.0, "{stage}:\n{text}");
    }
    for line in text.lines().filter(|line| line.starts_with("weir_switch_")) {
        assert!(last(line) >= 0.0, "{line}");
    }
    for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
        let help = line.splitn(4, ' ').nth(3).unwrap();
        let words: Vec<_> = help.split([' ', '.']).collect();
        let verbs = ["is", "was", "were", "has", "have", "holds", "tracks", "takes", "could"];
        let is_sentence = help.ends_with('.') && verbs.iter().any(|verb| words.contains(verb));
        assert!(is_sentence, "{line}");
    }
    let other = fetch(&switch, "GET / HTTP/1.1\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    switch.end();
}

/// Clients that send nothing or half a request do not block other clients.
#[test]
fn idle_clients_do_not_block_the_metrics() {
    let Some(sandbox) = sandbox() else { return };
    let address = format!("unix:{}", sandbox.path("metrics").display());
    let words = ["--bridge", "br0", "--port", "br0:p1=null", "--metrics-on", &address];
    let switch = TestSwitch::start(sandbox, &words);
    let idle: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(switch.path("metrics")).unwrap();
            stream.write_all(b"GET /metrics").unwrap();
            stream
        })
        .collect();
    let text = fetch(&switch, "GET /healthz HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    drop(idle);
    switch.end();
}

/// Clients that reconnect again and again do not use up all connections, whether they send half a
/// request, send single bytes, or do not read.
#[test]
fn slow_clients_that_reconnect_do_not_block_the_metrics() {
    let Some(sandbox) = sandbox() else { return };
    let address = format!("unix:{}", sandbox.path("metrics").display());
    let words = ["--bridge", "br0", "--port", "br0:p1=null", "--metrics-on", &address];
    let switch = TestSwitch::start(sandbox, &words);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&is_over);
        for begin in ["GET /met", "GET /metrics HTTP/1.1\r\n\r\n", ""] {
            let (switch, is_over) = (&switch, &is_over);
            scope.spawn(move || {
                let mut held = VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = UnixStream::connect(switch.path("metrics")) else { break };
                    stream.set_nonblocking(true).unwrap();
                    // The write fails if the switch has closed the connection.
                    let _ = stream.write_all(begin.as_bytes());
                    held.push_back(stream);
                    if let Some(stream) = held.get_mut(held.len() / 2) {
                        let _ = stream.write_all(b"x");
                    }
                    if held.len() > 300 {
                        held.pop_front();
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let watch = testing::Watch::start();
        for _ in 0..20 {
            let text = fetch(&switch, "GET /healthz HTTP/1.1\r\n\r\n");
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        }
        testing::within("answers beside slow clients", Duration::from_secs(20), watch);
    });
    switch.end();
}

/// Ends the other threads of a test, even if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fetch(switch: &TestSwitch, request: &str) -> String {
    let mut stream = UnixStream::connect(switch.path("metrics")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn value(text: &str, name: &str) -> f64 {
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|r| r.starts_with(' ')));
    line.map_or(0.0, last)
}

fn last(line: &str) -> f64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
