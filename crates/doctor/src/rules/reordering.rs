//! Packets overtake one another, and the sender takes some of them for lost: it retransmits in vain
//! and shrinks its window. Reordering that it waits out (RFC 8985) costs nothing.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::loss_model::{Recovery, allowed, paces_itself, recovery};
use crate::view::{BURST, End, Flow, View};
use crate::words::{percent, rate};
use units::Rate;

pub(super) const RULE: Rule = Rule::new("reordering", "reordered packets").flow(judge);
pub(super) const EARLIER: Case = Case::new("the reordering came before the observation");
pub(super) const SINCE_BEGIN: Case = Case::new("some retransmissions since the begin were in vain");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else {
        let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
        return match receiver.count(|tcp| tcp.out_of_order) {
            Some(0) => Outcome::ruled_out("no segment came out of order"),
            _ => Outcome::not_seen("the far sender's count of reordered segments"),
        };
    };
    let counted = sender.count(|tcp| tcp.reordered).zip(sender.count(|tcp| tcp.data_segments_out));
    let Some((seen, sent)) = counted else { return Outcome::not_seen("reordered segments") };
    // A packet that is later than a round trip arrives after its retransmission, and was late too.
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    let late = sender.count(|tcp| tcp.spurious).unwrap_or(0).min(again);
    let seen = seen.max(late);
    let share = seen as f64 / sent.max(1) as f64;
    if share < SHARE {
        return Outcome::ruled_out(format!("seen {seen} times in {sent} segments"));
    }
    let vain = Vain::of(sender, view);
    let useless = vain.count as f64 / sent.max(1) as f64;
    let congestion = sender.last().congestion.as_deref().unwrap_or("unknown");
    // Those that were needed shrink the window too.
    let again = again.max(vain.count);
    let (allows, formula) = allowed(sender, congestion, again as f64 / sent.max(1) as f64);
    let is_near = |allows: Rate| {
        let ratio = flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64;
        NEAR.contains(&ratio) || ratio >= NEAR.start && sender.tcp().sack == Some(false)
    };
    let near = allows.is_some_and(is_near);
    let limits = near
        && vain.count > 0
        && vain.count.saturating_mul(PART) >= again
        && is_held_by_window(sender);
    let earlier = (vain.count == 0).then(|| before(sender)).flatten();
    // Beside losses the sender learns to wait for late packets, and retransmits few in vain later.
    let since_start = (!limits && earlier.is_none() && near && is_held_by_window(sender))
        .then(|| since_start(sender))
        .flatten();
    let finding = Finding::new(match (limits, &earlier) {
        (true, _) => format!(
            "reordered packets are the limit: the sender saw reordering for {} of its segments, and retransmitted {} that had arrived",
            percent(share),
            vain.count
        ),
        (false, Some(earlier)) => format!(
            "reordered packets are the limit: segments that had arrived were retransmitted before this observation, and the window of {} segments recovers slowly",
            earlier.window
        ),
        (false, None) if since_start.is_some() => format!(
            "reordered packets are a part of the limit: the sender saw reordering for {} of its segments, and some of its retransmissions since it began were in vain",
            percent(share)
        ),
        (false, None) => format!(
            "packets are reordered, and the reordering does not limit the connection: the sender saw reordering for {} of its segments, and waits for late segments",
            percent(share)
        ),
    })
    .allows(allows)
    .seen_from("reordering seen, of the segments", percent(share), percent(SHARE))
    .seen(
        "retransmissions that were not needed",
        format!("{} of {again} ({})", vain.count, vain.told_by),
    )
    .seen("rate now", rate(flow.rate()))
    .seen_if(&format!("rate that {formula} gives for as many retransmissions"), allows.map(rate));
    match (limits, earlier) {
        (true, _) => finding.limits_for(share).and_for(useless),
        (false, Some(earlier)) => finding
            .seen(
                "slow-start threshold, window",
                format!("{}, {} segments", earlier.threshold, earlier.window),
            )
            .seen("samples with a full congestion window", percent(earlier.full))
            .limits().case(EARLIER),
        (false, None) => match since_start {
            Some((vain, again)) => finding
                .seen("retransmissions in vain since it began", format!("{vain} of {again}"))
                .limits().case(SINCE_BEGIN),
            None => finding,
        },
    }
    .advise(
        Advice::new("Find the hop that spreads packets of one connection over several ways (per-packet balancing, bonding in round-robin mode)")
            .run("cat /proc/net/bonding/*")
            .not("Larger buffers do not help"),
    )
    .holds()
}

/// Retransmissions of segments that had arrived.
struct Vain {
    count: u64,
    told_by: &'static str,
}

impl Vain {
    fn of(sender: &End<'_>, view: &View<'_>) -> Self {
        let spurious = sender.count(|tcp| tcp.spurious).unwrap_or(0);
        let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
        // Timestamps tell it where the peer sends no duplicate SACK (RFC 3522), for the machine as
        // a whole.
        let undone =
            UNDONE.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add);
        match spurious {
            0 if undone > 0 && again > 0 => {
                Self { count: undone.min(again), told_by: "recoveries that the kernel undid" }
            }
            // Nothing can tell them from those that were needed.
            0 if sender.tcp().sack == Some(false) => Self {
                count: again,
                told_by: "all, because the peer has no selective acknowledgements",
            },
            count => Self { count, told_by: "duplicate SACKs of the peer" },
        }
    }
}

