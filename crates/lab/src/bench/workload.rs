//! The interface between the benches and the workloads: a bench calls these methods.

use super::LabFile;
use super::hosts::Turn;
use super::machine::{MachineStep, Measured, PORT, Testbed};
use super::simulator::{SimulatorStep, packet_time};
use crate::model::file::{Document, Ends, FileError, FormSpec, Key, LinkSettings, Loopback};
use crate::model::file::{SystemKind, SystemSpec};
use crate::model::{Failure, Measurement, Plan};
use results::{Axes, Cell, Results};
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use units::Span;

/// A kind of workload. Only the first four methods have no default.
pub(crate) trait Workload: fmt::Debug + Sync {
    /// Returns the value of `kind` in `[workload]`.
    fn kind(&self) -> &'static str;

    /// Returns the kinds of systems that the workload measures.
    fn systems(&self) -> &'static [SystemKind];

    /// Returns the method of the measurement, for the report: terms and their explanations.
    fn method(&self) -> Vec<(&'static str, String)>;

    /// Parses the workload's keys in the cell at `axes`.
    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError>;

    /// Whether the workload can run over a host's loopback, or the reason why not.
    fn loopback(&self) -> Loopback {
        Ok(())
    }

    /// Returns the files and texts beside the lab file that decide the figures of the cell at
    /// `axes`, each with a name for people.
    fn inputs(&self, _document: &Document, _axes: &Axes) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the programs, CPUs and rights that the cell at `axes` needs and this machine lacks,
    /// each as a sentence.
    fn lacking(&self, _document: &Document, _axes: &Axes) -> Vec<String> {
        Vec::new()
    }

    /// Returns the workload's own keys in `[workload]`, in addition to the keys that all workloads
    /// share.
    fn keys(&self) -> &'static [Key] {
        &[]
    }

    /// Returns the keys of `[[system]]` that this workload reads and other workloads refuse.
    fn system_keys(&self) -> &'static [SystemKey] {
        &[]
    }

    /// Whether the workload reads `[topology]` and `[tcp]`.
    fn has_network(&self) -> bool {
        false
    }

    /// Returns an axis with values of the workload's own. A file that does not list the axis gets
    /// all values.
    fn own_axis(&self, _document: &Document) -> Option<(&'static str, Vec<&'static str>)> {
        None
    }

    /// Whether a lab file of this workload must name hosts.
    fn has_hosts(&self) -> bool {
        true
    }

    /// Returns the hosts of the cell at `axes`.
    fn ends(&self, document: &Document, axes: &Axes) -> Result<Ends, FileError> {
        document.ends_at(axes, self.loopback())
    }

    /// Checks the workload's keys against each other, for all cells.
    fn check(&self, _document: &Document) -> Result<(), FileError> {
        Ok(())
    }

    /// Checks the cell at `axes` against the duration of a form.
    fn check_form(
        &self,
        _document: &Document,
        _form: &FormSpec,
        _axes: &Axes,
    ) -> Result<(), FileError> {
        Ok(())
    }

    /// Returns the reason if no machine can run the workload.
    fn refused_by_machine(&self) -> Option<&'static str> {
        None
    }

    /// Returns the reason if the simulator cannot run the workload.
    fn refused_by_simulator(&self) -> Option<&'static str> {
        None
    }

    /// Returns the first key of the file that a machine does not support, and its position.
    fn only_simulated(&self, _document: &Document) -> Option<(&'static str, Range<usize>)> {
        None
    }

    /// Refuses a file that the simulator cannot run.
    fn check_simulated(&self, _document: &Document) -> Result<(), FileError> {
        Ok(())
    }

    /// Returns the settings with which the hosts of a cell are created.
    fn host_setup(&self) -> HostSetup {
        HostSetup::default()
    }

    /// Returns the reason why no system can run here: a program of the workload is missing.
    fn missing_program(&self) -> Option<&'static str> {
        None
    }

    /// Returns the programs without which this system cannot run.
    fn programs(&self, _system: &SystemSpec) -> &'static [&'static str] {
        &[]
    }

    /// Returns the programs that the system's commands in `[workload]` start.
    fn programs_of(&self, _document: &Document, _system: &SystemSpec) -> Vec<String> {
        Vec::new()
    }

    /// Returns the TCP port that a server of the workload needs on the real machine `host`. `None`
    /// if the host needs no port that is known before the first turn.
    fn port_on(&self, _document: &Document, _host: &str) -> Option<u16> {
        Some(PORT)
    }

    /// Whether the steps of a cell follow one another. A step can then use the programs that an
    /// earlier step of the cell has prepared ([`Kept`](super::machine::Kept)).
    fn keeps_cells(&self) -> bool {
        false
    }

    /// Estimates the time of a step on a machine. The omitted time is added, unless the steps of a
    /// cell follow one another: then this estimate includes the omitted time.
    fn machine_time(
        &self,
        _document: &Document,
        _system: &SystemSpec,
        _axes: &Axes,
        plan: &Plan,
    ) -> Span {
        plan.duration
    }

    /// Estimates the computing time of a step in the simulator.
    fn simulator_time(&self, document: &Document, axes: &Axes, plan: &Plan) -> Duration {
        packet_time(document, axes, plan)
    }

    /// Whether each figure of a machine is compared with the simulator's.
    fn is_simulated_too(&self) -> bool {
        false
    }

    /// Judges a cell once its repeats are summarised.
    fn judge(&self, _cell: &mut Cell) {}

    /// Returns the answer to the lab's question, in sentences. If empty, the report derives the
    /// answer from the comparisons.
    fn answer(&self, _results: &Results) -> Vec<String> {
        Vec::new()
    }

    /// Whether the report compares the systems' means over all cells.
    fn has_means(&self) -> bool {
        false
    }
}

