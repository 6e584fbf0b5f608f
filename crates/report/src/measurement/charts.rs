//! The time series of a measurement, as the page draws them.

use perf::event::{Datagrams, StreamInterval};
use perf::observe;
use perf::options::Protocol;
use perf::output::outcome::{Progress, directions};

use super::Measurement;
use super::words::{GIGABIT, mbit};
use results::{Axes, Line, Series, Shape};

/// Returns the series, in order of interest: throughput, round-trip time, limits, cost.
pub(crate) fn series(measurement: &Measurement) -> Vec<Series> {
    let observed = measurement.ended.observed.as_ref().map_or(&[][..], |seen| &seen.series);
    let named = |name: &'static str| observed.iter().filter(move |one| one.name == name);
    let mut charts = Vec::new();
    match named("throughput").next() {
        Some(seen) => charts.push(of_streams(measurement, "Throughput", seen, Together::Sum)),
        None => charts.extend(throughput_by_interval(measurement)),
    }
    charts.extend(named("latency").map(|seen| {
        let mut chart = chart("Latency of the probes", seen);
        for line in &mut chart.lines {
            line.name = "longest round trip".to_owned();
        }
        chart
    }));
    charts.extend(limited_by(named("limited_by").collect()));
    for (name, title, together) in [
        ("rtt", "Round-trip time of the streams, smoothed", Together::Spread),
        ("cwnd", "Congestion window", Together::Sum),
        ("delivery_rate", "Delivery rate, as the kernel estimates it", Together::Spread),
        ("send_window", "Window the receiver offers", Together::Spread),
    ] {
        charts.extend(named(name).map(|seen| of_streams(measurement, title, seen, together)));
    }
    for (name, title) in [("retransmits", "Segments sent again"), ("reordering", "Reordering seen")]
    {
        let eventful = named(name).filter(|seen| has_any(seen));
        charts.extend(eventful.map(|seen| of_streams(measurement, title, seen, Together::Sum)));
    }
    charts.extend(datagrams_by_interval(measurement));
    charts.extend(named("cpu").flat_map(cores));
    charts.iter_mut().for_each(in_gigabits);
    charts
}

/// How to merge streams into a few lines if there are more streams than colours.
#[derive(Debug, Clone, Copy)]
enum Together {
    Sum,
    /// The minimum, the mean and the maximum.
    Spread,
}

fn of_streams(
    measurement: &Measurement,
    title: &str,
    seen: &observe::Series,
    together: Together,
) -> Series {
    let mut chart = chart(title, seen);
    without_crowding(&mut chart, matches!(seen.name, "retransmits" | "reordering"));
    let streams = std::mem::take(&mut chart.lines);
    let few = streams.len() <= MOST_LINES;
    let (there, back): (Vec<Line>, Vec<Line>) =
        streams.into_iter().partition(|line| sends(measurement, &line.name));
    let both = !there.is_empty() && !back.is_empty();
    for (direction, lines) in [(" from here", there), (" to here", back)] {
        let direction = if both { direction } else { "" };
        match (lines.as_slice(), together) {
            ([], _) => {}
            ([_], _) => {}
            (many, Together::Sum) => chart.lines.push(sum(many, direction)),
            (many, Together::Spread) if !few => chart.lines.extend(spread(many, direction)),
            (_, Together::Spread) => {}
        }
        let single = lines.len() == 1;
        let named = lines.into_iter().map(|line| Line {
            name: if single && !both {
                "the stream".to_owned()
            } else {
                format!("stream {}{direction}", line.name)
            },
            ..line
        });
        if few || single {
            chart.lines.extend(named);
        }
    }
    chart
}

fn sends(measurement: &Measurement, id: &str) -> bool {
    let streams = &measurement.ended.streams;
    streams.iter().any(|stream| stream.sends && stream.id.to_string() == id)
}

fn sum(lines: &[Line], direction: &str) -> Line {
    across(lines, format!("all {}{direction}", lines.len()), |here| here.iter().sum())
}

fn spread(lines: &[Line], direction: &str) -> [Line; 3] {
    let most = |here: &[f64]| here.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = |here: &[f64]| here.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = |here: &[f64]| here.iter().sum::<f64>() / here.len() as f64;
    [
        across(lines, format!("most of {}{direction}", lines.len()), most),
        across(lines, format!("mean{direction}"), mean),
        across(lines, format!("least{direction}"), least),
    ]
}

