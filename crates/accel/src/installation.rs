//! Switching acceleration on and off.

use crate::algorithm::{Algorithm, NAME};
use crate::cgroup;
use crate::object::{Loaded, Spec, with_libbpf_log};
use crate::open::{Open, Reach, SwitchedConnections};
use crate::pins::{self, Pins, Presence};
use crate::policy::Policy;
use crate::rules::{AFTER_CAQM, FLAGS_AT, MOST_RULES, RULE_BYTES, Rule, Tunables};
use crate::system::{Journal, System};
use crate::{AccelError, KernelAlgorithm, kernel, memory, names};
use libbpf_rs::{MapCore, MapFlags};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Installed,
    /// The command replaced a partial installation that a killed command had left.
    Repaired,
    /// The algorithm was installed before, and the command changed the rules.
    Changed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub change: Change,
    /// The open connections that the change switched; zero if the change left open connections
    /// alone.
    pub switched: SwitchedConnections,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Whether anything was installed.
    pub there: bool,
    pub switched: SwitchedConnections,
    /// Another user's entries with Weir's names, which Weir does not remove.
    pub foreign: Vec<PathBuf>,
}

/// Installs the policy: new connections get the algorithms that its rules name. On failure nothing
/// has changed, or the error names the changes that remain.
pub fn apply(policy: &Policy, reach: Reach) -> Result<Applied, AccelError> {
    let kernel = kernel::interface()?;
    policy.check()?;
    kernel.check(policy, reach)?;
    apply_in(&Pins::open()?, policy, reach)
}

pub fn change(
    reach: Reach,
    change: impl FnOnce(&mut Policy) -> Result<(), AccelError>,
) -> Result<Applied, AccelError> {
    let kernel = kernel::interface()?;
    let pins = Pins::open()?;
    let mut policy = in_force(&pins)?;
    change(&mut policy)?;
    policy.check()?;
    kernel.check(&policy, reach)?;
    apply_in(&pins, &policy, reach)
}

/// Replaces the installed programs with this build's, with the policy in force. Open connections
/// keep their program, unless `reach` includes them; new connections get the new program.
pub fn update(reach: Reach) -> Result<SwitchedConnections, AccelError> {
    let kernel = kernel::interface()?;
    kernel.check_reach(reach)?;
    if !kernel.links {
        return Err(AccelError::NotSupported {
            feature: "replacement of an algorithm (links for struct_ops)",
            doing: "an update",
            advice: "it came with Linux 6.4; use `weir accel disable`, then enable or policy",
        });
    }
    let pins = Pins::open()?;
    if pins.presence() != Presence::Whole {
        return Err(AccelError::NotRegistered { name: NAME });
    }
    let (policy, remembered) = (in_force(&pins)?, memory::keep(&pins));
    let (registered, mut given) = (pins.link(pins::ALGORITHM)?, pins.link(pins::POLICY)?);
    let staging = pins.staging();
    let built = build(&staging, &policy).and_then(|(mut algorithm, hook)| {
        memory::give(&staging, &remembered)?;
        algorithm.replace(&registered)?;
        Ok(hook)
    });
    // A failure before the first replacement leaves the installation unchanged.
    let hook = built.inspect_err(|_| drop(staging.remove()))?;
    let program = hook.program(PROGRAM)?;
    with_libbpf_log(WHAT, || given.update_prog(&program))?;
    pins.take(&staging)?;
    match reach {
        Reach::New => Ok(SwitchedConnections::default()),
        Reach::OpenToo => Open::load(&pins)?.adopt(),
    }
}

/// The connections that a change of tunables applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Connections of every rule, and sockets that choose the algorithm themselves.
    Everything,
    /// Connections of one rule, by its number in the status.
    Rule(usize),
    /// Sockets that choose the algorithm themselves.
    OwnChoice,
}

/// The changes that [`set`] made, a text for each change.
pub type SetChanges = Vec<String>;

/// Sets tunables and settings of the system from `NAME=VALUE`.
pub fn set(values: &[String], scope: Scope) -> Result<SetChanges, AccelError> {
    let own: Vec<_> = values.iter().map(|text| names::in_own_words(text)).collect();
    for (text, (own, _)) in values.iter().zip(&own) {
        check_value(own).map_err(|error| error.about(text, own))?;
    }
    if Pins::open()?.presence() != Presence::Whole {
        return Err(AccelError::NotRegistered { name: NAME });
    }
    let mut changes = Vec::new();
    change(Reach::New, |policy| {
        for (text, name) in &own {
            let change = set_one(policy, text, scope)?;
            changes.push(match name {
                Some(name) => format!("{name}: {change}"),
                None => change,
            });
        }
        Ok(())
    })?;
    Ok(changes)
}

