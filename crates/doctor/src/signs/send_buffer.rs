//! The sender's buffer.

use crate::bound;
use crate::view::{End, Flow};
use units::{Bytes, Rate, Span};

/// The connection is about as fast as a buffer allows that is sent once in each round trip. If it
/// is much slower, the receiver answers in bursts, and the full buffer is a consequence.
pub(crate) fn is_the_buffer(flow: &Flow<'_>, allows: Option<Rate>) -> bool {
    let near = allows.is_none_or(|allows| {
        flow.rate().bits_per_second() as f64 >= NEAR * allows.bits_per_second() as f64
    });
    near || is_tiny(flow)
}

/// The buffer is fixed and small, the receiver's window could take it several times, no queue is on
/// the path, and the round trips are alike: nothing but the buffer limits it. The application takes
/// some time to fill it again, so that much less passes than one buffer in each round trip of a
/// cable.
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

/// The rate of a buffer that is sent once in each round trip. The kernel counts the buffer's
/// overhead; about half of it is data. A round trip that is longer than the least is no property of
/// the path: a queue stands there, or the receiver answers late.
pub(crate) fn allowed(sender: &End<'_>) -> Option<Rate> {
    let half = Bytes::new(sender.median(|c| c.send_limit)?.count() / 2);
    let rtt = sender.rtt()?;
    bound::window(half, sender.tcp().min_rtt.map_or(rtt, |least| least.min(rtt)))
}

/// The share of the time in which the buffer itself held the sender back.
pub(crate) fn held(flow: &Flow<'_>) -> f64 {
    let Some(sender) = &flow.sender else { return 0.0 };
    let limited = sender.buffer_limited().unwrap_or(0.0);
    if is_the_buffer(flow, allowed(sender)) { limited } else { 0.0 }
}

/// The receiver takes the data in bursts: the buffer is full, and would allow much more. A queue on
/// the path fills the buffer too, and keeps the round trips alike (RFC 6298).
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

/// Half of the limit is data; a smaller buffer that is full most of the time still passes this.
const NEAR: f64 = 0.3;
/// Measured.
const LIMITED: f64 = 0.2;
const SHORT: Span = Span::from_millis(1);
/// A kernel that may enlarge the buffer gives a new connection more (tcp_sndbuf_expand).
const TINY: Bytes = Bytes::new(65_536);
