use super::super::Turn;
use crate::outcome::Measurement;
use probe::tcp::TcpSocket;
use report::{Axes, Line, Series, Shape};
use std::ops::Range;
use units::{Bytes, Time};

/// The measured connections at one moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) at: Time,
    pub(super) sockets: Vec<TcpSocket>,
}

/// What the kernel told of the connections themselves inside the window.
pub(super) fn account(seen: &[Look], window: &Range<Time>, result: &mut Measurement) {
    let inside: Vec<&Look> = seen.iter().filter(|look| window.contains(&look.at)).collect();
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else { return };
    let total = |look: &Look, field: fn(&probe::tcp::TcpInfo) -> Option<Bytes>| -> Option<u64> {
        let counts = look.sockets.iter().map(|s| Some(field(s.info.as_ref()?)?.count()));
        counts.sum()
    };
    let grown = |field| Some(total(last, field)?.saturating_sub(total(first, field)?) as f64);
    let sent = grown(|info| info.bytes_sent);
    let again = grown(|info| info.bytes_retrans);
    if let (Some(sent), Some(again)) = (sent, again) {
        result.record("retransmit_percent", "%", (sent > 0.0).then(|| again / sent * 100.0));
    }
    let trips: Vec<f64> = inside
        .iter()
        .flat_map(|look| &look.sockets)
        .filter_map(|socket| Some(socket.info.as_ref()?.rtt?.micros_f64()))
        .collect();
    result.record_quantiles("rtt_us", "µs", &trips, &["p50", "p99"]);
}

/// The connections over time, from `begun` on.
pub(super) fn series(seen: &[Look], begun: Time, turn: &Turn<'_>) -> Vec<Series> {
    let times: Vec<f64> = seen.iter().map(|look| look.at.since(begun).secs_f64()).collect();
    let mut window = Vec::new();
    let mut trip = Vec::new();
    let mut pace = vec![None];
    for look in seen {
        let first = look.sockets.first().and_then(|socket| socket.info.as_ref());
        window.push(first.and_then(|i| Some(i.cwnd()?.count() as f64 / 1000.0)));
        trip.push(first.and_then(|i| Some(i.rtt?.millis_f64())));
    }
    for pair in seen.windows(2) {
        let acked = |look: &Look| -> Option<u64> {
            look.sockets.iter().map(|s| Some(s.info.as_ref()?.bytes_acked?.count())).sum()
        };
        let elapsed = pair[1].at.since(pair[0].at).secs_f64();
        let bytes = acked(&pair[1]).zip(acked(&pair[0])).map(|(b, a)| b.saturating_sub(a));
        pace.push(bytes.filter(|_| elapsed > 0.0).map(|b| b as f64 * 8e-6 / elapsed));
    }
    pace.truncate(times.len());
    let series = |name: &str, line: &str, unit: &str, values| Series {
        name: name.to_owned(),
        system: turn.system.name().to_owned(),
        axes: Axes::clone(turn.axes),
        repeat: 0,
        block: 0,
        valid: true,
        shape: Shape::Lines,
        time_s: times.clone(),
        lines: vec![Line { name: line.to_owned(), unit: unit.to_owned(), values }],
    };
    vec![
        series("throughput", "acknowledged", "Mbit/s", pace),
        series("rtt", "smoothed", "ms", trip),
        series("cwnd", "congestion window", "kB", window),
    ]
}
