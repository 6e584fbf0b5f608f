//! A transfer that continues while `weir accel` changes things.

use super::AccelWorld;
use std::process::Child;
use std::time::{Duration, Instant};

/// A control connection and a transfer that lasts until it is dropped.
pub struct Transfer {
    ends: [Child; 2],
}

impl Transfer {
    pub fn start(world: &AccelWorld, port: u16) -> Self {
        let (weir, port_text) = (env!("CARGO_BIN_EXE_weir"), port.to_string());
        let server = world.start(weir, &["perf", "server", "--port", &port_text, "--one-off"]);
        world.await_listener(port);
        let mut words = vec!["perf", "client", "127.0.0.1", "--port", &port_text, "--json"];
        words.extend(["--time", "600", "--bitrate", "50M", "--congestion", "reno"]);
        let client = world.start(weir, &words);
        let transfer = Self { ends: [client, server] };
        let deadline = Instant::now() + Duration::from_secs(60);
        // Both ends of two connections.
        while algorithms(world).len() < 4 || sent(world) < 1 << 20 {
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

/// The algorithm of both ends of every open connection in this network, sorted.
pub fn algorithms(world: &AccelWorld) -> Vec<String> {
    let said = world.run("ss", &["-tniH", "state", "established"]).stdout;
    let known = ["tcpa", "reno", "cubic", "bbr"];
    let mut found: Vec<_> =
        said.split_whitespace().filter(|word| known.contains(word)).map(str::to_owned).collect();
    found.sort();
    found
}

fn sent(world: &AccelWorld) -> u64 {
    let said = world.run("ss", &["-tniH", "state", "established"]).stdout;
    let words = said.split_whitespace().filter_map(|word| word.strip_prefix("bytes_acked:"));
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

pub fn with_tcpa(world: &AccelWorld) -> usize {
    algorithms(world).iter().filter(|name| *name == "tcpa").count()
}

pub fn goes_on(world: &AccelWorld) {
    let (before, deadline) = (sent(world), Instant::now() + Duration::from_secs(60));
    while sent(world) < before + (1 << 20) {
        assert!(Instant::now() < deadline, "nothing is sent any more");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The output of the command.
#[track_caller]
pub fn accel(world: &AccelWorld, words: &[&str]) -> String {
    let mut all = vec!["accel"];
    all.extend(words);
    let said = world.weir(&all);
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    said.stderr
}
