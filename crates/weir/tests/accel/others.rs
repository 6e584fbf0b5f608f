//! `weir accel` as root beside other users: their files, links and locks neither mislead nor stop
//! it.

use crate::world::transfer::accel;
use crate::world::{AccelWorld, Said, available};
use std::io::{BufRead as _, BufReader};
use std::process::Child;

const AS_NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
const BPF: &str = "/sys/fs/bpf";

fn nobody(world: &AccelWorld, words: &[&str]) -> Said {
    world.run("setpriv", &[&AS_NOBODY[..], words].concat())
}

#[track_caller]
fn root(world: &AccelWorld, script: &str) {
    let said = world.run("sh", &["-c", script]);
    assert_eq!(said.code, Some(0), "{script}: {}", said.stderr);
}

/// A process that prints one line once it holds its lock.
fn holder(world: &AccelWorld, program: &str, words: &[&str]) -> Child {
    let mut child = world.start(program, words);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn victim(world: &AccelWorld) -> String {
    world.run("cat", &["/run/victim/file"]).stdout
}

#[test]
fn disable_does_not_follow_the_link_of_another_user() {
    let Some(world) = AccelWorld::new() else { return };
    root(&world, "mkdir /run/victim && echo kept > /run/victim/file && chmod 1777 /sys/fs/bpf");
    let link = "/sys/fs/bpf/weir-accel";
    assert_eq!(nobody(&world, &["ln", "-s", "/run/victim", link]).code, Some(0));
    let said = world.weir(&["accel", "disable"]);
    assert_eq!(victim(&world), "kept\n", "{}", said.stderr);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("others can write there (mode 1777)"), "{}", said.stderr);
    assert!(said.stderr.contains("chmod 0700 /sys/fs/bpf"), "{}", said.stderr);

    // The link is still there when only root can write to the directory again.
    root(&world, "chmod 0700 /sys/fs/bpf");
    let told = accel(&world, &["disable"]);
    assert!(told.contains(&format!("{link} is not of weir accel")), "{told}");
    assert_eq!(victim(&world), "kept\n");
    assert_eq!(world.status()["state"], "off");
    let said = world.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("it is not a directory"), "{}", said.stderr);
    assert!(!available().contains("tcpa"));
    root(&world, "rm /sys/fs/bpf/weir-accel");
    accel(&world, &["enable", "tcpa", "--all"]);
    accel(&world, &["disable"]);
    assert_eq!((world.pinned(), victim(&world)), (String::new(), "kept\n".to_owned()));
}

#[test]
fn settings_are_not_written_through_the_link_of_another_user() {
    let Some(world) = AccelWorld::new() else { return };
    root(&world, "mkdir /run/victim && echo kept > /run/victim/file && chmod 1777 /run");
    let link = ["ln", "-s", "/run/victim/file", "/run/weir-accel.json.new"];
    assert_eq!(nobody(&world, &link).code, Some(0));
    let said = world.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(victim(&world), "kept\n", "{}", said.stderr);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("chmod 0755 /run"), "{}", said.stderr);
    assert_eq!(world.pinned(), "");
}

