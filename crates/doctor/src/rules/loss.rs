//! Lost packets keep the window small. They are blamed only if a formula says that the losses
//! explain the rate.

use super::{Advice, Finding, Outcome, Rule};
use crate::bound;
use crate::view::{End, Flow, View};
use crate::words::{percent, rate, span};
use units::{Rate, Span};

pub(super) const RULE: Rule = Rule::new("loss", "lost packets").flow(judge);

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return at_receiver(flow) };
    let Some(loss) = sender.loss() else {
        return Outcome::not_seen("the retransmitted segments");
    };
    let sent = sender.count(|tcp| tcp.data_segments_out).unwrap_or(0);
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    if again == 0 || loss < LEAST {
        if let Some(earlier) = earlier(flow, sender) {
            return earlier;
        }
        return Outcome::ruled_out(format!("{again} retransmissions of {sent} segments"));
    }
    let congestion = sender.last().congestion.as_deref().unwrap_or("unknown");
    let (allows, formula) = allowed(sender, congestion, loss);
    let goodput = flow.rate().bits_per_second() as f64;
    let ratio = allows.map(|allows| goodput / (allows.bits_per_second() as f64).max(1.0));
    let explains =
        ratio.is_some_and(|ratio| ratio >= 0.5 / TOLERANCE) && stands(flow) && !is_full(flow, view);
    let finding = Finding::new(format!(
        "lost packets {}: {} of the segments were lost, at a round trip of {}",
        if explains { "are the limit" } else { "are present and do not limit it" },
        percent(loss),
        sender.rtt().map_or_else(|| "unknown length".to_owned(), span)
    ))
    .allows(allows)
    .seen("retransmitted segments", format!("{again} of {sent} ({})", percent(loss)))
    .seen("rate now", rate(flow.rate()))
    .seen_if(&format!("rate that {formula} gives for it"), allows.map(rate))
    .seen("congestion control", congestion.to_owned())
    .seen_if(
        "retransmission timeouts",
        sender.count(|tcp| tcp.timeouts.map(u32::from)).map(|n| n.to_string()),
    );
    if !explains {
        return finding.holds();
    }
    let queue = sender.tcp().min_rtt.zip(sender.rtt()).map(|(min, rtt)| (rtt - min, min));
    let finding = match queue {
        Some((queue, min)) if queue > min => finding.against(format!(
            "the round trip is {} above its minimum: a full queue may be the reason of the losses",
            span(queue)
        )),
        _ => finding,
    };
    finding
        .explains((0.55 + 0.4 * ratio.unwrap_or(0.0).min(1.0)).min(0.97))
        .advise(
            Advice::new("Find the lossy hop: error counters of each interface and switch port on the path")
                .run("ethtool -S DEV | grep -iE 'err|drop|crc'")
                .run("ip -s link")
                .not("Larger buffers do not help: the window does not grow into them"),
        )
        .advise(
            Advice::new("If the losses cannot be removed, use a congestion control that does not slow down for them")
                .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
                .not("It does not bring the lost packets back, and may crowd out others if a full queue drops them"),
        )
        .holds()
}

/// The window is what limits the sender: data waits, and no other limit holds it most of the time.
/// An application that writes at its own pace keeps a connection busy without filling any window.
fn stands(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let held = sender.window_limited().unwrap_or(0.0) + sender.buffer_limited().unwrap_or(0.0);
    held < 0.5 && sender.busy().is_none_or(|busy| busy >= 0.5) && sender.has_data()
}

/// An end whose thread runs or waits for a core most of the time explains the rate before a few
/// losses do.
fn is_full(flow: &Flow<'_>, view: &View<'_>) -> bool {
    let ends = [&flow.sender, &flow.receiver].into_iter().flatten();
    ends.map(|end| end.wants_cpu(view)).fold(0.0, f64::max) >= FULL_CPU
}

