//! Lost packets keep the window small. The rule blames losses only if a formula says that they
//! explain the rate.

mod requests;

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::bound;
use crate::signs::full_path::arrives_steadily;
use crate::signs::loss_model::{Recovery, UNKNOWN, allowed, recovery};
use crate::view::{BURST, End, Flow, View};
use crate::words::{percent, rate, span};
use requests::Exchanges;
use units::{Bytes, Rate, Span};

pub(super) const RULE: Rule = Rule::new("loss", "lost packets").flow(judge);
pub(super) const WAITS: Case = Case::new("the sender waits for its timer");
pub(super) const HEAVILY: Case = Case::new("many segments are lost, whatever the formulas allow");
pub(super) const EARLIER: Case = Case::new("the losses came before the observation");
pub(super) const FAR: Case = Case::new("the far end tells its retransmissions");
pub(super) const REQUESTS: Case = Case::new("messages that wait for an answer wait for timers");
pub(super) const GAPS: Case = Case::new("segments arrive behind gaps");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return at_receiver(flow, view) };
    let Some(loss) = sender.loss() else {
        return Outcome::not_seen("the retransmitted segments");
    };
    let sent = sender.count(|tcp| tcp.data_segments_out).unwrap_or(0);
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    if again == 0 || loss < LEAST {
        if let Some(earlier) = earlier(flow, sender) {
            return earlier;
        }
        return Outcome::ruled_out(format!("{again} retransmissions of {sent} segments"));
    }
    let congestion = sender.last().congestion.as_deref().unwrap_or(UNKNOWN);
    let (allows, formula) = allowed(sender, congestion, loss);
    let goodput = flow.rate().bits_per_second() as f64;
    let ratio = allows.map(|allows| goodput / (allows.bits_per_second() as f64).max(1.0));
    // Losses that allow much more than the observed rate explain nothing, and neither do losses
    // that leave room in the window.
    let near = ratio.is_some_and(|ratio| ratio >= 0.5 / TOLERANCE) && is_window_full(sender);
    // A flow of an unknown algorithm that is much faster than the formula does not slow down for
    // losses.
    let near = near && (congestion != UNKNOWN || ratio.is_none_or(|ratio| ratio <= MUCH_FASTER));
    let waits = waits_for_timeouts(sender, loss);
    // On a path of less than a millisecond the kernel's timers cost more than the formulas say.
    let heavy = loss >= HEAVY && allows.is_some();
    let explains = (near || (heavy || waits >= TIMEOUTS) && !flow.is_stalled())
        && stands(flow)
        && !lacks_cpu(flow, view);
    if !explains && let Some(exchanges) = Exchanges::of(flow, sender, loss) {
        return exchanges
            .finding(flow, loss)
            .case(REQUESTS)
            .advise(lossy_hop())
            .advise(requests::advice())
            .holds();
    }
    let lost = format!(
        "{} of the segments were lost, at a round trip of {}",
        percent(loss),
        sender.rtt().map_or_else(|| "unknown length".to_owned(), span)
    );
    let present = format!("lost packets are present and do not limit the connection: {lost}");
    let finding = Finding::new(match explains {
        true => format!("lost packets are the limit: {lost}"),
        false => present.clone(),
    })
    .when_silenced(present)
    .allows(allows)
    .seen("retransmitted segments", format!("{again} of {sent} ({})", percent(loss)))
    .seen("rate now", rate(flow.rate()))
    .seen_if(&format!("rate that {formula} gives for it"), allows.map(rate))
    .seen("congestion control", congestion.to_owned())
    .seen_if(
        "retransmission timeouts",
        sender.count(|tcp| tcp.timeouts.map(u32::from)).map(|n| n.to_string()),
    );
    if !explains {
        return finding.holds();
    }
    let queue = sender.tcp().min_rtt.zip(sender.rtt()).map(|(min, rtt)| (rtt - min, min));
    let finding = match waits >= TIMEOUTS {
        true => finding.seen_from(
            "time spent waiting for these timeouts, of the observation",
            percent(waits),
            percent(TIMEOUTS),
        ),
        false => finding,
    };
    let finding = match queue {
        Some((queue, min)) if queue > min => finding.against(format!(
            "the round trip is {} above its minimum: a full queue may be the reason of the losses",
            span(queue)
        )),
        _ => finding,
    };
    finding
        .limits_for(if near { ratio.unwrap_or(0.0).min(1.0) } else { waits })
        .case_if(!near, if waits >= TIMEOUTS { WAITS } else { HEAVILY })
        .advise(lossy_hop())
        .advise(
            Advice::new("Look for a rate limit that drops what exceeds it: a policer, or a filter with a limit or a quota")
                .run("tc -s filter show dev DEV ingress   (on each hop and on the far end)")
                .run("nft list ruleset; iptables-save"),
        )
        .advise(
            Advice::new("If the losses cannot be removed, use a congestion control that does not slow down for them")
                .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
                .not("It does not bring the lost packets back, and may crowd out others if a full queue drops them"),
        )
        .holds()
}

