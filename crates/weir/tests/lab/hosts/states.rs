//! `[state]` between real machines: the host of the role has the state during its turns, and the
//! state is undone however the run ends.

use super::*;

/// Returns a lab whose client prints its own setting. The server's state writes the server's
/// setting into the file `seen`.
fn states(hosts: &Hosts, workload: &str, keys: &str) -> String {
    let text = lab(workload, 2);
    let (head, rest) = text.split_once("[[system]]").unwrap();
    let (_, form) = rest.split_once("[form.full]").unwrap();
    let seen = hosts.sandbox.path("seen").display().to_string();
    format!(
        "{head}[state]\n{keys}\n[state.after]\nsysctl = {{ \"{SACK}\" = \"0\" }}\ncongestion = \"reno\"\n\
         command = \"sh -c 'cat /proc/sys/net/ipv4/tcp_sack >> {seen}'\"\n\
         undo = \"sh -c 'echo undone >> {seen}'\"\n[form.full]{form}"
    )
}

fn seen(hosts: &Hosts) -> Vec<String> {
    let text = fs::read_to_string(hosts.sandbox.path("seen")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_host_of_the_role_has_the_state_during_its_turns_only() {
    let Some(hosts) = Hosts::new() else { return };
    let text = states(&hosts, QUICK, "end = \"{role}\"");
    hosts.sandbox.write("lab.toml", text + "[axes]\nrole = [\"client\", \"server\"]\n");
    let output = hosts.run(&["--out", "run"]);
    let results = hosts.sandbox.results("run");
    output.assert_measured(&results);
    for cell in results["cells"].as_array().unwrap() {
        let is_changed = cell["system"] == "after" && cell["axes"]["role"] == "client";
        let sack = if is_changed { 0.0 } else { 1.0 };
        assert_eq!(cell["metrics"]["own.sack"]["median"], sack, "{cell}");
    }
    let seen = seen(&hosts);
    assert!(seen.len() >= 8 && seen.chunks(2).all(|pair| pair == ["0", "undone"]), "{seen:?}");
    hosts.assert_nothing_is_left();
}

#[test]
fn a_state_is_undone_if_its_agent_or_its_controller_is_killed() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", states(&hosts, &slow(&hosts), "end = \"server\""));
    for is_agent in [true, false] {
        let _ = fs::remove_file(hosts.sandbox.path("gate"));
        let _ = fs::remove_file(hosts.sandbox.path("seen"));
        let out = if is_agent { "agent" } else { "controller" };
        let words = ["lab", "run", "lab.toml", "--trust", "--systems", "after", "--out", out];
        let running = hosts.sandbox.start(&words);
        await_some("a turn in the state", || {
            let sleeps = hosts.programs().iter().any(|(_, line)| line.starts_with("sleep"));
            (sleeps && !seen(&hosts).is_empty()).then_some(())
        });
        assert_eq!((hosts.setting(0, SACK).as_str(), hosts.setting(1, SACK).as_str()), ("1", "0"));
        if is_agent {
            kill(hosts.agent_of(1));
            await_some("the undo", || seen(&hosts).contains(&"undone".to_owned()).then_some(()));
        }
        running.signal("KILL");
        running.end();
        hosts.assert_nothing_is_left();
        assert_eq!(seen(&hosts).last().map(String::as_str), Some("undone"));
        hosts.sandbox.write("gate", "");
        let output = hosts.sandbox.weir(&["lab", "run", "--resume", out, "--trust"]);
        output.assert_measured(&hosts.sandbox.results(out));
        hosts.assert_nothing_is_left();
    }
}

#[test]
fn a_state_that_needs_the_machine_of_the_lab_is_refused() {
    let Some(hosts) = Hosts::new() else { return };
    for (key, reason) in [
        ("offload = { tso = \"off\" }", "ethtool -K eth0 tso off"),
        ("load = [\"caqm\"]", "a state loads `caqm` into this machine's kernel only"),
    ] {
        let text = states(&hosts, QUICK, "end = \"both\"");
        hosts.sandbox.write("lab.toml", text.replace("congestion = \"reno\"", key));
        let output = hosts.run(&["--out", "run"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(reason), "{output:?}");
        assert!(!hosts.sandbox.path("run").exists());
    }
}
