//! Signs of late answers.

use crate::recording::{Connection, Sample};
use crate::view::View;
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use units::{Bytes, Span};

/// Connections that opened or closed during the observation and wait for their first answers.
pub(crate) struct Short {
    pub(crate) share: f64,
    pub(crate) waited: usize,
    pub(crate) longest: Span,
    pub(crate) remote: SocketAddr,
}

/// Looks for late answers among short connections. `None` if they seldom wait, or if the user asks
/// about no connection.
pub(crate) fn among_short(view: &View<'_>) -> Option<Short> {
    if view.recording.focus.is_none() || view.period.attempt.is_some() {
        return None;
    }
    let (first, last) = (&view.samples()[0], view.last());
    let all = |sample: &Sample| -> HashSet<_> {
        sample.connections.iter().map(Connection::identity).collect()
    };
    let (first, last) = (all(first), all(last));
    let stays =
        |one: &Connection| first.contains(&one.identity()) && last.contains(&one.identity());
    let waits = |sample: &Sample| {
        let short = sample.connections.iter().filter(|one| !stays(one));
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

/// Returns the time that a connection has waited for its first answer, if that time is long.
fn is_late(connection: &Connection) -> Option<Span> {
    let ties = connection.tcp.bytes_received == Some(Bytes::ZERO);
    connection.waits_for_answer(ties).filter(|waited| *waited >= least(connection))
}

/// Returns the shortest wait that makes an answer late.
pub(crate) fn least(connection: &Connection) -> Span {
    (connection.tcp.min_rtt.unwrap_or_default() * TRIPS).max(LEAST)
}

/// Minimum share of the samples with a late answer.
pub(crate) const MOSTLY: f64 = 0.5;
/// Minimum number of connections with a late answer.
pub(crate) const FEWEST_SHORT: usize = 3;
/// Shortest wait that makes an answer late: a ready program answers sooner.
const LEAST: Span = Span::from_millis(30);
/// Shortest wait that makes an answer late, in round trips.
const TRIPS: u64 = 3;
