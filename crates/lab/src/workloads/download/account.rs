//! Figures of downloads, for each path and as means over all paths.

use super::client::Attempt;
use super::ideal::Path;
use super::machine::WayUsed;
use super::settings::DownloadSettings;
use crate::bench::machine::links;
use crate::model::{Measurement, Member, Value};
use emu::EmulatorStatistics;
use indexmap::IndexMap;
use probe::tcp::TcpInfo;
use units::{Bytes, Share, Span, Time};

/// Records the speeds, the ideal speeds and the retransmissions.
pub(super) fn account(
    settings: &DownloadSettings,
    paths: &[Path],
    attempts: &[Vec<Attempt>],
    result: &mut Measurement,
) {
    for ((way, path), attempts) in settings.ways.iter().zip(paths).zip(attempts) {
        let mut own = Measurement::default();
        of_path(path, settings.size, attempts, &mut own);
        let failed = attempts.iter().filter_map(|attempt| match attempt {
            Attempt::Failed { reason, .. } => Some(reason),
            Attempt::Came { .. } => None,
        });
        for reason in failed {
            result.warnings.push(format!("on path {}: {reason}", way.name));
        }
        result.members.push(Member { name: way.name.clone(), measurement: own });
    }
    summarise(result);
}

/// Records the means of the figures over all paths.
pub(super) fn summarise(result: &mut Measurement) {
    for (name, value) in means(&result.members) {
        result.metrics.insert(name, value);
    }
    // Divide the mean speed by the mean ideal speed, because the report compares speeds. The mean
    // of the paths' shares would differ.
    let of = |metric: &str| result.metrics.get(metric).map(|value| value.value);
    let share = of("kbyte_s").zip(of("ideal_kbyte_s")).map(|(got, ideal)| got / ideal);
    result.record("share_of_ideal", share);
}

/// Records the queue at the bottleneck of each path during its downloads.
pub(super) fn account_queues(
    ways: &[WayUsed],
    started: Time,
    seen: &EmulatorStatistics,
    result: &mut Measurement,
) {
    for (way, member) in ways.iter().zip(&mut result.members) {
        let points = links::queue(seen, &way.from, &way.to);
        let during = |at: Time| way.windows.iter().any(|window| window.contains(&at));
        let waiting: Vec<Bytes> = points
            .iter()
            .filter(|point| during(started + point.at))
            .map(|point| point.queue)
            .collect();
        let kilobytes: Vec<f64> = waiting.iter().map(|b| b.count() as f64 / 1000.0).collect();
        let delays: Vec<f64> =
            waiting.iter().map(|bytes| way.path.rate.time_for(*bytes).millis_f64()).collect();
        let own = &mut member.measurement;
        own.record_quantiles("queue_ms", &delays, &["p50", "p95", "p99"]);
        own.record_quantiles("queue_kbyte", &kilobytes, &["p50", "p95", "max"]);
        let product = way.path.rate.bytes_in(way.path.round_trip).count() as f64 / 1000.0;
        let p95 = Share::from_percent(95.0).and_then(|p| stats::quantile(&kilobytes, p).ok());
        own.record("queue_bdp.p95", p95.map(|kilobytes| kilobytes / product));
    }
    for (name, value) in means(&result.members) {
        if name.starts_with("queue_") && !name.starts_with("queue_kbyte") {
            result.metrics.insert(name, value);
        }
    }
}

/// Records the ideal speed of the path, and `speed` (in KB/s) as a share of the ideal speed.
pub(super) fn record_ideals(path: &Path, size: Bytes, speed: f64, own: &mut Measurement) {
    let possible = |took: Span| size.count() as f64 / 1024.0 / took.secs_f64();
    let ideal = possible(path.ideal(size));
    own.record("ideal_kbyte_s", Some(ideal));
    own.record("ideal_kbyte_s.path", Some(possible(path.ideal_of_path(size))));
    own.record("ideal_kbyte_s.doubling", Some(possible(path.doubling(size).0)));
    let transferred = path.ideal(size).saturating_sub(path.round_trip);
    own.record("ideal_kbyte_s.transfer", Some(possible(transferred)));
    own.record("share_of_ideal", Some(speed / ideal));
}

fn of_path(path: &Path, size: Bytes, attempts: &[Attempt], own: &mut Measurement) {
    let came: Vec<_> = attempts
        .iter()
        .filter_map(|attempt| match attempt {
            Attempt::Came { downloaded, server, .. } => Some((downloaded, server)),
            Attempt::Failed { .. } => None,
        })
        .collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    // If every download failed, the speed is zero rather than unknown.
    let speed = mean(&mut came.iter().map(|(one, _)| one.kbyte_s())).unwrap_or(0.0);
    let transfer = mean(&mut came.iter().map(|(one, _)| one.transfer_kbyte_s())).unwrap_or(0.0);
    own.record("kbyte_s", Some(speed));
    own.record("transfer_kbyte_s", Some(transfer));
    record_ideals(path, size, speed, own);
    let share = came.len() as f64 / attempts.len().max(1) as f64;
    own.record("availability_percent", Some(share * 100.0));
    let infos = || came.iter().filter_map(|(_, server)| server.as_ref()?.info.as_ref());
    let total = |field: fn(&TcpInfo) -> Option<Bytes>| -> Option<f64> {
        let sum: u64 = infos().filter_map(field).map(Bytes::count).sum();
        (sum > 0).then_some(sum as f64)
    };
    let sent = total(|info| info.bytes_sent);
    let again = sent.map(|_| total(|info| info.bytes_retrans).unwrap_or(0.0));
    own.record("retransmit_percent", again.zip(sent).map(|(a, s)| a / s * 100.0));
    let spent = |part: fn(&TcpInfo) -> Option<Span>| {
        mean(&mut infos().filter_map(|info| {
            let busy = info.busy_time?.secs_f64();
            Some(part(info)?.secs_f64() / busy.max(1e-9) * 100.0)
        }))
    };
    own.record("limited_percent.client", spent(|info| info.rwnd_limited));
    own.record("limited_percent.buffer", spent(|info| info.sndbuf_limited));
    let connects: Vec<f64> = came.iter().map(|(one, _)| one.connected.millis_f64()).collect();
    own.record_quantiles("connect_ms", &connects, &["p50", "max"]);
    own.record("downloads", Some(attempts.len() as f64));
}

/// Returns the mean over the paths for each metric that all paths have. For counts, returns the
/// sum.
fn means(members: &[Member]) -> IndexMap<String, Value> {
    let Some(first) = members.first() else { return IndexMap::new() };
    let names = first.measurement.metrics.iter();
    names
        .filter_map(|(name, value)| {
            let of_each =
                members.iter().map(|member| Some(member.measurement.metrics.get(name)?.value));
            let sum = of_each.sum::<Option<f64>>()?;
            let mean = if name == "downloads" { sum } else { sum / members.len() as f64 };
            Some((name.clone(), Value { value: mean, unit: value.unit.clone() }))
        })
        .collect()
}