/// The workload of one cell, with its settings parsed. The workload runs on a machine, in the
/// simulator or in both; [`Workload`] has the reason if a machine or the simulator refuses it.
pub(crate) trait CellWorkload {
    /// Returns the links that the cell uses, among the file's `links`.
    fn links(&self, links: Vec<LinkSettings>) -> Vec<LinkSettings> {
        links
    }

    fn measure(&self, _step: &MachineStep<'_>, _testbed: &Testbed) -> Result<Measured, Failure> {
        Err(Failure::Workload("this workload does not run on a machine".to_owned()))
    }

    /// Returns the reason if the cell cannot run between real machines.
    fn between_machines(&self) -> Result<(), &'static str> {
        Err("its programs and its links are those of this machine")
    }

    /// Returns the maximum time of a turn between real machines. An agent that receives no request
    /// for this long undoes its changes.
    fn longest_between(&self, turn: &Turn<'_>) -> Result<Duration, Failure> {
        Ok((turn.omit + turn.duration).as_duration() + AROUND_A_TURN)
    }

    /// Measures a turn between two real machines. Called only if [`Self::between_machines`] is
    /// `Ok`.
    fn measure_between(&self, _turn: &Turn<'_>) -> Result<Measurement, Failure> {
        Err(Failure::Workload("this workload does not run between real machines".to_owned()))
    }

    fn simulate(&self, _step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        Err(Failure::Workload("this workload does not run in virtual time".to_owned()))
    }
}

/// Maximum time for settings, servers and downloads that are completed late.
pub(crate) const AROUND_A_TURN: Duration = Duration::from_secs(600);

/// Returns all programs without which the system cannot run, including the programs that its
/// commands in `[workload]` start.
pub(crate) fn programs(lab: &LabFile, system: &SystemSpec) -> Vec<String> {
    let own = lab.kind().programs(system).iter().map(|name| (*name).to_owned());
    own.chain(lab.kind().programs_of(lab, system)).collect()
}

/// A key of `[[system]]` that only some workloads read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemKey {
    Warm,
    /// The keys `warmed_at` and `first_window`.
    Start,
    Traffic,
    Queue,
    Caqm,
    /// The keys `client` and `server`, which replace the workload's commands.
    Commands,
}

/// The settings with which the hosts of a cell are created on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HostSetup {
    /// Whether to create only the hosts that the cell's links reach. The file may name many
    /// clients, and a cell may need few of them.
    pub(crate) only_linked: bool,
    /// Whether to switch IPv6 off: the IPv6 packets of a dozen new links would wait for the
    /// emulator's start and count as late.
    pub(crate) without_ipv6: bool,
    /// Whether to leave packets on the CPU that receives them. Datagrams cost their receiver
    /// little, and at a gigabit the workload's CPUs have no time to spare.
    pub(crate) without_steering: bool,
    /// Whether the emulator shares all CPUs with the workload, because the lab measures the whole
    /// machine.
    pub(crate) shared_cpus: bool,
}
