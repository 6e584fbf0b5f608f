//! The memory of all TCP sockets, or of the sockets of a control group, reaches its limit: the
//! kernel shrinks windows and drops packets.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::signs::short_memory::{dropped, is_window_kept_small};
use crate::view::{Flow, View};
use crate::words::{bytes, percent};

pub(super) const RULE: Rule =
    Rule::new("tcp-memory", "the memory of TCP sockets").flow(of_flow).machine(judge);
pub(super) const DROPS: Case = Case::new("the kernel drops segments for which it has no memory");

/// Judges an end whose buffer is small, or whose packets the kernel drops, because socket memory is
/// short.
fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let held = flow.sender.as_ref().map_or(0.0, |sender| {
        sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0)
    });
    let is_held = held >= HELD || flow.sender.is_none() || flow.is_stalled();
    if let Some(finding) = of_group(flow, view) {
        return finding.case_if(!is_held, DROPS).holds();
    }
    match judge(view) {
        Outcome::Holds(finding) => finding.case_if(held < HELD, DROPS).holds(),
        _ => of_receiver(flow, view).map_or(Outcome::Irrelevant, Finding::holds),
    }
}

/// Judges a receiver by what the kernel does when TCP lacks memory. A network namespace does not
/// show the limits of the machine, nor the control groups outside.
fn of_receiver(flow: &Flow<'_>, view: &View<'_>) -> Option<Finding> {
    let receiver = flow.receiver.as_ref()?;
    let (lost, is_small) = (dropped(view, Some(flow)), is_window_kept_small(receiver));
    if lost < FEWEST_DROPPED && !is_small {
        return None;
    }
    let window = receiver.values(|c| c.tcp.own_window).into_iter().min().unwrap_or_default();
    let finding = Finding::new(match is_small {
        true => format!(
            "the memory of TCP sockets is short: the kernel offers {} for {}, whose buffer has room for more",
            bytes(window),
            receiver.name()
        ),
        false => format!(
            "the memory of TCP sockets is short: the kernel drops data for {}",
            receiver.name()
        ),
    });
    Some(
        finding
            .limits()
            .seen("smallest window", bytes(window))
            .seen_if("receive buffer", receiver.last().receive_limit.map(bytes))
            .seen_from(
                "packets dropped for lack of memory",
                lost.to_string(),
                FEWEST_DROPPED.to_string(),
            )
            .advise(elsewhere())
            .against_if(
                lost == 0,
                "a program that sets TCP_WINDOW_CLAMP may have such a window, too",
            ),
    )
}

/// Advises where to look if this namespace does not show which limit is reached.
fn elsewhere() -> Advice {
    Advice::new("Look at the TCP memory of the machine, and at the control group of the process")
        .run("cat /proc/net/sockstat; sysctl net.ipv4.tcp_mem   (outside of containers)")
        .run("cat /sys/fs/cgroup/memory/GROUP/memory.kmem.tcp.failcnt   (version 1)")
        .run("cat /sys/fs/cgroup/GROUP/memory.max /sys/fs/cgroup/GROUP/memory.events")
        .not("Larger buffers (tcp_rmem, SO_RCVBUF) use more of the memory that is short")
}

/// Judges the control group of an end that refuses memory to its sockets, even if the machine has
/// memory.
fn of_group(flow: &Flow<'_>, view: &View<'_>) -> Option<Finding> {
    // The receiver drops segments that it may not store. Linux 6.18 counts the drops for the
    // namespace, not for the group.
    let dropped = view.counter("TcpExtTCPRcvQDrop").unwrap_or(0);
    let ends = [("sender", &flow.sender, 0), ("receiver", &flow.receiver, dropped)];
    let limits = ends.into_iter().filter_map(|(side, end, dropped)| {
        let end = end.as_ref()?;
        let (limit, refused) = view.socket_limit(&end.last().holders)?;
        Some((side, end, limit, refused.max(dropped)))
    });
    let (side, end, limit, refused) = limits.max_by_key(|(.., refused)| *refused)?;
    if (refused as f64) < REFUSED_EACH_SECOND * view.elapsed().secs_f64() {
        return None;
    }
    let first_version = limit.used.is_some();
    let advice = Advice::new("Raise the limit of the group, or of the container")
        .run(match first_version {
            true => format!("echo -1 > {}/memory.kmem.tcp.limit_in_bytes", limit.path),
            false => format!("echo max > {}/memory.max", limit.path),
        })
        .not("net.ipv4.tcp_mem, tcp_rmem and tcp_wmem change nothing");
    let finding = Finding::new(format!(
        "a control group limits the memory of the sockets of {}, the {side}: the kernel refused it {refused} times",
        end.name()
    ))
    .limits()
    .seen_from(
        "refusals each second",
        format!("{:.1}", refused as f64 / view.elapsed().secs_f64()),
        REFUSED_EACH_SECOND.to_string(),
    )
    .seen_if("limit", limit.most.map(bytes))
    .seen_if("in use", limit.used.map(bytes))
    .seen("control group", limit.path.clone());
    Some(finding.advise(advice))
}