/// No loss in the observation, but the window still recovers from the ones before.
fn earlier(flow: &Flow<'_>, sender: &End<'_>) -> Option<Outcome> {
    let tcp = sender.tcp();
    let (again, sent) = (tcp.retransmitted?, tcp.data_segments_out?);
    let spurious = tcp.spurious.unwrap_or(0);
    let lost = again.saturating_sub(spurious);
    let loss = f64::from(lost) / f64::from(sent.max(1));
    // The slow start ended by a loss: its threshold is known, and the window is near it.
    let (threshold, window) = (tcp.ssthresh?, tcp.cwnd?);
    let recovers = threshold < UNSET && window <= threshold.saturating_mul(3);
    let full = sender.often(|c| {
        c.tcp
            .unacked
            .zip(c.tcp.cwnd)
            .is_some_and(|(sent, window)| u64::from(sent) * 10 >= u64::from(window) * 8)
    });
    let (rtt, least) = (sender.rtt()?, tcp.min_rtt?);
    let no_queue = (rtt - least).nanos() < least.nanos().max(4) / 4;
    let long = least >= Span::from_millis(2);
    let slows = sender.last().congestion.as_deref().is_none_or(|name| !name.starts_with("bbr"));
    if lost == 0 || loss < LEAST || !recovers || full < 0.6 || !no_queue || !long || !slows {
        return None;
    }
    stands(flow).then(|| {
        Finding::new(format!(
            "lost packets are the limit: {} of this connection's segments were lost before this observation, and the window of {window} segments recovers slowly at a round trip of {}",
            percent(loss),
            span(rtt)
        ))
        .explains(0.8)
        .seen("retransmitted since the connection began", format!("{lost} of {sent}"))
        .seen("slow-start threshold, window", format!("{threshold}, {window} segments"))
        .seen("samples with a full congestion window", percent(full))
        .seen("rate now", rate(flow.rate()))
        .advise(
            Advice::new("Look for the queue or hop that drops: a buffer of a few packets cuts every burst")
                .run("tc -s qdisc show   (on routers: limit, dropped)")
                .run("sysctl -w net.ipv4.tcp_congestion_control=bbr")
                .not("Larger buffers at the ends do not help: the congestion window is the smaller one"),
        )
        .holds()
    })
}

fn allowed(sender: &End<'_>, congestion: &str, loss: f64) -> (Option<Rate>, &'static str) {
    // The smallest round trip of the samples is that without the sender's own queue.
    let Some((mss, rtt)) = sender.tcp().mss.zip(sender.rtt()) else { return (None, "Mathis") };
    let rto = sender.tcp().rto.unwrap_or(Span::from_millis(200));
    let larger = |a: Option<Rate>, b: Option<Rate>| a.max(b);
    match congestion {
        // BBR ignores losses up to a fifth of the packets.
        name if name.starts_with("bbr") || name == "tcpa" => match loss >= BBR_FEELS {
            true => (bound::pftk(mss, rtt, rto, loss), "PFTK"),
            false => (None, "Mathis"),
        },
        "cubic" => {
            // A kernel's CUBIC shrinks to 0.7 of the window, where Reno shrinks to a half.
            let reno = bound::mathis(mss, rtt, loss)
                .map(|rate| Rate::from_bits_per_second(rate.bits_per_second() / 2 * 3));
            (larger(reno, bound::cubic(mss, rtt, loss)), "Mathis / RFC 9438")
        }
        _ if loss >= 0.02 => (larger(bound::pftk(mss, rtt, rto, loss), None), "PFTK"),
        _ => (bound::mathis(mss, rtt, loss), "Mathis"),
    }
}

fn at_receiver(flow: &Flow<'_>) -> Outcome {
    let Some(receiver) = &flow.receiver else { return Outcome::Irrelevant };
    let far = flow.far.and_then(|far| Some((far.retransmits?, far.bytes?)));
    if let Some((again, sent)) = far {
        let mss = receiver.tcp().advmss.map_or(1448, |mss| mss.count()).max(1);
        let loss = again as f64 / (sent.count() / mss).max(1) as f64;
        if loss < LEAST {
            return Outcome::ruled_out(format!("{again} retransmissions at the far end"));
        }
        let rtt = flow.far.and_then(|far| far.mean_rtt).or(flow.rtt());
        let allows = rtt.and_then(|rtt| bound::mathis(units::Bytes::new(mss), rtt, loss));
        let near = allows
            .is_some_and(|allows| flow.rate().bits_per_second() >= allows.bits_per_second() / 3);
        let slows = flow
            .far
            .and_then(|far| far.congestion.as_deref())
            .is_none_or(|name| !name.starts_with("bbr"));
        let finding =
            Finding::new(format!("lost packets: the far end retransmitted {}", percent(loss)))
                .allows(allows)
                .seen("retransmissions of the far end", again.to_string());
        return if near && slows { finding.explains(0.8) } else { finding }.holds();
    }
    match receiver.count(|tcp| tcp.out_of_order).zip(receiver.count(|tcp| tcp.data_segments_in)) {
        Some((0, segments)) => {
            Outcome::ruled_out(format!("none of {segments} segments came out of order"))
        }
        _ => Outcome::not_seen("the far sender's retransmissions"),
    }
}

