use crate::recording::{Qdisc, Sample};
use std::collections::HashMap;

/// A queueing discipline that is in the first and in the last sample.
#[derive(Debug, Clone, Copy)]
pub struct QueueUse<'a> {
    pub qdisc: &'a Qdisc,
    /// The queueing discipline in the first sample.
    pub earlier: &'a Qdisc,
    /// The share of the samples in which the queue held packets.
    pub waits: f64,
}

pub(super) fn between(samples: &[Sample]) -> Vec<QueueUse<'_>> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Vec::new() };
    let mut earlier = HashMap::new();
    for qdisc in &first.qdiscs {
        earlier.entry(key(qdisc)).or_insert(qdisc);
    }
    let mut waits: HashMap<_, usize> = HashMap::new();
    let all = samples.iter().flat_map(|sample| &sample.qdiscs);
    for qdisc in all.filter(|qdisc| qdisc.backlog.count() > 0) {
        *waits.entry(key(qdisc)).or_default() += 1;
    }
    let both = last.qdiscs.iter().filter_map(|qdisc| {
        let waits = waits.get(&key(qdisc)).copied().unwrap_or(0) as f64 / samples.len() as f64;
        Some(QueueUse { qdisc, earlier: earlier.get(&key(qdisc)).copied()?, waits })
    });
    both.collect()
}

fn key(qdisc: &Qdisc) -> (&str, &str, &str) {
    (&qdisc.interface, &qdisc.handle, &qdisc.kind)
}