fn lossy_hop() -> Advice {
    Advice::new("Find the lossy hop: error counters of each interface and switch port on the path")
        .run("ethtool -S DEV | grep -iE 'err|drop|crc'")
        .run("ip -s link")
        .not("Larger buffers do not help: the window does not grow into them")
}

/// Whether the window limits the sender: data waits, and no other limit holds the sender back most
/// of the time. An application that writes at its own pace keeps a connection busy without filling
/// the window.
fn stands(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    held < 0.5 && sender.busy().is_none_or(|busy| busy >= 0.5) && sender.has_data()
}

/// Whether the window is full most of the time. In a window with room, losses cost nothing.
fn is_window_full(sender: &End<'_>) -> bool {
    sender.fills_window(BURST).is_none_or(|share| share >= 0.5)
}

/// Returns the share of the time in which the sender only waited for its retransmission timer. A
/// few timeouts may come from a peer that stopped for a while.
fn waits_for_timeouts(sender: &End<'_>, loss: f64) -> f64 {
    let timeouts = sender.count(|tcp| tcp.timeouts.map(u32::from)).unwrap_or(0);
    let Some(shortest) = sender.values(|c| c.tcp.rto).into_iter().min() else { return 0.0 };
    if timeouts < FEW_TIMEOUTS || loss < TIMEOUTS_FROM {
        return 0.0;
    }
    let waited = timeouts as f64 * shortest.secs_f64();
    (waited / sender.elapsed().secs_f64().max(1e-9)).min(1.0)
}

/// Whether the CPU, and not a few losses, explains the rate. `false` if the window of a long path
/// is full.
fn lacks_cpu(flow: &Flow<'_>, view: &View<'_>) -> bool {
    if flow.sender.as_ref().is_some_and(End::waits_for_window) {
        return false;
    }
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    ends.map(|end| end.wants_cpu(view)).fold(0.0, f64::max) >= FULL_CPU
}

/// Judges an observation without loss whose window still recovers from earlier losses.
fn earlier(flow: &Flow<'_>, sender: &End<'_>) -> Option<Outcome> {
    let tcp = sender.tcp();
    let (again, sent) = (tcp.retransmitted?, tcp.data_segments_out?);
    let spurious = tcp.spurious.filter(|_| !sender.gets_duplicates()).unwrap_or(0);
    let lost = sender.surely_lost(again.into(), spurious.into());
    let loss = lost as f64 / f64::from(sent.max(1));
    let (rtt, Recovery { threshold, window, full }) = (sender.rtt()?, recovery(sender)?);
    if lost == 0 || loss < LEAST {
        return None;
    }
    stands(flow).then(|| {
        Finding::new(format!(
            "lost packets are the limit: {} of this connection's segments were lost before this observation, and the window of {window} segments recovers slowly at a round trip of {}",
            percent(loss),
            span(rtt)
        ))
        .limits().case(EARLIER)
        .seen("retransmitted since the connection began", format!("{lost} of {sent}"))
        .seen("slow-start threshold, window", format!("{threshold}, {window} segments"))
        .seen("samples with a full congestion window", percent(full))
        .seen("rate now", rate(flow.rate()))
        .advise(
            Advice::new("Look for the queue or hop that drops: a buffer of a few packets cuts every burst")
                .run("tc -s qdisc show   (on routers: limit, dropped)")
                .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
                .not("Larger buffers at the ends do not help: the congestion window is the smaller one"),
        )
        .holds()
    })
}

