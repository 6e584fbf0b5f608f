//! The receiver's window is smaller than the path needs: a small `tcp_rmem`, or SO_RCVBUF.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::bound;
use crate::signs::far_window::{far_held, is_exact, is_reader_slow, lacks_scaling, shortest};
use crate::signs::short_memory::is_far_window_small;
use crate::view::{End, Flow, View};
use crate::words::{bytes, percent, rate, span};
use units::{Bytes, Span};

pub(super) const RULE: Rule = Rule::new("receiver-window", "the receiver's window").flow(judge);
pub(super) const EXACT: Case = Case::new("the window gives the observed rate");
pub(super) const ARRIVES: Case =
    Case::new("the data of a round trip fills the window of this machine");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return at_receiver(flow, view) };
    let Some(limited) = sender.window_limited() else {
        return Outcome::not_seen(
            "the time limited by the receiver's window (Linux 4.9 and later)",
        );
    };
    let exact = is_exact(flow);
    if limited < LIMITED && !exact {
        return Outcome::ruled_out(format!(
            "the receiver's window held the sender for {} of the observation",
            percent(limited)
        ));
    }
    if is_reader_slow(flow) || lacks_scaling(sender) {
        return Outcome::Irrelevant;
    }
    let window = sender.median(|c| c.tcp.peer_window);
    let rtt = sender.rtt();
    let allows = window.zip(rtt).and_then(|(window, rtt)| bound::window(window, rtt));
    let mut finding = Finding::new(format!(
        "the receiver's window is the limit: it offers {} for a round trip of {}",
        window.map_or_else(|| "too little".to_owned(), bytes),
        rtt.map_or_else(|| "unknown length".to_owned(), span),
    ))
    .limits_for(limited)
    .case_if(exact, EXACT)
    .allows(allows);
    // A sender that paces itself is limited by the window although the kernel counts little time.
    finding = match allows.filter(|_| limited < LIMITED) {
        Some(allows) => finding.seen(
            "observed rate, of what the window allows",
            percent(flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64),
        ),
        None => finding.seen_from(
            "time limited by the receiver's window, of the observation",
            percent(limited),
            percent(LIMITED),
        ),
    };
    finding = finding
        .seen_if("window / round trip", allows.map(rate))
        .seen_if("window", window.map(bytes));
    if let Some(receiver) = &flow.receiver {
        finding = finding.seen_if("receive buffer", receiver.last().receive_limit.map(bytes)).seen(
            "samples with an empty receive queue",
            percent(receiver.often(|c| c.receive_queue == Bytes::ZERO)),
        );
    }
    let there = if flow.receiver.is_some() { "" } else { "   (on the receiver)" };
    let needed = sender
        .tcp()
        .delivery_rate
        .zip(rtt)
        .map(|(rate, rtt)| rate.bytes_in(rtt).count().saturating_mul(2));
    let value = needed.unwrap_or(0).clamp(6 << 20, MOST_BUFFER).next_power_of_two();
    let most = flow.receiver.as_ref().and_then(|_| most_of(view));
    if flow.receiver.is_none() && is_far_window_small(sender) {
        finding = finding.advise(
            Advice::new("Look first whether the receiver lacks memory for TCP: its kernel then offers four segments")
                .run("weir doctor   (on the receiver)")
                .run("cat /proc/net/sockstat; sysctl net.ipv4.tcp_mem   (on the receiver)"),
        );
    }
    if flow.receiver.is_some() && is_fixed(view) {
        finding = finding.advise(let_grow());
    }
    let set = flow.receiver.as_ref().and_then(|receiver| set_by_program(receiver, view));
    finding = finding.advise(set.unwrap_or_else(|| {
        larger("the receiver's", value, most, there)
            .not("A program that sets SO_RCVBUF keeps its size (iperf3 -w is such a setting), whatever tcp_rmem is")
    }));
    finding.holds()
}

