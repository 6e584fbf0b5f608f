//! The series that a sending peer reports for its streams. A receiver reports no series, because
//! its kernel's window and round-trip times are those of acknowledgements.

use super::tables::{limit_name, quantity};
use crate::observe::series::{Line, MOST_POINTS, Merge, Series};
use serde_json::Value;

/// Encodes the series of the streams that this side sends, for a peer that asked for them. Merges
/// points until the series fit into a message beside its other contents.
pub(crate) fn reported(series: &[Series], senders: &[u32]) -> Value {
    let mut reported: Vec<Series> =
        series.iter().filter_map(|one| of_streams(one, senders)).collect();
    loop {
        let value = serde_json::to_value(&reported).unwrap_or_default();
        let points = reported.iter().map(|one| one.time_s.len()).max().unwrap_or(0);
        if points <= 1 || value.to_string().len() <= MOST_BYTES {
            return value;
        }
        reported.iter_mut().for_each(halve);
    }
}

pub(crate) fn read(reported: &Value) -> Vec<Series> {
    let all = reported.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().take(MOST_SERIES).filter_map(one).collect()
}

/// Adds the peer's series of these streams to the local series, on the local time axis. The peer's
/// time 0 is half a round trip earlier or later.
pub(crate) fn merge(own: &mut Vec<Series>, theirs: &[Series], streams: &[u32]) {
    let Some(axis) = own.iter().find(|one| one.name == "throughput").map(|one| one.time_s.clone())
    else {
        return;
    };
    for mut series in theirs.iter().filter_map(|one| of_streams(one, streams)) {
        let merge = merge_of(series.name);
        for line in &mut series.lines {
            line.values = resampled(&series.time_s, &line.values, &axis, merge);
        }
        series.time_s.clone_from(&axis);
        let same = |one: &&mut Series| one.name == series.name && series.stream.is_none();
        match own.iter_mut().find(same) {
            Some(beside) if beside.time_s == axis => beside.lines.append(&mut series.lines),
            _ => own.push(series),
        }
    }
}

/// Returns the lines of these streams; `None` if the streams have no lines. Ignores metrics that
/// this side also measures, such as the throughput.
fn of_streams(series: &Series, streams: &[u32]) -> Option<Series> {
    let mut series = series.clone();
    match series.stream {
        Some(stream) => return streams.contains(&stream).then_some(series),
        None if series.name == "throughput" || quantity(series.name).is_none() => return None,
        None => {}
    }
    let is_theirs = |line: &Line| line.name.parse().is_ok_and(|id| streams.contains(&id));
    series.lines.retain(is_theirs);
    (!series.lines.is_empty()).then_some(series)
}

fn merge_of(name: &str) -> Merge {
    quantity(name).map_or(Merge::Mean, |(_, _, merge)| merge)
}

fn halve(series: &mut Series) {
    let axis: Vec<f64> = series.time_s.chunks(2).filter_map(|pair| pair.last().copied()).collect();
    let merge = merge_of(series.name);
    for line in &mut series.lines {
        line.values = resampled(&series.time_s, &line.values, &axis, merge);
    }
    series.time_s = axis;
}

/// Moves values to another time axis. Each point covers the time since the previous point. If the
/// new axis has more points than the old axis, several new points lie within one old point.
fn resampled(from: &[f64], values: &[Option<f64>], to: &[f64], merge: Merge) -> Vec<Option<f64>> {
    let mut next = 0;
    let mut out = Vec::with_capacity(to.len());
    for (index, until) in to.iter().enumerate() {
        let is_last = index + 1 == to.len();
        let begun = next;
        while next < from.len() && (is_last || from[next] <= *until) {
            next += 1;
        }
        let within: Vec<f64> = values[begun..next].iter().flatten().copied().collect();
        let sum: f64 = within.iter().sum();
        out.push(match merge {
            _ if begun == next && next == from.len() => None,
            Merge::Sum if begun == next => Some(0.0),
            _ if begun == next => values[next],
            _ if within.is_empty() => None,
            Merge::Sum => Some(rounded(sum)),
            Merge::Mean => Some(rounded(sum / within.len() as f64)),
            Merge::Max => within.iter().copied().reduce(f64::max),
        });
    }
    out
}