/// A window that is full, of an algorithm that shrinks it for losses.
fn is_held_by_window(sender: &End<'_>) -> bool {
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let shrinks = !sender.last().congestion.as_deref().is_some_and(paces_itself);
    shrinks
        && held < 0.5
        && sender.busy().is_none_or(|busy| busy > 0.5)
        && sender.has_data()
        && sender.fills_window(BURST).is_none_or(|share| share >= 0.5)
}

/// The window recovers from retransmissions in vain before the observation.
fn before(sender: &End<'_>) -> Option<Recovery> {
    let spurious = sender.tcp().spurious.unwrap_or(0);
    recovery(sender).filter(|_| spurious > 0 && is_held_by_window(sender))
}

/// Retransmissions in vain, and all, since the connection began, if many were.
fn since_start(sender: &End<'_>) -> Option<(u32, u32)> {
    let (vain, again) = (sender.tcp().spurious?, sender.tcp().retransmitted?);
    (vain >= FEW_IN_VAIN && u64::from(vain) * PART >= again.into()).then_some((vain, again))
}

/// Measured.
const SHARE: f64 = 0.01;
/// Observed rates, in rates of the formula, that reordering explains. The formula is right within a
/// factor of two, and the kernel undoes a part of the harm.
const NEAR: std::ops::Range<f64> = 0.4..2.5;
/// One of so many retransmissions is worth naming.
const PART: u64 = 10;
const FEW_IN_VAIN: u32 = 3;
const UNDONE: [&str; 4] =
    ["TcpExtTCPDSACKUndo", "TcpExtTCPFullUndo", "TcpExtTCPLossUndo", "TcpExtTCPPartialUndo"];

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    /// Reordering seen, retransmissions and those in vain, of 10,000 segments a second.
    fn seen(per_second: u32, again: u32, vain: u32) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.data_segments_out = Some(at as u32 * 10_000);
            tcp.reordered = Some(at as u32 * per_second);
            tcp.retransmitted = Some(at as u32 * again);
            tcp.spurious = Some(at as u32 * vain);
            tcp.bytes_acked = Some(Bytes::new(at * 9_000_000 / 8));
        })
    }

    #[test]
    fn five_percent() {
        assert!(seen(500, 500, 500).holds(RULE) > 0.9);
    }

    #[test]
    fn seldom_or_without_effect() {
        seen(50, 50, 50).holds_not(RULE);
        let present = |sketch: Sketch| {
            assert_eq!(sketch.judge(RULE).finding().unwrap().explains, None);
        };
        present(seen(500, 500, 500).sender(|_, sender| sender.congestion = Some("bbr".to_owned())));
        present(seen(500, 0, 0));
        // Every retransmission was needed: these are losses.
        present(seen(220, 100, 0));
        assert!(seen(220, 100, 0).holds(super::super::loss::RULE) > 0.8);
        // Room in the window.
        present(seen(500, 500, 500).tcp(|_, tcp| tcp.unacked = Some(300)));
        // The retransmissions allow far more than passes.
        present(seen(150, 1, 1));
    }

    /// 1 % is lost, and 0.3 % retransmitted in vain: together they explain the rate.
    #[test]
    fn beside_losses() {
        let both = seen(500, 130, 30).tcp(|at, tcp| {
            tcp.bytes_acked = Some(Bytes::new(at * 5_000_000 / 8));
        });
        assert!(both.holds(RULE) > 0.8);
        assert!(both.holds(super::super::loss::RULE) > 0.7);
    }

    #[test]
    fn packets_that_are_later_than_a_round_trip() {
        assert!(seen(0, 400, 390).holds(RULE) > 0.8);
        // The path duplicates packets: nothing was retransmitted.
        seen(0, 0, 400).holds_not(RULE);
    }

    /// The sender has learnt to wait: 40 of 350 retransmissions were in vain, all of them before.
    #[test]
    fn beside_losses_of_a_sender_that_has_learnt_to_wait() {
        let learnt = |before: u32| {
            seen(500, 100, 0).tcp(move |at, tcp| {
                tcp.retransmitted = Some(50 + at as u32 * 100);
                tcp.spurious = Some(before);
                tcp.bytes_acked = Some(Bytes::new(at * 5_000_000 / 8));
            })
        };
        assert!((0.4..0.6).contains(&learnt(40).holds(RULE)));
        assert_eq!(learnt(2).judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn peers_without_duplicate_sacks() {
        let undone = seen(500, 100, 0).counter("TcpExtTCPFullUndo", 90);
        assert!(undone.holds(RULE) > 0.85);
        let without = seen(500, 300, 0).tcp(|_, tcp| tcp.sack = Some(false));
        assert!(without.holds(RULE) > 0.85);
    }

    #[test]
    fn a_window_that_recovers_from_retransmissions_in_vain() {
        let recovers = |threshold: u32| {
            seen(300, 0, 0).tcp(move |_, tcp| {
                tcp.spurious = Some(40);
                tcp.ssthresh = Some(threshold);
            })
        };
        assert!(recovers(500).holds(RULE) > 0.7);
        assert_eq!(recovers(u32::MAX).judge(RULE).finding().unwrap().explains, None);
    }

    /// 48 of 50 Mbit/s pass: the formula gives a third of 48 Mbit/s.
    #[test]
    fn a_connection_that_is_faster_than_the_formula_allows_is_not_held_back() {
        let fast = seen(300, 40, 40).tcp(|at, tcp| {
            tcp.bytes_acked = Some(Bytes::new(at * 48_000_000 / 8));
        });
        let outcome = fast.judge(RULE);
        let finding = outcome.finding().unwrap();
        assert_eq!((finding.explains, finding.allows), (None, None), "{finding:?}");
    }
}
