use super::path::{PathConfig, Window};
use super::{Case, Effort, Layer, Measured};
use cc::Algorithm;
use link::{CoDelConfig, QueueConfig};
use units::{Rate, Span, Time};

/// ns-3's `tcp-validation` with `--firstTcpType=cubic --linkRate=50Mbps --baseRtt=50ms
/// --queueUseEcn=0`: a flow that begins at 5 s into a CoDel queue (5 ms, 100 ms). The flow has ten
/// initial segments, byte counting in slow start, and delayed ACKs from the first segment on.
/// HyStart of the flow judges trains by a whole round trip.
pub(super) fn cases() -> Vec<Case> {
    let case = |name, unit, expected, pick: fn(&Figures) -> f64| Case {
        name,
        layer: Layer::Trace,
        unit,
        note: "ns-3 tcp-validation cubic-50ms-no-ecn; cubic leaves slow start at 262, because ns-3 judges trains by a whole round trip; frames of 1514 B, there 1502; no ping beside it",
        variant: Some("cubic-paced, delayed ACKs from the start"),
        tolerance: 0.10,
        measure: Box::new(move |effort| {
            let figures = cubic(effort)?;
            Some(Measured::of(expected, pick(&figures)))
        }),
    };
    vec![
        case("ns-3 CUBIC: largest window", "segments", 511.0, |f| f.most),
        case("ns-3 CUBIC: time of it", "s", 5.4593, |f| f.most_at),
        case("ns-3 CUBIC: window after it", "segments", 173.0, |f| f.least),
    ]
}

struct Figures {
    most: f64,
    most_at: f64,
    least: f64,
}

fn cubic(effort: Effort) -> Option<Figures> {
    let mut path = PathConfig::new(Rate::from_mbit(50), Span::from_millis(50));
    path.queue = QueueConfig::CoDel(CoDelConfig::default());
    if !effort.own {
        path.hosts.quick_acks = 0;
    }
    path.sample_every = Span::from_micros(100);
    let window = Window { from: Span::ZERO, until: Span::from_secs(2) };
    let algorithm = effort.or_own(Algorithm::CubicPaced, Algorithm::Cubic);
    let run = path.run(algorithm, window, effort)?;
    let windows = run.windows(path.hosts.mss);
    let (at, most) =
        windows.iter().copied().fold((Time::ZERO, 0.0), |a, b| if b.1 > a.1 { b } else { a });
    let after = windows.iter().filter(|(when, _)| *when > at);
    let least = after.map(|(_, window)| *window).fold(f64::INFINITY, f64::min);
    Some(Figures { most, most_at: at.since(Time::ZERO).secs_f64() + BEGINS, least })
}

/// The start of ns-3's flow.
const BEGINS: f64 = 5.0;
