//! The built-in labs about tunnels, in their smoke forms.

use crate::support::{Sandbox, await_some};
use testing::Attempt;

#[test]
fn the_latency_of_a_tunnel_is_measured_beside_the_direct_path() {
    let metrics = ["first_byte_ms.p50", "first_message_ms.p50", "message_ms.p50"];
    let Some(results) = smoke("tunnel-latency", &metrics) else { return };
    for system in ["tcp-cubic", "weir-tunnel"] {
        for family in ["first_byte_ms", "first_message_ms", "message_ms"] {
            let [p50, p90, p99] =
                ["p50", "p90", "p99"].map(|part| figure(&results, system, family, part));
            assert!(0.0 < p50 && p50 <= p90 && p90 <= p99, "{system} {family}: {p50} {p90} {p99}");
        }
        // Any path takes at least the link's round trip.
        assert!(figure(&results, system, "message_ms", "p50") >= 0.5, "{system}");
    }
    // The direct connection takes one round trip more, for its handshake.
    assert!(figure(&results, "tcp-cubic", "first_byte_ms", "p50") >= 1.0);
}

#[test]
fn the_memory_of_idle_and_busy_tunnels_is_measured() {
    let metrics = ["setups_s", "goodput_mbit_s", "jain"];
    let Some(results) = smoke("tunnel-scale", &metrics) else { return };
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

#[test]
fn a_service_behind_a_tunnel_is_measured_beside_the_restart_of_a_killed_server() {
    let Some(sandbox) = Sandbox::quiet() else { return };
    let words = ["tunnel-peers", "--smoke", "--systems", "weir-tunnel"];
    let (output, results) = sandbox.measure(&words, &["availability_percent"]);
    output.assert_measured(&results);
    assert_eq!(sandbox.leftovers(), [""; 0]);
    for cell in results["cells"].as_array().unwrap() {
        let median = |name: &str| cell["metrics"][name]["median"].as_f64();
        if cell["axes"]["event"] == "none" {
            for name in ["first_byte_ms.p50", "goodput_mbit_s", "message_ms.p99", "setups_s"] {
                assert!(median(name).is_some_and(|value| value > 0.0), "{name}: {cell}");
            }
        } else {
            // On a machine that stalls, the lab's time limit may pass before the service returns.
            let has_returned = median("availability_percent") == Some(100.0);
            assert_eq!(median("seconds").is_some_and(|time| time > 0.0), has_returned, "{cell}");
        }
    }
}

/// Neither keys nor other files may be left behind. The only exception is the run directory, whose
/// files are removed with the directory or by the next run in it.
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
    // A turn may fail if the machine stalls all the time, and is then measured again.
    let resumed = testing::undisturbed("turn of a tunnel after a kill", |attempt| {
        let again: &[&str] = if attempt > 1 { &["--again"] } else { &[] };
        let output = sandbox.weir(&[&words[..], &["--resume", "run"], again].concat());
        match sandbox.results("run")["cells"][0]["failed"].is_null() {
            true => Attempt::Right(output),
            false => Attempt::Wrong(format!("{output:?}")),
        }
    });
    resumed.unwrap().assert_measured(&sandbox.results("run"));
    assert!(!sandbox.path("run/.programs").exists());
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Runs a lab in its smoke form, and returns the results. Every cell must have these metrics, and
/// only the run directory may be left behind.
fn smoke(lab: &str, metrics: &[&str]) -> Option<serde_json::Value> {
    let sandbox = Sandbox::quiet()?;
    let systems = "tcp-cubic,weir-tunnel";
    let (output, results) = sandbox.measure(&[lab, "--smoke", "--systems", systems], metrics);
    output.assert_measured(&results);
    assert_eq!(sandbox.leftovers(), [""; 0]);
    Some(results)
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
