//! Acknowledgements wait in a queue on the return path, and the sender waits for them although the
//! forward path has capacity left. Reasons are an uplink that is much slower than the downlink, and
//! uploads beside downloads.

use super::{Advice, Finding, Outcome, Rule};
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
    let (usual, fastest) = match exceeds_own_queue(sender, queue, least) {
        true => (SEGMENTS_AT_LEAST, SLOW),
        false => (SEGMENTS, FASTEST),
    };
    // A receiver that merges segments of a fast link also acknowledges many segments at a time.
    let is_thinned = |usual: f64, fastest: Rate| each >= usual && flow.rate() <= fastest;
    if !is_thinned(usual, fastest) && !is_thinned(SEGMENTS, FASTEST) {
        return Outcome::ruled_out(format!("an acknowledgement comes for {each:.1} segments"));
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

/// The spacing of the acknowledgements that arrive.
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

/// Whether the queue is longer than the sender's own data explains. A sender that paces itself at
/// the rate of the path has at most two round trips of data in flight, and a few segments more
/// (`bbr_quantization_budget`). Two round trips make a queue of one least round trip. On a slow
/// path the few segments make a longer queue.
fn exceeds_own_queue(sender: &End<'_>, queue: Span, least: Span) -> bool {
    let paces = sender.last().congestion.as_deref().is_some_and(paces_itself);
    let rate = sender.acked().unwrap_or_default().bits_per_second() as f64;
    let segment = sender.tcp().mss.map_or(USUAL_SEGMENT, |mss| mss.count().max(1) as f64);
    let beside = EXTRA * segment * 8.0 / rate.max(1.0);
    paces && queue.secs_f64() / 1.5 >= least.secs_f64() + beside
}

const SHORTEST: Span = Span::from_millis(1);
const HELD: f64 = 0.5;
/// Minimum share of the queueing delay on the return path.
const MOST_OF_QUEUE: f64 = 0.6;
/// Maximum number of segments per acknowledgement without a queue: a receiver acknowledges each
/// second segment (RFC 5681).
const SEGMENTS: f64 = 2.4;
/// The same if the sender paces itself: its rate falls until few acknowledgements are dropped.
const SEGMENTS_AT_LEAST: f64 = 2.1;
/// Segments of a slower flow arrive one by one, so that no receiver merges them.
const SLOW: Rate = Rate::from_mbit(20);
/// Segments of a faster flow arrive so close to one another that receivers merge them (GRO).
const FASTEST: Rate = Rate::from_mbit(50);
const FEWEST: u64 = 20;
/// The segments that BBR may have in flight beside two round trips of data.
const EXTRA: f64 = 6.0;
const USUAL_SEGMENT: f64 = 1448.0;
/// Bits of an acknowledgement with timestamps on an Ethernet.
const ACK_BITS: f64 = 66.0 * 8.0;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
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

    #[test]
    fn a_capture_shows_the_direction_of_the_queue() {
        let back = |millis: u64| {
            queued(2).tcp(move |_, tcp| tcp.back_queue = Some(Span::from_millis(millis)))
        };
        assert!(back(50).holds(RULE) > 0.8);
        back(5).holds_not(RULE);
    }
}
