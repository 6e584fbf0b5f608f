//! The key `end` of the JSON: the results of a test, as measured by client and server.

use super::{entry, number};
use crate::event::{Datagrams, End, Ended, Role, Started, StreamTotal};
use crate::options::{Direction, Protocol};
use crate::output::figures::{rate_of, share_percent};
use crate::output::outcome::{DirectionStreams, Outcome, directions};
use serde_json::{Map, Value, json};
use units::{Bytes, Span};

pub(in crate::output) fn value(started: &Started, ended: &Ended) -> Value {
    let udp = started.options.protocol == Protocol::Udp;
    let mut out = Map::new();
    let stream = if udp { udp_stream } else { tcp_stream };
    entry(&mut out, "streams", ended.streams.iter().map(stream).collect::<Vec<_>>());
    for direction in directions(started.role, &ended.streams) {
        let both = started.options.direction == Direction::Both;
        let suffix = if both && !direction.forward { "_bidir_reverse" } else { "" };
        let sums = if udp { udp_sums(&direction) } else { tcp_sums(&direction) };
        out.extend(sums.map(|(key, sum)| (format!("{key}{suffix}"), Value::Object(sum))));
    }
    entry(&mut out, "cpu_utilization_percent", cpu(ended));
    if !udp {
        // In a bidirectional test iperf3 calls its client the sender.
        let here = match started.options.direction {
            Direction::Forward | Direction::Both => started.role == Role::Client,
            Direction::Reverse => started.role == Role::Server,
        };
        let (local, remote) = (&ended.local_congestion, &ended.remote_congestion);
        let (sender, receiver) = if here { (local, remote) } else { (remote, local) };
        for (key, name) in
            [("sender_tcp_congestion", sender), ("receiver_tcp_congestion", receiver)]
        {
            if let Some(name) = name {
                entry(&mut out, key, name.as_str());
            }
        }
    }
    Value::Object(out)
}

type Sums = std::vec::IntoIter<(&'static str, Map<String, Value>)>;

fn tcp_sums(direction: &DirectionStreams<'_, StreamTotal>) -> Sums {
    let outcome = Outcome::of(&direction.streams);
    let mut sent = head(outcome.sent);
    if let Some(count) = outcome.retransmits {
        entry(&mut sent, "retransmits", count);
    }
    entry(&mut sent, "sender", direction.sends);
    let mut received = head(outcome.received);
    entry(&mut received, "sender", direction.sends);
    known(vec![("sum_sent", sent, outcome.sent), ("sum_received", received, outcome.received)])
}

/// Leaves out the sums of a side that reported nothing: readers would take zeros for measurements.
fn known(sums: Vec<(&'static str, Map<String, Value>, End)>) -> Sums {
    let known = sums.into_iter().filter(|(.., end)| end.is_known());
    known.map(|(key, sum, _)| (key, sum)).collect::<Vec<_>>().into_iter()
}

fn udp_sums(direction: &DirectionStreams<'_, StreamTotal>) -> Sums {
    let outcome = Outcome::of(&direction.streams);
    let datagrams = outcome.datagrams.unwrap_or_default();
    let of_sender = outcome.datagrams_of_sender();

    // iperf3 divides the sent bytes by the receiver's time.
    let mut sum = head(outcome.received);
    entry(&mut sum, "bytes", outcome.sent.bytes.count());
    entry(&mut sum, "bits_per_second", rate(outcome.sent));
    loss(&mut sum, &datagrams, of_sender);
    entry(&mut sum, "sender", direction.sends);

    let mut sent = head(outcome.sent);
    loss(&mut sent, &Datagrams::default(), of_sender);
    entry(&mut sent, "sender", true);

    let mut received = head(outcome.received);
    loss(&mut received, &datagrams, datagrams.count);
    entry(&mut received, "sender", false);
    known(vec![
        ("sum", sum, outcome.received),
        ("sum_sent", sent, outcome.sent),
        ("sum_received", received, outcome.received),
    ])
}

fn tcp_stream(stream: &StreamTotal) -> Value {
    let mut sender = Map::new();
    entry(&mut sender, "socket", stream.id);
    sender.extend(head(stream.sent));
    if let Some(count) = stream.retransmits {
        let path = stream.path.unwrap_or_default();
        let bytes = |bytes: Option<Bytes>| bytes.map_or(0, Bytes::count);
        let micros = |span: Option<Span>| span.map_or(0, |span| span.nanos() / 1000);
        entry(&mut sender, "retransmits", count);
        entry(&mut sender, "max_snd_cwnd", bytes(path.max_cwnd));
        entry(&mut sender, "max_snd_wnd", bytes(path.max_send_window));
        entry(&mut sender, "max_rtt", micros(path.max_rtt));
        entry(&mut sender, "min_rtt", micros(path.min_rtt));
        entry(&mut sender, "mean_rtt", micros(path.mean_rtt));
    }
    entry(&mut sender, "sender", stream.sends);
    let mut receiver = Map::new();
    entry(&mut receiver, "socket", stream.id);
    receiver.extend(head(stream.received));
    entry(&mut receiver, "sender", stream.sends);
    let ends = [("sender", sender, stream.sent), ("receiver", receiver, stream.received)];
    known(ends.into()).map(|(key, end)| (key.to_owned(), Value::Object(end))).collect()
}

fn udp_stream(stream: &StreamTotal) -> Value {
    let datagrams = stream.datagrams.unwrap_or_default();
    let mut udp = Map::new();
    entry(&mut udp, "socket", stream.id);
    udp.extend(head(stream.sent));
    loss(&mut udp, &datagrams, stream.datagrams_sent.unwrap_or(datagrams.count));
    entry(&mut udp, "out_of_order", datagrams.reordered);
    entry(&mut udp, "sender", stream.sends);
    json!({ "udp": udp })
}

fn head(end: End) -> Map<String, Value> {
    let elapsed = number(end.elapsed.secs_f64());
    let mut out = Map::new();
    entry(&mut out, "start", 0);
    entry(&mut out, "end", elapsed.clone());
    entry(&mut out, "seconds", elapsed);
    entry(&mut out, "bytes", end.bytes.count());
    entry(&mut out, "bits_per_second", rate(end));
    out
}

fn loss(out: &mut Map<String, Value>, datagrams: &Datagrams, packets: u64) {
    entry(out, "jitter_ms", number(datagrams.jitter.millis_f64()));
    entry(out, "lost_packets", datagrams.lost);
    entry(out, "packets", packets);
    entry(out, "lost_percent", number(share_percent(datagrams.lost, packets)));
}

fn rate(end: End) -> Value {
    number(rate_of(end.bytes, end.elapsed))
}

fn cpu(ended: &Ended) -> Value {
    let mut out = Map::new();
    for (end, cpu) in [("host", Some(&ended.local_cpu)), ("remote", ended.remote_cpu.as_ref())] {
        let Some(cpu) = cpu else { continue };
        entry(&mut out, &format!("{end}_total"), number(cpu.user + cpu.system));
        entry(&mut out, &format!("{end}_user"), number(cpu.user));
        entry(&mut out, &format!("{end}_system"), number(cpu.system));
    }
    Value::Object(out)
}
