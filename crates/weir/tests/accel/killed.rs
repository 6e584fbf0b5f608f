//! `weir accel` is killed at a random moment of any command: `status` reports the true state, and
//! `disable` leaves nothing.

use crate::test_machine::transfer::accel;
use crate::test_machine::{TestMachine, await_free};
use serde_json::Value;
use std::time::Duration;

/// A small random number generator. The quality of the numbers does not matter. A failure prints
/// the seed.
struct Random(u64);

impl Random {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn wmem(machine: &TestMachine) -> String {
    machine.run("cat", &["/proc/sys/net/ipv4/tcp_wmem"]).stdout
}

/// Whether a new connection gets tcpa.
fn is_given(machine: &TestMachine) -> bool {
    let look = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT} && ss -tniH sport = :{PORT}");
    let output = machine.run("bash", &["-c", &look]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout.contains(" tcpa ")
}

fn tells_the_truth(machine: &TestMachine, before: &str) -> Value {
    let status = machine.status();
    let given = is_given(machine);
    let is_part = match status["state"].as_str().unwrap() {
        "on" => {
            assert!(given, "{status}");
            assert_eq!(status["rules"].as_array().unwrap().len(), 1, "{status}");
            false
        }
        "off" => {
            assert!(!given, "{status}");
            assert_eq!(machine.pinned(), "");
            false
        }
        state => state == "part",
    };
    assert_eq!(status["gives"], given, "{status}");
    assert!(!is_part || machine.pinned().contains("weir-accel"), "{status}");
    if wmem(machine) != before {
        assert!(!status["system"]["wmem"].is_null(), "{status}");
    }
    status
}

fn leaves_nothing(machine: &TestMachine, before: &str) {
    accel(machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
    await_free("tcpa");
    assert_eq!(wmem(machine), before);
    assert_eq!(machine.run("ls", &["/run"]).stdout, "");
    assert_eq!(machine.status()["state"], "off");
    assert!(!is_given(machine));
}

#[test]
fn the_next_test_removes_the_cgroup_of_a_killed_test() {
    let Some(machine) = TestMachine::new() else { return };
    // A name with the number of a process that cannot exist (PID_MAX_LIMIT of linux/threads.h), and
    // a name with the number of a live process.
    let mount = accel::cgroup::mount().unwrap();
    let left = mount.join("weir-accel-test-4194305-0");
    let used = mount.join(format!("weir-accel-test-{}-used", std::process::id()));
    for group in [&left.join("inner"), &used] {
        std::fs::create_dir_all(group).unwrap();
    }
    drop(machine.second());
    assert!(!left.exists());
    std::fs::remove_dir(used).unwrap();
}

#[test]
fn status_is_correct_and_disable_cleans_up_after_a_kill_at_any_moment() {
    let Some(machine) = TestMachine::new() else { return };
    let rounds = std::env::var("WEIR_KILLS").map_or(40, |kills| kills.parse().unwrap());
    let seed = std::env::var("WEIR_SEED").map_or(std::process::id().into(), |s| s.parse().unwrap());
    println!("WEIR_SEED={seed}");
    let mut dice = Random(seed);
    let before = wmem(&machine);
    let weir = env!("CARGO_BIN_EXE_weir");
    let port = PORT.to_string();
    let mut server = machine.start(weir, &["perf", "server", "--port", &port]);
    machine.await_listener(PORT);
    let rule = "[[rule]]\ninit_cwnd = 30\n";
    let narrow =
        machine.write("narrow.toml", &format!("{rule}[system]\nwmem = [4096, 16384, 9000000]\n"));
    let wide =
        machine.write("wide.toml", &format!("{rule}[system]\nwmem = [4096, 16384, 33000000]\n"));
    let commands: [&[&str]; 8] = [
        &["enable", "tcpa", "--all"],
        &["enable", "tcpa", "--all", "--init-cwnd", "77", "--open"],
        &["policy", &narrow],
        &["policy", &wide, "--open"],
        &["set", "init_cwnd=21", "wmem=4096 16384 8000000", "--rule", "1"],
        &["update"],
        &["disable"],
        &["disable", "--open"],
    ];
    let mut states = [0; 3];
    for round in 0..rounds {
        let words = commands[dice.throw(commands.len() as u64) as usize];
        let words = [&["accel"], words].concat();
        let mut command = machine.start(weir, &words);
        // Prefers early moments: late in a command most of its work is already done.
        let most = 1 + dice.throw(MOST_MICROS);
        std::thread::sleep(Duration::from_micros(dice.throw(most)));
        let _ = command.kill();
        command.wait().unwrap();
        println!("{round}: {words:?}");
        let status = tells_the_truth(&machine, &before);
        let state = status["state"].as_str().unwrap();
        states[["off", "part", "on"].iter().position(|name| *name == state).unwrap()] += 1;
        match dice.throw(4) {
            0 => leaves_nothing(&machine, &before),
            1 => {
                accel(&machine, &["enable", "tcpa", "--all"]);
                assert_eq!(tells_the_truth(&machine, &before)["state"], "on");
            }
            _ => {}
        }
    }
    println!("off, part, on: {states:?}");
    leaves_nothing(&machine, &before);
    server.kill().unwrap();
    server.wait().unwrap();
}

const PORT: u16 = 5801;
/// Latest moment of a kill: later than any command ends on an idle machine.
const MOST_MICROS: u64 = 150_000;
