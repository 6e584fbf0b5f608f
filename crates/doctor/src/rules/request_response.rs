//! The application sends a little data, waits for the answer, and sends again: each message costs a
//! round trip.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent, rate, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("request-response", "waiting for answers").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let end = flow.end();
    let Some((sent, received)) =
        end.bytes(|tcp| tcp.bytes_acked).zip(end.bytes(|tcp| tcp.bytes_received))
    else {
        return Outcome::not_seen("the bytes of both directions");
    };
    let segments =
        end.count(|tcp| tcp.data_segments_out).zip(end.count(|tcp| tcp.data_segments_in));
    let Some(((out, back), rtt)) = segments.zip(end.rtt()) else {
        return Outcome::not_seen("the data segments of both directions");
    };
    let ratio = back as f64 / (out as f64).max(1.0);
    let rounds = end.elapsed().secs_f64() / rtt.secs_f64().max(1e-6);
    // The peer answers about as many messages as this end sends.
    let used = out.min(back) as f64 / rounds;
    // The end of the shorter messages does not see why a far sender of many segments pauses.
    let sees_all = flow.sender.is_some() || used <= ONE_AT_A_TIME;
    let alternates = (0.3..3.4).contains(&ratio) && back >= FEWEST && sees_all;
    let idle = end.often(|c| c.has_unsent() == Some(false));
    let counts = |finding: Finding| {
        finding
            .healthy()
            .seen("data segments sent, received", format!("{out}, {back}"))
            .seen_from(
                "messages for each round trip that passed",
                format!("{used:.2}"),
                format!("{USED}"),
            )
            .seen("samples with nothing waiting to be sent", percent(idle))
            .advise(
                Advice::new("Let the sending program send several requests before the first answer, or use more connections")
                    .not("A faster link and larger buffers change nothing; a nearer server does"),
            )
    };
    if alternates && used >= USED && idle >= 0.8 && received > Bytes::ZERO {
        let each = sent.count() / out.max(1);
        let finding = Finding::new(format!(
            "waiting for answers is the limit: the application sends {each} bytes at a time and waits \
             a round trip of {} for each answer",
            span(rtt)
        ));
        return counts(finding.limits_for(used)).holds();
    }
    if !takes_turns(flow, end, out.min(back), used, rtt) {
        return Outcome::ruled_out(format!("{back} data segments came back for {out} sent"));
    }
    // Each exchange has one segment in the direction of the small messages.
    let each = Bytes::new(sent.max(received).count() / out.min(back).max(1));
    let least = end.tcp().min_rtt.map_or(rtt, |least| least.min(rtt));
    let allows = bound::window(each, least);
    let finding = Finding::new(format!(
        "waiting for answers is the limit: {} pass in one direction, and the next message only after an answer, a round trip of {} later",
        bytes(each),
        span(least)
    ))
    .limits_for(used)
    .allows(allows)
    .seen_if("bytes of a turn / round trip", allows.map(rate));
    counts(finding).holds()
}

/// Whether exchanges never overlap: after each small message in one direction, a large message
/// follows in the other. The sender of the large messages has data in flight most of the time, and
/// seldom waits for a window. The receiver of the large messages sees pauses between the exchanges.
fn takes_turns(flow: &Flow<'_>, end: &End<'_>, turns: u64, used: f64, rtt: Span) -> bool {
    if turns < FEWEST || !(USED..=ONE_AT_A_TIME).contains(&used) || flow.is_stalled() {
        return false;
    }
    let lossless = end.loss().unwrap_or(0.0) < LOSSES;
    match flow.sender.is_some() {
        true => {
            let idle = end.often(|c| c.has_unsent() == Some(false));
            let held = end.window_limited().unwrap_or(0.0) + end.buffer_limited().unwrap_or(0.0);
            idle >= MOSTLY_SENT && held < HELD && lossless && end.busy().is_some_and(|b| b >= BUSY)
        }
        false => {
            let pauses = end.often(|c| c.tcp.last_received.is_some_and(|idle| idle * 3 >= rtt));
            rtt >= LONG && pauses >= PAUSES
        }
    }
}