fn at_receiver(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
    let far = flow.far.and_then(|far| Some((far.retransmits?, far.bytes?)));
    if let Some((again, sent)) = far {
        let mss = receiver.tcp().advmss.map_or(1448, |mss| mss.count()).max(1);
        let loss = again as f64 / (sent.count() / mss).max(1) as f64;
        if loss < LEAST {
            return Outcome::ruled_out(format!("{again} retransmissions at the far end"));
        }
        let rtt = flow.far.and_then(|far| far.mean_rtt).or(flow.rtt());
        let allows = rtt.and_then(|rtt| bound::mathis(Bytes::new(mss), rtt, loss));
        let near = allows
            .is_some_and(|allows| flow.rate().bits_per_second() >= allows.bits_per_second() / 3);
        let slows = flow
            .far
            .and_then(|far| far.congestion.as_deref())
            .is_none_or(|name| !name.starts_with("bbr"));
        let finding = Finding::new(format!(
            "lost packets: the far end retransmitted {} of its segments",
            percent(loss)
        ))
        .allows(allows)
        .seen("retransmissions of the far end", again.to_string());
        let heavy = loss >= HEAVY && !lacks_cpu(flow, view);
        return match (near && slows, heavy && slows) {
            (true, _) => finding.limits().case(FAR),
            (false, true) => finding.limits().case(HEAVILY),
            (false, false) => finding,
        }
        .holds();
    }
    match receiver.count(|tcp| tcp.out_of_order).zip(receiver.count(|tcp| tcp.data_segments_in)) {
        Some((0, segments)) => {
            Outcome::ruled_out(format!("none of {segments} segments came out of order"))
        }
        Some((behind, segments)) => gaps(flow, view, receiver, behind, segments),
        None => Outcome::not_seen("the far sender's retransmissions"),
    }
}

/// Estimates losses at the receiver: after a missing segment, the rest of its round trip arrives
/// out of order. Compares the number of gaps that follows with the rate: if losses limit the
/// sender, its window is as small as the formulas say.
fn gaps(
    flow: &Flow<'_>,
    view: &View<'_>,
    receiver: &End<'_>,
    behind: u64,
    segments: u64,
) -> Outcome {
    let unknown = || Outcome::not_seen("the far sender's retransmissions");
    if let Some(waits) = waits_of_sender(flow, view, receiver, behind, segments) {
        return waits;
    }
    let (Some(mss), Some(rtt)) = (receiver.tcp().advmss, flow.rtt()) else { return unknown() };
    let each_trip = flow.rate().bytes_in(rtt).count() as f64 / mss.count().max(1) as f64;
    if rtt < LONG || each_trip < FEWEST {
        return unknown();
    }
    let gaps = behind as f64 / each_trip;
    // Duplicates show that segments were late and not lost.
    let late = late(view);
    let loss = gaps / segments.max(1) as f64;
    let allows = bound::mathis(mss, rtt, loss)
        .map(|reno| Rate::from_bits_per_second(reno.bits_per_second() / 2 * 3))
        .max(bound::cubic(mss, rtt, loss));
    let ratio = allows.map_or(0.0, |allows| {
        flow.rate().bits_per_second() as f64 / (allows.bits_per_second() as f64).max(1.0)
    });
    let is_near = NEAR_GAPS.contains(&ratio) && !arrives_steadily(receiver);
    if gaps < FEWEST_GAPS || !is_near || late as f64 * 2.0 >= gaps {
        return unknown();
    }
    Finding::new(format!(
        "lost packets are the limit: about {} of the segments from {} are missing when the next ones arrive, at a round trip of {}",
        percent(loss),
        flow.addresses().0,
        span(rtt)
    ))
    .limits().case(GAPS)
    .allows(allows)
    .seen("segments that arrived behind a gap", format!("{behind} of {segments}"))
    .seen("gaps, by the segments of a round trip", format!("{gaps:.0}"))
    .seen("rate now", rate(flow.rate()))
    .seen_if("rate that Mathis / RFC 9438 gives for it", allows.map(rate))
    .against("packets that overtake one another look like this too: only the sender can tell")
    .advise(
        Advice::new("Look at the sender, which counts what it sends again, and at the error counters on the path")
            .run("weir doctor   (on the far end)")
            .run("ip -s link; ethtool -S DEV | grep -iE 'err|drop|crc'")
            .not("Larger buffers do not help: the sender's window does not grow into them"),
    )
    .holds()
}

