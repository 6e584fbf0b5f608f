//! Builds the target of a step, and the entries at which frames enter the target.

use super::settings::{Case, Target};
use super::storm::Entry;
use crate::bench::machine::{MachineStep, PORT, Started, Testbed};
use crate::model::Failure;
use crate::model::file::{SystemKind, SystemSpec, words};
use crate::workloads::switches::{Control, await_control};
use generator::malformed::Addresses;
use host::{Address, HostError, Namespace};
use port::{Interface, PacketSender, PortError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tempfile::TempDir;
use toml::Spanned;

pub(super) struct Scene {
    pub(super) entries: Vec<Entry>,
    /// The address at which the traffic's server listens.
    pub(super) traffic_to: SocketAddr,
    /// The system that replaces the file's system if the traffic passes a tunnel.
    pub(super) system: Option<SystemSpec>,
    program: Option<Started>,
    control: Option<Control>,
    _folder: Option<TempDir>,
    _middle: Option<Namespace>,
}

/// A host's interface to the namespace in the middle. The interface's addresses end in `number`.
struct Leg {
    inside: Namespace,
    number: u8,
    mac: [u8; 6],
}

impl Scene {
    pub(super) fn build(
        case: &Case,
        step: &MachineStep<'_>,
        testbed: &Testbed,
    ) -> Result<Self, Failure> {
        match &case.target {
            Target::Host => Self::at_host(case, step, testbed, None),
            Target::Tunnel => {
                let system = tunnel(step.system);
                Self::at_host(case, step, testbed, Some(system))
            }
            Target::Link => {
                let weir = step.weir.display().to_string();
                let name = format!("robustness-{}", std::process::id());
                let line = ["link", "up", "--name", &name, "--no-real-time", "--a", A, "--b", B];
                let argv = [weir.as_str()].into_iter().chain(line).map(str::to_owned).collect();
                Self::between(step, testbed, argv)
            }
            Target::Program(line) => {
                let mut argv = words(line);
                argv.extend([A.to_owned(), B.to_owned()]);
                Self::between(step, testbed, argv)
            }
            Target::Switch => Self::at_switch(case, step, testbed),
        }
    }

    /// Returns the first sign of harm: a program that ended or panicked, or a switch that does not
    /// answer.
    pub(super) fn harm(&mut self) -> Option<Failure> {
        let program = self.program.as_mut()?;
        let ended = match program.wait(Duration::ZERO) {
            Ok(ended) => ended,
            Err(error) => return Some(error.into()),
        };
        let panic = program.complaint("panicked at");
        let name = program.name();
        match (ended, panic) {
            (None, None) => {}
            // A thread may panic without ending its process.
            (None, Some(panic)) => return Some(Failure::Workload(format!("{name}: {panic}"))),
            (Some(status), Some(panic)) => {
                let text = format!("{name} ended early ({status}): {panic}");
                return Some(Failure::Workload(text));
            }
            (Some(status), None) => return Some(program.early_end(status)),
        }
        let control = self.control.as_ref()?;
        (!control.answers()).then(|| Failure::Workload("the switch does not answer".to_owned()))
    }

    fn at_host(
        case: &Case,
        step: &MachineStep<'_>,
        testbed: &Testbed,
        system: Option<SystemSpec>,
    ) -> Result<Self, Failure> {
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let attacker = case.attacker.as_str();
        let (near, far) = (testbed.address(attacker, to)?, testbed.address(to, attacker)?);
        let inside = testbed.namespace(attacker)?;
        let mac_of = |host: &str, own: IpAddr| -> Result<(String, [u8; 6]), Failure> {
            let number = testbed.link_of(host, own)?;
            let name = format!("eth{number}");
            let found = testbed.namespace(host)?.run(|| Ok(Interface::find(&name)))??;
            Ok((name, found.address))
        };
        let (interface, near_mac) = mac_of(attacker, near)?;
        let (_, far_mac) = mac_of(to, far)?;
        let four = |address: IpAddr| match address {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        // The host parts of the testbed's IPv6 addresses equal the host parts of its IPv4
        // addresses.
        let six = |address: IpAddr| {
            let [_, _, link, host] = four(address).octets();
            Ipv6Addr::new(0xfd77, u16::from(link), 0, 0, 0, 0, 0, u16::from(host))
        };
        let entry = Entry {
            port: open(&inside, &interface)?,
            addresses: Addresses {
                macs: [near_mac, far_mac],
                ipv4: [four(near), four(far)],
                ipv6: [six(near), six(far)],
                tcp_port: PORT,
                udp_port: TUNNEL_PORT,
            },
        };
        Ok(Self {
            entries: vec![entry],
            traffic_to: SocketAddr::new(testbed.address(to, from)?, PORT),
            system,
            program: None,
            control: None,
            _folder: None,
            _middle: None,
        })
    }

    /// Puts a program between the client and the server. The program forwards between two
    /// interfaces, and frames enter at both interfaces.
    fn between(
        step: &MachineStep<'_>,
        testbed: &Testbed,
        argv: Vec<String>,
    ) -> Result<Self, Failure> {
        let hosts = [step.ends.from.as_str(), step.ends.to.as_str()];
        let (middle, legs) = legs(testbed, &hosts)?;
        let program = Started::new(&middle, argv, &[], step)?;
        let [client, server] = [&legs[0], &legs[1]];
        let entries = vec![client.entry_to(server)?, server.entry_to(client)?];
        Ok(Self {
            entries,
            traffic_to: SocketAddr::new(ipv4(SERVER).into(), PORT),
            system: None,
            program: Some(program),
            control: None,
            _folder: None,
            _middle: Some(middle),
        })
    }

    fn at_switch(case: &Case, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Self, Failure> {
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let (middle, legs) = legs(testbed, &[from, to, case.attacker.as_str()])?;
        let made = tempfile::Builder::new().prefix("switch-").tempdir_in(step.programs);
        let folder = made.map_err(|error| Failure::io("making a folder for the switch", &error))?;
        let rules = folder.path().join("rules.txt");
        std::fs::write(&rules, RULES).map_err(|error| Failure::io("writing rules", &error))?;
        let rundir = folder.path().display().to_string();
        let weir = step.weir.display().to_string();
        let run = [&weir, "switch", "run", "--rundir", &rundir, "--bridge", BRIDGE];
        let run: Vec<String> = run.map(str::to_owned).into();
        let mut program = Started::new(&middle, run, &[], step)?;
        let control = Control::at(&folder.path().join("weir-switch.ctl"));
        await_control(&control, &mut program, step)?;
        let rules = rules.display().to_string();
        let load = [&weir, "switch", "add-flows", "--rundir", &rundir, BRIDGE, &rules];
        let load = Started::new(&middle, load.map(str::to_owned).into(), &[], step)?;
        crate::workloads::switches::finish(load, LOADED_WITHIN, step)?;
        for (number, name) in [A, B, C].into_iter().enumerate() {
            let port = format!("packet:{name},number={}", number + 1);
            control.call("switch/add-port", &[BRIDGE, name, &port])?;
        }
        let entries = vec![legs[2].entry_to(&legs[1])?];
        Ok(Self {
            entries,
            traffic_to: SocketAddr::new(ipv4(SERVER).into(), PORT),
            system: None,
            program: Some(program),
            control: Some(control),
            _folder: Some(folder),
            _middle: Some(middle),
        })
    }
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("traffic_to", &self.traffic_to).finish_non_exhaustive()
    }
}

impl Leg {
    /// Returns an entry at this interface. The entry's frames are addressed to the host of `other`.
    fn entry_to(&self, other: &Self) -> Result<Entry, Failure> {
        Ok(Entry {
            port: open(&self.inside, LEG)?,
            addresses: Addresses {
                // Replies go to an address that no host has, so that no host receives them.
                macs: [NOBODY_MAC, other.mac],
                ipv4: [ipv4(NOBODY), ipv4(other.number)],
                ipv6: [ipv6(NOBODY), ipv6(other.number)],
                tcp_port: PORT,
                udp_port: TUNNEL_PORT,
            },
        })
    }
}

/// Connects the hosts to a namespace between them. In the namespace's network the hosts are
/// neighbours.
fn legs(testbed: &Testbed, hosts: &[&str]) -> Result<(Namespace, Vec<Leg>), Failure> {
    let middle = Namespace::create("middle")?;
    let mut legs = Vec::new();
    for (number, (host, inner)) in (1..).zip(hosts.iter().zip([A, B, C])) {
        let inside = testbed.namespace(host)?;
        host::connect((&inside, LEG), (&middle, inner), MTU)?;
        host::add_address(&inside, LEG, Address { ip: ipv4(number).into(), prefix: 24 })?;
        // On a machine without IPv6, only IPv4 frames reach a host.
        let _ = host::add_address(&inside, LEG, Address { ip: ipv6(number).into(), prefix: 64 });
        let mac = inside.run(|| Ok(Interface::find(LEG)))??.address;
        legs.push(Leg { inside, number, mac });
    }
    for own in &legs {
        let others = legs.iter().filter(|other| other.number != own.number);
        let all = others.map(|other| (other.number, other.mac)).chain([(NOBODY, NOBODY_MAC)]);
        for (number, mac) in all {
            host::add_neighbour(&own.inside, LEG, ipv4(number).into(), mac)?;
            let _ = host::add_neighbour(&own.inside, LEG, ipv6(number).into(), mac);
        }
    }
    Ok((middle, legs))
}

fn open(inside: &Namespace, interface: &str) -> Result<PacketSender, Failure> {
    let opened =
        inside.run(|| Ok::<Result<_, PortError>, HostError>(PacketSender::open(interface)));
    Ok(opened??)
}

/// Returns the file's system, with its traffic through `weir tunnel`.
fn tunnel(system: &SystemSpec) -> SystemSpec {
    let text = |text: String| Some(Spanned::new(system.name.span(), text));
    SystemSpec {
        kind: SystemKind::External,
        server: text(format!(
            "{{weir}} tunnel server --listen-on 0.0.0.0:{TUNNEL_PORT} --peer lab={{client-pin}} --allow \
             tcp:{{server}}:{{port}} --cert-file {{keys}}/server.crt --key-file {{keys}}/server.key \
             --status-socket {{keys}}/server.sock"
        )),
        client: text(format!(
            "{{weir}} tunnel client --server {{server}}:{TUNNEL_PORT} --pin {{server-pin}} --forward \
             tcp:127.0.0.1:6500=tcp:{{server}}:{{port}} --cert-file {{keys}}/client.crt --key-file \
             {{keys}}/client.key --status-socket {{keys}}/client.sock"
        )),
        connect: text("127.0.0.1:6500".to_owned()),
        ..system.clone()
    }
}

fn ipv4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, number)
}

