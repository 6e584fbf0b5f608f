//! A packet filter or a route of this machine drops received packets. The kernel counts received
//! packets, and packets that it delivers, forwards or drops for another reason; a filter dropped
//! the rest. Counts only IPv4. Linux 6.6 and later count a packet as forwarded before the hook that
//! may drop the packet.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::recording::{DropPlace, Sample};
use crate::view::{Flow, View, counted};
use crate::words::percent;

pub(super) const RULE: Rule =
    Rule::new("input-filter", "a filter of received packets").flow(of_flow).machine(of_machine);
pub(super) const LOSES: Case = Case::new("segments of an open connection are missing");

fn of_flow(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let Some(counts) = Counts::of(view) else { return not_seen() };
    let waits = waits_for_packets(flow);
    let counts = if waits { counts.with_hooks(flow, view) } else { counts };
    // Each repeated SYN brings an answer, which the filter drops too.
    let again = view.counter("TcpExtTCPSynRetrans").filter(|_| flow.is_opening()).unwrap_or(0);
    if waits
        && counts.dropped >= FEW
        && counts.dropped.saturating_mul(2) >= again
        && counts.share() >= MANY
        && !came_from_others(flow, view, counts.dropped)
    {
        return counts.finding().limits().holds();
    }
    let behind = flow.receiver.as_ref().and_then(|end| end.count(|tcp| tcp.out_of_order));
    let has_gaps = flow.sender.is_none() && behind.unwrap_or(0) > 0;
    if has_gaps && counts.dropped >= LOST && counts.share() >= LOST_SHARE {
        return counts
            .finding()
            .seen_if("segments that arrived behind a gap", behind.map(|count| count.to_string()))
            .limits()
            .case(LOSES)
            .holds();
    }
    counts.ruled_out()
}

/// Judges the machine. Dropping packets of strangers is a filter's task, so drops are reported only
/// if they are a large share of all received packets.
fn of_machine(view: &View<'_>) -> Outcome {
    let Some(counts) = Counts::of(view) else { return not_seen() };
    let per_second = counts.dropped as f64 / view.elapsed().secs_f64();
    match per_second >= PER_SECOND && counts.share() >= MANY {
        true => counts.finding().limits().holds(),
        false => counts.ruled_out(),
    }
}

/// Whether the sender waits for packets: its handshake has no answer, or it sends data again and
/// again into an open window.
fn waits_for_packets(flow: &Flow<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    let last = sender.last();
    let repeats = last.retransmits > 0 || last.tcp.backoff.unwrap_or(0) > 0;
    flow.is_opening() || flow.is_stalled() && repeats && !last.probing
}

/// Whether the packet filter dropped packets of other hosts alone, by the kernel's own reasons. A
/// filter drops packets of strangers all the time, and the peer of a handshake may be silent
/// meanwhile. The kernel's program samples the senders of many packets: the places then do not add
/// up to all packets.
fn came_from_others(flow: &Flow<'_>, view: &View<'_>, dropped: u64) -> bool {
    let Some(drops) = &view.period.drops else { return false };
    let peer = flow.end().last().remote.ip().to_canonical();
    let is_of_peer =
        |place: &DropPlace| place.from.is_none_or(|from| from.ip().to_canonical() == peer);
    let places = || drops.places.iter().filter(|place| place.reason == FILTERED);
    let all = drops.reasons.get(FILTERED).copied().unwrap_or(0);
    let known = places().map(|place| place.packets).fold(0, u64::saturating_add);
    all >= dropped && known == all && !places().any(is_of_peer)
}

/// Packets during the observation.
struct Counts {
    received: u64,
    dropped: u64,
    /// Packets that filters of traffic control dropped before IP counted them.
    at_hooks: u64,
}

