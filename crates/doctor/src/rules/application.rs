//! The sending application has no more to send.

use super::delayed_ack::held_back;
use super::{Advice, Finding, Outcome, Rule, corked};
use crate::view::{Flow, View};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("application", "the application").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    if held_back(flow).is_some() || corked::held_back(flow).is_some() {
        return Outcome::Irrelevant;
    }
    let Some(sender) = &flow.sender else {
        let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
        // The far sender's kernel says nothing here. An empty queue and pauses point to it.
        let pauses = receiver.often(|c| {
            c.tcp.last_received.zip(c.tcp.receive_rtt).is_some_and(|(idle, rtt)| idle > rtt * 4)
        });
        return Outcome::not_seen(format!(
            "the far sender: {} of the samples fell into a pause of it",
            percent(pauses)
        ));
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
    // Everything that was written is sent: no window of the path can be what it waits for. Lost
    // acknowledgements keep much of it in flight.
    let idle_there = sender.often(|c| c.has_unsent() == Some(false));
    // A process that lacks CPU time, is stopped by its quota, or waits for its disk has no choice.
    let by_choice = sender.wants_cpu(view) < WANTS
        && !sender.tasks(view).iter().any(|task| task.waits_for_disk())
        && sender.throttled(view).is_none_or(|group| group.throttled_share() < 0.1);
    // With a small buffer everything that was written is in flight.
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    let starved = idle_there >= IDLE && held < HELD;
    if !idle && !starved || !by_choice || flow.is_stalled() {
        return Outcome::ruled_out(format!(
            "the kernel had data of it to send for {} of the time",
            percent(busy)
        ));
    }
    let share = if idle { (1.0 - busy).max(nothing_waits) } else { idle_there };
    let mut finding = Finding::new(format!(
        "the application is the limit: {} gives the kernel {} to send, and the path takes that",
        sender.name(),
        rate(flow.rate())
    ))
    .explains(share)
    .allows(Some(flow.rate()))
    .healthy()
    .seen_from(
        "time with data to send or in flight",
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
                "Look for the reason in the application: its own rate limit, its source, its locks",
            )
            .not("Larger buffers, another congestion control or a faster link change nothing"),
        )
        .holds()
}

/// Measured.
const BUSY: f64 = 0.5;
const FASTER: f64 = 1.25;
const WANTS: f64 = 0.7;
const HELD: f64 = 0.2;
const IDLE: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::{Bytes, Span};

    /// Data to send for this share of the time, in percent.
    fn sending(busy: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.busy = Some(Span::from_millis(10 * busy * at));
            tcp.bytes_acked = Some(Bytes::new(at * 1_250_000));
            tcp.unsent = Some(Bytes::ZERO);
            tcp.unacked = Some(0);
        })
    }

    #[test]
    fn a_sender_that_is_idle_on_a_faster_path() {
        assert!(sending(10).holds(RULE) > 0.8);
        let outcome = sending(10).judge(RULE);
        assert!(outcome.finding().unwrap().healthy);
    }

    #[test]
    fn data_that_waits_or_a_path_that_is_no_faster_rule_it_out() {
        Sketch::new().holds_not(RULE);
        let waits = |busy| sending(busy).tcp(|_, tcp| tcp.unsent = Some(Bytes::new(5_000)));
        waits(90).holds_not(RULE);
        let slow = waits(10).tcp(|_, tcp| tcp.delivery_rate = Some(units::Rate::from_mbit(10)));
        slow.holds_not(RULE);
    }

    #[test]
    fn room_in_the_window_and_nothing_to_send_on_a_long_path() {
        assert!(sending(100).holds(RULE) > 0.9);
        let small_buffer = sending(100).tcp(|at, tcp| {
            tcp.buffer_limited = Some(Span::from_millis(800 * at));
        });
        small_buffer.holds_not(RULE);
        // A process that waits for a core does not send by choice.
        let starved = sending(100).each(|at, sample| {
            sample.tasks[0].waited = Some(Span::from_millis(700 * at));
        });
        starved.holds_not(RULE);
    }

    #[test]
    fn an_old_kernel_does_not_show_it() {
        let old = Sketch::new().tcp(|_, tcp| tcp.busy = None);
        assert!(matches!(old.judge(RULE), Outcome::NotSeen(_)));
    }

    #[test]
    fn lost_acknowledgements_fill_the_window_of_a_slow_application() {
        assert!(sending(100).tcp(|_, tcp| tcp.unacked = Some(690)).holds(RULE) > 0.9);
    }
}
