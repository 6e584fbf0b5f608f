//! A packet filter or a BPF program of this machine drops outgoing packets. TCP gets the error at
//! once, so the path loses nothing. TCP keeps the data and sends again by its timer, although the
//! windows are open.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Sample;
use crate::signs::own_refusals::is_refused;
use crate::view::{Flow, View};
use crate::words::percent;

pub(super) const RULE: Rule = Rule::new("local-drops", "packets that this machine drops itself")
    .flow(of_flow)
    .machine(of_machine);

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(sender) = &flow.sender else { return Outcome::Irrelevant };
    let Some(failed) = view.counter("TcpExtTCPRetransFail") else {
        return Outcome::not_seen("retransmissions that this machine could not send");
    };
    // A route or a link that flaps also refuses packets, and so does a rate limit whose queue is
    // full.
    let is_up = flow.interface().is_none_or(|name| {
        let changes = view.interface(name).and_then(|one| one.carrier_changes);
        changes.unwrap_or(0) == 0
    });
    if !is_up || flow.path.is_some_and(|path| path.refused.is_some()) {
        return Outcome::Irrelevant;
    }
    let refused = sender.often(is_refused);
    let stands = flow.is_opening() || flow.is_stalled();
    let least = if stands { 1 } else { FAILED };
    // The kernel counts failed retransmissions for the whole machine. Failed retransmissions
    // concern a connection that moves only if most of its own retransmissions failed.
    let again = sender.count(|tcp| tcp.retransmitted).unwrap_or(0);
    let is_own = stands || failed <= again && failed.saturating_mul(2) >= again;
    if (failed < least || !is_own) && refused < REFUSED {
        return Outcome::ruled_out(format!(
            "{failed} retransmissions could not be sent, and the window was open to a waiting sender in {} of the samples",
            percent(refused)
        ));
    }
    let finding = Finding::new(
        "this machine drops its own packets: a filter, a queueing discipline or a program at one of its hooks refuses what TCP sends",
    )
    .seen_from("retransmissions that could not be sent", failed.to_string(), least.to_string())
    .seen_from(
        "samples in which the sender waits for its timer while the window is open",
        percent(refused),
        percent(REFUSED),
    )
    .seen_if("interface", flow.interface().map(str::to_owned))
    .seen_if("packets dropped by its queueing disciplines", dropped(flow, view))
    .advise(
        Advice::new("Look for the rule on the way out of this machine")
            .run("nft list ruleset   (hooks output and postrouting)")
            .run("iptables-save")
            .run("bpftool cgroup tree; bpftool net")
            .run(format!(
                "tc -s qdisc show dev {0}; tc -s filter show dev {0} egress",
                flow.interface().unwrap_or("DEV")
            ))
            .not("The path and the far end have no part in it: the packets never left"),
    );
    match stands || sender.has_data() {
        true => finding.limits(),
        false => finding,
    }
    .holds()
}

/// Judges datagrams. A program that sends a refused datagram gets an error (EPERM, ENOBUFS), which
/// many programs ignore. The kernel does not count such a datagram as sent (ip_send_skb in
/// net/ipv4/ip_output.c).
fn of_machine(view: &View<'_>) -> Outcome {
    let Some(discarded) = view.counter("IpOutDiscards") else {
        return Outcome::not_seen("datagrams that this machine discarded on their way out");
    };
    let sent = view.counter("UdpOutDatagrams").unwrap_or(0);
    let share = discarded as f64 / discarded.saturating_add(sent).max(1) as f64;
    let per_second = discarded as f64 / view.elapsed().secs_f64();
    if per_second < DISCARDED || share < DISCARDED_SHARE {
        return Outcome::ruled_out(format!(
            "{discarded} datagrams were discarded on their way out"
        ));
    }
    Finding::new(format!(
        "this machine drops its own datagrams: a filter or a queue on the way out refused {discarded} of them"
    ))
    .limits_for(share)
    .seen_from(
        "datagrams discarded on their way out",
        format!("{per_second:.0} a second"),
        format!("{DISCARDED} a second"),
    )
    .seen_from("refused datagrams, of all that programs sent", percent(share), percent(DISCARDED_SHARE))
    .advise(
        Advice::new("Look for the rule on the way out of this machine, and at the error that the program gets")
            .run("nft list ruleset   (hooks output and postrouting)")
            .run("iptables-save -c")
            .run("strace -f -e trace=sendto,sendmsg,sendmmsg,write -p PID   (EPERM, ENOBUFS)")
            .not("The path and the far end have no part in it: the datagrams never left"),
    )
    .holds()
}

