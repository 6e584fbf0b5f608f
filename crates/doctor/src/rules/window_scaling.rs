//! The connection has no window scaling, so its window ends at 64 KiB (RFC 7323 section 2).

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::bound;
use crate::signs::far_window::{is_exact, is_scale_lost, lacks_scaling};
use crate::view::{Flow, View};
use crate::words::{bytes, percent, rate, span};
use units::Bytes;

pub(super) const RULE: Rule =
    Rule::new("no-window-scaling", "a connection without window scaling").flow(judge);
pub(super) const UNCOUNTED: Case = Case::new("no counter tells the time that the window limited");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let end = flow.end();
    match end.tcp().window_scaling {
        None => return Outcome::not_seen("the options of the connection"),
        Some(true) => return Outcome::ruled_out("both ends agreed on window scaling"),
        Some(false) => {}
    }
    let Some(rtt) = flow.rtt() else { return Outcome::not_seen("the round trip") };
    let most = bound::window(Bytes::kib(64), rtt);
    let limited = flow.sender.as_ref().and_then(|sender| sender.window_limited());
    let near = most.is_some_and(|most| {
        flow.rate().bits_per_second() as f64 >= 0.4 * most.bits_per_second() as f64
    });
    let is_lost = limited.is_some_and(|limited| limited >= LIMITED)
        && flow.sender.as_ref().is_some_and(is_scale_lost);
    let limits =
        limited.map_or(near, |limited| limited >= LIMITED && near) || is_exact(flow) || is_lost;
    let here = view.sysctl("net.ipv4.tcp_window_scaling") == Some("0");
    let finding = Finding::new(format!(
        "a connection without window scaling is the limit: at most 64 KiB each round trip of {}",
        span(rtt)
    ))
    .allows(most)
    .seen(
        "window scaling",
        match is_lost {
            true => "removed from the answer of the handshake: the far end still scales its window",
            false => "refused by one of the ends, or removed on the path",
        },
    )
    .seen_if("64 KiB / round trip", most.map(rate))
    .seen_if("time limited by the receiver's window, of the observation", limited.map(percent))
    .seen_if("window", end.median(|c| c.tcp.peer_window).map(bytes))
    .advise(match here {
        true => Advice::new("Allow window scaling here; new connections have it")
            .run("sysctl -w net.ipv4.tcp_window_scaling=1"),
        false => Advice::new("Allow window scaling at the other end, and look for a firewall that changes TCP options")
            .run("tcpdump -ni DEV 'tcp[tcpflags] & tcp-syn != 0' -v")
            .not("Larger buffers do not help: without scaling the window cannot express them"),
    });
    match limits && flow.sender.as_ref().is_none_or(lacks_scaling) {
        true => match limited {
            Some(limited) => finding.limits_for(limited),
            None => finding.limits().case(UNCOUNTED),
        },
        false => finding,
    }
    .holds()
}

const LIMITED: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Span;

    fn without(limited: u64, mbit: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.window_scaling = Some(false);
            tcp.window_limited = Some(Span::from_millis(at * limited * 10));
            tcp.bytes_acked = Some(Bytes::new(at * mbit * 125_000));
        })
    }

    #[test]
    fn a_window_of_64_kib_at_20_ms_is_the_limit() {
        assert!(without(95, 25).holds(RULE) > 0.9);
    }

    /// A filter removes the option from the answer of the handshake. The far end offers 64 kB in
    /// units of 128 bytes, and the sender reads 502 bytes.
    #[test]
    fn a_scale_that_only_the_far_end_uses_is_the_limit_and_no_slow_reader() {
        use super::super::slow_reader;
        let reads = |window: u64| {
            without(95, 1).sender(move |at, sender| {
                sender.probing = true;
                sender.tcp.bytes_acked = Some(Bytes::new(at * 3_000));
                sender.tcp.peer_window = Some(Bytes::new(window));
            })
        };
        assert!(reads(502).holds(RULE) > 0.9);
        reads(502).holds_not(slow_reader::RULE);
        let verdict = crate::diagnose(reads(502).recording(), crate::Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("no-window-scaling"));
        // The reader leaves a full buffer.
        assert_eq!(reads(0).judge(RULE).finding().unwrap().explains, None);
        assert!(reads(0).holds(slow_reader::RULE) > 0.9);
    }

    #[test]
    fn missing_window_scaling_without_a_full_window_limits_nothing() {
        assert_eq!(without(0, 25).judge(RULE).finding().unwrap().explains, None);
        assert_eq!(without(95, 1).judge(RULE).finding().unwrap().explains, None);
        Sketch::new().holds_not(RULE);
    }
}
