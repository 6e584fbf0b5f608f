//! `weir doctor --serve`: metrics for Prometheus, and events.

use crate::support::{Running, Sandbox, await_some, is_installed};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SERVE: &str = "127.0.0.1:9152";
const PROMETHEUS: &str = "127.0.0.1:9090";

fn get(sandbox: &Sandbox, address: &str, path: &str) -> Option<String> {
    let address: SocketAddr = address.parse().unwrap();
    sandbox.inside(|| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: here\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    })
}

fn served(sandbox: &Sandbox) -> Running {
    sandbox.start(&["doctor", "--serve", SERVE, "--time", "1"])
}

/// Runs `work` during a transfer over loopback whose reader takes 4 KB each 2 ms.
fn with_a_slow_reader<T: Send>(sandbox: &Sandbox, work: impl FnOnce() -> T + Send) -> T {
    let end = AtomicBool::new(false);
    let (mut sender, mut reader) = sandbox.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    });
    let both = [sender.try_clone().unwrap(), reader.try_clone().unwrap()];
    std::thread::scope(|scope| {
        scope.spawn(move || while sender.write_all(&[0; 65_536]).is_ok() {});
        scope.spawn(|| {
            let mut room = [0; 4096];
            while !end.load(Ordering::Relaxed) && reader.read(&mut room).is_ok_and(|n| n > 0) {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        end.store(true, Ordering::Relaxed);
        for one in both {
            let _ = one.shutdown(std::net::Shutdown::Both);
        }
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    })
}

#[test]
fn verdict_seconds_are_served_and_events_report_begin_and_end() {
    let Some(sandbox) = Sandbox::new() else { return };
    let doctor = served(&sandbox);
    let (text, health) = with_a_slow_reader(&sandbox, || {
        let text = await_some("seconds of a connection's cause", || {
            let text = get(&sandbox, SERVE, "/metrics")?;
            let cause = "weir_doctor_connection_seconds_total{cause=\"slow-reader\",healthy=\"no\"";
            text.contains(cause).then_some(text)
        });
        (text, get(&sandbox, SERVE, "/healthz").unwrap())
    });
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    let line = text.lines().find(|line| line.contains("slow-reader\",healthy")).unwrap();
    assert!(line.contains("destination=\"127.0.0.0/8\""), "{line}");
    assert!(line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() >= 0.9, "{line}");
    doctor.signal("TERM");
    let ended = doctor.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let events: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| {
        events.iter().any(|one| one["event"] == event && one["cause"] == "slow-reader")
    };
    assert!(of("begin") && (of("stop") || of("end")), "{ended:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_used_or_public_address_is_refused_before_anything_is_observed() {
    let Some(sandbox) = Sandbox::new() else { return };
    let _taken = sandbox.inside(|| TcpListener::bind(SERVE).unwrap());
    for (words, code, expected) in [
        (&["doctor", "--serve"][..], 1, "name a free address of this host"),
        (&["doctor", "--serve", "0.0.0.0:9152"][..], 2, "can be reached from other hosts"),
        (&["doctor", "--serve", SERVE, "--watch"][..], 2, "leave out --watch"),
        (&["doctor", "--series", "9"][..], 2, "add --serve"),
    ] {
        let ended = sandbox.weir(words);
        assert_eq!(ended.status.code(), Some(code), "{words:?} {ended:?}");
        assert!(ended.stderr.contains(expected), "{words:?} {ended:?}");
    }
}

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana").join(name)
}

/// Returns the queries of the panels, with every variable set to all of its values.
fn queries(dashboard: &str) -> Vec<String> {
    let text = std::fs::read_to_string(packaged(dashboard)).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let panels = document["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|one| one["expr"].as_str().unwrap().replace("$instance", ".*")).collect()
}

fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn answer(sandbox: &Sandbox, query: &str) -> Option<Value> {
    let path = format!("/api/v1/query?query={}", encoded(query));
    let text = get(sandbox, PROMETHEUS, &path)?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn prometheus_accepts_the_alert_rules_and_answers_the_dashboards() {
    for program in ["prometheus", "promtool"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let rules = packaged("alerts.yml");
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let Some(sandbox) = Sandbox::new() else { return };
    let doctor = served(&sandbox);
    sandbox.write(
        "prometheus.yml",
        format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: weir, static_configs: [{{targets: ['{SERVE}']}}]}}]\n",
            rules.display()
        ),
    );
    let mut command = Command::new("prometheus");
    command.args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        &format!("--web.listen-address={PROMETHEUS}"),
        "--log.level=error",
    ]);
    let prometheus = sandbox.start_command(command);
    let limited = "sum by (cause) (rate(weir_doctor_connection_seconds_total{healthy=\"no\"}[1m]))";
    with_a_slow_reader(&sandbox, || {
        await_some("the rate of a cause", || {
            let answer = answer(&sandbox, limited)?;
            let mut found = answer["data"]["result"].as_array()?.iter();
            found.any(|one| one["metric"]["cause"] == "slow-reader").then_some(())
        });
    });
    let text = get(&sandbox, SERVE, "/metrics").unwrap();
    for dashboard in ["weir-doctor.json", "weir-accel.json", "weir-tunnel.json"] {
        let queries = queries(dashboard);
        assert!(queries.len() >= 7, "{dashboard}");
        for query in queries {
            let answer = answer(&sandbox, &query).unwrap();
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            let names = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in names.filter(|name| name.starts_with("weir_doctor_")) {
                assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
            }
        }
    }
    let rules = get(&sandbox, PROMETHEUS, "/api/v1/rules").unwrap();
    assert!(rules.contains("\"WeirConnectionsLimited\""), "{rules}");
    for running in [doctor, prometheus] {
        running.signal("TERM");
        let ended = running.end();
        assert!(ended.status.success(), "{ended:?}");
    }
}

#[test]
fn the_packaged_unit_is_confined_and_its_command_line_is_accepted() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/weir-doctor.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/weir ")).unwrap();
    assert_eq!(line, format!("doctor --serve {SERVE}"));
    if !is_installed("systemd-analyze") {
        return testing::skip_part(testing::Need::Program("systemd-analyze"));
    }
    let words = ["security", "--offline=true", unit.to_str().unwrap()];
    let judged = Command::new("systemd-analyze").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&judged.stdout);
    let exposure = text.lines().find_map(|line| line.split("Overall exposure level for ").nth(1));
    let Some(level) = exposure.and_then(|exposure| exposure.split(' ').nth(1)) else {
        return testing::skip_because(testing::Need::UnitAnalysis, text);
    };
    // BPF needs CAP_SYS_ADMIN and the user root, which are most of the exposure.
    assert!(level.parse::<f64>().unwrap() <= 4.0, "{text}");
}
