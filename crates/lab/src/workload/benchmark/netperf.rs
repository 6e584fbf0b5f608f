//! netperf's tests by `weir perf`.

use super::program::{Measuring, cpus_of, number};
use super::test::Test;
use crate::Failure;
use crate::executor::machine::{MachineStep, Measured, PORT, Started, Testbed, await_listener};

pub(super) fn measure(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    test: Test,
    pinned: bool,
) -> Result<Measured, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let (near, far) = (testbed.namespace(from)?, testbed.namespace(to)?);
    let (client_cpus, server_cpus) = cpus_of(step, pinned);
    let address = testbed.address(to, from)?.to_string();
    let port = PORT.to_string();
    let weir = step.weir.display().to_string();
    let line = |words: &[&str]| -> Vec<String> {
        [weir.as_str()].iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    let server = line(&[
        "perf",
        "server",
        "--one-off",
        "--max-time",
        "0",
        "--bind",
        &address,
        "--port",
        &port,
    ]);
    let mut server = Started::new(&far, server, &server_cpus, step)?;
    await_listener(&far, PORT, &mut server, step)?;
    let (name, size) = match test {
        Test::Stream { size, .. } => ("stream", size.count().to_string()),
        Test::Crr => ("crr", "1".to_owned()),
        Test::UdpRr => ("udp-rr", "1".to_owned()),
        _ => ("rr", "1".to_owned()),
    };
    let time = format!("{}s", step.duration.secs_f64());
    let mut client = line(&[
        "perf", name, &address, "--port", &port, "--size", &size, "--time", &time, "--json",
    ]);
    if let Test::Stream { is_udp: true, .. } = test {
        client.push("--udp".to_owned());
    }
    let measuring = Measuring { step, server: Some(&mut server) };
    measuring.run(client, &near, &client_cpus, testbed, |document, result| {
        let of = |way: &[&str]| number(document, &[&["results", "0"], way].concat());
        let (rate, latency) = (of(&["requests_s", "mean"]), |part| of(&["latency_us", part]));
        let goodput = of(&["goodput_mbit_s", "mean"]);
        if rate.or(goodput).is_none() {
            let reason = document.get("error").and_then(serde_json::Value::as_str);
            let text = format!("weir perf {name}: {}", reason.unwrap_or("no figures"));
            return Err(Failure::Workload(text));
        }
        result.record("requests_s", rate);
        result.record("goodput_mbit_s", goodput);
        result.record("loss_percent", of(&["loss_percent"]));
        for part in ["p50", "p99"] {
            result.record(&format!("latency_us.{part}"), latency(part).filter(|_| rate.is_some()));
        }
        Ok(())
    })
}
