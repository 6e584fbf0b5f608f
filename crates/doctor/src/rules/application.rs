//! The sending application has no more to send.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::far_window::shortest;
use crate::view::{End, Flow, View};
use crate::words::{percent, rate, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("application", "the application").flow(judge);
pub(super) const FAR: Case = Case::new("the sender is far, and its data comes with pauses");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else {
        let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
        return at_receiver(flow, receiver);
    };
    let Some(busy) = sender.busy() else {
        return Outcome::not_seen("the busy time of the connection (Linux 4.9 and later)");
    };
    let goodput = flow.rate().bits_per_second() as f64;
    let delivery = sender
        .values(|c| c.tcp.delivery_rate.map(|rate| rate.bits_per_second()))
        .into_iter()
        .max()
        .map(|rate| rate as f64);
    let nothing_waits = sender.often(|c| {
        c.has_unsent() == Some(false)
            && c.tcp.unacked.zip(c.tcp.cwnd).is_none_or(|(sent, window)| sent < window)
    });
    let idle = busy < BUSY && delivery.is_none_or(|delivery| delivery >= goodput * FASTER);
    // All written data was sent, so no window of the path holds the sender back. If
    // acknowledgements are lost, much data stays in flight nevertheless.
    let idle_there = sender.often(|c| c.has_unsent() == Some(false));
    // A process that lacks CPU time, is stopped by its quota, or waits for its disk does not pause
    // by choice.
    let by_choice = sender.wants_cpu(view) < WANTS
        && !sender.tasks(view).iter().any(|task| task.waits_for_disk())
        && sender.throttled(view).is_none_or(|group| !group.is_held_back());
    // A small buffer keeps all written data in flight.
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let starved = idle_there >= IDLE && held < HELD;
    if !idle && !starved || !by_choice || flow.is_stalled() {
        return Outcome::ruled_out(format!(
            "the kernel had data of this connection to send for {} of the observation",
            percent(busy)
        ));
    }
    let share = if idle { (1.0 - busy).max(nothing_waits) } else { idle_there };
    let mut finding = Finding::new(format!(
        "the application is the limit: {} gives the kernel {} to send, and the path takes that",
        sender.name(),
        rate(flow.rate())
    ))
    .limits_for(share)
    .allows(Some(flow.rate()))
    .healthy()
    .seen_from(
        "time with data to send or in flight, of the observation",
        percent(busy),
        format!("below {}", percent(BUSY)),
    )
    .seen("samples with nothing waiting to be sent", percent(nothing_waits));
    if let Some(delivery) = delivery {
        finding = finding.seen(
            "rate at which the path delivered",
            rate(units::Rate::from_bits_per_second(delivery as u64)),
        );
    }
    finding
        .advise(
            Advice::new(
                "Look for the reason in the sending program: its own rate limit, its source, its locks",
            )
            .not("Larger buffers, another congestion control or a faster link change nothing"),
        )
        .holds()
}

/// Judges the receiver alone, because it does not see the sender's kernel. Pauses of several round
/// trips, an empty queue and no gap point to the far application: a limit of the path lets data
/// arrive all the time, and losses leave gaps. The far end of a test makes no pauses. An answer
/// waits for its request, and data that stops for good may be lost.
fn at_receiver(flow: &Flow<'_>, receiver: &End<'_>) -> Outcome {
    let rtt = shortest(receiver).unwrap_or_default();
    let long = (rtt * 4).max(PAUSE);
    let pauses = receiver.often(|c| c.tcp.last_received.is_some_and(|idle| idle >= long));
    let is_empty = receiver.often(|c| c.receive_queue == Bytes::ZERO) >= EMPTY;
    let in_order = receiver.count(|tcp| tcp.out_of_order) == Some(0);
    let asks = receiver.bytes(|tcp| tcp.bytes_acked).is_none_or(|sent| sent > Bytes::ZERO);
    let longest = receiver.values(|c| c.tcp.last_received).into_iter().max().unwrap_or_default();
    let goes_on = longest * 2 < receiver.elapsed() && !asks;
    if pauses < PAUSES || !is_empty || !in_order || !goes_on || flow.tested || rtt == Span::ZERO {
        return Outcome::not_seen(format!(
            "the far sender: {} of the samples fell into a pause of it",
            percent(pauses)
        ));
    }
    Finding::new(format!(
        "the far application is the limit: it sends {} in parts, with pauses of {} and more",
        rate(flow.rate()),
        span(long)
    ))
    .limits().case(FAR)
    .healthy()
    .seen_from("samples in a pause of it", percent(pauses), percent(PAUSES))
    .seen("segments out of order", "none")
    .seen("receive queue", "empty")
    .advise(
        Advice::new(
            "Look for the reason in the sending program: its own rate limit, its source, its CPU time",
        )
        .run("weir doctor   (on the far end)")
        .not("Larger buffers, another congestion control or a faster link change nothing"),
    )
    .holds()
}

