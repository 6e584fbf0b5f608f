use super::path::{EFFICIENCY, PLAIN, PathConfig, Window, droptail, plain_hosts};
use super::{Case, Effort, Layer, Measured};
use crate::TcpConfig;
use cc::Algorithm;
use units::{Bytes, Rate, Span};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let formula = |name, note, variant: Option<&'static str>, tolerance, measure: Measure| Case {
        name,
        layer: Layer::Formula,
        unit: "Mbit/s",
        note,
        variant,
        tolerance,
        measure,
    };
    for (name, every) in [
        ("Mathis, reno, 0.01 %", 10_000),
        ("Mathis, reno, 0.1 %", 1_000),
        ("Mathis, reno, 1 %", 100),
    ] {
        let measure = move |effort: Effort| {
            let p = 1.0 / every as f64;
            let hosts = if every == 100 { plain_hosts(effort) } else { TcpConfig::default() };
            lossy(Algorithm::Reno, hosts, 50, Losses::Every(every), effort, (1.5 / p).sqrt())
        };
        let note = "Mathis et al. 1997: MSS/RTT sqrt(3/2p) with one in 1/p lost";
        // With delayed ACKs and a loss of one in a hundred, the segments between two losses are so
        // few that the receiver's timers matter.
        let variant = (every == 100).then_some(PLAIN);
        cases.push(formula(name, note, variant, 0.15, Box::new(measure)));
    }
    for (name, p) in [
        ("Mathis by chance, reno, 0.01 %", 0.0001),
        ("Mathis by chance, reno, 0.1 %", 0.001),
        ("Mathis by chance, reno, 1 %", 0.01),
    ] {
        let measure = move |effort| {
            lossy(
                Algorithm::Reno,
                TcpConfig::default(),
                50,
                Losses::Share(p),
                effort,
                1.3098 / p.sqrt(),
            )
        };
        let note =
            "Ott, Kemperman, Mathis 1996: MSS/RTT 1.3098/sqrt(p) where losses are independent";
        cases.push(formula(name, note, None, 0.15, Box::new(measure)));
    }
    for (name, p) in [("PFTK, reno, 2 %", 0.02), ("PFTK, reno, 5 %", 0.05)] {
        let measure = move |effort: Effort| {
            lossy(
                Algorithm::Reno,
                TcpConfig::default(),
                100,
                Losses::Share(p),
                effort,
                pftk(p, 0.1, 0.3) * 0.1,
            )
        };
        let note = "Padhye et al. 1998, timeouts of 300 ms; a lower bound at 5 %, because SACK and probes avoid most of them";
        cases.push(formula(name, note, None, 0.30, Box::new(measure)));
    }
    for (name, rtt_ms, every) in [
        ("CUBIC's response, 100 ms, 0.01 %", 100_u64, 10_000_usize),
        ("CUBIC's response, 200 ms, 0.02 %", 200, 5_000),
        ("CUBIC's response, 400 ms, 0.02 %", 400, 5_000),
    ] {
        let measure = move |effort: Effort| {
            let rtt = Span::from_millis(rtt_ms).secs_f64();
            let window = RESPONSE * (rtt * every as f64).powf(0.75);
            lossy(
                effort.or_own(Algorithm::CubicRfc9438, Algorithm::Cubic),
                plain_hosts(effort),
                rtt_ms,
                Losses::Every(every),
                effort,
                window,
            )
        };
        let note =
            "RFC 9438, 5.1: (C (3 + beta) / 4 (1 - beta))^(1/4) (RTT/p)^(3/4), one in 1/p lost";
        cases.push(formula(name, note, Some(RFC9438), 0.15, Box::new(measure)));
    }
    for (name, rtt_ms) in
        [("CUBIC's response, 200 ms, 0.1 %", 200_u64), ("CUBIC's response, 400 ms, 0.1 %", 400)]
    {
        let measure = move |effort: Effort| {
            let window = RESPONSE * (Span::from_millis(rtt_ms).secs_f64() * 1000.0).powf(0.75);
            lossy(
                effort.or_own(Algorithm::CubicRfc9438, Algorithm::Cubic),
                plain_hosts(effort),
                rtt_ms,
                Losses::Every(1_000),
                effort,
                window,
            )
        };
        let note = "RFC 9438, 5.1; some 15 % below it: one of 10 to 18 round trips between losses repairs and does not grow";
        cases.push(formula(name, note, Some(RFC9438), 0.20, Box::new(measure)));
    }
    let friendly = |effort: Effort| {
        let window = (1.5_f64 * 1000.0).sqrt();
        lossy(
            effort.or_own(Algorithm::CubicRfc9438, Algorithm::Cubic),
            plain_hosts(effort),
            20,
            Losses::Every(1_000),
            effort,
            window,
        )
    };
    let note = "RFC 9438, 4.3: on a short path CUBIC's mean is that of Reno, here Mathis's";
    cases.push(formula(
        "CUBIC's Reno-friendly region, 20 ms, 0.1 %",
        note,
        Some(RFC9438),
        0.15,
        Box::new(friendly),
    ));
    for (name, algorithm, flows, expected, tolerance, note) in [
        (
            "BBR alone: data in flight",
            Algorithm::Bbr,
            1,
            1.0,
            0.15,
            "Cardwell et al. 2016: one BDP, and a quarter more for an eighth of the time",
        ),
        (
            "BBR, four flows: data in flight",
            Algorithm::Bbr,
            4,
            2.0,
            0.20,
            "Cardwell et al. 2016: together they reach the cap of 2 BDP, a queue of one (8 BDP of room)",
        ),
        (
            "BBRv3 alone: data in flight",
            Algorithm::Bbr3,
            1,
            1.0,
            0.15,
            "draft-ietf-ccwg-bbr, 5.3.3: cruises at one BDP between its probes",
        ),
    ] {
        cases.push(Case {
            name,
            layer: Layer::Formula,
            unit: "BDP",
            note,
            variant: None,
            tolerance,
            measure: Box::new(move |effort| {
                Some(Measured::of(expected, in_flight(algorithm, flows, effort)?))
            }),
        });
    }
    for (name, every) in [("BBRv3, 0.5 % loss", 200_usize), ("BBRv3, 1 % loss", 100)] {
        cases.push(Case {
            name,
            layer: Layer::Formula,
            unit: "of the link",
            note: "draft-ietf-ccwg-bbr, time scale for probing: between probes each round lowers the \
                   rate by the share lost, p; one in 1/p lost",
            variant: None,
            tolerance: 0.10,
            measure: Box::new(move |effort| {
                let mut path = PathConfig::new(Rate::from_mbit(100), Span::from_millis(40));
                path.loses_every = Some(every);
                let run = path.run(Algorithm::Bbr3, Window::seconds(5, 20), effort)?;
                let share = run.goodput() / (path.rate.mbit_per_second() * EFFICIENCY);
                let expected = between_probes(1.0 / every as f64, path.rtt);
                Some(Measured::of(expected, share))
            }),
        });
    }
    cases
}

