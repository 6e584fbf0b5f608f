//! Mistakes in a lab file: every message must name file and line, say what to do, and suggest a
//! similar valid word. The command creates nothing and has exit status 2.

use crate::support::Sandbox;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const LAB: &str = r#"name = "lab"
hosts = ["client", "server"]
[axes]
loss = ["0%", "1%"]
[[link]]
between = ["client", "server"]
rate = "10mbit"
loss = "{loss}"
queue = "droptail:1bdp"
rtt = "20ms"
[workload]
kind = "bulk"
from = "client"
to = "server"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;

const RELAY: &str = r#"
[[system]]
name = "relay"
kind = "external"
server = "relay {server}:{port}"
client = "relay"
"#;

/// Mistakes, each with the text of the valid file to replace, and the text's replacement.
const NONSENSE: &[(&str, &str, &str)] = &[
    ("a key at the top", "hosts =", "hots ="),
    ("a strange key at the top", "[axes]", "zzzzzz = 1\n[axes]"),
    ("a key of a link", "rate = ", "rat = "),
    ("a key of a direction", "rtt = \"20ms\"", "forward = { dely = \"10ms\" }"),
    ("a key of the workload", "from =", "form ="),
    ("a key of a system", "congestion =", "congestoin ="),
    ("a key of a form", "duration =", "durration ="),
    ("a key of view", "[form.full]", "[view]\nmetrik = \"goodput_mbit_s\"\n[form.full]"),
    (
        "a key of compare",
        "[form.full]",
        "[compare]\nbaseline = \"cubic\"\nmetrics = []\ntreshold = \"3%\"\n[form.full]",
    ),
    ("a key of a reference", "[form.full]", "[[reference]]\nsystm = \"cubic\"\n[form.full]"),
    ("a number for a text", "rate = \"10mbit\"", "rate = 10"),
    ("a text for a list", "hosts = [\"client\", \"server\"]", "hosts = \"client\""),
    ("a list of numbers", "loss = [\"0%\", \"1%\"]", "loss = [0, 1]"),
    ("a text for a number", "duration = \"1s\"", "duration = \"1s\"\nrepeats = \"many\""),
    ("a number that is negative", "duration = \"1s\"", "duration = \"1s\"\nrepeats = -3"),
    ("a huge number", "duration = \"1s\"", "duration = \"1s\"\nrepeats = 99999999999999"),
    ("no repeats", "duration = \"1s\"", "duration = \"1s\"\nrepeats = 0"),
    ("a rate of nothing", "10mbit", "0mbit"),
    ("a rate without its unit", "10mbit", "10"),
    ("a rate of a strange unit", "10mbit", "10mbyte"),
    ("a negative rate", "10mbit", "-10mbit"),
    ("a huge rate", "10mbit", "99999999999999999999gbit"),
    ("a loss above all", "\"1%\"", "\"140%\""),
    ("a loss that is no number", "\"1%\"", "\"NaN%\""),
    ("a negative delay", "rtt = \"20ms\"", "delay = \"-5ms\""),
    ("a delay without its unit", "rtt = \"20ms\"", "delay = \"5\""),
    ("a round trip and a delay", "rtt = \"20ms\"", "rtt = \"20ms\"\ndelay = \"10ms\""),
    ("an unknown queue", "droptail:1bdp", "doptail:1bdp"),
    ("a queue of no size", "droptail:1bdp", "droptail:0B"),
    ("a queue of a strange size", "droptail:1bdp", "droptail:manybdp"),
    ("a queue of a strange setting", "droptail:1bdp", "codel:tarket=5ms"),
    ("an MTU too small", "rtt = \"20ms\"", "rtt = \"20ms\"\nmtu = 20"),
    ("a host nobody links", "\"server\"]\n[axes]", "\"server\", \"lonely\"]\n[axes]"),
    (
        "a link to an unknown host",
        "between = [\"client\", \"server\"]",
        "between = [\"client\", \"sever\"]",
    ),
    (
        "a link to a host far from any",
        "between = [\"client\", \"server\"]",
        "between = [\"client\", \"xyz\"]",
    ),
    (
        "a link to itself",
        "between = [\"client\", \"server\"]",
        "between = [\"client\", \"client\"]",
    ),
    (
        "a link of three",
        "between = [\"client\", \"server\"]",
        "between = [\"client\", \"server\", \"client\"]",
    ),
    (
        "two links of one pair",
        "[workload]",
        "[[link]]\nbetween = [\"server\", \"client\"]\n[workload]",
    ),
    ("two hosts of one name", "\"server\"]\n[axes]", "\"server\", \"client\"]\n[axes]"),
    (
        "two systems of one name",
        "[form.full]",
        "[[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"bbr\"\n[form.full]",
    ),
    ("two values of one name", "\"0%\", \"1%\"", "\"1%\", \"1%\""),
    ("an unknown placeholder", "\"{loss}\"", "\"{los}\""),
    ("an unknown placeholder far from any", "\"{loss}\"", "\"{zzzzzzz}\""),
    ("a placeholder left open", "\"{loss}\"", "\"{loss\""),
    ("an axis nobody uses", "[axes]", "[axes]\nrate = [\"1mbit\", \"2mbit\"]"),
    (
        "a form's unknown axis",
        "duration = \"1s\"",
        "duration = \"1s\"\ncells = [{ los = [\"1%\"] }]",
    ),
    (
        "a form's unknown value",
        "duration = \"1s\"",
        "duration = \"1s\"\ncells = [{ loss = [\"2%\"] }]",
    ),
    ("a form without cells", "duration = \"1s\"", "duration = \"1s\"\ncells = [{ loss = [] }]"),
    ("an unknown form", "form.full", "form.ful"),
    ("no form", "[form.full]\nduration = \"1s\"\n", ""),
    ("a form too short", "duration = \"1s\"", "duration = \"1ms\""),
    ("a form too long", "duration = \"1s\"", "duration = \"90000000s\""),
    ("a start too long", "duration = \"1s\"", "duration = \"1s\"\nomit = \"3h\""),
    ("no algorithm", "congestion = \"cubic\"\n", ""),
    ("an algorithm that is none", "congestion = \"cubic\"", "congestion = \"\""),
    ("no axis values", "[\"0%\", \"1%\"]", "[]"),
    ("an unknown kind of system", "kind = \"tcp\"", "kind = \"tpc\""),
    ("an unknown kind of workload", "kind = \"bulk\"", "kind = \"bluk\""),
    ("a workload between strangers", "to = \"server\"", "to = \"servr\""),
    ("a workload to itself", "to = \"server\"", "to = \"client\""),
    ("a workload to nobody", "to = \"server\"\n", ""),
    ("two ways to go", "to = \"server\"", "to = \"server\"\nvia = \"loopback\""),
    ("an unknown way", "to = \"server\"", "via = \"loopbak\""),
    ("an unknown way far from any", "to = \"server\"", "via = \"xyz\""),
    ("an unknown placeholder of the way", "to = \"server\"", "via = \"{los}\""),
    ("a way by an axis of other things", "to = \"server\"", "via = \"{loss}\""),
    (
        "a link of the name of another way",
        "between = [\"client\", \"server\"]",
        "name = \"loopback\"\nbetween = [\"client\", \"server\"]",
    ),
    ("a cable with a rate", "rate = \"10mbit\"", "direct = true\nrate = \"10mbit\""),
    ("unknown makers of traffic", "congestion =", "traffic = \"iperf\"\ncongestion ="),
    (
        "makers of traffic of a link",
        "kind = \"bulk\"\nfrom = \"client\"\nto = \"server\"\n[[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"",
        "kind = \"link-accuracy\"\nfrom = \"client\"\nto = \"server\"\n[[system]]\nname = \"emu\"\nkind = \"link\"\ntraffic = \"perf\"",
    ),
    ("an unknown pinning", "to = \"server\"", "to = \"server\"\npin = \"appart\""),
    (
        "a comparison of a stranger",
        "[form.full]",
        "[compare]\nbaseline = \"cubic\"\nsystems = [\"bbr\"]\nmetrics = []\n[form.full]",
    ),
    (
        "a comparison with itself",
        "[form.full]",
        "[[compare]]\nbaseline = \"cubic\"\nmetrics = []\n[[compare]]\nbaseline = \"cubic\"\nsystems = [\"cubic\"]\nmetrics = []\n[form.full]",
    ),
    (
        "a key of the second compare",
        "[form.full]",
        "[[compare]]\nbaseline = \"cubic\"\nmetrics = []\n[[compare]]\nbasline = \"cubic\"\nmetrics = []\n[form.full]",
    ),
    ("a comparison that is none", "[axes]", "compare = 3\n[axes]"),
    ("streams that are no number", "to = \"server\"", "to = \"server\"\nstreams = \"{loss}\""),
    ("streams of nothing", "to = \"server\"", "to = \"server\"\nstreams = 0"),
    (
        "a command of a kernel's TCP",
        "congestion = \"cubic\"",
        "congestion = \"cubic\"\nclient = \"run\"",
    ),
    ("a link to be judged by a transfer", "kind = \"tcp\"", "kind = \"link\""),
    ("no system", "[[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n", ""),
    ("a name like a path", "name = \"lab\"", "name = \"../lab\""),
    ("a host of a strange name", "\"server\"]\n[axes]", "\"ser\\u0000ver\"]\n[axes]"),
    ("a system of a strange name", "name = \"cubic\"", "name = \"cu,bic\""),
    (
        "a setting of the whole machine",
        "[form.full]",
        "[sysctl]\n\"kernel.panic\" = \"1\"\n[form.full]",
    ),
    ("a setting outside", "[form.full]", "[sysctl]\n\"/etc/hostname\" = \"1\"\n[form.full]"),
    (
        "a baseline that is no system",
        "[form.full]",
        "[compare]\nbaseline = \"cubik\"\nmetrics = []\n[form.full]",
    ),
    (
        "a metric that is none",
        "[form.full]",
        "[compare]\nbaseline = \"cubic\"\nmetrics = [\"goodput\"]\n[form.full]",
    ),
    ("a view of no metric", "[form.full]", "[view]\nmetric = \"goodput_mbits\"\n[form.full]"),
    (
        "rows that are no axis",
        "[form.full]",
        "[view]\nmetric = \"goodput_mbit_s\"\nrows = \"lost\"\n[form.full]",
    ),
    ("TOML without its end", "name = \"lab\"", "name = \"lab"),
    ("TOML that is none", "[axes]", "[axes"),
    ("a key twice", "[axes]", "hosts = []\n[axes]"),
];