fn judge(view: &View<'_>) -> Outcome {
    let Some(memory) = view.last().socket_memory else {
        return Outcome::not_seen("the memory of TCP sockets");
    };
    // Only the machine's first network namespace has the setting.
    let has_limits = memory.most > 0;
    let events: u64 = ["TcpExtTCPMemoryPressures", "TcpExtTCPAbortOnMemory"]
        .iter()
        .filter_map(|name| view.counter(name))
        .fold(0, u64::saturating_add);
    // Where the limits are seen, the pages in use and the events tell whether memory is short.
    let lost = if has_limits { 0 } else { dropped(view, None) };
    let is_short = events > 0 || lost >= FEWEST_DROPPED;
    if !is_short && !has_limits {
        return Outcome::not_seen("the limits of the memory of TCP sockets (net.ipv4.tcp_mem)");
    }
    if !is_short && memory.used < memory.pressure {
        let share = percent(memory.used as f64 / memory.most as f64);
        return Outcome::ruled_out(format!("TCP sockets use {share} of their memory"));
    }
    let limit = has_limits.then(|| memory.pressure.to_string());
    Finding::new("the memory of TCP sockets is short: the kernel shrinks their windows")
        .limits()
        .seen("pages in use", memory.used.to_string())
        .seen_if("pages from which on it is short", limit)
        .seen("times that it became short", events.to_string())
        .seen_if("packets dropped for lack of memory", (!has_limits).then(|| lost.to_string()))
        .advise(match memory.used < memory.pressure {
            _ if !has_limits => elsewhere(),
            // The memory of a control group includes its sockets.
            true => Advice::new(
                "The machine's own limit is not reached: look at the control group of the process",
            )
            .run("cat /proc/PID/cgroup")
            .run("cat /sys/fs/cgroup/GROUP/memory.max /sys/fs/cgroup/GROUP/memory.events")
            .run("cat /sys/fs/cgroup/memory/GROUP/memory.kmem.tcp.failcnt   (version 1)")
            .not("net.ipv4.tcp_mem changes nothing"),
            false => Advice::new("Raise the limit, or look for sockets that are not read")
                .run(format!(
                    "sysctl -w net.ipv4.tcp_mem='{} {} {}'",
                    memory.pressure,
                    memory.most,
                    memory.most.saturating_mul(2)
                ))
                .run("ss -tnm"),
        })
        .holds()
}

