//! A hostile host, whose agent sends arbitrary answers. The lab escapes and bounds the texts of the
//! agent, and writes no file outside the directory of the run.

use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

/// An agent that speaks the protocol and sends false facts. The test replaces `MODE`, `WEIR` and
/// `ROOM`.
const AGENT: &str = r#"#!/usr/bin/env python3
import json, os, re, struct, subprocess, sys
MODE, WEIR, ROOM = "@MODE@", "@WEIR@", "@ROOM@"
EVIL = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>"
folder = sys.argv[sys.argv.index("--folder") + 1]
os.makedirs(ROOM, exist_ok=True)
out = sys.stdout.buffer
def send(answer):
    data = json.dumps(answer).encode()
    out.write(struct.pack(">I", len(data)) + data)
    out.flush()
def disguise(name, text):
    if MODE == "endless-file":
        return "x" * 250000
    text = text.replace('"warnings":[]', '"warnings":[%s]' % json.dumps(EVIL))
    text = re.sub('(kernel_release|cpu_model|virtual_machine) = .*', lambda m: m[1] + " = " + json.dumps(EVIL), text)
    return text
out.write(b"weir-agent\n")
out.flush()
while True:
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        break
    ask = json.loads(sys.stdin.buffer.read(struct.unpack(">I", head)[0]))
    kind, of = (ask, {}) if isinstance(ask, str) else next(iter(ask.items()))
    if kind == "hello":
        send({"hello": {"protocol": 4, "version": EVIL, "sha256": os.path.basename(folder), "weir": "/../weir" + EVIL}})
    elif kind == "facts":
        send({"facts": {"kernel": EVIL * 9000, "architecture": EVIL, "cpus": 4000000000, "root": True,
            "unconfined": EVIL if MODE == "facts" else None, "algorithms": [EVIL] * 5000, "missing_algorithms": [],
            "missing_programs": [EVIL] * 500 if MODE == "facts" else [], "others": [], "port_taken": False,
            "free_mib": 2**64 - 1, "unfit_interfaces": [EVIL] * 500, "sysctls": {EVIL + str(n): EVIL for n in range(5000)}}})
    elif kind == "clock":
        send({"clock": {"nanos": 2**63 - 1}})
    elif kind == "start":
        if "--shard" in of["argv"]:
            subprocess.run([WEIR] + of["argv"][1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        send({"started": {"task": 1}})
    elif kind == "wait":
        code = 0 if MODE != "words" else 3
        end = {"code": code, "signal": None, "took_ns": 2**64 - 1, "cpu_ns": 2**64 - 1}
        send({"ended": {"end": None if MODE == "endless-output" else end}})
    elif kind == "output":
        if MODE == "endless-output":
            send({"output": {"text": "y" * 1900000, "total": 2**63}})
        else:
            text = (EVIL + "\n") * 3000
            send({"output": {"text": text if of["from"] == 0 else "", "total": len(text)}})
    elif kind == "put":
        send({"placed": {"path": ROOM + "/lab.toml"}})
        with open(ROOM + "/lab.toml", "w") as file:
            file.write(of["text"])
    elif kind == "read":
        try:
            text = open(os.path.join(ROOM, of["name"])).read()
        except OSError:
            text = ""
        if text or MODE == "endless-file":
            text = disguise(of["name"], text)
        if MODE != "endless-file":
            text = text.encode()[of["from"]:][:200000].decode()
        send({"read": {"text": text}})
    elif kind == "listens":
        send({"listens": {"yes": False}})
    elif kind == "cpu":
        send({"cpu": {"nanos": 2**64 - 1}})
    elif kind == "set" and MODE == "refusal":
        send({"failed": {"reason": EVIL * 10000}})
    else:
        send("done")
"#;

/// Places the agent on both hosts. Returns the folder that the agent writes to by itself.
fn place(hosts: &Hosts, mode: &str) -> PathBuf {
    let room = hosts.sandbox.path("room");
    let _ = fs::remove_dir_all(&room);
    let text = AGENT
        .replace("@MODE@", mode)
        .replace("@WEIR@", env!("CARGO_BIN_EXE_weir"))
        .replace("@ROOM@", &room.display().to_string());
    hosts.place(|_, at| {
        fs::write(at, &text).unwrap();
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    });
    room
}

/// Lists the files of the sandbox outside the directories of runs.
fn files(hosts: &Hosts) -> BTreeSet<String> {
    let entries = fs::read_dir(hosts.sandbox.home()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| !name.starts_with('.') && !["run", "room"].contains(&name.as_str()))
        .collect()
}

#[track_caller]
fn assert_escaped(text: &str, longest: usize) {
    let is_plain = |c: char| !c.is_control() || c == '\n';
    assert!(text.chars().all(is_plain), "{text:?}");
    assert!(text.len() <= longest, "{} bytes: {:.2000}", text.len(), text);
}

fn assert_run_is_escaped(hosts: &Hosts) {
    for name in ["results.json", "report.md", "report.html", "run.toml", "journal.jsonl"] {
        let text = hosts.sandbox.read(&format!("run/{name}"));
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{name}");
        // JSON inside the page escapes the character `<`.
        assert!(!name.ends_with("html") || !text.contains("<script>alert"), "{name}");
    }
}

#[test]
fn false_facts_from_a_host_are_escaped_and_bounded_in_a_lab() {
    let Some(hosts) = Hosts::new() else { return };
    if !testing::is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let before = files(&hosts);
    for (mode, status, reason) in [
        ("facts", 2, "programs cannot be confined there"),
        ("words", 1, "exit status 3"),
        ("refusal", 1, "alert(1)"),
        ("endless-output", 1, "it sent the reply to another request"),
    ] {
        place(&hosts, mode);
        let _ = fs::remove_dir_all(hosts.sandbox.path("run"));
        let output = hosts.run(&["--out", "run"]);
        assert_eq!(output.status.code(), Some(status), "{mode}: {output:?}");
        let said = output.stderr + &output.stdout;
        assert!(said.contains(reason), "{mode}: {said}");
        assert_escaped(&said, 1 << 20);
        if hosts.sandbox.path("run/results.json").exists() {
            assert_run_is_escaped(&hosts);
        }
        assert_eq!(files(&hosts), before, "{mode}");
        hosts.assert_nothing_is_left();
    }
}

#[test]
fn false_facts_from_a_host_are_escaped_and_bounded_in_a_sweep() {
    let Some(hosts) = Hosts::new() else { return };
    if !testing::is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    // The agent answers within 20 s, and runs a whole part before its answer.
    let grid = faults::GRID.replace("repeats = 2", "repeats = 1").replace("\"20s\"", "\"2s\"");
    hosts.sandbox.write("grid.toml", grid);
    let before = files(&hosts);
    let words = ["sim", "run", "./grid.toml", "--out", "run", "--ssh-config", "config", "--hosts"];
    for (mode, status) in [("endless-file", 2), ("texts", 0)] {
        place(&hosts, mode);
        let output = hosts.sandbox.weir(&[&words[..], &["client"]].concat());
        assert_eq!(output.status.code(), Some(status), "{mode}: {output:?}");
        let said = output.stderr + &output.stdout;
        assert_escaped(&said, 1 << 20);
        match mode {
            "texts" => assert_run_is_escaped(&hosts),
            _ => assert!(said.contains("is too long"), "{said}"),
        }
        assert_eq!(files(&hosts), before, "{mode}");
        hosts.assert_nothing_is_left();
    }
}
