//! Acknowledgements wait in a queue on the return path, and the sender waits for them although the
//! forward path has capacity left. Reasons are an uplink that is much slower than the downlink, and
//! uploads beside downloads.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::full_path::{full_rate, has_few_samples, is_queue_steady};
use crate::signs::loss_model::paces_itself;
use crate::view::{End, Flow, View};
use crate::words::{percent, rate, span};
use units::{Rate, Span};

pub(super) const RULE: Rule = Rule::new("way-back", "the way back of acknowledgements").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = flow.sender.as_ref().filter(|_| !flow.is_inside()) else {
        return Outcome::Irrelevant;
    };
    let (Some(rtt), Some(least)) = (sender.rtt(), sender.tcp().min_rtt) else {
        return Outcome::not_seen("the round trips of the connection");
    };
    let queue = rtt - least;
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let stands = queue >= SHORTEST && queue.nanos() >= least.nanos() / 4;
    if !stands || held >= HELD || !sender.has_data() || flow.is_stalled() {
        return Outcome::ruled_out(format!("the round trip is {} above its minimum", span(queue)));
    }
    if let Some(back) = sender.median(|c| c.tcp.back_queue) {
        let share = back.secs_f64() / queue.secs_f64();
        if share < MOST_OF_QUEUE || back < SHORTEST {
            return Outcome::ruled_out(format!(
                "{} of the queue of {} is on the way back",
                percent(share.min(1.0)),
                span(queue)
            ));
        }
        return finding(flow, queue)
            .seen_from("waiting time on the way back", span(back), span(SHORTEST))
            .seen_from(
                "part on the way back, of the queue",
                percent(share.min(1.0)),
                percent(MOST_OF_QUEUE),
            )
            .holds();
    }
    let Some(Spacing { each, per_second }) = Spacing::of(sender) else {
        return Outcome::not_seen("the number of acknowledgements");
    };
    if !is_queue_steady(sender) {
        return Outcome::ruled_out(format!(
            "the round trips vary, and {} above their minimum show no queue",
            span(queue)
        ));
    }
    if let Some(full) = full_rate(sender) {
        return Outcome::ruled_out(format!(
            "more data in flight does not raise the rate of {}, whatever the way back passes",
            rate(full)
        ));
    }
    let thinned = Thinned::of(sender, queue, least);
    let Some(usual) = thinned.usual(each, flow.rate()) else {
        return Outcome::ruled_out(format!("an acknowledgement comes for {each:.1} segments"));
    };
    let may_be_full = matches!(thinned, Thinned::Windowed) && has_few_samples(sender);
    if may_be_full && jitter_explains(sender, each) {
        return Outcome::not_seen(
            "whether more data in flight raises the rate: too few samples have the connection",
        );
    }
    finding(flow, queue)
        .seen_from("segments of an acknowledgement", format!("{each:.1}"), format!("{usual:.1}"))
        .seen("acknowledgements that arrive", format!("{per_second:.0} a second"))
        .seen(
            "rate of the acknowledgements",
            rate(Rate::from_bits_per_second((per_second * ACK_BITS) as u64)),
        )
        .against("segments that arrive in bursts, as on a radio link, share acknowledgements, too: look at the far end")
        .holds()
}

fn finding(flow: &Flow<'_>, queue: Span) -> Finding {
    Finding::new(format!(
        "the way back is the limit: acknowledgements from {} wait {} in a queue, so that only {} pass forward",
        flow.addresses().1,
        span(queue),
        rate(flow.rate())
    ))
    .limits()
    .seen_from("round trip above its minimum", span(queue), span(SHORTEST))
    .advise(
        Advice::new("Look for uploads that fill the way back, and give acknowledgements a queue of their own there")
            .run("tc -s qdisc show   (on the far end, and on routers)")
            .run("tc qdisc replace dev UPLINK root cake bandwidth RATE ack-filter   (on the far end)")
            .not("A faster way forward and larger buffers change nothing while acknowledgements wait"),
    )
}

/// The numbers of acknowledgements that arrive.
struct Spacing {
    /// Segments per acknowledgement, on average.
    each: f64,
    per_second: f64,
}

