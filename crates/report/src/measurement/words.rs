//! The findings of a measurement, in sentences.

use perf::event::{Latency, Role, Started, StreamTotal};
use perf::options::{Direction, Protocol};
use perf::output::limits;
use perf::output::outcome::{DirectionStreams, Outcome, directions};
use units::{Bytes, Span};

use super::Measurement;
use crate::number;

/// Returns the title: "TCP to far.example".
pub(crate) fn title(started: &Started) -> String {
    let protocol = match started.options.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    };
    let direction = match (started.options.direction, started.role) {
        (Direction::Both, _) => "both ways with",
        (Direction::Forward, Role::Client) | (Direction::Reverse, Role::Server) => "to",
        _ => "from",
    };
    let title = format!("{protocol} {direction} {}", peer(started));
    match &started.options.title {
        Some(named) => format!("{named}: {title}"),
        None => title,
    }
}

/// Builds the answer: the requested value first, then its explanation.
pub(crate) fn answer(measurement: &Measurement) -> Vec<String> {
    let Measurement { started, ended, .. } = measurement;
    let mut sentences = Vec::new();
    let mut limiting_core = ended.observed.as_ref().and_then(|observed| observed.limiting_core);
    for direction in directions(started.role, &ended.streams) {
        let outcome = Outcome::of(&direction.streams);
        sentences.push(arrived(measurement, &direction, &outcome));
        if let Some(core) = limiting_core.take() {
            sentences.push(format!("This machine's CPU was the limit: core {core} was busy."));
        }
        if let Some(limited_by) = &outcome.limited_by {
            let whose = if direction.sends { "this end" } else { "the far end" };
            sentences.push(format!(
                "While it sent, {whose} was limited by: {}.",
                limits::words(limited_by).replace(" %", "\u{a0}%")
            ));
        }
    }
    let idle = measurement.idle.as_ref().or(ended.idle_latency.as_ref());
    let round_trips = latency(idle, ended.loaded_latency.as_ref());
    let measured_there = round_trips.is_some() && started.is_loopback();
    sentences.extend(round_trips);
    sentences.extend(measured_there.then(|| perf::output::LOOPBACK.to_owned()));
    sentences
}

pub(crate) fn mbit(bytes: Bytes, elapsed: Span) -> f64 {
    if elapsed == Span::ZERO {
        return 0.0;
    }
    bytes.count() as f64 * 8.0 / elapsed.secs_f64() / 1e6
}

pub(crate) fn millis(span: Span) -> String {
    format!("{}\u{a0}ms", number::format(span.millis_f64()))
}

/// Formats a rate: "938 Mbit/s".
pub(crate) fn rate(bytes: Bytes, elapsed: Span) -> String {
    let mbit = mbit(bytes, elapsed);
    match mbit {
        mbit if mbit >= GIGABIT => format!("{}\u{a0}Gbit/s", number::format(mbit / 1e3)),
        mbit if mbit >= 1.0 => format!("{}\u{a0}Mbit/s", number::format(mbit)),
        mbit => format!("{}\u{a0}kbit/s", number::format(mbit * 1e3)),
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    match share {
        share if share > 0.0 && share < LEAST_PERCENT => format!("<{LEAST_PERCENT}\u{a0}%"),
        share => format!("{}\u{a0}%", number::format(share)),
    }
}

pub(crate) fn size(bytes: Bytes) -> String {
    let count = bytes.count() as f64;
    let (value, unit) = match count {
        count if count >= 1e9 => (count / 1e9, "GB"),
        count if count >= 1e6 => (count / 1e6, "MB"),
        count if count >= 1e3 => (count / 1e3, "kB"),
        count => (count, "B"),
    };
    format!("{}\u{a0}{unit}", number::format(value))
}

fn peer(started: &Started) -> String {
    match started.peer.as_str() {
        "" => started.remote.to_string(),
        name => name.to_owned(),
    }
}

fn arrived(
    measurement: &Measurement,
    direction: &DirectionStreams<'_, StreamTotal>,
    outcome: &Outcome,
) -> String {
    let Measurement { started, ended, .. } = measurement;
    let far = peer(started);
    let (sender, receiver) =
        if direction.sends { ("here", far.as_str()) } else { (far.as_str(), "here") };
    let received = rate(outcome.received.bytes, outcome.received.elapsed);
    let time = number::duration(ended.duration.secs_f64());
    let place = if receiver == "here" { receiver.to_owned() } else { format!("at {receiver}") };
    let mut sentence = match (outcome.received.is_known(), outcome.sent.is_known()) {
        (true, _) | (_, false) => format!("{received} arrived {place} over {time}"),
        (false, true) => {
            let sent = rate(outcome.sent.bytes, outcome.sent.elapsed);
            format!("{sent} were sent over {time}, and how much arrived {place} is unknown")
        }
    };
    match started.options.protocol {
        Protocol::Tcp => {
            let algorithm =
                if direction.sends { &ended.local_congestion } else { &ended.remote_congestion };
            if let Some(name) = algorithm {
                sentence += &format!(", sent by {name}");
            }
            if let Some(count) = outcome.retransmits {
                sentence += &format!("; {}", crate::answer::counted(count as usize, "retransmit"));
                if let Some(bytes) = outcome.bytes_retransmitted.filter(|_| count > 0) {
                    let share = percent(bytes.count(), outcome.sent.bytes.count());
                    sentence += &format!(" ({share} of the data)");
                }
            }
        }
        Protocol::Udp => {
            let sent = rate(outcome.sent.bytes, outcome.sent.elapsed);
            let from = if sender == "here" { "here" } else { "there" };
            sentence += &format!(" of {sent} sent from {from}");
            if let Some(datagrams) = outcome.datagrams {
                sentence += &format!(
                    "; {} of {} datagrams lost ({}), {} out of order, {}",
                    datagrams.lost,
                    datagrams.count,
                    percent(datagrams.lost, datagrams.count),
                    datagrams.reordered,
                    crate::answer::counted(datagrams.duplicates as usize, "duplicate"),
                );
            }
        }
    }
    sentence + "."
}

fn latency(idle: Option<&Latency>, loaded: Option<&Latency>) -> Option<String> {
    let figures =
        |latency: &Latency| format!("{} (p99 {})", millis(latency.p50), millis(latency.p99));
    match (idle, loaded) {
        (Some(idle), Some(loaded)) => {
            let times = loaded.p99.nanos() as f64 / idle.p99.nanos().max(1) as f64;
            let compared = if times >= 2.0 {
                format!(": {} times as long at the 99th percentile", number::format(times))
            } else {
                String::new()
            };
            Some(format!(
                "A round trip took {} on the idle path and {} under load{compared}.",
                figures(idle),
                figures(loaded)
            ))
        }
        (Some(idle), None) => {
            Some(format!("A round trip took {} on the idle path.", figures(idle)))
        }
        (None, Some(loaded)) => Some(format!("A round trip took {} under load.", figures(loaded))),
        (None, None) => None,
    }
}

/// In Mbit/s: from this rate on the report uses Gbit/s.
pub(crate) const GIGABIT: f64 = 1e4;
const LEAST_PERCENT: f64 = 0.01;