fn one(reported: &Value) -> Option<Series> {
    let name = reported.get("name")?.as_str()?;
    let time_s: Vec<f64> = numbers(reported.get("time_s")?)?.into_iter().collect::<Option<_>>()?;
    let ascends = time_s.windows(2).all(|pair| pair[0] <= pair[1]);
    if time_s.is_empty() || !ascends || !time_s.iter().all(|at| (0.0..LATEST).contains(at)) {
        return None;
    }
    let lines = reported.get("lines")?.as_array()?;
    let values = |line: &Value| numbers(line.get("values")?).filter(|v| v.len() == time_s.len());
    let named = |line: &Value| Some((line.get("name")?.as_str()?.to_owned(), values(line)?));
    let lines = lines.iter().take(MOST_LINES).map(named).collect::<Option<Vec<_>>>()?;
    let limited = (name == "limited_by").then(|| reported.get("stream")?.as_u64()?.try_into().ok());
    let (name, unit, stream) = match limited {
        Some(stream) => ("limited_by", "%", Some(stream?)),
        None => quantity(name).map(|(name, unit, _)| (name, unit, None))?,
    };
    let lines = lines.into_iter().map(|(line, values)| {
        let name = match stream {
            Some(_) => limit_name(&line)?.to_owned(),
            None => line.parse::<u32>().ok()?.to_string(),
        };
        Some(Line { name, unit, values })
    });
    let lines = lines.collect::<Option<Vec<_>>>()?;
    Some(Series { name, stream, stacked: stream.is_some(), time_s, lines })
}

