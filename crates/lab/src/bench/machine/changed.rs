//! The changes of a system to the hosts of a testbed.

use super::{MachineStep, Testbed};
use crate::bench::hosts::{Change, LabHost, LocalHost};
use crate::model::Failure;
use crate::model::file::{WORDS_OF_COMMANDS, command_words};

/// The hosts that a system has changed. Dropping this value undoes the changes.
#[derive(Debug)]
pub(super) struct Changed(Vec<LocalHost>);

impl Changed {
    pub(super) fn apply(step: &MachineStep<'_>, testbed: &Testbed) -> Result<Self, Failure> {
        let mut hosts = Vec::new();
        if step.system.changes.is_empty() {
            return Ok(Self(hosts));
        }
        for name in &step.lab.hosts {
            let name = name.get_ref().as_str();
            // Skip a host that the cell does not use: the host has no namespace.
            let Ok(inside) = testbed.namespace(name) else { continue };
            let host = LocalHost::new(name, Some(inside), step.weir, step.programs)?;
            let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
            let (client, server) = (testbed.address(from, to)?, testbed.address(to, from)?);
            let value = |word: &str| match word {
                "client" => Some(client.to_string()),
                "server" => Some(server.to_string()),
                "port" => Some(super::PORT.to_string()),
                "weir" => Some(host.weir().to_owned()),
                "duration" => Some(step.duration.secs_f64().to_string()),
                axis => step.lab.filled_text(step.axes, &format!("{{{axis}}}")).ok(),
            };
            let words = |line: &str| {
                command_words(line, &WORDS_OF_COMMANDS, value).map_err(Failure::Workload)
            };
            for change in step.system.changes.iter().filter(|change| change.is_of(name)) {
                let [apply, undo] = change.lines();
                let (apply, undo) = (words(apply.get_ref())?, words(undo.get_ref())?);
                host.change(&Change { apply, undo })?;
            }
            hosts.push(host);
        }
        Ok(Self(hosts))
    }

    pub(super) fn undo(self) -> Result<(), Failure> {
        let undone: Vec<_> = self.0.iter().rev().map(LabHost::undo).collect();
        undone.into_iter().collect()
    }
}
