//! The application writes a message in parts. Nagle's algorithm (RFC 9293 section 3.7.4) holds the
//! last part back until the first part is acknowledged. The peer waits for the last part before it
//! answers, and so delays the acknowledgement.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Connection;
use crate::view::{End, Flow, View};
use crate::words::{percent, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("delayed-ack", "Nagle's algorithm and delayed acknowledgements").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let ends = || [&flow.sender, &flow.receiver].into_iter().flatten();
    let Some((end, held)) = held_back(flow) else {
        let known = ends().any(|end| end.tcp().unsent.is_some());
        return match known {
            true => Outcome::ruled_out("no part of a message waits for an acknowledgement"),
            false => Outcome::not_seen("the unsent data of the connection"),
        };
    };
    let least = end.tcp().min_rtt.unwrap_or_default();
    let late = end.rtt().unwrap_or_default().max(longest_wait(end));
    let messages = end.count(|tcp| tcp.data_segments_in).unwrap_or(0) as f64;
    Finding::new(format!(
        "delayed acknowledgements are the limit: {} writes a message in parts, and Nagle's algorithm holds the last one back until the peer acknowledges the first, up to {} later",
        end.name(),
        span(late)
    ))
    .limits_for(held)
    .seen_from(
        "samples with less than a segment held back by one in flight",
        percent(held),
        percent(HELD),
    )
    .seen_from(
        "acknowledgements above the least round trip",
        span(late - least),
        span(DELAYED),
    )
    .seen("answers", format!("{:.0} a second", messages / end.elapsed().secs_f64().max(1e-9)))
    .advise(
        Advice::new("Let the application write each message at once (writev, MSG_MORE), or set TCP_NODELAY")
            .run("ip route change … quickack 1   (on the peer, until the application is mended)")
            .not("A faster link and larger buffers change nothing"),
    )
    .holds()
}

/// Returns the end whose data Nagle's algorithm holds back, and the share of the samples.
fn held_back<'f, 'a>(flow: &'f Flow<'a>) -> Option<(&'f End<'a>, f64)> {
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    ends.filter(|end| end.alternates() && is_acknowledged_late(end))
        .map(|end| (end, end.often(is_held)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, held)| *held >= HELD)
}

/// Whether acknowledgements are late: by the smoothed round trip, or by the time since the part in
/// flight was sent. The smoothed round trip can be short, because some messages are acknowledged at
/// once.
fn is_acknowledged_late(end: &End<'_>) -> bool {
    let least = end.tcp().min_rtt.unwrap_or_default();
    let is_late = |time: Span| time - least >= DELAYED;
    let waits = waits(end);
    let late = waits.iter().filter(|wait| is_late(**wait)).count();
    end.rtt().is_some_and(is_late) || late > 0 && late * 2 >= waits.len()
}

/// Returns the times since the part in flight was sent, in the samples in which another part was
/// held back.
fn waits(end: &End<'_>) -> Vec<Span> {
    end.values(|connection| connection.tcp.last_sent.filter(|_| is_held(connection)))
}

fn longest_wait(end: &End<'_>) -> Span {
    waits(end).into_iter().max().unwrap_or_default()
}

/// Whether less than a segment waits although the congestion window and the peer's window have
/// room.
fn is_held(connection: &Connection) -> bool {
    let tcp = &connection.tcp;
    let (Some(unsent), Some(mss), Some(flying)) = (tcp.unsent, tcp.mss, tcp.unacked) else {
        return false;
    };
    let open = tcp.peer_window.is_none_or(|window| window.count() / 2 >= mss.count())
        && tcp.cwnd.is_none_or(|cwnd| cwnd > flying);
    unsent > Bytes::ZERO && unsent < mss && flying > 0 && open
}

/// Minimum delay of a late acknowledgement. The kernel delays an acknowledgement by at least 40 ms
/// (TCP_DELACK_MIN). The smoothed round trip contains a part of this delay.
const DELAYED: Span = Span::from_millis(10);
const HELD: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    /// Builds a sender of 23 messages a second over a direct link; each has 1.2 kB in two writes.
    fn parts(unsent: u64, rtt: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            let messages = at as u32 * 23;
            (tcp.rtt, tcp.rttvar) = (Some(Span::from_millis(rtt)), Some(Span::from_millis(18)));
            tcp.min_rtt = Some(Span::from_micros(60));
            (tcp.unsent, tcp.unacked, tcp.cwnd) = (Some(Bytes::new(unsent)), Some(1), Some(10));
            tcp.data_segments_out = Some(messages * 2);
            tcp.data_segments_in = Some(messages);
            tcp.bytes_acked = Some(Bytes::new(u64::from(messages) * 1200));
            tcp.bytes_received = Some(Bytes::new(u64::from(messages)));
        })
    }

    #[test]
    fn a_message_in_two_writes_waits_for_a_delayed_acknowledgement() {
        assert!(parts(1000, 22).holds(RULE) > 0.95);
        parts(1000, 22).holds_not(super::super::request_response::RULE);
        parts(1000, 22).holds_not(super::super::application::RULE);
    }

    #[test]
    fn prompt_acknowledgements_of_some_messages_do_not_hide_late_acknowledgements() {
        let waits =
            |ms| parts(1000, 3).tcp(move |_, tcp| tcp.last_sent = Some(Span::from_millis(ms)));
        assert!(waits(20).holds(RULE) > 0.95);
        waits(2).holds_not(RULE);
        // The path itself has this round trip.
        waits(40).tcp(|_, tcp| tcp.min_rtt = Some(Span::from_millis(38))).holds_not(RULE);
    }

    #[test]
    fn messages_in_one_write_or_with_prompt_acknowledgements_do_not_wait() {
        parts(0, 22).holds_not(RULE);
        parts(1000, 1).holds_not(RULE);
        Sketch::new().holds_not(RULE);
        // A transfer in one direction does not suffer from the rest of a segment.
        parts(1000, 22).tcp(|_, tcp| tcp.data_segments_in = Some(0)).holds_not(RULE);
    }
}
