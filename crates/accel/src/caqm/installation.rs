//! Switching CAQM on and off.

use super::interface::{self, FoundInterface, InterfaceName};
use super::programs::{self, Programs};
use super::{NAME, Network};
use crate::installation::{Change, Removed};
use crate::iterator::read_iterator;
use crate::namespaces::run_in_each;
use crate::object::{Spec, with_libbpf_log};
use crate::open::SwitchedConnections;
use crate::pins::{self, Pins, Presence};
use crate::rules::{self, Rule};
use crate::{AccelError, installation, kernel};
use libbpf_rs::MapCore;
use std::os::fd::AsFd as _;

/// A requested state of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The rules that select connections. The tunables of the rules have no effect here.
    pub rules: Vec<Rule>,
    pub network: Network,
}

impl Plan {
    pub fn check(&self) -> Result<(), AccelError> {
        rules::check(&self.rules)?;
        self.network.check()
    }
}

/// Changes the plan in force: connections that the plan selects negotiate from now on, also at
/// `interfaces`. If no interface is given and nothing is installed yet, CAQM uses all Ethernet
/// interfaces of this network namespace.
pub fn change(
    interfaces: &[InterfaceName],
    change: impl FnOnce(&mut Plan) -> Result<(), AccelError>,
) -> Result<(Change, Vec<InterfaceName>), AccelError> {
    kernel::interface()?.check_caqm()?;
    let pins = Pins::open_of(&pins::CAQM)?;
    let before = in_force(&pins)?;
    let mut plan = before.clone();
    change(&mut plan)?;
    plan.check()?;
    let presence = pins.presence();
    let mut found = interfaces.iter().map(InterfaceName::find).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() && presence != Presence::Whole {
        found = FoundInterface::all_here()?;
    }
    if presence == Presence::Whole {
        unchanged_for_open_ones(&pins, &before.network, &plan.network)?;
        add(&pins, &found)?;
        write(&pins, &plan).inspect_err(|_| drop(write(&pins, &before)))?;
        return Ok((Change::Changed, found.into_iter().map(|found| found.name).collect()));
    }
    if presence == Presence::Part {
        pins.remove()?;
    }
    install(&pins, &plan, &found).inspect_err(|_| drop(pins.remove()))?;
    let change = if presence == Presence::Part { Change::Repaired } else { Change::Installed };
    Ok((change, found.into_iter().map(|found| found.name).collect()))
}

/// Checks that every interface that [`change`] would use exists.
pub(crate) fn check_interfaces(interfaces: &[InterfaceName]) -> Result<(), AccelError> {
    interfaces.iter().try_for_each(|name| name.find().map(drop))?;
    let present = Pins::open_of(&pins::CAQM)?.presence() == Presence::Whole;
    if interfaces.is_empty() && !present {
        FoundInterface::all_here()?;
    }
    Ok(())
}

/// Sets parameters from `NAME=VALUE`, for connections that begin from now on.
pub fn set(values: &[String]) -> Result<(), AccelError> {
    // A wrong name or value is wrong on any machine: report wrong names and values before the
    // machine's problems.
    for text in values {
        let mut network = Network::default();
        network.set(text)?;
        network.check()?;
    }
    if Pins::open_of(&pins::CAQM)?.presence() != Presence::Whole {
        return Err(AccelError::NotRegistered { name: NAME });
    }
    change(&[], |plan| values.iter().try_for_each(|text| plan.network.set(text))).map(drop)
}

/// Replaces the installed programs with this build's. Open connections keep their tags.
pub fn update() -> Result<(), AccelError> {
    kernel::interface()?.check_caqm()?;
    let pins = Pins::open_of(&pins::CAQM)?;
    if pins.presence() != Presence::Whole {
        return Err(AccelError::NotRegistered { name: NAME });
    }
    in_force(&pins)?;
    let registered = pins.link(pins::ALGORITHM)?;
    let mut programs = Programs::load_with(&pins).map_err(|error| match error {
        AccelError::Refused { .. } => AccelError::OtherVersion,
        error => error,
    })?;
    programs.replace(&registered)?;
    for name in pins.others() {
        let program = match name.starts_with("in-") {
            true => programs::UNTAG,
            false => programs::TAG,
        };
        let program = programs.tags.program(program)?;
        // If the interface has gone, no program is left to replace.
        let _ = pins
            .link_named(&name)
            .and_then(|mut link| with_libbpf_log(programs::TAGS, || link.update_prog(&program)));
    }
    let program = programs.negotiation.program(programs::NEGOTIATE)?;
    let mut negotiation = pins.link(pins::POLICY)?;
    with_libbpf_log(programs::NEGOTIATION, || negotiation.update_prog(&program))
}

/// Switches CAQM off. Open connections lose their tags and continue with Reno.
pub fn remove() -> Result<Removed, AccelError> {
    let Some(pins) = Pins::open_of_if_any(&pins::CAQM)? else { return Ok(Removed::default()) };
    let there = pins.presence() != Presence::Nothing;
    pins.remove()?;
    if there {
        // Listeners that cannot be changed stay unchanged, which costs only a lookup without
        // result.
        let _ = listeners("ignore");
    }
    Ok(Removed { there, switched: SwitchedConnections::default(), foreign: pins.foreign()? })
}

