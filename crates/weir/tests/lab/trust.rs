//! A lab file's commands run only if the user agrees, and `--resume` continues another user's run
//! only with `--trust`.

use crate::support::Sandbox;
use crate::terminal::Terminal;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

/// Returns a lab whose commands leave a file when they run, and provide no tunnel.
fn lab(sandbox: &Sandbox) -> String {
    let ran = sandbox.path("ran");
    format!(
        r#"
name = "foreign"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
rate = "50mbit"
[workload]
kind = "bulk"
from = "near"
to = "far"
[form.full]
duration = "1s"
[[system]]
name = "tunnel"
kind = "external"
congestion = "cubic"
server = "sh -c 'echo ran >> {ran}; exit 3' \u001b[2Khidden"
client = "sh -c 'exit 4'"
connect = "127.0.0.1:7001"
"#,
        ran = ran.display()
    )
}

fn weir(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words);
    command
}

#[test]
fn on_a_terminal_the_user_confirms_the_commands_of_a_lab_file() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("foreign.toml", lab(&sandbox));
    for (answer, runs) in [("n\n", false), ("\n", false), ("\x04", false), ("y\n", true)] {
        let mut terminal = Terminal::open();
        let child = terminal.start(&sandbox, weir(&["lab", "run", "foreign.toml", "--out", "run"]));
        let shown = terminal.await_text("[y/N]");
        assert!(shown.contains("tunnel (server): sh -c 'echo ran"), "{shown}");
        assert!(shown.contains("tunnel (client): sh -c 'exit 4'"), "{shown}");
        // A command must not be able to clear the line that shows it.
        assert!(shown.contains(r"\u{1b}[2Khidden") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!sandbox.path("ran").exists(), "a command ran before the answer");
        terminal.write(answer);
        let (status, shown) = terminal.end(child);
        assert_eq!(status.code(), Some(1), "{answer:?}: {shown}");
        assert_eq!(sandbox.path("ran").exists(), runs, "{answer:?}: {shown}");
        assert_eq!(sandbox.path("run").exists(), runs, "{answer:?}: {shown}");
        assert_eq!(shown.contains("nothing was run"), !runs, "{answer:?}: {shown}");
    }
}

#[test]
fn the_flag_trust_skips_the_question() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("foreign.toml", lab(&sandbox));
    let terminal = Terminal::open();
    let words = ["lab", "run", "foreign.toml", "--out", "run", "--trust"];
    let child = terminal.start(&sandbox, weir(&words));
    let (_, shown) = terminal.end(child);
    assert!(sandbox.path("ran").exists(), "{shown}");
    assert!(!shown.contains("[y/N]"), "{shown}");
}

/// Without a terminal nobody can answer the question, so a script that runs another user's file
/// needs `--trust`.
#[test]
fn without_a_terminal_no_command_runs_without_the_flag_trust() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("foreign.toml", lab(&sandbox));
    let output = sandbox.weir(&["lab", "run", "foreign.toml", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("tunnel (server): sh -c 'echo ran"), "{output:?}");
    assert!(output.stderr.contains("add --trust"), "{output:?}");
    assert!(!sandbox.path("ran").exists() && !sandbox.path("run").exists(), "{output:?}");
    sandbox.weir(&["lab", "run", "foreign.toml", "--out", "run", "--trust"]);
    assert!(sandbox.path("ran").exists());
}

