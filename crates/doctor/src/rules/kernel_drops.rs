//! The kernel drops packets and names the reason of each.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::{DropPlace, Drops};
use crate::view::View;
use crate::words::counted;

pub(super) const RULE: Rule =
    Rule::new("kernel-drops", "packets that the kernel drops").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let Some(drops) = &view.period.drops else { return Outcome::Irrelevant };
    let mut faults: Vec<(&str, u64)> = drops.faults().collect();
    faults.sort_by_key(|(reason, packets)| (std::cmp::Reverse(*packets), *reason));
    let Some((first, most)) = faults.first().copied() else {
        let all = drops.reasons.values().fold(0, |sum: u64, one| sum.saturating_add(*one));
        return Outcome::ruled_out(format!(
            "the kernel dropped {}, for reasons that are usual",
            counted(all, "packet", "packets")
        ));
    };
    let known = |reason: &str| KNOWN.iter().find(|known| known.reason == reason);
    let mut sentence = format!(
        "the kernel drops packets: {most} {}",
        known(first).map_or_else(|| format!("for the reason {first}"), |one| one.words.to_owned())
    );
    if let Some(place) = place(drops, first) {
        sentence += &format!(" ({place})");
    }
    let mut finding = Finding::new(sentence);
    for (reason, packets) in faults.iter().take(SHOWN) {
        let place = place(drops, reason).map_or_else(String::new, |place| format!(", {place}"));
        let value = format!("{packets}{place}");
        finding =
            finding.seen_from(format!("packets dropped: {reason}"), value, Drops::FEW.to_string());
    }
    for (reason, _) in faults.iter().take(SHOWN) {
        if let Some(known) = known(reason) {
            let mut advice = Advice::new(known.action);
            for command in known.commands {
                advice = advice.run(*command);
            }
            finding = finding.advise(advice);
        }
    }
    if faults.iter().take(SHOWN).all(|(reason, _)| known(reason).is_none()) {
        let unknown = Advice::new(
            "Look at the function that drops the packets; the reason has its meaning in the kernel's \
             include/net/dropreason-core.h",
        );
        finding = finding.advise(unknown.run("weir doctor --json | jq '.periods[0].drops'"));
    }
    finding.holds()
}

/// Describes where a reason dropped most packets: function, interface and connection.
fn place(drops: &Drops, reason: &str) -> Option<String> {
    let places = || drops.places.iter().filter(|place| place.reason == reason);
    let first = places().max_by_key(|place| place.packets)?;
    let mut words = Vec::new();
    words.extend(first.function.as_ref().map(|name| format!("in {name}")));
    words.extend(first.interface.as_ref().map(|name| format!("at {name}")));
    words.extend(connection(first));
    (!words.is_empty()).then(|| words.join(" "))
}

fn connection(place: &DropPlace) -> Option<String> {
    let (from, to) = (place.from?, place.to?);
    Some(match from.port() {
        0 => format!("{} → {}", from.ip(), to.ip()),
        _ => format!("{from} → {to}"),
    })
}

struct Known {
    reason: &'static str,
    words: &'static str,
    action: &'static str,
    commands: &'static [&'static str],
}

const fn known(
    reason: &'static str,
    words: &'static str,
    action: &'static str,
    commands: &'static [&'static str],
) -> Known {
    Known { reason, words, action, commands }
}