const USED: f64 = 0.4;
/// Maximum number of exchanges in a round trip; more mean several requests at a time.
const ONE_AT_A_TIME: f64 = 1.3;
/// Minimum number of exchanges: even a round trip around the world allows as many in three seconds.
const FEWEST: u64 = 5;
/// Minimum share of the samples in which all data is sent.
const MOSTLY_SENT: f64 = 0.5;
/// Maximum share of the time in which a window or a buffer holds the sender.
const HELD: f64 = 0.2;
/// Minimum share of the time in which the sender has data in flight.
const BUSY: f64 = 0.7;
/// Minimum share of the samples in a pause between exchanges.
const PAUSES: f64 = 0.1;
/// Minimum share of lost segments that explains a pause.
const LOSSES: f64 = 1e-3;
/// The kernel counts the time since the last segment in ticks of up to 10 ms.
const LONG: Span = Span::from_millis(20);

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
    fn one_message_in_each_round_trip_is_the_limit() {
        assert!(pinging(49, 0).holds(RULE) > 0.9);
    }

    #[test]
    fn rare_messages_or_a_full_queue_rule_out_request_response() {
        pinging(10, 0).holds_not(RULE);
        pinging(49, 9_000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    /// Messages of 64 KiB, each after an answer of one byte: 16 exchanges a second at 40 ms.
    #[test]
    fn large_messages_one_at_a_time_have_the_rate_of_their_round_trips() {
        let turns = |per_second: u32, busy: u64| {
            Sketch::new().tcp(move |at, tcp| {
                let turns = at as u32 * per_second;
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(40)), Some(Span::from_millis(40)));
                tcp.data_segments_out = Some(turns * 46);
                tcp.data_segments_in = Some(turns);
                tcp.bytes_acked = Some(Bytes::new(u64::from(turns) << 16));
                tcp.bytes_received = Some(Bytes::new(turns.into()));
                tcp.unsent = Some(Bytes::ZERO);
                tcp.busy = Some(Span::from_millis(busy * at));
            })
        };
        let outcome = turns(16, 990).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.explains.is_some_and(|share| share > 0.9), "{finding:?}");
        let allows = finding.allows.unwrap().mbit_per_second();
        assert!((13.0..13.2).contains(&allows), "{allows}");
        turns(16, 990).holds_not(super::super::application::RULE);
        // An application that pauses between messages, and an application with several requests at
        // a time.
        turns(10, 400).holds_not(RULE);
        turns(200, 990).holds_not(RULE);
    }

    /// Queries of 60 bytes with answers of 300: the client receives more than it sends.
    #[test]
    fn a_client_of_larger_answers_waits_for_each_round_trip() {
        let queries = |per_second: u64, answers: u64| {
            Sketch::new().receiving(move |at, receiver| {
                let tcp = &mut receiver.tcp;
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(12)), Some(Span::from_millis(10)));
                tcp.data_segments_out = Some((at * per_second) as u32);
                tcp.data_segments_in = Some((at * per_second * answers) as u32);
                tcp.bytes_acked = Some(Bytes::new(at * per_second * 60));
                tcp.bytes_received = Some(Bytes::new(at * per_second * 300));
                tcp.unsent = Some(Bytes::ZERO);
            })
        };
        assert!(queries(76, 1).holds(RULE) > 0.9);
        // Several queries at a time, pauses between queries, and a stream.
        queries(900, 1).holds_not(RULE);
        queries(10, 1).holds_not(RULE);
        queries(76, 9).holds_not(RULE);
    }

    #[test]
    fn a_reader_that_asks_for_one_block_at_a_time_waits_for_round_trips() {
        let reads = |pauses: bool| {
            Sketch::new().receiving(move |at, receiver| {
                let tcp = &mut receiver.tcp;
                let turns = at as u32 * 16;
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(40)), Some(Span::from_millis(40)));
                tcp.data_segments_out = Some(turns);
                tcp.data_segments_in = Some(turns * 46);
                tcp.bytes_acked = Some(Bytes::new(u64::from(turns) * 40));
                tcp.bytes_received = Some(Bytes::new(u64::from(turns) << 16));
                let late = if pauses && at % 2 == 0 { 36 } else { 0 };
                tcp.last_received = Some(Span::from_millis(late));
            })
        };
        assert!(reads(true).holds(RULE) > 0.9);
        reads(false).holds_not(RULE);
    }
}
