//! The network of one cell: a namespace per host, and an emulated link or a plain cable between
//! each pair of linked hosts.

use super::thief::Thief;
use super::validity::LatenessBound;
use crate::bench::LabFile;
use crate::model::Failure;
use crate::model::file::{Disturbance, Ends, LinkSettings, Medium, Pinning, Senders};
use emu::{Access, Cable, Direction, Emulator, EmulatorStatistics, Scheduling};
use host::{Address, HostError, Namespace, Sysctl};
use indexmap::IndexMap;
use port::Port;
use probe::interface::InterfaceSnapshot;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use units::Time;

/// The CPUs that the emulated links and the workloads run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuPlan {
    /// The emulator's own CPU. `None` without an emulator, and on a machine with a single CPU,
    /// which the emulator has to share.
    pub emulator: Option<usize>,
    pub workload: Vec<usize>,
    /// The workload's CPUs for the programs in the sending host and in the receiving host.
    pub from: Vec<usize>,
    pub to: Vec<usize>,
    /// Whether the kernel grants the emulator real-time scheduling.
    pub real_time: bool,
}

/// The network of a cell. Dropping this value takes the network down.
#[derive(Debug)]
pub(crate) struct Testbed {
    hosts: IndexMap<String, Host>,
    /// The emulator of the links. `None` if all links are plain cables.
    emulator: Option<Emulator>,
    /// The names of the emulator's links, in the emulator's order.
    cables: Vec<String>,
    started: Time,
    lateness: LatenessBound,
    _thief: Option<Thief>,
    /// The namespace with the inner ends of the emulated links, which exists as long as this value.
    _wires: Option<Namespace>,
}

#[derive(Debug)]
struct Host {
    /// The host's name in the lab file. A further sender of an incast has the name of the first
    /// sender.
    role: String,
    namespace: Namespace,
    /// For each link, the neighbour's name and this host's own address on the link.
    links: Vec<(String, IpAddr)>,
}

impl CpuPlan {
    /// Gives the emulator, if the lab needs one, the last CPU: interrupts and most other work
    /// prefer the first CPU.
    pub(crate) fn for_lab(lab: &LabFile) -> Self {
        let mut cpus = host::online_cpus();
        let (mut emulator, mut real_time) = (None, false);
        if lab.is_emulated() {
            let own = cpus.len() > 1 && !lab.kind().host_setup().shared_cpus;
            emulator = if own { cpus.pop() } else { None };
            let tried = std::thread::scope(|scope| scope.spawn(host::real_time).join());
            real_time = matches!(tried, Ok(Ok(())));
        }
        let (from, to) = match (lab.workload.get_ref().pin, cpus.as_slice()) {
            // On most machines the first two CPUs are one core's threads or share a cache. The last
            // CPU is far from the first.
            (Pinning::Apart, [first, .., last]) => (vec![*first], vec![*last]),
            (Pinning::Halves, [_, _, ..]) => {
                let (from, to) = cpus.split_at(cpus.len() / 2);
                (from.to_vec(), to.to_vec())
            }
            _ => (cpus.clone(), cpus.clone()),
        };
        Self { emulator, workload: cpus, from, to, real_time }
    }

    /// Returns the scheduling of an emulator on a machine between the hosts, which runs no
    /// workload.
    pub(crate) fn scheduling_of_emulator() -> Scheduling {
        let cpus = host::online_cpus();
        let emulator = cpus.last().copied().filter(|_| cpus.len() > 1);
        let tried = std::thread::scope(|scope| scope.spawn(host::real_time).join());
        let real_time = matches!(tried, Ok(Ok(())));
        let (from, to) = (Vec::new(), Vec::new());
        scheduling(&Self { emulator, workload: cpus, from, to, real_time })
    }

    /// Returns the CPUs of a host's programs and of its packets.
    fn of_host(&self, host: &str, ends: &Ends) -> &[usize] {
        match host {
            host if host == ends.from => &self.from,
            host if host == ends.to => &self.to,
            _ => &self.workload,
        }
    }

    /// Whether the sending and the receiving host have CPUs of their own.
    pub(crate) fn is_apart(&self) -> bool {
        self.from != self.to
    }
}

