//! Turns endpoints into ports: attaches to existing interfaces and creates missing interfaces.

use crate::{EmuError, Endpoint, EndpointKind, LinkPlan};
use host::{HostError, Namespace, Privilege};
use port::{PacketOptions, PacketPort, Port, PortError, TapKind, TapPort};
use std::os::fd::{AsFd, AsRawFd};

/// Two ports, and the objects created for the ports. The objects are removed when this value is
/// dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) notes: Vec<String>,
    made: Vec<CreatedInterface>,
    /// The namespace of the inner ends of veth pairs; `None` before the namespace exists.
    wires: Option<Namespace>,
    /// Without root: the namespaces created for the link, under the names that the endpoints use.
    own: Vec<Namespace>,
    privilege: Privilege,
}

pub fn open_port(namespace: &Namespace, interface: &str) -> Result<PacketPort, EmuError> {
    inside(namespace, interface, || PacketPort::open(interface))
}

/// Opens a packet port on an interface that was created for the port.
pub fn open_own_port(namespace: &Namespace, interface: &str) -> Result<PacketPort, EmuError> {
    let options = PacketOptions { own: true, ..PacketOptions::default() };
    inside(namespace, interface, || PacketPort::open_with(interface, options))
}

impl Ends {
    /// Attaches a port to each endpoint. Opens both namespaces before it creates any interface.
    pub(crate) fn attach(
        plan: &LinkPlan,
        privilege: Privilege,
    ) -> Result<(Self, [Box<dyn Port>; 2]), EmuError> {
        let mut ends =
            Self { notes: Vec::new(), made: Vec::new(), wires: None, own: Vec::new(), privilege };
        let [a, b] = &plan.ends;
        let spaces = [ends.namespace(a)?, ends.namespace(b)?];
        let first = ends.port(plan, 0, &spaces[0])?;
        let second = ends.port(plan, 1, &spaces[1])?;
        if ends.made.len() == 2 {
            ends.introduce(plan, &spaces);
        }
        if first.mtu() != second.mtu() {
            ends.notes.push(format!(
                "the MTUs differ ({} and {}): frames too long for the other side are lost, and counted",
                first.mtu(),
                second.mtu()
            ));
        }
        Ok((ends, [first, second]))
    }

    fn namespace(&mut self, end: &Endpoint) -> Result<Namespace, EmuError> {
        let failed = |source| EmuError::Host { end: end.to_string(), source };
        let Some(name) = &end.namespace else {
            if self.privilege == Privilege::UserNamespace {
                self.notes.push(format!(
                    "{end} is in the link's own namespace: this machine's interfaces are out of reach without root"
                ));
            }
            return Namespace::current().map_err(failed);
        };
        if self.privilege == Privilege::UserNamespace && !is_of_this_process(name) {
            return self.own_namespace(end, name);
        }
        Namespace::named(name).map_err(|error| match error {
            HostError::NoSuchNamespace { name } => {
                let known = known_namespaces();
                let hint = units::did_you_mean(&name, known.iter().map(String::as_str));
                EmuError::NoSuchNamespace { name, hint }
            }
            other => failed(other),
        })
    }

    fn own_namespace(&mut self, end: &Endpoint, name: &str) -> Result<Namespace, EmuError> {
        if name.contains(['/', ':']) {
            return Err(EmuError::OutOfReach { end: end.to_string() });
        }
        let failed = |source| EmuError::Host { end: end.to_string(), source };
        if !self.own.iter().any(|own| own.name() == name) {
            let own = Namespace::create(name).map_err(failed)?;
            let pid = std::process::id();
            self.notes.push(format!(
                "namespace {name} is this link's own; to run a COMMAND in it: nsenter --preserve-credentials \
                 --user=/proc/{pid}/ns/user --net=/proc/{pid}/fd/{} COMMAND",
                own.as_fd().as_raw_fd()
            ));
            self.own.push(own);
        }
        match self.own.iter().find(|own| own.name() == name) {
            Some(own) => own.share().map_err(failed),
            None => Err(EmuError::OutOfReach { end: end.to_string() }),
        }
    }

