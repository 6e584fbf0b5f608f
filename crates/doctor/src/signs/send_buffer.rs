//! Signs about the send buffer.

use crate::bound;
use crate::recording::Connection;
use crate::view::{End, Flow, View};
use units::{Bytes, Rate, Span};

/// Whether the connection is about as fast as one buffer in each round trip allows. If the
/// connection is much slower, the receiver answers in bursts, and the full buffer is only a
/// consequence.
pub(crate) fn is_the_buffer(flow: &Flow<'_>, allows: Option<Rate>) -> bool {
    let near = allows.is_none_or(|allows| {
        flow.rate().bits_per_second() as f64 >= NEAR * allows.bits_per_second() as f64
    });
    near || is_tiny(flow)
}

/// Whether the buffer alone is the limit: the buffer is fixed and small, the receiver's window has
/// room for several buffers, no queue is on the path, and the round trips are alike. The
/// application takes some time to fill the buffer again, so that much less than one buffer passes
/// in each round trip of a cable.
fn is_tiny(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let limits = sender.values(|c| c.send_limit);
    let (Some(least), Some(most)) = (limits.iter().min(), limits.iter().max()) else {
        return false;
    };
    let windows = sender.values(|c| c.tcp.peer_window);
    let window = windows.into_iter().min().unwrap_or_default();
    let queue = sender.rtt().unwrap_or_default() - sender.tcp().min_rtt.unwrap_or_default();
    let varies = sender.median(|c| c.tcp.rttvar).unwrap_or_default();
    least == most
        && *most <= TINY
        && least.count().saturating_mul(2) <= window.count()
        && queue < SHORT
        && varies < SHORT
}

/// Returns the rate of one buffer per round trip. The kernel's limit counts overhead, too: about
/// half of the limit is data. Only the shortest round trip is a property of the path: a longer
/// round trip contains a queue, or the receiver's delay.
pub(crate) fn allowed(sender: &End<'_>) -> Option<Rate> {
    let half = Bytes::new(sender.median(|c| c.send_limit)?.count() / 2);
    let rtt = sender.rtt()?;
    bound::window(half, sender.tcp().min_rtt.map_or(rtt, |least| least.min(rtt)))
}

/// Returns the share of the observation in which the buffer itself held the sender back.
pub(crate) fn held(flow: &Flow<'_>) -> f64 {
    let Some(sender) = &flow.sender else { return 0.0 };
    let limited = sender.buffer_limited().unwrap_or(0.0);
    if is_the_buffer(flow, allowed(sender)) { limited } else { 0.0 }
}

/// Whether the receiver takes the data in bursts: the full buffer would allow a much higher rate. A
/// queue on the path fills the buffer too, but keeps the round trips alike (RFC 6298).
pub(crate) fn waits_for_reader(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let queue = sender.rtt().unwrap_or_default() - sender.tcp().min_rtt.unwrap_or_default();
    let varies = sender.median(|c| c.tcp.rttvar).unwrap_or_default();
    let stands = queue >= SHORT && varies * 2 < queue;
    let lossless = sender.loss().unwrap_or(0.0) < 1e-3;
    sender.buffer_limited().unwrap_or(0.0) >= LIMITED
        && lossless
        && !stands
        && !is_the_buffer(flow, allowed(sender))
}

/// Whether the whole buffer is in flight and gives the observed rate: one buffer in each round
/// trip, although both windows have room for more. The kernel counts no limited time if each write
/// of the program fills the buffer at once.
pub(crate) fn is_in_flight(flow: &Flow<'_>, _view: &View<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let limits = sender.values(|c| c.send_limit);
    let is_fixed = limits.iter().min() == limits.iter().max() && !limits.is_empty();
    let queued = sender.median(|c| Some(c.send_queue)).unwrap_or_default();
    let (Some(rtt), Some(mss)) = (sender.rtt(), sender.tcp().mss) else { return false };
    let is_full = |c: &Connection| {
        c.send_limit.is_some_and(|limit| c.send_queue.count() >= limit.count() / 2)
            && c.has_unsent() == Some(false)
    };
    let room = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes >= queued.count() / 2 * 3);
    let window = sender.median(|c| c.tcp.peer_window).map(Bytes::count);
    let congestion = sender.median(|c| c.tcp.cwnd);
    let congestion = congestion.map(|cwnd| mss.count().saturating_mul(cwnd.into()));
    let gives = bound::window(queued, rtt).map_or(0.0, |allows| {
        flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64
    });
    is_fixed
        && sender.often(is_full) >= MOSTLY
        && room(window)
        && room(congestion)
        && rtt >= LONG
        && EXACT.contains(&gives)
}

/// Minimum rate in units of the rate that the buffer allows. A buffer with more overhead, full most
/// of the time, still reaches this share.
const NEAR: f64 = 0.3;
/// Minimum share of the time in which the buffer holds the sender (measured).
const LIMITED: f64 = 0.2;
const SHORT: Span = Span::from_millis(1);
const LONG: Span = Span::from_millis(2);
/// Minimum share of the samples with a full buffer.
const MOSTLY: f64 = 0.7;
/// Observed rate as a share of one full buffer in each round trip.
const EXACT: std::ops::Range<f64> = 0.8..1.25;
/// A kernel that may enlarge the buffer gives a new connection a larger buffer (tcp_sndbuf_expand).
const TINY: Bytes = Bytes::new(65_536);