impl Counts {
    fn of(view: &View<'_>) -> Option<Self> {
        let count = |name: &str| view.counter(name).unwrap_or(0);
        let received = view.counter("IpInReceives")?;
        let delivered = view.counter("IpInDelivers")?;
        // The kernel joins several fragments to a packet, and counts that packet once as delivered.
        let joined = count("IpReasmReqds").saturating_sub(count("IpReasmOKs"));
        let known = ELSEWHERE.iter().map(|name| count(name)).fold(delivered, u64::saturating_add);
        let known = known.saturating_add(joined).saturating_add(untracked(view));
        Some(Self { received, dropped: received.saturating_sub(known), at_hooks: 0 })
    }

    fn with_hooks(self, flow: &Flow<'_>, view: &View<'_>) -> Self {
        // If this machine fails to send, the same hook may have dropped packets on their way out.
        let Some(name) = flow.interface().filter(|_| !fails_to_send(view)) else { return self };
        let drops = |sample: &Sample| {
            let hooks = sample.qdiscs.iter().filter(|one| one.interface == name && one.is_hook());
            hooks.map(|hook| hook.drops).fold(0, u64::saturating_add)
        };
        let at_hooks = drops(view.last()).saturating_sub(drops(&view.samples()[0]));
        Self {
            received: self.received.saturating_add(at_hooks),
            dropped: self.dropped.saturating_add(at_hooks),
            at_hooks,
        }
    }

    fn share(&self) -> f64 {
        self.dropped as f64 / self.received.max(1) as f64
    }

    fn ruled_out(&self) -> Outcome {
        Outcome::ruled_out(format!(
            "{} of {} packets that came were neither delivered nor forwarded",
            self.dropped, self.received
        ))
    }

    fn finding(&self) -> Finding {
        Finding::new(format!(
            "this machine drops packets that come in: {} of {} arrived and were not delivered, as a rule of its packet filter does it",
            self.dropped, self.received
        ))
        .seen_from(
            "packets that came and were not delivered",
            format!("{} ({} of all that came)", self.dropped, percent(self.share())),
            FEW.to_string(),
        )
        .seen_if(
            "of these dropped by filters of traffic control",
            (self.at_hooks > 0).then(|| self.at_hooks.to_string()),
        )
        .advise(
            Advice::new("Look for the rule that drops them; a filter must let answers to this machine's own connections in")
                .run("nft list ruleset   (hooks prerouting and input)")
                .run("iptables-save -c")
                .run("tc -s filter show dev DEV ingress")
                .run("ip route show type blackhole; ip rule")
                .not("The path and the other end have no part in it: the packets arrived here"),
        )
    }
}

fn not_seen() -> Outcome {
    Outcome::not_seen("the counts of packets that came and that were delivered")
}

/// Returns the packets for which connection tracking made no entry: another cause explains them.
fn untracked(view: &View<'_>) -> u64 {
    let tables = view.samples()[0].conntrack.as_ref().zip(view.last().conntrack.as_ref());
    tables.map_or(0, |(earlier, later)| {
        let failed = counted(later.insert_failed, earlier.insert_failed).unwrap_or(0);
        failed.saturating_add(counted(later.dropped, earlier.dropped).unwrap_or(0))
    })
}

fn fails_to_send(view: &View<'_>) -> bool {
    view.counter("TcpExtTCPRetransFail").unwrap_or(0) > 0
}

