//! Signs about the receive window.

use crate::bound;
use crate::recording::{Connection, ConnectionState};
use crate::view::{End, Flow};
use units::{Bytes, Span};

/// Returns the share of the far sender's busy time in which this machine's window held that sender.
pub(crate) fn far_held(flow: &Flow<'_>) -> Option<f64> {
    let far = flow.far?;
    let busy = far.busy.filter(|busy| *busy > Span::ZERO)?;
    Some((far.window_limited?.secs_f64() / busy.secs_f64()).min(1.0))
}

/// Returns the shortest round trip that the receiver measured, at the handshake or by the sender's
/// timestamps. A round trip by timestamps includes the sender's pauses.
pub(crate) fn shortest(receiver: &End<'_>) -> Option<Span> {
    let by_timestamps = receiver.values(|c| c.tcp.receive_rtt).into_iter().min();
    let by_handshake = receiver.tcp().min_rtt;
    by_timestamps.into_iter().chain(by_handshake).filter(|rtt| *rtt > Span::ZERO).min()
}

/// Whether data waits in the receiver or the window closes: the window is large enough, but the
/// reader is slow.
pub(crate) fn is_reader_slow(flow: &Flow<'_>) -> bool {
    if let Some(receiver) = &flow.receiver {
        let full = |c: &Connection| {
            c.receive_limit.is_some_and(|limit| c.receive_queue.count() >= limit.count() / 4)
        };
        return receiver.often(full) >= 0.5;
    }
    let Some(sender) = &flow.sender else { return false };
    let windows = offered(sender);
    let most = windows.iter().max().copied().unwrap_or_default().count();
    // A receiver whose buffer has room offers at least a segment (RFC 1122 section 4.2.3.3).
    let least = sender.tcp().mss.map_or(0, |mss| mss.count());
    // A kernel that closed the window of a usual buffer opens the window by at least a sixteenth of
    // the buffer (__tcp_select_window). A window that never has room for a third segment has a tiny
    // buffer. Segments are at most half of a tiny window (tcp_bound_to_half_wnd).
    if (least..=least.saturating_mul(2).saturating_add(1)).contains(&most) && !flow.is_stalled() {
        return false;
    }
    let is_closed = |window: &&Bytes| window.count() < least || window.count() < most / 4;
    let small = windows.iter().filter(is_closed).count();
    // The probe timer also runs if this machine refuses to send into an open window.
    let probes = |c: &Connection| {
        c.probing && c.tcp.peer_window.is_none_or(|window| window.count() < least.max(1))
    };
    sender.often(probes) > 0.1 || small * 4 >= windows.len().max(1) || moves_with_reads(sender)
}

/// Returns the windows that the far end offered. A peer that has not answered the handshake has
/// offered no window.
pub(crate) fn offered(sender: &End<'_>) -> Vec<Bytes> {
    let has_answered = |c: &Connection| c.state != ConnectionState::SynSent;
    sender.values(|c| c.tcp.peer_window.filter(|_| has_answered(c)))
}

/// Whether the far end's window falls again and again: its program leaves data in a buffer that has
/// room. If a program keeps up, the window stays as it is, or the kernel enlarges it.
pub(crate) fn moves_with_reads(sender: &End<'_>) -> bool {
    let windows: Vec<u64> = offered(sender).into_iter().map(Bytes::count).collect();
    let most = windows.iter().max().copied().unwrap_or(0);
    let segment = sender.tcp().mss.map_or(0, Bytes::count);
    let step = (most / PART_OF_WINDOW).max(segment / 2).max(1);
    let falls = windows.windows(2).filter(|pair| pair[1].saturating_add(step) <= pair[0]).count();
    let below = windows.iter().filter(|window| **window <= most - step.min(most)).count();
    falls >= FEWEST_FALLS && below as f64 >= OFTEN_BELOW * windows.len() as f64
}

/// Whether one window of the far end in each round trip gives the observed rate: the window alone
/// explains the rate. A sender that paces itself is seldom held by the window.
pub(crate) fn is_exact(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let (Some(window), Some(rtt), Some(least)) =
        (sender.median(|c| c.tcp.peer_window), sender.rtt(), sender.tcp().min_rtt)
    else {
        return false;
    };
    let Some(allows) = bound::window(window, rtt) else { return false };
    let share = flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64;
    // Packets in a queue on the path fill any window.
    let waits = rtt - least;
    let no_queue = waits.nanos() < least.nanos() / 4;
    let congestion = sender.tcp().mss.zip(sender.median(|c| c.tcp.cwnd));
    let is_smaller = congestion.is_some_and(|(mss, segments)| {
        mss.count().saturating_mul(segments.into()) as f64 > window.count() as f64 * SMALLER
    });
    EXACT.contains(&share) && no_queue && is_smaller && sender.has_data()
}

/// Whether the options of the handshake leave the window at 64 KiB.
pub(crate) fn lacks_scaling(sender: &End<'_>) -> bool {
    sender.tcp().window_scaling == Some(false)
}

/// Whether the far end scales its windows, and this end reads them without the scale: the far end
/// offers the same few bytes all the time. A receiver whose buffer has room offers at least a
/// segment (RFC 9293 section 3.8.6.2.2), and a full buffer closes the window.
pub(crate) fn is_scale_lost(sender: &End<'_>) -> bool {
    let windows = offered(sender);
    let least = windows.iter().min().map_or(0, |window| window.count());
    let most = windows.iter().max().map_or(0, |window| window.count());
    let segment = sender.tcp().mss.map_or(0, |mss| mss.count());
    lacks_scaling(sender)
        && least > 0
        && most < segment.min(MOST_UNSCALED)
        && most - least <= most / PART_OF_WINDOW
}

/// The smallest fall that counts is the largest window divided by this number.
const PART_OF_WINDOW: u64 = 25;
/// 64 KiB in units of 64 bytes: kernels with usual buffers scale by 128 bytes and more.
const MOST_UNSCALED: u64 = 1025;
const FEWEST_FALLS: usize = 2;
/// Minimum share of the samples with a window below the largest.
const OFTEN_BELOW: f64 = 0.1;
/// Observed rate as a share of the rate that the window allows.
const EXACT: std::ops::Range<f64> = 0.8..1.25;
/// Minimum congestion window, as a multiple of the far end's window.
const SMALLER: f64 = 1.1;
