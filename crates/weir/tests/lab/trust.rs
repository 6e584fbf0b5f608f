//! A lab file's commands run only with the user's agreement, and another user's run is continued
//! only with `--trust`.

use crate::support::World;
use crate::terminal::Terminal;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

/// Its commands leave a trace, and are not a tunnel.
fn lab(world: &World) -> String {
    let ran = world.path("ran");
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
fn on_a_terminal_a_person_decides() {
    let Some(world) = World::new() else { return };
    world.write("foreign.toml", lab(&world));
    for (answer, runs) in [("n\n", false), ("\n", false), ("\x04", false), ("y\n", true)] {
        let mut terminal = Terminal::open();
        let child = terminal.start(&world, weir(&["lab", "run", "foreign.toml", "--out", "run"]));
        let shown = terminal.await_text("[y/N]");
        assert!(shown.contains("tunnel (server): sh -c 'echo ran"), "{shown}");
        assert!(shown.contains("tunnel (client): sh -c 'exit 4'"), "{shown}");
        // A command cannot clear the line that shows it.
        assert!(shown.contains(r"\u{1b}[2Khidden") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!world.path("ran").exists(), "a command ran before the answer");
        terminal.write(answer);
        let (status, shown) = terminal.end(child);
        assert_eq!(status.code(), Some(1), "{answer:?}: {shown}");
        assert_eq!(world.path("ran").exists(), runs, "{answer:?}: {shown}");
        assert_eq!(world.path("run").exists(), runs, "{answer:?}: {shown}");
        assert_eq!(shown.contains("nothing was run"), !runs, "{answer:?}: {shown}");
    }
}

#[test]
fn trust_skips_the_question() {
    let Some(world) = World::new() else { return };
    world.write("foreign.toml", lab(&world));
    let terminal = Terminal::open();
    let words = ["lab", "run", "foreign.toml", "--out", "run", "--trust"];
    let child = terminal.start(&world, weir(&words));
    let (_, shown) = terminal.end(child);
    assert!(world.path("ran").exists(), "{shown}");
    assert!(!shown.contains("[y/N]"), "{shown}");
}

/// Scripts call it in this way.
#[test]
fn without_a_terminal_the_commands_are_shown_and_run() {
    let Some(world) = World::new() else { return };
    world.write("foreign.toml", lab(&world));
    let said = world.weir(&["lab", "run", "foreign.toml", "--out", "run"]);
    assert!(said.stderr.contains("tunnel (server): sh -c 'echo ran"), "{said:?}");
    assert!(world.path("ran").exists(), "{said:?}");
}

#[test]
fn a_question_that_cannot_be_shown_is_not_taken_for_agreed() {
    let Some(world) = World::new() else { return };
    world.write("foreign.toml", lab(&world));
    let terminal = Terminal::open();
    let script = format!("'{}' lab run foreign.toml 2>said", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let child = terminal.start(&world, command);
    let (status, _) = terminal.end(child);
    assert_eq!(status.code(), Some(1));
    assert!(world.read("said").contains("add --trust"), "{}", world.read("said"));
    assert!(!world.path("ran").exists());
}

/// In virtual time, where no command runs.
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

fn begun(world: &World) {
    world.write("simulated.toml", SIMULATED);
    let said = world.weir(&["sim", "run", "simulated.toml", "--out", "run"]);
    assert!(said.status.success(), "{said:?}");
}

fn resume(world: &World, words: &[&str]) -> crate::support::Said {
    world.weir(&[&["sim", "run", "simulated.toml", "--resume", "run"], words].concat())
}

fn give_away(path: &Path) {
    chown(path, Some(4_242), None).unwrap();
}

#[test]
fn a_run_of_another_user_is_continued_only_with_trust() {
    let Some(world) = World::new() else { return };
    begun(&world);
    for foreign in ["run", "run/lab.toml", "run/run.toml", "run/journal.jsonl"] {
        give_away(&world.path(foreign));
        let said = resume(&world, &[]);
        assert_eq!(said.status.code(), Some(1), "{foreign}: {said:?}");
        assert!(said.stderr.contains("belongs to user 4242"), "{foreign}: {said:?}");
        assert!(said.stderr.contains("--trust"), "{foreign}: {said:?}");
        chown(world.path(foreign), Some(0), None).unwrap();
    }
    give_away(&world.path("run"));
    let said = resume(&world, &["--trust"]);
    assert!(said.status.success(), "{said:?}");
}

/// A link in a run directory would make root write to the link's target.
#[test]
fn no_link_leads_out_of_a_run() {
    let Some(world) = World::new() else { return };
    begun(&world);
    world.write("outside", "{\"not\": \"ours\"}\n");
    for name in ["journal.jsonl", "lab.toml", "run.toml"] {
        let (file, kept) = (world.path("run").join(name), world.path("kept"));
        std::fs::rename(&file, &kept).unwrap();
        symlink(if name == "journal.jsonl" { "../outside" } else { "../kept" }, &file).unwrap();
        let said = resume(&world, &["--trust"]);
        assert_eq!(said.status.code(), Some(1), "{name}: {said:?}");
        assert!(said.stderr.contains("is a symbolic link"), "{name}: {said:?}");
        std::fs::rename(&kept, &file).unwrap();
    }
    for name in [".run.toml.new", "results.json", "report.html"] {
        let file = world.path("run").join(name);
        let _ = std::fs::remove_file(&file);
        symlink("../outside", &file).unwrap();
    }
    let said = resume(&world, &["--trust"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(world.read("outside"), "{\"not\": \"ours\"}\n");
    // A new run in such a directory does not follow the link either.
    std::fs::create_dir(world.path("new")).unwrap();
    symlink("../outside", world.path("new/.run.toml.new")).unwrap();
    let said = world.weir(&["sim", "run", "simulated.toml", "--out", "new"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(world.read("outside"), "{\"not\": \"ours\"}\n");
}
