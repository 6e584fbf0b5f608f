//! The rate that lost segments allow, and a window that recovers from losses.

use crate::bound;
use crate::view::End;
use units::{Rate, Span};

/// A congestion window, in segments, that grows from the threshold at which an earlier slow start
/// ended. `full` is the share of the samples in which the window was full.
pub(crate) struct Recovery {
    pub(crate) threshold: u32,
    pub(crate) window: u32,
    pub(crate) full: f64,
}

/// Returns the state of a window that recovers; `None` unless the window limits a long path without
/// a queue.
pub(crate) fn recovery(sender: &End<'_>) -> Option<Recovery> {
    let tcp = sender.tcp();
    let (threshold, window) = (tcp.ssthresh?, tcp.cwnd?);
    let (rtt, least) = (sender.rtt()?, tcp.min_rtt?);
    let recovers = threshold < UNSET && window <= threshold.saturating_mul(3);
    let full = sender.fills_window(0.8)?;
    let no_queue = (rtt - least).nanos() < least.nanos().max(4) / 4;
    let long = least >= Span::from_millis(2);
    let slows = sender.last().congestion.as_deref().is_none_or(|name| !paces_itself(name));
    (recovers && full >= 0.6 && no_queue && long && slows).then_some(Recovery {
        threshold,
        window,
        full,
    })
}

/// Whether the sender takes its rate from its measurements of the path and does not slow down for
/// losses: BBR, and tcpa, which has a temporary name in a lab.
pub(crate) fn paces_itself(congestion: &str) -> bool {
    PACED.iter().any(|name| congestion.starts_with(name))
}

/// Returns the rate that a share of lost segments allows, and the name of the formula.
pub(crate) fn allowed(
    sender: &End<'_>,
    congestion: &str,
    loss: f64,
) -> (Option<Rate>, &'static str) {
    let Some((mss, rtt)) = sender.tcp().mss.zip(sender.rtt()) else { return (None, "Mathis") };
    let rto = sender.tcp().rto.unwrap_or(Span::from_millis(200));
    let without_sack = sender.tcp().sack == Some(false);
    let larger = |a: Option<Rate>, b: Option<Rate>| a.max(b);
    match congestion {
        // BBR ignores losses up to a fifth of the packets.
        name if paces_itself(name) => match loss >= BBR_FEELS {
            true => (bound::pftk(mss, rtt, rto, loss), "PFTK"),
            false => (None, "Mathis"),
        },
        // Without selective acknowledgements most losses of a window end in a timeout.
        _ if without_sack => (bound::pftk(mss, rtt, rto, loss), "PFTK"),
        // A capture does not show the algorithm, so CUBIC is assumed.
        "cubic" | UNKNOWN => {
            // The kernel's CUBIC shrinks the window to 0.7, and Reno to a half.
            let reno = bound::mathis(mss, rtt, loss)
                .map(|rate| Rate::from_bits_per_second(rate.bits_per_second() / 2 * 3));
            (larger(reno, bound::cubic(mss, rtt, loss)), "Mathis / RFC 9438")
        }
        _ if loss >= 0.02 => (larger(bound::pftk(mss, rtt, rto, loss), None), "PFTK"),
        _ => (bound::mathis(mss, rtt, loss), "Mathis"),
    }
}

/// The name of an algorithm that was not seen.
pub(crate) const UNKNOWN: &str = "unknown";
/// Linux's `TCP_INFINITE_SSTHRESH`: no slow start has ended.
const UNSET: u32 = 0x7fff_ffff;
const PACED: [&str; 3] = ["bbr", "tcpa", "weir_"];
const BBR_FEELS: f64 = 0.2;
