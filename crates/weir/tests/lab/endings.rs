//! A lab leaves nothing behind however it ends: no process, no interface, no queue, no file.

use crate::support::{World, await_some, relay};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// A transfer by the kernel and one through programs. One program starts a daemon in a separate
/// session, forked twice.
fn lab() -> String {
    LAB.replace("RELAY", &relay())
}

const LAB: &str = r#"
name = "endings"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
rate = "50mbit"
delay = "2ms"
queue = "droptail:1bdp"
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
[[system]]
name = "relays"
kind = "external"
congestion = "cubic"
server = "sh -c '(setsid sleep 1000 &) & exec RELAY {server}:7000 127.0.0.1:{port}'"
client = "RELAY 127.0.0.1:7001 {server}:7000"
connect = "127.0.0.1:7001"
[form.full]
repeats = 20
duration = "1s"
"#;

const CLIENT: &[&str] = &["perf", "client"];

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While the first network is built.
    SetUp,
    InMidTransfer,
    /// When a program has just ended: the lab reads results and removes the network.
    TearDown,
    /// Any time.
    After(Duration),
}

/// Starts the lab and sends it `signals` at the moment.
fn ended_at(world: &World, moment: Moment, run: &str, signals: &[&str]) -> crate::support::Said {
    let running = world.start(&["lab", "run", "endings.toml", "--out", run]);
    let pid = running.pid();
    match moment {
        Moment::SetUp => {
            await_some("a namespace", || {
                let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
                let mut names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
                names.any(|name| name.to_string_lossy().starts_with("net:")).then_some(())
            });
        }
        // The first transfer, or the transfer through the programs.
        Moment::InMidTransfer => {
            world.await_process("sleep");
            await_some("a transfer", || (!world.running(CLIENT).is_empty()).then_some(()));
        }
        Moment::TearDown => {
            await_some("a transfer", || (!world.running(CLIENT).is_empty()).then_some(()));
            await_some("its end", || world.running(CLIENT).is_empty().then_some(()));
        }
        Moment::After(time) => std::thread::sleep(time),
    }
    signals.iter().for_each(|signal| running.signal(signal));
    running.end()
}

#[test]
fn a_killed_lab_leaves_nothing() {
    let Some(world) = World::new() else { return };
    world.write("endings.toml", lab());
    let mut moments = vec![Moment::SetUp, Moment::InMidTransfer, Moment::TearDown];
    // Most failures occur around a fork, so most tries are near the forks.
    let mut seed = 0x9e37_79b9_u64;
    for latest in [120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 300, 300, 300, 300, 3000, 3000]
    {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        moments.push(Moment::After(Duration::from_millis((seed >> 33) % latest)));
    }
    for (number, moment) in moments.into_iter().enumerate() {
        let said = ended_at(&world, moment, &format!("run{number}"), &["KILL"]);
        assert_eq!(said.status.signal(), Some(9), "{moment:?}: {said:?}");
        assert_eq!(world.leftovers(), [""; 0], "{moment:?}");
    }
}

#[test]
fn an_interrupted_lab_prints_how_to_resume_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    world.write("endings.toml", lab());
    let endings = [
        ("INT", Moment::SetUp),
        ("INT", Moment::InMidTransfer),
        ("INT", Moment::TearDown),
        ("TERM", Moment::InMidTransfer),
        ("HUP", Moment::InMidTransfer),
    ];
    for (number, (signal, moment)) in endings.into_iter().enumerate() {
        let run = format!("run{number}");
        let said = ended_at(&world, moment, &run, &[signal]);
        let what = format!("SIG{signal} {moment:?}: {said:?}");
        assert_eq!(said.status.code(), Some(1), "{what}");
        let advice = format!("weir lab run endings.toml --resume {run}");
        assert!(said.stderr.contains(&advice), "{what}");
        assert!(said.stderr.contains("interrupted"), "{what}");
        assert_eq!(said.stdout, "", "{what}");
        assert!(!world.path(&run).join("results.json").exists(), "{what}");
        assert_eq!(world.leftovers(), [""; 0], "{what}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    world.write("endings.toml", lab());
    for (number, moment) in [Moment::SetUp, Moment::InMidTransfer].into_iter().enumerate() {
        let said = ended_at(&world, moment, &format!("run{number}"), &["INT", "TERM"]);
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert_eq!(world.leftovers(), [""; 0]);
    }
}

/// Folders that only resemble a run's, and those that another run needs, stay.
#[test]
fn other_peoples_folders_stay() {
    let Some(world) = World::new() else { return };
    world.write("endings.toml", lab());
    let mine = ["weir-lab-4194305", "weir-lab-mine", "weir-lab-"];
    for name in mine {
        std::fs::create_dir(world.path("tmp").join(name)).unwrap();
        std::fs::write(world.path("tmp").join(name).join("precious"), "").unwrap();
    }
    ended_at(&world, Moment::InMidTransfer, "first", &["KILL"]);
    ended_at(&world, Moment::InMidTransfer, "second", &["INT"]);
    let mut left = world.leftovers_once();
    left.sort();
    let mut expected = mine.map(|name| format!("temporary {name}"));
    expected.sort();
    assert_eq!(left, expected);
}
