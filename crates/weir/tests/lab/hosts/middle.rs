//! A third host between the ends emulates the link of the file.

use super::*;

/// A transfer over a link that the host `middle` emulates, at two losses of the link.
fn bulk() -> String {
    let text = lab("", 1).replace("kind = \"command\"", "kind = \"bulk\"");
    let text = text.replace("kind = \"tcp\"", "kind = \"tcp\"\ncongestion = \"cubic\"");
    over_middle(&text)
        .replace("rtt = \"4ms\"", "rtt = \"4ms\"\nloss = \"{loss}\"")
        .replace("[workload]", "[axes]\nloss = [\"0%\", \"1%\"]\n[workload]")
}

fn over_middle(text: &str) -> String {
    let link =
        "on = \"middle\"\ninterfaces = [\"left\", \"right\"]\nrate = \"20mbit\"\nrtt = \"4ms\"";
    let middle = "[host.middle]\nssh = \"middle\"\nconfig = \"config\"\n[[link]]";
    text.replace("direct = true", link).replace("[[link]]", middle)
}

impl Hosts {
    /// Returns the packet sockets and the promiscuous interfaces of the middle.
    fn listeners_of_middle(&self) -> (usize, String) {
        let read = || {
            let sockets = fs::read_to_string("/proc/thread-self/net/packet").unwrap();
            let shown = Command::new("ip").args(["-details", "link", "show"]).output().unwrap();
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            let promiscuous = shown.lines().filter(|line| line.contains(" promiscuity "));
            let counts = promiscuous.filter_map(|line| {
                let rest = line.split_once(" promiscuity ")?.1;
                rest.split_whitespace().next().map(str::to_owned)
            });
            Ok((sockets.lines().skip(1).count(), counts.collect::<Vec<_>>().concat()))
        };
        self.hosts[2].inside.run(read).unwrap()
    }

    /// Waits until the middle has neither an emulated link nor anything else of a lab.
    fn assert_middle_is_free(&self) {
        self.assert_nothing_is_left();
        await_some("the end of the emulated link", || {
            let (sockets, promiscuous) = self.listeners_of_middle();
            (sockets == 0 && promiscuous.chars().all(|count| count == '0')).then_some(())
        });
    }
}

#[test]
fn a_host_in_the_middle_emulates_the_link_and_the_plan_is_the_same_as_in_namespaces() {
    let Some(hosts) = Hosts::with_middle() else { return };
    hosts.sandbox.write("lab.toml", bulk());
    let metrics = ["goodput_mbit_s", "lateness_us.mean"];
    let (output, results) = hosts.sandbox.measure(&["lab.toml", "--trust"], &metrics);
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        // The link carries 20 Mbit/s, and the cables themselves carry gigabits.
        let goodput = cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap();
        assert!((0.1..=100.0).contains(&goodput), "{cell}");
    }
    let environment = &results["environment"];
    assert_eq!(environment["world"], "real machines");
    assert_eq!(environment["hosts"]["middle"]["place"], "ssh middle");
    assert_eq!(environment["hosts"]["middle"]["emulates_links_on"], "left right");
    assert!(environment["clocks_of_turns"]["middle"].is_null());
    let notes = results["notes"].to_string();
    assert!(notes.contains("middle emulates the link between left and right"), "{notes}");
    assert!(output.stderr.contains("left right"), "{output:?}");
    hosts.assert_middle_is_free();
    let output = hosts.run(&["--out", "namespaces", "--namespaces"]);
    assert!(hosts.sandbox.path("namespaces/results.json").exists(), "{output:?}");
    let steps = |run: &str| -> Vec<String> {
        let step = |line: &String| {
            let one: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", one["system"], one["axes"], one["block"])
        };
        hosts.sandbox.journal(run).iter().map(step).collect()
    };
    assert_eq!(steps("run").len(), 4);
    assert_eq!(steps("run"), steps("namespaces"));
    let of = |run: &str, fact: &str| hosts.sandbox.results(run)["environment"][fact].clone();
    for fact in ["lab_sha256", "seed"] {
        assert_eq!(of("run", fact), of("namespaces", fact));
    }
}

#[test]
fn a_machine_in_the_middle_that_cannot_emulate_the_link_is_refused_before_the_run() {
    let Some(hosts) = Hosts::with_middle() else { return };
    let middle = &hosts.hosts[2].inside;
    let ip = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let run = || Ok(Command::new("ip").args(&words).status().unwrap().success());
        assert!(middle.run(run).unwrap(), "{words:?}");
    };
    let refused = |text: &str, reason: &str| {
        hosts.sandbox.write("lab.toml", text);
        let output = hosts.run(&["--out", "run"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let line = output.stderr.lines().find(|line| line.starts_with("middle: "));
        assert!(line.is_some_and(|line| line.contains(reason)), "{reason}: {output:?}");
        assert!(!hosts.sandbox.path("run").exists());
        hosts.assert_middle_is_free();
    };
    let text = over_middle(&lab(QUICK, 1));
    refused(&text.replace("\"right\"", "\"rigth\""), "it has no interface rigth");
    refused(&text.replace("rtt =", "mtu = 1400\nrtt ="), "left has an MTU of 1500");
    add(middle, "right", [10, 9, 7, 1]);
    refused(&text, "right has the address 10.9.7.1");
    ip(&["address", "flush", "dev", "right"]);
    ip(&["link", "set", "left", "down"]);
    refused(&text, "left is down");
    ip(&["link", "set", "left", "up"]);
    // The lab names the interface `other`, which the path between the hosts does not pass.
    host::connect((&hosts.hosts[0].inside, "other"), (middle, "other"), 1500).unwrap();
    let (other, quick) = (text.replace("\"left\"", "\"other\""), ["--out", "run"]);
    hosts.sandbox.write(
        "lab.toml",
        other.replace("ready = \"log up\"", "ready = \"log up\"\ntimeout = \"1s\""),
    );
    let output = hosts.run(&quick);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let failed = hosts.sandbox.results("run")["cells"].to_string();
    assert!(failed.contains("no packet of the link client-server passed middle"), "{failed}");
    hosts.assert_middle_is_free();
}

#[test]
fn a_lost_machine_in_the_middle_costs_one_turn_and_leaves_no_emulated_link() {
    let Some(hosts) = Hosts::with_middle() else { return };
    // The client sends a packet over the link: a turn without packets there fails.
    let slow = slow(&hosts).replace("sh -c '", "bash -c 'echo > /dev/udp/{server}/9; ");
    hosts.sandbox.write("lab.toml", over_middle(&changing(lab(&slow, 1))));
    for agent_is_killed in [false, true] {
        let _ = fs::remove_file(hosts.sandbox.path("gate"));
        let _ = fs::remove_dir_all(hosts.sandbox.path("run"));
        let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
        await_some("a turn", || {
            hosts.programs().iter().any(|(_, line)| line.starts_with("sleep")).then_some(())
        });
        assert_ne!(hosts.listeners_of_middle().0, 0);
        hosts.sandbox.write("gate", "");
        let agent = hosts.agent_of(2);
        kill(if agent_is_killed { agent } else { parent(agent) });
        await_some("the end of the emulated link", || {
            (hosts.listeners_of_middle().0 == 0).then_some(())
        });
        for (pid, line) in hosts.programs() {
            if line.starts_with("sleep") {
                kill(pid);
            }
        }
        let output = running.end();
        let results = hosts.sandbox.results("run");
        assert_undisturbed(&results, 1);
        let notes = results["notes"].to_string();
        assert!(notes.contains("the connection to a host was lost"), "{notes} {output:?}");
        hosts.assert_middle_is_free();
    }
}