impl Testbed {
    pub(crate) fn build(
        lab: &LabFile,
        ends: &Ends,
        links: Vec<LinkSettings>,
        settings: &IndexMap<String, String>,
        disturbance: Disturbance,
        seed: u64,
        cpus: &CpuPlan,
    ) -> Result<Self, Failure> {
        let lateness = LatenessBound::of(links.iter().filter_map(LinkSettings::round_trip));
        let wires = match lab.is_emulated() {
            true => Some(host::silent_namespace("wires")?),
            false => None,
        };
        let setup = lab.kind().host_setup();
        let is_reached = |name: &String| links.iter().any(|link| link.ends.contains(name));
        let mut hosts = IndexMap::new();
        for name in &lab.hosts {
            if setup.only_linked && !is_reached(name.get_ref()) {
                continue;
            }
            let namespace = Namespace::create(name.get_ref())?;
            if setup.without_ipv6 {
                silence_ipv6(&namespace)?;
            }
            let role = name.get_ref().clone();
            hosts.insert(role.clone(), Host { role, namespace, links: Vec::new() });
        }
        let mut cables = Vec::with_capacity(links.len());
        for (number, link) in links.into_iter().enumerate() {
            cables.extend(lay(wires.as_ref(), &mut hosts, number, link, seed)?);
        }
        for host in hosts.values() {
            if !setup.without_steering && cpus.emulator.is_some() {
                spare_the_emulator(host, cpus.of_host(&host.role, ends));
            }
            host.namespace.run(|| {
                settings.iter().try_for_each(|(name, value)| {
                    host::write_sysctl(&Sysctl { name: name.clone(), value: value.clone() })
                })
            })?;
        }
        let names = cables.iter().map(|cable| cable.name.clone()).collect();
        let emulator = match cables.is_empty() {
            true => None,
            false => {
                let scheduling = Scheduling { stalls: disturbance.stalls, ..scheduling(cpus) };
                Some(Emulator::start(cables, scheduling)?)
            }
        };
        let thief = disturbance.stolen.map(|stolen| Thief::start(stolen, &cpus.workload));
        let started = probe::clock::now();
        Ok(Self { hosts, emulator, cables: names, started, lateness, _thief: thief, _wires: wires })
    }

    /// Returns a new handle of the namespace of `host`.
    pub(crate) fn namespace(&self, host: &str) -> Result<Namespace, HostError> {
        namespace(&self.hosts, host)
    }

    /// Returns the interfaces of `host` that lead to its neighbours, or the loopback of a host
    /// without neighbours.
    pub(crate) fn interfaces(&self, host: &str) -> Vec<String> {
        match self.hosts.get(host).map_or(0, |host| host.links.len()) {
            0 => vec!["lo".to_owned()],
            links => (0..links).map(|number| format!("eth{number}")).collect(),
        }
    }

    /// Returns the address at which the neighbour reaches `host`. For `host` itself, the loopback
    /// address.
    pub(crate) fn address(&self, host: &str, neighbour: &str) -> Result<IpAddr, HostError> {
        if host == neighbour {
            return Ok(Ipv4Addr::LOCALHOST.into());
        }
        self.hosts
            .get(host)
            .and_then(|host| host.links.iter().find(|(name, _)| name == neighbour))
            .map(|(_, address)| *address)
            .ok_or_else(|| HostError::NoSuchNamespace { name: host.to_owned() })
    }

    /// Returns the number N of the link on which `host` has the address `own`. The interface is
    /// `ethN`.
    pub(crate) fn link_of(&self, host: &str, own: IpAddr) -> Result<usize, HostError> {
        let found = self
            .hosts
            .get(host)
            .and_then(|host| host.links.iter().position(|(_, address)| *address == own));
        found.ok_or_else(|| HostError::NoSuchNamespace { name: host.to_owned() })
    }

    /// Sets the initial window of the connections from `host` to its neighbour, in segments.
    pub(crate) fn set_first_window(
        &self,
        host: &str,
        neighbour: &str,
        segments: u32,
    ) -> Result<(), HostError> {
        let missing = || HostError::NoSuchNamespace { name: host.to_owned() };
        let own = self.hosts.get(host).ok_or_else(missing)?;
        let place = own.links.iter().position(|(name, _)| name == neighbour).ok_or_else(missing)?;
        let far = self.address(neighbour, host)?;
        host::add_first_window(&own.namespace, &format!("eth{place}"), far, segments)
    }

    /// Changes the settings of the emulated link in the direction from `host` to its neighbour.
    /// Packets in the queue stay. `seed`: the step's seed.
    pub(crate) fn change(
        &self,
        host: &str,
        neighbour: &str,
        mut config: link::LinkConfig,
        seed: u64,
    ) -> Result<(), Failure> {
        let missing = || HostError::NoSuchNamespace { name: host.to_owned() };
        let forth = format!("{host}-{neighbour}");
        let back = format!("{neighbour}-{host}");
        let place = self.cables.iter().position(|name| *name == forth || *name == back);
        let (Some(place), Some(emulator)) = (place, &self.emulator) else {
            return Err(missing().into());
        };
        let forward = self.cables[place] == forth;
        config.seed = seed.wrapping_add(2 * place as u64 + u64::from(!forward));
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        Ok(emulator.handle().change(place, direction, config)?)
    }

