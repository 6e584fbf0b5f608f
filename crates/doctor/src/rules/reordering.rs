//! Packets overtake one another, and the sender takes some of them for lost: it sends spurious
//! retransmissions and shrinks its window. Reordering costs nothing while the sender waits for late
//! packets (RFC 8985).

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::loss_model::{Recovery, allowed, paces_itself, recovery};
use crate::view::{BURST, End, Flow, View};
use crate::words::{percent, rate};
use units::{Rate, Span};

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
    // A packet that is more than a round trip late arrives after its retransmission, and counts as
    // late.
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    let late = sender.spurious().unwrap_or(0).min(again);
    let seen = seen.max(late);
    let share = seen as f64 / sent.max(1) as f64;
    if share < SHARE {
        return Outcome::ruled_out(format!("seen {seen} times in {sent} segments"));
    }
    let vain = Vain::of(sender, view);
    let useless = vain.count as f64 / sent.max(1) as f64;
    let congestion = sender.last().congestion.as_deref().unwrap_or("unknown");
    // Needed retransmissions also shrink the window.
    let again = again.max(vain.count);
    let (allows, formula) = allowed(sender, congestion, again as f64 / sent.max(1) as f64);
    let is_near = |allows: Rate| {
        let ratio = flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64;
        NEAR.contains(&ratio) || ratio >= NEAR.start && sender.tcp().sack == Some(false)
    };
    let near = allows.is_some_and(is_near);
    let is_held = is_held_by_window(sender);
    let limits = near && vain.count > 0 && vain.count.saturating_mul(PART) >= again && is_held;
    let undone = is_held && vain.count * 2 >= again && in_each_trip(sender, vain.count);
    let limits = limits || undone;
    let earlier = (vain.count == 0).then(|| before(sender)).flatten();
    // Losses teach the sender to wait for late packets, so that it sends few spurious
    // retransmissions later.
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

/// Spurious retransmissions, of segments that had arrived.
struct Vain {
    count: u64,
    told_by: &'static str,
}

impl Vain {
    fn of(sender: &End<'_>, view: &View<'_>) -> Self {
        let spurious = sender.spurious().unwrap_or(0);
        let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
        // If the peer sends no duplicate SACK, timestamps show spurious retransmissions (RFC 3522),
        // but the kernel counts them for the whole machine.
        let undone =
            UNDONE.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add);
        match spurious {
            0 if undone > 0 && again > 0 => {
                Self { count: undone.min(again), told_by: "recoveries that the kernel undid" }
            }
            // Without SACK nothing distinguishes spurious from needed retransmissions.
            0 if sender.tcp().sack == Some(false) => Self {
                count: again,
                told_by: "all, because the peer has no selective acknowledgements",
            },
            count => Self { count, told_by: "duplicate SACKs of the peer" },
        }
    }
}

/// Whether a full window holds the sender back, and its algorithm shrinks the window for losses.
fn is_held_by_window(sender: &End<'_>) -> bool {
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let shrinks = !sender.last().congestion.as_deref().is_some_and(paces_itself);
    shrinks
        && held < 0.5
        && sender.busy().is_none_or(|busy| busy > 0.5)
        && sender.has_data()
        && sender.fills_window(BURST).is_none_or(|share| share >= 0.5)
}

/// Whether at least one segment is retransmitted in vain in each round trip, on a long path without
/// a queue. The kernel undoes each reduction of the window once it learns of the mistake, so that
/// the rate exceeds what the formulas allow. The window grows only outside of recoveries, so the
/// window stays the same.
fn in_each_trip(sender: &End<'_>, vain: u64) -> bool {
    let (Some(rtt), Some(least)) = (sender.rtt(), sender.tcp().min_rtt) else { return false };
    let has_queue = (rtt - least).nanos() >= least.nanos() / 4;
    let trips = sender.elapsed().secs_f64() / rtt.secs_f64().max(1e-9);
    least >= LONG && !has_queue && vain as f64 >= trips
}

/// Returns the recovery of a window that grows back after spurious retransmissions before the
/// observation.
fn before(sender: &End<'_>) -> Option<Recovery> {
    let spurious = sender.tcp().spurious.unwrap_or(0);
    recovery(sender).filter(|_| spurious > 0 && is_held_by_window(sender))
}

/// Returns the numbers of spurious and of all retransmissions since the connection began; `None` if
/// few retransmissions are spurious.
fn since_start(sender: &End<'_>) -> Option<(u32, u32)> {
    let (vain, again) = (sender.tcp().spurious?, sender.tcp().retransmitted?);
    (vain >= FEW_IN_VAIN && u64::from(vain) * PART >= again.into()).then_some((vain, again))
}

