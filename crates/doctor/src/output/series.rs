//! The signals of a period over time: throughput, limits of the sender, round trips, queues, drops,
//! and the time of cores by type.

use crate::recording::{Connection, CoreTimes, Period, Recording, Sample};
use crate::view::{End, Flow, View, counted};
use results::{Axes, Line, Series, Shape};
use units::Span;

/// Returns the charts in the order of interest. A counter has no value at the first sample: each
/// point covers the time since the previous sample.
pub fn series(recording: &Recording) -> Vec<Series> {
    let several = recording.periods.len() > 1;
    let mut all = Vec::new();
    for period in &recording.periods {
        let Some(view) = View::of(recording, period) else { continue };
        let title = |name: &str| match several {
            true => format!("{name}, {}", period.label),
            false => name.to_owned(),
        };
        let flows: Vec<&Flow<'_>> =
            view.flows.iter().filter(|flow| flow.is_busy()).take(MOST_LINES).collect();
        let first = flows.first().copied();
        all.extend(throughput(period, &flows).into_iter().map(|one| named(one, &title)));
        let of_first = first.into_iter().flat_map(|flow| {
            [limited(period, flow), round_trips(period, flow), queues(period, flow)]
        });
        all.extend(of_first.flatten().map(|one| named(one, &title)));
        all.extend(drops(period).into_iter().map(|one| named(one, &title)));
        all.extend(cores(period, &view).into_iter().map(|one| named(one, &title)));
    }
    all
}

fn named(one: Series, title: &impl Fn(&str) -> String) -> Series {
    Series { name: title(&one.name), ..one }
}