/// Reads a list of values. A value that is negative or larger than any measured value becomes
/// `None`.
fn numbers(reported: &Value) -> Option<Vec<Option<f64>>> {
    let reported = reported.as_array().filter(|reported| reported.len() <= MOST_POINTS + 1)?;
    let known = |value: &Value| value.as_f64().filter(|value| (0.0..LARGEST).contains(value));
    Some(reported.iter().map(known).collect())
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Maximum size of the series in a message ([`crate::control::LONGEST`]), which may also hold a
/// server's output.
pub(crate) const MOST_BYTES: usize = 512 << 10;
/// Maximum number of series read from a peer: seven of a test, and one for each of 128 streams.
const MOST_SERIES: usize = 160;
const MOST_LINES: usize = 256;
/// Latest valid time in seconds: a day (the longest test) and an hour.
const LATEST: f64 = 90_000.0;
const LARGEST: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn series(name: &'static str, ids: &[&str], time_s: &[f64], values: &[f64]) -> Series {
        let line = |id: &&str| Line {
            name: (*id).to_owned(),
            unit: "ms",
            values: values.iter().copied().map(Some).collect(),
        };
        let lines = ids.iter().map(line).collect();
        Series { name, stream: None, stacked: false, time_s: time_s.to_vec(), lines }
    }

    #[test]
    fn a_receiver_moves_the_senders_series_to_its_own_time_axis() {
        let limits = Series {
            stream: Some(3),
            stacked: true,
            lines: vec![Line {
                name: "congestion".to_owned(),
                unit: "%",
                values: vec![Some(90.0); 2],
            }],
            ..series("limited_by", &[], &[1.0, 2.0], &[])
        };
        let theirs = [
            series("throughput", &["3"], &[1.0, 2.0], &[5.0, 5.0]),
            series("rtt", &["1", "3"], &[1.0, 2.0], &[10.0, 20.0]),
            series("retransmits", &["3"], &[1.0, 2.0], &[4.0, 6.0]),
            limits,
        ];
        let theirs = read(&reported(&theirs, &[3]));
        assert_eq!(theirs.len(), 3);
        let axis = [0.5, 1.5, 2.5];
        let mut own = vec![
            series("throughput", &["1", "3"], &axis, &[1.0; 3]),
            series("rtt", &["1"], &axis, &[7.0; 3]),
        ];
        // The peer's series for a stream that this side sends are ignored.
        merge(&mut own, &theirs, &[3]);
        let named = |name: &str| own.iter().find(|one| one.name == name).unwrap();
        assert_eq!(named("throughput").lines.len(), 2);
        let rtt = &named("rtt").lines;
        assert_eq!((rtt[0].name.as_str(), rtt[1].name.as_str()), ("1", "3"));
        assert_eq!(rtt[1].values, [Some(10.0), Some(10.0), Some(20.0)]);
        let again = &named("retransmits").lines[0];
        assert_eq!(
            (again.unit, &again.values[..]),
            ("segments", &[Some(0.0), Some(4.0), Some(6.0)][..])
        );
        let limits = named("limited_by");
        assert_eq!(
            (limits.stream, limits.stacked, limits.time_s.as_slice()),
            (Some(3), true, &axis[..])
        );
    }

    #[test]
    fn a_side_without_samples_ignores_the_peers_series() {
        let mut own = Vec::new();
        merge(&mut own, &[series("rtt", &["1"], &[1.0], &[1.0])], &[1]);
        assert_eq!(own, []);
    }

    #[test]
    fn invalid_series_are_ignored() {
        let line = json!([{"name": "1", "values": [1.0]}]);
        for reported in [
            json!(null),
            json!([7, {}, {"name": "rtt"}]),
            json!([{"name": "gain", "time_s": [1.0], "lines": line}]),
            json!([{"name": "rtt", "time_s": [2.0, 1.0], "lines": line}]),
            json!([{"name": "rtt", "time_s": [-1.0], "lines": line}]),
            json!([{"name": "rtt", "time_s": [1.0], "lines": [{"name": "\u{1b}", "values": [1.0]}]}]),
            json!([{"name": "limited_by", "time_s": [1.0], "lines": line}]),
            json!([{"name": "limited_by", "stream": 1, "time_s": [1.0], "lines": line}]),
        ] {
            assert_eq!(read(&reported), [], "{reported}");
        }
        let absurd =
            json!([{"name": "rtt", "time_s": [1.0], "lines": [{"name": "1", "values": [1e300]}]}]);
        assert_eq!(read(&absurd)[0].lines[0].values, [None]);
    }

    #[test]
    fn a_day_of_many_streams_fits_into_a_message() {
        let ids: Vec<String> = (1..=128).map(|id: u32| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let times: Vec<f64> = (0..600).map(|at| 144.123 * f64::from(at)).collect();
        let values: Vec<f64> = times.iter().map(|at| at * 1.7).collect();
        let all: Vec<Series> =
            ["rtt", "cwnd"].map(|name| series(name, &ids, &times, &values)).into();
        let senders: Vec<u32> = (1..=128).collect();
        let reported = reported(&all, &senders);
        assert!(reported.to_string().len() <= MOST_BYTES);
        let read = read(&reported);
        assert_eq!((read.len(), read[0].lines.len()), (2, 128));
        assert!(read[0].time_s.len() >= 50 && read[0].time_s.last() == times.last());
    }

    proptest! {
        #[test]
        fn resampling_a_series_keeps_its_sum(
            steps in proptest::collection::vec((0.001..1.0_f64, 0_u32..100), 1..50),
            to in proptest::collection::vec(0.001..1.0_f64, 1..50),
        ) {
            let mut at = 0.0;
            let from: Vec<f64> = steps.iter().map(|(step, _)| { at += step; at }).collect();
            at = 0.0;
            let to: Vec<f64> = to.iter().map(|step| { at += step; at }).collect();
            let values: Vec<_> = steps.iter().map(|(_, value)| Some(f64::from(*value))).collect();
            let sum = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
            let moved = resampled(&from, &values, &to, Merge::Sum);
            prop_assert_eq!(moved.len(), to.len());
            prop_assert_eq!(sum(&moved), sum(&values));
            let most = steps.iter().map(|(_, value)| *value).max().unwrap_or(0);
            for value in resampled(&from, &values, &to, Merge::Mean).into_iter().flatten() {
                prop_assert!(value <= f64::from(most));
            }
        }

        #[test]
        fn any_series_from_a_peer_is_tolerated(
            name in "rtt|cwnd|limited_by|.*", times: Vec<f64>, values: Vec<f64>, id: u64,
        ) {
            let reported = json!([{"name": name, "stream": id, "time_s": times,
                "lines": [{"name": id.to_string(), "values": values}]}]);
            let mut own = vec![series("throughput", &["1"], &[0.5, 1.0], &[1.0, 1.0])];
            merge(&mut own, &read(&reported), &[1]);
            prop_assert!(own.iter().all(|one| one.lines.iter().all(|line| line.values.len() == 2)));
        }
    }
}
