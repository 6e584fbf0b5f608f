//! Fills the connection tracker of one switch or of the kernel once.

use super::filling::{Filling, PATIENCE, watch};
use super::{KERNEL, kernel};
use crate::bench::machine::{MachineStep, Measured, Roles, Watch};
use crate::model::{Failure, Measurement};
use crate::workloads::flow_rules::Packets;
use crate::workloads::switches::{Product, RunningSwitch, Setup, Source};
use generator::Addressing;
use host::Namespace;
use probe::process::Resident;

pub(super) fn measure(connections: u32, step: &MachineStep<'_>) -> Result<Measured, Failure> {
    let mut result = Measurement::default();
    let roles = Roles::default();
    let before = Watch::read(&roles)?;
    let name = step.system.name();
    match Product::of(name) {
        Some(product) => of_switch(product, connections, step, &mut result)?,
        None if name == KERNEL => kernel::measure(connections, step, &mut result)?,
        None => return Err(Failure::Workload(format!("no tracker `{name}`"))),
    }
    let after = Watch::read(&roles)?;
    // A packet thread uses its whole CPU by design.
    after.account_polling(&before, step.cpus, None, &mut result);
    Ok(Measured::between_ends(step, before.taken()..after.taken(), result))
}

fn of_switch(
    product: Product,
    connections: u32,
    step: &MachineStep<'_>,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let made = tempfile::Builder::new().prefix("conntrack-").tempdir_in(step.programs);
    let folder = made.map_err(|error| Failure::io("making a folder for the captures", &error))?;
    let each = connections.min(MOST_FRAMES);
    let packets = Packets::of(each, Addressing::Lockstep)?;
    let (whole, parts) = packets.write(folder.path(), 1)?;
    let rules = folder.path().join("rules.txt");
    std::fs::write(&rules, RULES).map_err(|error| Failure::io("writing the rules", &error))?;
    let source = Source::Captures { whole, parts, frames: packets.frames.len() };
    let cpus: Vec<usize> = host::online_cpus().into_iter().next_back().into_iter().collect();
    let setup = Setup { rules: &rules, source: &source, cpus: &cpus };
    let inside = Namespace::create("switch")?;
    let mut switch = RunningSwitch::start(product, &setup, &inside, step)?;
    let pid = switch.pid();
    let resident = || {
        let memory = pid.and_then(|pid| Resident::tree(pid).ok());
        memory.map(|memory| memory.now.count() as f64)
    };
    let (memory, first) = (resident(), switch.connections()?);
    let mut fillings: Vec<Filling> = Vec::new();
    let (mut standing, mut zone) = (first, 0);
    while standing - first < u64::from(connections) {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        zone += 1;
        let wanted = u64::from(each).min(u64::from(connections) - (standing - first));
        let change = switch.start_adding_rule(&rule(zone), &inside, step)?;
        let filling = watch(standing, wanted, PATIENCE, || match step.cancel.is_cancelled() {
            true => Err(Failure::Interrupted),
            false => switch.connections(),
        })?;
        change.finish(step)?;
        if let Some(failure) = switch.failure() {
            return Err(failure);
        }
        fillings.push(filling.map_err(|most| {
            let count = standing - first + most;
            Failure::Workload(format!("the switch stopped at {count} connections of {connections}"))
        })?);
        standing = switch.connections()?;
    }
    account(&fillings, result);
    let grown = resident().zip(memory).map(|(now, then)| now - then);
    result.record("connections", Some((standing - first) as f64));
    let each = grown.map(|grown| grown / 1024.0 / (standing - first).max(1) as f64);
    result.record("memory_kib_each.server", each);
    result.record("memory_mib.server", resident().map(|bytes| bytes / 1024.0 / 1024.0));
    result.warnings.extend(switch.remark().map(str::to_owned));
    Ok(())
}

pub(super) fn account(fillings: &[Filling], result: &mut Measurement) {
    let new: f64 = fillings.iter().map(|filling| filling.new).sum();
    let seconds: f64 = fillings.iter().map(|filling| filling.seconds).sum();
    result.record("setups_s", (seconds > 0.0).then(|| new / seconds));
}

/// Rules before the first measurement. The switch tracks nothing until the lab adds the first
/// tracking rule.
const RULES: &str = "table=0,priority=1,in_port=1 actions=drop\ntable=1,ip actions=output:2\n";

fn rule(zone: u32) -> String {
    format!("table=0,priority=100,ip,in_port=1 actions=ct(commit,zone={zone},table=1)")
}

const MOST_FRAMES: u32 = 262_144;
