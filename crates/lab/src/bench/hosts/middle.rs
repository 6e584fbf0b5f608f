//! Links that a machine between the ends emulates: the emulator runs in the agent's own process, so
//! that the kernel closes its ports, and ends the links, however the agent ends.

use super::message::{CableOrder, Facts};
use super::remote::RemoteHost;
use super::turn::Turn;
use crate::bench::LabFile;
use crate::bench::machine::links::{self, Carried};
use crate::bench::machine::{CpuPlan, LatenessBound, fit};
use crate::model::file::{LinkSettings, Medium, Senders};
use crate::model::{Failure, Measurement};
use emu::{Cable, Emulator};
use host::Namespace;
use indexmap::IndexMap;
use probe::interface::{Interface, InterfaceSnapshot};

/// The links of one turn, by the machine that emulates them.
#[derive(Debug, Default)]
pub(super) struct Middles {
    cables: IndexMap<String, Vec<CableOrder>>,
    /// The names of the links between the ends of the turn's workload.
    between: Vec<String>,
    bound: LatenessBound,
}

impl Middles {
    /// Returns the links of the turn's cell, with the system's own queue. The links have the same
    /// seeds as in namespaces.
    pub(super) fn of(turn: &Turn<'_>, ends: [&str; 2], seed: u64) -> Result<Self, Failure> {
        let wrong = |error: crate::model::file::FileError| Failure::Workload(error.to_string());
        let lab = turn.lab;
        let cell = lab.kind().at(lab, turn.axes).map_err(wrong)?;
        let mut links = cell.links(lab.links_at(turn.axes).map_err(wrong)?);
        fit(lab, turn.system, turn.axes, ends, &mut links)?;
        let bound = LatenessBound::of(links.iter().filter_map(LinkSettings::round_trip));
        let mut cables: IndexMap<String, Vec<CableOrder>> = IndexMap::new();
        let mut between = Vec::new();
        for (number, link) in links.into_iter().enumerate() {
            let joins = link.joins(ends[0], ends[1]);
            let Some(middle) = link.middle else { continue };
            let Medium::Emulated(ways) = link.medium else { continue };
            if let Some(Senders { count, .. }) = link.senders {
                let text =
                    format!("{count} senders share a link only in namespaces: add --namespaces");
                return Err(Failure::Workload(text));
            }
            let (mut forward, mut backward) = (ways.forward.config, ways.backward.config);
            forward.seed = seed.wrapping_add(2 * number as u64);
            backward.seed = seed.wrapping_add(2 * number as u64 + 1);
            let (interfaces, interrupts) = (middle.interfaces, link.interrupts);
            let name = format!("{}-{}", link.ends[0], link.ends[1]);
            between.extend(joins.then(|| name.clone()));
            let order = CableOrder { name, interfaces, forward, backward, interrupts };
            cables.entry(middle.host).or_default().push(order);
        }
        Ok(Self { cables, between, bound })
    }

    /// Starts the links. `host_of` finds a connected machine.
    pub(super) fn start<'a>(
        &self,
        host_of: &dyn Fn(&str) -> Result<&'a RemoteHost, Failure>,
    ) -> Result<(), Failure> {
        self.cables.iter().try_for_each(|(name, cables)| host_of(name)?.emulate(cables))
    }

    /// Ends the links, and judges the emulation.
    pub(super) fn finish<'a>(
        &self,
        host_of: &dyn Fn(&str) -> Result<&'a RemoteHost, Failure>,
        result: &mut Measurement,
    ) -> Result<(), Failure> {
        for (name, cables) in &self.cables {
            let names = cables.iter().map(|cable| cable.name.clone());
            let seen = host_of(name)?.end_emulation()?.named(names);
            // Links to other hosts carry nothing in this turn.
            let own = |cable: &&Carried| self.between.contains(&cable.name);
            let used = seen.cables.iter().filter(own).any(|cable| cable.arrived != [0, 0]);
            if let Some(cable) = seen.cables.iter().find(own).filter(|_| !used) {
                return Err(Failure::Workload(format!(
                    "no packet of the link {} passed {name}: the packets between its ends take another path; lead the \
                     cables of both ends to the two interfaces of {name}",
                    cable.name
                )));
            }
            links::account(&seen, &self.bound, result);
        }
        Ok(())
    }
}

