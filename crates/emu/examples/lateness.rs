//! Measures the lateness of the emulated link under load, for each scheduling policy. Needs root
//! and iperf3.
//!
//! ```text
//! cargo run --release -p weir-emu --example lateness -- ROUNDS SECONDS [RATE DELAY LOAD]
//! ```
//!
//! Every round measures each policy once, so that a disturbance of the machine affects all
//! policies. Each round starts with another policy, because the emulator remembers a contended CPU
//! from one run to the next for a while.

use emu::{LatenessSummary, LinkOptions, RunningLink};
use host::{Confined, Namespace, Privilege, Program};
use std::fs::File;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, usual: &str| arguments.get(at).cloned().unwrap_or(usual.to_owned());
    let (rounds, seconds): (usize, u64) = (word(0, "3").parse()?, word(1, "5").parse()?);
    let (rate, delay, load) = (word(2, "600mbit"), word(3, "10ms"), word(4, "tcp"));
    let last = host::online_cpus().last().copied().unwrap_or(0).to_string();
    let ways: [(&str, &[(&str, &str)]); 6] = [
        ("fifo, own cpu, spin 60us", &[("cpu", &last), ("spin", "60us")]),
        ("fifo, own cpu, spin 20us", &[("cpu", &last), ("spin", "20us")]),
        ("fifo, own cpu, no spin", &[("cpu", &last), ("spin", "0us")]),
        ("fifo, any cpu, spin 60us", &[("spin", "60us")]),
        ("fifo, any cpu, no spin", &[("spin", "0us")]),
        ("ordinary, any cpu, spin 60us", &[("no-real-time", "true"), ("spin", "60us")]),
    ];
    let mut seen: Vec<Vec<Row>> = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            seen[way].push(measure(&rate, &delay, &load, seconds, ways[way].1)?);
        }
    }
    println!(
        "{rate} {delay} {load}: medians of {rounds} runs of {seconds} s, worst max; microseconds"
    );
    for (rows, (name, _)) in seen.iter().zip(ways) {
        let median = |of: fn(&Row) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let worst = rows.iter().map(|row| row.late.max_us).fold(0.0, f64::max);
        println!(
            "{name:<30} p50 {:>6.1}  p99 {:>7.1}  max {:>8.1}  worst {:>8.1}  {:>6.1} Mbit/s  lost outside {:>3}  cpu {:>5.1} %",
            median(|row| row.late.p50_us),
            median(|row| row.late.p99_us),
            median(|row| row.late.max_us),
            worst,
            median(|row| row.mbit),
            rows.iter().map(|row| row.lost).sum::<u64>(),
            median(|row| row.cpu_percent),
        );
    }
    Ok(())
}

#[derive(Debug, Clone)]
struct Row {
    late: LatenessSummary,
    mbit: f64,
    lost: u64,
    cpu_percent: f64,
}

fn measure(
    rate: &str,
    delay: &str,
    load: &str,
    seconds: u64,
    scheduling: &[(&str, &str)],
) -> Result<Row, Failure> {
    // The emulator looks for an endpoint without a namespace in the calling thread's namespace.
    let (left, right) = (Namespace::create("left")?, Namespace::create("right")?);
    let at = |space: &Namespace| {
        use std::os::fd::{AsFd, AsRawFd};
        format!("/proc/{}/fd/{}:eth0", std::process::id(), space.as_fd().as_raw_fd())
    };
    let mut options = LinkOptions::default();
    let (a, b) = (at(&left), at(&right));
    let queue = "droptail:1MB";
    for (key, value) in [
        ("a", a.as_str()),
        ("b", &b),
        ("address-a", "10.0.0.1/24"),
        ("address-b", "10.0.0.2/24"),
        ("rate", rate),
        ("delay", delay),
        ("queue", queue),
    ]
    .iter()
    .chain(scheduling)
    {
        options.set(key, value)?;
    }
    let link = RunningLink::start("lateness", options.plan()?, Privilege::Root)?;
    let seconds = seconds.to_string();
    let cpus: Vec<usize> = host::online_cpus().into_iter().take(1).collect();
    let program = |words: &[&str]| -> Result<Program, Failure> {
        Ok(Program {
            argv: words.iter().map(|&word| word.to_owned()).collect(),
            environment: Vec::new(),
            stdout: File::create("/dev/null")?,
            stderr: File::create("/dev/null")?,
            cpus: cpus.clone(),
        })
    };
    let mut client = vec!["iperf3", "-c", "10.0.0.2", "-t", &seconds];
    match load {
        "tcp" => client.extend(["-C", "cubic"]),
        "udp" => client.extend(["-u", "-l", "64", "-b", "20M"]),
        "idle" => client = vec!["sleep", &seconds],
        other => return Err(format!("no such load: {other}").into()),
    }
    let _server = Confined::start(&right, program(&["iperf3", "-s"])?)?;
    let patience = Duration::from_secs(60);
    // Wait until the server listens.
    for _ in 0..50 {
        let probe = program(&["sh", "-c", "ss -ltn | grep -q 5201"])?;
        if Confined::start(&right, probe)?.wait(patience)?.is_some_and(|status| status.success()) {
            break;
        }
    }
    let before = cpu_seconds(link.tid())?;
    let begun = std::time::Instant::now();
    Confined::start(&left, program(&client)?)?.wait(patience)?;
    let cpu_percent = (cpu_seconds(link.tid())? - before) / begun.elapsed().as_secs_f64() * 100.0;
    let report = link.finish()?;
    Ok(Row {
        late: report.lateness,
        mbit: report.ab.statistics.delivered.bytes as f64 * 8.0 / 1e6 / report.running.secs_f64(),
        lost: report.ab.statistics.lost_outside_model + report.ba.statistics.lost_outside_model,
        cpu_percent,
    })
}

/// Returns the run time of a thread, by the scheduler's own clock
/// (Documentation/scheduler/sched-stats.rst).
fn cpu_seconds(tid: u32) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))?;
    let nanos: f64 = text.split_whitespace().next().unwrap_or("0").parse()?;
    Ok(nanos / 1e9)
}