impl Spacing {
    fn of(sender: &End<'_>) -> Option<Self> {
        let came = sender.count(|tcp| tcp.segments_in)?;
        let data = sender.count(|tcp| tcp.data_segments_in)?;
        let sent = sender.count(|tcp| tcp.data_segments_out)?;
        let acks = came.saturating_sub(data);
        (acks >= FEWEST && data * 4 < acks).then(|| Self {
            each: sent as f64 / acks as f64,
            per_second: acks as f64 / sender.elapsed().secs_f64().max(1e-9),
        })
    }
}

/// The type of a sender. A queue on the return path that drops acknowledgements shows in another
/// number of segments per acknowledgement for each type.
enum Thinned {
    /// A sender that fills its window, whatever the round trip.
    Windowed,
    /// A sender that paces itself at the rate of the path, with the queue in multiples of the
    /// longest queue that the sender's own data makes. Such a sender slows down until few
    /// acknowledgements are dropped. Many dropped acknowledgements do not slow the sender if the
    /// queue is short.
    Paced(f64),
}

impl Thinned {
    /// A sender that paces itself has at most two round trips of data in flight, and a few segments
    /// more (`bbr_quantization_budget`). Two round trips make a queue of one least round trip. On
    /// a slow path the few segments make a longer queue.
    fn of(sender: &End<'_>, queue: Span, least: Span) -> Self {
        if !sender.last().congestion.as_deref().is_some_and(paces_itself) {
            return Self::Windowed;
        }
        let rate = sender.acked().unwrap_or_default().bits_per_second() as f64;
        let beside = EXTRA * segment(sender) * 8.0 / rate.max(1.0);
        Self::Paced(queue.secs_f64() / (least.secs_f64() + beside))
    }

    /// Returns the least number of segments that shows dropped acknowledgements, if there are as
    /// many.
    fn usual(&self, each: f64, rate: Rate) -> Option<f64> {
        let (usual, fastest) = match self {
            Self::Windowed => (SEGMENTS, FASTEST),
            Self::Paced(times) if *times >= MUCH_LONGER && rate > SLOW => (SEGMENTS, FASTEST),
            Self::Paced(times) if *times >= MUCH_LONGER || *times >= LONGER && each < MANY => {
                (SEGMENTS_AT_LEAST, SLOW)
            }
            Self::Paced(_) => return None,
        };
        (each >= usual && rate <= fastest).then_some(usual)
    }
}

/// Whether jitter explains the number of segments of an acknowledgement: the segments of a burst
/// share an acknowledgement, and a burst has no more segments than arrive in the time by which the
/// round trips vary. With a jitter of 3 ms at 48 Mbit/s, CUBIC and Reno had 0.6 times as many
/// segments in a burst at most (recorded).
fn jitter_explains(sender: &End<'_>, each: f64) -> bool {
    let varies = sender.median(|c| c.tcp.rttvar).unwrap_or_default();
    let bytes = sender.acked().unwrap_or_default().bytes_in(varies).count();
    each <= WITHOUT_BURSTS + bytes as f64 / segment(sender)
}

fn segment(sender: &End<'_>) -> f64 {
    sender.tcp().mss.map_or(USUAL_SEGMENT, |mss| mss.count().max(1) as f64)
}

