//! Answers that come late.

use crate::recording::{Connection, Sample};
use crate::view::View;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use units::{Bytes, Span};

/// Connections that were not there all the time and wait for their answers.
pub(crate) struct Short {
    pub(crate) share: f64,
    pub(crate) waited: usize,
    pub(crate) longest: Span,
    pub(crate) remote: SocketAddr,
}

/// `None` if these wait seldom, or if nobody asks about them.
pub(crate) fn among_short(view: &View<'_>) -> Option<Short> {
    if view.recording.focus.is_none() || view.period.attempt.is_some() {
        return None;
    }
    let (first, last) = (&view.samples()[0], view.last());
    let has = |sample: &Sample, one: &Connection| {
        sample.connections.iter().any(|other| other.is_same_as(one))
    };
    let waits = |sample: &Sample| {
        let short = sample.connections.iter().filter(|one| !has(first, one) || !has(last, one));
        let late = short.filter_map(|one| Some((is_late(one)?, one.remote, one.cookie)));
        late.max_by_key(|(waited, ..)| *waited)
    };
    let each: Vec<_> = view.samples().iter().filter_map(waits).collect();
    let cookies: BTreeSet<u64> = each.iter().map(|(.., cookie)| *cookie).collect();
    let share = each.len() as f64 / view.samples().len() as f64;
    let (longest, remote, _) = each.into_iter().max_by_key(|(waited, ..)| *waited)?;
    let is_common = share >= MOSTLY && cookies.len() >= FEWEST_SHORT;
    is_common.then_some(Short { share, waited: cookies.len(), longest, remote })
}

/// The time that a connection has waited for its first answer, if it is long.
fn is_late(connection: &Connection) -> Option<Span> {
    let ties = connection.tcp.bytes_received == Some(Bytes::ZERO);
    connection.waits_for_answer(ties).filter(|waited| *waited >= least(connection))
}

/// An answer that takes longer is late.
pub(crate) fn least(connection: &Connection) -> Span {
    (connection.tcp.min_rtt.unwrap_or_default() * TRIPS).max(LEAST)
}

/// A share of the samples.
pub(crate) const MOSTLY: f64 = 0.5;
/// Connections.
pub(crate) const FEWEST_SHORT: usize = 3;
/// Longer than a program that is ready to answer takes.
const LEAST: Span = Span::from_millis(30);
/// Round trips.
const TRIPS: u64 = 3;