fn throughput(period: &Period, flows: &[&Flow<'_>]) -> Option<Series> {
    let lines = flows.iter().map(|flow| {
        let end = flow.end();
        let sends = flow.sender.is_some();
        let bytes = move |connection: &Connection| {
            let tcp = &connection.tcp;
            Some(if sends { tcp.bytes_acked } else { tcp.bytes_received }?.count())
        };
        let (from, to) = flow.addresses();
        let rate = |count: u64, time: f64| count as f64 * 8e-6 / time;
        line(format!("{from} → {to}"), "Mbit/s", increments(period, end, bytes, rate))
    });
    chart("Throughput", Shape::Lines, period, lines.collect())
}

/// Charts the limits of the busiest connection's sender, as shares of the time between two samples.
fn limited(period: &Period, flow: &Flow<'_>) -> Option<Series> {
    let sender = flow.sender.as_ref()?;
    let share = |of: fn(&Connection) -> Option<Span>| {
        increments(
            period,
            sender,
            move |c| Some(of(c)?.nanos()),
            |nanos, time| (nanos as f64 * 1e-7 / time).min(100.0),
        )
    };
    let busy = share(|c| c.tcp.busy);
    let window = share(|c| c.tcp.window_limited);
    let buffer = share(|c| c.tcp.buffer_limited);
    let rest = |of: fn(f64, f64, f64) -> f64| -> Vec<Option<f64>> {
        let each = busy.iter().zip(&window).zip(&buffer);
        each.map(|((busy, window), buffer)| {
            Some(of((*busy)?, (*window)?, (*buffer)?).clamp(0.0, 100.0))
        })
        .collect()
    };
    let lines = vec![
        line("application", "%", rest(|busy, _, _| 100.0 - busy)),
        line("receiver's window", "%", window.clone()),
        line("send buffer", "%", buffer.clone()),
        line("congestion control and path", "%", rest(|busy, w, b| busy - w - b)),
    ];
    chart("What limited the busiest sender", Shape::Stacked, period, lines)
}

fn round_trips(period: &Period, flow: &Flow<'_>) -> Option<Series> {
    let sender = flow.sender.as_ref()?;
    let of = |value: fn(&Connection) -> Option<Span>| {
        values(period, sender, |c| Some(value(c)?.millis_f64()))
    };
    let lines = vec![
        line("smoothed", "ms", of(|c| c.tcp.rtt)),
        line("least so far", "ms", of(|c| c.tcp.min_rtt)),
    ];
    chart("Round trips of the busiest connection", Shape::Lines, period, lines)
}

fn queues(period: &Period, flow: &Flow<'_>) -> Option<Series> {
    let mut lines = Vec::new();
    if let Some(sender) = &flow.sender {
        let kilobytes = |bytes: u64| bytes as f64 / 1000.0;
        lines.push(line(
            "not yet acknowledged",
            "kB",
            values(period, sender, |c| Some(kilobytes(c.send_queue.count()))),
        ));
        lines.push(line(
            "of it not yet sent",
            "kB",
            values(period, sender, |c| Some(kilobytes(c.tcp.unsent?.count()))),
        ));
    }
    if let Some(receiver) = &flow.receiver {
        let unread = |c: &Connection| Some(c.receive_queue.count() as f64 / 1000.0);
        lines.push(line("not yet read", "kB", values(period, receiver, unread)));
    }
    if let Some(name) = flow.interface() {
        let backlog = |sample: &Sample| {
            let own = sample.qdiscs.iter().filter(|qdisc| qdisc.interface == name);
            let own: Vec<f64> = own.map(|qdisc| qdisc.backlog.count() as f64 / 1000.0).collect();
            (!own.is_empty()).then(|| own.iter().sum())
        };
        let backlog = period.samples.iter().map(backlog).collect();
        lines.push(line(format!("queueing disciplines of {name}"), "kB", backlog));
    }
    chart("Queues of the busiest connection", Shape::Lines, period, lines)
}

fn drops(period: &Period) -> Option<Series> {
    let counters: [(&str, Count); 5] = [
        ("segments sent again", |sample| sample.counters.get("TcpRetransSegs").copied()),
        ("queueing disciplines", |sample| {
            Some(sample.qdiscs.iter().fold(0, |sum, qdisc| qdisc.drops.saturating_add(sum)))
        }),
        ("interfaces", |sample| {
            let each = sample.interfaces.values();
            let sum = each.fold(0_u64, |sum, one| {
                sum.saturating_add(one.received_drops).saturating_add(one.sent_drops)
            });
            Some(sum)
        }),
        ("receive backlog of cores", |sample| {
            Some(sample.softnet.values().fold(0, |sum, one| one.dropped.saturating_add(sum)))
        }),
        ("UDP receive buffers", |sample| sample.counters.get("UdpRcvbufErrors").copied()),
    ];
    let lines = counters.into_iter().filter_map(|(name, of)| {
        let mut each = vec![None];
        each.extend(
            period
                .samples
                .windows(2)
                .map(|pair| counted(of(&pair[1])?, of(&pair[0])?).map(|count| count as f64)),
        );
        each.truncate(period.samples.len());
        let eventful = each.iter().flatten().any(|count| *count > 0.0);
        eventful.then(|| line(name, "packets", each))
    });
    chart("Drops and retransmissions", Shape::Lines, period, lines.collect())
}

/// Charts the busiest cores, each with its time by type: user, system and so on.
fn cores(period: &Period, view: &View<'_>) -> Vec<Series> {
    let mut busiest: Vec<usize> = view.cores.keys().copied().collect();
    busiest.sort_by(|a, b| view.cores[b].busy().total_cmp(&view.cores[a].busy()));
    busiest.truncate(MOST_CORES);
    busiest.sort_unstable();
    let kinds: [(&str, Kind); 6] = [
        ("user", |times| times.user),
        ("system", |times| times.system),
        ("interrupts", |times| times.irq),
        ("softirqs", |times| times.softirq),
        ("waiting for disks", |times| times.iowait),
        ("stolen", |times| times.steal),
    ];
    let series = busiest.into_iter().filter_map(|core| {
        let lines = kinds.into_iter().map(|(name, of)| {
            let mut each = vec![None];
            each.extend(period.samples.windows(2).map(|pair| {
                let (later, earlier) = (pair[1].cores.get(&core)?, pair[0].cores.get(&core)?);
                let time = (pair[1].at - pair[0].at).secs_f64();
                Some(((of(later) - of(earlier)).secs_f64() / time * 100.0).clamp(0.0, 100.0))
            }));
            each.truncate(period.samples.len());
            line(name, "%", each)
        });
        chart(&format!("Core {core}"), Shape::Stacked, period, lines.collect())
    });
    series.collect()
}

/// Returns the rates of a counter of an end, at the times of the period's samples.
fn increments(
    period: &Period,
    end: &End<'_>,
    of: impl Fn(&Connection) -> Option<u64>,
    rate: impl Fn(u64, f64) -> f64,
) -> Vec<Option<f64>> {
    let mut last: Option<(Span, Option<u64>)> = None;
    let each = period.samples.iter().map(|sample| {
        let (_, connection) = end.all.iter().find(|(at, _)| *at == sample.at)?;
        let now = of(connection);
        let before = last.replace((sample.at, now));
        let (earlier, count) = before?;
        let time = (sample.at - earlier).secs_f64();
        (time > 0.0).then_some(rate(counted(now?, count?)?, time))
    });
    each.collect()
}

fn values(
    period: &Period,
    end: &End<'_>,
    of: impl Fn(&Connection) -> Option<f64>,
) -> Vec<Option<f64>> {
    let each =
        period.samples.iter().map(|sample| of(end.all.iter().find(|(at, _)| *at == sample.at)?.1));
    each.collect()
}

fn line(name: impl Into<String>, unit: &str, values: Vec<Option<f64>>) -> Line {
    Line { name: name.into(), unit: unit.to_owned(), values }
}

/// Builds a chart; `None` if no line has a value.
fn chart(name: &str, shape: Shape, period: &Period, mut lines: Vec<Line>) -> Option<Series> {
    lines.retain(|line| line.values.iter().any(Option::is_some));
    (!lines.is_empty()).then(|| Series {
        name: name.to_owned(),
        system: String::new(),
        axes: Axes::new(),
        repeat: 0,
        block: 0,
        valid: true,
        shape,
        time_s: period.samples.iter().map(|sample| sample.at.secs_f64()).collect(),
        lines,
    })
}

type Count = fn(&Sample) -> Option<u64>;
type Kind = fn(&CoreTimes) -> Span;

/// Maximum number of lines in a chart: the number of colours.
const MOST_LINES: usize = 8;
const MOST_CORES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sketch::Sketch;

    #[test]
    fn a_recording_has_series_of_rates_shares_and_cores() {
        let sketch = Sketch::new().tcp(|at, tcp| {
            tcp.window_limited = Some(Span::from_millis(250 * at));
        });
        let all = series(sketch.recording());
        let named = |name: &str| all.iter().find(|one| one.name == name).unwrap();
        let rates = &named("Throughput").lines[0].values;
        assert_eq!((rates[0], rates[1].map(f64::round)), (None, Some(400.0)));
        let limited = named("What limited the busiest sender");
        let at = |line: usize| limited.lines[line].values[2].map(f64::round);
        assert_eq!([at(0), at(1), at(2), at(3)], [Some(0.0), Some(25.0), Some(0.0), Some(75.0)]);
        let core = named("Core 0");
        assert_eq!(core.shape, Shape::Stacked);
        assert_eq!(core.lines[1].values[1].map(f64::round), Some(20.0));
        assert!(all.iter().all(|one| one.lines.iter().all(|l| l.values.len() == one.time_s.len())));
        assert!(!all.iter().any(|one| one.name == "Drops and retransmissions"));
    }

    #[test]
    fn an_idle_machine_has_only_its_cores() {
        let names: Vec<_> =
            series(Sketch::idle().recording()).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["Core 0", "Core 1"]);
    }
}
