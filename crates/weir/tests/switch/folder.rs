//! The folder of a switch's sockets, prepared by another user.

use super::test_switch::{TestSwitch, run, sandbox};
use crate::support::{CommandOutput, Sandbox};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testing::Need;

const BRIDGE: [&str; 2] = ["--bridge", "br0"];
const SOCKET: &str = "run/weir-switch.ctl";

fn directory(path: &Path, mode: u32, owner: u32) {
    std::fs::create_dir(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), None).unwrap();
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        testing::skip(Need::Root);
    }
    is_root
}

/// Checks that neither a switch nor a command uses the folder, and that nothing is created there.
fn refused(sandbox: &Sandbox, part: &str) {
    let before = std::fs::read_dir(sandbox.path("run")).unwrap().count();
    let ended = run(sandbox, &BRIDGE).end();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains(part), "{ended:?}");
    assert_eq!(std::fs::read_dir(sandbox.path("run")).unwrap().count(), before);
    for words in [&["call", "version"][..], &["show"], &["add-flow", "br0", "actions=drop"]] {
        let ended = command(sandbox, words);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains(part) && ended.stdout.is_empty(), "{ended:?}");
    }
}

fn command(sandbox: &Sandbox, words: &[&str]) -> CommandOutput {
    let options = ["--rundir", "run", "--timeout", "0.7"];
    sandbox.weir(&[&["switch", words[0]], &options[..], &words[1..]].concat())
}

