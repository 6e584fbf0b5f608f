//! The sender's buffer is smaller than the path needs: a small `tcp_wmem`, or SO_SNDBUF.

use super::{Advice, Finding, Outcome, Rule};
use crate::signs::send_buffer::{allowed, is_in_flight, is_the_buffer};
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent, rate, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("send-buffer", "the send buffer").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else {
        return match flow.far.and_then(|far| Some((far.buffer_limited?, far.busy?))) {
            Some((limited, busy)) if limited.nanos() > busy.nanos() / 5 => {
                Finding::new("the far end's send buffer is the limit")
                    .limits_for(limited.secs_f64() / busy.secs_f64())
                    .seen(
                        "time limited by the send buffer, of the busy time",
                        format!("{}, {}", span(limited), span(busy)),
                    )
                    .holds()
            }
            Some((limited, _)) => {
                Outcome::ruled_out(format!("the far sender's buffer held it for {}", span(limited)))
            }
            None => Outcome::not_seen("the far sender's buffer"),
        };
    };
    let Some(limited) = sender.buffer_limited() else {
        return Outcome::not_seen("the time limited by the send buffer (Linux 4.9 and later)");
    };
    let limit = sender.median(|c| c.send_limit);
    let in_flight = is_in_flight(flow, view);
    if limited < LIMITED && !in_flight {
        return Outcome::ruled_out(format!(
            "the send buffer{} held the sender for {} of the observation",
            limit.map_or_else(String::new, |limit| format!(" of {}", bytes(limit))),
            percent(limited)
        ));
    }
    let rtt = sender.rtt().unwrap_or_default();
    // On a round trip within a machine or a rack, a reader that leaves its queue full also fills
    // the send buffer.
    let waits =
        flow.receiver.as_ref().map(|r| r.median(|c| Some(c.receive_queue)).unwrap_or_default());
    if rtt < SHORT && waits.is_some_and(|waits| waits >= Bytes::new(1_000_000)) {
        return Outcome::Irrelevant;
    }
    let allows = allowed(sender);
    // A buffer that limits is sent once in each round trip.
    if let Some(allows) = allows.filter(|_| !in_flight && !is_the_buffer(flow, allows)) {
        return Outcome::ruled_out(format!(
            "the buffer allows {}, and {} pass",
            rate(allows),
            rate(flow.rate())
        ));
    }
    let most = view.sysctl_number("net.ipv4.tcp_wmem", 2);
    let twice = most.unwrap_or(4 << 20).saturating_mul(2);
    let value = twice.clamp(8 << 20, MOST_BUFFER).next_power_of_two();
    let mut finding = Finding::new(format!(
        "the send buffer is the limit: {} for a round trip of {}",
        limit.map_or_else(|| "too little".to_owned(), bytes),
        span(rtt)
    ))
    .limits_for(if in_flight { limited.max(WHOLE) } else { limited })
    .allows(allows);
    finding = match limited < LIMITED {
        true => {
            let queued = sender.median(|c| Some(c.send_queue)).unwrap_or_default();
            finding.seen("data in flight, while both windows have room for more", bytes(queued))
        }
        false => finding.seen_from(
            "time limited by the send buffer, of the observation",
            percent(limited),
            percent(LIMITED),
        ),
    };
    finding = finding
    .seen_if("half of the buffer / round trip", allows.map(rate))
    .seen_if("tcp_wmem at most", most.map(|most| bytes(Bytes::new(most))))
    .advise(set_by_program(sender, most).unwrap_or_else(|| {
        Advice::new("Let the kernel use larger send buffers, and remove SO_SNDBUF from the sending program")
            .run(format!("sysctl -w net.ipv4.tcp_wmem='4096 65536 {value}'"))
            .not("A program that sets SO_SNDBUF keeps its size (iperf3 -w is such a setting), whatever tcp_wmem is")
    }));
    if rtt < SHORT {
        finding = finding.against(format!(
            "the round trip is only {}: a slow reader looks like this too",
            span(rtt)
        ));
    }
    finding.holds()
}