const LEAST: f64 = 1e-5;
/// Linux's `TCP_INFINITE_SSTHRESH`.
const UNSET: u32 = 0x7fff_ffff;
const FULL_CPU: f64 = 0.8;
/// Measured: a formula is right within a factor of two.
const TOLERANCE: f64 = 1.25;
const BBR_FEELS: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    /// Segments lost of 10,000 a second, rate, algorithm.
    fn losing(lost: u32, mbit: u64, congestion: &'static str) -> Sketch {
        Sketch::new().sender(move |at, sender| {
            sender.congestion = Some(congestion.to_owned());
            sender.tcp.data_segments_out = Some(at as u32 * 10_000);
            sender.tcp.retransmitted = Some(at as u32 * lost);
            sender.tcp.bytes_acked = Some(Bytes::new(at * mbit * 125_000));
        })
    }

    #[test]
    fn one_percent_at_20_ms_limits_reno_and_cubic() {
        assert!(losing(100, 6, "reno").holds(RULE) > 0.8);
        assert!(losing(100, 9, "cubic").holds(RULE) > 0.8);
    }

    #[test]
    fn losses_that_explain_nothing_are_present() {
        let bbr = losing(100, 300, "bbr").judge(RULE);
        assert_eq!(bbr.finding().unwrap().explains, None);
        let limited = losing(100, 9, "cubic").tcp(|at, tcp| {
            tcp.window_limited = Some(Span::from_millis(900 * at));
        });
        assert_eq!(limited.judge(RULE).finding().unwrap().explains, None);
        let slow = losing(1, 2, "reno").judge(RULE);
        assert_eq!(slow.finding().unwrap().explains, None, "Mathis gives 89 Mbit/s");
    }

    #[test]
    fn losses_before_the_observation() {
        let earlier = |threshold: u32| {
            Sketch::new().tcp(move |at, tcp| {
                tcp.retransmitted = Some(120);
                tcp.data_segments_out = Some(100_000 + at as u32 * 5_000);
                tcp.ssthresh = Some(threshold);
            })
        };
        assert!(earlier(500).holds(RULE) > 0.75);
        earlier(u32::MAX).holds_not(RULE);
        earlier(20).holds_not(RULE);
    }

    #[test]
    fn spurious_retransmissions_are_no_losses() {
        let spurious = losing(100, 6, "reno").tcp(|at, tcp| tcp.spurious = Some(at as u32 * 100));
        spurious.holds_not(RULE);
        Sketch::new().holds_not(RULE);
    }

    #[test]
    fn a_counter_that_wraps() {
        let wrapped = losing(100, 6, "reno").tcp(|at, tcp| {
            tcp.retransmitted = Some((u32::MAX - 50).wrapping_add(at as u32 * 100));
        });
        assert!(wrapped.holds(RULE) > 0.8);
    }

    #[test]
    fn a_receiver_alone_sees_only_the_order() {
        let receiving = |out_of_order| {
            Sketch::new().receiving(move |at, receiver| {
                receiver.tcp.data_segments_in = Some(at as u32 * 30_000);
                receiver.tcp.out_of_order = Some(at as u32 * out_of_order);
            })
        };
        assert!(matches!(receiving(0).judge(RULE), Outcome::RuledOut(_)));
        assert!(matches!(receiving(9).judge(RULE), Outcome::NotSeen(_)));
    }

    /// An application that writes 20 Mbit/s, and a few probes that were taken for losses.
    #[test]
    fn losses_of_a_sender_without_data_to_send_limit_nothing() {
        let paced = losing(8, 20, "cubic").tcp(|_, tcp| tcp.unsent = Some(Bytes::ZERO));
        assert_eq!(paced.judge(RULE).finding().unwrap().explains, None);
        assert!(losing(8, 20, "cubic").holds(RULE) > 0.5);
    }
}
