use super::connections::add;
use crate::recording::{
    Bus, Clock, Interface, InterruptPlace, LinkModes, Machine, Neighbour, Offloads, Path, Queue,
    Rings, Unseen,
};
use probe::ProbeError;
use probe::device::Device;
use probe::ethtool;
use probe::interface::InterfaceSnapshot;
use probe::tree::Tree;
use std::collections::BTreeSet;
use std::net::IpAddr;
use units::Rate;

pub(super) fn cores(tree: &Tree) -> Result<Vec<usize>, ProbeError> {
    let text = tree.text("/proc/stat")?;
    let core = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    Ok(text.lines().filter_map(core).collect())
}

/// Reads the facts of the machine. Callers take the samples first, so that this work does not
/// disturb the measurement.
pub(super) fn read(
    tree: &Tree,
    peers: &BTreeSet<IpAddr>,
    machine: &mut Machine,
    unseen: &mut BTreeSet<Unseen>,
) {
    machine.kernel = tree.line("/proc/sys/kernel/osrelease").unwrap_or_default();
    match cores(tree) {
        Ok(cores) => machine.cores = cores,
        Err(error) => add(unseen, "the number of cores", &error),
    }
    machine.virtual_machine = tree
        .text("/proc/cpuinfo")
        .ok()
        .and_then(|text| Some(text.lines().find(|line| line.starts_with("flags"))?.to_owned()))
        .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    for core in &machine.cores {
        if let Some(frequency) = probe::cpufreq::of(tree, *core) {
            let hertz = |khz: Option<u64>| khz.map(|khz| khz.saturating_mul(1000));
            let clock = Clock {
                now_hz: hertz(frequency.now_khz),
                most_hz: hertz(frequency.most_khz),
                limit_hz: hertz(frequency.limit_khz),
                governor: frequency.governor,
            };
            machine.clocks.insert(*core, clock);
        }
    }
    if machine.clocks.is_empty() && !machine.cores.is_empty() {
        let reason = "this system does not show it; a virtual machine's host controls it";
        unseen
            .insert(Unseen { what: "the cores' frequency".to_owned(), reason: reason.to_owned() });
    }
    for name in SETTINGS {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if let Ok(text) = tree.text(&path) {
            let value = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            machine.sysctls.insert((*name).to_owned(), value);
        }
    }
    if tree.is_here() {
        live(tree, peers, machine, unseen);
    } else {
        for name in tree.names("/sys/class/net").unwrap_or_default() {
            let mut interface = Interface::default();
            add_device(tree, &name, &mut interface);
            machine.interfaces.insert(name, interface);
        }
    }
}

fn live(
    tree: &Tree,
    peers: &BTreeSet<IpAddr>,
    machine: &mut Machine,
    unseen: &mut BTreeSet<Unseen>,
) {
    let snapshot = match InterfaceSnapshot::read() {
        Ok(snapshot) => snapshot,
        Err(error) => return add(unseen, "interfaces", &error),
    };
    for (name, found) in snapshot.interfaces.iter().take(MOST_INTERFACES) {
        let mut interface = Interface {
            index: found.index,
            kind: found.kind.clone(),
            enabled: found.enabled,
            state: format!("{:?}", found.state).to_lowercase(),
            mtu: found.mtu,
            ..Interface::default()
        };
        // In another network namespace /sys may still show the interfaces of the machine's first
        // namespace.
        if tree.number(&format!("/sys/class/net/{name}/ifindex")) == Some(found.index.into()) {
            add_device(tree, name, &mut interface);
        }
        if interface.device || interface.kind.is_some() {
            add_ethtool(name, &mut interface, unseen);
        }
        machine.interfaces.insert(name.clone(), interface);
    }
    for peer in peers.iter().take(MOST_PEERS) {
        let path = match probe::path::to(*peer) {
            Ok(Some(route)) => Path {
                interface: route
                    .interface
                    .and_then(|index| Some(snapshot.name_of(index)?.to_owned())),
                gateway: route.gateway,
                local: route.local,
                mtu: route.mtu,
                window: route.window,
                congestion_window: route.congestion_window,
                initial_window: route.initial_window,
                refused: route.blocked.then(|| BLOCKED.to_owned()),
            },
            Ok(None) => Path { refused: Some("there is no route".to_owned()), ..Path::default() },
            Err(error) => {
                add(unseen, "the route to a peer", &error);
                continue;
            }
        };
        machine.paths.insert(*peer, path);
    }
    match probe::path::silent_neighbours() {
        Ok(neighbours) => {
            let named = neighbours.into_iter().filter_map(|neighbour| {
                Some(Neighbour {
                    address: neighbour.address,
                    interface: snapshot.name_of(neighbour.interface)?.to_owned(),
                    state: if neighbour.failed { "failed" } else { "incomplete" }.to_owned(),
                })
            });
            machine.neighbours = named.take(MOST_PEERS).collect();
        }
        Err(error) => add(unseen, "neighbours", &error),
    }
}