/// The question must show axis values that become part of a command, both in the lab file's
/// commands and in files that the lab writes.
#[test]
fn the_question_shows_the_values_of_axes_in_commands() {
    let Some(sandbox) = Sandbox::new() else { return };
    let value = format!("safe; touch {}", sandbox.path("ran").display());
    let text = lab(&sandbox)
        .replace("[[link]]", &format!("[axes]\nmode = [\"safe\", \"{value}\"]\n[[link]]"))
        .replace("echo ran >> ", "echo {mode} ")
        .replace("client = \"sh -c 'exit 4'\"", "client = \"sh {files}/run\"")
        + "files = { \"run\" = \"echo {mode}\" }\n";
    sandbox.write("foreign.toml", text);
    let output = sandbox.weir(&["lab", "run", "foreign.toml", "--out", "run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for shown in [
        format!("tunnel (server): sh -c 'echo {value}"),
        format!("tunnel (file run): echo {value}\n"),
        "tunnel (file run): echo safe\n".to_owned(),
    ] {
        assert!(output.stderr.contains(&shown), "{shown}: {}", output.stderr);
    }
    assert!(!sandbox.path("ran").exists());
}

/// A question must not scroll a command away.
#[test]
fn more_commands_than_a_user_reads_need_trust() {
    let Some(sandbox) = Sandbox::new() else { return };
    let values: Vec<String> = (0..300).map(|number| format!("\"{number}\"")).collect();
    let text = lab(&sandbox)
        .replace("[[link]]", &format!("[axes]\nmode = [{}]\n[[link]]", values.join(", ")))
        .replace("exit 4", "exit 4 {mode}");
    sandbox.write("foreign.toml", text);
    let terminal = Terminal::open();
    let child = terminal.start(&sandbox, weir(&["lab", "run", "foreign.toml", "--out", "run"]));
    let (status, shown) = terminal.end(child);
    assert_eq!(status.code(), Some(1), "{shown}");
    assert!(shown.contains("301 commands") && shown.contains("add --trust"), "{shown}");
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_question_that_cannot_be_shown_does_not_count_as_agreement() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("foreign.toml", lab(&sandbox));
    let terminal = Terminal::open();
    let script = format!("'{}' lab run foreign.toml 2>said", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let child = terminal.start(&sandbox, command);
    let (status, _) = terminal.end(child);
    assert_eq!(status.code(), Some(1));
    assert!(sandbox.read("said").contains("add --trust"), "{}", sandbox.read("said"));
    assert!(!sandbox.path("ran").exists());
}

/// A lab in virtual time, where no command runs.
const SIMULATED: &str = r#"
name = "simulated"
hosts = ["left", "right"]
[[link]]
between = ["left", "right"]
rate = "20mbit"
rtt = "20ms"
[workload]
kind = "flows"
from = "left"
to = "right"
flows = 1
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;

fn begun(sandbox: &Sandbox) {
    sandbox.write("simulated.toml", SIMULATED);
    let output = sandbox.weir(&["sim", "run", "simulated.toml", "--out", "run"]);
    assert!(output.status.success(), "{output:?}");
}

fn resume(sandbox: &Sandbox, words: &[&str]) -> crate::support::CommandOutput {
    sandbox.weir(&[&["sim", "run", "simulated.toml", "--resume", "run"], words].concat())
}

fn give_away(path: &Path) {
    chown(path, Some(4_242), None).unwrap();
}

#[test]
fn a_run_of_another_user_is_continued_only_with_trust() {
    let Some(sandbox) = Sandbox::new() else { return };
    begun(&sandbox);
    for foreign in ["run", "run/lab.toml", "run/run.toml", "run/journal.jsonl"] {
        give_away(&sandbox.path(foreign));
        let output = resume(&sandbox, &[]);
        assert_eq!(output.status.code(), Some(2), "{foreign}: {output:?}");
        assert!(output.stderr.contains("belongs to user 4242"), "{foreign}: {output:?}");
        assert!(output.stderr.contains("--trust"), "{foreign}: {output:?}");
        chown(sandbox.path(foreign), Some(0), None).unwrap();
    }
    give_away(&sandbox.path("run"));
    let output = resume(&sandbox, &["--trust"]);
    assert!(output.status.success(), "{output:?}");
}

/// Through a symbolic link in a run directory root would write to the link's target.
#[test]
fn a_symbolic_link_in_a_run_directory_is_not_followed() {
    let Some(sandbox) = Sandbox::new() else { return };
    begun(&sandbox);
    sandbox.write("outside", "{\"not\": \"ours\"}\n");
    for name in ["journal.jsonl", "lab.toml", "run.toml"] {
        let (file, kept) = (sandbox.path("run").join(name), sandbox.path("kept"));
        std::fs::rename(&file, &kept).unwrap();
        symlink(if name == "journal.jsonl" { "../outside" } else { "../kept" }, &file).unwrap();
        let output = resume(&sandbox, &["--trust"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        assert!(output.stderr.contains("is a symbolic link"), "{name}: {output:?}");
        std::fs::rename(&kept, &file).unwrap();
    }
    for name in [".run.toml.new", "results.json", "report.html"] {
        let file = sandbox.path("run").join(name);
        let _ = std::fs::remove_file(&file);
        symlink("../outside", &file).unwrap();
    }
    let output = resume(&sandbox, &["--trust"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.read("outside"), "{\"not\": \"ours\"}\n");
    // A new run in a directory with a symbolic link does not follow the link either.
    std::fs::create_dir(sandbox.path("new")).unwrap();
    symlink("../outside", sandbox.path("new/.run.toml.new")).unwrap();
    let output = sandbox.weir(&["sim", "run", "simulated.toml", "--out", "new"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.read("outside"), "{\"not\": \"ours\"}\n");
}
