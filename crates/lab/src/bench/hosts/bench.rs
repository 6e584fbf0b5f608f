//! Measures steps between real machines, one step at a time.

use super::inventory::{Inventory, sets_algorithm};
use super::middle::Middles;
use super::seam::{Change, LabHost};
use super::state;
use super::turn::Turn;
use crate::bench::machine::{CONGESTION, validity};
use crate::bench::{Bench, Job, LabFile, environment};
use crate::model::file::{FileError, OneWay, Pinning, SystemKind, SystemSpec};
use crate::model::plan::{Plan, Step, seed_of};
use crate::model::{Cancel, Failure, Flaw, LabError, Measurement, TurnClock, Verdict};
use host::Sysctl;
use indexmap::IndexMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use units::Span;

/// The hosts of one lab, connected.
pub(crate) struct RealHosts<'a> {
    lab: &'a LabFile,
    inventory: Mutex<Inventory>,
}

impl<'a> RealHosts<'a> {
    pub(crate) fn new(lab: &'a LabFile, weir: &Path, cancel: &Cancel) -> Result<Self, LabError> {
        check_between_machines(lab)?;
        let inventory = Inventory::connect(lab, weir, cancel)?;
        let problems = inventory.problems(lab);
        if !problems.is_empty() {
            let table = inventory.table();
            return Err(LabError::HostsUnfit { problems: [vec![table], problems].concat() });
        }
        Ok(Self { lab, inventory: Mutex::new(inventory) })
    }

    fn inventory(&self) -> MutexGuard<'_, Inventory> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measured(&self, inventory: &Inventory, job: &Job<'_>) -> Result<Measurement, Failure> {
        let Job { lab, plan, step, cell, system, cancel, .. } = *job;
        let wrong = |error: FileError| Failure::Workload(error.to_string());
        let ends = lab.kind().ends(lab, &cell.axes).map_err(wrong)?;
        let of = |name: &str| {
            inventory.hosts.get(name).ok_or_else(|| Failure::HostLost {
                host: name.to_owned(),
                reason: "the connection is lost".to_owned(),
            })
        };
        let host_of = |name: &str| of(name).map(|one| &one.host);
        let (near, far) = (of(&ends.from)?, of(&ends.to)?);
        let address = |one: &super::inventory::Connected| {
            let unknown = || Failure::Workload("a host has no address".to_owned());
            one.address.ok_or_else(unknown)
        };
        let turn = Turn {
            lab,
            system,
            axes: &cell.axes,
            near: &near.host,
            far: &far.host,
            addresses: [address(near)?, address(far)?],
            streams: ends.streams,
            duration: plan.duration,
            omit: plan.omit,
            near_cpus: &[],
            far_cpus: &[],
            cancel,
        };
        let workload = lab.kind().at(lab, &cell.axes).map_err(wrong)?;
        let longest = workload.longest_between(&turn)?;
        for one in inventory.hosts.values() {
            one.host.lease(longest)?;
        }
        let settings = lab.settings_at(&cell.axes, Some(system)).map_err(wrong)?;
        let middles = Middles::of(&turn, [&ends.from, &ends.to], seed_of(lab, cell, step.block))?;
        let measured = self.prepare(inventory, &turn, &settings).and_then(|()| {
            middles.start(&host_of)?;
            let start = inventory.clocks()?;
            let mut measured = workload.measure_between(&turn)?;
            let end = inventory.clocks()?;
            middles.finish(&host_of, &mut measured)?;
            let both = start.into_iter().zip(end);
            let clocks = both.map(|((name, start), (_, end))| (name, TurnClock { start, end }));
            measured.clocks = clocks.collect();
            correct_delays(lab, [&ends.from, &ends.to], &mut measured);
            Ok(measured)
        });
        // Undo the changes first: no further turn may run with them. An agent whose connection is
        // lost undoes its host's changes by itself.
        let undone: Vec<_> = inventory.hosts.values().map(|one| one.host.undo()).collect();
        // Report a change that stays in force before every other failure: the next turn would run
        // with the change, and would take the changed value for the original value.
        if let Some(reason) = undone.iter().find_map(|undone| match undone {
            Err(Failure::Workload(reason) | Failure::NotUndone(reason)) => Some(reason),
            _ => None,
        }) {
            let cause = measured.as_ref().err().map(|cause| format!("{cause}; "));
            return Err(Failure::NotUndone(format!("{}{reason}", cause.unwrap_or_default())));
        }
        match measured {
            Err(failure @ Failure::HostLost { .. }) => Err(failure),
            measured => {
                let undone: Result<(), Failure> = undone.into_iter().collect();
                let undone = undone.map_err(|failure| match (failure, &measured) {
                    // An agent takes its changes back once its connection has ended.
                    (Failure::HostLost { .. }, Err(Failure::Interrupted)) => Failure::Interrupted,
                    (other, _) => other,
                });
                undone.and(measured)
            }
        }
    }

    /// Applies the system's settings and changes on every host, and its state of `[state]`.
    fn prepare(
        &self,
        inventory: &Inventory,
        turn: &Turn<'_>,
        settings: &IndexMap<String, String>,
    ) -> Result<(), Failure> {
        let set = |host: &dyn LabHost, name: &str, value: &str| {
            host.set(&Sysctl { name: name.to_owned(), value: value.to_owned() })
        };
        for (name, one) in inventory.ends() {
            for (setting, value) in settings {
                set(&one.host, setting, value)?;
            }
            if let Some(congestion) = &turn.system.congestion
                && sets_algorithm(self.lab)
            {
                set(&one.host, CONGESTION, congestion.get_ref())?;
            }
            for change in turn.system.changes.iter().filter(|change| change.is_of(name)) {
                let [apply, undo] = change.lines();
                let apply = turn.words(apply.get_ref(), &one.host)?;
                let undo = turn.words(undo.get_ref(), &one.host)?;
                one.host.change(&Change { apply, undo })?;
            }
        }
        state::apply(turn)
    }
}

