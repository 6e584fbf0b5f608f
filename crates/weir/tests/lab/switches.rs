//! The labs about packet switches, in their smoke forms and with small cells.

use crate::support::{CommandOutput, Sandbox, is_installed};
use serde_json::Value;
use testing::Attempt;

fn cell<'a>(results: &'a Value, system: &str, rules: &str) -> &'a Value {
    let cells = results["cells"].as_array().unwrap();
    let found = cells.iter().find(|cell| {
        cell["system"] == system && (rules.is_empty() || cell["axes"]["rules"] == rules)
    });
    found.unwrap_or_else(|| panic!("no {system} at {rules}: {results}"))
}

fn figure(cell: &Value, metric: &str) -> f64 {
    let figure = &cell["metrics"][metric]["median"];
    figure.as_f64().unwrap_or_else(|| panic!("no {metric}: {cell}"))
}

/// Whether the run is valid. On a busy machine other programs may take CPU time from a packet
/// thread, and the hypervisor may take CPU time from all threads. The run must state this reason
/// and no other.
fn is_valid(output: &CommandOutput, results: &Value) -> bool {
    let reasons = results["invalid_reasons"].as_array().cloned().unwrap_or_default();
    let cells = results["cells"].as_array().unwrap();
    let missing = cells.iter().filter_map(|cell| cell["missing"].as_array()).flatten();
    let broken: Vec<&Value> = missing.filter(|missing| missing["failed"] == true).collect();
    let fails = !reasons.is_empty() || !broken.is_empty();
    assert_eq!(output.status.code(), Some(i32::from(fails)), "{output:?}");
    for missing in broken {
        let reason = missing["reason"].as_str().unwrap();
        assert!(reason.contains("CPU"), "{reason}");
        eprintln!("the machine is busy: {reason}");
    }
    for reason in &reasons {
        let reason = reason.as_str().unwrap();
        let known = [
            "took CPU time from a packet thread",
            "a program beside the lab left its CPUs no time",
            "the hypervisor took CPU time away",
        ];
        assert!(known.iter().any(|words| reason.contains(words)), "{output:?}");
        eprintln!("the machine is busy: {reason}");
    }
    match reasons.is_empty() {
        true => testing::judged("lab of packet switches"),
        false => testing::not_judged("lab of packet switches", serde_json::json!(reasons)),
    }
    reasons.is_empty()
}

