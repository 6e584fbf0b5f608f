//! Signs that the kernel lacks memory for the sockets of TCP.

use crate::recording::Connection;
use crate::view::{End, Flow, View};
use units::Bytes;

/// Whether the kernel keeps the window of this receiver at two or four segments, although the
/// buffer has room for much more: Linux keeps the window so small while the memory of TCP is short
/// (`tcp_clamp_window`, `__tcp_select_window`).
pub(crate) fn is_window_kept_small(receiver: &End<'_>) -> bool {
    let is_small = |c: &Connection| {
        let (Some(window), Some(segment)) = (c.tcp.own_window, c.tcp.advmss) else { return false };
        let unit = c.tcp.rcv_wscale.unwrap_or(0);
        let has_room = c.receive_limit.is_some_and(|limit| {
            limit.count() >= window.count().saturating_mul(ROOM)
                && c.receive_queue.count() < limit.count() / 4
        });
        has_room && is_of_short_memory(window, segment, unit)
    };
    receiver.often(is_small) >= OFTEN
}

/// Whether the far end's window has a size that a kernel without free TCP memory offers.
pub(crate) fn is_far_window_small(sender: &End<'_>) -> bool {
    sender.often(|c| {
        let (Some(window), Some(segment)) = (c.tcp.peer_window, c.tcp.mss) else { return false };
        is_of_short_memory(window, segment, c.tcp.snd_wscale.unwrap_or(0))
    }) >= OFTEN
}

/// Returns the received packets that the kernel dropped because TCP had no memory for the packets.
/// `of`: only packets of this connection. The kernel names the same reason if a segment finds a
/// full buffer: packets of a reader that leaves data do not count.
pub(crate) fn dropped(view: &View<'_>, of: Option<&Flow<'_>>) -> u64 {
    let Some(drops) = &view.period.drops else { return 0 };
    let of_flow = |flow: &Flow<'_>| {
        let (from, to) = flow.addresses();
        let places = drops.places.iter().filter(|place| place.reason == REASON);
        let places = places.filter(|place| (place.from, place.to) == (Some(from), Some(to)));
        places.map(|place| place.packets).fold(0, u64::saturating_add)
    };
    match of {
        Some(flow) if leaves_data(flow) => 0,
        Some(flow) => of_flow(flow),
        None => {
            let all = drops.reasons.get(REASON).copied().unwrap_or(0);
            let unread = view.flows.iter().filter(|flow| leaves_data(flow)).map(of_flow);
            all.saturating_sub(unread.fold(0, u64::saturating_add))
        }
    }
}

/// Whether data waits for the reader in most of the samples.
fn leaves_data(flow: &Flow<'_>) -> bool {
    let waits = |c: &Connection| c.receive_queue > Bytes::ZERO;
    flow.receiver.as_ref().is_some_and(|receiver| receiver.often(waits) >= MOSTLY)
}

/// The window counts in units of 2 to the power of `scale`, rounded up.
fn is_of_short_memory(window: Bytes, segment: Bytes, scale: u8) -> bool {
    let unit = 1_u64 << scale.min(MOST_SCALE);
    let is = |segments: u64| {
        let least = segment.count().saturating_mul(segments);
        least > 0 && (least..least.saturating_add(unit)).contains(&window.count())
    };
    window <= LARGEST && (is(2) || is(4))
}

const REASON: &str = "PROTO_MEM";
/// Minimum size of the buffer, as a multiple of the window.
const ROOM: u64 = 8;
/// Minimum share of the samples with a window of two or four segments. Between two shortages the
/// window grows.
const OFTEN: f64 = 0.25;
/// Minimum share of the samples in which data waits for its reader. A reader that keeps up empties
/// the queue now and then.
const MOSTLY: f64 = 0.9;
/// Largest window that shows a shortage: four segments of a loopback interface are an ordinary
/// window.
const LARGEST: Bytes = Bytes::new(65_536);
/// The largest scale of a window (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;
