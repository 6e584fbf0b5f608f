//! Runs the tests of netperf with `weir perf`.

use super::program::{Measuring, cpus_of, number};
use super::test::Test;
use crate::bench::hosts::Turn;
use crate::bench::machine::{MachineStep, Measured, PORT, Started, Testbed, await_listener};
use crate::model::{Failure, Measurement};
use crate::workloads::between::{Client, Exchange};
use serde_json::Value;
use std::net::IpAddr;
use units::Span;

pub(super) fn measure(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    test: Test,
    pinned: bool,
) -> Result<Measured, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let (near, far) = (testbed.namespace(from)?, testbed.namespace(to)?);
    let (client_cpus, server_cpus) = cpus_of(step, pinned);
    let address = testbed.address(to, from)?;
    let weir = step.weir.display().to_string();
    let mut server = Started::new(&far, server(&weir, address), &server_cpus, step)?;
    await_listener(&far, PORT, &mut server, step)?;
    let client = client(&weir, test, address, step.duration);
    let measuring = Measuring { step, server: Some(&mut server) };
    measuring.run(client, &near, &client_cpus, testbed, |document, result| {
        account(test, document, result)
    })
}

/// Runs a netperf test between two real machines.
pub(super) fn between(turn: &Turn<'_>, test: Test) -> Result<Measurement, Failure> {
    let address = turn.addresses[1];
    let mut exchange = Exchange::new(turn);
    exchange.serve(turn.far, server(turn.far.weir(), address), PORT)?;
    let client = Client {
        name: "weir perf",
        host: turn.near,
        argv: client(turn.near.weir(), test, address, turn.duration),
        lasting: turn.duration,
    };
    exchange.run(client, |document, result| account(test, document, result))
}

fn server(weir: &str, address: IpAddr) -> Vec<String> {
    let (address, port) = (address.to_string(), PORT.to_string());
    let words = ["perf", "server", "--one-off", "--max-time", "0", "--bind", &address];
    let words = [weir].into_iter().chain(words).chain(["--port", &port]);
    words.map(str::to_owned).collect()
}

fn client(weir: &str, test: Test, address: IpAddr, duration: Span) -> Vec<String> {
    let size = match test {
        Test::Stream { size, .. } => size.count().to_string(),
        _ => "1".to_owned(),
    };
    let (address, port) = (address.to_string(), PORT.to_string());
    let time = format!("{}s", duration.secs_f64());
    let words = [
        weir,
        "perf",
        name(test),
        &address,
        "--port",
        &port,
        "--size",
        &size,
        "--time",
        &time,
        "--json",
    ];
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if let Test::Stream { is_udp: true, .. } = test {
        words.push("--udp".to_owned());
    }
    words
}

fn name(test: Test) -> &'static str {
    match test {
        Test::Stream { .. } => "stream",
        Test::Crr => "crr",
        Test::UdpRr => "udp-rr",
        _ => "rr",
    }
}

fn account(test: Test, document: &Value, result: &mut Measurement) -> Result<(), Failure> {
    let of = |way: &[&str]| number(document, &[&["results", "0"], way].concat());
    let (rate, latency) = (of(&["requests_s", "mean"]), |part| of(&["latency_us", part]));
    let goodput = of(&["goodput_mbit_s", "mean"]);
    if rate.or(goodput).is_none() {
        let reason = document.get("error").and_then(Value::as_str);
        let reason = units::foreign(reason.unwrap_or("no figures"));
        return Err(Failure::Workload(format!("weir perf {}: {reason}", name(test))));
    }
    result.record("requests_s", rate);
    result.record("goodput_mbit_s", goodput);
    result.record("loss_percent", of(&["loss_percent"]));
    for part in ["p50", "p99"] {
        result.record(&format!("latency_us.{part}"), latency(part).filter(|_| rate.is_some()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use units::Bytes;

    #[test]
    fn each_netperf_test_has_its_command_and_its_metrics() {
        let line = |test| {
            let address = "10.0.0.2".parse().unwrap();
            client("/opt/weir", test, address, Span::from_millis(1500)).join(" ")
        };
        let udp = Test::Stream { is_udp: true, size: Bytes::new(64) };
        let expected =
            "/opt/weir perf stream 10.0.0.2 --port 5201 --size 64 --time 1.5s --json --udp";
        assert_eq!(line(udp), expected);
        assert!(line(Test::Crr).starts_with("/opt/weir perf crr 10.0.0.2"), "{}", line(Test::Crr));
        let document = json!({"results": [
            {"requests_s": {"mean": 4.0}, "latency_us": {"p50": 2.0, "p99": 3.0}}
        ]});
        let mut result = Measurement::default();
        account(Test::Rr, &document, &mut result).unwrap();
        assert_eq!(result.metrics["latency_us.p99"].value, 3.0);
        let refused = account(Test::Rr, &json!({"error": "\u{1b}[2J"}), &mut result).unwrap_err();
        assert_eq!(refused.to_string(), r"weir perf rr: \x1b[2J");
    }
}
