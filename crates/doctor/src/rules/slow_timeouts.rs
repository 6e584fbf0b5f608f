//! The kernel waits much longer for an acknowledgement than the round trips require: a route
//! (`rto_min`) or a setting gives a large minimum of the retransmission timeout (RFC 6298). Each
//! loss that only the timer repairs costs this time.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::timeouts::{LONG, backs_off, least_timeout};
use crate::view::{End, Flow, View};
use crate::words::{percent, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule =
    Rule::new("slow-timeouts", "a long minimum of the retransmission timeout").flow(judge);

fn judge(flow: &Flow<'_>, _view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(least) = least_timeout(sender) else { return Outcome::Irrelevant };
    let waits = waits(sender);
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    let moves = sender.bytes(|tcp| tcp.bytes_acked).unwrap_or_default() > Bytes::ZERO;
    let repairs = again > 0 && moves && !flow.is_stalled();
    if waits < WAITS || !repairs && !backs_off(flow) {
        return Outcome::ruled_out(format!(
            "the retransmission timeout is at least {}, and the sender waited for it in {} of the samples",
            span(least),
            percent(waits)
        ));
    }
    Finding::new(format!(
        "a long retransmission timeout is the limit: this machine waits {} and more for each loss that its timer repairs, at a round trip of {}",
        span(least),
        span(sender.rtt().unwrap_or_default())
    ))
    .limits()
    .seen_from("timeout, above the round trip", span(least), span(LONG))
    .seen_from(
        "samples in which nothing was sent for longer than a usual timeout",
        percent(waits),
        percent(WAITS),
    )
    .seen("retransmitted segments", again.to_string())
    .seen_if("segments lost since the connection began, of all", sender.loss_so_far().map(percent))
    .advise(
        Advice::new("Remove the minimum from the route, or the setting; new connections have the usual 200 ms")
            .run(format!("ip route get {}   (rto_min)", flow.addresses().1.ip()))
            .run("sysctl net.ipv4.tcp_rto_min_us")
            .not("It does not bring the lost packets back: look for their reason too"),
    )
    .holds()
}

/// Returns the share of the samples in which the sender waits for the timer.
fn waits(sender: &End<'_>) -> f64 {
    sender.often(|c| {
        let is_silent = c.tcp.last_sent.is_some_and(|time| time >= USUAL);
        is_silent && c.tcp.unacked.is_some_and(|flying| flying > 0)
    })
}

/// Shortest silence that counts as a long timeout: the kernel's own minimum is 200 ms.
const USUAL: Span = Span::from_millis(300);
/// Minimum share of the samples in which the sender waits for the timer.
const WAITS: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::{Question, diagnose};

    /// Sets the timeout of each sample, and the time since the sender's last segment.
    fn waiting(rto: [u64; 4], silent: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.backoff = Some(0);
            tcp.rto = Some(Span::from_millis(rto[at as usize]));
            tcp.rttvar = Some(Span::from_millis(2));
            tcp.last_sent = Some(Span::from_millis(silent));
            tcp.unacked = Some(3);
            tcp.retransmitted = Some(at as u32 * 5);
            tcp.bytes_acked = Some(Bytes::new(at * 100_000));
            tcp.data_segments_out = Some(at as u32 * 75);
        })
    }

    #[test]
    fn a_long_minimum_timeout_is_the_limit() {
        let named = waiting([1_020, 1_024, 1_020, 1_028], 700);
        assert!(named.holds(RULE) > 0.95);
        let verdict = diagnose(named.recording(), Question::Flow).verdict;
        assert_eq!(verdict.cause, Some("slow-timeouts"), "{verdict:?}");
        waiting([1_020; 4], 10).holds_not(RULE);
    }

    #[test]
    fn a_usual_timeout_or_a_timeout_that_follows_the_rtt_rules_out_slow_timeouts() {
        waiting([220; 4], 700).holds_not(RULE);
        waiting([1_020, 900, 700, 650], 700).holds_not(RULE);
        let varies = waiting([1_020; 4], 700).tcp(|_, tcp| {
            tcp.rttvar = Some(Span::from_millis(250));
        });
        varies.holds_not(RULE);
        let backed_off = waiting([880; 4], 700).tcp(|_, tcp| tcp.backoff = Some(2));
        backed_off.holds_not(RULE);
    }

    #[test]
    fn a_timer_that_backs_off_for_longer_than_the_observation_is_the_limit() {
        let stalls = |lost: u32| {
            waiting([2_040; 4], 700).tcp(move |_, tcp| {
                tcp.backoff = Some(1);
                tcp.retransmitted = Some(lost);
                tcp.bytes_acked = Some(Bytes::new(100_000));
                tcp.data_segments_out = Some(90);
            })
        };
        assert!(stalls(12).holds(RULE) > 0.95);
        let verdict = diagnose(stalls(12).recording(), Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("slow-timeouts"), "{verdict:?}");
        // The path lost no segment before it died.
        stalls(1).holds_not(RULE);
    }

    #[test]
    fn one_late_acknowledgement_does_not_hide_a_long_minimum_timeout() {
        let late = waiting([1_020, 1_020, 1_900, 1_020], 700).tcp(|at, tcp| {
            tcp.rttvar = Some(Span::from_millis(if at == 2 { 400 } else { 2 }));
        });
        assert!(late.holds(RULE) > 0.95);
    }

    #[test]
    fn a_long_minimum_timeout_is_found_after_backoffs() {
        let doubled = waiting([1_020, 2_040, 4_080, 4_080], 700).tcp(|at, tcp| {
            tcp.backoff = Some([0, 1, 2, 2][at as usize]);
        });
        assert!(doubled.holds(RULE) > 0.95);
        let persists = waiting([1_020; 4], 700).tcp(|_, tcp| {
            tcp.backoff = Some(2);
            tcp.unacked = Some(0);
        });
        persists.holds_not(RULE);
    }
}
