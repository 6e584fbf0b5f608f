//! A queue on the path is much longer than the path itself. The rate does not suffer, but all
//! traffic on the path waits.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::send_buffer::held;
use crate::view::{End, Flow, View};
use crate::words::{rate, span};
use units::Span;

pub(super) const RULE: Rule = Rule::new("bufferbloat", "a long queue on the path").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else {
        return Outcome::not_seen("the far sender's round trips");
    };
    let Some((rtt, least)) = sender.rtt().zip(sender.tcp().min_rtt) else {
        return Outcome::not_seen("the round trips of the connection");
    };
    let queue = rtt - least;
    // A slow receiver also delays its acknowledgements.
    let held = sender.window_limited().unwrap_or(0.0) + held(flow);
    if held >= HELD {
        return Outcome::ruled_out(format!(
            "a buffer of an end held the sender for {} of the observation",
            crate::words::percent(held.min(1.0))
        ));
    }
    // With a queue that never empties, all round trips are about equally long. The round trips
    // differ if a peer answers in bursts.
    let varies = sender.median(|c| c.tcp.rttvar).unwrap_or_default();
    if varies * 2 > queue && queue >= SHORTEST {
        return Outcome::ruled_out(format!("the round trips differ by {}", span(varies)));
    }
    if queue <= DELAYED && sends_lone_segments(sender) {
        return Outcome::ruled_out(format!(
            "the round trip is {}, and the peer may delay the acknowledgement of a lone segment as long",
            span(rtt)
        ));
    }
    let long = queue >= LONG || rtt.nanos() > least.nanos().saturating_mul(TIMES) && queue >= FELT;
    if !long || flow.is_inside() {
        return Outcome::ruled_out(format!(
            "the round trip is {}, at least {}",
            span(rtt),
            span(least)
        ));
    }
    Finding::new(format!(
        "a queue on the path holds {} of data before a bottleneck that passes {}: the round trip is {} instead of {}",
        span(queue),
        rate(flow.rate()),
        span(rtt),
        span(least)
    ))
    .seen_from("round trip above its minimum", span(queue), format!("{} or {TIMES} times", span(LONG)))
    .seen("least round trip", span(least))
    .limits()
    .advise(
        Advice::new("Limit the queue before the bottleneck with a rate just below it, or use a congestion control that keeps queues short")
            .run("tc qdisc replace dev DEV root cake bandwidth RATE")
            .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
            .not("It does not make this transfer faster: it lets others get through beside it"),
    )
    .holds()
}

/// Whether the application writes a little now and then, and the peer does not answer. The peer
/// then has no data to carry its acknowledgement, and waits for a second segment (RFC 9293 section
/// 3.8.6.3).
fn sends_lone_segments(sender: &End<'_>) -> bool {
    let flying = sender.median(|c| c.tcp.unacked);
    !sender.has_data() && !sender.alternates() && flying.is_some_and(|segments| segments <= FEW)
}

const HELD: f64 = 0.3;
/// Minimum queueing delay that is a finding (measured).
const LONG: Span = Span::from_millis(100);
const TIMES: u64 = 5;
/// The longest delay of an acknowledgement in the kernel (TCP_DELACK_MAX).
const DELAYED: Span = Span::from_millis(200);
/// Maximum number of segments in flight if the application writes lone segments.
const FEW: u32 = 2;
const SHORTEST: Span = Span::from_millis(5);
/// Shortest queueing delay that users notice. The round trip of a direct link is so short that any
/// queue is many times longer.
const FELT: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn rtt(millis: u64) -> Sketch {
        Sketch::new().tcp(move |_, tcp| tcp.rtt = Some(Span::from_millis(millis)))
    }

    #[test]
    fn a_long_queue_is_named_before_its_bottleneck() {
        assert!(rtt(400).holds(RULE) > 0.85);
        assert!(rtt(121).judge(RULE).finding().is_some());
    }

    #[test]
    fn a_short_queue_is_ruled_out() {
        rtt(80).holds_not(RULE);
        rtt(15).holds_not(RULE);
        let cable = |queue: u64| {
            Sketch::new().tcp(move |_, tcp| {
                tcp.min_rtt = Some(Span::from_micros(50));
                tcp.rtt = Some(Span::from_millis(queue));
            })
        };
        cable(7).holds_not(RULE);
        assert!(cable(7).holds(super::super::path::RULE) > 0.7);
        assert!(cable(45).holds(RULE) > 0.85);
    }

    /// A message every 100 ms over a direct link, which is acknowledged 40 ms later.
    #[test]
    fn delayed_acknowledgements_of_small_messages_are_no_queue() {
        let messages = |rtt: u64, flying: u32| {
            Sketch::new().tcp(move |at, tcp| {
                tcp.min_rtt = Some(Span::from_micros(80));
                tcp.rtt = Some(Span::from_millis(rtt));
                tcp.unsent = Some(units::Bytes::ZERO);
                tcp.unacked = Some(flying);
                tcp.bytes_acked = Some(units::Bytes::new(at * 10_000));
                tcp.data_segments_out = Some(at as u32 * 10);
            })
        };
        messages(40, 1).holds_not(RULE);
        assert!(messages(40, 30).holds(RULE) > 0.85);
        assert!(messages(700, 1).holds(RULE) > 0.85);
    }

    #[test]
    fn varying_round_trips_are_bursts_and_no_queue() {
        rtt(140).tcp(|_, tcp| tcp.rttvar = Some(Span::from_millis(90))).holds_not(RULE);
        rtt(140)
            .tcp(|_, tcp| tcp.rttvar = Some(Span::from_millis(9)))
            .judge(RULE)
            .finding()
            .unwrap();
    }
}
