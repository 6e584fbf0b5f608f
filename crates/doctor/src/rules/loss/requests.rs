//! A program sends one message after each answer. Little or no data follows a lost segment and
//! reveals the loss, so that the kernel waits for a timer: a part of the cause `loss`.

use super::{Advice, Finding};
use crate::view::{End, Flow};
use crate::words::{percent, rate, span};
use units::{Rate, Span};

/// The exchanges of a message and its answer. Times are shares of the observation.
pub(super) struct Exchanges {
    count: u64,
    /// The time of one round trip for each exchange.
    trips: f64,
    /// The further time with data in flight.
    pub(super) waits: f64,
    rtt: Span,
}

impl Exchanges {
    /// Finds exchanges that take longer than their round trips, if the retransmissions explain the
    /// further time.
    pub(super) fn of(flow: &Flow<'_>, sender: &End<'_>, loss: f64) -> Option<Self> {
        let out = sender.count(|tcp| tcp.data_segments_out)?;
        let again = sender.count(|tcp| tcp.retransmitted)?;
        let timeouts = sender.count(|tcp| tcp.timeouts.map(u32::from)).unwrap_or(0);
        let (rtt, rto) = (sender.rtt()?, sender.median(|c| c.tcp.rto)?);
        let elapsed = sender.elapsed().secs_f64().max(1e-9);
        // Each exchange has one segment in the direction of the small messages.
        let new = out.saturating_sub(again);
        let count = new.min(sender.count(|tcp| tcp.data_segments_in)?);
        let trips = count as f64 * rtt.secs_f64() / elapsed;
        let waits = (sender.busy()? - trips).max(0.0);
        // A timer repairs a lone segment. A later segment of the same message makes the kernel
        // probe after two round trips (RFC 8985 section 7).
        let is_lone = new * 2 <= count * 3;
        let each = if is_lone { rto + rtt } else { rtt * PROBED };
        let most = (again as f64 * each.secs_f64() + timeouts as f64 * rto.secs_f64()) / elapsed;
        let takes_turns = count >= FEWEST
            && trips <= ONE_AT_A_TIME
            && sender.data_waits().is_some_and(|share| share < MOSTLY)
            && !flow.is_stalled();
        let is_lost = loss >= LOSSY && waits >= WAITS && waits <= most * TOLERANCE;
        (takes_turns && is_lost).then_some(Self { count, trips, waits, rtt })
    }

    pub(super) fn finding(&self, flow: &Flow<'_>, loss: f64) -> Finding {
        let bits = flow.rate().bits_per_second() as f64;
        let of = |share: f64| Rate::from_bits_per_second((bits / share.max(1e-9)) as u64);
        Finding::new(format!(
            "lost packets are the limit: {} of the segments were lost, and messages that wait for an answer wait for retransmissions {} of the time",
            percent(loss),
            percent(self.waits)
        ))
        .limits_for(self.waits)
        .allows(Some(of((self.trips + self.waits).min(1.0))))
        .seen_from(
            "time with data in flight beyond one round trip each, of the observation",
            percent(self.waits),
            percent(WAITS),
        )
        .seen("messages with an answer", self.count.to_string())
        .seen("round trip", span(self.rtt))
        .seen("rate now", rate(flow.rate()))
        .seen("rate of one message in each round trip", rate(of(self.trips)))
    }
}

pub(super) fn advice() -> Advice {
    Advice::new("Let the program keep several requests open: data behind a lost segment reveals the loss sooner than a timer")
        .run("sysctl -w net.ipv4.tcp_thin_linear_timeouts=1")
        .not("Another congestion control changes nothing while the program waits for each answer")
}

/// Minimum number of exchanges.
const FEWEST: u64 = 5;
/// Maximum number of exchanges in a round trip; more mean several requests at a time.
const ONE_AT_A_TIME: f64 = 1.3;
/// Maximum share of the samples in which data waits for the window.
const MOSTLY: f64 = 0.75;
/// Minimum share of lost segments.
const LOSSY: f64 = 3e-3;
/// Minimum share of the time in which messages wait for retransmissions.
const WAITS: f64 = 0.2;
/// Round trips until a probe repairs the loss of a message's last segment.
const PROBED: u64 = 3;
const TOLERANCE: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::super::super::sketch::Sketch;
    use super::super::RULE;
    use crate::{Question, diagnose};
    use units::{Bytes, Span};

    /// Builds exchanges at a round trip of 30 ms: each message has `segments` segments. `again`:
    /// the retransmissions of a second; `busy`: the milliseconds of a second with data in flight.
    fn exchanges(count: u32, segments: u32, again: u32, busy: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            let second = at as u32;
            (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(30)), Some(Span::from_millis(30)));
            tcp.rto = Some(Span::from_millis(232));
            tcp.data_segments_out = Some(second * (count * segments + again));
            tcp.data_segments_in = Some(second * count);
            tcp.retransmitted = Some(second * again);
            let bytes = segments * 1_430;
            tcp.bytes_acked = Some(Bytes::new(u64::from(second * count * bytes)));
            tcp.bytes_received = Some(Bytes::new(u64::from(second * count * 100)));
            tcp.busy = Some(Span::from_millis(busy * at));
            (tcp.unsent, tcp.unacked, tcp.cwnd) = (Some(Bytes::ZERO), Some(3), Some(32));
        })
    }

    /// Messages of 20 kB: 11 a second, of 33 that the round trip allows.
    #[test]
    fn messages_that_wait_for_retransmissions_are_limited_by_the_loss() {
        for congestion in ["cubic", "reno", "bbr", "tcpa"] {
            let waits = exchanges(11, 14, 7, 930).sender(|_, sender| {
                sender.congestion = Some(congestion.to_owned());
            });
            let outcome = waits.judge(RULE);
            let finding = outcome.finding().unwrap();
            assert!(finding.explains.is_some_and(|share| share > 0.8), "{finding:?}");
            let allows = finding.allows.unwrap().mbit_per_second();
            assert!((1.85..1.95).contains(&allows), "{allows}");
            let verdict = diagnose(waits.recording(), Question::Flow).verdict;
            assert_eq!(verdict.cause, Some("loss"), "{congestion}: {verdict:?}");
        }
    }

    /// A timer repairs each lost segment.
    #[test]
    fn lone_segments_have_the_cause_that_costs_more_time() {
        let causes = |count, again, busy| {
            let asked = exchanges(count, 1, again, busy);
            diagnose(asked.recording(), Question::Flow).verdict.causes
        };
        assert_eq!(causes(10, 3, 980)[0], "loss");
        assert_eq!(causes(15, 1, 750)[..2], ["request-response", "loss"]);
    }

    #[test]
    fn retransmissions_that_do_not_explain_the_time_limit_no_messages() {
        let explains =
            |sketch: Sketch| sketch.judge(RULE).finding().and_then(|finding| finding.explains);
        // A stream at the program's own pace, whose reader answers now and then.
        assert_eq!(explains(exchanges(5, 34, 4, 1_000)), None);
        // Slow answers, and no losses.
        assert_eq!(explains(exchanges(11, 14, 0, 930)), None);
        // Several messages at a time.
        assert_eq!(explains(exchanges(60, 1, 7, 1_000)), None);
    }
}