#[test]
fn the_lab_flow_rules_runs_in_its_smoke_form() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let (output, results) = measured(&sandbox, "flow-rules", |results| {
        let cell = cell(results, "weir-switch", "256");
        // If the switch stalls while its counters are read, the counters show fewer packets
        // forwarded than received.
        figure(cell, "capacity_pps") > 1e5 && figure(cell, "drops") == 0.0
    });
    is_valid(&output, &results);
    let cell = cell(&results, "weir-switch", "256");
    assert_eq!(figure(cell, "connections"), 256.0, "{cell}");
    let parts = ["parse", "cache", "classifier", "conntrack", "actions", "transmit"];
    let sum: f64 = parts.iter().map(|part| figure(cell, &format!("cycles.{part}"))).sum();
    assert!(sum > 0.0 && figure(cell, "cycles") > 0.0, "{cell}");
    assert!(sandbox.read("run/report.html").contains("Cycles by part"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Runs a lab in its smoke form; repeats the run if its results are wrong and the machine was
/// disturbed.
fn measured(
    sandbox: &Sandbox,
    lab: &str,
    is_right: impl Fn(&Value) -> bool,
) -> (CommandOutput, Value) {
    let measured = testing::undisturbed("smoke form of a lab of packet switches", |_| {
        let _ = std::fs::remove_dir_all(sandbox.path("run"));
        let output = sandbox.weir(&["lab", "run", lab, "--smoke", "--out", "run"]);
        let results = sandbox.results("run");
        let cells = results["cells"].as_array().unwrap();
        let has_figures = cells.iter().all(|cell| cell["failed"].is_null());
        match has_figures && is_right(&results) {
            true => Attempt::Right((output, results)),
            false => Attempt::Wrong(format!("{output:?} {results}")),
        }
    });
    measured.unwrap()
}

/// Returns the systems that can run on this machine.
fn systems() -> Vec<&'static str> {
    match is_installed(OVS_DPDK) {
        true => vec!["weir-switch", "ovs-dpdk"],
        false => {
            testing::skip_part(testing::Need::Program(OVS_DPDK));
            vec!["weir-switch"]
        }
    }
}

/// The full form sends into virtio devices of both switches, if there is a CPU for the generator.
#[test]
fn both_switches_receive_packets_from_the_generator() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let lab = "name = \"pushed\"\n[axes]\nrules = [\"64\"]\npmds = [\"1\", \"2\"]\n\
        [workload]\nkind = \"flow-rules\"\nset = \"nat\"\nrules = \"{rules}\"\npmds = \"{pmds}\"\n\
        search = \"1s\"\nload = \"1s\"\nomit = \"500ms\"\n\
        [[system]]\nname = \"weir-switch\"\nkind = \"switch\"\n\
        [[system]]\nname = \"ovs-dpdk\"\nkind = \"switch\"\noptional = true\n\
        [form.full]\nrepeats = 1\nduration = \"300ms\"\n";
    sandbox.write("lab.toml", lab);
    let output = sandbox.weir(&["lab", "run", "./lab.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    is_valid(&output, &results);
    let cpus = host::online_cpus().len();
    for system in systems() {
        for pmds in [1, 2] {
            let number = pmds.to_string();
            let cells = results["cells"].as_array().unwrap();
            let is_it =
                |cell: &&Value| cell["system"] == system && cell["axes"]["pmds"] == number.as_str();
            let cell = cells.iter().find(is_it).unwrap();
            let has = |metric: &str| cell["metrics"][metric]["median"].is_number();
            let missing = cell["missing"].to_string();
            if pmds == cpus {
                let needs = format!("needs {} CPUs", pmds + 1);
                // With several packet threads this machine may be too small for the whole cell.
                let whole = cell["not_run"].as_str().unwrap_or_default();
                assert_eq!(cell["failed"], Value::Null, "{cell}");
                let told = missing.contains(&needs) || whole.starts_with(&needs);
                assert!(told && !has("ndr_pps"), "{cell}");
            }
            if cell["valid"] == false || pmds >= cpus {
                continue;
            }
            assert!(figure(cell, "capacity_pps") > 1e4, "{cell}");
            // If the machine is too busy for the search, the cell has no result and states the
            // reason.
            assert!(has("ndr_pps") || missing.contains("ndr_pps"), "{cell}");
            if has("ndr_pps") {
                assert!(figure(cell, "ndr_pps") > 1e3, "{cell}");
                assert!(figure(cell, "actual_s") > 0.9, "{cell}");
                assert!(figure(cell, "offered_pps") > 1e3, "{cell}");
                assert!(has("drops.pushed"), "{cell}");
            }
        }
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Measures both switches in alternating windows, and checks the text of the answer.
#[test]
fn both_switches_forward_the_report_s_rules() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let systems = systems();
    let lab = "name = \"rules\"\n[axes]\nset = [\"base\", \"mac\", \"nat\", \"raw\"]\nrules = [\"1\", \"300\"]\n\
        [workload]\nkind = \"flow-rules\"\nset = \"{set}\"\nrules = \"{rules}\"\norder = \"destination\"\n\
        [[system]]\nname = \"weir-switch\"\nkind = \"switch\"\n\
        [[system]]\nname = \"ovs-dpdk\"\nkind = \"switch\"\noptional = true\n\
        [form.full]\nrepeats = 1\nduration = \"1s\"\n\
        [form.quick]\nrepeats = 2\nduration = \"300ms\"\nomit = \"500ms\"\n\
        cells = [{ set = [\"base\", \"nat\", \"raw\"] }, { set = [\"mac\"], rules = [\"300\"] }]\n";
    sandbox.write("lab.toml", lab);
    let output = sandbox.weir(&["lab", "run", "./lab.toml", "--quick", "--out", "run"]);
    let results = sandbox.results("run");
    let is_valid = is_valid(&output, &results);
    for system in &systems {
        let cell = cell(&results, system, "300");
        assert!(figure(cell, "capacity_pps") > 1e4, "{cell}");
    }
    let journal = sandbox.journal("run");
    assert_eq!(journal.len(), 7 * 2 * systems.len(), "{journal:?}");
    // A run without a valid window has no answer.
    let answer: Vec<&str> =
        results["answer"].as_array().into_iter().flatten().filter_map(|one| one.as_str()).collect();
    // In short windows the time per packet may not grow with the rules: two sentences are right.
    let ways = ["from the five-tuples", "nat with 300 rules is no slower"];
    let answers = answer.iter().any(|sentence| ways.iter().any(|way| sentence.contains(way)));
    assert!(answers || !is_valid, "{answer:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_lab_conntrack_runs_in_its_smoke_form() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let (output, results) = measured(&sandbox, "conntrack", |results| {
        let setups = &cell(results, "weir-switch", "")["metrics"]["setups_s"]["median"];
        setups.as_f64().is_some_and(|setups| setups > 1e4)
    });
    is_valid(&output, &results);
    let cell = cell(&results, "weir-switch", "");
    assert_eq!(figure(cell, "connections"), 65_536.0, "{cell}");
    assert!((0.05..5.0).contains(&figure(cell, "memory_kib_each.server")), "{cell}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn mistakes_in_labs_of_switches_are_explained() {
    let Some(sandbox) = Sandbox::new() else { return };
    let lab = |workload: &str, system: &str| {
        format!(
            "name = \"x\"\n[workload]\n{workload}\n[[system]]\nname = \"{system}\"\nkind = \"switch\"\n\
             [form.full]\nduration = \"1s\"\n"
        )
    };
    let rules = "kind = \"flow-rules\"\nset = \"nat\"\nrules = 5";
    for (text, message) in [
        (lab(rules, "weir-swich"), "did you mean `weir-switch`?"),
        (lab(&rules.replace("nat", "natt"), "weir-switch"), "did you mean `nat`?"),
        (lab(&rules.replace("= 5", "= 0"), "weir-switch"), "`rules` is from 1 to 500000"),
        (lab(&format!("{rules}\norder = \"client\""), "weir-switch"), "lockstep or destination"),
        (lab("kind = \"flow-rules\"\nset = \"nat\"", "weir-switch"), "`rules` is missing here"),
        (lab("kind = \"conntrack\"", "nf-conntrack"), "`connections` is missing here"),
        (lab("kind = \"conntrack\"\nconnections = 9", "nf-conntrack"), "from 1024 to 2000000"),
    ] {
        sandbox.write("lab.toml", &text);
        let output = sandbox.weir(&["lab", "validate", "lab.toml"]);
        assert_ne!(output.status.code(), Some(0), "{text}");
        assert!(output.stderr.contains(message), "{message}: {}", output.stderr);
    }
}

const OVS_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