/// Calls `answer` with each connection until the test ends.
fn impostor(sandbox: &Sandbox, answer: impl Fn(UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(sandbox.path(SOCKET)).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
}

/// Reads a whole request, and answers it.
fn reply(mut stream: UnixStream, bytes: &[u8]) {
    stream.read_to_end(&mut Vec::new()).unwrap();
    // The write fails if the client has given up.
    let _ = stream.write_all(bytes);
}

#[test]
fn a_folder_that_others_can_change_is_not_used() {
    if !is_root() {
        return;
    }
    for (mode, owner) in [(0o777, 0), (0o1777, 0), (0o757, 0), (0o733, 0), (0o775, 0), (0o775, 7)] {
        let Some(sandbox) = sandbox() else { return };
        directory(&sandbox.path("run"), mode, owner);
        impostor(&sandbox, |stream| reply(stream, br#"{"id":0,"result":"x","error":null}"#));
        let owned = format!("belongs to user {owner}");
        refused(&sandbox, if owner == 0 { "can be changed by others" } else { &owned });
    }
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    if !is_root() {
        return;
    }
    for (mode, owner) in [(0o700, 65_534), (0o755, 1_000), (0o500, 4_000_000)] {
        let Some(sandbox) = sandbox() else { return };
        directory(&sandbox.path("run"), mode, owner);
        impostor(&sandbox, |stream| reply(stream, br#"{"id":0,"result":"x","error":null}"#));
        refused(&sandbox, &format!("belongs to user {owner}"));
    }
}

#[test]
fn a_folder_through_a_link_or_in_a_foreign_directory_is_not_used() {
    if !is_root() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    directory(&sandbox.path("real"), 0o700, 0);
    symlink("real", sandbox.path("run")).unwrap();
    refused(&sandbox, "is no directory");
    std::fs::remove_file(sandbox.path("run")).unwrap();
    std::fs::remove_dir(sandbox.path("real")).unwrap();

    directory(&sandbox.path("theirs"), 0o755, 1_000);
    directory(&sandbox.path("theirs/run"), 0o700, 0);
    directory(&sandbox.path("open"), 0o777, 0);
    directory(&sandbox.path("open/run"), 0o700, 0);
    symlink(sandbox.home(), sandbox.path("link")).unwrap();
    lchown(sandbox.path("link"), Some(1_000), None).unwrap();
    directory(&sandbox.path("run"), 0o700, 0);
    for (folder, part) in [
        ("theirs/run", "theirs is a directory of user 1000"),
        ("theirs/new", "theirs is a directory of user 1000"),
        ("open/run", "open can be changed by others (mode 0777)"),
        ("link/run", "link is a symbolic link of user 1000"),
        ("run/../open/new", "open can be changed by others (mode 0777)"),
    ] {
        for words in [&["run", "--bridge", "br0"][..], &["call", "version"]] {
            let words = [&["switch", words[0], "--rundir", folder], &words[1..]].concat();
            let ended = sandbox.weir(&words);
            assert!(!ended.status.success() && ended.stderr.contains(part), "{folder}: {ended:?}");
        }
    }
    assert!(!sandbox.path("theirs/new").exists() && !sandbox.path("open/new").exists());
}

#[test]
fn a_process_of_another_user_gets_no_command() {
    if !is_root() {
        return;
    }
    for program in ["setpriv", "/usr/bin/python3"] {
        if !testing::is_installed(program) {
            return testing::skip(Need::Program(program));
        }
    }
    let Some(sandbox) = sandbox() else { return };
    directory(&sandbox.path("run"), 0o777, 0);
    std::fs::set_permissions(sandbox.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = "import socket, sys\n\
                   s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
                   print('listening', flush=True)\n\
                   while True:\n c, _ = s.accept(); print('got', c.recv(9999), flush=True); c.close()\n";
    let mut server = Command::new("setpriv");
    server.args(["--reuid=1000", "--clear-groups", "python3", "-c", program]);
    // The user may not run a Python in root's home directory.
    server.arg(sandbox.path(SOCKET)).env("PATH", "/usr/bin:/bin");
    let server = sandbox.start_command(server);
    crate::support::await_some("the impostor", || {
        server.output_so_far().0.contains("listening").then_some(())
    });
    // Only root can write to the folder again, but the socket stays.
    std::fs::set_permissions(sandbox.path("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for words in [&["call", "version"][..], &["del-flows", "br0"], &["show", "--json"]] {
        let ended = command(&sandbox, words);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("belongs to user 1000"), "{ended:?}");
    }
    server.signal("KILL");
    let said = server.end().stdout;
    assert!(!said.contains("version") && !said.contains("method"), "{said}");
}

#[test]
fn control_characters_of_a_reply_do_not_reach_the_terminal() {
    let Some(sandbox) = sandbox() else { return };
    std::fs::create_dir(sandbox.path("run")).unwrap();
    let evil = "a\u{1b}]0;title\u{7}\r\u{9b}2J\u{202e}b\nc\td";
    let texts = [evil.to_owned(), serde_json::json!({"name": evil, "n": [1]}).to_string()];
    for text in texts {
        for field in ["result", "error"] {
            let _ = std::fs::remove_file(sandbox.path(SOCKET));
            let document = serde_json::json!({"id": 0, field: text}).to_string();
            impostor(&sandbox, move |stream| reply(stream, document.as_bytes()));
            for words in [
                &["call", "version"][..],
                &["call", "--json", "version"],
                &["show"],
                &["show", "--json"],
                &["dump-flows", "br0"],
                &["dump-flows", "br0", "--json"],
                &["dump-ports", "br0"],
                &["dump-ports", "br0", "--json"],
                &["add-flow", "br0", "actions=drop"],
                &["reload"],
                &["reload", "--json"],
                &["port", "add", "br0", "p", "null"],
                &["top", "--count", "1", "--interval", "0.05"],
            ] {
                let mut words = [&["switch"], words].concat();
                // The words after the command of `call` belong to the switch's command.
                let place = if words[1] == "call" { 2 } else { words.len() };
                words.splice(place..place, ["--rundir", "run", "--timeout", "5"]);
                let ended = sandbox.weir(&words);
                for out in [&ended.stdout, &ended.stderr] {
                    let obeyed = |c: char| c.is_control() && !"\n\t".contains(c) || c == '\u{202e}';
                    assert!(!out.contains(obeyed), "{words:?}: {out:?}");
                }
            }
        }
    }
}

#[test]
fn a_command_gives_up_if_a_switch_does_not_answer() {
    let Some(sandbox) = sandbox() else { return };
    std::fs::create_dir(sandbox.path("run")).unwrap();
    // The first impostor sends nothing, the second a byte now and then, and the third does not read
    // a long request.
    let silent = |stream: UnixStream| std::mem::forget(stream);
    let slow = |stream: UnixStream| {
        let mut stream = stream;
        std::thread::spawn(move || {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    };
    let rules = "priority=1,ip,nw_dst=10.0.0.1 actions=drop\n".repeat(100_000);
    sandbox.write("rules", rules);
    for answer in [Box::new(silent) as Box<dyn Fn(UnixStream) + Send>, Box::new(slow)] {
        let _ = std::fs::remove_file(sandbox.path(SOCKET));
        impostor(&sandbox, answer);
        for words in [&["call", "version"][..], &["show"], &["add-flows", "br0", "rules"]] {
            let ended = command(&sandbox, words);
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            let part = "did not complete its reply within 0.7 s";
            assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
        }
    }
}

#[test]
fn a_command_gives_up_if_the_switch_is_stopped() {
    let Some(sandbox) = sandbox() else { return };
    let switch = TestSwitch::start(sandbox, &BRIDGE);
    switch.running.signal("STOP");
    let ended = command(&switch.sandbox, &["show"]);
    switch.running.signal("CONT");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("continue it"), "{ended:?}");
    assert!(switch.weir(&["show"]).contains("br0"));
    switch.end();
}
