//! A path that is slower than its ends, for tests in which a sender must find the capacity. The
//! loopback interface has no fixed capacity.

use super::TestMachine;
use std::process::Child;
use std::time::{Duration, Instant};

/// A path of 20 Mbit/s and 20 ms between two network namespaces of the test machine.
pub struct TestPath<'a> {
    machine: &'a TestMachine,
    link: Child,
}

impl<'a> TestPath<'a> {
    pub fn lay(machine: &'a TestMachine) -> Self {
        for end in [NEAR, FAR] {
            assert_eq!(machine.run("ip", &["netns", "add", end]).code, Some(0));
        }
        let mut words = vec!["link", "up", "--a", "near:eth0", "--b", "far:eth0"];
        words.extend(["--address-a", "10.0.0.1/24", "--address-b", "10.0.0.2/24"]);
        words.extend(["--rate", "20mbit", "--delay", "10ms", "--queue", "droptail:64KiB"]);
        let path = Self { machine, link: machine.start(env!("CARGO_BIN_EXE_weir"), &words) };
        for end in [NEAR, FAR] {
            let up = |output: &str| output.contains("state UP") && output.contains("10.0.0.");
            path.until("the link", end, &["ip", "-4", "address", "show", "eth0"], up);
        }
        path
    }

    /// Makes one transfer of two seconds from the near end; returns the algorithm that sent it.
    pub fn transfer(&self, port: u16) -> String {
        let (weir, port) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
        let server = ["netns", "exec", FAR, weir, "perf", "server", "--port", &port, "--one-off"];
        let mut server = self.machine.start("ip", &server);
        let listening = |output: &str| output.contains(&format!(":{port} "));
        self.until("server", FAR, &["ss", "-tlnH"], listening);
        let mut words = vec!["netns", "exec", NEAR, weir, "perf", "client", "10.0.0.2"];
        words.extend(["--port", &port, "--time", "2", "--json"]);
        let output = self.machine.run("ip", &words);
        assert_eq!(output.code, Some(0), "{}{}", output.stderr, output.stdout);
        server.wait().unwrap();
        let end: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        end["end"]["sender_tcp_congestion"].as_str().unwrap_or_default().to_owned()
    }

    fn until(&self, what: &str, inside: &str, command: &[&str], enough: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let words = [&["netns", "exec", inside], command].concat();
        loop {
            let output = self.machine.run("ip", &words);
            if output.code == Some(0) && enough(&output.stdout) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {}{}", output.stdout, output.stderr);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TestPath<'_> {
    fn drop(&mut self) {
        let _ = self.link.kill();
        let _ = self.link.wait();
    }
}

const NEAR: &str = "near";
const FAR: &str = "far";
