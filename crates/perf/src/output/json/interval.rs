//! An element of the JSON's `intervals`.

use super::{additions, entry, number};
use crate::event::{Datagrams, Interval, Started, StreamInterval};
use crate::options::Direction;
use crate::output::figures::{rate_of, share_percent};
use crate::output::outcome::{Progress, directions};
use serde_json::{Map, Value};
use units::{Bytes, Span};

pub(in crate::output) fn value(started: &Started, interval: &Interval) -> Value {
    let mut out = Map::new();
    let each: Vec<Value> = interval.streams.iter().map(|one| stream(interval, one)).collect();
    entry(&mut out, "streams", each);
    for direction in directions(started.role, &interval.streams) {
        let progress = Progress::of(&direction.streams);
        let mut sum = head(interval, progress.bytes);
        if let Some(count) = progress.retransmits.filter(|_| direction.sends) {
            entry(&mut sum, "retransmits", count);
        }
        if let Some(datagrams) = &progress.datagrams {
            counts(&mut sum, datagrams, direction.sends);
        }
        tail(&mut sum, interval, direction.sends);
        let both = started.options.direction == Direction::Both;
        let key = if both && !direction.forward { "sum_bidir_reverse" } else { "sum" };
        entry(&mut out, key, sum);
    }
    entry(&mut out, "weir", additions::of_interval(interval));
    Value::Object(out)
}

fn stream(interval: &Interval, stream: &StreamInterval) -> Value {
    let mut out = Map::new();
    entry(&mut out, "socket", stream.id);
    out.extend(head(interval, stream.bytes));
    if let Some(count) = stream.retransmits.filter(|_| stream.sends) {
        entry(&mut out, "retransmits", count);
        let tcp = stream.tcp.unwrap_or_default();
        let micros = |span: Option<Span>| span.map_or(0, |span| span.nanos() / 1000);
        entry(&mut out, "snd_cwnd", tcp.cwnd().map_or(0, Bytes::count));
        entry(&mut out, "snd_wnd", tcp.snd_wnd.map_or(0, Bytes::count));
        entry(&mut out, "rtt", micros(tcp.rtt));
        entry(&mut out, "rttvar", micros(tcp.rttvar));
        entry(&mut out, "pmtu", tcp.pmtu.map_or(0, Bytes::count));
    }
    if let Some(datagrams) = &stream.datagrams {
        counts(&mut out, datagrams, stream.sends);
    }
    tail(&mut out, interval, stream.sends);
    Value::Object(out)
}

fn head(interval: &Interval, bytes: Bytes) -> Map<String, Value> {
    let length = interval.end - interval.start;
    let mut out = Map::new();
    entry(&mut out, "start", number(interval.start.secs_f64()));
    entry(&mut out, "end", number(interval.end.secs_f64()));
    entry(&mut out, "seconds", number(length.secs_f64()));
    entry(&mut out, "bytes", bytes.count());
    entry(&mut out, "bits_per_second", number(rate_of(bytes, length)));
    out
}

/// Writes the counts of datagrams. A sender has no count of lost datagrams.
fn counts(out: &mut Map<String, Value>, datagrams: &Datagrams, sends: bool) {
    if sends {
        entry(out, "packets", datagrams.count);
        return;
    }
    entry(out, "jitter_ms", number(datagrams.jitter.millis_f64()));
    entry(out, "lost_packets", datagrams.lost);
    entry(out, "packets", datagrams.count);
    entry(out, "lost_percent", number(share_percent(datagrams.lost, datagrams.count)));
}

fn tail(out: &mut Map<String, Value>, interval: &Interval, sends: bool) {
    entry(out, "omitted", interval.omitted);
    entry(out, "sender", sends);
}