    /// Returns the emulator's thread. The CPU time of this thread belongs to the lab and to no
    /// system.
    pub(crate) fn emulator_tid(&self) -> Option<u32> {
        self.emulator.as_ref().map(Emulator::tid)
    }

    /// Returns the bound on the lateness of the emulated links.
    pub(crate) fn lateness_bound(&self) -> LatenessBound {
        self.lateness
    }

    /// Whether the emulator's thread died.
    pub(crate) fn is_broken(&self) -> bool {
        self.emulator.as_ref().is_some_and(|emulator| !emulator.is_running())
    }

    /// Returns the start of the emulator's own clock, on the clock of `probe`.
    pub(crate) fn started(&self) -> Time {
        self.started
    }

    /// Takes the network down and returns the statistics of its emulated links.
    pub(crate) fn finish(self) -> Result<Option<EmulatorStatistics>, Failure> {
        Ok(self.emulator.map(Emulator::finish).transpose()?)
    }
}

/// Builds one link. A cable is a veth pair. An emulated link has two veth pairs from the hosts into
/// the namespace of the wires, with the emulator's ports on their inner interfaces.
fn lay(
    wires: Option<&Namespace>,
    hosts: &mut IndexMap<String, Host>,
    number: usize,
    link: LinkSettings,
    seed: u64,
) -> Result<Option<Cable>, Failure> {
    let LinkSettings { ends, mtu, interrupts, medium, senders, tpid, .. } = link;
    let ways = match (medium, wires) {
        (Medium::Emulated(ways), Some(wires)) => Some((ways, wires)),
        _ => None,
    };
    let inner = [format!("link{number}a"), format!("link{number}b")];
    let outer = [next_interface(hosts, &ends[0])?, next_interface(hosts, &ends[1])?];
    let near = |hosts: &IndexMap<String, Host>, side: usize| namespace(hosts, &ends[side]);
    match &ways {
        Some((_, wires)) => {
            for side in [0, 1] {
                let host = near(hosts, side)?;
                host::connect((&host, &outer[side]), (wires, &inner[side]), mtu)?;
            }
        }
        None => {
            let (a, b) = (near(hosts, 0)?, near(hosts, 1)?);
            host::connect((&a, &outer[0]), (&b, &outer[1]), mtu)?;
        }
    }
    for (side, end) in ends.iter().enumerate() {
        let far = ends[1 - side].clone();
        let Some(host) = hosts.get_mut(end) else {
            return Err(HostError::NoSuchNamespace { name: end.clone() }.into());
        };
        let [v4, v6] = addresses(number, side);
        host::add_address(&host.namespace, &outer[side], v4)?;
        if mtu >= IPV6_MTU && host.namespace.run(|| Ok(has_ipv6()))? {
            host::add_address(&host.namespace, &outer[side], v6)?;
        }
        host.links.push((far, v4.ip));
    }
    introduce(hosts, &ends, number, mtu)?;
    let Some((ways, wires)) = ways else { return Ok(None) };
    let (mut forward, mut backward) = (ways.forward.config, ways.backward.config);
    forward.seed = seed.wrapping_add(2 * number as u64);
    backward.seed = seed.wrapping_add(2 * number as u64 + 1);
    let access = match senders {
        None => None,
        Some(senders) => Some(gather(wires, hosts, (number, &ends), mtu, senders)?),
    };
    Ok(Some(Cable {
        name: format!("{}-{}", ends[0], ends[1]),
        a: Box::new(emu::open_own_port(wires, &inner[0])?),
        b: Box::new(emu::open_own_port(wires, &inner[1])?),
        forward,
        backward,
        interrupts,
        access,
        tpid,
    }))
}

