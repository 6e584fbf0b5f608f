//! Measures the share of a path's rate that a connection uses, in virtual time.
//!
//! `cargo test --release -p weir-quic --test paths -- --ignored --nocapture` prints the table.

#![allow(clippy::unwrap_used)]

mod world;

use units::{Rate, Share, Span};
use world::{CLIENT, Change, PathConfig, SERVER, Transfer, World, millis, seconds, settings};

/// The results of one upload, without the first seconds of the upload.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// The share of the link's rate that the upload used, including headers.
    used: f64,
    goodput: Rate,
    /// Packets counted as lost, as a share of the sent packets.
    resent: f64,
    /// Packets counted as lost although they arrived (spurious retransmissions), as a share of the
    /// sent packets.
    in_vain: f64,
    overflow: f64,
    lost: f64,
    late: f64,
    queue_mean: Span,
    queue_p95: Span,
    mtu: u16,
    /// The time after which the connection first used half of the link's rate.
    start: Option<Span>,
}

fn upload(
    congestion: &str,
    path: &PathConfig,
    changes: &[(u64, PathConfig)],
    omit: u64,
    measured: u64,
) -> Figures {
    let mut world = World::new(7, settings(congestion), path);
    for (second, path) in changes {
        world.change_at(seconds(*second), Change::PathConfig(Box::new(path.clone())));
    }
    world.transfer(CLIENT, Transfer { up: 1 << 40, ..Transfer::default() });
    let mut start = None;
    while world.now() < seconds(omit) {
        let before = world.ways[0].stats().delivered.bytes.count();
        world.run_for(Span::from_millis(100));
        let bytes = world.ways[0].stats().delivered.bytes.count() - before;
        let rate = world.ways[0].config().rate.mean_rate().unwrap();
        if bytes * 8 * 10 > rate.bits_per_second() / 2 && start.is_none() {
            start = Some(world.now().since(seconds(0)));
        }
    }
    let link_before = world.ways[0].stats().clone();
    let before = world.statistics(CLIENT);
    let received = world.hosts[SERVER].application.received;
    let mut capacity = 0.0;
    for _ in 0..measured * 10 {
        let rate = world.ways[0].config().rate.mean_rate().unwrap();
        capacity += rate.bits_per_second() as f64 / 80.0;
        world.run_for(Span::from_millis(100));
    }
    assert!(world.lost().is_none(), "{:?}", world.lost());
    let after = world.statistics(CLIENT);
    let link = world.ways[0].stats();
    let span = Span::from_secs(measured);
    let sent = (after.packets_sent - before.packets_sent) as f64;
    let resent = (after.packets_lost - before.packets_lost) as f64;
    let overflow = (link.dropped.overflow.packets - link_before.dropped.overflow.packets) as f64;
    let lost = (link.dropped.loss.packets - link_before.dropped.loss.packets) as f64;
    let delivered = link.delivered.bytes.count() - link_before.delivered.bytes.count();
    let sojourns = link.sojourns.since(&link_before.sojourns);
    let goodput = world.hosts[SERVER].application.received - received;
    Figures {
        used: delivered as f64 / capacity,
        goodput: Rate::from_bits_per_second(goodput * 8 * 1_000_000_000 / span.nanos()),
        resent: resent / sent,
        in_vain: (resent - overflow - lost) / sent,
        overflow: overflow / sent,
        lost: lost / sent,
        late: (after.packets_late - before.packets_late) as f64 / sent,
        queue_mean: sojourns.mean(),
        queue_p95: sojourns.quantile(Share::new(0.95).unwrap()),
        mtu: after.mtu,
        start,
    }
}

fn print(name: &str, congestion: &str, figures: &Figures) {
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    println!(
        "| {name} | {congestion} | {} | {:.1} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {} | {} |",
        percent(figures.used),
        figures.goodput.mbit_per_second(),
        percent(figures.resent),
        percent(figures.in_vain),
        percent(figures.overflow),
        percent(figures.lost),
        percent(figures.late),
        figures.queue_mean.millis_f64(),
        figures.queue_p95.millis_f64(),
        figures.mtu,
        figures.start.map_or("never".to_owned(), |start| start.to_string()),
    );
}

