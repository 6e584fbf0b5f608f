//! However a lab ends, it must leave no process, interface, queue or file behind.

use crate::support::{Sandbox, await_some, relay};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Returns a lab with a transfer by the kernel and a transfer through programs. One of the programs
/// starts a daemon in a separate session, forked twice.
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
    /// While the lab builds the first network.
    SetUp,
    InMidTransfer,
    /// When a program has just ended, and the lab reads results and removes the network.
    TearDown,
    /// The given time after the lab's start.
    After(Duration),
}

/// Starts the lab and sends it `signals` at the given moment.
fn ended_at(
    sandbox: &Sandbox,
    moment: Moment,
    run: &str,
    signals: &[&str],
) -> crate::support::CommandOutput {
    let running = sandbox.start(&["lab", "run", "endings.toml", "--trust", "--out", run]);
    let pid = running.pid();
    match moment {
        Moment::SetUp => {
            await_some("a namespace", || {
                let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
                let mut names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
                names.any(|name| name.to_string_lossy().starts_with("net:")).then_some(())
            });
        }
        // This moment may lie in the first transfer, or in the transfer through the programs.
        Moment::InMidTransfer => {
            sandbox.await_process("sleep");
            await_some("a transfer", || (!sandbox.running(CLIENT).is_empty()).then_some(()));
        }
        Moment::TearDown => {
            await_some("a transfer", || (!sandbox.running(CLIENT).is_empty()).then_some(()));
            await_some("its end", || sandbox.running(CLIENT).is_empty().then_some(()));
        }
        Moment::After(time) => std::thread::sleep(time),
    }
    signals.iter().for_each(|signal| running.signal(signal));
    running.end()
}

#[test]
fn a_killed_lab_leaves_nothing() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("endings.toml", lab());
    let mut moments = vec![Moment::SetUp, Moment::InMidTransfer, Moment::TearDown];
    // Most failures occur around a fork, so most kills are near forks.
    let mut seed = 0x9e37_79b9_u64;
    for latest in [120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 300, 300, 300, 300, 3000, 3000]
    {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        moments.push(Moment::After(Duration::from_millis((seed >> 33) % latest)));
    }
    for (number, moment) in moments.into_iter().enumerate() {
        let output = ended_at(&sandbox, moment, &format!("run{number}"), &["KILL"]);
        assert_eq!(output.status.signal(), Some(9), "{moment:?}: {output:?}");
        assert_eq!(sandbox.leftovers(), [""; 0], "{moment:?}");
    }
}

#[test]
fn an_interrupted_lab_prints_how_to_resume_and_leaves_nothing() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("endings.toml", lab());
    let endings = [
        ("INT", Moment::SetUp),
        ("INT", Moment::InMidTransfer),
        ("INT", Moment::TearDown),
        ("TERM", Moment::InMidTransfer),
        ("HUP", Moment::InMidTransfer),
    ];
    for (number, (signal, moment)) in endings.into_iter().enumerate() {
        let run = format!("run{number}");
        let output = ended_at(&sandbox, moment, &run, &[signal]);
        let what = format!("SIG{signal} {moment:?}: {output:?}");
        assert_eq!(output.status.code(), Some(1), "{what}");
        let advice = format!("weir lab run endings.toml --trust --resume {run}");
        assert!(output.stderr.contains(&advice), "{what}");
        assert!(output.stderr.contains("interrupted"), "{what}");
        assert_eq!(output.stdout, "", "{what}");
        assert!(!sandbox.path(&run).join("results.json").exists(), "{what}");
        assert_eq!(sandbox.leftovers(), [""; 0], "{what}");
    }
}

#[test]
fn a_second_signal_ends_a_lab_at_once_and_leaves_nothing() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("endings.toml", lab());
    for (number, moment) in [Moment::SetUp, Moment::InMidTransfer].into_iter().enumerate() {
        let output = ended_at(&sandbox, moment, &format!("run{number}"), &["INT", "TERM"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(sandbox.leftovers(), [""; 0]);
    }
}

/// A cleanup must keep folders that only resemble a run's folder, and folders that another run
/// uses.
#[test]
fn unrelated_folders_and_folders_of_running_labs_are_not_removed() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("endings.toml", lab());
    let mine = ["weir-lab-4194305", "weir-lab-mine", "weir-lab-"];
    for name in mine {
        std::fs::create_dir(sandbox.path("tmp").join(name)).unwrap();
        std::fs::write(sandbox.path("tmp").join(name).join("precious"), "").unwrap();
    }
    ended_at(&sandbox, Moment::InMidTransfer, "first", &["KILL"]);
    ended_at(&sandbox, Moment::InMidTransfer, "second", &["INT"]);
    let mut left = sandbox.leftovers_once();
    left.sort();
    let mut expected = mine.map(|name| format!("temporary {name}"));
    expected.sort();
    assert_eq!(left, expected);
}
