//! A transfer that continues while `weir accel` changes the installation.

use super::TestMachine;
use std::process::Child;
use std::time::{Duration, Instant};

/// A control connection and a transfer that lasts until it is dropped.
pub struct Transfer {
    ends: [Child; 2],
}

impl Transfer {
    pub fn start(machine: &TestMachine, port: u16) -> Self {
        let (weir, port_text) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
        // Set the system's algorithm, so that neither end names an algorithm.
        let words = ["-w", "net.ipv4.tcp_congestion_control=reno"];
        assert_eq!(machine.run("sysctl", &words).code, Some(0));
        let server = machine.start(weir, &["perf", "server", "--port", &port_text, "--one-off"]);
        machine.await_listener(port);
        let mut words = vec!["perf", "client", "127.0.0.1", "--port", &port_text, "--json"];
        words.extend(["--time", "600", "--bitrate", "50M", "--idle-probe", "0"]);
        let client = machine.start(weir, &words);
        let transfer = Self { ends: [client, server] };
        let deadline = Instant::now() + Duration::from_secs(60);
        // Four sockets: both ends of two connections.
        while algorithms(machine).len() < 4 || sent(machine) < 1 << 20 {
            assert!(Instant::now() < deadline, "nothing is sent");
            std::thread::sleep(Duration::from_millis(10));
        }
        transfer
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.kill();
            let _ = end.wait();
        }
    }
}

/// Returns the algorithm of both ends of every open connection in this network, sorted.
pub fn algorithms(machine: &TestMachine) -> Vec<String> {
    let output = machine.run("ss", &["-tniH", "state", "established"]).stdout;
    let known = ["tcpa", "reno", "cubic", "bbr"];
    let mut found: Vec<_> =
        output.split_whitespace().filter(|word| known.contains(word)).map(str::to_owned).collect();
    found.sort();
    found
}

fn sent(machine: &TestMachine) -> u64 {
    let output = machine.run("ss", &["-tniH", "state", "established"]).stdout;
    let words = output.split_whitespace().filter_map(|word| word.strip_prefix("bytes_acked:"));
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

pub fn with_tcpa(machine: &TestMachine) -> usize {
    algorithms(machine).iter().filter(|name| *name == "tcpa").count()
}

pub fn goes_on(machine: &TestMachine) {
    let (before, deadline) = (sent(machine), Instant::now() + Duration::from_secs(60));
    while sent(machine) < before + (1 << 20) {
        assert!(Instant::now() < deadline, "nothing is sent any more");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
pub fn accel(machine: &TestMachine, words: &[&str]) -> String {
    let mut all = vec!["accel"];
    all.extend(words);
    let output = machine.weir(&all);
    assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
    output.stderr
}