/// Finds many segments behind a gap, and then none for as long as a sender waits for its timer (at
/// least 200 ms). An application that pauses leaves no gaps.
fn waits_of_sender(
    flow: &Flow<'_>,
    view: &View<'_>,
    receiver: &End<'_>,
    behind: u64,
    segments: u64,
) -> Option<Outcome> {
    let share = behind as f64 / segments.max(1) as f64;
    let pauses = receiver.often(|c| c.tcp.last_received.is_some_and(|time| time >= PAUSE));
    let is_late = late(view).saturating_mul(MANY) >= behind;
    (share >= HEAVY && pauses >= TIMEOUTS && !is_late && !flow.is_stalled()).then(|| {
        Finding::new(format!(
            "lost packets are the limit: {} of the segments from {} arrive behind a gap, and the sender pauses as it does while it waits for its timer",
            percent(share),
            flow.addresses().0
        ))
        .limits().case(HEAVILY)
        .seen_from(
            "segments that arrived behind a gap",
            format!("{behind} of {segments}"),
            percent(HEAVY),
        )
        .seen_from("samples in a pause of the sender", percent(pauses), percent(TIMEOUTS))
        .seen("rate now", rate(flow.rate()))
        .against("packets that overtake one another leave gaps too: only the sender can tell")
        .advise(
            Advice::new("Look for a filter or a rate limit that drops, here and on the path")
                .run("nft list ruleset; iptables-save; tc -s filter show dev DEV ingress")
                .run("weir doctor   (on the far end)")
                .not("Larger buffers do not help: the sender's window does not grow into them"),
        )
        .holds()
    })
}

/// Counts segments that arrived twice, because they were late and not lost.
fn late(view: &View<'_>) -> u64 {
    LATE.iter().filter_map(|name| view.counter(name)).fold(0, u64::saturating_add)
}

