//! The congestion window stays far below the capacity of the path, without losses in the
//! observation: the reason is an early loss, a slow algorithm on a long path, or a start that goes
//! on.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{percent, rate, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("congestion-window", "the congestion window").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::not_seen("the far sender's window") };
    let (Some(rtt), Some(mss), Some(cwnd)) =
        (sender.rtt(), sender.tcp().mss, sender.median(|c| c.tcp.cwnd))
    else {
        return Outcome::not_seen("the congestion window");
    };
    if sender.values(|c| c.tcp.unacked).is_empty() {
        return Outcome::not_seen("the segments in flight");
    }
    // The share of the time in which, by the kernel's count, another limit held the sender back.
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    if held >= 0.5 {
        return Outcome::ruled_out(format!(
            "a buffer held the sender {} of the observation",
            percent(held.min(1.0))
        ));
    }
    let full = sender.often(|c| {
        c.tcp
            .unacked
            .zip(c.tcp.cwnd)
            .is_some_and(|(sent, window)| u64::from(sent) * 10 >= u64::from(window) * 9)
    });
    let window = Bytes::new(u64::from(cwnd).saturating_mul(mss.count()));
    let allows = bound::window(window, rtt);
    let least = sender.tcp().min_rtt.unwrap_or(rtt);
    let queue = rtt - least;
    let no_queue = queue.nanos() < least.nanos().max(4) / 4;
    let loss = sender.loss().unwrap_or(0.0);
    let long = least >= LONG;
    // Marks keep the window small, as losses do.
    let marked = sender.count(|tcp| tcp.delivered_marked).unwrap_or(0) as f64;
    let marked = marked / sender.count(|tcp| tcp.delivered).unwrap_or(0).max(1) as f64;
    if full < FULL
        || !no_queue
        || !long
        || loss > CONGESTED
        || marked > CONGESTED
        || flow.is_inside()
        || !sender.has_data()
    {
        return Outcome::ruled_out(format!(
            "the window of {cwnd} segments was full in {} of the samples",
            percent(full)
        ));
    }
    let growing = {
        let windows = sender.values(|c| c.tcp.cwnd);
        u64::from(windows.last().copied().unwrap_or(0)) * 10
            > u64::from(windows.first().copied().unwrap_or(0)) * 11
    };
    let congestion = sender.last().congestion.clone().unwrap_or_default();
    Finding::new(format!(
        "the congestion window is the limit: {cwnd} segments for a round trip of {}{}",
        span(rtt),
        if growing { ", and it still grows" } else { "" }
    ))
    .limits_for(full)
    .allows(allows)
    .seen_from("samples with a full congestion window", percent(full), percent(FULL))
    .seen_if("window / round trip", allows.map(rate))
    .seen("round trip above its minimum", span(queue))
    .seen("congestion control", congestion)
    .advise(match growing {
        true => {
            Advice::new("Wait longer, or keep connections open: this one is still in its start")
                .run("sysctl -w net.ipv4.tcp_slow_start_after_idle=0")
        }
        false => {
            Advice::new("Use an algorithm that fills long paths faster, or several connections")
                .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
                .not("Larger buffers do not help: they are not full")
        }
    })
    .holds()
}

/// Maximum share of lost or marked segments.
const CONGESTED: f64 = 1e-4;
const FULL: f64 = 0.7;
const LONG: Span = Span::from_millis(5);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    #[test]
    fn a_full_window_on_a_long_path_is_the_limit() {
        assert!(Sketch::new().holds(RULE) > 0.7);
    }

    #[test]
    fn free_window_a_queue_or_losses_rule_out_the_congestion_window() {
        Sketch::new().tcp(|_, tcp| tcp.unacked = Some(100)).holds_not(RULE);
        Sketch::new().tcp(|_, tcp| tcp.rtt = Some(Span::from_millis(90))).holds_not(RULE);
        Sketch::new().tcp(|at, tcp| tcp.retransmitted = Some(at as u32 * 90)).holds_not(RULE);
        let held = Sketch::new().tcp(|at, tcp| tcp.window_limited = Some(Span::from_secs(at)));
        held.holds_not(RULE);
    }

    #[test]
    fn ecn_marks_rule_out_the_congestion_window() {
        let marked = Sketch::new().tcp(|at, tcp| tcp.delivered_marked = Some(at as u32 * 700));
        marked.holds_not(RULE);
    }
}
