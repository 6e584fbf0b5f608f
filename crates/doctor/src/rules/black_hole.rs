//! Full packets vanish and small packets arrive: the MTU of a hop is too small, and a filter drops
//! the hop's ICMP message.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{Flow, View};
use crate::words::{bytes, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("mtu-black-hole", "a path-MTU black hole").flow(judge);
pub(super) const NOTHING: Case = Case::new("nothing of a test arrives");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return at_receiver(flow) };
    let tcp = sender.tcp();
    if !flow.is_stalled() || flow.is_opening() {
        return Outcome::ruled_out("data arrives");
    }
    let (Some(mss), Some(backoff)) = (tcp.mss, tcp.backoff) else {
        return Outcome::not_seen("the timeouts of the connection");
    };
    let repeats = backoff.max(u8::try_from(sender.last().retransmits).unwrap_or(u8::MAX));
    // The window is open, so the receiver did not stop the sender.
    let open = tcp.peer_window.is_none_or(|window| window >= mss) && !sender.last().probing;
    let full = sender.last().send_queue >= mss;
    let answered = tcp.bytes_acked.unwrap_or_default() > Bytes::ZERO
        || tcp.bytes_received.unwrap_or_default() > Bytes::ZERO;
    // Full segments passed before, but no segment passes now.
    if sender.has_passed_full() {
        return Outcome::ruled_out("full segments passed before the connection stalled");
    }
    // A handshake that was repeated makes the timer so long that few retransmissions follow.
    let silent = tcp.last_acknowledged.unwrap_or_default();
    let is_repeated = repeats >= REPEATS || repeats > 0 && silent >= SILENT;
    if !is_repeated || !open || !full || !answered || mss < Bytes::new(600) {
        return Outcome::ruled_out(format!("the oldest segment was sent again {repeats} times"));
    }
    let probing = view.sysctl("net.ipv4.tcp_mtu_probing").unwrap_or("0").to_owned();
    let finding = Finding::new(format!(
        "a path-MTU black hole is the limit: small segments arrived, and full ones of {} are sent again and again",
        bytes(mss)
    ))
    .limits();
    let again = "retransmissions of the oldest segment";
    let finding = match repeats >= REPEATS {
        true => finding.seen_from(again, repeats.to_string(), REPEATS.to_string()),
        false => finding.seen(again, repeats.to_string()).seen_from(
            "time without an acknowledgement",
            span(silent),
            span(SILENT),
        ),
    };
    finding
    .seen("waiting in the send queue", bytes(sender.last().send_queue))
    .seen_if("path MTU that the kernel assumes", tcp.path_mtu.map(bytes))
    .seen("tcp_mtu_probing", probing)
    .against_if(tcp.cwnd.is_some_and(|cwnd| cwnd > 4), "the congestion window did not collapse yet")
    .advise(
        Advice::new("Let the kernel find the size, or clamp it; then allow ICMP \"fragmentation needed\" on the path")
            .run("sysctl -w net.ipv4.tcp_mtu_probing=1")
            .run("nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu")
            .not("A smaller MTU on one interface helps only the connections through it"),
    )
    .holds()
}

/// Judges the receiver of a test, whose far end sends all the time and whose server has answered.
fn at_receiver(flow: &Flow<'_>) -> Outcome {
    let Some(receiver) = flow.receiver.as_ref().filter(|_| flow.tested) else {
        return Outcome::Irrelevant;
    };
    let Some(received) = receiver.tcp().bytes_received else {
        return Outcome::not_seen("the bytes that the test received");
    };
    if received > FEW_BYTES || receiver.elapsed() < NOTHING_FOR {
        return Outcome::ruled_out("data arrives");
    }
    Finding::new(format!(
        "a path-MTU black hole is the limit: the handshake with {} passed, and none of its data arrives",
        flow.addresses().0
    ))
    .limits().case(NOTHING)
    .seen("received", bytes(received))
    .seen_from("time of the test", span(receiver.elapsed()), span(NOTHING_FOR))
    .against("a filter that drops the data of this direction looks like this too")
    .advise(
        Advice::new("Let the far end find the size, or clamp it; then allow ICMP \"fragmentation needed\" on the path")
            .run(format!("ping -M do -s 1472 {}", flow.addresses().0.ip()))
            .run("sysctl -w net.ipv4.tcp_mtu_probing=1   (on the far end)")
            .run("nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu")
            .not("Buffers and congestion control change nothing while no segment arrives"),
    )
    .holds()
}

