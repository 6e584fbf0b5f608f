use super::connections::add;
use crate::recording::{
    Conntrack, CoreTimes, InterfaceCounters, Qdisc, Sample, SocketMemory, Softnet, Stall,
    UdpSocket, Unseen,
};
use probe::ProbeError;
use probe::cpu::CpuSnapshot;
use probe::interface::InterfaceSnapshot;
use probe::pressure::PressureSnapshot;
use probe::qdisc::QdiscSnapshot;
use probe::snmp::SnmpSnapshot;
use probe::softirqs::SoftirqSnapshot;
use probe::softnet::SoftnetSnapshot;
use probe::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

type Missing<'a> = &'a mut BTreeSet<Unseen>;

/// Reads every counter that only grows, of the machine and its interfaces.
pub(super) fn read(tree: &Tree, sample: &mut Sample, unseen: Missing<'_>) {
    take(unseen, "CPU time", cores(tree), |cores| sample.cores = cores);
    take(unseen, "the receive backlog of cores", softnet(tree), |all| sample.softnet = all);
    take(unseen, "soft interrupts", net_rx(tree), |all| sample.net_rx = all);
    take(unseen, "counters of IP, TCP and UDP", counters(tree), |all| sample.counters = all);
    take(unseen, "UDP sockets", udp(tree), |all| sample.udp = all);
    take(unseen, "memory of TCP sockets", memory(tree), |memory| {
        sample.socket_memory = Some(memory);
    });
    for resource in ["cpu", "io", "memory"] {
        let stall = pressure(tree, resource);
        take(unseen, "pressure stall information", stall, |stall| {
            sample.pressure.insert(resource.to_owned(), stall);
        });
    }
    // A kernel without connection tracking does not limit the number of connections.
    sample.conntrack = conntrack(tree);
    if tree.is_here() {
        interfaces(tree, sample, unseen);
    }
}

fn take<T>(unseen: Missing<'_>, what: &str, read: Result<T, ProbeError>, keep: impl FnOnce(T)) {
    match read {
        Ok(value) => keep(value),
        Err(error) => add(unseen, what, &error),
    }
}

fn cores(tree: &Tree) -> Result<BTreeMap<usize, CoreTimes>, ProbeError> {
    let snapshot = CpuSnapshot::parse(&tree.text("/proc/stat")?, probe::clock::tick())?;
    let cores = snapshot.cores.into_iter().map(|(core, times)| {
        let times = CoreTimes {
            user: times.user + times.nice,
            system: times.system,
            idle: times.idle,
            iowait: times.iowait,
            irq: times.irq,
            softirq: times.softirq,
            steal: times.steal,
        };
        (core, times)
    });
    Ok(cores.collect())
}

fn softnet(tree: &Tree) -> Result<BTreeMap<usize, Softnet>, ProbeError> {
    let snapshot = SoftnetSnapshot::parse(&tree.text(&net(tree, "softnet_stat"))?)?;
    let cores = snapshot.cores.into_iter().map(|(core, counts)| {
        let counts = Softnet {
            processed: counts.processed,
            dropped: counts.dropped,
            squeezed: counts.time_squeeze,
        };
        (core, counts)
    });
    Ok(cores.collect())
}

fn net_rx(tree: &Tree) -> Result<BTreeMap<usize, u64>, ProbeError> {
    let text = tree.text("/proc/softirqs")?;
    // The file has a row for each type of soft interrupt and a column for each core: only the
    // heading and one row are parsed.
    let is_kept = |(at, line): &(usize, &str)| *at == 0 || line.trim_start().starts_with("NET_RX:");
    let kept: Vec<&str> = text.lines().enumerate().filter(is_kept).map(|(_, line)| line).collect();
    let snapshot = SoftirqSnapshot::parse(&kept.join("\n"))?;
    Ok(snapshot.counts("NET_RX").cloned().unwrap_or_default())
}

fn counters(tree: &Tree) -> Result<BTreeMap<String, u64>, ProbeError> {
    let snmp = tree.text(&net(tree, "snmp"))?;
    let netstat = tree.text(&net(tree, "netstat"))?;
    let snmp6 = tree.text(&net(tree, "snmp6")).unwrap_or_default();
    let mut chosen = SnmpSnapshot::parse_only(&WANTED, &snmp, &netstat, &snmp6)?.into_values();
    // A virtual server (IPVS) passes packets on, which count as neither delivered nor forwarded.
    if tree.has(&net(tree, "ip_vs")) {
        chosen.remove("IpInReceives");
    }
    // Only the machine's own network namespace has the counters of the neighbour tables.
    let tables =
        ["arp_cache", "ndisc_cache"].map(|name| tree.text(&net(tree, &format!("stat/{name}"))));
    let full = tables.iter().flatten().filter_map(|text| {
        // The file has the format of `/proc/net/stat/nf_conntrack`.
        probe::conntrack::parse(text).get("table_fulls").copied()
    });
    if let Some(full) = full.reduce(u64::saturating_add) {
        chosen.insert("NeighbourTableFull".to_owned(), full);
    }
    Ok(chosen)
}

