//! `weir perf web`, `latency` and `bandwidth` as a user runs them.

use crate::support::{Sandbox, await_some};
use serde_json::Value;

#[test]
fn the_rate_of_requests_is_in_the_first_line_and_in_json() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = sandbox.start(&["perf", "web-server", "--bind", "127.0.0.1", "--port", "8080"]);
    await_some("the server", || server.output_so_far().1.contains("serving").then_some(()));
    let url = "http://127.0.0.1:8080/";
    let calm = ["--time", "1s", "--timeout", "60s"];
    let output = sandbox.weir(&[&["perf", "web", url], calm.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let first = output.stdout.lines().next().unwrap();
    assert!(first.contains(" requests/s, latency p50 ") && first.ends_with("no errors"), "{first}");
    let output = sandbox.weir(
        &[&["perf", "web", url, "--short", "--json", "-H", "X: 1"], calm.as_slice()].concat(),
    );
    let figures: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(figures["responses"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!(figures["errors"], 0, "{figures}");
    assert_eq!(figures["keep_alive"], false);
    server.signal("INT");
    assert_eq!(server.end().status.code(), Some(0));
    let output = sandbox.weir(&["perf", "web", url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("no web server listens at 127.0.0.1:8080"), "{output:?}");
    for (wrong, says) in [
        (vec!["127.0.0.1:8080"], "http://HOST"),
        (vec![url, "--insecure"], "--insecure and --ca are for https"),
        (vec![url, "--threads", "20"], "a thread needs a connection"),
        (vec![url, "--rate", "0"], "--rate is from"),
        (vec![url, "-H", "no colon"], "Bearer TOKEN"),
        (vec!["https://127.0.0.1:8080/", "--ca", "/nowhere"], "--ca /nowhere"),
    ] {
        let output = sandbox.weir(&[&["perf", "web"], wrong.as_slice()].concat());
        assert!(output.stderr.contains(says), "{wrong:?}: {output:?}");
    }
    assert_eq!(sandbox.leftovers_once(), [""; 0]);
}

#[test]
fn perf_latency_and_perf_bandwidth_measure_unix_sockets_pipes_and_tcp() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (test, figure) in [("latency", "mean_us"), ("bandwidth", "mbyte_s")] {
        let output = sandbox.weir(&["perf", test, "--time", "100ms", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let results = document["results"].as_array().unwrap();
        let ways: Vec<&str> = results.iter().map(|one| one["over"].as_str().unwrap()).collect();
        assert_eq!(ways, ["unix", "pipe", "tcp"]);
        assert!(results.iter().all(|one| one[figure].as_f64().unwrap() > 0.0), "{document}");
    }
    let running = sandbox.start(&["perf", "latency", "tcp", "--time", "1h"]);
    await_some("the second process", || {
        (!sandbox.running(&["perf", "local-end"]).is_empty()).then_some(())
    });
    running.signal("INT");
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("interrupted"), "{output:?}");
    assert_eq!(sandbox.leftovers_once(), [""; 0]);
}
