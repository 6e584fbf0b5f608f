//! A run must name all that its results depend on: source, binary, lab file, peers, settings of the
//! kernel, seed, and the algorithm that carried the data.

use crate::support::{Sandbox, await_some, relay};

#[test]
fn a_run_names_its_binary_peers_settings_and_seed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let lab = LAB.replace("RELAY", &relay());
    sandbox.write("named.toml", &lab);
    let run = |out: &str, more: &[&str]| {
        let words = [&["lab", "run", "named.toml", "--trust", "--out", out], more].concat();
        let output = sandbox.weir(&words);
        let results = sandbox.results(out);
        assert!(results["cells"][0]["failed"].is_null(), "{output:?}");
        (results, sandbox.read(&format!("{out}/run.toml")))
    };
    let (results, description) = run("one", &[]);
    let facts = &results["environment"];
    for name in ["weir_sha256", "lab_sha256"] {
        assert_eq!(facts[name].as_str().unwrap().len(), 64, "{name}: {facts}");
    }
    // A build outside a git checkout has no commit.
    assert_eq!(facts["commit"].is_null(), option_env!("WEIR_COMMIT").is_none(), "{facts}");
    assert_eq!(facts["seed"], 5);
    assert!(facts["steal_percent"].is_f64(), "{facts}");
    assert_eq!(facts["host_sysctls"]["net.ipv4.tcp_rmem"], "4096 65536 1048576", "{facts}");
    let peer = &facts["programs"]["relay"];
    assert_eq!(peer["sha256"].as_str().unwrap().len(), 64, "{facts}");
    assert_eq!(peer["version"], "relay 1.2", "{facts}");
    let configuration = &facts["systems"]["relayed"];
    assert!(configuration["server"].as_str().unwrap().contains("{port}"), "{facts}");
    assert_eq!(configuration["files"]["relay.conf"], "window = 64\n", "{facts}");
    // The relay's own algorithm is unknown; the algorithm of the connection to the relay does not
    // count.
    assert!(facts["congestion_control_read_back"].is_null(), "{facts}");
    assert_eq!(results["cells"][0]["metrics"]["steal_percent"]["n"], 1);
    for line in [
        &format!("weir_sha256 = {}", facts["weir_sha256"]),
        &format!("lab_sha256 = {}", facts["lab_sha256"]),
        "seed = 5",
        "[environment.programs.relay]",
        "[environment.systems.relayed.files]",
        "[environment.host_sysctls]",
    ] {
        assert!(description.contains(line), "no {line} in {description}");
    }

    let (seeded, _) = run("two", &["--seed", "8"]);
    assert_eq!(seeded["environment"]["seed"], 8);
    assert_eq!(seeded["environment"]["lab_sha256"], facts["lab_sha256"]);
    let compared = sandbox.weir(&["lab", "compare", "one", "two"]);
    assert!(compared.stdout.contains("note: the seed differs: 5 in one; 8 in two"), "{compared:?}");
    sandbox.write("named.toml", lab.replace("window = 64", "window = 128"));
    run("three", &[]);
    let compared = sandbox.weir(&["lab", "compare", "one", "three"]);
    for note in ["note: the configuration of relayed differs: ", "note: the lab file differs, "] {
        assert!(compared.stdout.contains(note), "{note}: {compared:?}");
    }
    assert!(!compared.stdout.contains("binary of weir"), "{compared:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_resumed_run_keeps_its_seed_and_its_time() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox
        .write("named.toml", LAB.replace("RELAY", &relay()).replace("repeats = 1", "repeats = 9"));
    let words = ["lab", "run", "named.toml", "--trust"];
    let running = sandbox.start(&[&words[..], &["--seed", "77", "--out", "run"]].concat());
    await_some("a finished turn", || (!sandbox.journal("run").is_empty()).then_some(()));
    running.signal("INT");
    let ended = running.end();
    assert!(ended.stderr.contains("--seed 77 --resume run"), "{ended:?}");
    let other = sandbox.weir(&[&words[..], &["--seed", "78", "--resume", "run"]].concat());
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(other.stderr.contains("it was begun with seed 77, not 78"), "{other:?}");
    let first = std::fs::read_to_string(sandbox.path("run/run.toml")).unwrap();
    let of_first = |key: &str| {
        let line = first.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("no {key}: {first}")).trim_matches('"').to_owned()
    };
    // A run must not contain turns of two builds, or of two versions of a peer.
    for (input, said) in
        [("weir's program", "weir's program ("), ("program relay", "program relay (")]
    {
        let line = first.lines().find(|line| line.starts_with(&format!("\"{input}\" = ")));
        let line = line.unwrap_or_else(|| panic!("no {input}: {first}"));
        let changed = format!("\"{input}\" = \"{}\"", "0".repeat(64));
        sandbox.write("run/run.toml", first.replace(line, &changed));
        let refused = sandbox.weir(&[&words[..], &["--resume", "run"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{input}: {refused:?}");
        assert!(refused.stderr.contains(said), "{input}: {refused:?}");
        assert!(refused.stderr.contains("begin a new run"), "{input}: {refused:?}");
    }
    sandbox.write("run/run.toml", &first);
    sandbox.weir(&["lab", "run", "--trust", "--resume", "run"]);
    let results = sandbox.results("run");
    assert_eq!(results["environment"]["seed"], 77);
    // The command that continued the run names neither the seed nor the lab.
    assert_eq!(results["command"], "weir lab run named.toml --seed 77");
    assert_eq!(results["started"], of_first("started"));
    let earlier: f64 = of_first("measured_s").parse().unwrap();
    assert!(earlier > 0.0 && results["duration_s"].as_f64().unwrap() > earlier, "{first}");
}

/// The lab names CUBIC for the connection in front of the tunnel, which runs tcpa itself.
#[test]
fn a_run_over_a_tunnel_names_the_tunnels_algorithm() {
    let Some(sandbox) = Sandbox::new() else { return };
    for lab in ["quic-tun", "tunnel-latency", "tunnel-scale"] {
        let systems = if lab == "quic-tun" { "tcp-bbr,weir-tunnel" } else { "weir-tunnel" };
        let (output, results) = sandbox.measure(&[lab, "--smoke", "--systems", systems], &[]);
        let read = &results["environment"]["congestion_control_read_back"];
        assert_eq!(read["weir-tunnel"], "tcpa", "{lab}: {read} {output:?}");
        if lab == "quic-tun" {
            assert_eq!(read["tcp-bbr"], "bbr", "{read} {output:?}");
        }
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

const LAB: &str = r#"
name = "named"
hosts = ["near", "far"]
seed = 5
[[link]]
between = ["near", "far"]
rate = "20mbit"
delay = "1ms"
queue = "droptail:2bdp"
[workload]
kind = "bulk"
from = "near"
to = "far"
[sysctl]
"net.ipv4.tcp_rmem" = "4096 65536 1048576"
[[system]]
name = "relayed"
kind = "external"
congestion = "cubic"
server = "RELAY {server}:7000 127.0.0.1:{port}"
client = "RELAY 127.0.0.1:7001 {server}:7000"
connect = "127.0.0.1:7001"
version = "sh -c 'echo relay 1.2'"
[system.files]
"relay.conf" = """
window = 64
"""
[form.full]
repeats = 1
duration = "1s"
"#;