/// A valid lab without an emulator.
const CABLES: &str = r#"name = "cables"
hosts = ["client", "server"]
[axes]
path = ["loopback", "veth"]
[[link]]
name = "veth"
between = ["client", "server"]
direct = true
mtu = 1500
[workload]
kind = "bulk"
from = "client"
via = "{path}"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;

const NONSENSE_OF_CABLES: &[(&str, &str, &str)] = &[
    ("a cable with a delay", "mtu = 1500", "delay = \"1ms\""),
    ("a cable with a queue", "mtu = 1500", "queue = \"droptail:1MB\""),
    ("a cable with loss one way", "mtu = 1500", "backward.loss = \"1%\""),
    ("a cable that is no yes or no", "direct = true", "direct = \"yes\""),
    ("a cable of a strange MTU", "mtu = 1500", "mtu = 9"),
    ("a way that no link has", "name = \"veth\"\n", ""),
    (
        "two links of one name",
        "[workload]",
        "[[link]]\nname = \"veth\"\nbetween = [\"server\", \"third\"]\n[workload]",
    ),
    (
        "a way that begins elsewhere",
        "\"server\"]\n[axes]\npath = [\"loopback\", \"veth\"]",
        "\"server\", \"third\"]\n[[link]]\nname = \"far\"\nbetween = [\"third\", \"server\"]\ndirect = true\n[axes]\npath = [\"loopback\", \"far\"]",
    ),
    ("no host to go to", "via = \"{path}\"", "to = \"client\""),
    (
        "a cable to be judged",
        "kind = \"bulk\"\nfrom = \"client\"\nvia = \"{path}\"\n[[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"",
        "kind = \"link-accuracy\"\nfrom = \"client\"\nto = \"server\"\n[[system]]\nname = \"emu\"\nkind = \"link\"",
    ),
];