#[test]
fn a_lock_of_another_user_stops_no_command() {
    let Some(world) = AccelWorld::new() else { return };
    root(&world, "chmod 0755 /sys/fs/bpf");
    let lock = ["flock", "--no-fork", BPF, "sh", "-c", "echo held; exec sleep 600"];
    let child = holder(&world, "setpriv", &[&AS_NOBODY[..], &lock].concat());
    let said = world.run("timeout", &["120", env!("CARGO_BIN_EXE_weir"), "accel", "status"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    end(child);
    for _ in 0..2 {
        // With the lock of a killed command, and without one.
        let said = nobody(&world, &["flock", "--nonblock", "/run/weir-accel.lock", "true"]);
        assert_ne!(said.code, Some(0));
        root(&world, "umask 077 && touch /run/weir-accel.lock");
    }
    accel(&world, &["status"]);
    assert_eq!(world.run("ls", &["/run"]).stdout, "");
}

#[test]
fn the_lock_of_another_user_is_not_taken() {
    let Some(world) = AccelWorld::new() else { return };
    for (script, problem) in [
        ("touch /run/weir-accel.lock && chown 65534 /run/weir-accel.lock", "belongs to user 65534"),
        ("touch /run/weir-accel.lock && chmod 666 /run/weir-accel.lock", "others can lock it"),
        ("ln -s /run/victim /run/weir-accel.lock", "it is not a file"),
        ("mkdir /run/weir-accel.lock", "it is not a file"),
    ] {
        root(&world, script);
        let said = world.weir(&["accel", "status"]);
        assert_eq!(said.code, Some(1), "{script}: {}", said.stderr);
        assert!(said.stderr.contains(problem), "{script}: {}", said.stderr);
        assert!(said.stderr.contains("/run/weir-accel.lock"), "{script}: {}", said.stderr);
        root(&world, "rm -r /run/weir-accel.lock && test ! -e /run/victim");
    }
}

#[test]
fn a_command_that_keeps_the_lock_is_named() {
    let Some(world) = AccelWorld::new() else { return };
    let script = "umask 077; exec 9>>/run/weir-accel.lock; flock 9; echo $$ >&9; echo held; \
                  exec sleep 600";
    let child = holder(&world, "sh", &["-c", script]);
    let said = world.weir(&["accel", "status"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let told = format!("process {} has held /run/weir-accel.lock for 10 s", child.id());
    assert!(said.stderr.contains(&told), "{}", said.stderr);
    end(child);
    accel(&world, &["status"]);
    assert_eq!(world.run("ls", &["/run"]).stdout, "");
}

#[test]
fn foreign_entries_are_reported_and_stop_nothing() {
    let Some(world) = AccelWorld::new() else { return };
    accel(&world, &["enable", "tcpa", "--all"]);
    let script = "cd /sys/fs/bpf/weir-accel && mkdir theirs && chown 65534 theirs && mkdir roots && \
                  ln -s /run link && mkdir /run/empty";
    root(&world, script);
    let told = accel(&world, &["disable"]);
    for name in ["theirs", "roots", "link"] {
        let path = format!("/sys/fs/bpf/weir-accel/{name} is not of weir accel");
        assert!(told.contains(&path), "{told}");
    }
    assert!(!available().contains("tcpa"));
    assert_eq!(world.status()["state"], "off");
    assert_eq!(world.run("ls", &["/sys/fs/bpf/weir-accel"]).stdout, "link\nroots\ntheirs\n");
    assert_eq!(world.run("ls", &["/run"]).stdout, "empty\n");

    accel(&world, &["enable", "tcpa", "--all"]);
    assert_eq!(world.status()["state"], "on");
    assert_eq!(world.transfer(5901, &[]).0, "tcpa");
    accel(&world, &["update"]);
    accel(&world, &["disable"]);
    root(&world, "cd /sys/fs/bpf/weir-accel && rmdir theirs roots && rm link");
    accel(&world, &["disable"]);
    assert_eq!(world.pinned(), "");
}

#[test]
fn directories_of_another_user_are_reported_and_stay() {
    let Some(world) = AccelWorld::new() else { return };
    root(&world, "chmod 1777 /sys/fs/bpf");
    let names = ["weir-accel", "weir-accel-new", "weir-caqm"];
    for name in names {
        let path = format!("{BPF}/{name}/inside");
        assert_eq!(nobody(&world, &["mkdir", "-p", &path]).code, Some(0));
    }
    root(&world, "chmod 0700 /sys/fs/bpf");
    let told = accel(&world, &["disable"]);
    for name in names {
        assert!(told.contains(&format!("{BPF}/{name} is not of weir accel")), "{told}");
    }
    assert_eq!(world.status()["state"], "off");
    let said = world.weir(&["accel", "enable", "tcpa", "--all"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("it belongs to user 65534"), "{}", said.stderr);
    assert_eq!(world.pinned(), "weir-accel\nweir-accel-new\nweir-caqm\n");
    root(&world, "rm -r /sys/fs/bpf/weir-*");
    accel(&world, &["enable", "tcpa", "--all"]);
    accel(&world, &["disable"]);
    assert_eq!(world.pinned(), "");
}