/// Counters of received packets that other counters explain (net/ipv4/ip_input.c, ip_forward.c,
/// route.c).
const ELSEWHERE: [&str; 9] = [
    "IpForwDatagrams",
    "IpFragFails",
    "IpInAddrErrors",
    "IpInDiscards",
    "IpInHdrErrors",
    "IpInUnknownProtos",
    "IpExtInNoRoutes",
    "IpExtInTruncatedPkts",
    "TcpExtIPReversePathFilter",
];
/// The kernel's reason of packets that a rule of the packet filter drops.
const FILTERED: &str = "NETFILTER_DROP";
const FEW: u64 = 2;
/// Minimum share of dropped packets among the received packets. A filter drops some packets of
/// strangers all the time.
const MANY: f64 = 0.2;
/// Minimum number of missing packets: more than a batch that the kernel has counted and not yet
/// delivered.
const LOST: u64 = 20;
const LOST_SHARE: f64 = 5e-3;
const PER_SECOND: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::{ConnectionState, Qdisc};
    use crate::{Question, diagnose};

    fn counts(sketch: Sketch, received: u64, delivered: u64) -> Sketch {
        sketch.counter("IpInReceives", received).counter("IpInDelivers", delivered)
    }

    fn opening() -> Sketch {
        Sketch::new().counter("TcpExtTCPSynRetrans", 1).sender(|_, sender| {
            sender.state = ConnectionState::SynSent;
            sender.retransmits = 2;
            sender.tcp = Default::default();
        })
    }

    #[test]
    fn a_filter_that_drops_the_answers_to_a_handshake_is_the_limit() {
        let dropped = counts(opening(), 2, 0);
        assert!(dropped.holds(RULE) > 0.95);
        let verdict = diagnose(dropped.recording(), Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("input-filter"), "{verdict:?}");
        assert!(!verdict.causes.contains(&"no-answer"), "{verdict:?}");
        let silent = counts(opening(), 2, 2);
        silent.holds_not(RULE);
        let verdict = diagnose(silent.recording(), Question::Machine).verdict;
        assert_eq!(verdict.cause, Some("no-answer"), "{verdict:?}");
    }

    /// The kernel names the senders of the packets that the filter dropped.
    #[test]
    fn dropped_packets_of_strangers_are_no_answers_to_a_handshake() {
        let cause = |from: &str, packets: u64| {
            let mut recording = counts(opening(), 2, 0).recording().clone();
            let place = DropPlace {
                reason: FILTERED.to_owned(),
                packets,
                from: Some(from.parse().unwrap()),
                ..DropPlace::default()
            };
            let reasons = [(FILTERED.to_owned(), 6)].into();
            recording.periods[0].drops =
                Some(crate::recording::Drops { reasons, places: vec![place] });
            diagnose(&recording, Question::Machine).verdict.cause
        };
        assert_eq!(cause("10.0.0.9:5201", 6), Some("no-answer"));
        assert_eq!(cause("10.0.0.2:5201", 6), Some("input-filter"));
        // The senders of the other packets are unknown.
        assert_eq!(cause("10.0.0.9:5201", 5), Some("input-filter"));
    }

    #[test]
    fn a_few_dropped_packets_among_many_are_no_fault() {
        counts(opening(), 1_000, 999).holds_not(RULE);
        counts(Sketch::idle(), 5, 3).machine_holds_not(RULE);
        let flood = counts(Sketch::idle(), 500, 20);
        assert!(flood.holds_machine(RULE).is_some_and(|share| share > 0.5));
    }

    #[test]
    fn packets_counted_elsewhere_are_no_drops_of_a_filter() {
        for name in ELSEWHERE {
            counts(opening(), 2, 0).counter(name, 2).holds_not(RULE);
        }
        let fragments = counts(Sketch::idle(), 500, 0).counter("IpReasmReqds", 300);
        fragments.machine_holds_not(RULE);
        assert!(matches!(opening().judge(RULE), Outcome::NotSeen(_)));
    }

    #[test]
    fn a_rate_limit_at_the_receiver_explains_its_missing_segments() {
        let receives = |behind: u32| {
            counts(Sketch::new(), 1_000, 980).receiving(move |at, receiver| {
                receiver.tcp.out_of_order = Some(at as u32 * behind);
            })
        };
        assert!(receives(40).holds(RULE) > 0.95);
        receives(0).holds_not(RULE);
    }

    #[test]
    fn drops_of_traffic_control_count_for_a_waiting_handshake() {
        let at_hook = |failed: u64| {
            let sketch = counts(opening(), 0, 0).counter("TcpExtTCPRetransFail", failed);
            sketch.each(|at, sample| {
                sample.qdiscs.push(Qdisc {
                    interface: "eth0".to_owned(),
                    kind: "clsact".to_owned(),
                    drops: at,
                    ..Qdisc::default()
                });
            })
        };
        assert!(at_hook(0).holds(RULE) > 0.95);
        at_hook(1).holds_not(RULE);
    }
}