/// Creates the further senders of an incast, each with a veth pair to the namespace of the wires.
fn gather(
    wires: &Namespace,
    hosts: &mut IndexMap<String, Host>,
    (number, ends): (usize, &[String; 2]),
    mtu: u32,
    senders: Senders,
) -> Result<Access, Failure> {
    let [role, far] = ends;
    if senders.count > MOST_SENDERS {
        let text = format!("an incast on a machine has at most {MOST_SENDERS} hosts: weir sim run");
        return Err(Failure::Workload(text));
    }
    let missing = |name: &str| HostError::NoSuchNamespace { name: name.to_owned() };
    let first = hosts.get(role).ok_or_else(|| missing(role))?;
    let outer = format!("eth{}", first.links.len().saturating_sub(1));
    let first = hardware(&first.namespace, &outer)?;
    let far_interface = hosts.get(far).map_or(0, |far| far.links.len().saturating_sub(1));
    let far_interface = format!("eth{far_interface}");
    let far_hardware = hardware(&namespace(hosts, far)?, &far_interface)?;
    let [to, _] = addresses(number, 1);
    let mut others: Vec<(Box<dyn Port>, [u8; 6])> = Vec::new();
    for sender in 1..senders.count {
        let name = Senders::name(role, sender);
        if hosts.contains_key(&name) {
            let text = format!("the lab has a host `{name}` of its own: give it another name");
            return Err(Failure::Workload(text));
        }
        let inside = Namespace::create(&name)?;
        silence_ipv6(&inside)?;
        let inner = format!("link{number}a{sender}");
        host::connect((&inside, FIRST_INTERFACE), (wires, &inner), mtu)?;
        // The two hosts of the link have the first two addresses of its network.
        let [own, _] = addresses(number, sender as usize + 1);
        host::add_address(&inside, FIRST_INTERFACE, own)?;
        let own_hardware = hardware(&inside, FIRST_INTERFACE)?;
        host::add_neighbour(&inside, FIRST_INTERFACE, to.ip, far_hardware)?;
        host::add_neighbour(&namespace(hosts, far)?, &far_interface, own.ip, own_hardware)?;
        others.push((Box::new(emu::open_own_port(wires, &inner)?), own_hardware));
        let links = vec![(far.clone(), own.ip)];
        hosts.insert(name, Host { role: role.clone(), namespace: inside, links });
    }
    Ok(Access { link: senders.access, first, others })
}

fn hardware(namespace: &Namespace, interface: &str) -> Result<[u8; 6], Failure> {
    let text = || Failure::Workload(format!("{interface} has no hardware address"));
    host::hardware_address(namespace, interface)?.ok_or_else(text)
}

fn namespace(hosts: &IndexMap<String, Host>, name: &str) -> Result<Namespace, HostError> {
    match hosts.get(name) {
        Some(host) => host.namespace.share(),
        None => Err(HostError::NoSuchNamespace { name: name.to_owned() }),
    }
}

fn next_interface(hosts: &IndexMap<String, Host>, name: &str) -> Result<String, HostError> {
    match hosts.get(name) {
        Some(host) => Ok(format!("eth{}", host.links.len())),
        None => Err(HostError::NoSuchNamespace { name: name.to_owned() }),
    }
}

/// Moves the hosts' receive processing to the workload's CPUs. If the kernel refuses, the
/// emulator's CPU processes the packets, and the emulator may be late.
fn spare_the_emulator(host: &Host, workload: &[usize]) {
    for number in 0..host.links.len() {
        let interface = format!("eth{number}");
        if let Err(error) = host::steer_receiving(&host.namespace, &interface, workload) {
            tracing::debug!("{error}");
        }
    }
}

/// Whether the calling thread's namespace has IPv6.
fn has_ipv6() -> bool {
    host::read_sysctl(IPV6_SWITCH).is_some_and(|off| off == "0")
}

fn silence_ipv6(namespace: &Namespace) -> Result<(), HostError> {
    namespace.run(|| match host::read_sysctl(IPV6_SWITCH) {
        None => Ok(()),
        Some(_) => {
            host::write_sysctl(&Sysctl { name: IPV6_SWITCH.to_owned(), value: "1".to_owned() })
        }
    })
}

/// Enters each host's hardware address in the neighbour table of the host at the link's other end,
/// so that the first packet needs no ARP.
fn introduce(
    hosts: &IndexMap<String, Host>,
    ends: &[String; 2],
    number: usize,
    mtu: u32,
) -> Result<(), Failure> {
    for (side, end) in ends.iter().enumerate() {
        let (Some(host), Some(far)) = (hosts.get(end), hosts.get(&ends[1 - side])) else {
            return Err(HostError::NoSuchNamespace { name: end.clone() }.into());
        };
        // The newest link is each host's last interface.
        let outer = |host: &Host| format!("eth{}", host.links.len() - 1);
        let interfaces = far.namespace.run(|| Ok(InterfaceSnapshot::read()))??;
        let Some(hardware) = interfaces.get(&outer(far))?.mac else { continue };
        let [v4, v6] = addresses(number, 1 - side);
        host::add_neighbour(&host.namespace, &outer(host), v4.ip, hardware)?;
        if mtu >= IPV6_MTU && host.namespace.run(|| Ok(has_ipv6()))? {
            host::add_neighbour(&host.namespace, &outer(host), v6.ip, hardware)?;
        }
    }
    Ok(())
}