/// Judges the receiver alone, which knows its window and the data that arrives per round trip. A
/// window that the kernel may enlarge is at least twice as large as this data.
fn at_receiver(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
    if let Some(held) = far_held(flow) {
        return told_by_sender(flow, receiver, held, view);
    }
    let (Some(window), Some(rtt)) = (receiver.median(|c| c.tcp.own_window), shortest(receiver))
    else {
        return Outcome::not_seen("the far sender's window");
    };
    let Some(allows) = bound::window(window, rtt).filter(|_| rtt >= SHORTEST) else {
        return Outcome::not_seen("the round trips of a path that is so short");
    };
    let share = flow.rate().bits_per_second() as f64 / allows.bits_per_second().max(1) as f64;
    let limit = |c: &crate::recording::Connection| c.receive_limit.unwrap_or_default().count();
    let grows = limit(receiver.last()) / 21 > limit(receiver.first()) / 20;
    if share < FULL || grows || is_reader_slow(flow) {
        return Outcome::ruled_out(format!(
            "{} of the own window of {} arrive in a round trip",
            percent(share.min(1.0)),
            bytes(window)
        ));
    }
    here(window, rtt, receiver, view)
        .limits_for(share)
        .case(ARRIVES)
        .allows(Some(allows))
        .seen_from(
            "data that arrives in a round trip, of the window",
            percent(share),
            percent(FULL),
        )
        .seen("window / round trip", rate(allows))
        .holds()
}

/// Judges by the report of a far sender: for how long this end's window held it back. A reader that
/// lacks CPU time or reads slowly also closes the window.
fn told_by_sender(flow: &Flow<'_>, receiver: &End<'_>, held: f64, view: &View<'_>) -> Outcome {
    if held < LIMITED || receiver.wants_cpu(view) >= FULL_CPU {
        return Outcome::ruled_out(format!(
            "the window of this machine held the far sender for {} of the time in which the sender had data to send",
            percent(held)
        ));
    }
    if is_reader_slow(flow) {
        return Outcome::Irrelevant;
    }
    let Some(window) = receiver.median(|c| c.tcp.own_window) else {
        return Outcome::not_seen("the window that this machine offers");
    };
    let rtt = flow.far.and_then(|far| far.mean_rtt).or_else(|| flow.rtt()).unwrap_or_default();
    here(window, rtt, receiver, view)
        .limits_for(held)
        .allows(bound::window(window, rtt))
        .seen_from(
            "time that the window held the far sender, of the sender's busy time",
            percent(held),
            percent(LIMITED),
        )
        .holds()
}

/// Builds the finding about the window of this machine.
fn here(window: Bytes, rtt: Span, receiver: &End<'_>, view: &View<'_>) -> Finding {
    let most = most_of(view);
    let finding = Finding::new(format!(
        "the window of this receiver is the limit: it offers {} for a round trip of {}",
        bytes(window),
        span(rtt)
    ))
    .seen_if("receive buffer", receiver.last().receive_limit.map(bytes))
    .seen_if("tcp_rmem at most", most.map(bytes));
    let finding = if is_fixed(view) { finding.advise(let_grow()) } else { finding };
    finding.advise(set_by_program(receiver, view).unwrap_or_else(|| {
        larger("this machine's", 8 << 20, most, "")
            .not("A program that sets SO_RCVBUF keeps its size, whatever tcp_rmem is")
    }))
}

/// Advises to remove SO_RCVBUF if the buffer keeps a size of at most half of what `tcp_rmem`
/// allows. While the data of each round trip fills the window, the kernel enlarges the buffer,
/// unless the program set the size of the buffer or of the window (tcp_rcv_space_adjust).
fn set_by_program(receiver: &End<'_>, view: &View<'_>) -> Option<Advice> {
    let sizes = receiver.values(|c| c.receive_limit);
    let (least, size) = sizes.iter().min().zip(sizes.iter().max())?;
    let is_kept = least == size && !is_fixed(view);
    let most = most_of(view).filter(|most| is_kept && size.count() <= most.count() / 2)?;
    let pid = receiver.pids().find(|pid| *pid != 0);
    let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    Some(
        Advice::new(format!(
            "Remove SO_RCVBUF or TCP_WINDOW_CLAMP from the receiving program: its buffer stays at {}, and tcp_rmem allows {}",
            bytes(*size),
            bytes(most)
        ))
        .run(format!("strace -f -e trace=setsockopt -p {pid}   (at its next connection)"))
        .not("A larger tcp_rmem changes nothing while the program sets the size"),
    )
}

/// Whether this machine's kernel leaves receive buffers at their first size.
fn is_fixed(view: &View<'_>) -> bool {
    view.sysctl("net.ipv4.tcp_moderate_rcvbuf") == Some("0")
}

fn let_grow() -> Advice {
    Advice::new("Let this machine's kernel enlarge receive buffers: each keeps its first size now")
        .run("sysctl -w net.ipv4.tcp_moderate_rcvbuf=1")
}

