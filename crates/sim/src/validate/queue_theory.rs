use super::path::{EFFICIENCY, PathConfig, Window, droptail};
use super::{Case, Effort, Layer, Measured};
use crate::{FlowSpec, ReceiveWindow, Spacing, TcpConfig, World, WorldConfig};
use cc::Algorithm;
use units::{Bytes, Rate, Span, Time};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, load) in [
        ("M/D/1 wait at load 0.5", 0.5),
        ("M/D/1 wait at load 0.8", 0.8),
        ("M/D/1 wait at load 0.9", 0.9),
    ] {
        cases.push(Case {
            name,
            layer: Layer::QueueTheory,
            unit: "service times",
            note: "Pollaczek and Khinchine: rho / 2 (1 - rho)",
            variant: None,
            tolerance: 0.05,
            measure: Box::new(move |effort| wait(load, effort)),
        });
    }
    cases.push(Case {
        name: "packets accounted for",
        layer: Layer::QueueTheory,
        unit: "of all",
        note: "sent + duplicated = arrived + dropped + inside, 16 flows into a shallow queue",
        variant: None,
        tolerance: 0.0,
        measure: Box::new(conservation),
    });
    for (name, windows, share) in
        [("a window of one BDP", 1.0, 1.0), ("a window of half a BDP", 0.5, 0.5)]
    {
        cases.push(Case {
            name,
            layer: Layer::QueueTheory,
            unit: "of the link",
            note: "window / round-trip time",
            variant: None,
            tolerance: 0.01,
            measure: Box::new(move |effort| {
                let run = fixed_window(windows, effort)?;
                Some(Measured::of(share, run.0))
            }),
        });
    }
    cases.push(Case {
        name: "queue with a window of one BDP",
        layer: Layer::QueueTheory,
        unit: "of the path's data, 1 + queue/BDP",
        note: "a window that fills the link exactly leaves no queue",
        variant: None,
        tolerance: 0.02,
        measure: Box::new(|effort| {
            let run = fixed_window(1.0, effort)?;
            Some(Measured::of(1.0, 1.0 + run.1))
        }),
    });
    cases
}

fn wait(load: f64, effort: Effort) -> Option<Measured> {
    let path = PathConfig {
        queue: droptail(Bytes::new(1 << 30)),
        ..PathConfig::new(Rate::from_mbit(1000), Span::ZERO)
    };
    let shape = path.shape(effort.flaw);
    let rate = Rate::from_bits_per_second((load * 1e9) as u64);
    let (from, to) = (shape.senders[0], shape.receivers[0]);
    let flow = FlowSpec::datagrams(from, to, rate, SIZE, Spacing::Poisson);
    let config = WorldConfig {
        seed: effort.seed,
        until: Time::ZERO + Span::from_secs(8),
        measure_from: Time::ZERO + Span::from_millis(100),
        ..WorldConfig::default()
    };
    let outcome = World::new(&shape.topology, vec![flow], config).ok()?.run();
    let service = path.rate.time_for(SIZE).nanos() as f64;
    let waited = outcome.link(shape.bottleneck)?.sojourns.mean().nanos() as f64;
    Some(Measured::of(load / (2.0 * (1.0 - load)), waited / service))
}

fn conservation(effort: Effort) -> Option<Measured> {
    let rate = Rate::from_mbit(100);
    let path = PathConfig {
        queue: droptail(Bytes::new(30_000)),
        loss: [0.01, 0.01],
        flows: 16,
        ..PathConfig::new(rate, Span::from_millis(20))
    };
    let run = path.run(Algorithm::Cubic, Window::seconds(0, 3), effort)?;
    let balance = run.outcome.packets;
    let all = (balance.sent + balance.duplicated) as f64;
    let found = (balance.arrived + balance.dropped + balance.inside) as f64;
    Some(Measured::of(1.0, found / all))
}

/// Runs a flow with a fixed window. Returns the flow's share of the link, and the mean queue in
/// BDP.
fn fixed_window(bdps: f64, effort: Effort) -> Option<(f64, f64)> {
    let mut path = PathConfig::new(Rate::from_mbit(100), Span::from_millis(40));
    let frames = (path.bdp().count() as f64 * bdps / FRAME as f64).round() as u64;
    path.queue = droptail(Bytes::new(1 << 24));
    path.hosts = TcpConfig {
        receive_window: ReceiveWindow::Fixed(Bytes::new(frames * (FRAME - HEADERS))),
        ..TcpConfig::default()
    };
    let run = path.run(Algorithm::Reno, Window::seconds(5, 5), effort)?;
    let queue = run.queue();
    let mean = queue.iter().sum::<f64>() / queue.len().max(1) as f64;
    let share = run.goodput() / (path.rate.mbit_per_second() * EFFICIENCY);
    Some((share, mean / path.bdp().count() as f64))
}

const SIZE: Bytes = Bytes::new(1250);
const FRAME: u64 = 1514;
const HEADERS: u64 = 66;