const SHORTEST: Span = Span::from_millis(1);
const HELD: f64 = 0.5;
/// Minimum share of the queueing delay on the return path.
const MOST_OF_QUEUE: f64 = 0.6;
/// Maximum number of segments per acknowledgement without a queue: a receiver acknowledges each
/// second segment (RFC 5681).
const SEGMENTS: f64 = 2.4;
/// Maximum number of segments per acknowledgement without a queue, for a sender that paces itself:
/// its rate falls until few acknowledgements are dropped.
const SEGMENTS_AT_LEAST: f64 = 2.1;
/// Segments per acknowledgement if no segments arrive in bursts.
const WITHOUT_BURSTS: f64 = 2.0;
/// Rate below which segments arrive one by one, so that no receiver merges segments (GRO).
const SLOW: Rate = Rate::from_mbit(20);
/// Rate above which segments arrive so close to one another that receivers merge segments (GRO).
const FASTEST: Rate = Rate::from_mbit(50);
const FEWEST: u64 = 20;
/// The segments that BBR may have in flight beside two round trips of data.
const EXTRA: f64 = 6.0;
const USUAL_SEGMENT: f64 = 1448.0;
/// Minimum queue of a sender that paces itself, in multiples of the longest queue of its own data.
const LONGER: f64 = 1.5;
/// [`LONGER`] for a sender that gets an acknowledgement for [`MANY`] segments. Segments that arrive
/// in bursts share acknowledgements, and let the sender have more data in flight
/// (`bbr_ack_aggregation_cwnd`).
const MUCH_LONGER: f64 = 2.0;
const MANY: f64 = 3.0;
/// Bits of an acknowledgement with timestamps on an Ethernet.
const ACK_BITS: f64 = 66.0 * 8.0;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::{Question, diagnose};
    use units::Bytes;

    /// Builds a flow of 20 Mbit/s with a queue of 60 ms, and one acknowledgement for `each`
    /// segments.
    fn queued(each: u32) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            let sent = at as u32 * 1_726;
            tcp.rtt = Some(Span::from_millis(80));
            tcp.bytes_acked = Some(Bytes::new(at * 2_500_000));
            tcp.delivery_rate = Some(Rate::from_mbit(20));
            tcp.data_segments_out = Some(sent);
            tcp.data_segments_in = Some(0);
            tcp.segments_in = Some(sent / each);
        })
    }

    #[test]
    fn few_acknowledgements_and_a_queue_blame_the_return_path() {
        assert!(queued(12).holds(RULE) > 0.8);
        queued(12).holds_not(super::super::path::RULE);
        queued(2).holds_not(RULE);
        assert!(queued(2).holds(super::super::path::RULE) > 0.5);
        let short = queued(12).tcp(|_, tcp| tcp.rtt = tcp.min_rtt);
        short.holds_not(RULE);
    }

    /// The receiver's window or the own send buffer holds the sender for 60 % of the time.
    #[test]
    fn a_sender_that_its_window_or_buffer_holds_does_not_wait_for_acknowledgements() {
        let held = |at: u64| Some(Span::from_millis(600 * at));
        queued(12).tcp(|at, tcp| tcp.window_limited = held(at)).holds_not(RULE);
        queued(12).tcp(|at, tcp| tcp.buffer_limited = held(at)).holds_not(RULE);
    }

    /// 3.3 Mbit/s of BBR, with 119 acknowledgements a second over a way back of 64 kbit/s.
    #[test]
    fn a_queue_longer_than_bbr_makes_needs_fewer_dropped_acknowledgements() {
        let slow = |congestion: &'static str, queue: u64, acks: u32| {
            Sketch::new().sender(move |at, sender| {
                sender.congestion = Some(congestion.to_owned());
                sender.tcp.rtt = Some(Span::from_millis(20 + queue));
                sender.tcp.bytes_acked = Some(Bytes::new(at * 412_000));
                sender.tcp.delivery_rate = Some(Rate::from_bits_per_second(3_300_000));
                sender.tcp.data_segments_out = Some(at as u32 * 285);
                sender.tcp.data_segments_in = Some(0);
                sender.tcp.segments_in = Some(at as u32 * acks);
            })
        };
        assert!(slow("bbr", 80, 125).holds(RULE) > 0.8);
        assert!(slow("weir_1", 80, 125).holds(RULE) > 0.8);
        // The receiver acknowledges each second segment.
        slow("bbr", 80, 143).holds_not(RULE);
        // BBR's own data may make a queue of a round trip, and CUBIC's own data a longer queue.
        slow("bbr", 20, 125).holds_not(RULE);
        slow("cubic", 80, 125).holds_not(RULE);
        // At 1 Mbit/s, six segments make a queue of 70 ms.
        let slower = slow("bbr", 80, 38).tcp(|at, tcp| {
            tcp.bytes_acked = Some(Bytes::new(at * 119_000));
            tcp.data_segments_out = Some(at as u32 * 82);
        });
        slower.holds_not(RULE);
    }

    fn filling(congestion: &'static str, each: u32, point: fn(u64) -> (u32, f64)) -> Sketch {
        filling_over(12, congestion, each, point)
    }

    /// Builds a sender over `samples` samples with an acknowledgement for `each` segments. `point`
    /// gives the segments in flight and the round trip in milliseconds.
    fn filling_over(
        samples: u64,
        congestion: &'static str,
        each: u32,
        point: fn(u64) -> (u32, f64),
    ) -> Sketch {
        let mut sketch = Sketch::new();
        sketch.repeat_samples(samples);
        sketch.sender(move |at, sender| {
            let rate = |at| {
                let (flying, rtt) = point(at);
                f64::from(flying) * 1448.0 * 8e3 / rtt
            };
            let (flying, rtt) = point(at);
            let sent = (0..at).map(rate).sum::<f64>() / 8.0;
            sender.congestion = Some(congestion.to_owned());
            let tcp = &mut sender.tcp;
            tcp.rtt = Some(Span::from_micros((rtt * 1e3) as u64));
            tcp.min_rtt = Some(Span::from_micros(17_500));
            tcp.rttvar = Some(Span::from_micros(1_200));
            (tcp.unacked, tcp.cwnd) = (Some(flying), Some(flying));
            tcp.delivery_rate = Some(Rate::from_bits_per_second(rate(at) as u64));
            tcp.bytes_acked = Some(Bytes::new(sent as u64));
            tcp.data_segments_out = Some((sent / 1448.0) as u32);
            tcp.data_segments_in = Some(0);
            tcp.segments_in = Some((sent / 1448.0) as u32 / each);
        })
    }

    /// A link of 47.7 Mbit/s with a jitter of 3 ms: segments arrive in bursts, and share
    /// acknowledgements.
    #[test]
    fn a_full_link_with_jitter_is_no_thin_way_back() {
        let full = |at: u64| {
            let flying = 280 + at as u32 * 3;
            (flying, f64::from(flying) * 1448.0 * 8.0 / 47_700.0)
        };
        for congestion in ["cubic", "reno"] {
            filling(congestion, 4, full).holds_not(RULE);
            assert!(filling(congestion, 4, full).holds(super::super::path::RULE) > 0.7);
        }
        // Two round trips of data, and what the bursts let BBR send beside.
        let paced = |_: u64| (190, 46.1);
        for congestion in ["bbr", "tcpa"] {
            filling(congestion, 4, paced).holds_not(RULE);
            assert!(filling(congestion, 4, paced).holds(super::super::path::RULE) > 0.7);
        }
    }

    /// A machine with many connections seldom lists all of them.
    #[test]
    fn few_samples_of_a_full_link_with_jitter_show_no_thin_way_back() {
        let full = |at: u64| {
            let flying = 280 + at as u32 * 3;
            (flying, f64::from(flying) * 1448.0 * 8.0 / 47_700.0)
        };
        for (congestion, samples) in [("cubic", 2), ("reno", 3), ("cubic", 5), ("reno", 7)] {
            let jitter = filling_over(samples, congestion, 4, full);
            let outcome = jitter.judge(RULE);
            assert!(matches!(outcome, Outcome::NotSeen(_)), "{congestion} {samples}: {outcome:?}");
            let verdict = diagnose(jitter.recording(), Question::Machine).verdict;
            assert_eq!(verdict.cause, Some("path"), "{congestion} {samples}: {verdict:?}");
        }
        // More segments share an acknowledgement than jitter of 1.2 ms lets arrive at once.
        let thin = |at: u64| (100 + at as u32 * 5, 80.0);
        for samples in [2, 3] {
            assert!(filling_over(samples, "cubic", 8, thin).holds(RULE) > 0.8);
        }
    }

    #[test]
    fn jitter_without_a_queue_is_no_thin_way_back() {
        let varies = |at: u64| (20 + at as u32, 24.0);
        for congestion in ["cubic", "reno", "bbr", "tcpa"] {
            filling(congestion, 4, varies).holds_not(RULE);
        }
    }

    /// Dropped acknowledgements keep the queue on the way back at one length.
    #[test]
    fn a_rate_that_follows_the_window_shows_a_thin_way_back() {
        let thin = |at: u64| (100 + at as u32 * 5, 80.0);
        for congestion in ["cubic", "reno"] {
            assert!(filling(congestion, 6, thin).holds(RULE) > 0.8);
        }
        // A rate of 2 Mbit/s, and a queue six times as long as the path.
        let slow = |at: u64| (24 + at as u32 % 2, 130.0);
        for congestion in ["bbr", "tcpa"] {
            assert!(filling(congestion, 4, slow).holds(RULE) > 0.8);
        }
    }

    #[test]
    fn a_capture_shows_the_direction_of_the_queue() {
        let back = |millis: u64| {
            queued(2).tcp(move |_, tcp| tcp.back_queue = Some(Span::from_millis(millis)))
        };
        assert!(back(50).holds(RULE) > 0.8);
        back(5).holds_not(RULE);
    }
}