/// Checks the name and the value. Callers check before they look at the machine, because a wrong
/// name or value is wrong on any machine.
fn check_value(text: &str) -> Result<(), AccelError> {
    let (mut tunables, mut system) = (Tunables::default(), System::default());
    let pair = text.split_once('=');
    let is_of_system = pair.map_or(Ok(false), |(name, value)| system.set(name, value))?;
    if !is_of_system {
        tunables.set(text)?;
    }
    tunables.check()?;
    system.check()
}

fn set_one(policy: &mut Policy, text: &str, scope: Scope) -> Result<String, AccelError> {
    let shown = text.replacen('=', " ", 1);
    if let Some((name, value)) = text.split_once('=')
        && policy.system.set(name, value)?
    {
        return Ok(match name {
            "fack" => format!(
                "{shown}: accepted without effect: forward acknowledgement left Linux with 4.15, and RACK \
                 replaces it"
            ),
            _ => format!("{shown}: of the system, while tcpa is on"),
        });
    }
    // A rule sets the bounds of a timeout only when a connection begins.
    let is_timeout = text.starts_with("rto_");
    let mut numbers = Vec::new();
    let gives_tcpa = policy.rules.iter().zip(1..).filter(|(rule, _)| rule.gives() == Some(NAME));
    let is_tcpa: Vec<usize> = gives_tcpa.map(|(_, number)| number).collect();
    let rules = policy.rules.iter_mut().zip(1..);
    for (tunables, number) in rules.filter_map(|(rule, n)| Some((rule.tunables.as_mut()?, n))) {
        if scope == Scope::Everything || scope == Scope::Rule(number) {
            if !is_timeout && !is_tcpa.contains(&number) {
                continue;
            }
            tunables.set(text)?;
            numbers.push(number.to_string());
        }
    }
    let is_own = match scope {
        Scope::Everything => !is_timeout,
        Scope::OwnChoice if is_timeout => {
            let problem = "only a rule sets the bounds of a timeout: name one with --rule N";
            return Err(AccelError::Usage(problem.to_owned()));
        }
        Scope::OwnChoice => true,
        Scope::Rule(number) if numbers.is_empty() => return Err(no_rule(policy, number)),
        Scope::Rule(_) => false,
    };
    if is_own {
        policy.defaults.set(text)?;
    } else if numbers.is_empty() {
        let problem = format!("`{text}`: no rule gives tcpa to connections");
        return Err(AccelError::Usage(problem));
    }
    let rules = match numbers.as_slice() {
        [] => None,
        [one] => Some(format!("rule {one}")),
        _ => Some(format!("rules {}", numbers.join(", "))),
    };
    let own = is_own.then(|| "sockets that choose tcpa themselves".to_owned());
    let whose = rules.into_iter().chain(own).collect::<Vec<_>>().join(" and ");
    Ok(format!("{shown}: {whose}, for connections that begin from now on"))
}

fn no_rule(policy: &Policy, number: usize) -> AccelError {
    let count = policy.rules.len();
    let rule = number.checked_sub(1).and_then(|index| policy.rules.get(index));
    AccelError::Usage(match rule.map(Rule::gives) {
        Some(None) => format!("rule {number} leaves its connections as they are"),
        Some(Some(algorithm)) => {
            format!(
                "rule {number} gives {algorithm}, which has no such tunable: rto_min and rto_max are for all"
            )
        }
        None => format!("there is no rule {number}, only {count}"),
    })
}