const NONSENSE_OF_PROGRAMS: &[(&str, &str, &str)] = &[
    ("an unknown placeholder", "{port}", "{prot}"),
    ("no client", "client = \"relay\"\n", ""),
    ("an empty command", "client = \"relay\"", "client = \" \""),
    ("a place that is none", "client = \"relay\"", "client = \"relay\"\nconnect = \"nowhere\""),
    ("a quote left open", "client = \"relay\"", "client = \"relay 'a b\""),
];

#[test]
fn mistakes_in_a_lab_file_are_refused_with_file_and_line() {
    let Some(sandbox) = Sandbox::new() else { return };
    let (mut messages, mut wrong) = (String::new(), Vec::new());
    let both = NONSENSE.iter().map(|change| (LAB.to_owned(), change));
    let programs = NONSENSE_OF_PROGRAMS.iter().map(|change| (LAB.to_owned() + RELAY, change));
    let cables = NONSENSE_OF_CABLES.iter().map(|change| (CABLES.to_owned(), change));
    for (sound, (what, old, new)) in both.chain(programs).chain(cables) {
        assert!(sound.contains(old), "{what}: the sound file has no {old}");
        sandbox.write("lab.toml", sound.replacen(old, new, 1));
        let output = sandbox.weir(&["lab", "run", "lab.toml"]);
        writeln!(messages, "{what}:\n  {}", output.stderr.trim_end().replace('\n', "\n  "))
            .unwrap();
        let refused = output.status.code() == Some(2) && output.stdout.is_empty();
        if !refused
            || !output.stderr.starts_with("weir: lab.toml:")
            || sandbox.path("runs").exists()
        {
            wrong.push((what, output));
            let _ = std::fs::remove_dir_all(sandbox.path("runs"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    insta::assert_snapshot!("nonsense", messages);
}

#[test]
fn unreadable_or_malformed_files_are_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("empty.toml", "");
    sandbox.write("binary.toml", b"name = \"lab\"\n\x7fELF\xff\xfe\x00\x01");
    sandbox.write("huge.toml", vec![b'#'; 40 << 20]);
    let axis = |name: char| {
        format!("{name} = [{}]\n", (0..100).map(|n| format!("\"{n}\",")).collect::<String>())
    };
    let axes: String = ('a'..='h').map(axis).collect();
    sandbox.write(
        "cells.toml",
        LAB.replace("[axes]\n", &format!("[axes]\n{axes}"))
            .replace("1bdp", "{a}{b}{c}{d}{e}{f}{g}{h}KB"),
    );
    std::fs::create_dir(sandbox.path("folder.toml")).unwrap();
    let mut messages = String::new();
    let files = [
        "empty.toml",
        "binary.toml",
        "huge.toml",
        "cells.toml",
        "folder.toml",
        "none.toml",
        "/dev/zero",
    ];
    for file in files {
        let output = sandbox.weir(&["lab", "run", file]);
        assert_eq!(output.status.code(), Some(2), "{file}: {output:?}");
        assert!(!sandbox.path("runs").exists(), "{file}: a run directory was created");
        writeln!(messages, "{file}:\n  {}", output.stderr.trim_end().replace('\n', "\n  "))
            .unwrap();
    }
    insta::assert_snapshot!("files", messages);
}

#[test]
fn mistakes_on_the_command_line_are_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("lab.toml", LAB);
    let mut messages = String::new();
    let lines: &[&[&str]] = &[
        &["lab", "run"],
        &["lab", "rum", "lab.toml"],
        &["lab", "run", "quik-tun"],
        &["lab", "run", "lab.toml", "--quik"],
        &["lab", "run", "lab.toml", "--quick", "--smoke"],
        &["lab", "run", "lab.toml", "--repeats", "0"],
        &["lab", "run", "lab.toml", "--repeats", "-1"],
        &["lab", "run", "lab.toml", "--systems", "cubik"],
        &["lab", "run", "lab.toml", "--systems", ""],
        &["lab", "run", "lab.toml", "--out", "a", "--resume", "b"],
        &["lab", "run", "lab.toml", "--resume"],
        &["lab", "show", "quic-tum"],
    ];
    for line in lines {
        let output = sandbox.weir(line);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {output:?}");
        assert_eq!(output.stdout, "", "{line:?}");
        assert!(!sandbox.path("runs").exists(), "{line:?}: a run directory was created");
        writeln!(
            messages,
            "{}:\n  {}",
            line.join(" "),
            output.stderr.trim_end().replace('\n', "\n  ")
        )
        .unwrap();
    }
    insta::assert_snapshot!("command_line", messages);
}

/// The command must report the mistakes found so far even if a later file cannot be read.
#[test]
fn mistakes_are_reported_although_a_later_file_cannot_be_read() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("wrong.toml", LAB.replace("hosts =", "hots ="));
    let output = sandbox.weir(&["lab", "validate", "wrong.toml", "none.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for told in ["wrong.toml:2: ", "cannot read none.toml"] {
        assert!(output.stderr.contains(told), "{told}: {output:?}");
    }
    let output = sandbox.weir(&["lab", "validate", "--json", "wrong.toml", "none.toml"]);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(2), ""), "{output:?}");
}

