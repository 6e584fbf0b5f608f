//! The application sends a little, waits for the answer, and sends the next: each message costs a
//! round trip.

use super::delayed_ack::held_back;
use super::{Advice, Finding, Outcome, Rule, corked, slow_answers};
use crate::view::{Flow, View};
use crate::words::{percent, span};
use units::Bytes;

pub(super) const RULE: Rule = Rule::new("request-response", "waiting for answers").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    if held_back(flow).is_some()
        || corked::held_back(flow).is_some()
        || slow_answers::waiting(flow).is_some()
    {
        return Outcome::Irrelevant;
    }
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some((sent, received)) =
        sender.bytes(|tcp| tcp.bytes_acked).zip(sender.bytes(|tcp| tcp.bytes_received))
    else {
        return Outcome::not_seen("the bytes of both directions");
    };
    let segments =
        sender.count(|tcp| tcp.data_segments_out).zip(sender.count(|tcp| tcp.data_segments_in));
    let Some(((out, back), rtt)) = segments.zip(sender.rtt()) else {
        return Outcome::not_seen("the data segments of both directions");
    };
    let ratio = back as f64 / (out as f64).max(1.0);
    let rounds = sender.elapsed().secs_f64() / rtt.secs_f64().max(1e-6);
    // Messages as often as round trips pass, answered as often as they are sent.
    let alternates = (0.3..3.4).contains(&ratio) && back >= FEWEST;
    let used = out.min(back) as f64 / rounds;
    let idle = sender.often(|c| c.has_unsent() == Some(false));
    if !alternates || used < USED || idle < 0.8 || received == Bytes::ZERO {
        return Outcome::ruled_out(format!("{} data segments came back for {out} sent", back));
    }
    let each = sent.count() / out.max(1);
    Finding::new(format!(
        "waiting for answers is the limit: the application sends {each} bytes at a time and waits \
         a round trip of {} for each answer",
        span(rtt)
    ))
    .explains((used + 0.3).min(1.0))
    .healthy()
    .seen("data segments sent, received", format!("{out}, {back}"))
    .seen_from("messages for each round trip that passed", format!("{used:.2}"), format!("{USED}"))
    .seen("samples with nothing waiting to be sent", percent(idle))
    .advise(
        Advice::new("Let the application send several requests before the first answer, or use more connections")
            .not("A faster link and larger buffers change nothing; a nearer server does"),
    )
    .holds()
}

const USED: f64 = 0.4;
/// Three seconds of a round trip around the world.
const FEWEST: u64 = 5;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn pinging(per_second: u32, unsent: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            let at = at as u32;
            tcp.data_segments_out = Some(at * per_second);
            tcp.data_segments_in = Some(at * per_second);
            tcp.bytes_acked = Some(Bytes::new(u64::from(at * per_second) * 200));
            tcp.bytes_received = Some(Bytes::new(u64::from(at * per_second) * 100));
            tcp.unsent = Some(Bytes::new(unsent));
        })
    }

    #[test]
    fn a_message_each_round_trip() {
        assert!(pinging(49, 0).holds(RULE) > 0.9);
    }

    #[test]
    fn seldom_messages_and_full_queues_are_something_else() {
        pinging(10, 0).holds_not(RULE);
        pinging(49, 9_000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }
}