/// Returns the largest receive buffer that this machine's kernel makes by itself.
fn most_of(view: &View<'_>) -> Option<Bytes> {
    view.sysctl_number("net.ipv4.tcp_rmem", 2).map(Bytes::new)
}

/// Advises `value` as the largest buffer, unless the known setting `most` already allows that much:
/// the command must not make buffers smaller.
fn larger(whose: &str, value: u64, most: Option<Bytes>, there: &str) -> Advice {
    let advice = match most.filter(|most| most.count() >= value) {
        Some(most) => Advice::new(format!(
            "Remove SO_RCVBUF from the receiving program: tcp_rmem already allows {}",
            bytes(most)
        )),
        None => Advice::new(format!(
            "Let {whose} kernel use larger buffers, and remove SO_RCVBUF from the receiving program"
        ))
        .run(format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {value}'{there}")),
    };
    advice.run(format!("sysctl -w net.ipv4.tcp_moderate_rcvbuf=1{there}"))
}

/// Utilisation at which a reader has no CPU time left.
const FULL_CPU: f64 = 0.8;
/// The highest value that the advice gives for the setting.
const MOST_BUFFER: u64 = 1 << 30;
/// Minimum share of the time in which the window holds the sender (measured).
const LIMITED: f64 = 0.2;
/// Minimum part of the window that arrives per round trip if the window is the limit.
const FULL: f64 = 0.65;
/// Shortest usable round trip at the receiver: the kernel's estimate has a resolution of a
/// millisecond.
const SHORTEST: Span = Span::from_millis(2);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Connection;

    fn limited(percent: u64, window: u64) -> Sketch {
        Sketch::new().tcp(move |at, tcp| {
            tcp.window_limited = Some(Span::from_millis(10 * percent * at));
            tcp.peer_window = Some(Bytes::new(window));
        })
    }

    #[test]
    fn a_small_window_before_an_empty_queue_is_the_limit() {
        let passes =
            limited(90, 32_768).tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 1_600_000)));
        let outcome = passes.with_receiver(|_, _| {}).judge(RULE);
        let finding = outcome.finding().unwrap();
        // A window of 32 KiB in each 20 ms.
        assert_eq!(finding.allows.map(|rate| rate.mbit_per_second() as u64), Some(13));
        assert!(limited(90, 32_768).holds(RULE) > 0.8);
    }

    #[test]
    fn the_advice_about_a_far_window_of_four_segments_names_the_memory_of_the_far_end() {
        let first = |window: u64| {
            let passes = limited(90, window).tcp(|at, tcp| {
                (tcp.bytes_acked, tcp.snd_wscale) = (Some(Bytes::new(at * 300_000)), Some(7));
            });
            passes.judge(RULE).finding().unwrap().advice[0].action.clone()
        };
        assert!(first(5_888).contains("lacks memory for TCP"), "{}", first(5_888));
        assert!(first(8_192).contains("larger buffers"), "{}", first(8_192));
    }

    #[test]
    fn a_wide_window_a_slow_reader_or_no_scaling_rules_out_the_window() {
        limited(10, 32_768).holds_not(RULE);
        let reader = limited(90, 32_768)
            .with_receiver(|_, receiver| receiver.receive_queue = Bytes::new(3_000_000));
        reader.holds_not(RULE);
        limited(90, 65_535).tcp(|_, tcp| tcp.window_scaling = Some(false)).holds_not(RULE);
    }

    /// One segment fills the buffer.
    #[test]
    fn a_window_that_never_has_room_for_a_third_segment_is_a_tiny_buffer() {
        let windows = |most: u64| {
            limited(90, 0).tcp(move |at, tcp| {
                tcp.peer_window = Some(Bytes::new(if at % 2 == 0 { most } else { 0 }));
            })
        };
        assert!(windows(2_300).holds(RULE) > 0.8);
        windows(2_300).holds_not(super::super::slow_reader::RULE);
        assert!(windows(2 * 1448 + 1).holds(RULE) > 0.8);
        windows(64_000).holds_not(RULE);
        assert!(windows(64_000).holds(super::super::slow_reader::RULE) > 0.8);
    }

    /// Judges a test whose far end had data for two seconds, and which this end's window held back
    /// for `millis` milliseconds.
    fn told(millis: u64, change: impl Fn(Sketch) -> Sketch) -> Outcome {
        let sketch = change(Sketch::new().receiving(|_, receiver| {
            receiver.tcp.own_window = Some(Bytes::new(4_000));
            receiver.tcp.receive_rtt = Some(Span::from_micros(100));
        }));
        let recording = sketch.attempt(crate::recording::Attempt {
            connections: vec![("10.0.0.1:5201".parse().unwrap(), "10.0.0.2:5000".parse().unwrap())],
            far: Some(crate::recording::FarEnd {
                busy: Some(Span::from_secs(2)),
                window_limited: Some(Span::from_millis(millis)),
                mean_rtt: Some(Span::from_micros(90)),
                ..Default::default()
            }),
            ..Default::default()
        });
        recording.judge(RULE)
    }

    #[test]
    fn the_report_of_a_far_sender_blames_the_window_of_this_end() {
        let same = |sketch: Sketch| sketch;
        assert!(told(1_700, same).finding().unwrap().explains.is_some_and(|share| share > 0.8));
        assert!(matches!(told(200, same), Outcome::RuledOut(_)));
        let lacks_cpu = |sketch: Sketch| sketch.task(8, 95);
        assert!(matches!(told(1_700, lacks_cpu), Outcome::RuledOut(_)));
        let slow = |sketch: Sketch| {
            sketch.each(|_, sample| sample.connections[0].receive_queue = Bytes::new(3_000_000))
        };
        assert_eq!(told(1_700, slow), Outcome::Irrelevant);
    }

    /// Builds a flow of 400 Mbit/s at a round trip of 20 ms, which needs a window of 1 MB.
    fn receiving(window: u64) -> Sketch {
        Sketch::new().receiving(move |_, receiver| {
            receiver.tcp.own_window = Some(Bytes::new(window));
            receiver.receive_limit = Some(Bytes::new(2 * window));
        })
    }

    #[test]
    fn a_receiver_alone_sees_its_own_window() {
        assert!(receiving(1_100_000).holds(RULE) > 0.85);
        receiving(2_000_000).holds_not(RULE);
        let pauses = receiving(1_100_000).each(|_, sample| {
            sample.connections[0].tcp.min_rtt = Some(Span::from_millis(5));
        });
        pauses.holds_not(RULE);
        let grows = receiving(1_100_000).each(|at, sample| {
            sample.connections[0].receive_limit = Some(Bytes::new(2_000_000 + at * 500_000));
        });
        grows.holds_not(RULE);
        let short = receiving(1_100_000).each(|_, sample| {
            sample.connections[0].tcp.receive_rtt = Some(Span::from_micros(900));
        });
        assert!(matches!(short.judge(RULE), Outcome::NotSeen(_)));
    }

    #[test]
    fn the_advice_never_lowers_a_setting_of_this_machine() {
        let commands = |sketch: Sketch, most: &str| {
            let setting = format!("4096 131072 {most}");
            let sketch = sketch.machine(|machine| {
                machine.sysctls.insert("net.ipv4.tcp_rmem".to_owned(), setting);
            });
            sketch.judge(RULE).finding().unwrap().advice[0].commands.join("; ")
        };
        let wide = |receiver: &mut Connection| receiver.receive_limit = Some(Bytes::new(20 << 20));
        let local = || limited(90, 32_768).with_receiver(move |_, receiver| wide(receiver));
        let alone = || receiving(1_100_000).sender(move |_, receiver| wide(receiver));
        for sketch in [alone(), local()] {
            assert!(commands(sketch, "6291456").contains("tcp_rmem='4096 131072 8388608'"));
        }
        for sketch in [alone(), local()] {
            assert_eq!(commands(sketch, "33554432"), "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1");
        }
        // The far machine's setting is unknown.
        assert!(commands(limited(90, 32_768), "33554432").contains("131072 8388608'"));
    }

    #[test]
    fn the_advice_blames_the_program_for_a_fixed_buffer_that_tcp_rmem_does_not_limit() {
        let advised = |size: u64, moderates: &str| {
            let sketch = receiving(1_100_000).sender(move |_, receiver| {
                receiver.receive_limit = Some(Bytes::new(size));
            });
            let sketch = sketch.machine(|machine| {
                let settings =
                    [("tcp_rmem", "4096 131072 6291456"), ("tcp_moderate_rcvbuf", moderates)];
                let named =
                    |(name, value): (&str, &str)| (format!("net.ipv4.{name}"), value.to_owned());
                machine.sysctls.extend(settings.map(named));
            });
            let advice = sketch.judge(RULE).finding().unwrap().advice.clone();
            advice.iter().any(|one| one.action.starts_with("Remove SO_RCVBUF or TCP_WINDOW_CLAMP"))
        };
        assert!(advised(2_200_000, "1"));
        // The setting itself limits the buffer, or the kernel enlarges no buffer.
        assert!(!advised(6_291_456, "1") && !advised(2_200_000, "0"));
    }

    #[test]
    fn the_advice_names_a_kernel_that_enlarges_no_buffers_first() {
        let first = |sketch: Sketch, setting: &str| {
            let sketch = sketch.machine(|machine| {
                let name = "net.ipv4.tcp_moderate_rcvbuf".to_owned();
                machine.sysctls.insert(name, setting.to_owned());
            });
            sketch.judge(RULE).finding().unwrap().advice[0].action.clone()
        };
        let names_it = |action: String| action.contains("each keeps its first size");
        let local = || limited(90, 32_768).with_receiver(|_, _| {});
        assert!(names_it(first(receiving(1_100_000), "0")) && names_it(first(local(), "0")));
        assert!(!names_it(first(receiving(1_100_000), "1")) && !names_it(first(local(), "1")));
        // The far machine's setting is unknown.
        assert!(!names_it(first(limited(90, 32_768), "0")));
    }

    /// BBR with a window of 80 kB at 40 ms: 16 Mbit/s pass, and BBR paces at 1.25 times this rate.
    #[test]
    fn a_window_that_explains_the_rate_ranks_above_the_pace_of_bbr() {
        let bbr = |window: u64, limited: u64| {
            Sketch::new().sender(move |at, sender| {
                sender.congestion = Some("bbr".to_owned());
                let tcp = &mut sender.tcp;
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(40)), Some(Span::from_millis(40)));
                (tcp.cwnd, tcp.unacked) = (Some(134), Some(56));
                tcp.peer_window = Some(Bytes::new(window));
                tcp.bytes_acked = Some(Bytes::new(at * 2_000_000));
                tcp.pacing_rate = Some(units::Rate::from_mbit(20));
                tcp.delivery_rate = Some(units::Rate::from_mbit(16));
                tcp.window_limited = Some(Span::from_millis(limited * at));
            })
        };
        for limited in [0, 300, 900] {
            assert!(bbr(80_512, limited).holds(RULE) > 0.85, "{limited}");
            bbr(80_512, limited).holds_not(super::super::path::RULE);
        }
        let first = |limited: u64| {
            let outcome = bbr(80_512, limited).judge(RULE);
            let evidence = &outcome.finding().unwrap().evidence[0];
            (evidence.signal.clone(), evidence.value.clone())
        };
        let (signal, value) = first(0);
        assert_eq!(signal, "observed rate");
        assert!(value.ends_with(" % of what the window allows"), "{value}");
        assert!(first(900).0.starts_with("time limited by"));
        // The path limits this flow.
        bbr(800_000, 0).holds_not(RULE);
        assert!(bbr(800_000, 0).holds(super::super::path::RULE) > 0.5);
    }

    /// A program reads 4 KB every few milliseconds from a buffer of 64 KB.
    #[test]
    fn a_window_that_moves_with_reads_blames_the_reader() {
        let windows = [18_u64, 17, 20, 20, 20, 22, 19, 20, 22, 22, 19, 21, 20];
        let reads = |moves: bool| {
            let mut sketch = Sketch::new();
            sketch.repeat_samples(windows.len() as u64);
            sketch.sender(move |at, sender| {
                let tcp = &mut sender.tcp;
                let kib = if moves { windows[at as usize] } else { 20 };
                (tcp.rtt, tcp.min_rtt) = (Some(Span::from_millis(24)), Some(Span::from_millis(20)));
                tcp.peer_window = Some(Bytes::kib(kib));
                tcp.bytes_acked = Some(Bytes::new(at * 820_000));
                tcp.window_limited = Some(Span::from_millis(880 * at));
            })
        };
        assert!(reads(true).holds(super::super::slow_reader::RULE) > 0.85);
        reads(true).holds_not(RULE);
        reads(false).holds_not(super::super::slow_reader::RULE);
        assert!(reads(false).holds(RULE) > 0.85);
    }
}