impl Bench for RealHosts<'_> {
    fn threads(&self) -> usize {
        1
    }

    fn notes(&self) -> Vec<String> {
        let places = self.lab.places_of_hosts();
        let each: Vec<String> =
            places.iter().map(|(name, place)| format!("{name} is {place}")).collect();
        let mut notes = vec![format!("measured between real machines: {}", each.join(", "))];
        for middle in self.lab.link.iter().filter_map(|link| link.get_ref().middle()) {
            let [near, far] = &middle.interfaces;
            notes.push(format!("{} emulates the link between {near} and {far}", middle.host));
        }
        notes.extend(self.inventory().shared_machine());
        notes.extend(note_of_pinning(self.lab).map(str::to_owned));
        notes
    }

    fn preface(&self) -> Option<String> {
        Some(self.inventory().table())
    }

    fn degradation(&self) -> Option<String> {
        None
    }

    fn facts(&self) -> IndexMap<String, serde_json::Value> {
        let mut facts = environment::describe_hosts(self.lab);
        facts.insert("hosts".to_owned(), self.inventory().facts());
        facts
    }

    fn validity(&self, results: &results::Results) -> Vec<(String, String)> {
        match self.lab.middles().is_empty() {
            true => Vec::new(),
            false => validity::method_of_middles(results),
        }
    }

    fn missing(&self, _system: &SystemSpec, _asked: bool) -> Option<String> {
        None
    }

    fn estimate(&self, plan: &Plan, left: &[&Step]) -> Duration {
        let one = plan.omit + plan.duration + AROUND_A_TURN;
        left.iter().fold(Span::ZERO, |sum, _| sum + one).as_duration()
    }

    fn measure(&self, job: &Job<'_>) -> Result<Option<Verdict>, LabError> {
        let mut inventory = self.inventory();
        let mut lost: Vec<Flaw> = Vec::new();
        loop {
            let measured = self.measured(&inventory, job);
            match measured {
                Err(Failure::NotUndone(reason)) => {
                    return Err(LabError::NotUndone { reason, directory: None });
                }
                Err(_) if job.cancel.is_cancelled() => return Ok(None),
                Ok(mut measurement) => {
                    measurement.retried.splice(..0, lost);
                    return Ok(Some(Verdict::Measured(Box::new(measurement))));
                }
                Err(Failure::HostLost { host, reason }) => {
                    if lost.len() >= RECONNECTIONS {
                        return Err(LabError::HostLost { host, reason, directory: None });
                    }
                    let detail = format!("{host}: {reason}");
                    lost.push(Flaw {
                        what: "the connection to a host was lost".to_owned(),
                        detail,
                    });
                    match inventory.reconnect(self.lab, &host) {
                        Ok(()) => {}
                        Err(Failure::Interrupted) => return Ok(None),
                        Err(failure) => {
                            let reason = format!("{reason}; connected again: {failure}");
                            return Err(LabError::HostLost { host, reason, directory: None });
                        }
                    }
                }
                Err(failure) => return Ok(Some(Verdict::Failed(failure.to_string()))),
            }
        }
    }
}

