//! `--open`: connections under way change their algorithm, and go on.
#![allow(clippy::unwrap_used)]

mod accel_world;

use accel_world::{AccelWorld, available};
use std::process::Child;
use std::time::{Duration, Instant};

/// A control connection and a transfer that lasts until it is dropped.
struct Transfer {
    ends: [Child; 2],
}

impl Transfer {
    fn start(world: &AccelWorld, port: u16) -> Self {
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

/// Of every open connection's ends in this network, in order.
fn algorithms(world: &AccelWorld) -> Vec<String> {
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

fn with_tcpa(world: &AccelWorld) -> usize {
    algorithms(world).iter().filter(|name| *name == "tcpa").count()
}

fn goes_on(world: &AccelWorld) {
    let (before, deadline) = (sent(world), Instant::now() + Duration::from_secs(60));
    while sent(world) < before + (1 << 20) {
        assert!(Instant::now() < deadline, "nothing is sent any more");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn accel(world: &AccelWorld, words: &[&str]) -> String {
    let mut all = vec!["accel"];
    all.extend(words);
    let said = world.weir(&all);
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    said.stderr
}

#[test]
fn open_connections_change_where_asked_and_back() {
    let Some(world) = AccelWorld::new() else { return };
    let _transfer = Transfer::start(&world, 5601);
    let before = algorithms(&world);
    assert!(!before.contains(&"tcpa".to_owned()), "{before:?}");

    accel(&world, &["enable", "tcpa", "--port", "5601"]);
    assert_eq!(algorithms(&world), before, "nobody asked for open ones");
    let told = accel(&world, &["enable", "tcpa", "--port", "5601", "--open"]);
    assert!(told.contains("2 were given it"), "{told}");
    assert_eq!(with_tcpa(&world), 2);
    goes_on(&world);
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    assert!(told.contains("2 were given it"), "{told}");
    assert_eq!(with_tcpa(&world), 4);
    goes_on(&world);

    let file = world.write("leave.toml", "[[rule]]\nport = 5601\nalgorithm = \"none\"\n[[rule]]\n");
    accel(&world, &["policy", &file]);
    assert_eq!(with_tcpa(&world), 4, "nobody asked for open ones");
    let told = accel(&world, &["policy", &file, "--open"]);
    assert!(told.contains("2 have what they had before"), "{told}");
    assert_eq!(with_tcpa(&world), 2);
    let told = accel(&world, &["disable", "--open"]);
    assert!(told.contains("2 have what they had before"), "{told}");
    assert_eq!(algorithms(&world), before);
    assert!(!available().contains("tcpa"));
    goes_on(&world);
}

#[test]
fn those_that_kept_it_are_found_when_all_is_gone() {
    let Some(world) = AccelWorld::new() else { return };
    let _transfer = Transfer::start(&world, 5611);
    accel(&world, &["enable", "tcpa", "--all", "--open"]);
    accel(&world, &["update"]);
    accel(&world, &["disable"]);
    assert_eq!(with_tcpa(&world), 4);
    goes_on(&world);
    // Another installation takes them over.
    let told = accel(&world, &["enable", "tcpa", "--port", "5611", "--open"]);
    assert!(told.contains("2 were given it"), "{told}");
    assert_eq!(with_tcpa(&world), 4);
    accel(&world, &["disable"]);
    let told = accel(&world, &["disable", "--open"]);
    assert!(told.contains("off already"), "{told}");
    assert!(told.contains("4 have what they had before"), "{told}");
    assert_eq!(with_tcpa(&world), 0);
    goes_on(&world);
}

/// Rules are for what is in the control groups of this machine, and so is `--open`.
#[test]
fn open_connections_of_another_machine_are_left_alone() {
    let Some(world) = AccelWorld::new() else { return };
    let other = world.second();
    let _transfer = Transfer::start(&other, 5621);
    let before = algorithms(&other);
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    assert!(told.contains("0 were given it"), "{told}");
    assert_eq!(algorithms(&other), before);
}

/// Every connection of this machine is its own, in whatever network namespace it is.
#[test]
fn open_connections_of_other_namespaces_change_too() {
    let Some(world) = AccelWorld::new() else { return };
    let transfer = "ip link set lo up; $0 perf server --port 5631 --one-off & \
                    until ss -tlnH | grep -q 5631; do sleep 0.01; done; \
                    $0 perf client 127.0.0.1 --port 5631 --time 600 --bitrate 50M & \
                    until [ $(ss -tnH state established | wc -l) = 4 ]; do sleep 0.01; done; \
                    echo ready; read word; ss -tniH state established | grep -o tcpa; kill %1 %2; exit";
    let words = ["--net", "bash", "-c", transfer, env!("CARGO_BIN_EXE_weir")];
    let mut inner = world.start_with_input("unshare", &words);
    let mut line = String::new();
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let mut output = BufReader::new(inner.stdout.take().unwrap());
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended");
    }
    let told = accel(&world, &["enable", "tcpa", "--all", "--open"]);
    inner.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    inner.wait().unwrap();
    assert!(told.contains("4 were given it"), "{told}");
    assert_eq!(rest.matches("tcpa").count(), 4, "{rest}");
}
