//! Switching acceleration on and off.

use crate::algorithm::Algorithm;
use crate::cgroup;
use crate::object::{Loaded, Spec, told};
use crate::pins::{self, Pins, Presence};
use crate::rules::{self, MOST_RULES, RULE_BYTES, Rule, Tunables};
use crate::{AccelError, kernel};
use libbpf_rs::{MapCore, MapFlags};
use std::fs::File;
use std::os::fd::AsRawFd;

/// What there was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing of it was there.
    Installed,
    /// A command that was killed had left a part, which is gone.
    Repaired,
    /// It was there; the rules are others now.
    Changed,
}

/// From now on new connections are given the algorithm as the rules say. On failure everything is as it
/// was.
pub fn apply(rules: &[Rule], defaults: &Tunables) -> Result<Change, AccelError> {
    kernel::interface()?;
    apply_in(&Pins::open()?, rules, defaults)
}

/// One rule more: in the place of the one with the same conditions, or else before the first that would
/// leave nothing to it.
pub fn add(rule: Rule) -> Result<Change, AccelError> {
    kernel::interface()?;
    let pins = Pins::open()?;
    let (mut rules, defaults) = match pins.presence() {
        Presence::Whole => in_force(&pins)?,
        _ => (Vec::new(), Tunables::default()),
    };
    rules::insert(&mut rules, rule);
    apply_in(&pins, &rules, &defaults)
}

/// New connections are the kernel's again; those that have the algorithm keep it until they end. Whether
/// there was anything to remove.
pub fn remove() -> Result<bool, AccelError> {
    let pins = Pins::open()?;
    let there = pins.presence() != Presence::Nothing;
    pins.remove()?;
    Ok(there)
}

/// The rules in force, and what is given to whoever chooses the algorithm by itself.
pub fn in_force(pins: &Pins) -> Result<(Vec<Rule>, Tunables), AccelError> {
    let (set, count) = active(pins)?;
    let rules = (0..count).map(|index| {
        let key = set * MOST_RULES as u32 + index;
        let bytes: [u8; RULE_BYTES] = read(pins, pins::RULES, key)?;
        Ok(Rule::from_bytes(&bytes, read(pins, pins::SETTINGS, 1 + key)?))
    });
    let settings = Rule::from_bytes(&defaults_rule(), read(pins, pins::SETTINGS, 0)?);
    Ok((rules.collect::<Result<_, AccelError>>()?, settings.tunables.unwrap_or_default()))
}

fn apply_in(pins: &Pins, rules: &[Rule], defaults: &Tunables) -> Result<Change, AccelError> {
    rules::check(rules)?;
    defaults.check()?;
    let change = match pins.presence() {
        Presence::Whole => Change::Changed,
        Presence::Nothing => Change::Installed,
        Presence::Part => {
            pins.remove()?;
            Change::Repaired
        }
    };
    if change == Change::Changed {
        write(pins, rules, defaults)?;
        return Ok(change);
    }
    install(pins, rules, defaults).inspect_err(|_| {
        // What remains of it is a part, which the next command removes.
        let _ = pins.remove();
    })?;
    Ok(change)
}

fn install(pins: &Pins, rules: &[Rule], defaults: &Tunables) -> Result<(), AccelError> {
    let root = cgroup::mount()?;
    let root = File::open(&root).map_err(|source| AccelError::file("opening", &root, source))?;
    let mut algorithm = Algorithm::load()?;
    pins.make()?;
    for name in [pins::FLOWS, pins::SETTINGS] {
        pin(pins, algorithm.loaded_mut(), name)?;
    }
    let mut policy = Spec::open(WHAT, include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o")))?;
    for name in [pins::FLOWS, pins::SETTINGS] {
        policy.reuse(name, &pins.at(name))?;
    }
    let mut policy = policy.load()?;
    for name in [pins::RULES, pins::ACTIVE] {
        pin(pins, &mut policy, name)?;
    }
    write(pins, rules, defaults)?;
    let mut link = algorithm.register()?;
    told(WHAT, || link.pin(pins.at(pins::ALGORITHM)))?;
    let program = policy.program("policy")?;
    let mut link = told(WHAT, || program.attach_cgroup(root.as_raw_fd()))?;
    told(WHAT, || link.pin(pins.at(pins::POLICY)))
}

fn pin(pins: &Pins, loaded: &mut Loaded, name: &'static str) -> Result<(), AccelError> {
    let mut map = loaded.map_mut(name)?;
    told(name, || map.pin(pins.at(name)))
}

/// Beside those in force, then with one store in their place.
fn write(pins: &Pins, rules: &[Rule], defaults: &Tunables) -> Result<(), AccelError> {
    let set = 1 - active(pins)?.0;
    for (key, rule) in (set * MOST_RULES as u32..).zip(rules) {
        store(pins, pins::RULES, key, &rule.to_bytes())?;
        let tunables = rule.tunables.unwrap_or_default();
        store(pins, pins::SETTINGS, 1 + key, &tunables.to_bytes())?;
    }
    store(pins, pins::SETTINGS, 0, &defaults.to_bytes())?;
    let mut active = [0; 8];
    active[..4].copy_from_slice(&set.to_ne_bytes());
    active[4..].copy_from_slice(&(rules.len() as u32).to_ne_bytes());
    store(pins, pins::ACTIVE, 0, &active)
}

/// `struct active` of bpf/rules.h.
fn active(pins: &Pins) -> Result<(u32, u32), AccelError> {
    let bytes: [u8; 8] = read(pins, pins::ACTIVE, 0)?;
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok((word(0) & 1, word(4).min(MOST_RULES as u32)))
}

fn store(pins: &Pins, map: &'static str, key: u32, value: &[u8]) -> Result<(), AccelError> {
    let map_handle = pins.map(map)?;
    told(map, || map_handle.update(&key.to_ne_bytes(), value, MapFlags::ANY))
}

fn read<const N: usize>(pins: &Pins, map: &'static str, key: u32) -> Result<[u8; N], AccelError> {
    let handle = pins.map(map)?;
    let value = told(map, || handle.lookup(&key.to_ne_bytes(), MapFlags::ANY))?;
    value.and_then(|value| value.try_into().ok()).ok_or(AccelError::OtherVersion)
}

/// A rule without conditions, to read tunables with.
fn defaults_rule() -> [u8; RULE_BYTES] {
    Rule { tunables: Some(Tunables::default()), ..Rule::default() }.to_bytes()
}

const WHAT: &str = "the policy that gives connections the algorithm";