const REPEATS: u8 = 2;
/// Time without an acknowledgement after which a single retransmission counts.
const SILENT: Span = Span::from_secs(3);
/// Maximum number of bytes from a far end whose full segments vanish: less than a full segment.
const FEW_BYTES: Bytes = Bytes::new(500);
const NOTHING_FOR: Span = Span::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;

    fn stalled(backoff: u8, window: u64) -> Sketch {
        Sketch::new().tcp(move |_, tcp| {
            tcp.bytes_acked = Some(Bytes::new(400));
            tcp.backoff = Some(backoff);
            tcp.cwnd = Some(1);
            tcp.peer_window = Some(Bytes::new(window));
        })
    }

    #[test]
    fn a_sender_whose_full_segments_vanish_has_an_mtu_black_hole() {
        assert!(stalled(3, 65_000).holds(RULE) > 0.9);
    }

    /// The first SYN was lost, so that the timer begins at three seconds.
    #[test]
    fn one_retransmission_in_a_long_silence_is_an_mtu_black_hole() {
        let silent = |seconds: u64| {
            stalled(1, 65_000).tcp(move |_, tcp| {
                tcp.last_acknowledged = Some(Span::from_secs(seconds));
            })
        };
        assert!(silent(7).holds(RULE) > 0.9);
        let outcome = silent(7).judge(RULE);
        let evidence = &outcome.finding().unwrap().evidence;
        // The segment was sent again once, so that the evidence names no threshold of two
        // retransmissions.
        assert_eq!((evidence[0].value.as_str(), &evidence[0].threshold), ("1", &None));
        assert_eq!(evidence[1].threshold, Some(span(SILENT)));
        silent(1).holds_not(RULE);
    }

    #[test]
    fn a_test_that_receives_nothing_has_an_mtu_black_hole() {
        let test = |received: u64, tested: bool| {
            let sketch = Sketch::new().receiving(move |_, receiver| {
                receiver.tcp.bytes_received = Some(Bytes::new(received));
            });
            let (local, remote) = ("10.0.0.1:5201", "10.0.0.2:5000");
            let ends = (local.parse().unwrap(), remote.parse().unwrap());
            let connections = if tested { vec![ends] } else { Vec::new() };
            let attempt = crate::recording::Attempt { connections, ..Default::default() };
            sketch.attempt(attempt)
        };
        assert!(test(0, true).holds(RULE) > 0.85);
        test(9_000_000, true).holds_not(RULE);
        test(0, false).holds_not(RULE);
    }

    #[test]
    fn a_closed_window_or_progress_rules_out_an_mtu_black_hole() {
        stalled(3, 0).holds_not(RULE);
        stalled(1, 65_000).holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn full_segments_that_passed_before_rule_out_an_mtu_black_hole() {
        let moved = |segments: u32| {
            stalled(3, 65_000).tcp(move |_, tcp| {
                tcp.bytes_acked = Some(Bytes::new(9_000_000));
                tcp.data_segments_out = Some(segments);
            })
        };
        moved(6_500).holds_not(RULE);
        assert!(moved(6_500).holds(super::super::no_answer::RULE) > 0.9);
        // Many small messages arrive.
        assert!(moved(90_000).holds(RULE) > 0.9);
        moved(90_000).holds_not(super::super::no_answer::RULE);
    }
}
