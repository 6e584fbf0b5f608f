//! A queue on the path marks packets (ECN) instead of dropping them, and the sender slows down.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::loss_model::allowed;
use crate::view::{BURST, End, Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("ecn-marks", "congestion marks").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    if sender.tcp().ecn != Some(true) {
        return Outcome::Irrelevant;
    }
    let counted = sender.count(|tcp| tcp.delivered_marked).zip(sender.count(|tcp| tcp.delivered));
    let Some((marked, delivered)) = counted else { return Outcome::not_seen("congestion marks") };
    let share = marked as f64 / delivered.max(1) as f64;
    let explains = explains(flow, sender, marked, share);
    if share < SHARE && !explains {
        return Outcome::ruled_out(format!("{marked} of {delivered} segments were marked"));
    }
    let finding = Finding::new(format!(
        "a full queue on the path marks packets: {} of the segments carried a mark",
        percent(share)
    ));
    match explains {
        true => finding.limits(),
        false => finding,
    }
    .seen_from("marked segments, of all that arrived", percent(share), percent(SHARE))
    .advise(
        Advice::new("Find the hop whose queue marks: it is fully used")
            .run("tc -s qdisc show   (on routers: ecn_mark)")
            .not("Turning ECN off turns the marks into losses"),
    )
    .holds()
}

/// Whether marks slow the sender down: nothing else holds the sender back, and enough segments are
/// marked to keep a window of this size. Marks on the segments of a sender without data hold
/// nothing back.
fn explains(flow: &Flow<'_>, sender: &End<'_>, marked: u64, share: f64) -> bool {
    let congestion = sender.last().congestion.as_deref().unwrap_or("unknown");
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let free = held < 0.5 && sender.busy().is_none_or(|busy| busy >= 0.5) && sender.has_data();
    // The kernel's BBR sends on as if there were no mark.
    if !free || congestion.starts_with("bbr") {
        return false;
    }
    // A window shrinks as much for a mark as for a loss (RFC 3168 section 6.1.2). The formulas for
    // losses tell how few marks keep a large window from growing.
    let (allows, _) = allowed(sender, congestion, share);
    let goodput = flow.rate().bits_per_second() as f64;
    let enough = allows.is_some_and(|rate| goodput >= rate.bits_per_second() as f64 / 2.0);
    let full = sender.fills_window(BURST).is_none_or(|share| share >= 0.5);
    share >= SHARE || (marked >= FEWEST && enough && full)
}