const HELD: f64 = 0.2;
const REFUSED_EACH_SECOND: f64 = 1.0;
/// Minimum number of dropped packets: the kernel may drop fewer while a buffer grows.
const FEWEST_DROPPED: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::{SocketLimit, SocketMemory};
    use units::{Bytes, Span};

    fn using(used: u64) -> Sketch {
        Sketch::new().each(move |_, sample| {
            sample.socket_memory = Some(SocketMemory { used, pressure: 800, most: 1_000 });
        })
    }

    #[test]
    fn short_socket_memory_is_the_limit() {
        assert!(using(900).holds_machine(RULE).is_some_and(|share| share > 0.5));
        using(100).machine_holds_not(RULE);
        let group = using(100).counter("TcpExtTCPMemoryPressures", 2).on_machine(RULE);
        let advice = &group.finding().unwrap().advice[0];
        assert!(advice.action.contains("control group"), "{advice:?}");
        let small = |used| {
            using(used).tcp(|at, tcp| tcp.window_limited = Some(Span::from_millis(900 * at)))
        };
        assert!(small(900).holds(RULE) > 0.95);
        let send_buffer =
            using(900).tcp(|at, tcp| tcp.buffer_limited = Some(Span::from_millis(900 * at)));
        assert!(send_buffer.holds(RULE) > 0.95);
        assert_eq!(small(100).judge(RULE), Outcome::Irrelevant);
        assert_eq!(using(900).judge(RULE), Outcome::Irrelevant);
        assert!(matches!(Sketch::new().on_machine(RULE), Outcome::NotSeen(_)));
    }

    /// Builds a receiver in a namespace, which shows no limits.
    fn in_a_namespace(window: u64, limit: u64) -> Sketch {
        let receiver = Sketch::new().receiving(move |_, receiver| {
            receiver.receive_limit = Some(Bytes::new(limit));
            receiver.tcp.own_window = Some(Bytes::new(window));
            (receiver.tcp.advmss, receiver.tcp.rcv_wscale) = (Some(Bytes::new(1448)), Some(10));
            receiver.tcp.bytes_received = Some(Bytes::new(0));
        });
        receiver.each(|at, sample| {
            sample.socket_memory = Some(SocketMemory { used: 658, pressure: 0, most: 0 });
            // Six kilobytes in each round trip of 20 ms.
            sample.connections[0].tcp.bytes_received = Some(Bytes::new(at * 300_000));
        })
    }

    #[test]
    fn a_window_of_four_segments_before_a_large_buffer_is_short_memory_and_no_small_buffer() {
        use super::super::receiver_window;
        let short = in_a_namespace(6_144, 5_837_491);
        assert!(short.holds(RULE) > 0.95);
        short.holds_not(receiver_window::RULE);
        let advice = short.judge(RULE).finding().unwrap().advice[0].clone();
        assert!(advice.limits.unwrap().contains("Larger buffers"), "{:?}", advice.commands);
        // The buffer itself is small, or the window has another size.
        assert!(in_a_namespace(6_144, 12_288).holds(receiver_window::RULE) > 0.8);
        in_a_namespace(6_144, 12_288).holds_not(RULE);
        in_a_namespace(7_168, 5_837_491).holds_not(RULE);
    }

    #[test]
    fn dropped_packets_show_a_lack_of_memory_if_the_limit_is_not_visible() {
        let dropping = |packets: u64| {
            let mut recording = in_a_namespace(63_000, 131_072).recording().clone();
            let reasons = [("PROTO_MEM".to_owned(), packets)].into();
            let drops = crate::recording::Drops { reasons, places: Vec::new() };
            recording.periods[0].drops = Some(drops);
            let question = crate::Question::Machine;
            crate::diagnose(&recording, question).verdict.causes.contains(&RULE.cause)
        };
        assert!(dropping(18) && !dropping(2));
        let pressed = in_a_namespace(63_000, 131_072).counter("TcpExtTCPMemoryPressures", 1);
        assert!(pressed.holds_machine(RULE).is_some_and(|share| share > 0.5));
        let unknown = in_a_namespace(63_000, 131_072).on_machine(RULE);
        assert!(matches!(unknown, Outcome::NotSeen(_)), "{unknown:?}");
    }

    /// The kernel gives the same reason if a segment finds a full receive buffer.
    #[test]
    fn packets_dropped_before_an_unread_buffer_or_below_a_visible_limit_show_no_lack() {
        let judge = |queue: u64, most: u64| {
            let sketch = in_a_namespace(63_000, 131_072).each(|_, sample| {
                sample.connections[0].receive_queue = Bytes::new(queue);
                sample.socket_memory = Some(SocketMemory { used: 658, pressure: most / 2, most });
            });
            let mut recording = sketch.recording().clone();
            let connection = &recording.periods[0].samples[0].connections[0];
            let place = crate::recording::DropPlace {
                reason: "PROTO_MEM".to_owned(),
                packets: 18,
                from: Some(connection.remote),
                to: Some(connection.local),
                ..Default::default()
            };
            let reasons = [(place.reason.clone(), place.packets)].into();
            let drops = crate::recording::Drops { reasons, places: vec![place] };
            recording.periods[0].drops = Some(drops);
            let diagnosis = crate::diagnose(&recording, crate::Question::Machine);
            let machine = diagnosis.periods[0].machine.iter();
            let of_machine = machine.filter(|found| found.cause == RULE.cause).count();
            (diagnosis.verdict.causes.contains(&RULE.cause), of_machine)
        };
        assert!(judge(0, 0).0);
        assert_eq!(judge(90_000, 0), (false, 0));
        // The machine uses 658 of 100,000 pages: the flow's own drops remain.
        assert_eq!(judge(0, 100_000).1, 0);
    }

    #[test]
    fn a_control_group_that_limits_its_sockets_is_the_limit() {
        let limited = |pid: u32, refused: u64| {
            let sketch = Sketch::new().each(move |at, sample| {
                sample.socket_limits.push(SocketLimit {
                    path: "/sys/fs/cgroup/memory/x".to_owned(),
                    pids: vec![pid],
                    most: Some(Bytes::new(262_144)),
                    used: Some(Bytes::new(262_144)),
                    refused: at * refused,
                });
            });
            sketch.tcp(|at, tcp| tcp.buffer_limited = Some(Span::from_millis(900 * at)))
        };
        let outcome = limited(7, 40).judge(RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.explains.is_some_and(|share| share > 0.95), "{finding:?}");
        assert!(finding.sentence.contains("the sender"), "{finding:?}");
        assert!(finding.advice[0].commands[0].contains("memory.kmem.tcp"), "{finding:?}");
        let dropping = limited(8, 0).with_receiver(|_, _| {});
        let dropping = dropping.counter("TcpExtTCPRcvQDrop", 90).judge(RULE);
        let sentence = &dropping.finding().unwrap().sentence;
        assert!(sentence.contains("the receiver"), "{sentence}");
        assert!(limited(7, 0).judge(RULE).finding().is_none());
        assert!(limited(99, 40).judge(RULE).finding().is_none());
    }
}
