//! Measures the cost of a port: a thread forwards every frame between two namespaces during a bulk
//! transfer whose endpoints use default offloads.
//!
//! `cargo run --release -p weir-port --example forward -- [SECONDS [queue|ring [IPERF3
//! ARGUMENTS...]]]`
//!
//! Needs root and iperf3. The forwarding thread is pinned to the first processor, and both
//! endpoints of the transfer to the second processor.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use port::{FramePool, PacketOptions, PacketPort, Port, PortCounters, SuperPackets};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let super_packets = match arguments.next().as_deref() {
        None => SuperPackets::Auto,
        Some("queue") => SuperPackets::Queue,
        Some("ring") => SuperPackets::Ring,
        Some(other) => return Err(format!("{other:?} is neither queue nor ring").into()),
    };
    let rest: Vec<String> = arguments.collect();

    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let forwarder = std::thread::spawn({
        let stop = stop.clone();
        move || forward(&stop, super_packets, &ready)
    });
    let Ok(holder) = is_ready.recv() else {
        return forwarder.join().map_err(|_| "the forwarding thread died")?.map(|_| ());
    };
    let [left, right] = holder;

    let mut server = Command::new("nsenter")
        .args([&format!("--net=/proc/{right}/ns/net"), "taskset", "-c", "1"])
        .args(["iperf3", "-s", "-1", "-4"])
        .stdout(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    let done = Command::new("nsenter")
        .args([&format!("--net=/proc/{left}/ns/net"), "taskset", "-c", "1"])
        .args(["iperf3", "-c", "10.9.0.2", "-t", &seconds.to_string(), "-i", "0"])
        .args(rest)
        .status();
    let _ = server.kill();
    server.wait()?;
    stop.store(true, Ordering::Relaxed);
    let cost = forwarder.join().map_err(|_| "the forwarding thread died")??;
    done?;

    let frames = cost.counters.iter().map(|port| port.sent_frames).sum::<u64>() as f64;
    for (name, counters) in ["left", "right"].iter().zip(&cost.counters) {
        println!("{name}: {counters:?}");
    }
    println!(
        "{frames} frames sent on, {:.3} us of the core a frame: receive {:.3}, send {:.3}; rounds \
         that found nothing: {} at {:.3} us",
        (cost.receive + cost.send) as f64 / 1e3 / frames,
        cost.receive as f64 / 1e3 / frames,
        cost.send as f64 / 1e3 / frames,
        cost.empty,
        cost.idle as f64 / 1e3 / cost.empty as f64,
    );
    Ok(())
}

/// The nanoseconds spent on each activity.
#[derive(Default)]
struct Cost {
    receive: u64,
    send: u64,
    idle: u64,
    empty: u64,
    counters: Vec<PortCounters>,
}

fn forward(
    stop: &AtomicBool,
    super_packets: SuperPackets,
    ready: &mpsc::Sender<[u32; 2]>,
) -> Result<Cost, Failure> {
    run("taskset", &["-cp", "0", &rustix::thread::gettid().as_raw_nonzero().to_string()])?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
    let mut ends = Vec::new();
    for (number, veth) in ["left", "right"].iter().enumerate() {
        // A sleeping process keeps each namespace open; its PID names the namespace.
        let end = Command::new("unshare").args(["--net", "sleep", "3600"]).spawn()?;
        std::thread::sleep(Duration::from_millis(200));
        let pid = end.id().to_string();
        ends.push(end);
        run("ip", &["link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        run("sysctl", &["-qw", &format!("net.ipv6.conf.{veth}.disable_ipv6=1")])?;
        run("ip", &["link", "set", veth, "up"])?;
        let namespace = format!("--net=/proc/{pid}/ns/net");
        let address = format!("10.9.0.{}/24", number + 1);
        run("nsenter", &[&namespace, "ip", "address", "add", &address, "dev", "eth0"])?;
        run("nsenter", &[&namespace, "ip", "link", "set", "eth0", "up"])?;
    }
    let options = PacketOptions { super_packets, ..PacketOptions::default() };
    let mut ports =
        [PacketPort::open_with("left", options)?, PacketPort::open_with("right", options)?];
    for port in &ports {
        println!("{}", port.describe());
    }
    FramePool::prepare(4096);
    ready.send([ends[0].id(), ends[1].id()])?;

    let mut cost = Cost::default();
    let mut batch = Vec::with_capacity(1024);
    let mut last = nanos();
    while !stop.load(Ordering::Relaxed) {
        let mut found = 0;
        for from in 0..2 {
            if ports[from].receive(&mut batch, 64)? > 0 {
                found += batch.len();
                let received = nanos();
                cost.receive += received - last;
                ports[1 - from].send(&batch)?;
                batch.clear();
                last = nanos();
                cost.send += last - received;
            }
        }
        if found == 0 {
            let now = nanos();
            cost.idle += now - last;
            cost.empty += 1;
            last = now;
        }
    }
    cost.counters = ports.iter_mut().map(Port::counters).collect();
    for mut end in ends {
        end.kill()?;
        end.wait()?;
    }
    Ok(cost)
}

/// Returns elapsed time instead of CPU time, because the kernel's work on this core is part of the
/// cost.
fn nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{program} {}: {status}", arguments.join(" ")).into());
    }
    Ok(())
}
