//! The workload `command`: a command that works, and commands that fail, hang, print too much or
//! leave programs behind.

use crate::support::{CommandOutput, Sandbox, await_some, is_installed};
use serde_json::Value;
use testing::Attempt;

fn run(sandbox: &Sandbox, workload: &str) -> (CommandOutput, Value) {
    sandbox.write("command.toml", lab(workload, ""));
    let _ = std::fs::remove_dir_all(sandbox.path("run"));
    let output = sandbox.weir(&["lab", "run", "command.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    (output, results["cells"][0].clone())
}

/// Runs a lab with this workload, and returns the reason why its cell failed.
#[track_caller]
fn reason(sandbox: &Sandbox, workload: &str) -> String {
    let (output, cell) = run(sandbox, workload);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
    cell["failed"].as_str().unwrap_or_else(|| panic!("{cell}")).to_owned()
}

#[test]
fn a_command_and_its_server_are_measured_by_the_numbers_that_they_print() {
    let Some(sandbox) = Sandbox::new() else { return };
    for program in ["curl", "python3"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let (_, cell) = run(
        &sandbox,
        "client = \"curl -s -o /dev/null -w '{{\\\"page\\\": %{{time_total}}, \\\"code\\\": %{{http_code}}}}' http://{server}/\"\n\
         server = \"python3 -m http.server 80\"\nready = \"port 80\"\n\
         metrics.page = { json = \"/page\", unit = \"s\", better = \"less\" }\n\
         metrics.code = { pattern = '\"code\": (number)', unit = \"status\" }",
    );
    assert_eq!(cell["failed"], Value::Null, "{cell}");
    let metrics = &cell["metrics"];
    let median =
        |name: &str| metrics[name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {cell}"));
    assert_eq!(median("own.code"), 200.0, "{cell}");
    assert!(median("seconds") >= median("own_cost.page"), "{cell}");
    assert_eq!(metrics["own_cost.page"]["unit"], "s");
    assert!(median("cpu_seconds.client") > 0.0 && median("cpu_seconds.server") >= 0.0, "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_command_that_fails_or_hangs_is_a_failed_repeat_with_its_last_lines() {
    let Some(sandbox) = Sandbox::new() else { return };
    let said = reason(&sandbox, "client = \"false\"");
    assert!(said.contains("`false` ended with exit status 1: it printed nothing"), "{said}");
    let said = reason(&sandbox, "client = \"sh -c 'echo one; echo two >&2; exit 4'\"");
    assert!(said.contains("exit status 4: two"), "{said}");
    let said = reason(&sandbox, "client = \"sleep 1000\"\ntimeout = \"300ms\"");
    assert!(said.contains("`sleep 1000` did not end within its timeout of 300ms"), "{said}");
    // On a stalled machine the shell may take longer to print its last lines.
    testing::undisturbed("last words of a server", |_| {
        let said = reason(
            &sandbox,
            "client = \"true\"\nserver = \"sh -c 'echo waiting; sleep 1000'\"\nready = \"port 80\"\ntimeout = \"300ms\"",
        );
        match said.contains("not ready within 300ms: nothing listens on port 80; waiting") {
            true => Attempt::Right(()),
            false => Attempt::Wrong(said),
        }
    });
    let said = reason(
        &sandbox,
        "client = \"true\"\nserver = \"sh -c 'sleep 1000 & exit 0'\"\nready = \"log ready\"",
    );
    assert!(said.contains("ended with exit status 0 (a server stays in the foreground"), "{said}");
    // A daemon ends with the command that started the daemon.
    let (_, cell) = run(&sandbox, "client = \"sh -c 'setsid sleep 1000 & exit 0'\"");
    assert_eq!(cell["failed"], Value::Null, "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
    let said = reason(&sandbox, "client = \"sh -c 'printf \\\"\\\\033[2Jred\\\" >&2; exit 3'\"");
    assert!(said.contains(r"exit status 3: \x1b[2Jred"), "{said}");
}

#[test]
fn a_server_that_ends_with_its_client_has_its_whole_cpu_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (_, cell) = run(
        &sandbox,
        "client = \"sh -c 'touch last; while test -e last; do sleep 0.01; done'\"\n\
         server = \"sh -c 'echo up; until test -e last; do sleep 0.01; done; rm last'\"\n\
         ready = \"log up\"",
    );
    assert_eq!(cell["failed"], Value::Null, "{cell}");
    assert!(cell["metrics"]["cpu_seconds.server"]["median"].is_number(), "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_last_lines_of_a_gigabyte_of_output_are_kept() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (_, cell) = run(
        &sandbox,
        "client = \"sh -c 'head -c 1000000000 /dev/zero; echo; echo rate: 7'\"\ntimeout = \"300s\"\n\
         metrics.rate = { pattern = \"rate: (number)\" }\nmetrics.whole = { json = \"/a\" }",
    );
    assert_eq!(cell["metrics"]["own.rate"]["median"], 7.0, "{cell}");
    let missing = cell["missing"].to_string();
    assert!(missing.contains("own.whole") && missing.contains("1000000009 bytes"), "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_figure_that_the_output_lacks_is_missing_with_the_last_line() {
    let Some(sandbox) = Sandbox::new() else { return };
    let pattern = "metrics.rate = { pattern = \"rate: (number)\" }";
    for (client, printed) in [
        ("sh -c 'echo rate: seven; echo >&2 done'", "its last line is `rate: seven`"),
        ("sh -c 'echo >&2 done'", "its last line is `done`"),
        ("true", "it printed nothing"),
    ] {
        let (_, cell) = run(&sandbox, &format!("client = \"{client}\"\n{pattern}"));
        assert_eq!(cell["failed"], Value::Null, "{cell}");
        let reason = cell["missing"][0]["reason"].as_str().unwrap_or_default();
        let expected = format!("no line of its output has `rate: (number)`; {printed}");
        assert!(reason.ends_with(&expected), "{cell}");
    }
}

#[test]
fn a_placeholder_becomes_one_word_and_commands_are_shown_before_they_run() {
    let Some(sandbox) = Sandbox::new() else { return };
    let axis = "[axes]\nword = [\"a b; touch hit\"]\n";
    sandbox.write("words.toml", lab("client = \"test {word} = 'a b; touch hit'\"", axis));
    let refused = sandbox.weir(&["lab", "run", "words.toml"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let shown = "workload (client): test 'a b; touch hit' = 'a b; touch hit'";
    assert!(refused.stderr.contains(shown), "{refused:?}");
    let output = sandbox.weir(&["lab", "run", "words.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    output.assert_measured(&results);
    assert!(!sandbox.path("hit").exists());
    sandbox.write("wrong.toml", lab("client = \"curl {sever}\"", ""));
    let output = sandbox.weir(&["lab", "validate", "wrong.toml"]);
    assert!(output.stderr.contains("did you mean `server`"), "{output:?}");
    sandbox.write("wrong.toml", lab("client = \"a\"\nserver = \"b\"", ""));
    let output = sandbox.weir(&["lab", "validate", "wrong.toml"]);
    assert!(output.stderr.contains("`ready` is missing here"), "{output:?}");
    sandbox.write("wrong.toml", lab("client = \"curl {server} | wc -c\"", ""));
    let output = sandbox.weir(&["lab", "validate", "wrong.toml"]);
    assert!(output.stderr.contains("`|` is for a shell: write sh -c"), "{output:?}");
}

#[test]
fn changes_and_settings_of_a_system_are_applied_and_undone() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mark = sandbox.path("mark");
    let changes = format!(
        "congestion = \"reno\"\nsysctl = {{ \"net.ipv4.tcp_sack\" = \"0\" }}\n\
         changes = [{{ on = \"client\", do = \"touch {0}\", undo = \"rm {0}\" }}]",
        mark.display()
    );
    let check = "client = \"sh -c 'test -e mark && cat /proc/sys/net/ipv4/tcp_sack && \
                 grep -q reno /proc/sys/net/ipv4/tcp_congestion_control'\"\nmetrics.sack = { pattern = \"(number)\" }";
    let text = lab(check, "").replace("kind = \"tcp\"", &format!("kind = \"tcp\"\n{changes}"));
    sandbox.write("changes.toml", &text);
    let output = sandbox.weir(&["lab", "run", "changes.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    output.assert_measured(&results);
    assert_eq!(results["cells"][0]["metrics"]["own.sack"]["median"], 0.0);
    assert!(!mark.exists());
    // When the lab is killed, its guardian process takes the change back.
    sandbox.write("changes.toml", text.replace(check, "client = \"sleep 1000\""));
    let running = sandbox.start(&["lab", "run", "changes.toml", "--trust", "--out", "killed"]);
    sandbox.await_process("sleep");
    assert!(mark.exists());
    running.signal("KILL");
    running.end();
    await_some("the end of the change", || (!mark.exists()).then_some(()));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

fn lab(workload: &str, axes: &str) -> String {
    format!(
        "name = \"command\"\nhosts = [\"client\", \"server\"]\n{axes}[[link]]\nbetween = [\"client\", \"server\"]\n\
         direct = true\n[workload]\nkind = \"command\"\nfrom = \"client\"\nto = \"server\"\n{workload}\n\
         [[system]]\nname = \"only\"\nkind = \"tcp\"\n[form.full]\nduration = \"1s\"\n"
    )
}