/// The reasons that an administrator can act on.
const KNOWN: &[Known] = &[
    known(
        "NETFILTER_DROP",
        "by a rule of the packet filter",
        "Look for the rule whose counter grows",
        &["nft list ruleset | grep -B2 -A2 drop", "iptables-save -c | grep DROP"],
    ),
    known(
        "QDISC_DROP",
        "by a full queueing discipline",
        "Give the queue more rate or a longer limit, or send less",
        &["tc -s qdisc show"],
    ),
    known(
        "QDISC_OVERLIMIT",
        "by a queueing discipline over its limit",
        "Give the queue more rate or a longer limit, or send less",
        &["tc -s qdisc show"],
    ),
    known(
        "QDISC_CONGESTED",
        "by a queueing discipline that manages congestion",
        "Change nothing if the delay is to be short; otherwise give the queue more rate",
        &["tc -s qdisc show"],
    ),
    known(
        "TCP_LISTEN_OVERFLOW",
        "by a full queue of a listener",
        "Accept faster, or raise the listener's queue",
        &["ss -lnt", "sysctl net.core.somaxconn"],
    ),
    known(
        "SECURITY_HOOK",
        "by a security module",
        "Look at the log of the security module",
        &["dmesg | tail", "ausearch -m avc"],
    ),
    known(
        "FULL_RING",
        "by a full ring of an interface",
        "Give the interface a longer ring, or its queue another core",
        &["ethtool -g IFACE"],
    ),
    known(
        "CPU_BACKLOG",
        "by a full queue of a core",
        "Spread the packets over more cores (RPS, RSS), or raise the limit",
        &["cat /proc/net/softnet_stat", "sysctl net.core.netdev_max_backlog"],
    ),
    known(
        "SOCKET_RCVBUFF",
        "by a full receive buffer of a socket",
        "Read faster, or give the socket a larger buffer",
        &["ss -uamp", "sysctl net.core.rmem_max"],
    ),
    known(
        "SOCKET_BACKLOG",
        "by a full backlog of a socket",
        "Read faster: the program holds the socket while packets come",
        &["ss -tmp"],
    ),
    known(
        "PROTO_MEM",
        "because the protocol's memory is used up",
        "Raise the limit, or find the sockets that hold the memory",
        &["cat /proc/net/sockstat", "sysctl net.ipv4.tcp_mem net.ipv4.udp_mem"],
    ),
    known("NOMEM", "because the kernel had no memory", "Free memory", &["free -m", "dmesg | tail"]),
    known(
        "NO_SOCKET",
        "to ports that no program has opened",
        "Start the program, or stop the peer that sends",
        &["ss -lntup"],
    ),
    known(
        "UDP_CSUM",
        "with a wrong UDP checksum",
        "Look at the cable, the card and its checksum offload",
        &["ethtool -k IFACE | grep checksum", "ethtool -S IFACE"],
    ),
    known(
        "TCP_CSUM",
        "with a wrong TCP checksum",
        "Look at the cable, the card and its checksum offload",
        &["ethtool -k IFACE | grep checksum", "ethtool -S IFACE"],
    ),
    known(
        "IP_CSUM",
        "with a wrong IP checksum",
        "Look at the cable and the card",
        &["ethtool -S IFACE"],
    ),
    known(
        "ICMP_CSUM",
        "with a wrong ICMP checksum",
        "Look at the cable and the card",
        &["ethtool -S IFACE"],
    ),
    known(
        "SKB_CSUM",
        "with a wrong checksum",
        "Look at the cable, the card and its checksum offload",
        &["ethtool -S IFACE"],
    ),
    known(
        "IP_RPFILTER",
        "by the reverse-path filter",
        "Add the missing route to the source, or make the filter loose",
        &["ip route get SOURCE", "sysctl net.ipv4.conf.all.rp_filter"],
    ),
    known(
        "IP_INVALID_SOURCE",
        "with a source address that no host can have",
        "Find the sender by its link-layer address",
        &["tcpdump -nei IFACE"],
    ),
    known(
        "IP_LOCAL_SOURCE",
        "with an address of this machine as their source",
        "Look for a loop or a second host with this address",
        &["ip -br address", "arping -D -I IFACE ADDRESS"],
    ),
    known(
        "IP_LOCALNET",
        "with a loopback address from outside",
        "Find the sender by its link-layer address",
        &["tcpdump -nei IFACE net 127.0.0.0/8"],
    ),
    known(
        "IP_INVALID_DEST",
        "with a destination that no host can have",
        "Find the sender by its link-layer address",
        &["tcpdump -nei IFACE"],
    ),
    known(
        "IP_INHDR",
        "with a malformed IP header or an expired time to live",
        "Look for a loop of routes, or for the sender by its link-layer address",
        &["ip route get ADDRESS", "tcpdump -nei IFACE"],
    ),
    known("IP_OUTNOROUTES", "without a route", "Add the route", &["ip route get ADDRESS"]),
    known(
        "IP_INNOROUTES",
        "without a route",
        "Add the route, or switch forwarding on",
        &["ip route get ADDRESS", "sysctl net.ipv4.ip_forward"],
    ),
    known(
        "IP_INADDRERRORS",
        "to an address that this machine neither has nor forwards to",
        "Add the address, or switch forwarding on",
        &["ip -br address", "sysctl net.ipv4.ip_forward"],
    ),
    known(
        "PKT_TOO_BIG",
        "larger than the MTU of the next link",
        "Let ICMP pass, or make the MTUs equal",
        &["ip link show", "tracepath ADDRESS"],
    ),
    known(
        "NEIGH_FAILED",
        "because the next hop does not answer",
        "Check that the next hop is on and in this network",
        &["ip neigh show", "arping ADDRESS"],
    ),
    known(
        "NEIGH_QUEUEFULL",
        "while the next hop does not answer",
        "Check that the next hop is on and in this network",
        &["ip neigh show"],
    ),
    known(
        "NEIGH_CREATEFAIL",
        "because the table of neighbours is full",
        "Raise the limits of the table",
        &["sysctl net.ipv4.neigh.default.gc_thresh3"],
    ),
    known(
        "NEIGH_DEAD",
        "to a neighbour that was removed",
        "Find the program that removes neighbours",
        &["ip monitor neigh"],
    ),
    known(
        "TC_INGRESS",
        "by a filter at the ingress of an interface",
        "Look at the filters",
        &["tc -s filter show dev IFACE ingress"],
    ),
    known(
        "TC_EGRESS",
        "by a filter at the egress of an interface",
        "Look at the filters",
        &["tc -s filter show dev IFACE egress"],
    ),
    known("XDP", "by an XDP program", "Look at the program", &["ip link show", "bpftool net"]),
    known(
        "BPF_CGROUP_EGRESS",
        "by a BPF program of a control group",
        "Look at the program",
        &["bpftool cgroup tree"],
    ),
    known(
        "SOCKET_FILTER",
        "by a filter of a socket",
        "Look at the program that set the filter",
        &["ss -b"],
    ),
    known(
        "XFRM_POLICY",
        "by an IPsec policy",
        "Look at the policies",
        &["ip xfrm policy", "cat /proc/net/xfrm_stat"],
    ),
    known(
        "TCP_ZEROWINDOW",
        "beyond a closed receive window",
        "Let the program read faster",
        &["ss -tmp"],
    ),
    known(
        "TCP_OVERWINDOW",
        "beyond the receive window",
        "Let the program read faster",
        &["ss -tmp"],
    ),
    known(
        "TCP_OFO_QUEUE_PRUNE",
        "because out-of-order data fills the receive buffer",
        "Raise the receive buffer; look for the loss that leaves the gaps",
        &["sysctl net.ipv4.tcp_rmem"],
    ),
    known(
        "TCP_OFOMERGE",
        "that arrived twice",
        "Look for a path that duplicates packets",
        &["nstat -az TcpExtTCPDSACKRecv"],
    ),
    known(
        "TCP_RFC7323_PAWS",
        "with an old timestamp",
        "Look for hosts behind one address with clocks of their own",
        &["nstat -az TcpExtPAWSEstab"],
    ),
    known("TCP_MD5NOTFOUND", "without the TCP MD5 signature", "Compare the keys of both ends", &[]),
    known("TCP_MD5FAILURE", "with a wrong TCP MD5 signature", "Compare the keys of both ends", &[]),
    known(
        "DUP_FRAG",
        "as fragments that came twice",
        "Lower the MTU or the size of datagrams, so that nothing is fragmented",
        &["nstat -az IpReasmFails"],
    ),
    known(
        "FRAG_REASM_TIMEOUT",
        "as fragments whose rest never came",
        "Lower the MTU or the size of datagrams, so that nothing is fragmented",
        &["nstat -az IpReasmFails"],
    ),
    known(
        "FRAG_TOO_FAR",
        "as fragments far out of order",
        "Look for a path that reorders fragments",
        &["nstat -az IpReasmFails"],
    ),
    known(
        "IPV6DISABLED",
        "because IPv6 is off",
        "Switch IPv6 on, or stop the peer that uses it",
        &["sysctl net.ipv6.conf.all.disable_ipv6"],
    ),
    known("DEV_READY", "because an interface is down", "Bring the interface up", &["ip link show"]),
    known(
        "IP_NOPROTO",
        "of a protocol that this machine does not have",
        "Load the protocol, or stop the peer that sends",
        &["tcpdump -nei IFACE"],
    ),
    known(
        accel::drops::OTHER_SUBSYSTEM,
        "by Wi-Fi, Open vSwitch or another subsystem",
        "Look at the subsystem's own counters",
        &["iw dev IFACE station dump", "ovs-dpctl show --statistics", "ethtool -S IFACE"],
    ),
];

const SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::{Question, diagnose};

    fn sketch(reasons: &[(&str, u64)]) -> crate::Recording {
        let mut recording = Sketch::idle().recording().clone();
        let place = DropPlace {
            reason: "NETFILTER_DROP".to_owned(),
            packets: 90,
            interface: Some("eth0".to_owned()),
            function: Some("nft_do_chain".to_owned()),
            protocol: Some(6),
            from: "10.0.0.2:999".parse().ok(),
            to: "10.0.0.1:80".parse().ok(),
        };
        let reasons = reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        recording.periods[0].drops = Some(Drops { reasons, places: vec![place] });
        recording
    }

    #[test]
    fn kernel_drops_have_location_and_advice_but_explain_no_limit() {
        let recording =
            sketch(&[("NETFILTER_DROP", 90), ("STRANGE_REASON", 30), ("OTHERHOST", 999)]);
        let diagnosis = diagnose(&recording, Question::Machine);
        let found = &diagnosis.periods[0].machine;
        let found = found.iter().find(|one| one.cause == "kernel-drops").unwrap();
        assert_eq!(found.finding.explains, None);
        let told = "90 by a rule of the packet filter (in nft_do_chain at eth0 10.0.0.2:999 → 10.0.0.1:80)";
        assert!(found.finding.sentence.ends_with(told), "{}", found.finding.sentence);
        assert_eq!(found.finding.evidence.len(), 2);
        assert!(found.finding.advice[0].commands[0].starts_with("nft "));
        let brief = crate::output::text(&diagnosis, 80, false);
        assert!(brief.contains("Drops: "), "{brief}");
    }

    #[test]
    fn usual_reasons_and_few_packets_are_no_fault() {
        let recording = sketch(&[("OTHERHOST", 9999), ("NETFILTER_DROP", 9)]);
        let diagnosis = diagnose(&recording, Question::Machine);
        let is_told = |one: &crate::Found| one.cause == "kernel-drops";
        assert!(!diagnosis.periods[0].machine.iter().any(is_told), "{diagnosis:?}");
    }

    #[test]
    fn drops_of_a_subsystem_get_the_advice_to_read_its_counters() {
        let recording = sketch(&[("OTHER_SUBSYSTEM", 30)]);
        let diagnosis = diagnose(&recording, Question::Machine);
        let found = &diagnosis.periods[0].machine;
        let found = &found.iter().find(|one| one.cause == "kernel-drops").unwrap().finding;
        let told = "30 by Wi-Fi, Open vSwitch or another subsystem";
        assert!(found.sentence.ends_with(told), "{}", found.sentence);
        assert_eq!(found.advice[0].action, "Look at the subsystem's own counters");
    }

    #[test]
    fn each_known_reason_is_listed_once() {
        for one in KNOWN {
            let same = KNOWN.iter().filter(|other| other.reason == one.reason);
            assert_eq!(same.count(), 1, "{}", one.reason);
            let reasons = [(one.reason.to_owned(), Drops::FEW)].into();
            let drops = Drops { reasons, ..Drops::default() };
            assert_eq!(drops.faults().count(), 1, "{}", one.reason);
        }
    }
}
