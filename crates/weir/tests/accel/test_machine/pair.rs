//! Two hosts with a veth pair between them: two network namespaces of the test machine.

use super::{BRIEF, TestMachine};
use std::process::Child;
use std::time::{Duration, Instant};

pub struct Pair<'a> {
    machine: &'a TestMachine,
    link: Option<Child>,
}

impl<'a> Pair<'a> {
    /// Makes two hosts with an emulated port between them, configured by the arguments of `weir
    /// link up`.
    pub fn over(machine: &'a TestMachine, link: &[&str]) -> Self {
        let mut pair = Self { machine, link: None };
        pair.ip("netns add near");
        pair.ip("netns add far");
        let mut words = vec!["link", "up", "--a", "near:eth0", "--b", "far:eth0"];
        words.extend(["--address-a", "10.0.0.1/24", "--address-b", "10.0.0.2/24"]);
        words.extend(["--no-real-time", "--spin", "0us"]);
        words.extend(link);
        pair.link = Some(machine.start(env!("CARGO_BIN_EXE_weir"), &words));
        let deadline = Instant::now() + Duration::from_secs(60);
        let up = |end: &str| {
            let words = ["-n", end, "-4", "address", "show", "eth0"];
            let output = machine.run("ip", &words).stdout;
            output.contains("state UP") && output.contains("10.0.0.")
        };
        while !up("near") || !up("far") {
            assert!(Instant::now() < deadline, "the link does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        pair
    }

    pub fn lay(machine: &'a TestMachine) -> Self {
        let pair = Self { machine, link: None };
        for words in [
            "netns add near",
            "netns add far",
            "link add eth0 netns near type veth peer name eth0 netns far",
            "-n near address add 10.0.0.1/24 dev eth0",
            "-n far address add 10.0.0.2/24 dev eth0",
            "-n near link set eth0 up",
            "-n far link set eth0 up",
        ] {
            pair.ip(words);
        }
        pair
    }

    #[track_caller]
    pub fn ip(&self, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        let output = self.machine.run("ip", &words);
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
    }

    /// Makes one brief transfer from the near end; returns the algorithm that sent it.
    pub fn transfer(&self, port: u16, more: &[&str]) -> String {
        reported(self.machine, port, &[&BRIEF[..], more].concat())["end"]["sender_tcp_congestion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// A transfer from the near end that lasts until this value is dropped.
pub struct RunningTransfer {
    ends: [Child; 2],
}

impl RunningTransfer {
    pub fn start(machine: &TestMachine, port: u16, rate: &str) -> Self {
        let (weir, port) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
        let server = ["netns", "exec", "far", weir, "perf", "server", "--port", &port, "--one-off"];
        let server = machine.start("ip", &server);
        await_listener(machine, &port);
        let mut words = vec!["netns", "exec", "near", weir, "perf", "client", "10.0.0.2"];
        words.extend(["--port", &port, "--time", "600", "--json", "--bitrate", rate]);
        words.extend(["--idle-probe", "0"]);
        let going = Self { ends: [machine.start("ip", &words), server] };
        going.goes_on(machine);
        going
    }

    pub fn goes_on(&self, machine: &TestMachine) {
        let (before, deadline) = (acked(machine), Instant::now() + Duration::from_secs(60));
        while acked(machine) < before + (1 << 20) {
            assert!(Instant::now() < deadline, "nothing is sent any more");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.kill();
            let _ = end.wait();
        }
    }
}

/// Sums the acknowledged bytes of all connections of the near end.
fn acked(machine: &TestMachine) -> u64 {
    let words = ["netns", "exec", "near", "ss", "-tniH", "state", "established"];
    let output = machine.run("ip", &words).stdout;
    let words = output.split_whitespace().filter_map(|word| word.strip_prefix("bytes_acked:"));
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            let _ = link.kill();
            let _ = link.wait();
        }
    }
}

/// Makes one transfer of a second; returns the report of the client at the near end.
pub fn transfer(machine: &TestMachine, port: u16, more: &[&str]) -> serde_json::Value {
    reported(machine, port, &[&["--time", "1"][..], more].concat())
}

fn reported(machine: &TestMachine, port: u16, more: &[&str]) -> serde_json::Value {
    let (weir, port) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
    let server = ["netns", "exec", "far", weir, "perf", "server", "--port", &port, "--one-off"];
    let mut server = machine.start("ip", &server);
    await_listener(machine, &port);
    let mut words = vec!["netns", "exec", "near", weir, "perf", "client", "10.0.0.2"];
    words.extend(["--port", &port, "--json"]);
    words.extend(more);
    let output = machine.run("ip", &words);
    assert_eq!(output.code, Some(0), "{}{}", output.stderr, output.stdout);
    server.wait().unwrap();
    serde_json::from_str(&output.stdout).unwrap()
}

pub fn await_listener(machine: &TestMachine, port: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let wanted = format!(":{port} ");
    while !machine.run("ip", &["netns", "exec", "far", "ss", "-tlnH"]).stdout.contains(&wanted) {
        assert!(Instant::now() < deadline, "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