/// A lab file without mistakes stays valid: the message says that the machine lacks a program.
#[test]
fn validate_prints_the_programs_that_the_machine_lacks() {
    let Some(sandbox) = Sandbox::new() else { return };
    let peer = "\nkind = \"external\"\nserver = \"far-peer -s\"\nclient = \"far-peer -c\"";
    sandbox.write("lab.toml", LAB.replace("\nkind = \"tcp\"\ncongestion = \"cubic\"", peer));
    let validate = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["lab", "validate"]).args(words);
        let empty = sandbox.path("tmp");
        command.env("PATH", &empty).env("WEIR_PEERS", &empty);
        sandbox.start_command(command).end()
    };
    let labs = ["lab.toml", "quic-tun", "conntrack", "tunnel-peers"];
    let output = validate(&labs);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for lab in labs {
        let valid = format!("{lab}: no mistakes found in `");
        assert!(output.stdout.contains(&valid), "{valid}: {output:?}");
    }
    for lacks in [
        "lab.toml:16: system `cubic` cannot run here: `far-peer` is not installed",
        "system `quic-tun` is left out here: `quictun-server` and `quictun-client` are not installed",
        "system `hysteria` is left out here: `hysteria` is not installed",
    ] {
        assert!(output.stderr.contains(lacks), "{lacks}: {output:?}");
    }
    // The labs look for nft in /usr/sbin, too.
    let has_nft = Path::new("/usr/sbin/nft").exists();
    for lacks in [
        "system `nf-conntrack` is left out here: `/usr/sbin/nft` is not installed",
        "`nft` is not installed (apt-get install nftables): ",
    ] {
        assert_eq!(output.stderr.contains(lacks), !has_nft, "{lacks}: {output:?}");
    }
    let document = validate(&["lab.toml", "--json"]);
    assert_eq!(document.status.code(), Some(0), "{document:?}");
    let document: serde_json::Value = serde_json::from_str(&document.stdout).unwrap();
    assert_eq!(document["valid"], true, "{document}");
    let lacks = document["lacking"].to_string();
    assert!(lacks.contains("`far-peer` is not installed"), "{lacks}");
}