/// Returns the drops of the queueing disciplines of the connection's interface. `None` without
/// drops.
fn dropped(flow: &Flow<'_>, view: &View<'_>) -> Option<String> {
    let name = flow.interface()?;
    let drops = |sample: &Sample| {
        let queues = sample.qdiscs.iter().filter(|qdisc| qdisc.interface == name);
        queues.map(|qdisc| qdisc.drops).fold(0, u64::saturating_add)
    };
    let drops = drops(view.last()).saturating_sub(drops(&view.samples()[0]));
    (drops > 0).then(|| drops.to_string())
}

const FAILED: u64 = 3;
/// Minimum number of refused datagrams a second.
const DISCARDED: f64 = 5.0;
const DISCARDED_SHARE: f64 = 0.02;
/// Minimum share of the samples in which the kernel refuses to send.
const REFUSED: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::{ConnectionState, Qdisc};
    use units::Bytes;

    fn refused(window: u64) -> Sketch {
        Sketch::new().counter("TcpExtTCPRetransFail", 0).sender(move |_, sender| {
            sender.probing = true;
            sender.tcp.unacked = Some(0);
            sender.tcp.peer_window = Some(Bytes::new(window));
            sender.tcp.bytes_acked = Some(Bytes::new(9_000_000));
        })
    }

    #[test]
    fn a_filter_on_the_way_out_is_the_limit() {
        assert!(refused(65_000).holds(RULE) > 0.95);
        refused(65_000).holds_not(super::super::slow_reader::RULE);
        let again = |own: u32| {
            let fails = Sketch::new().counter("TcpExtTCPRetransFail", 2);
            fails.tcp(move |at, tcp| tcp.retransmitted = Some(at as u32 * own))
        };
        assert!(again(3).holds(RULE) > 0.95);
        again(0).holds_not(RULE);
        again(90).holds_not(RULE);
        let opening = Sketch::new().counter("TcpExtTCPRetransFail", 1).sender(|_, sender| {
            sender.state = ConnectionState::SynSent;
            sender.retransmits = 2;
            sender.tcp = Default::default();
        });
        assert!(opening.holds(RULE) > opening.holds(super::super::no_answer::RULE));
    }

    #[test]
    fn a_closed_window_or_a_flapping_link_rules_out_local_drops() {
        refused(0).holds_not(RULE);
        assert!(refused(0).holds(super::super::slow_reader::RULE) > 0.9);
        Sketch::new().counter("TcpExtTCPRetransFail", 0).holds_not(RULE);
        let flaps = refused(65_000).each(|at, sample| {
            sample.interfaces.get_mut("eth0").unwrap().carrier_changes = Some(1 + at);
        });
        assert_eq!(flaps.judge(RULE), Outcome::Irrelevant);
    }

    #[test]
    fn refused_datagrams_are_a_finding_on_the_machine() {
        let discarding = |discarded: u64, sent: u64| {
            let idle = Sketch::idle().counter("IpOutDiscards", discarded);
            idle.counter("UdpOutDatagrams", sent)
        };
        assert!(discarding(900, 0).holds_machine(RULE).is_some_and(|share| share > 0.6));
        discarding(1, 0).machine_holds_not(RULE);
        discarding(9, 9_000).machine_holds_not(RULE);
        let overflows = discarding(900, 900).each(|at, sample| {
            sample.qdiscs.push(Qdisc {
                interface: "eth0".to_owned(),
                kind: "pfifo".to_owned(),
                drops: at * 900,
                ..Qdisc::default()
            });
        });
        overflows.machine_holds_not(RULE);
    }

    #[test]
    fn an_old_kernel_does_not_count_refused_packets() {
        assert!(matches!(Sketch::new().judge(RULE), Outcome::NotSeen(_)));
    }
}
