//! Signs about the retransmission timer.

use crate::recording::Connection;
use crate::view::{End, Flow};
use units::Span;

/// Whether no data moves because the timer has sent a segment again and doubled, on a path that
/// lost segments before. With a timeout of a second, an observation may see a single wait. A path
/// that lost no segments before is dead.
pub(crate) fn backs_off(flow: &Flow<'_>) -> bool {
    flow.sender.as_ref().is_some_and(|sender| {
        let tcp = sender.tcp();
        flow.is_stalled()
            && sender.loss_so_far().is_some_and(|lost| lost >= LOSSY)
            && tcp.retransmitted.is_some_and(|again| again >= SEVERAL)
            && tcp.backoff.is_some_and(|doubled| doubled <= FEW_BACKOFFS)
            && least_timeout(sender).is_some()
    })
}

/// Returns the time that the kernel adds to the smoothed round trip for its timeout. `None` if this
/// time is short, or follows the deviation of the round trips. Each backoff doubles the timer.
pub(crate) fn least_timeout(sender: &End<'_>) -> Option<Span> {
    let added = |c: &Connection| {
        let rtt = c.tcp.rtt.filter(|rtt| *rtt > Span::ZERO)?;
        let doubled = u32::from(c.tcp.backoff?);
        // The persist timer also backs off, but does not double the retransmission timer.
        let runs = doubled == 0 || c.tcp.unacked.is_some_and(|flying| flying > 0);
        let rto = c.tcp.rto.filter(|_| runs && doubled < BACKOFFS)?;
        Some(rto / 2_u64.pow(doubled) - rtt)
    };
    let middle = sender.median(added)?;
    let added = sender.values(added);
    // A single late acknowledgement lengthens the timer of a few samples.
    let alike =
        added.iter().filter(|one| **one <= middle + ALIKE && middle <= **one + ALIKE).count();
    let varies = sender.median(|c| c.tcp.rttvar)?;
    let is_named = middle >= LONG
        && alike as f64 >= MOST_ALIKE * added.len() as f64
        && varies * 4 < middle / 2;
    (is_named && added.len() >= FEWEST).then_some(middle)
}

/// Shortest time added to the round trip that counts as long: the kernel adds at least 200 ms by
/// default.
pub(crate) const LONG: Span = Span::from_millis(600);
/// Timers that differ by less are alike: the kernel counts timeouts in ticks.
const ALIKE: Span = Span::from_millis(20);
/// Minimum share of the samples whose timers are alike.
const MOST_ALIKE: f64 = 0.75;
/// After this number of backoffs, the timer may have reached its maximum, 120 s.
const BACKOFFS: u32 = 6;
/// Minimum share of lost segments. [`SEVERAL`]: minimum number of retransmitted segments.
const LOSSY: f64 = 0.03;
const SEVERAL: u32 = 5;
/// After more retransmissions than this, a segment never arrives.
const FEW_BACKOFFS: u8 = 3;
/// Minimum number of samples.
const FEWEST: usize = 3;
