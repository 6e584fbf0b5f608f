//! `weir accel` as root beside other users, whose files, links and locks must neither mislead nor
//! stop the command.

use crate::test_machine::transfer::accel;
use crate::test_machine::{CommandOutput, TestMachine, available};
use std::io::{BufRead as _, BufReader};
use std::process::Child;

const AS_NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const BPF: &str = "/sys/fs/bpf";

fn nobody(machine: &TestMachine, words: &[&str]) -> CommandOutput {
    machine.run("setpriv", &[&AS_NOBODY[..], words].concat())
}

#[track_caller]
fn root(machine: &TestMachine, script: &str) {
    let output = machine.run("sh", &["-c", script]);
    assert_eq!(output.code, Some(0), "{script}: {}", output.stderr);
}

/// Starts a process that prints one line once it holds its lock.
fn holder(machine: &TestMachine, program: &str, words: &[&str]) -> Child {
    let mut child = machine.start(program, words);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn victim(machine: &TestMachine) -> String {
    machine.run("cat", &["/run/victim/file"]).stdout
}

#[test]
fn disable_does_not_follow_the_link_of_another_user() {
    let Some(machine) = TestMachine::new() else { return };
    root(&machine, "mkdir /run/victim && echo kept > /run/victim/file && chmod 1777 /sys/fs/bpf");
    let link = "/sys/fs/bpf/weir-accel";
    assert_eq!(nobody(&machine, &["ln", "-s", "/run/victim", link]).code, Some(0));
    let output = machine.weir(&["accel", "disable"]);
    assert_eq!(victim(&machine), "kept\n", "{}", output.stderr);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("others can write there (mode 1777)"), "{}", output.stderr);
    assert!(output.stderr.contains("chmod 0700 /sys/fs/bpf"), "{}", output.stderr);

    // Only root can write to the directory again, but the link is still there.
    root(&machine, "chmod 0700 /sys/fs/bpf");
    let message = accel(&machine, &["disable"]);
    assert!(message.contains(&format!("{link} is not of weir accel")), "{message}");
    assert_eq!(victim(&machine), "kept\n");
    assert_eq!(machine.status()["state"], "off");
    let output = machine.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("it is not a directory"), "{}", output.stderr);
    assert!(!available().contains("tcpa"));
    root(&machine, "rm /sys/fs/bpf/weir-accel");
    accel(&machine, &["enable", "tcpa", "--all"]);
    accel(&machine, &["disable"]);
    assert_eq!((machine.pinned(), victim(&machine)), (String::new(), "kept\n".to_owned()));
}

