use crate::bench::machine::MachineStep;
use crate::model::Measurement;
use probe::tcp::TcpSocket;
use results::{Axes, Line, Series, Shape};
use std::ops::Range;
use units::{Bytes, Span, Time};

/// A sample of the measured connections' kernel counters.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Time,
    pub(super) sockets: Vec<TcpSocket>,
}

/// Records the kernel's figures of the connections inside the window.
pub(super) fn account(seen: &[Sample], window: &Range<Time>, result: &mut Measurement) {
    let inside: Vec<&Sample> = seen.iter().filter(|sample| window.contains(&sample.at)).collect();
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else { return };
    let total =
        |sample: &Sample, field: fn(&probe::tcp::TcpInfo) -> Option<Bytes>| -> Option<u64> {
            let counts = sample.sockets.iter().map(|s| Some(field(s.info.as_ref()?)?.count()));
            counts.sum()
        };
    let grown = |field| Some(total(last, field)?.saturating_sub(total(first, field)?) as f64);
    let sent = grown(|info| info.bytes_sent);
    let again = grown(|info| info.bytes_retrans);
    if let (Some(sent), Some(again)) = (sent, again) {
        result.record("retransmit_percent", (sent > 0.0).then(|| again / sent * 100.0));
    }
    let trips: Vec<f64> = inside
        .iter()
        .flat_map(|sample| &sample.sockets)
        .filter_map(|socket| Some(socket.info.as_ref()?.rtt?.micros_f64()))
        .collect();
    result.record_quantiles("rtt_us", &trips, &["p50", "p99"]);
}

/// Returns the series of the connections, from `begun` on.
pub(super) fn series(seen: &[Sample], begun: Time, step: &MachineStep<'_>) -> Vec<Series> {
    let times: Vec<f64> = seen.iter().map(|sample| sample.at.since(begun).secs_f64()).collect();
    let mut window = Vec::new();
    let mut trip = Vec::new();
    let mut pace = vec![None];
    for sample in seen {
        let first = sample.sockets.first().and_then(|socket| socket.info.as_ref());
        window.push(first.and_then(|i| Some(i.cwnd()?.count() as f64 / 1000.0)));
        trip.push(first.and_then(|i| Some(i.rtt?.millis_f64())));
    }
    for pair in seen.windows(2) {
        let acked = |sample: &Sample| -> Option<u64> {
            sample.sockets.iter().map(|s| Some(s.info.as_ref()?.bytes_acked?.count())).sum()
        };
        let elapsed = pair[1].at.since(pair[0].at).secs_f64();
        let bytes = acked(&pair[1]).zip(acked(&pair[0])).map(|(b, a)| b.saturating_sub(a));
        pace.push(bytes.filter(|_| elapsed > 0.0).map(|b| b as f64 * 8e-6 / elapsed));
    }
    pace.truncate(times.len());
    let series = |name: &str, shape, lines| Series {
        name: name.to_owned(),
        system: step.system.name().to_owned(),
        axes: Axes::clone(step.axes),
        repeat: 0,
        block: 0,
        valid: true,
        shape,
        time_s: times.clone(),
        lines,
    };
    let one = |name: &str, line: &str, unit: &str, values| {
        let line = Line { name: line.to_owned(), unit: unit.to_owned(), values };
        series(name, Shape::Lines, vec![line])
    };
    vec![
        one("throughput", "acknowledged", "Mbit/s", pace),
        one("rtt", "smoothed", "ms", trip),
        one("cwnd", "congestion window", "kB", window),
        series("limited_by", Shape::Stacked, limited_by(seen)),
    ]
}

/// Returns the limits on the senders, in percent of the time since the previous sample. The kernel
/// counts the time with data to send, and within it the time limited by the peer's window and by
/// the send buffer (net/ipv4/tcp_output.c, `tcp_chrono_start`). Congestion control limited the rest
/// of the time with data to send. In the remaining time there was nothing to send.
fn limited_by(seen: &[Sample]) -> Vec<Line> {
    let total = |sample: &Sample| {
        let all = sample.sockets.iter().map(|socket| {
            let info = socket.info.as_ref()?;
            Some([info.busy_time?, info.rwnd_limited?, info.sndbuf_limited?].map(Span::secs_f64))
        });
        let all = all.collect::<Option<Vec<_>>>()?;
        Some(all.iter().fold([0.0; 3], |sum, one| std::array::from_fn(|i| sum[i] + one[i])))
    };
    let mut lines = LIMITS.map(|name| Line {
        name: name.to_owned(),
        unit: "%".to_owned(),
        values: Vec::with_capacity(seen.len()),
    });
    if !seen.is_empty() {
        lines.iter_mut().for_each(|line| line.values.push(None));
    }
    for pair in seen.windows(2) {
        let same = pair[0].sockets.len() == pair[1].sockets.len();
        let spent = total(&pair[0])
            .zip(total(&pair[1]))
            .filter(|_| same)
            .map(|(then, now)| std::array::from_fn(|i| f64::max(now[i] - then[i], 0.0)));
        let elapsed = pair[1].at.since(pair[0].at).secs_f64() * pair[1].sockets.len() as f64;
        let parts = spent.and_then(|spent| shares(spent, elapsed));
        for (number, line) in lines.iter_mut().enumerate() {
            line.values.push(parts.map(|parts| parts[number]));
        }
    }
    lines.into()
}

/// Returns the percentages of the time for each limit of [`LIMITS`].
fn shares([busy, receiver, buffer]: [f64; 3], elapsed: f64) -> Option<[f64; 4]> {
    // The kernel's clock and the lab's clock are read at different moments, so `busy` may exceed
    // `elapsed`.
    let all = elapsed.max(busy);
    let percent = |time: f64| (time / all * 100.0).clamp(0.0, 100.0);
    let parts = [busy - receiver - buffer, receiver, buffer, all - busy].map(percent);
    (all > 0.0).then_some(parts)
}

const LIMITS: [&str; 4] = ["congestion control", "receiver's window", "send buffer", "application"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_contains_the_limited_times() {
        assert_eq!(shares([0.5, 0.25, 0.125], 1.0), Some([12.5, 25.0, 12.5, 50.0]));
        assert_eq!(shares([1.5, 0.0, 0.0], 1.0), Some([100.0, 0.0, 0.0, 0.0]));
        assert_eq!(shares([0.0; 3], 0.0), None);
    }
}