/// Minimum share of reordered segments (measured).
const SHARE: f64 = 0.01;
/// The observed rate, as a multiple of the formula's rate, that reordering explains. The formula is
/// right within a factor of two, and the kernel undoes a part of the harm.
const NEAR: std::ops::Range<f64> = 0.4..2.5;
/// Minimum share of spurious retransmissions that is worth naming: one in this number.
const PART: u64 = 10;
const FEW_IN_VAIN: u32 = 3;
/// Shortest round trip of a long path.
const LONG: Span = Span::from_millis(2);
const UNDONE: [&str; 4] =
    ["TcpExtTCPDSACKUndo", "TcpExtTCPFullUndo", "TcpExtTCPLossUndo", "TcpExtTCPPartialUndo"];

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::{Question, diagnose};
    use units::Bytes;

    /// Builds a flow of 10,000 segments a second with `per_second` reordering events, `again`
    /// retransmissions and `vain` spurious retransmissions.
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
    fn reordering_of_five_percent_is_the_limit() {
        assert!(seen(500, 500, 500).holds(RULE) > 0.9);
    }

    #[test]
    fn rare_reordering_or_reordering_without_effect_limits_nothing() {
        seen(50, 50, 50).holds_not(RULE);
        let present = |sketch: Sketch| {
            assert_eq!(sketch.judge(RULE).finding().unwrap().explains, None);
        };
        present(seen(500, 500, 500).sender(|_, sender| sender.congestion = Some("bbr".to_owned())));
        present(seen(500, 0, 0));
        // Every retransmission was needed, so the retransmitted segments were lost.
        present(seen(220, 100, 0));
        assert!(seen(220, 100, 0).holds(super::super::loss::RULE) > 0.8);
        // The window has room.
        present(seen(500, 500, 500).tcp(|_, tcp| tcp.unacked = Some(300)));
        // The formula allows far more than passes.
        present(seen(150, 1, 1));
    }

    /// The path loses 1 %, and 0.3 % are spurious retransmissions: together they explain the rate.
    #[test]
    fn reordering_beside_losses_is_a_part_of_the_limit() {
        let both = seen(500, 130, 30).tcp(|at, tcp| {
            tcp.bytes_acked = Some(Bytes::new(at * 5_000_000 / 8));
        });
        assert!(both.holds(RULE) > 0.8);
        assert!(both.holds(super::super::loss::RULE) > 0.7);
    }

    #[test]
    fn packets_later_than_a_round_trip_count_as_reordered() {
        assert!(seen(0, 400, 390).holds(RULE) > 0.8);
        // The path duplicates packets, and the sender retransmits nothing.
        seen(0, 0, 400).holds_not(RULE);
    }

    /// 40 of 350 retransmissions were spurious, all before the observation: the sender has raised
    /// its reordering threshold since.
    #[test]
    fn earlier_spurious_retransmissions_beside_losses_are_a_part_of_the_limit() {
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
    fn without_duplicate_sacks_the_kernels_undone_recoveries_count() {
        let undone = seen(500, 100, 0).counter("TcpExtTCPFullUndo", 90);
        assert!(undone.holds(RULE) > 0.85);
        let without = seen(500, 300, 0).tcp(|_, tcp| tcp.sack = Some(false));
        assert!(without.holds(RULE) > 0.85);
    }

    #[test]
    fn a_window_that_recovers_from_spurious_retransmissions_is_the_limit() {
        let recovers = |threshold: u32| {
            seen(300, 0, 0).tcp(move |_, tcp| {
                tcp.spurious = Some(40);
                tcp.ssthresh = Some(threshold);
            })
        };
        assert!(recovers(500).holds(RULE) > 0.7);
        assert_eq!(recovers(u32::MAX).judge(RULE).finding().unwrap().explains, None);
    }

    /// 59 of 100 Mbit/s pass, with four retransmissions in vain in each round trip. The last
    /// retransmissions have no report yet.
    #[test]
    fn a_window_that_mistaken_recoveries_keep_from_growing_is_the_limit() {
        let undone = |queue: u64, vain: u32| {
            seen(240, 240, 240).tcp(move |at, tcp| {
                tcp.data_segments_out = Some(at as u32 * 5_300);
                tcp.bytes_acked = Some(Bytes::new(at * 59_000_000 / 8));
                tcp.rtt = Some(Span::from_millis(20 + queue));
                tcp.retransmitted = Some(at as u32 * 240);
                tcp.spurious = Some((at as u32 * vain).saturating_sub(5 * (at as u32 / 3)));
            })
        };
        assert!(undone(1, 240).holds(RULE) > 0.7);
        undone(1, 240).holds_not(super::super::loss::RULE);
        let verdict = diagnose(undone(1, 240).recording(), Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("reordering"));
        // A queue shows that the path is full.
        assert_eq!(undone(30, 240).judge(RULE).finding().unwrap().explains, None);
        // Most retransmissions were needed.
        assert!(undone(1, 60).holds(super::super::loss::RULE) > 0.5);
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