/// Returns the mean rate of BBRv3, as a share of the link, if every round loses a share `p`. A
/// probe finds the whole rate, and `n` rounds later (1 - p)^n of the rate is left. The next probe
/// comes after 2 to 3 s, or after 62 or 63 rounds if these are shorter.
fn between_probes(p: f64, rtt: Span) -> f64 {
    let mean = |rounds: f64| (1.0 - (1.0 - p).powf(rounds)) / (rounds * p);
    let waits = (0..100).map(|i| (2.0 + (f64::from(i) + 0.5) / 100.0) / rtt.secs_f64());
    waits.map(|rounds| mean(rounds.min(62.5))).sum::<f64>() / 100.0
}

/// Returns the median of the bytes in flight, including bytes in the queue, in BDP.
fn in_flight(algorithm: Algorithm, flows: usize, effort: Effort) -> Option<f64> {
    let mut path =
        PathConfig { flows, ..PathConfig::new(Rate::from_mbit(100), Span::from_millis(40)) };
    path.queue = droptail(Bytes::new(8 * path.bdp().count()));
    let run = path.run(algorithm, Window::seconds(5, 20), effort)?;
    let mut queued = run.queue();
    queued.sort_by(f64::total_cmp);
    let median = queued.get(queued.len() / 2)?;
    Some(1.0 + median / path.bdp().count() as f64)
}

type Measure = Box<dyn Fn(Effort) -> Option<Measured> + Send + Sync>;

#[derive(Clone, Copy)]
enum Losses {
    Every(usize),
    Share(f64),
}

/// Builds a case on a path that loses packets and never fills. `window` is the expected mean
/// window, in segments.
fn lossy(
    algorithm: Algorithm,
    hosts: TcpConfig,
    rtt_ms: u64,
    losses: Losses,
    effort: Effort,
    window: f64,
) -> Option<Measured> {
    let mut path = PathConfig {
        queue: droptail(Bytes::new(1 << 28)),
        hosts,
        ..PathConfig::new(Rate::from_mbit(10_000), Span::from_millis(rtt_ms))
    };
    let p = match losses {
        Losses::Every(every) => {
            path.loses_every = Some(every);
            1.0 / every as f64
        }
        Losses::Share(p) => {
            path.loss = [p, 0.0];
            p
        }
    };
    let rtt = path.rtt.secs_f64();
    // The time from a loss to the next loss.
    let cycle = rtt / (p * window);
    let cycles = if p < 0.001 { 60.0 } else { 600.0 };
    let settle = (6.0 * cycle).ceil().max(20.0) as u64;
    let length = (cycles * cycle).ceil().max(20.0) as u64;
    let run = path.run(algorithm, Window::seconds(settle, length), effort)?;
    // Goodput counts a lost segment once, although the sender sends it twice.
    let expected = window * 1448.0 * 8.0 / rtt / 1e6;
    Some(Measured::of(expected, run.goodput()))
}

/// Returns the rate of Padhye, Firoiu, Towsley, Kurose 1998, (32), in segments a second.
fn pftk(p: f64, rtt: f64, timeout: f64) -> f64 {
    let fast = rtt * (2.0 * p / 3.0).sqrt();
    let slow = timeout * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (fast + slow)
}

const RFC9438: &str = "cubic-rfc9438, each segment acknowledged, no offload";
/// (0.4 · 3.7 / 1.2)^(1/4)
const RESPONSE: f64 = 1.0538;