    fn port(
        &mut self,
        plan: &LinkPlan,
        side: usize,
        namespace: &Namespace,
    ) -> Result<Box<dyn Port>, EmuError> {
        let end = &plan.ends[side];
        let name = end.interface.as_str();
        let failed = |source| EmuError::Host { end: end.to_string(), source };
        if end.kind == EndpointKind::Tap {
            let port = inside(namespace, &end.to_string(), || TapPort::create(name, TapKind::Tap))?;
            host::bring_up(namespace, name).map_err(failed)?;
            self.add_addresses(plan, side, namespace)?;
            self.notes.push(format!("made TAP device {end}"));
            return Ok(Box::new(port));
        }
        if host::has_interface(namespace, name).map_err(failed)? {
            if !plan.addresses[side].is_empty() {
                return Err(EmuError::Refused(format!(
                    "{end} exists and stays as it is: --address-{} is for interfaces the link makes",
                    ['a', 'b'][side]
                )));
            }
            let carried = host::addresses(namespace, name).map_err(failed)?;
            if let Some(ip) = carried.first() {
                self.notes.push(format!(
                    "{end} carries the address {ip}: the kernel there answers besides the far side; \
                     remove the address, or name the inner end of a veth pair"
                ));
            }
            return Ok(Box::new(open_port(namespace, name).map_err(|e| at(end, e))?));
        }
        if self.wires.is_none() {
            self.wires = Some(host::silent_namespace("wires").map_err(failed)?);
        }
        let Some(wires) = &self.wires else {
            return Err(EmuError::Ended);
        };
        let inner = ["a", "b"][side];
        host::connect((namespace, name), (wires, inner), plan.mtu).map_err(failed)?;
        let shared = namespace.share().map_err(failed)?;
        self.made.push(CreatedInterface { namespace: shared, interface: name.to_owned() });
        let port = open_own_port(wires, inner).map_err(|e| at(end, e))?;
        self.add_addresses(plan, side, namespace)?;
        let addresses: Vec<String> =
            plan.addresses[side].iter().map(|at| format!("{}/{}", at.ip, at.prefix)).collect();
        let with = if addresses.is_empty() {
            String::new()
        } else {
            format!(" with {}", addresses.join(", "))
        };
        self.notes.push(format!("made interface {end}{with}; it vanishes with this link"));
        Ok(Box::new(port))
    }

    /// Gives the hosts at both created interfaces each other's hardware address. Otherwise the
    /// first connection would wait for ARP, and take two round trips.
    fn introduce(&self, plan: &LinkPlan, spaces: &[Namespace; 2]) {
        for side in [0, 1] {
            let (own, far) = (&plan.ends[side].interface, &plan.ends[1 - side].interface);
            let told = host::hardware_address(&spaces[1 - side], far).and_then(|hardware| {
                let addresses = hardware.map(|hardware| {
                    plan.addresses[1 - side].iter().map(move |address| (address.ip, hardware))
                });
                addresses.into_iter().flatten().try_for_each(|(ip, hardware)| {
                    host::add_neighbour(&spaces[side], own, ip, hardware)
                })
            });
            // Without the hardware addresses the hosts use ARP.
            if let Err(error) = told {
                tracing::debug!(%error, "telling {} its neighbour", plan.ends[side]);
            }
        }
    }

    fn add_addresses(
        &self,
        plan: &LinkPlan,
        side: usize,
        namespace: &Namespace,
    ) -> Result<(), EmuError> {
        let end = &plan.ends[side];
        plan.addresses[side]
            .iter()
            .try_for_each(|address| host::add_address(namespace, &end.interface, *address))
            .map_err(|source| EmuError::Host { end: end.to_string(), source })
    }
}

/// The outer end of a veth pair. The kernel removes the outer end with the inner end's namespace,
/// but some time after the process has ended. Dropping this value removes the outer end at once, so
/// that the user can start the next link.
#[derive(Debug)]
struct CreatedInterface {
    namespace: Namespace,
    interface: String,
}

impl Drop for CreatedInterface {
    fn drop(&mut self) {
        // The interface is gone already if its namespace or another process removed it.
        if let Err(error) = host::remove_interface(&self.namespace, &self.interface) {
            tracing::debug!(%error, "removing a made interface");
        }
    }
}

fn inside<T: Send>(
    namespace: &Namespace,
    end: &str,
    open: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, EmuError> {
    namespace
        .run(|| Ok(open()))
        .map_err(|source| EmuError::Host { end: end.to_owned(), source })?
        .map_err(|source| EmuError::Attach { end: end.to_owned(), source })
}

/// Replaces the interface's name in the error by the user's text of the endpoint.
fn at(end: &Endpoint, error: EmuError) -> EmuError {
    match error {
        EmuError::Attach { source, .. } => EmuError::Attach { end: end.to_string(), source },
        EmuError::Host { source, .. } => EmuError::Host { end: end.to_string(), source },
        other => other,
    }
}

/// Whether the path is a namespace of a thread of this process, which this process may enter
/// without root.
fn is_of_this_process(name: &str) -> bool {
    name.strip_prefix("/proc/")
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(pid, _)| pid.parse() == Ok(std::process::id()))
}

fn known_namespaces() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