fn addresses(link: usize, side: usize) -> [Address; 2] {
    let (high, low, last) = ((link >> 8) as u8, link as u8, side as u8 + 1);
    let v4 = Ipv4Addr::new(10, 77 + high, low, last);
    let v6 = Ipv6Addr::new(0xfd77, link as u16, 0, 0, 0, 0, 0, u16::from(last));
    [Address { ip: IpAddr::V4(v4), prefix: 24 }, Address { ip: IpAddr::V6(v6), prefix: 64 }]
}

/// Chooses the emulator's scheduling. With a separate CPU the emulator may spin in real time; on a
/// shared CPU the emulator must leave time to other threads.
fn scheduling(cpus: &CpuPlan) -> Scheduling {
    let own = Scheduling { cpu: cpus.emulator, real_time: cpus.real_time, ..Scheduling::default() };
    match cpus.emulator {
        Some(_) => own,
        None => Scheduling { spin: units::Span::ZERO, ..own },
    }
}

/// The smallest MTU that IPv6 allows (RFC 8200 section 5).
const IPV6_MTU: u32 = 1280;
/// Maximum number of an incast's senders. Each sender takes a namespace, a port, and one of the 254
/// addresses of a network.
const MOST_SENDERS: u32 = 64;
/// The name of the interface of a host with a single link.
const FIRST_INTERFACE: &str = "eth0";
const IPV6_SWITCH: &str = "net.ipv6.conf.default.disable_ipv6";

#[cfg(test)]
mod tests {
    use super::*;
    use host::{Confined, Program};
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A panic at any point of a step drops its network and its programs.
    #[test]
    fn a_panic_removes_the_network_and_kills_the_programs() {
        let lab = LabFile::parse("panic.toml", LAB).unwrap();
        let links = || lab.links_at(&results::Axes::new()).unwrap();
        let cpus = CpuPlan::for_lab(&lab);
        let ends = lab.kind().ends(&lab, &results::Axes::new()).unwrap();
        let settings = IndexMap::new();
        let calm = Disturbance::default();
        let build = || Testbed::build(&lab, &ends, links(), &settings, calm, 1, &cpus);
        match build() {
            Ok(testbed) => drop(testbed),
            Err(Failure::Host(error @ HostError::NotPermitted { .. })) => {
                return testing::skip_because(testing::Need::NetworkNamespaces, error);
            }
            Err(error) => panic!("{error}"),
        }
        let mut daemon = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let testbed = build().unwrap();
            let null = || File::options().write(true).open("/dev/null").unwrap();
            let program = Program {
                argv: ["sh", "-c", "setsid sleep 1000 & wait"].map(str::to_owned).into(),
                environment: Vec::new(),
                stdout: null(),
                stderr: null(),
                cpus: Vec::new(),
            };
            let shell = Confined::start(&testbed.namespace("near").unwrap(), program).unwrap();
            let children = format!("/proc/{0}/task/{0}/children", shell.pid());
            while daemon == 0 {
                let text = std::fs::read_to_string(&children).unwrap();
                daemon = text.trim().parse().unwrap_or(0);
                std::thread::yield_now();
            }
            let tid = testbed.emulator_tid().unwrap();
            assert!(
                is_alive(&format!("/proc/{daemon}")) && is_alive(&format!("/proc/self/task/{tid}"))
            );
            std::panic::panic_any(tid);
        }));
        let tid = *unwound.unwrap_err().downcast::<u32>().unwrap();
        assert!(does_end(&format!("/proc/{daemon}")), "the daemon still runs");
        assert!(does_end(&format!("/proc/self/task/{tid}")), "the emulated link still runs");
    }

    fn is_alive(process: &str) -> bool {
        std::path::Path::new(process).exists()
    }

    /// Waits until the process has ended. A thread that was joined stays in /proc until the kernel
    /// has released it.
    fn does_end(process: &str) -> bool {
        (0..12_000).any(|_| {
            let is_gone = !is_alive(process);
            if !is_gone {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            is_gone
        })
    }

    const LAB: &str = r#"
name = "panic"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
"#;
}