/// Removes the installation: new connections get the system's algorithm. Open connections keep
/// their algorithm until they end, unless `reach` includes them.
pub fn remove(reach: Reach) -> Result<Removed, AccelError> {
    let Some(pins) = Pins::open_if_any()? else {
        return Ok(Removed { there: Journal::put_back()?, ..Removed::default() });
    };
    let open = match reach {
        Reach::New => None,
        Reach::OpenToo => match kernel::interface().and_then(|kernel| {
            kernel.check_reach(reach)?;
            // The earlier algorithms are stored in a map that is about to be removed.
            Open::load_to_put_back(&pins)
        }) {
            // If nothing is installed, the features that the machine lacks do not matter.
            Err(_) if pins.presence() == Presence::Nothing => None,
            loaded => Some(loaded?),
        },
    };
    // Do all steps of the removal, even if a step fails.
    let installed = pins.presence() != Presence::Nothing;
    let removed = pins.remove();
    let switched = open.map_or(Ok(SwitchedConnections::default()), |open| open.put_back());
    let changed = Journal::put_back();
    removed?;
    Ok(Removed { there: changed? || installed, switched: switched?, foreign: pins.foreign()? })
}

/// Reads the policy in force from the kernel. The policy of the last command may differ.
pub fn in_force(pins: &Pins) -> Result<Policy, AccelError> {
    let system = Journal::read()?.system();
    if pins.presence() != Presence::Whole {
        return Ok(Policy { system, ..Policy::default() });
    }
    let tunables = |key| Ok(Tunables::from_bytes(read(pins, pins::SETTINGS, 1 + key)?));
    Ok(Policy {
        rules: rules_in_force(pins, tunables)?,
        defaults: Tunables::from_bytes(read(pins, pins::SETTINGS, 0)?),
        system,
    })
}

/// Reads the rules in force. `tunables` returns the tunables of a rule by its number in the map.
pub(crate) fn rules_in_force(
    pins: &Pins,
    tunables: impl Fn(u32) -> Result<Tunables, AccelError>,
) -> Result<Vec<Rule>, AccelError> {
    let (set, count) = active(pins)?;
    let rules = (0..count).map(|index| {
        let key = set * MOST_RULES as u32 + index;
        let bytes: [u8; RULE_BYTES] = read(pins, pins::RULES, key)?;
        Ok(Rule::from_bytes(&bytes, tunables(key)?.to_bytes()))
    });
    rules.collect()
}

/// Removes the rules that give this algorithm; the installation ends with the last rule that gives
/// an algorithm. The settings of the system belong to tcpa.
pub fn withdraw(algorithm: &str, reach: Reach) -> Result<Removed, AccelError> {
    let pins = Pins::open_if_any()?.filter(|pins| pins.presence() == Presence::Whole);
    let Some(pins) = pins else {
        return if algorithm == NAME { remove(reach) } else { Ok(Removed::default()) };
    };
    let mut policy = in_force(&pins)?;
    let gave = policy.rules.len();
    policy.rules.retain(|rule| rule.gives() != Some(algorithm));
    let there = policy.rules.len() < gave || algorithm == NAME;
    if there && policy.rules.iter().all(|rule| rule.gives().is_none()) {
        // Only a single command at a time may hold the pins.
        drop(pins);
        return remove(reach);
    }
    if !there {
        return Ok(Removed::default());
    }
    if algorithm == NAME {
        policy.system = System::default();
    }
    kernel::interface()?.check_reach(reach)?;
    let applied = apply_in(&pins, &policy, reach)?;
    Ok(Removed { there, switched: applied.switched, foreign: pins.foreign()? })
}

fn apply_in(pins: &Pins, policy: &Policy, reach: Reach) -> Result<Applied, AccelError> {
    policy.kernel_algorithms().into_iter().try_for_each(KernelAlgorithm::load)?;
    let before = in_force(pins)?;
    let change = match pins.presence() {
        Presence::Whole => Change::Changed,
        Presence::Nothing => Change::Installed,
        Presence::Part => {
            pins.remove()?;
            Change::Repaired
        }
    };
    let mut journal = Journal::read()?;
    journal.become_like(&policy.system)?;
    let done = match change {
        Change::Changed => write(pins, policy),
        _ => install(pins, policy),
    };
    let switched = done.and_then(|()| match reach {
        Reach::New => Ok(SwitchedConnections::default()),
        Reach::OpenToo => Open::load(pins)?.adopt(),
    });
    let switched = switched.map_err(|failure| {
        let rules = match change {
            Change::Changed => write(pins, &before),
            // If this removal fails, the next command removes the remaining part.
            _ => pins.remove(),
        };
        failure.after(rules).after(journal.become_like(&before.system))
    })?;
    Ok(Applied { change, switched })
}