/// Reads the plan in force from the kernel. The plan of the last command may differ.
pub(crate) fn in_force(pins: &Pins) -> Result<Plan, AccelError> {
    if pins.presence() != Presence::Whole {
        return Ok(Plan::default());
    }
    let rules = installation::rules_in_force(pins, |_| Ok(rules::Tunables::default()))?;
    let network = installation::read(pins, pins::NETWORK, 0)?;
    Ok(Plan { rules, network: Network::from_bytes(&network) })
}

/// Reads the interfaces with CAQM: the kernel's key of each interface, and the name of each
/// interface that still exists.
pub(crate) fn interfaces(
    pins: &Pins,
) -> Result<Vec<(u64, u32, Option<InterfaceName>)>, AccelError> {
    let map = pins.map(pins::INTERFACES)?;
    let everywhere = FoundInterface::everywhere()?;
    let named = |cookie, index| {
        let found = everywhere.iter().find(|f| f.cookie == cookie && f.index == index);
        // If an interface has gone and another interface has its number, the link is no longer
        // attached.
        let lives = interface::links(cookie, index).iter().all(|name| pins.link_lives(name));
        found.filter(|_| lives).map(|found| found.name.clone())
    };
    let keys = map.keys().filter_map(|key| FoundInterface::of_key(&key));
    Ok(keys.map(|(cookie, index)| (cookie, index, named(cookie, index))).collect())
}

fn install(pins: &Pins, plan: &Plan, found: &[FoundInterface]) -> Result<(), AccelError> {
    let mut programs = Programs::load()?;
    pins.make()?;
    programs.pin_maps(pins)?;
    write(pins, plan)?;
    programs.register()?.keep(pins)?;
    found.iter().try_for_each(|found| at(pins, &programs, found))?;
    let mut negotiation = programs.begin()?;
    with_libbpf_log(programs::NEGOTIATION, || negotiation.pin(pins.at(pins::POLICY)))?;
    listeners("hear")
}

/// Adds interfaces, and forgets interfaces that have gone.
fn add(pins: &Pins, found: &[FoundInterface]) -> Result<(), AccelError> {
    let mut there = Vec::new();
    for (cookie, index, interface) in interfaces(pins)? {
        if interface.is_some() {
            there.push((cookie, index));
            continue;
        }
        for name in interface::links(cookie, index) {
            pins.end(&name)?;
        }
        let map = pins.map(pins::INTERFACES)?;
        let gone = FoundInterface {
            name: InterfaceName { namespace: None, interface: String::new() },
            cookie,
            index,
        };
        let _ = map.delete(&gone.key());
    }
    let new: Vec<_> =
        found.iter().filter(|found| !there.contains(&(found.cookie, found.index))).collect();
    if new.is_empty() {
        return Ok(());
    }
    let programs = Programs::load_with(pins)?;
    new.into_iter().try_for_each(|found| at(pins, &programs, found))
}

fn at(pins: &Pins, programs: &Programs, found: &FoundInterface) -> Result<(), AccelError> {
    let links = programs.attach(found)?;
    for (link, name) in links.iter().zip(found.links()) {
        interface::pin(link.as_fd(), &pins.at(&name))?;
    }
    Ok(())
}

fn write(pins: &Pins, plan: &Plan) -> Result<(), AccelError> {
    installation::store(pins, pins::NETWORK, 0, &plan.network.to_bytes(NAME))?;
    installation::write_rules(pins, &plan.rules, 0, |_, _| Ok(()))
}

/// Refuses a change of the values that identify tags while connections are open: packets in flight
/// with old tags would be lost.
fn unchanged_for_open_ones(pins: &Pins, old: &Network, new: &Network) -> Result<(), AccelError> {
    if (old.tpid, old.cc_type) == (new.tpid, new.cc_type) {
        return Ok(());
    }
    let open = super::view::read(pins)?.values().filter(|view| view.heard).count();
    if open == 0 {
        return Ok(());
    }
    Err(AccelError::Usage(format!(
        "tpid and cc_type mark the packets of {open} open connections, which would be lost: wait for \
         their end, or `weir accel disable caqm` first"
    )))
}

/// Updates sockets that already listen, in every network namespace. Kernels before 6.12 leave the
/// sockets unchanged.
fn listeners(program: &'static str) -> Result<(), AccelError> {
    let spec =
        Spec::open(LISTENERS, include_bytes!(concat!(env!("OUT_DIR"), "/caqm_listen.bpf.o")))?;
    let loaded = spec.load()?;
    run_in_each(|_| {
        let program = loaded.program(program)?;
        let link = with_libbpf_log(LISTENERS, || program.attach())?;
        read_iterator(LISTENERS, &link).map(drop)
    })
    .map(drop)
}

const LISTENERS: &str = "the program for sockets that listen";