/// Minimum share of marked segments at which marks count whatever the window.
const SHARE: f64 = 0.005;
/// Minimum number of marks: fewer may be chance.
const FEWEST: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::diagnosis::{Question, diagnose};
    use units::{Bytes, Rate, Span};

    /// Builds a sender of `rate` over a path of 18 ms with a queue that marks this share of its
    /// segments.
    fn marked(rate: Rate, queue: Span, share: f64) -> Sketch {
        let least = Span::from_millis(18);
        Sketch::new().sender(move |at, sender| {
            let bytes = rate.bytes_in(Span::from_secs(at));
            let segments = (bytes.count() / 1448) as u32;
            let window = (rate.bytes_in(least + queue).count() / 1448) as u32;
            let tcp = &mut sender.tcp;
            (tcp.rtt, tcp.min_rtt) = (Some(least + queue), Some(least));
            (tcp.cwnd, tcp.unacked) = (Some(window), Some(window));
            (tcp.bytes_acked, tcp.delivery_rate) = (Some(bytes), Some(rate));
            (tcp.data_segments_out, tcp.segments_out) = (Some(segments), Some(segments));
            tcp.ecn = Some(true);
            tcp.delivered = Some(segments);
            tcp.delivered_marked = Some((f64::from(segments) * share) as u32);
        })
    }

    fn explained(sketch: &Sketch) -> Option<f64> {
        sketch.judge(RULE).finding().and_then(|finding| finding.explains)
    }

    fn verdict(sketch: &Sketch) -> Option<&'static str> {
        diagnose(sketch.recording(), Question::Flow).verdict.cause
    }

    /// The marked shares reach from 0.1 % at a high rate, where windows are large, to a half.
    #[test]
    fn marks_that_keep_the_window_are_the_verdict() {
        for (mbit, share) in
            [(5, 0.2), (17, 0.006), (17, 0.011), (17, 0.03), (50, 0.005), (200, 0.001), (200, 0.5)]
        {
            for queue in [2_600, 4_000, 25_000].map(Span::from_micros) {
                let sketch = marked(Rate::from_mbit(mbit), queue, share);
                assert_eq!(verdict(&sketch), Some("ecn-marks"), "{mbit} {share} {queue}");
            }
        }
    }

    /// RFC 3168: the sender halves its window once in a round trip with marks, and adds a segment
    /// in every other round trip.
    #[test]
    fn a_sender_that_halves_its_window_for_marks_is_held_by_them() {
        let rtt = Span::from_millis(20);
        for most in [12_u32, 40, 160] {
            // (delivered, marked) at the end of each second; the queue marks one packet of a window
            // that is too large.
            let (mut window, mut delivered, mut marks) = (most / 2, 0, 0);
            let mut seconds = vec![(0, 0)];
            for round in 1..=150 {
                delivered += window;
                let is_marked = window >= most;
                marks += u32::from(is_marked);
                window = if is_marked { window / 2 } else { window + 1 };
                if round % 50 == 0 {
                    seconds.push((delivered, marks));
                }
            }
            let sketch = Sketch::new().sender(move |at, sender| {
                let (delivered, marks) = seconds[at as usize];
                sender.congestion = Some("reno".to_owned());
                let tcp = &mut sender.tcp;
                (tcp.rtt, tcp.min_rtt) = (Some(rtt), Some(rtt));
                (tcp.cwnd, tcp.unacked) = (Some(most), Some(most));
                tcp.bytes_acked = Some(Bytes::new(u64::from(delivered) * 1448));
                tcp.ecn = Some(true);
                (tcp.delivered, tcp.delivered_marked) = (Some(delivered), Some(marks));
            });
            // A window of 160 segments grows for longer than the observation takes: few marks prove
            // nothing.
            assert_eq!(explained(&sketch).is_some(), most < 160, "{most}");
        }
    }

    #[test]
    fn the_explained_rate_does_not_fall_if_the_share_of_marks_rises() {
        for mbit in [10, 100, 1_000] {
            let shares = [0.0, 1e-5, 1e-4, 1e-3, 0.004, 0.006, 0.02, 0.1, 0.6, 1.0];
            let explains = shares.map(|share| {
                let sketch = marked(Rate::from_mbit(mbit), Span::from_millis(3), share);
                explained(&sketch).unwrap_or(0.0)
            });
            assert!(explains.is_sorted(), "{mbit}: {explains:?}");
            assert_eq!((explains[0], explains[9] > 0.0), (0.0, true), "{mbit}");
        }
    }

    /// Something else holds the sender back for nine tenths of the time.
    #[test]
    fn marks_do_not_limit_a_sender_that_has_another_limit() {
        let most = |at| Some(Span::from_millis(900 * at));
        let crowded = || marked(Rate::from_mbit(40), Span::from_millis(3), 0.02);
        for (sketch, cause) in [
            (crowded().tcp(|at, tcp| tcp.window_limited = most(at)), "receiver's window"),
            (crowded().tcp(|at, tcp| tcp.buffer_limited = most(at)), "send buffer"),
            (
                crowded().sender(|at, sender| {
                    sender.send_queue = Bytes::ZERO;
                    sender.tcp.busy = Some(Span::from_millis(100 * at));
                    (sender.tcp.unsent, sender.tcp.unacked) = (Some(Bytes::ZERO), Some(0));
                }),
                "application",
            ),
            (crowded().sender(|_, sender| sender.congestion = Some("bbr".to_owned())), "BBR"),
        ] {
            assert_eq!(explained(&sketch), None, "{cause}");
            assert_ne!(verdict(&sketch), Some("ecn-marks"), "{cause}");
        }
    }

    #[test]
    fn only_marks_of_the_observation_count() {
        let earlier = marked(Rate::from_mbit(40), Span::from_millis(3), 0.0)
            .tcp(|_, tcp| tcp.delivered_marked = Some(5_000));
        assert!(matches!(earlier.judge(RULE), Outcome::RuledOut(_)), "{:?}", earlier.judge(RULE));
        let none = marked(Rate::from_mbit(40), Span::from_millis(3), 0.05);
        let uncounted = none.tcp(|_, tcp| tcp.delivered_marked = None);
        assert!(matches!(uncounted.judge(RULE), Outcome::NotSeen(_)));
        let without = marked(Rate::from_mbit(40), Span::from_millis(3), 0.05)
            .tcp(|_, tcp| tcp.ecn = Some(false));
        assert_eq!(without.judge(RULE), Outcome::Irrelevant);
        assert_eq!(Sketch::new().judge(RULE), Outcome::Irrelevant);
    }
}