#[test]
#[ignore = "prints figures for people"]
fn uploads_over_each_path_with_each_algorithm_print_their_figures() {
    println!(
        "| path | algorithm | used | goodput | resent | in vain | overflow | lost | late | queue | p95 | mtu | half after |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let only = std::env::var("WEIR_PATH").unwrap_or_default();
    let omit = std::env::var("WEIR_OMIT").map_or(5, |text| text.parse().unwrap());
    let measured = std::env::var("WEIR_MEASURED").map_or(10, |text| text.parse().unwrap());
    for (name, path, changes) in paths() {
        if !name.contains(&only) {
            continue;
        }
        for congestion in ["tcpa", "bbr", "cubic"] {
            print(&name, congestion, &upload(congestion, &path, &changes, omit, measured));
        }
    }
}

/// Path configurations, each with the second at which it takes effect.
type Changes = Vec<(u64, PathConfig)>;

fn paths() -> Vec<(String, PathConfig, Changes)> {
    let mut paths = vec![
        (
            "50mbit 30ms ±5ms reorder".to_owned(),
            PathConfig::new("50mbit", "30ms", "droptail:125p").jitter("5ms,uniform,reorder"),
            Vec::new(),
        ),
        (
            "50mbit 20ms 10p".to_owned(),
            PathConfig::new("50mbit", "20ms", "droptail:10p"),
            Vec::new(),
        ),
    ];
    for round_trip in ["20ms", "100ms"] {
        let queue = if round_trip == "20ms" { "droptail:1500KB" } else { "droptail:7500KB" };
        for loss in ["0%", "1%", "5%"] {
            let path = PathConfig::new("600mbit", round_trip, queue).loss(loss);
            paths.push((format!("600mbit {round_trip} {loss}"), path, Vec::new()));
        }
    }
    let at = |rate: &str| PathConfig::new(rate, "30ms", "droptail:100p");
    let changes =
        (1..60).map(|second| (second, at(if second % 2 == 1 { "1mbit" } else { "40mbit" })));
    paths.push(("1/40mbit 30ms 100p".to_owned(), at("40mbit"), changes.collect()));
    paths
}

/// Returns the durations of small requests, each sent after the answer to the previous request.
fn requests(path: &PathConfig, pause: Span, count: usize) -> Vec<Span> {
    let mut world = World::new(11, settings("tcpa"), path);
    assert!(world.run_until_confirmed(seconds(10)));
    let mut times = Vec::new();
    for _ in 0..count {
        let (began, whole) = (world.now(), world.hosts[CLIENT].application.whole);
        world.transfer(CLIENT, Transfer { up: 500, down: 500, ..Transfer::default() });
        while world.hosts[CLIENT].application.whole == whole {
            world.run_for(Span::from_micros(500));
            assert!(world.now().since(began) < Span::from_secs(20), "{:?}", world.lost());
        }
        times.push(world.now().since(began));
        world.run_for(pause);
    }
    times.sort_unstable();
    times
}

#[test]
#[ignore = "prints figures for people"]
fn small_requests_print_their_latencies() {
    println!(
        "| round trip | loss | pause | p50 | p95 | p99 | longest |\n|---|---|---|---|---|---|---|"
    );
    for round_trip in ["1ms", "20ms", "100ms"] {
        for loss in ["0%", "1%", "5%"] {
            for pause in [Span::from_millis(10), Span::from_secs(1)] {
                let path = PathConfig::new("600mbit", round_trip, "droptail:7500KB").loss(loss);
                let times = requests(&path, pause, 400);
                let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
                println!(
                    "| {round_trip} | {loss} | {pause} | {} | {} | {} | {} |",
                    at(0.5),
                    at(0.95),
                    at(0.99),
                    at(1.0),
                );
            }
        }
    }
}

/// Uploads that start on a path with random loss, and the slowest upload.
#[test]
#[ignore = "prints figures for people"]
fn many_starts_print_their_figures() {
    let count: u64 = std::env::var("WEIR_STARTS").map_or(50, |text| text.parse().unwrap());
    let first: u64 = std::env::var("WEIR_SEED").map_or(1, |text| text.parse().unwrap());
    let stall_ms: u64 = std::env::var("WEIR_STALL_MS").map_or(0, |text| text.parse().unwrap());
    let delay_ms: u64 = std::env::var("WEIR_DELAY_MS").map_or(0, |text| text.parse().unwrap());
    let rate = std::env::var("WEIR_RATE").unwrap_or("600mbit".to_owned());
    let path = PathConfig::new(&rate, "100ms", "droptail:7500KB").loss("5%");
    let mut all = Vec::new();
    for seed in first..first + count {
        let mut world = World::new(seed, settings("tcpa"), &path);
        world.transfer(CLIENT, Transfer { up: 1 << 40, ..Transfer::default() });
        // Once, soon after the start, add delay to the path.
        if delay_ms > 0 {
            let at = 120 + link::mix(seed) % 400;
            let slow = PathConfig::new(&rate, &format!("{}ms", 100 + delay_ms), "droptail:7500KB");
            let slow = slow.loss("5%");
            world.change_at(millis(at), Change::PathConfig(Box::new(slow)));
            world.change_at(millis(at + delay_ms), Change::PathConfig(Box::new(path.clone())));
        }
        // Stall both hosts ten times.
        for step in 0..10 {
            let stall = link::mix(seed ^ (step << 32)) % (1 + stall_ms);
            for host in &mut world.hosts {
                (host.slack, host.moderation) =
                    (Span::from_millis(stall), Span::from_millis(stall));
            }
            world.run_for(Span::from_millis(50));
            for host in &mut world.hosts {
                (host.slack, host.moderation) = (Span::ZERO, Span::ZERO);
            }
            world.run_for(Span::from_millis(150));
        }
        world.run_for(Span::from_secs(3));
        let before = world.hosts[SERVER].application.received;
        world.run_for(Span::from_secs(2));
        let received = world.hosts[SERVER].application.received - before;
        let before = world.hosts[SERVER].application.received;
        world.run_for(Span::from_secs(5));
        let later = world.hosts[SERVER].application.received - before;
        all.push((received * 8 / 2_000, later * 8 / 5_000, seed));
    }
    all.sort_unstable();
    println!(
        "slowest (kbit/s at 5 to 7 s and at 7 to 12 s, seed): {:?}",
        &all[..all.len().min(10)]
    );
    println!("median: {} kbit/s", all[all.len() / 2].0);
}