/// Applies `fold` to all lines at each time at which any line has a value.
fn across(lines: &[Line], name: String, fold: impl Fn(&[f64]) -> f64) -> Line {
    let length = lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let values = (0..length).map(|at| {
        let here: Vec<f64> = lines.iter().filter_map(|line| *line.values.get(at)?).collect();
        (!here.is_empty()).then(|| fold(&here))
    });
    let unit = lines.first().map(|line| line.unit.clone()).unwrap_or_default();
    Line { name, unit, values: values.collect() }
}

/// Averages the limits of several senders, whose samples have the same times.
fn limited_by(seen: Vec<&observe::Series>) -> Option<Series> {
    let first = *seen.first()?;
    let title = match seen.len() {
        1 => "What limited the sender".to_owned(),
        count => format!("What limited {count} streams, on average"),
    };
    let mut chart = chart(&title, first);
    let mean = |here: &[f64]| here.iter().sum::<f64>() / here.len() as f64;
    for line in &mut chart.lines {
        let same: Vec<Line> = seen
            .iter()
            .flat_map(|series| self::chart("", series).lines)
            .filter(|other| other.name == line.name)
            .collect();
        line.values = across(&same, String::new(), mean).values;
        line.values.resize(chart.time_s.len(), None);
    }
    without_crowding(&mut chart, false);
    Some(chart)
}

/// Returns the CPU use of the test and of each core; with many cores, only of the busiest.
fn cores(seen: &observe::Series) -> Vec<Series> {
    let whole = chart("", seen);
    let (cores, own): (Vec<Line>, Vec<Line>) =
        whole.lines.into_iter().partition(|line| line.name.starts_with("core "));
    let part = |title: String, lines: Vec<Line>| Series {
        name: title,
        time_s: whole.time_s.clone(),
        lines,
        ..blank()
    };
    let mut charts = Vec::new();
    for (kind, title) in
        [("busy", "Each core, whatever ran on it"), ("softirq", "Softirqs of each core")]
    {
        let suffix = format!(" {kind}");
        let mut lines: Vec<Line> = cores
            .iter()
            .filter_map(|line| {
                let name = line.name.strip_suffix(&suffix)?.to_owned();
                Some(Line { name, ..line.clone() })
            })
            .collect();
        let all = lines.len();
        if all > MOST_LINES {
            lines.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
            lines.truncate(MOST_LINES);
        }
        let few = if all > MOST_LINES {
            format!(" ({MOST_LINES} busiest of {all})")
        } else {
            String::new()
        };
        charts.push(part(format!("{title}{few}"), lines));
    }
    charts.push(part("CPU of the test at this end".to_owned(), own));
    charts.retain(|chart| !chart.lines.is_empty());
    charts
}

/// Returns the throughput of each interval, for a test without samples between the intervals.
fn throughput_by_interval(measurement: &Measurement) -> Option<Series> {
    let of = |sends: bool, streams: &[StreamInterval]| {
        let direction = directions(measurement.started.role, streams)
            .into_iter()
            .find(|direction| direction.sends == sends);
        direction.map(|direction| Progress::of(&direction.streams).bytes)
    };
    let lines =
        [("from here", true), ("to here", false)].into_iter().filter_map(|(name, sends)| {
            let rates = measurement.intervals.iter().map(|interval| {
                Some(mbit(of(sends, &interval.streams)?, interval.end - interval.start))
            });
            line(name, "Mbit/s", rates.collect())
        });
    by_interval(measurement, "Throughput", lines.collect())
}