/// Shortest gap without data that counts as a pause.
const PAUSE: Span = Span::from_millis(5);
/// Minimum share of the samples that fall into a pause. `EMPTY`: minimum share of the samples with
/// an empty queue.
const PAUSES: f64 = 0.5;
const EMPTY: f64 = 0.9;
/// Below this share of busy time an application may be idle (measured).
const BUSY: f64 = 0.5;
const FASTER: f64 = 1.25;
const WANTS: f64 = 0.7;
const HELD: f64 = 0.2;
const IDLE: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    /// Builds a sender with data to send for this share of the time, in percent.
    fn sending(busy: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.busy = Some(Span::from_millis(10 * busy * at));
            tcp.bytes_acked = Some(Bytes::new(at * 1_250_000));
            tcp.unsent = Some(Bytes::ZERO);
            tcp.unacked = Some(0);
        })
    }

    #[test]
    fn an_idle_application_on_a_faster_path_is_the_limit() {
        assert!(sending(10).holds(RULE) > 0.8);
        let outcome = sending(10).judge(RULE);
        assert!(outcome.finding().unwrap().healthy);
    }

    #[test]
    fn unsent_data_or_a_slow_path_rules_out_the_application() {
        Sketch::new().holds_not(RULE);
        let waits = |busy| sending(busy).tcp(|_, tcp| tcp.unsent = Some(Bytes::new(5_000)));
        waits(90).holds_not(RULE);
        let slow = waits(10).tcp(|_, tcp| tcp.delivery_rate = Some(units::Rate::from_mbit(10)));
        slow.holds_not(RULE);
    }

    #[test]
    fn an_application_with_room_in_the_window_of_a_long_path_is_the_limit() {
        assert!(sending(100).holds(RULE) > 0.9);
        let small_buffer = sending(100).tcp(|at, tcp| {
            tcp.buffer_limited = Some(Span::from_millis(800 * at));
        });
        small_buffer.holds_not(RULE);
        // A process that waits for a core does not pause by choice.
        let starved = sending(100).each(|at, sample| {
            sample.tasks[0].waited = Some(Span::from_millis(700 * at));
        });
        starved.holds_not(RULE);
    }

    #[test]
    fn a_receiver_alone_sees_the_pauses_of_the_far_application() {
        let receives = |pause: u64, behind: u32, queue: u64| {
            Sketch::new().receiving(move |at, receiver| {
                receiver.tcp.min_rtt = Some(Span::from_micros(80));
                receiver.tcp.last_received = Some(Span::from_millis(pause));
                receiver.tcp.out_of_order = Some(at as u32 * behind);
                receiver.receive_queue = Bytes::new(queue);
            })
        };
        let outcome = receives(8, 0, 0).judge(RULE);
        assert!(outcome.finding().unwrap().healthy);
        let unknown = |sketch: Sketch| matches!(sketch.judge(RULE), Outcome::NotSeen(_));
        assert!(unknown(receives(1, 0, 0)));
        assert!(unknown(receives(8, 7, 0)));
        assert!(unknown(receives(8, 0, 9_000)));
        assert!(unknown(receives(2_000, 0, 0)), "nothing comes any more");
        let asks = receives(8, 0, 0).tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 900)));
        assert!(unknown(asks));
    }

    #[test]
    fn a_kernel_without_the_signals_cannot_blame_the_application() {
        let old = Sketch::new().tcp(|_, tcp| tcp.busy = None);
        assert!(matches!(old.judge(RULE), Outcome::NotSeen(_)));
    }

    #[test]
    fn lost_acknowledgements_fill_the_window_of_a_slow_application() {
        assert!(sending(100).tcp(|_, tcp| tcp.unacked = Some(690)).holds(RULE) > 0.9);
    }
}