fn install(pins: &Pins, policy: &Policy) -> Result<(), AccelError> {
    let root = cgroup::mount()?;
    let root = File::open(&root).map_err(|source| AccelError::file("opening", &root, source))?;
    let (mut algorithm, hook) = build(pins, policy)?;
    algorithm.pin_ahead(pins)?;
    algorithm.register()?.keep(pins)?;
    let program = hook.program(PROGRAM)?;
    let mut link = with_libbpf_log(WHAT, || program.attach_cgroup(root.as_raw_fd()))?;
    with_libbpf_log(WHAT, || link.pin(pins.at(pins::POLICY)))
}

/// Loads the algorithm and the policy's program, with the maps that both programs share.
fn build(pins: &Pins, policy: &Policy) -> Result<(Algorithm, Loaded), AccelError> {
    let mut algorithm = Algorithm::load()?;
    pins.make()?;
    for name in [pins::FLOWS, pins::SETTINGS, pins::PATHS, pins::ENDED] {
        pin(pins, algorithm.loaded_mut(), name)?;
    }
    let mut hook = Spec::open(WHAT, include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o")))?;
    for name in [pins::FLOWS, pins::SETTINGS] {
        hook.reuse(name, &pins.pinned(name)?)?;
    }
    let mut hook = hook.load()?;
    for name in [pins::RULES, pins::ACTIVE] {
        pin(pins, &mut hook, name)?;
    }
    write(pins, policy)?;
    Ok((algorithm, hook))
}

fn pin(pins: &Pins, loaded: &mut Loaded, name: &'static str) -> Result<(), AccelError> {
    let mut map = loaded.map_mut(name)?;
    with_libbpf_log(name, || map.pin(pins.at(name)))
}

fn write(pins: &Pins, policy: &Policy) -> Result<(), AccelError> {
    store(pins, pins::SETTINGS, 0, &policy.defaults.to_bytes())?;
    let after_caqm = pins.of_caqm().presence() != Presence::Nothing;
    let flags = if after_caqm { AFTER_CAQM } else { 0 };
    write_rules(pins, &policy.rules, flags, |key, rule| {
        let tunables = rule.tunables.unwrap_or_default();
        store(pins, pins::SETTINGS, 1 + key, &tunables.to_bytes())
    })
}

/// Writes the rules into the inactive half of the map, then activates the half with one store.
/// `flags` apply to every rule; `more` writes the further data of each rule.
pub(crate) fn write_rules(
    pins: &Pins,
    rules: &[Rule],
    flags: u8,
    more: impl Fn(u32, &Rule) -> Result<(), AccelError>,
) -> Result<(), AccelError> {
    let set = 1 - active(pins)?.0;
    for (key, rule) in (set * MOST_RULES as u32..).zip(rules) {
        let mut bytes = rule.to_bytes();
        bytes[FLAGS_AT] |= flags;
        store(pins, pins::RULES, key, &bytes)?;
        more(key, rule)?;
    }
    let mut active = [0; 8];
    active[..4].copy_from_slice(&set.to_ne_bytes());
    active[4..].copy_from_slice(&(rules.len() as u32).to_ne_bytes());
    store(pins, pins::ACTIVE, 0, &active)
}

/// Reads `struct active` of bpf/rules.h.
fn active(pins: &Pins) -> Result<(u32, u32), AccelError> {
    let bytes: [u8; 8] = read(pins, pins::ACTIVE, 0)?;
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok((word(0) & 1, word(4).min(MOST_RULES as u32)))
}

pub(crate) fn store(
    pins: &Pins,
    map: &'static str,
    key: u32,
    value: &[u8],
) -> Result<(), AccelError> {
    let map_handle = pins.map(map)?;
    with_libbpf_log(map, || map_handle.update(&key.to_ne_bytes(), value, MapFlags::ANY))
}

pub(crate) fn read<const N: usize>(
    pins: &Pins,
    map: &'static str,
    key: u32,
) -> Result<[u8; N], AccelError> {
    let handle = pins.map(map)?;
    let value = with_libbpf_log(map, || handle.lookup(&key.to_ne_bytes(), MapFlags::ANY))?;
    value.and_then(|value| value.try_into().ok()).ok_or(AccelError::OtherVersion)
}

/// The name of the program in bpf/policy.bpf.c.
const PROGRAM: &str = "policy";
const WHAT: &str = "the policy that gives connections the algorithm";
