//! The built-in labs about tunnels, in their smoke forms.

use crate::support::{Sandbox, await_some};

#[test]
fn the_latency_of_a_tunnel_is_measured_beside_the_direct_path() {
    let Some(results) = smoke("tunnel-latency") else { return };
    for system in ["tcp-cubic", "weir-tunnel"] {
        for family in ["first_byte_ms", "first_message_ms", "message_ms"] {
            let [p50, p90, p99] =
                ["p50", "p90", "p99"].map(|part| figure(&results, system, family, part));
            assert!(0.0 < p50 && p50 <= p90 && p90 <= p99, "{system} {family}: {p50} {p90} {p99}");
        }
        // Any path takes at least the link's round trip.
        assert!(figure(&results, system, "message_ms", "p50") >= 0.5, "{system}");
    }
    // One round trip less than the direct connection, whose handshake takes one.
    assert!(figure(&results, "tcp-cubic", "first_byte_ms", "p50") >= 1.0);
}

#[test]
fn idle_and_busy_tunnels_are_counted_and_cost_memory() {
    let Some(results) = smoke("tunnel-scale") else { return };
    for system in ["tcp-cubic", "weir-tunnel"] {
        assert!(metric(&results, system, "setups_s") > 0.0, "{system}");
        assert!(metric(&results, system, "goodput_mbit_s") > 0.0, "{system}");
        let jain = metric(&results, system, "jain");
        assert!((0.5..=1.0).contains(&jain), "{system}: two flows and Jain's index is {jain}");
    }
    for end in ["client", "server"] {
        let [now, peak] = ["memory_mib", "memory_peak_mib"]
            .map(|family| figure(&results, "weir-tunnel", family, end));
        assert!(0.0 < now && now <= peak, "{end}: {now} of {peak}");
    }
}

/// Neither keys nor other files stay. Files in the run directory disappear with it or with the next
/// run there.
#[test]
fn a_lab_with_a_tunnel_killed_midway_leaves_nothing() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let words = ["lab", "run", "tunnel-latency", "--smoke", "--systems", "weir-tunnel"];
    let running = sandbox.start(&[&words[..], &["--out", "run"]].concat());
    let tunnel = ["tunnel", "client"];
    await_some("a tunnel", || (!sandbox.running(&tunnel).is_empty()).then_some(()));
    running.signal("KILL");
    running.end();
    assert_eq!(sandbox.leftovers(), [""; 0]);
    let kept = || std::fs::read_dir(sandbox.path("run/.programs")).unwrap().count();
    assert_eq!(kept(), 1, "the keys of the turn that was killed");
    let output = sandbox.weir(&[&words[..], &["--resume", "run"]].concat());
    output.assert_measured(&sandbox.results("run"));
    assert!(!sandbox.path("run/.programs").exists());
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// The results. Only the run directory is left behind.
fn smoke(lab: &str) -> Option<serde_json::Value> {
    let sandbox = Sandbox::quiet()?;
    let systems = "tcp-cubic,weir-tunnel";
    let mut wrong = Vec::new();
    // If the machine stalls for a whole turn, nothing arrives in it, and the cell fails.
    for out in ["first", "second", "third"] {
        let output =
            sandbox.weir(&["lab", "run", lab, "--smoke", "--systems", systems, "--out", out]);
        assert_eq!(sandbox.leftovers(), [""; 0]);
        let results = sandbox.results(out);
        let cells = results["cells"].as_array().unwrap();
        if cells.iter().all(|cell| cell["failed"].is_null()) {
            output.assert_measured(&results);
            return Some(results);
        }
        wrong.push(output);
    }
    panic!("{wrong:?}");
}

fn figure(results: &serde_json::Value, system: &str, family: &str, part: &str) -> f64 {
    metric(results, system, &format!("{family}.{part}"))
}

fn metric(results: &serde_json::Value, system: &str, name: &str) -> f64 {
    let cells = results["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
    let median = &cell["metrics"][name]["median"];
    median.as_f64().unwrap_or_else(|| panic!("{system} has no {name}: {cell}"))
}