/// Starts the emulated links of a machine.
pub(super) fn start(orders: Vec<CableOrder>) -> Result<Emulator, Failure> {
    let here = Namespace::current()?;
    let mut cables = Vec::with_capacity(orders.len());
    for order in orders {
        let CableOrder { name, interfaces: [a, b], forward, backward, interrupts } = order;
        if let Some(reason) = unfit(&[(a.clone(), None), (b.clone(), None)])?.into_iter().next() {
            return Err(Failure::Workload(reason));
        }
        cables.push(Cable {
            name,
            a: Box::new(emu::open_port(&here, &a)?),
            b: Box::new(emu::open_port(&here, &b)?),
            forward,
            backward,
            interrupts,
            access: None,
            tpid: None,
        });
    }
    Ok(Emulator::start(cables, CpuPlan::scheduling_of_emulator())?)
}

/// Returns the reasons why interfaces of this machine cannot be the ends of emulated links. Each
/// interface has the MTU that the lab file gives the link.
pub(super) fn unfit(wanted: &[(String, Option<u32>)]) -> Result<Vec<String>, Failure> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let here = Namespace::current()?;
    let found = InterfaceSnapshot::read()?;
    let mut reasons = Vec::new();
    for (name, mtu) in wanted {
        let addresses = host::addresses(&here, name)?;
        let carried = addresses.first().map(ToString::to_string);
        let master = std::fs::read_link(format!("/sys/class/net/{name}/master"));
        let master =
            master.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let interface = found.interfaces.get(name);
        reasons.extend(reason(name, interface, carried, master, *mtu));
    }
    Ok(reasons)
}

fn reason(
    name: &str,
    interface: Option<&Interface>,
    address: Option<String>,
    master: Option<String>,
    mtu: Option<u32>,
) -> Option<String> {
    let Some(interface) = interface else {
        return Some(format!("it has no interface {name}: `ip link` there lists the interfaces"));
    };
    if !interface.enabled {
        return Some(format!("{name} is down: bring it up with `ip link set {name} up`"));
    }
    if let Some(address) = address {
        return Some(format!(
            "{name} has the address {address}, and the kernel there would answer packets of the link: remove the address, \
             or name another interface"
        ));
    }
    if let Some(master) = master {
        return Some(format!(
            "{name} belongs to {master}, which would carry packets past the link: take it out with \
             `ip link set {name} nomaster`"
        ));
    }
    let own = interface.mtu.map(|mtu| mtu.count());
    let (own, wanted) = own.zip(mtu)?;
    (own != u64::from(wanted)).then(|| {
        format!("{name} has an MTU of {own}, and the link {wanted}: write `mtu = {own}` in the link's table")
    })
}

/// Returns the interfaces that the lab's links use on the machine `name`, as one text.
pub(super) fn interfaces_text(lab: &LabFile, name: &str) -> String {
    let names = lab.interfaces_on(name).into_iter().map(|(interface, _)| interface);
    names.collect::<Vec<_>>().join(" ")
}

/// Returns the reasons why the machine `name` cannot emulate links.
pub(super) fn problems(facts: &Facts) -> Vec<String> {
    let mut problems = facts.unfit_interfaces.clone();
    if !facts.root {
        problems.push("only root emulates a link there: log in as root".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    #[test]
    fn an_interface_with_another_use_is_refused_with_the_remedy() {
        let up = Interface { enabled: true, mtu: Some(Bytes::new(1500)), ..Interface::default() };
        let down = Interface::default();
        let some = |text: &str| Some(text.to_owned());
        for (interface, address, master, mtu, expected) in [
            (None, None, None, None, "it has no interface eth1"),
            (Some(&down), None, None, None, "`ip link set eth1 up`"),
            (Some(&up), some("10.0.0.7"), None, None, "has the address 10.0.0.7"),
            (Some(&up), None, some("br0"), None, "belongs to br0"),
            (Some(&up), None, None, Some(9000), "write `mtu = 1500`"),
        ] {
            let found = reason("eth1", interface, address, master, mtu).unwrap_or_default();
            assert!(found.contains(expected), "{expected}: {found}");
        }
        for mtu in [None, Some(1500)] {
            assert_eq!(reason("eth1", Some(&up), None, None, mtu), None);
        }
    }
}