fn datagrams_by_interval(measurement: &Measurement) -> Vec<Series> {
    if measurement.started.options.protocol != Protocol::Udp {
        return Vec::new();
    }
    let received = |value: fn(&Datagrams) -> f64| -> Vec<Option<f64>> {
        measurement
            .intervals
            .iter()
            .map(|interval| {
                let directions = directions(measurement.started.role, &interval.streams);
                let direction = directions.iter().find(|direction| !direction.sends)?;
                Progress::of(&direction.streams).datagrams.as_ref().map(value)
            })
            .collect()
    };
    let eventful = |line: &Line| line.values.iter().flatten().any(|value| *value > 0.0);
    let lost = line("lost", "%", received(|d| 100.0 * d.lost as f64 / d.count.max(1) as f64));
    let disordered =
        line("out of order", "%", received(|d| 100.0 * d.reordered as f64 / d.count.max(1) as f64));
    let jitter = line("jitter", "ms", received(|d| d.jitter.millis_f64()));
    let lines = |lines: Vec<Option<Line>>| lines.into_iter().flatten().collect::<Vec<Line>>();
    [
        by_interval(
            measurement,
            "Datagrams lost",
            lines(vec![lost, disordered]).into_iter().filter(eventful).collect(),
        ),
        by_interval(measurement, "Jitter", lines(vec![jitter])),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Builds a series of the intervals on one time axis, although the intervals' own times restart
/// after the omitted time.
fn by_interval(measurement: &Measurement, title: &str, lines: Vec<Line>) -> Option<Series> {
    let mut time_s = Vec::new();
    for interval in &measurement.intervals {
        let length = (interval.end - interval.start).secs_f64();
        time_s.push(time_s.last().copied().unwrap_or(0.0) + length);
    }
    (!lines.is_empty()).then(|| Series { name: title.to_owned(), time_s, lines, ..blank() })
}

fn line(name: &str, unit: &str, values: Vec<Option<f64>>) -> Option<Line> {
    let has_values = values.iter().any(Option::is_some);
    has_values.then(|| Line { name: name.to_owned(), unit: unit.to_owned(), values })
}

fn chart(title: &str, seen: &observe::Series) -> Series {
    Series {
        name: title.to_owned(),
        shape: if seen.stacked { Shape::Stacked } else { Shape::Lines },
        time_s: seen.time_s.clone(),
        lines: seen
            .lines
            .iter()
            .map(|line| Line {
                name: line.name.clone(),
                unit: line.unit.to_owned(),
                values: line.values.clone(),
            })
            .collect(),
        ..blank()
    }
}

/// Builds an empty series: a measurement has one system, one point and one repeat.
fn blank() -> Series {
    Series {
        name: String::new(),
        system: String::new(),
        axes: Axes::new(),
        repeat: 0,
        block: 0,
        valid: true,
        shape: Shape::Lines,
        time_s: Vec::new(),
        lines: Vec::new(),
    }
}

fn in_gigabits(chart: &mut Series) {
    let values = || chart.lines.iter().filter(|line| line.unit == "Mbit/s");
    let most = values().flat_map(|line| &line.values).flatten().copied().fold(0.0, f64::max);
    if most < GIGABIT {
        return;
    }
    for line in chart.lines.iter_mut().filter(|line| line.unit == "Mbit/s") {
        line.unit = "Gbit/s".to_owned();
        line.values.iter_mut().flatten().for_each(|value| *value /= 1e3);
    }
}

/// Removes points too close behind another point, for example an interval's end after a sample. The
/// time between such points is too short for a rate. Adds counts of a removed point to the previous
/// point.
fn without_crowding(chart: &mut Series, counted: bool) {
    let mut gaps: Vec<f64> = chart.time_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let Some(usual) = gaps.get(gaps.len() / 2).copied() else {
        return;
    };
    for at in (1..chart.time_s.len()).rev() {
        if chart.time_s[at] - chart.time_s[at - 1] >= usual * CROWDED {
            continue;
        }
        chart.time_s.remove(at);
        for line in chart.lines.iter_mut().filter(|line| at < line.values.len()) {
            let gone = line.values.remove(at);
            if counted && let (Some(value), Some(gone)) = (&mut line.values[at - 1], gone) {
                *value += gone;
            }
        }
    }
}

fn has_any(seen: &observe::Series) -> bool {
    seen.lines.iter().flat_map(|line| &line.values).flatten().any(|value| *value > 0.0)
}

fn mean(line: &Line) -> f64 {
    let known: Vec<f64> = line.values.iter().flatten().copied().collect();
    known.iter().sum::<f64>() / known.len().max(1) as f64
}

/// Maximum number of lines of a chart. The charts have this number of colours.
const MOST_LINES: usize = 8;
/// Points closer than this share of the usual distance are removed.
const CROWDED: f64 = 0.2;
