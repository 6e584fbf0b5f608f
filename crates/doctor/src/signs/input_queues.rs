//! Signs about the input queues of cores.

use crate::view::View;

/// Whether the cores dropped so many packets that connections lose segments.
pub(crate) fn drops_many(view: &View<'_>) -> bool {
    let cores = view.softnet();
    let sum = |at: usize| cores.values().map(|counts| counts[at]).fold(0, u64::saturating_add);
    let (processed, dropped) = (sum(0), sum(1));
    dropped > 0 && dropped as f64 >= SHARE * processed.saturating_add(dropped) as f64
}

/// Minimum share of dropped packets.
const SHARE: f64 = 1e-3;