#[test]
fn settings_are_not_written_through_the_link_of_another_user() {
    let Some(machine) = TestMachine::new() else { return };
    root(&machine, "mkdir /run/victim && echo kept > /run/victim/file && chmod 1777 /run");
    let link = ["ln", "-s", "/run/victim/file", "/run/weir-accel.json.new"];
    assert_eq!(nobody(&machine, &link).code, Some(0));
    let output = machine.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(victim(&machine), "kept\n", "{}", output.stderr);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("chmod 0755 /run"), "{}", output.stderr);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn a_lock_held_by_another_user_blocks_no_command() {
    let Some(machine) = TestMachine::new() else { return };
    root(&machine, "chmod 0755 /sys/fs/bpf");
    let lock = ["flock", "--no-fork", BPF, "sh", "-c", "echo held; exec sleep 600"];
    let child = holder(&machine, "setpriv", &[&AS_NOBODY[..], &lock].concat());
    let output = machine.run("timeout", &["120", env!("CARGO_BIN_EXE_weir"), "accel", "status"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    end(child);
    for _ in 0..2 {
        // The first turn finds no lock file; the second turn finds the lock file of a killed
        // command.
        let output = nobody(&machine, &["flock", "--nonblock", "/run/weir-accel.lock", "true"]);
        assert_ne!(output.code, Some(0));
        root(&machine, "umask 077 && touch /run/weir-accel.lock");
    }
    accel(&machine, &["status"]);
    assert_eq!(machine.run("ls", &["/run"]).stdout, "");
}

#[test]
fn the_lock_file_of_another_user_is_not_used() {
    let Some(machine) = TestMachine::new() else { return };
    for (script, problem) in [
        ("touch /run/weir-accel.lock && chown 65534 /run/weir-accel.lock", "belongs to user 65534"),
        ("touch /run/weir-accel.lock && chmod 666 /run/weir-accel.lock", "others can lock it"),
        ("ln -s /run/victim /run/weir-accel.lock", "it is not a file"),
        ("mkdir /run/weir-accel.lock", "it is not a file"),
    ] {
        root(&machine, script);
        let output = machine.weir(&["accel", "status"]);
        assert_eq!(output.code, Some(1), "{script}: {}", output.stderr);
        assert!(output.stderr.contains(problem), "{script}: {}", output.stderr);
        assert!(output.stderr.contains("/run/weir-accel.lock"), "{script}: {}", output.stderr);
        root(&machine, "rm -r /run/weir-accel.lock && test ! -e /run/victim");
    }
}

#[test]
fn an_error_names_the_process_that_holds_the_lock() {
    let Some(machine) = TestMachine::new() else { return };
    let script = "umask 077; exec 9>>/run/weir-accel.lock; flock 9; echo $$ >&9; echo held; \
                  exec sleep 600";
    let child = holder(&machine, "sh", &["-c", script]);
    let output = machine.weir(&["accel", "status"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let message = format!("process {} has held /run/weir-accel.lock for 10 s", child.id());
    assert!(output.stderr.contains(&message), "{}", output.stderr);
    end(child);
    accel(&machine, &["status"]);
    assert_eq!(machine.run("ls", &["/run"]).stdout, "");
}

#[test]
fn foreign_entries_in_the_bpf_folder_are_reported_and_do_not_stop_disable() {
    let Some(machine) = TestMachine::new() else { return };
    accel(&machine, &["enable", "tcpa", "--all"]);
    let script = "cd /sys/fs/bpf/weir-accel && mkdir theirs && chown 65534 theirs && mkdir roots && \
                  ln -s /run link && mkdir /run/empty";
    root(&machine, script);
    let message = accel(&machine, &["disable"]);
    for name in ["theirs", "roots", "link"] {
        let path = format!("/sys/fs/bpf/weir-accel/{name} is not of weir accel");
        assert!(message.contains(&path), "{message}");
    }
    assert!(!available().contains("tcpa"));
    assert_eq!(machine.status()["state"], "off");
    assert_eq!(machine.run("ls", &["/sys/fs/bpf/weir-accel"]).stdout, "link\nroots\ntheirs\n");
    assert_eq!(machine.run("ls", &["/run"]).stdout, "empty\n");

    accel(&machine, &["enable", "tcpa", "--all"]);
    assert_eq!(machine.status()["state"], "on");
    assert_eq!(machine.transfer(5901, &[]).0, "tcpa");
    accel(&machine, &["update"]);
    accel(&machine, &["disable"]);
    root(&machine, "cd /sys/fs/bpf/weir-accel && rmdir theirs roots && rm link");
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}

#[test]
fn directories_of_another_user_are_reported_and_not_removed() {
    let Some(machine) = TestMachine::new() else { return };
    root(&machine, "chmod 1777 /sys/fs/bpf");
    let names = ["weir-accel", "weir-accel-new", "weir-caqm"];
    for name in names {
        let path = format!("{BPF}/{name}/inside");
        assert_eq!(nobody(&machine, &["mkdir", "-p", &path]).code, Some(0));
    }
    root(&machine, "chmod 0700 /sys/fs/bpf");
    let message = accel(&machine, &["disable"]);
    for name in names {
        assert!(message.contains(&format!("{BPF}/{name} is not of weir accel")), "{message}");
    }
    assert_eq!(machine.status()["state"], "off");
    let output = machine.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("it belongs to user 65534"), "{}", output.stderr);
    assert_eq!(machine.pinned(), "weir-accel\nweir-accel-new\nweir-caqm\n");
    root(&machine, "rm -r /sys/fs/bpf/weir-*");
    accel(&machine, &["enable", "tcpa", "--all"]);
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
}
