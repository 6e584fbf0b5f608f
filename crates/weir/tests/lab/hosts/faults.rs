//! Faults of hosts: the lab says what happened, nothing stays on a host, and the run that continues
//! has the table of an undisturbed run.

use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// A lab in virtual time that takes each host some seconds.
pub(super) const GRID: &str = "name = \"grid\"\nhosts = [\"a\", \"b\"]\n[axes]\n\
    loss = [\"0%\", \"0.1%\", \"0.5%\", \"1%\"]\n\
    [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100mbit\"\nrtt = \"20ms\"\nloss = \"{loss}\"\n\
    [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
    [[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n\
    [form.full]\nrepeats = 2\nduration = \"20s\"\n";
const SWEEP: [&str; 9] = [
    "sim",
    "run",
    "./grid.toml",
    "--out",
    "spread",
    "--ssh-config",
    "config",
    "--hosts",
    "client,server",
];

/// A fault while two hosts run parts of a lab.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    AgentKilled,
    ConnectionCut,
    DiskFull,
    ControllerKilled,
    HostsUnreachable,
}

impl Hosts {
    pub(super) fn agent_of(&self, number: usize) -> u32 {
        let agent = || {
            let programs = self.programs_of(&self.hosts[number..=number]).into_iter();
            programs.filter(|(_, line)| line.contains("agent --stdio")).map(|(pid, _)| pid).min()
        };
        await_some("an agent", agent)
    }

    /// Fills the small disk of a host.
    fn fill(&self, number: usize) -> PathBuf {
        let sshd = self.hosts[number].sshd.as_ref().unwrap().id();
        let path = PathBuf::from(format!("/proc/{sshd}/root/mnt/fill"));
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[b'x'; 1024]).is_ok() {}
        path
    }

    fn strike(&mut self, fault: Fault, controller: &crate::support::Running) {
        match fault {
            Fault::AgentKilled => kill(self.agent_of(1)),
            Fault::ConnectionCut => kill(parent(self.agent_of(1))),
            Fault::DiskFull => drop(self.fill(1)),
            Fault::ControllerKilled => controller.signal("KILL"),
            Fault::HostsUnreachable => (0..2).for_each(|number| self.stop(number)),
        }
    }
}

#[test]
fn a_host_lost_in_the_middle_changes_no_bit_of_a_lab_in_virtual_time() {
    assert_survives(&[Fault::AgentKilled, Fault::DiskFull]);
}

#[test]
#[ignore = "takes half a minute"]
fn a_fault_in_the_middle_changes_no_bit_of_a_lab_in_virtual_time() {
    let all = [Fault::ConnectionCut, Fault::ControllerKilled, Fault::HostsUnreachable];
    assert_survives(&all);
}

/// Checks the result of a lab on two hosts after each fault.
fn assert_survives(faults: &[Fault]) {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.give_disk(1, "root");
    hosts.sandbox.write("grid.toml", GRID);
    let whole = hosts.sandbox.weir(&["sim", "run", "./grid.toml", "--out", "whole"]);
    assert!(whole.status.success(), "{whole:?}");
    let hash = |sandbox: &Sandbox, run: &str| {
        sandbox.results(run)["environment"]["result_hash"].as_str().unwrap().to_owned()
    };
    let expected = hash(&hosts.sandbox, "whole");
    for fault in faults.iter().copied() {
        let running = hosts.sandbox.start(&SWEEP);
        await_some("a finished part", || {
            let parts = fs::read_dir(hosts.sandbox.path("spread-parts")).ok()?;
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            parts.flatten().map(name).find(|name| name.contains("-of-"))
        });
        hosts.strike(fault, &running);
        let output = running.end();
        let is_over = matches!(fault, Fault::ControllerKilled | Fault::HostsUnreachable);
        assert_eq!(output.status.success(), !is_over, "{fault:?}: {output:?}");
        if fault != Fault::ControllerKilled {
            assert!(output.stderr.contains("server: "), "{fault:?}: {output:?}");
        }
        if fault == Fault::DiskFull {
            assert!(output.stderr.contains("No space left on device"), "{output:?}");
        }
        if fault == Fault::HostsUnreachable {
            (0..2).for_each(|number| hosts.start(number));
        }
        hosts.assert_nothing_is_left();
        if is_over {
            let output = hosts.sandbox.weir(&SWEEP);
            assert!(output.status.success(), "{fault:?}: {output:?}");
            hosts.assert_nothing_is_left();
        }
        assert_eq!(hash(&hosts.sandbox, "spread"), expected, "{fault:?}");
        assert!(!hosts.sandbox.path("spread-parts").exists(), "{fault:?}");
        fs::remove_dir_all(hosts.sandbox.path("spread")).unwrap();
    }
}

