//! Completion times of flows that have an end.

use super::metrics::alone;
use super::scene::Scene;
use super::world::Ended;
use crate::model::Measurement;
use sim::Sizes;
use units::Bytes;

/// Records all flows under test that began in the measured time, by size if sizes differ.
pub(super) fn record(scene: &Scene, ended: &Ended, result: &mut Measurement) {
    let done: Vec<(usize, Bytes, f64)> = ended
        .measured(scene)
        .filter_map(|flow| {
            let taken = ended.outcome.flows[flow].completion?.millis_f64();
            Some((flow, ended.sizes[flow]?, taken))
        })
        .collect();
    let times: Vec<f64> = done.iter().map(|(.., taken)| *taken).collect();
    result.record_quantiles("fct_ms", &times, &["p50", "p99", "max"]);
    if matches!(scene.flows.size, Some(Sizes::Distribution(_))) {
        for (family, above, most) in CLASSES {
            let is_one = |size: Bytes| size > above && size <= most;
            let times: Vec<f64> = done
                .iter()
                .filter(|(_, size, _)| is_one(*size))
                .map(|(.., taken)| *taken)
                .collect();
            result.record_quantiles(family, &times, &["p50", "p99"]);
        }
    }
    let Some(rate) = scene.rate() else { return };
    let slower: Vec<f64> = done
        .iter()
        .map(|(flow, size, taken)| {
            let way = ended.way_of(*flow);
            taken / alone(scene, rate, way.round_trip, *size).millis_f64()
        })
        .collect();
    result.record_quantiles("slowdown", &slower, &["p50", "p99"]);
}

const CLASSES: [(&str, Bytes, Bytes); 3] = [
    ("fct_small_ms", Bytes::ZERO, Bytes::new(100_000)),
    ("fct_medium_ms", Bytes::new(100_000), Bytes::new(1_000_000)),
    ("fct_large_ms", Bytes::new(1_000_000), Bytes::new(u64::MAX)),
];
