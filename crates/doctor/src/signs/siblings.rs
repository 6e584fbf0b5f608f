//! Signs from other connections to the same host.

use crate::view::{End, Flow, View};

/// Whether another connection to the same host is much faster and loses much less: a shared queue
/// then does not explain this connection's losses.
pub(crate) fn loses_more_than_others(flow: &Flow<'_>, view: &View<'_>) -> bool {
    let Some(loss) = lossy(flow) else { return false };
    let (_, to) = flow.addresses();
    view.flows.iter().chain(&view.beside).any(|other| {
        let (_, other_to) = other.addresses();
        let is_other = other.addresses() != flow.addresses() && other_to.ip() == to.ip();
        let sends = other.sender.as_ref().is_some_and(End::has_data);
        let is_faster =
            other.rate().bits_per_second() as f64 >= flow.rate().bits_per_second() as f64 * FASTER;
        let loses = other.sender.as_ref().and_then(End::loss);
        is_other && sends && is_faster && loses.is_some_and(|other| other * MORE <= loss)
    })
}

fn lossy(flow: &Flow<'_>) -> Option<f64> {
    flow.sender.as_ref()?.loss().filter(|loss| *loss >= LOSSY)
}

/// Minimum share of lost segments of a lossy connection.
const LOSSY: f64 = 1e-3;
const FASTER: f64 = 1.5;
const MORE: f64 = 4.0;