fn ipv6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, u16::from(number))
}

/// The interfaces of the namespace in the middle, towards client, server and attacker.
const A: &str = "p1";
const B: &str = "p2";
const C: &str = "p3";
/// Each host's interface to the namespace in the middle.
const LEG: &str = "mid0";
const SERVER: u8 = 2;
const NOBODY: u8 = 99;
const NOBODY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 99];
const MTU: u32 = 1500;
const TUNNEL_PORT: u16 = 7500;
const BRIDGE: &str = "br0";
const LOADED_WITHIN: Duration = Duration::from_secs(30);
/// The rules forward the traffic unchanged, and change headers of each layer in the attacker's
/// frames.
const RULES: &str = "\
priority=100,in_port=1 actions=output:2
priority=100,in_port=2 actions=output:1
priority=50,in_port=3,tcp actions=mod_nw_tos:4,dec_ttl,push_vlan:0x8100,output:2
priority=50,in_port=3,udp actions=mod_tp_src:7,output:2
priority=50,in_port=3,tcp6 actions=mod_tp_src:7,push_mpls:0x8847,output:2
priority=50,in_port=3,udp6 actions=set_field:fd99::63->ipv6_src,output:2
priority=50,in_port=3,icmp actions=set_field:3->icmp_type,output:2
priority=50,in_port=3,arp actions=load:2->NXM_OF_ARP_OP[],output:1
priority=40,in_port=3,mpls actions=pop_mpls:0x0800,output:2
priority=40,in_port=3,dl_vlan=1 actions=strip_vlan,output:2
priority=10,in_port=3 actions=mod_dl_src:02:00:00:00:00:63,output:1,output:2
";
