//! Additions to iperf3's results that a weir client and a weir server exchange.

use crate::event::{CoreUse, Datagrams, PathFacts};
use crate::observe::tcp::far;
use crate::observe::{Observed, Series};
use crate::stream::StreamSnapshot;
use serde_json::{Value, json};
use units::{Bytes, Share, Span, foreign_json};

/// The peer's additions, as far as they are valid.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) cores: Vec<CoreUse>,
    datagrams: Vec<(u32, Datagrams)>,
    paths: Vec<(u32, PathFacts)>,
    pub(super) series: Vec<Series>,
}

/// Encodes this side's additions. `with_series`: the peer asked for the series of the streams that
/// this side sends.
pub(super) fn write(
    snapshots: &[StreamSnapshot],
    observed: Option<&Observed>,
    with_series: bool,
) -> Value {
    let received = snapshots.iter().filter(|stream| !stream.sends);
    let datagrams = received.filter_map(|stream| Some((stream.id, stream.datagrams?)));
    let datagrams: Vec<_> = datagrams
        .map(|(id, datagrams)| {
            json!({
                "id": id,
                "count": datagrams.count,
                "received": datagrams.received,
                "lost": datagrams.lost,
                "reordered": datagrams.reordered,
                "duplicates": datagrams.duplicates,
                "jitter_us": datagrams.jitter.micros_f64(),
            })
        })
        .collect();
    let mut extras = observed.map_or_else(|| json!({}), Observed::summary);
    if let Value::Object(extras) = &mut extras {
        extras.insert("datagrams".to_owned(), Value::Array(datagrams));
        if let Some(observed) = observed.filter(|_| with_series) {
            let senders: Vec<u32> =
                snapshots.iter().filter(|stream| stream.sends).map(|stream| stream.id).collect();
            extras.insert(SERIES.to_owned(), far::reported(&observed.series, &senders));
        }
    }
    extras
}

pub(super) fn read(reported: &Value) -> Extras {
    let cores = list(reported.get("cpu").and_then(|cpu| cpu.get("cores")));
    Extras {
        cores: cores.iter().filter_map(core).collect(),
        datagrams: list(reported.get("datagrams"))
            .iter()
            .filter_map(|stream| Some((id(stream)?, datagrams(stream)?)))
            .collect(),
        paths: list(reported.get("streams"))
            .iter()
            .filter_map(|stream| Some((id(stream)?, path(stream))))
            .collect(),
        series: reported.get(SERIES).map(far::read).unwrap_or_default(),
    }
}

/// Returns the peer's additions without its series, which are merged with the local series.
pub(super) fn without_series(reported: &Value) -> Value {
    let mut reported = reported.clone();
    if let Value::Object(reported) = &mut reported {
        reported.remove(SERIES);
    }
    foreign_json(&mut reported, LONGEST);
    reported
}

impl Extras {
    pub(super) fn datagrams(&self, id: u32) -> Option<Datagrams> {
        self.datagrams.iter().find(|(other, _)| *other == id).map(|(_, datagrams)| *datagrams)
    }

    pub(super) fn path(&self, id: u32) -> Option<PathFacts> {
        self.paths.iter().find(|(other, _)| *other == id).map(|(_, path)| *path)
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    let list = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    &list[..list.len().min(MOST)]
}

fn id(stream: &Value) -> Option<u32> {
    stream.get("id")?.as_u64()?.try_into().ok()
}

fn core(reported: &Value) -> Option<CoreUse> {
    let percent =
        |key| reported.get(key)?.as_f64().filter(|percent| (0.0..=100.0).contains(percent));
    Some(CoreUse {
        core: reported.get("core")?.as_u64()?.try_into().ok()?,
        busy: percent("busy_percent")?,
        softirq: percent("softirq_percent")?,
    })
}

fn datagrams(reported: &Value) -> Option<Datagrams> {
    let count = |key| reported.get(key).and_then(Value::as_u64).filter(|count| *count < 1 << 53);
    Some(Datagrams {
        count: count("count")?,
        received: count("received")?,
        lost: count("lost")?,
        reordered: count("reordered")?,
        duplicates: count("duplicates")?,
        jitter: micros(reported, "jitter_us")?,
    })
}

fn path(reported: &Value) -> PathFacts {
    let micros = |key| micros(reported, key);
    let bytes = |key| reported.get(key).and_then(Value::as_u64).map(Bytes::new);
    PathFacts {
        min_rtt: micros("min_rtt_us"),
        mean_rtt: micros("mean_rtt_us"),
        max_rtt: micros("max_rtt_us"),
        max_cwnd: bytes("max_cwnd_bytes"),
        max_send_window: bytes("max_send_window_bytes"),
        reorder_seen: reported
            .get("reorder_seen")
            .and_then(Value::as_u64)
            .and_then(|count| count.try_into().ok()),
        busy: micros("busy_us"),
        rwnd_limited: micros("receive_window_limited_us"),
        sndbuf_limited: micros("send_buffer_limited_us"),
        bytes_retransmitted: bytes("retransmitted_bytes"),
        full_link: reported
            .get("full_link_percent")
            .and_then(Value::as_f64)
            .and_then(|percent| Share::new(percent / 100.0)),
    }
}

fn micros(reported: &Value, key: &str) -> Option<Span> {
    let micros = reported.get(key)?.as_f64().filter(|micros| (0.0..1e12).contains(micros))?;
    // Rounds, because decimal text is not exact: a value slightly below a whole nanosecond means
    // that nanosecond.
    Some(Span::from_nanos((micros * 1e3).round() as u64))
}

/// Maximum length of a peer's text that is shown.
const LONGEST: usize = 256;
const SERIES: &str = "series";
/// Limit for any list: no host has more streams or cores.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_sent_in_microseconds_are_read_exact_to_the_nanosecond(nanos in 0..1_000_000_000_000_u64) {
            let reported = json!({"us": Span::from_nanos(nanos).micros_f64()});
            prop_assert_eq!(micros(&reported, "us"), Some(Span::from_nanos(nanos)));
        }
    }
}