const LEAST: f64 = 1e-5;
/// Multiple of the formula's rate above which a flow does not slow down for losses.
const MUCH_FASTER: f64 = 4.0;
const FULL_CPU: f64 = 0.8;
/// Tolerance of the comparison with a formula, which is right within a factor of two (measured).
const TOLERANCE: f64 = 1.25;
/// Minimum share of the time that the sender waits for its timer.
const TIMEOUTS: f64 = 0.2;
const FEW_TIMEOUTS: u64 = 2;
/// Shortest usable round trip at the receiver: the kernel's estimate has a resolution of a
/// millisecond.
const LONG: Span = Span::from_millis(4);
/// Minimum number of segments in a round trip: fewer segments say nothing about gaps.
const FEWEST: f64 = 4.0;
const FEWEST_GAPS: f64 = 3.0;
/// The rate as a multiple of the formula's rate for the estimated gaps. A sender that does not slow
/// down for losses is far above the formula.
const NEAR_GAPS: std::ops::Range<f64> = 0.3..4.0;
/// Counters of duplicate SACKs that this machine sent.
const LATE: [&str; 2] = ["TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent"];
/// Minimum share of lost segments for which timeouts count.
const TIMEOUTS_FROM: f64 = 1e-3;
/// The share of lost segments that slows down every algorithm that reacts to losses.
const HEAVY: f64 = 0.02;
/// Shortest pause that counts as a wait for the timer: half of the shortest timeout of the kernel.
const PAUSE: Span = Span::from_millis(100);
/// Segments count as reordered if one in this number of segments behind a gap arrived twice.
const MANY: u64 = 50;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    /// Builds a sender of `mbit` Mbit/s that loses `lost` of 10,000 segments a second.
    fn losing(lost: u32, mbit: u64, congestion: &'static str) -> Sketch {
        Sketch::new().sender(move |at, sender| {
            sender.congestion = Some(congestion.to_owned());
            sender.tcp.data_segments_out = Some(at as u32 * 10_000);
            sender.tcp.retransmitted = Some(at as u32 * lost);
            sender.tcp.bytes_acked = Some(Bytes::new(at * mbit * 125_000));
        })
    }

    #[test]
    fn one_percent_at_20_ms_limits_reno_and_cubic() {
        assert!(losing(100, 6, "reno").holds(RULE) > 0.8);
        assert!(losing(100, 9, "cubic").holds(RULE) > 0.8);
    }

    /// The path's own round trip is 20 ms.
    #[test]
    fn a_queue_longer_than_the_path_counts_against_losses_as_the_cause() {
        let against = |millis| {
            let queued = losing(100, 6, "reno").tcp(move |_, tcp| {
                tcp.rtt = Some(Span::from_millis(millis));
            });
            queued.judge(RULE).finding().unwrap().against.join("; ")
        };
        assert!(against(41).contains("21 ms above its minimum"), "{}", against(41));
        assert!(!against(40).contains("above its minimum"), "{}", against(40));
    }

    #[test]
    fn losses_that_do_not_explain_the_rate_limit_nothing() {
        let bbr = losing(100, 300, "bbr").judge(RULE);
        assert_eq!(bbr.finding().unwrap().explains, None);
        let limited = losing(100, 9, "cubic").tcp(|at, tcp| {
            tcp.window_limited = Some(Span::from_millis(900 * at));
        });
        assert_eq!(limited.judge(RULE).finding().unwrap().explains, None);
        let slow = losing(1, 2, "reno").judge(RULE);
        assert_eq!(slow.finding().unwrap().explains, None, "Mathis gives 89 Mbit/s");
    }

    /// A link of 50 Mbit/s whose queue overflows now and then, and always holds 12 ms or more.
    #[test]
    fn drops_of_a_queue_that_never_empties_limit_nothing() {
        let full = |least: u64| {
            losing(1, 50, "cubic").tcp(move |at, tcp| {
                tcp.rtt = Some(Span::from_millis(if at % 2 == 0 { 20 + least } else { 38 }));
                tcp.delivery_rate = Some(Rate::from_mbit(50));
            })
        };
        assert_eq!(full(12).judge(RULE).finding().unwrap().explains, None);
        assert!(full(12).holds(super::super::path::RULE) > 0.7);
        // After a loss the queue is empty and the link idle.
        assert!(full(0).holds(RULE) > 0.7);
    }

    #[test]
    fn a_window_that_recovers_from_earlier_losses_is_the_limit() {
        let earlier = |threshold: u32| {
            Sketch::new().tcp(move |at, tcp| {
                tcp.retransmitted = Some(120);
                tcp.data_segments_out = Some(100_000 + at as u32 * 5_000);
                tcp.ssthresh = Some(threshold);
            })
        };
        assert!(earlier(500).holds(RULE) > 0.75);
        earlier(u32::MAX).holds_not(RULE);
        earlier(20).holds_not(RULE);
    }

    #[test]
    fn spurious_retransmissions_are_no_losses() {
        let spurious = losing(100, 6, "reno").tcp(|at, tcp| tcp.spurious = Some(at as u32 * 100));
        spurious.holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    /// The path loses 1 % of the segments and duplicates 1.2 %. The peer reports each duplicate.
    #[test]
    fn duplicates_that_the_path_makes_excuse_no_losses() {
        let twice = |overtakes: u32| {
            losing(100, 6, "reno").tcp(move |at, tcp| {
                tcp.spurious = Some(at as u32 * 120);
                tcp.reordered = Some(at as u32 * overtakes);
            })
        };
        assert!(twice(0).holds(RULE) > 0.8);
        twice(0).holds_not(super::super::reordering::RULE);
        // Late segments arrive after their retransmissions.
        twice(100).holds_not(RULE);
    }

    #[test]
    fn a_wrapped_loss_counter_is_read_correctly() {
        let wrapped = losing(100, 6, "reno").tcp(|at, tcp| {
            tcp.retransmitted = Some((u32::MAX - 50).wrapping_add(at as u32 * 100));
        });
        assert!(wrapped.holds(RULE) > 0.8);
    }

    #[test]
    fn a_receiver_alone_cannot_tell_losses_from_reordering() {
        let receiving = |out_of_order| {
            Sketch::new().receiving(move |at, receiver| {
                receiver.tcp.data_segments_in = Some(at as u32 * 30_000);
                receiver.tcp.out_of_order = Some(at as u32 * out_of_order);
            })
        };
        assert!(matches!(receiving(0).judge(RULE), Outcome::RuledOut(_)));
        assert!(matches!(receiving(9).judge(RULE), Outcome::NotSeen(_)));
    }

    /// The far end of a test reports 10,000 segments, and the sender's own retransmissions.
    #[test]
    fn the_far_ends_retransmissions_decide_for_a_receiver() {
        let again = |retransmits| {
            let far = crate::recording::FarEnd {
                retransmits: Some(retransmits),
                bytes: Some(Bytes::new(14_480_000)),
                mean_rtt: Some(Span::from_millis(20)),
                congestion: Some("reno".to_owned()),
                ..Default::default()
            };
            let ends = ("10.0.0.1:5201".parse().unwrap(), "10.0.0.2:5000".parse().unwrap());
            let attempt = crate::recording::Attempt {
                connections: vec![ends],
                far: Some(far),
                ..Default::default()
            };
            behind_gaps(6, 0).attempt(attempt).judge(RULE)
        };
        let outcome = again(100);
        assert!(outcome.finding().is_some_and(|finding| finding.explains.is_some()), "{outcome:?}");
        assert!(matches!(again(0), Outcome::RuledOut(_)));
    }

    /// Builds a flow of 1448-byte segments at a round trip of 20 ms; `behind` segments a second
    /// follow a gap.
    fn behind_gaps(mbit: u64, behind: u32) -> Sketch {
        Sketch::new().receiving(move |at, receiver| {
            receiver.tcp.advmss = Some(Bytes::new(1448));
            receiver.tcp.bytes_received = Some(Bytes::new(at * mbit * 125_000));
            receiver.tcp.data_segments_in = Some((at * mbit * 125_000 / 1448) as u32);
            receiver.tcp.out_of_order = Some(at as u32 * behind);
        })
    }

    /// 1 % of 863 segments a second is missing. A round trip has 17 segments, and most of them
    /// follow the gap.
    #[test]
    fn a_receiver_alone_sees_the_gaps_of_losses() {
        assert!(behind_gaps(10, 130).holds(RULE) > 0.7);
        // BBR does not slow down for losses.
        assert!(matches!(behind_gaps(180, 9_000).judge(RULE), Outcome::NotSeen(_)));
        assert!(matches!(behind_gaps(10, 1).judge(RULE), Outcome::NotSeen(_)));
        let late = behind_gaps(10, 130).counter("TcpExtTCPDSACKOldSent", 8);
        assert!(matches!(late.judge(RULE), Outcome::NotSeen(_)), "they are reordered");
    }

    /// An AQM drops packets of a full link.
    #[test]
    fn gaps_in_data_that_arrives_at_one_rate_are_no_limit() {
        let arrives = |changes: u64| {
            let mut sketch = Sketch::new();
            sketch.repeat_samples(12);
            sketch.receiving(move |at, receiver| {
                let bytes = (0..at).map(|at| 1_250_000 + changes * (at % 4)).sum::<u64>();
                receiver.tcp.advmss = Some(Bytes::new(1448));
                receiver.tcp.bytes_received = Some(Bytes::new(bytes));
                receiver.tcp.data_segments_in = Some((bytes / 1448) as u32);
                receiver.tcp.out_of_order = Some(at as u32 * 130);
            })
        };
        assert!(arrives(100_000).holds(RULE) > 0.7);
        assert!(matches!(arrives(0).judge(RULE), Outcome::NotSeen(_)));
    }

    /// A filter of the receiver drops packets above a rate, on a direct link.
    #[test]
    fn a_receiver_alone_sees_a_sender_that_waits_for_its_timer() {
        let receives = |behind: u32, pause: u64| {
            behind_gaps(10, behind).sender(move |at, receiver| {
                receiver.tcp.receive_rtt = Some(Span::from_micros(200));
                receiver.tcp.last_received =
                    Some(Span::from_millis(if at % 2 == 0 { pause } else { 0 }));
            })
        };
        assert!(receives(130, 170).holds(RULE) > 0.5);
        assert!(matches!(receives(130, 20).judge(RULE), Outcome::NotSeen(_)));
        assert!(matches!(receives(0, 170).judge(RULE), Outcome::RuledOut(_)));
        let late = receives(130, 170).counter("TcpExtTCPDSACKOldSent", 9);
        assert!(matches!(late.judge(RULE), Outcome::NotSeen(_)));
    }

    /// An application that writes 20 Mbit/s, and a few probes that the sender counted as losses.
    #[test]
    fn losses_of_a_sender_without_data_to_send_limit_nothing() {
        let paced = losing(8, 20, "cubic").tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(paced.judge(RULE).finding().unwrap().explains, None);
        assert!(losing(8, 20, "cubic").holds(RULE) > 0.5);
    }

    /// Builds a sender of `mbit` Mbit/s with a loss of 0.01 % at a round trip of 0.2 ms, for which
    /// the formula gives 11 Gbit/s.
    fn on_a_cable(mbit: u64) -> Sketch {
        losing(1, mbit, "cubic").tcp(|_, tcp| {
            (tcp.rtt, tcp.min_rtt) = (Some(Span::from_micros(200)), Some(Span::from_micros(40)));
        })
    }

    #[test]
    fn a_few_losses_of_a_full_core_or_of_an_open_window_limit_nothing() {
        assert!(on_a_cable(6_000).holds(RULE) > 0.7);
        let busy = on_a_cable(6_000).task(7, 72).core(0, [5, 67, 27, 0]);
        assert_eq!(busy.judge(RULE).finding().unwrap().explains, None);
        let open = on_a_cable(6_000).tcp(|_, tcp| tcp.unacked = Some(300));
        assert_eq!(open.judge(RULE).finding().unwrap().explains, None);
        let slow = on_a_cable(3_000).judge(RULE);
        assert_eq!(slow.finding().unwrap().explains, None, "the losses allow much more");
    }

    /// The sender's thread polls and fills a core, while the window of the path is full.
    #[test]
    fn losses_limit_a_sender_that_polls() {
        let polls = losing(100, 9, "cubic").task(7, 99).core(0, [90, 9, 0, 0]);
        assert!(polls.holds(RULE) > 0.8);
        polls.holds_not(super::super::cpu::RULE);
    }

    /// On a short path the sender waits for timeouts most of the time. The formula of Mathis leaves
    /// out timeouts.
    #[test]
    fn retransmission_timeouts_count_as_a_cost_of_losses() {
        let stops = |timeouts: u16| {
            losing(100, 30, "cubic").tcp(move |at, tcp| {
                (tcp.rtt, tcp.min_rtt) =
                    (Some(Span::from_micros(200)), Some(Span::from_micros(150)));
                tcp.rto = Some(Span::from_millis(201));
                tcp.timeouts = Some(at as u16 * timeouts);
            })
        };
        assert!(stops(4).holds(RULE) > 0.85);
        assert_eq!(stops(0).judge(RULE).finding().unwrap().explains, None);
    }

    /// A filter drops packets above 100 Mbit/s, on a direct link for which the formula gives 450
    /// Mbit/s.
    #[test]
    fn many_losses_on_a_direct_link_are_the_limit() {
        let policed = |lost: u32, congestion| {
            losing(lost, 100, congestion).tcp(|_, tcp| {
                (tcp.rtt, tcp.min_rtt) =
                    (Some(Span::from_micros(120)), Some(Span::from_micros(60)));
                (tcp.unacked, tcp.cwnd) = (Some(4), Some(10));
            })
        };
        assert!((0.5..0.7).contains(&policed(1_500, "cubic").holds(RULE)));
        let few = policed(100, "cubic").judge(RULE);
        assert_eq!(few.finding().unwrap().explains, None);
        let bbr = policed(1_500, "bbr").judge(RULE);
        assert_eq!(bbr.finding().unwrap().explains, None);
        let idle = policed(1_500, "cubic").tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(idle.judge(RULE).finding().unwrap().explains, None);
    }

    #[test]
    fn without_selective_acknowledgements_a_loss_costs_more() {
        let recovers = |sack: bool| {
            losing(50, 5, "cubic").tcp(move |_, tcp| tcp.sack = Some(sack)).judge(RULE)
        };
        assert!(recovers(false).finding().unwrap().explains.is_some());
        assert_eq!(recovers(true).finding().unwrap().explains, None);
    }

    /// Two connections share a queue, and one connection loses packets.
    #[test]
    fn losses_of_one_connection_among_several_limit_only_that_connection() {
        let shared = |others: u32| {
            losing(100, 9, "cubic")
                .tcp(|at, tcp| {
                    let queue = if at % 2 == 0 { 32 } else { 38 };
                    (tcp.rtt, tcp.min_rtt) =
                        (Some(Span::from_millis(queue)), Some(Span::from_millis(20)));
                    tcp.delivery_rate = Some(Rate::from_mbit(9));
                })
                .each(move |at, sample| {
                    let mut other = sample.connections[0].clone();
                    (other.local, other.cookie) = ("10.0.0.1:5001".parse().unwrap(), 9);
                    other.tcp.bytes_acked = Some(Bytes::new(at * 5_000_000));
                    other.tcp.retransmitted = Some(at as u32 * others);
                    sample.connections.push(other);
                })
        };
        let judged = |others: u32| {
            let shared = shared(others);
            let diagnosis = crate::diagnose(shared.recording(), crate::Question::Flow);
            let flows = &diagnosis.periods[0].flows;
            flows.iter().find(|flow| flow.from.ends_with(":5000")).unwrap().causes.clone()
        };
        assert_eq!(judged(1)[0].cause, "loss");
        assert!(judged(1).iter().all(|found| found.cause != "path"));
        // The two connections lose the same number of packets, so the shared queue overflows.
        assert_eq!(judged(100)[0].cause, "path");
    }
}