/// Refuses settings of the file that exist only in namespaces of this machine.
pub(crate) fn check_between_machines(lab: &LabFile) -> Result<(), FileError> {
    lab.check_real_links()?;
    let refuse = |place, message: String| Err(lab.source.error(place, message));
    if let Some(disturbance) = &lab.disturbance {
        let message = "`[disturbance]` delays the emulator and takes CPU time away on this machine only, and real machines \
                       stay as they are: remove the table, or add --namespaces to run the lab in namespaces of this \
                       machine";
        return refuse(disturbance.span(), message.to_owned());
    }
    state::check(lab)?;
    if let Some(system) = lab.systems().find(|system| system.kind != SystemKind::Tcp) {
        let message = "between real machines a system is `kind = \"tcp\"`: run other programs by the workload `command`";
        return refuse(system.name.span(), message.to_owned());
    }
    let own = [accel::algorithm::NAME, accel::caqm::NAME];
    let mut loaded = lab.systems().filter_map(|system| system.congestion.as_ref());
    if let Some(name) = loaded.find(|name| own.contains(&name.get_ref().as_str())) {
        let message = format!(
            "`{0}` is loaded into this machine's kernel only: start weir accel on the hosts and name no algorithm here",
            name.get_ref()
        );
        return refuse(name.span(), message);
    }
    Ok(())
}

/// Returns a note if the file pins programs to CPUs, which a lab does only on its own machine.
fn note_of_pinning(lab: &LabFile) -> Option<&'static str> {
    let is_pinned = lab.workload.get_ref().pin != Pinning::Free;
    is_pinned.then_some(
        "`pin` holds in namespaces only: the programs here could use all CPUs of their machines",
    )
}

/// Corrects the delays between two hosts that the client printed. The correction is the offset
/// between the hosts' clocks.
fn correct_delays(lab: &LabFile, [from, to]: [&String; 2], measured: &mut Measurement) {
    let Some((near, far)) = measured.clocks.get(from).zip(measured.clocks.get(to)) else { return };
    let (near, far) = (*near, *far);
    for (name, figure) in &lab.workload.get_ref().metrics {
        let figure = figure.get_ref();
        let Some(way) = &figure.one_way else { continue };
        let arrival_ahead = match way.get_ref() {
            OneWay::ToServer => far.ahead_of(&near),
            OneWay::ToClient => near.ahead_of(&far),
        };
        let metrics = [figure.metric(name.get_ref()), figure.error_metric(name.get_ref())];
        let [metric, error] = [0, 1].map(|place: usize| metrics[place].as_str());
        measured.correct_delay([metric, error], arrival_ahead, figure.second().unwrap_or(1.0));
    }
}

/// Maximum number of reconnections within one turn.
const RECONNECTIONS: usize = 2;
/// Estimated time for settings and the start of programs.
const AROUND_A_TURN: Span = Span::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_pinned_programs_has_a_note_between_machines() {
        let note = |pin: &str| {
            let text = format!(
                "name = \"x\"\nhosts = [\"a\", \"b\"]\n[host.a]\nssh = \"a\"\n[host.b]\nssh = \"b\"\n\
                 [[link]]\nbetween = [\"a\", \"b\"]\ndirect = true\n\
                 [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n{pin}\
                 [[system]]\nname = \"plain\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n\
                 [form.full]\nduration = \"1s\"\n"
            );
            note_of_pinning(&LabFile::parse("x.toml", &text).unwrap())
        };
        for pin in ["", "pin = \"free\"\n"] {
            assert_eq!(note(pin), None, "{pin}");
        }
        assert!(note("pin = \"apart\"\n").is_some());
    }
}