fn udp(tree: &Tree) -> Result<Vec<UdpSocket>, ProbeError> {
    let mut sockets = Vec::new();
    for name in ["udp", "udp6"] {
        match tree.text(&net(tree, name)) {
            Ok(text) => {
                sockets.extend(probe::udp::parse(&text).into_iter().map(|socket| UdpSocket {
                    local: socket.local,
                    remote: socket.remote,
                    inode: socket.inode,
                    holders: Vec::new(),
                    receive_queue: socket.receive_queue,
                    drops: socket.drops,
                }))
            }
            // The kernel has no IPv6.
            Err(_) if name == "udp6" => {}
            Err(error) => return Err(error),
        }
    }
    sockets.sort_by_key(|socket| std::cmp::Reverse((socket.drops, socket.receive_queue)));
    let queries: Vec<_> = sockets
        .iter()
        .skip(MOST_UDP)
        .filter(|socket| socket.asks_for_names())
        .take(MOST_UDP)
        .cloned()
        .collect();
    sockets.truncate(MOST_UDP);
    sockets.extend(queries);
    Ok(sockets)
}

fn memory(tree: &Tree) -> Result<SocketMemory, ProbeError> {
    let text = tree.text(&net(tree, "sockstat"))?;
    let used = text.lines().find_map(|line| line.strip_prefix("TCP:")).and_then(|line| {
        let mut words = line.split_ascii_whitespace();
        words.find(|word| *word == "mem")?;
        words.next()?.parse().ok()
    });
    let limits = tree.text("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
    let limit = |column| limits.split_ascii_whitespace().nth(column)?.parse().ok();
    Ok(SocketMemory {
        used: used.unwrap_or(0),
        pressure: limit(1).unwrap_or(0),
        most: limit(2).unwrap_or(0),
    })
}

fn pressure(tree: &Tree, resource: &str) -> Result<Stall, ProbeError> {
    let snapshot = PressureSnapshot::parse(&tree.text(&format!("/proc/pressure/{resource}"))?)?;
    Ok(Stall { some: snapshot.some.total, full: snapshot.full.map(|full| full.total) })
}

fn conntrack(tree: &Tree) -> Option<Conntrack> {
    let setting = |name: &str| tree.number(&format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
    let entries = setting("count")?;
    let statistics = tree.text(&net(tree, "stat/nf_conntrack")).unwrap_or_default();
    let counts = probe::conntrack::parse(&statistics);
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    Some(Conntrack {
        entries: Some(entries),
        most: setting("max"),
        insert_failed: count("insert_failed"),
        dropped: count("drop"),
        early_dropped: count("early_drop"),
    })
}

fn interfaces(tree: &Tree, sample: &mut Sample, unseen: Missing<'_>) {
    let snapshot = match InterfaceSnapshot::read() {
        Ok(snapshot) => snapshot,
        Err(error) => return add(unseen, "interfaces", &error),
    };
    for (name, interface) in snapshot.interfaces.iter().take(MOST_INTERFACES) {
        let (received, sent) = (interface.counters.received, interface.counters.sent);
        // A host of containers has hundreds of veth interfaces, which have no device.
        let may_have_device = interface.kind.as_deref() != Some("veth");
        let driver = match may_have_device && tree.has(&format!("/sys/class/net/{name}/device")) {
            true => probe::ethtool::statistics(name).unwrap_or_default(),
            false => BTreeMap::new(),
        };
        let counters = InterfaceCounters {
            received: received.bytes,
            received_packets: received.packets,
            received_errors: received.errors,
            received_drops: received.drops,
            sent: sent.bytes,
            sent_packets: sent.packets,
            sent_errors: sent.errors,
            sent_drops: sent.drops,
            carrier_changes: interface.carrier_changes,
            driver,
        };
        sample.interfaces.insert(name.clone(), counters);
    }
    take(unseen, "queueing disciplines", QdiscSnapshot::read(), |queues| {
        let names = snapshot.interfaces.iter().map(|(name, one)| (one.index, name));
        let names: HashMap<u32, &String> = names.collect();
        let queues = queues.qdiscs.iter().filter(|qdisc| qdisc.kind != "noqueue");
        let known = queues.filter_map(|qdisc| {
            Some(Qdisc {
                interface: (*names.get(&qdisc.interface)?).clone(),
                kind: qdisc.kind.clone(),
                handle: qdisc.handle.to_string(),
                sent: qdisc.counters.bytes,
                drops: qdisc.counters.drops,
                overlimits: qdisc.counters.overlimits,
                backlog: qdisc.backlog,
                flow_limit: qdisc.flow_limit,
            })
        });
        sample.qdiscs = known.take(MOST_QDISCS).collect();
    });
}

/// Returns the path of a file of the calling thread's namespace. `/proc/net` shows the namespace of
/// the process's main thread.
fn net(tree: &Tree, name: &str) -> String {
    match tree.is_here() {
        true => format!("/proc/thread-self/net/{name}"),
        false => format!("/proc/net/{name}"),
    }
}

static WANTED: LazyLock<BTreeSet<&str>> = LazyLock::new(|| COUNTERS.iter().copied().collect());
const MOST_UDP: usize = 16;
const MOST_QDISCS: usize = 256;
const MOST_INTERFACES: usize = 256;
const COUNTERS: &[&str] = &[
    "IpExtInNoRoutes",
    "IpExtInTruncatedPkts",
    "IpForwDatagrams",
    "IpInAddrErrors",
    "IpInDelivers",
    "IpInDiscards",
    "IpInHdrErrors",
    "IpInReceives",
    "IpInUnknownProtos",
    "IpOutDiscards",
    "IpOutNoRoutes",
    "IpFragFails",
    "IpReasmFails",
    "IpReasmOKs",
    "IpReasmReqds",
    "Ip6ReasmFails",
    "Ip6ReasmOKs",
    "Ip6ReasmReqds",
    "IcmpInDestUnreachs",
    "Icmp6InDestUnreachs",
    "IcmpInTimeExcds",
    "Icmp6InTimeExcds",
    "TcpActiveOpens",
    "TcpAttemptFails",
    "TcpEstabResets",
    "TcpInCsumErrors",
    "TcpInErrs",
    "TcpInSegs",
    "TcpOutSegs",
    "TcpPassiveOpens",
    "TcpRetransSegs",
    "TcpExtEmbryonicRsts",
    "TcpExtIPReversePathFilter",
    "TcpExtListenDrops",
    "TcpExtListenOverflows",
    "TcpExtOfoPruned",
    "TcpExtPruneCalled",
    "TcpExtRcvPruned",
    "TcpExtTCPAbortOnClose",
    "TcpExtTCPAbortOnData",
    "TcpExtTCPAbortOnLinger",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPAbortOnTimeout",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPDSACKOfoSent",
    "TcpExtTCPDSACKOldSent",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPDSACKUndo",
    "TcpExtTCPFullUndo",
    "TcpExtTCPLossUndo",
    "TcpExtTCPMemoryPressures",
    "TcpExtTCPPartialUndo",
    "TcpExtTCPRcvCollapsed",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPRetransFail",
    "TcpExtTCPSpuriousRTOs",
    "TcpExtTCPSynRetrans",
    "TcpExtTCPTimeouts",
    "TcpExtTCPToZeroWindowAdv",
    "TcpExtTCPWantZeroWindowAdv",
    "TcpExtTCPZeroWindowDrop",
    "UdpInCsumErrors",
    "UdpInDatagrams",
    "UdpInErrors",
    "UdpNoPorts",
    "UdpOutDatagrams",
    "UdpRcvbufErrors",
    "UdpSndbufErrors",
    "UdpMemErrors",
    "Udp6InCsumErrors",
    "Udp6InDatagrams",
    "Udp6NoPorts",
    "Udp6OutDatagrams",
    "Udp6RcvbufErrors",
    "Udp6SndbufErrors",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_this_machine_are_read() {
        let (mut sample, mut unseen) = (Sample::default(), BTreeSet::new());
        read(&Tree::here(), &mut sample, &mut unseen);
        assert!(!sample.cores.is_empty() && !sample.interfaces.is_empty(), "{unseen:?}");
        assert!(sample.counters.contains_key("TcpRetransSegs"));
    }

    #[test]
    fn files_that_cannot_be_read_are_listed_as_unseen() {
        let (mut sample, mut unseen) = (Sample::default(), BTreeSet::new());
        read(&Tree::at("/nowhere"), &mut sample, &mut unseen);
        assert_eq!(sample, Sample::default());
        assert!(unseen.iter().any(|one| one.what == "CPU time"), "{unseen:?}");
    }
}