/// Advises to remove SO_SNDBUF if the buffer keeps a size of at most half of `most`. While a buffer
/// limits the sender, the kernel enlarges the buffer up to `most`, unless the program set the size
/// (tcp_should_expand_sndbuf).
fn set_by_program(sender: &End<'_>, most: Option<u64>) -> Option<Advice> {
    let sizes = sender.values(|c| c.send_limit);
    let (least, size) = sizes.iter().min().zip(sizes.iter().max())?;
    let most = most.filter(|most| least == size && size.count() <= most / 2)?;
    Some(
        Advice::new(format!(
            "Remove SO_SNDBUF from the sending program: its buffer stays at {}, and tcp_wmem allows {}",
            bytes(*size),
            bytes(Bytes::new(most))
        ))
        .run("strace -f -e trace=setsockopt -p PID   (at its next connection)")
        .not("A larger tcp_wmem changes nothing while the program sets the size"),
    )
}

/// The highest value that the advice gives for the setting.
const MOST_BUFFER: u64 = 1 << 30;
/// Minimum share of the time in which the buffer holds the sender (measured).
const LIMITED: f64 = 0.2;
/// The share that a buffer explains if all of the buffer is in flight.
const WHOLE: f64 = 0.9;
const SHORT: Span = Span::from_millis(1);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Rate;

    fn limited(percent: u64, rtt: u64) -> Sketch {
        Sketch::new().sender(move |at, sender| {
            sender.tcp.buffer_limited = Some(Span::from_millis(10 * percent * at));
            sender.tcp.rtt = Some(Span::from_micros(rtt));
            sender.send_limit = Some(Bytes::new(32_768));
        })
    }

    #[test]
    fn a_small_send_buffer_on_a_long_path_is_the_limit() {
        assert!(limited(90, 20_000).holds(RULE) > 0.8);
    }

    #[test]
    fn the_advice_blames_the_program_for_a_fixed_buffer_that_tcp_wmem_does_not_limit() {
        let advised = |most: u64, grows: u64| {
            let sketch = limited(90, 20_000).sender(move |at, sender| {
                sender.send_limit = Some(Bytes::new(32_768 + at * grows));
            });
            let sketch = sketch.machine(|machine| {
                let setting = format!("4096 16384 {most}");
                machine.sysctls.insert("net.ipv4.tcp_wmem".to_owned(), setting);
            });
            sketch.judge(RULE).finding().unwrap().advice[0].action.clone()
        };
        let fixed = advised(4_194_304, 0);
        assert!(fixed.starts_with("Remove SO_SNDBUF from the sending program"), "{fixed}");
        for (most, grows) in [(32_768, 0), (4_194_304, 64)] {
            assert!(advised(most, grows).contains("larger send buffers"), "{most} {grows}");
        }
    }

    #[test]
    fn the_advised_send_buffer_exceeds_the_present_setting() {
        let advised = |most: u64| {
            let sketch = limited(90, 20_000).sender(move |at, sender| {
                sender.send_limit = Some(Bytes::new(most));
                sender.tcp.bytes_acked = Some(Bytes::new(at * most * 15));
            });
            let sketch = sketch.machine(|machine| {
                let setting = format!("4096 16384 {most}");
                machine.sysctls.insert("net.ipv4.tcp_wmem".to_owned(), setting);
            });
            sketch.judge(RULE).finding().unwrap().advice[0].commands[0].clone()
        };
        assert_eq!(advised(4_194_304), "sysctl -w net.ipv4.tcp_wmem='4096 65536 8388608'");
        assert_eq!(advised(16_777_216), "sysctl -w net.ipv4.tcp_wmem='4096 65536 33554432'");
    }

    #[test]
    fn a_brief_limit_or_a_full_receive_queue_rules_out_the_send_buffer() {
        limited(15, 20_000).holds_not(RULE);
        let reader = limited(90, 200).with_receiver(|_, c| c.receive_queue = Bytes::new(4_000_000));
        reader.holds_not(RULE);
        let unknown = limited(90, 200).judge(RULE);
        assert!(!unknown.finding().unwrap().against.is_empty());
    }

    /// Reno, `tcp_wmem` of 64 KiB and writes of 64 KiB: the kernel counts no limited time.
    #[test]
    fn a_buffer_that_is_in_flight_as_a_whole_is_the_limit_and_no_slow_application() {
        let writes = |window: u64, limit: u64| {
            Sketch::new().sender(move |at, sender| {
                sender.send_limit = Some(Bytes::new(limit));
                sender.send_queue = Bytes::new(65_536);
                let tcp = &mut sender.tcp;
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(32)), Some(Span::from_millis(30)));
                (tcp.unsent, tcp.unacked, tcp.cwnd) = (Some(Bytes::ZERO), Some(46), Some(2228));
                tcp.peer_window = Some(Bytes::new(window));
                tcp.application_limited = Some(true);
                tcp.bytes_acked = Some(Bytes::new(at * 2_028_000));
            })
        };
        assert!(writes(6_000_000, 65_536).holds(RULE) > 0.85);
        writes(6_000_000, 65_536).holds_not(super::super::application::RULE);
        // The kernel allows more, or the receiver does not.
        writes(6_000_000, 4_000_000).holds_not(RULE);
        writes(65_536, 65_536).holds_not(RULE);
    }

    /// 16 kB each 60 µs would be 2.2 Gbit/s, and 90 Mbit/s pass: the application writes late.
    #[test]
    fn a_tiny_send_buffer_on_a_direct_link_is_the_limit() {
        let tiny = |window: u64, grows: u64| {
            limited(90, 200).sender(move |at, sender| {
                sender.tcp.min_rtt = Some(Span::from_micros(60));
                sender.tcp.bytes_acked = Some(Bytes::new(at * 11_250_000));
                sender.tcp.peer_window = Some(Bytes::new(window));
                sender.send_limit = Some(Bytes::new(32_768 + at * grows));
            })
        };
        assert!(tiny(3_000_000, 0).holds(RULE) > 0.8);
        tiny(3_000_000, 0).holds_not(super::super::slow_reader::RULE);
        // The peer's window is as small as the buffer, or the kernel enlarges the buffer.
        tiny(40_000, 0).holds_not(RULE);
        tiny(3_000_000, 9_000).holds_not(RULE);
        let stops = tiny(3_000_000, 0).tcp(|_, tcp| tcp.rttvar = Some(Span::from_millis(40)));
        stops.holds_not(RULE);
        let usual = tiny(3_000_000, 0).sender(|_, sender| {
            sender.send_limit = Some(Bytes::new(500_000));
        });
        usual.holds_not(RULE);
        assert!(tiny(40_000, 0).holds(super::super::slow_reader::RULE) > 0.8);
    }

    /// A long queue or a receiver that answers late fills the buffer: a round trip of the path
    /// itself would let 10 times as much data pass.
    #[test]
    fn a_buffer_that_a_queue_or_a_late_receiver_fills_is_no_limit() {
        let queue = |varies: u64| {
            limited(90, 200_000).sender(move |at, sender| {
                sender.send_limit = Some(Bytes::new(4_000_000));
                sender.tcp.bytes_acked = Some(Bytes::new(at * 9_000_000));
                sender.tcp.rttvar = Some(Span::from_millis(varies));
                sender.tcp.delivery_rate = Some(Rate::from_mbit(72));
            })
        };
        queue(5).holds_not(RULE);
        queue(150).holds_not(RULE);
        assert!(queue(5).holds(super::super::bufferbloat::RULE) > 0.8);
        queue(5).holds_not(super::super::slow_reader::RULE);
        assert!(queue(150).holds(super::super::slow_reader::RULE) > 0.8);
    }
}