#[test]
fn a_full_disk_of_a_host_fails_the_turns_that_write_and_leaves_nothing() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.give_disk(1, "root");
    hosts.sandbox.write("lab.toml", changing(lab(QUICK, 2)));
    let full = hosts.fill(1);
    let output = hosts.run(&["--out", "never"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        output.stderr.contains("server: ") && output.stderr.contains("No space left"),
        "{output:?}"
    );
    assert!(!hosts.sandbox.path("never").exists());
    hosts.assert_nothing_is_left();
    fs::remove_file(&full).unwrap();

    hosts.sandbox.write("lab.toml", changing(lab(&slow(&hosts), 2)));
    hosts.sandbox.write("gate", "");
    let gate = hosts.sandbox.path("gate");
    fs::remove_file(&gate).unwrap();
    let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
    await_some("a turn", || {
        hosts.programs().iter().any(|(_, line)| line.starts_with("sleep")).then_some(())
    });
    let full = hosts.fill(1);
    fs::write(&gate, "").unwrap();
    for (pid, line) in hosts.programs() {
        if line.starts_with("sleep") {
            kill(pid);
        }
    }
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let failed = hosts.sandbox.results("run")["cells"].to_string();
    assert!(failed.contains("writing down a change before it is made"), "{failed}");
    assert!(failed.contains("No space left on device"), "{failed}");
    hosts.assert_nothing_is_left();
    fs::remove_file(&full).unwrap();
    let words = ["lab", "run", "--resume", "run", "--again", "--trust"];
    let output = hosts.sandbox.weir(&words);
    let results = hosts.sandbox.results("run");
    output.assert_measured(&results);
    assert_undisturbed(&results, 2);
    hosts.assert_nothing_is_left();
}

#[test]
fn a_host_without_root_measures_with_its_own_settings_and_refuses_changes() {
    let Some(mut hosts) = Hosts::new() else { return };
    // The user writes and reads files of the sandbox.
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(hosts.sandbox.home());
    hosts.give_disk(1, "tester");
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let output = hosts.run(&["--out", "never"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    if output.stderr.contains("programs cannot be confined there") {
        return testing::skip_because(testing::Need::UserNamespaces, output.stderr);
    }
    assert!(
        output.stderr.contains("server: only root changes kernel settings there"),
        "{output:?}"
    );
    assert!(!hosts.sandbox.path("never").exists());
    hosts.assert_nothing_is_left();
    let setting = format!("sysctl = {{ \"{SACK}\" = \"0\" }}\n");
    hosts.sandbox.write("lab.toml", lab(QUICK, 1).replace(&setting, ""));
    let output = hosts.run(&["--out", "run"]);
    let results = hosts.sandbox.results("run");
    output.assert_measured(&results);
    assert_eq!(results["environment"]["hosts"]["server"]["root"], false);
    hosts.assert_nothing_is_left();
}

/// The connection stays open, but nothing comes through it, as after a cable was pulled.
#[test]
#[ignore = "waits for the timeout of a request, 20 s"]
fn an_agent_behind_a_silent_connection_ends_before_the_turn_is_repeated() {
    let Some(hosts) = Hosts::new() else { return };
    let gate = hosts.sandbox.path("gate");
    let client = format!(
        "client = \"sh -c 'grep -q 1 /proc/sys/net/ipv4/tcp_sack || while ! test -e {}; do sleep 0.05; done; \
         cat /proc/sys/net/ipv4/tcp_sack'\"\ntimeout = \"20s\"\nmetrics.sack = {{ pattern = \"(number)\" }}",
        gate.display()
    );
    hosts.sandbox.write("lab.toml", changing(lab(&client, 3)));
    let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
    await_some("the changed setting", || (hosts.setting(0, SACK) == "0").then_some(()));
    let former = hosts.agent_of(0);
    crate::support::signal(parent(former), "STOP");
    fs::write(&gate, "").unwrap();
    let output = running.end();
    let results = hosts.sandbox.results("run");
    output.assert_measured(&results);
    let notes = results["notes"].to_string();
    assert!(notes.contains("it did not answer within"), "{notes}");
    assert_undisturbed(&results, 3);
    crate::support::signal(parent(former), "CONT");
    hosts.assert_nothing_is_left();
}

#[test]
fn while_a_command_runs_the_lab_sends_no_packet_and_no_second_lab_begins() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", lab(&slow(&hosts), 1));
    let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
    await_some("a turn", || {
        hosts.programs().iter().any(|(_, line)| line.starts_with("sleep")).then_some(())
    });
    let agents = [0, 1].map(|number| hosts.agent_of(number));
    // TCP segments of a host. All segments are of ssh, because nothing else sends segments.
    let segments = |number: usize| {
        let read = || Ok(fs::read_to_string("/proc/thread-self/net/snmp"));
        let text = hosts.hosts[number].inside.run(read).unwrap().unwrap();
        let values = text.lines().filter(|line| line.starts_with("Tcp: ")).nth(1).unwrap();
        let values = values.split_whitespace().skip(10).take(2);
        values.map(|value| value.parse::<u64>().unwrap()).sum::<u64>()
    };
    let ticks = |agent: u32| {
        let stat = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
        let values = stat.rsplit_once(") ").unwrap().1.split_whitespace().skip(11).take(2);
        values.map(|value| value.parse::<u64>().unwrap()).sum::<u64>()
    };
    let now = || ([0, 1].map(segments), agents.map(ticks));
    // The last requests before the command may still be on their way.
    let used = await_some("two seconds without a segment", || {
        let (sent, used) = now();
        std::thread::sleep(Duration::from_secs(2));
        let (sent_after, used_after) = now();
        (sent == sent_after).then(|| [0, 1].map(|number| used_after[number] - used[number]))
    });
    // A tick is 10 ms: one percent of a CPU.
    assert!(used.iter().all(|ticks| *ticks <= 2), "{used:?}");
    hosts.sandbox.write("second.toml", lab(QUICK, 1));
    let words = ["lab", "run", "second.toml", "--trust", "--out", "second"];
    let output = hosts.sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for name in ["client", "server"] {
        let reason = format!("{name}: another lab runs there (its agent is process ");
        assert!(output.stderr.contains(&reason), "{output:?}");
    }
    assert!(!hosts.sandbox.path("second").exists());
    running.signal("INT");
    running.end();
    hosts.assert_nothing_is_left();
}
