//! `weir lab hosts`: looks at the real hosts of a lab, and removes weir from them.

use super::bench::check_between_machines;
use super::inventory::{Inventory, temporary_folder};
use super::ssh::Ssh;
use super::sweep::Machine;
use crate::bench::LabFile;
use crate::model::{Cancel, Failure, LabError};
use serde_json::Value;
use std::path::Path;

/// The hosts of a lab before a run.
#[derive(Debug)]
pub struct Checked {
    /// The facts as a table with one column for each host, and a note if two hosts are one machine.
    pub table: String,
    /// The reasons why the lab cannot run on the hosts.
    pub problems: Vec<String>,
    pub json: Value,
}

/// Connects to every host, and measures nothing. Refuses a lab that runs in namespaces only.
pub fn check(lab: &LabFile, weir: &Path, cancel: &Cancel) -> Result<Checked, LabError> {
    named(lab)?;
    check_between_machines(lab)?;
    let inventory = Inventory::connect(lab, weir, cancel)?;
    let problems = inventory.problems(lab);
    let note = inventory.shared_machine().map(|note| format!("\nnote: {note}"));
    let table = inventory.table() + &note.unwrap_or_default();
    let json = inventory.json(&problems);
    Ok(Checked { table, problems, json })
}

/// Removes every agent's program from the hosts of a lab. Returns a line for each host.
pub fn clean(lab: &LabFile, cancel: &Cancel) -> Result<Vec<String>, LabError> {
    named(lab)?;
    let folder = temporary_folder()?;
    cleaned(Inventory::ssh_of(lab, folder.path(), cancel))
}

/// Removes every agent's program from the machines. Returns a line for each machine.
pub fn clean_machines(machines: &[Machine], cancel: &Cancel) -> Result<Vec<String>, LabError> {
    let folder = temporary_folder()?;
    let reached = machines.iter().enumerate().map(|(number, machine)| {
        let name = machine.name();
        (name.to_owned(), Ssh::of(name, &machine.spec(), number, folder.path(), cancel))
    });
    cleaned(reached.collect())
}

/// A host without ssh is this machine.
fn cleaned(hosts: Vec<(String, Option<Ssh>)>) -> Result<Vec<String>, LabError> {
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    for (name, ssh) in hosts {
        let Some(ssh) = ssh else {
            lines.push(format!("{name}: this machine, nothing was copied"));
            continue;
        };
        let cleaned = ssh.clean();
        ssh.close();
        match cleaned.as_deref().map(|text| text.trim_end().lines().last().unwrap_or_default()) {
            Ok("removed") => lines.push(format!("{name}: removed")),
            Err(Failure::Interrupted) => return Err(LabError::Interrupted { directory: None }),
            Ok("nothing") => lines.push(format!("{name}: nothing to remove")),
            Ok("busy") => {
                problems.push(format!("{name}: a lab uses this host now: wait for its end"));
            }
            Ok(other) => problems.push(format!("{name}: it answered `{}`", units::foreign(other))),
            Err(failure) => problems.push(failure.to_string()),
        }
    }
    match problems.is_empty() {
        true => Ok(lines),
        false => Err(LabError::NotRemoved { hosts: [lines, problems].concat() }),
    }
}

fn named(lab: &LabFile) -> Result<(), LabError> {
    match lab.has_real_hosts() {
        true => Ok(()),
        false => Err(LabError::Usage(
            "the lab's hosts are namespaces of this machine: add `[host.NAME]` with `ssh` for real ones".to_owned(),
        )),
    }
}