fn add_device(tree: &Tree, name: &str, interface: &mut Interface) {
    let device = Device::read(tree, name);
    interface.device = device.is_there;
    interface.driver = device.driver;
    interface.speed = device.speed_mbit.filter(|mbit| *mbit < 10_000_000).map(Rate::from_mbit);
    interface.full_duplex = device.full_duplex;
    interface.bus = device.bus.map(|bus| Bus {
        speed: bus.speed,
        speed_most: bus.speed_most,
        width: bus.width,
        width_most: bus.width_most,
    });
    interface.queues = device
        .queues
        .into_iter()
        .map(|(name, queue)| (name, Queue { cores: queue.cores, flows: queue.flows }))
        .collect();
    interface.interrupts = device
        .interrupts
        .into_iter()
        .map(|interrupt| InterruptPlace {
            number: interrupt.number,
            name: units::foreign(interrupt.name).to_string(),
            cores: interrupt.cores,
        })
        .collect();
}

fn add_ethtool(name: &str, interface: &mut Interface, unseen: &mut BTreeSet<Unseen>) {
    match ethtool::link(name) {
        Ok(link) => {
            interface.speed = link.speed.or(interface.speed);
            interface.full_duplex = link.full_duplex.or(interface.full_duplex);
            interface.modes = Some(LinkModes {
                negotiates: link.negotiates,
                supported_most: link.supported_most,
                advertised_most: link.advertised_most,
                peer_most: link.peer_most,
            });
        }
        Err(error) if interface.device => add(unseen, &format!("link modes of {name}"), &error),
        Err(_) => {}
    }
    if interface.driver.is_none() {
        interface.driver = ethtool::driver(name).ok().map(|driver| driver.name);
    }
    interface.rings = ethtool::rings(name).ok().map(|rings| Rings {
        receive: rings.receive,
        receive_most: rings.receive_most,
        transmit: rings.transmit,
        transmit_most: rings.transmit_most,
    });
    if let Ok(channels) = ethtool::channels(name) {
        interface.channels = Some(channels.now);
        interface.channels_most = Some(channels.most);
    }
    if let Ok(coalescing) = ethtool::coalescing(name) {
        interface.coalesce_usecs = Some(coalescing.receive_usecs);
        interface.coalesce_frames = Some(coalescing.receive_frames);
    }
    let offloads = ethtool::offloads(name);
    interface.offloads = Some(Offloads {
        segmentation: offloads.segmentation,
        generic_segmentation: offloads.generic_segmentation,
        generic_receive: offloads.generic_receive,
        transmit_checksum: offloads.transmit_checksum,
        receive_checksum: offloads.receive_checksum,
        scatter_gather: offloads.scatter_gather,
        fixed: Vec::new(),
    });
    if interface.device && interface.speed.is_none() {
        unseen.insert(Unseen {
            what: format!("the speed of {name}"),
            reason: format!(
                "its driver{} does not report one",
                interface.driver.as_ref().map_or_else(String::new, |name| format!(" ({name})"))
            ),
        });
    }
}

const BLOCKED: &str = "the route is of the type unreachable, prohibit or blackhole";
const MOST_INTERFACES: usize = 256;
const MOST_PEERS: usize = 256;
const SETTINGS: &[&str] = &[
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_default_ttl",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.conf.all.rp_filter",
];
