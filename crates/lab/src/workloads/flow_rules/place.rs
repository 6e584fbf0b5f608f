//! The captures, the rules and the loaded switch that the steps of a cell share.

use super::case::Case;
use super::traffic::Packets;
use crate::bench::machine::MachineStep;
use crate::model::{Failure, Measurement};
use crate::workloads::switches::{Counts, Product, RunningSwitch, Setup, Source};
use host::Namespace;
use results::Axes;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use units::Span;

#[derive(Debug)]
pub(super) struct Place {
    axes: Axes,
    system: String,
    /// The switch, or the reason why the switch did not start.
    loaded: Option<Result<Loaded, String>>,
    pub(super) cpus: Vec<usize>,
    pub(super) rules: PathBuf,
    source: Source,
    inside: Namespace,
    flows: u32,
    pub(super) folder: TempDir,
    /// The figures of the cell's pushed ports, from their measurement until a valid window records
    /// the figures.
    pub(super) pushed: Option<Measurement>,
}

/// A switch with its rules, which has seen every flow.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) switch: RunningSwitch,
    /// Number of tracked connections after the warm-up.
    pub(super) connections: Option<u64>,
    /// Whether new flows still reached the slow path at the end of the warm-up.
    pub(super) is_restless: bool,
}

impl Place {
    /// Returns the place that an earlier step of the same cell has kept, or a new place.
    pub(super) fn of(case: &Case, step: &MachineStep<'_>) -> Result<Self, Failure> {
        match step.kept.take::<Self>() {
            Some(place) if place.is_of(step) => Ok(place),
            // Drop the switch of another cell, which ends before a new switch begins.
            other => {
                drop(other);
                Self::new(case, step)
            }
        }
    }

    fn new(case: &Case, step: &MachineStep<'_>) -> Result<Self, Failure> {
        let made = tempfile::Builder::new().prefix("rules-").tempdir_in(step.programs);
        let folder = made.map_err(|error| Failure::io("making a folder for the rules", &error))?;
        let packets = Packets::of(case.rules, case.order)?;
        let (whole, parts) = packets.write(folder.path(), case.pmds)?;
        let rules = folder.path().join("rules.txt");
        let write = || {
            let mut file = BufWriter::new(File::create(&rules)?);
            case.set.write(case.rules, &mut file)?;
            file.flush()
        };
        write().map_err(|error| Failure::io("writing the rules", &error))?;
        let online = host::online_cpus();
        // Packet threads get the last CPUs, because interrupts and other work prefer the first CPU.
        let cpus = online.iter().rev().take(case.pmds).copied().collect();
        Ok(Self {
            axes: step.axes.clone(),
            system: step.system.name().to_owned(),
            loaded: None,
            cpus,
            rules,
            source: Source::Captures { whole, parts, frames: packets.frames.len() },
            inside: Namespace::create("switch")?,
            flows: case.rules,
            folder,
            pushed: None,
        })
    }

    fn is_of(&self, step: &MachineStep<'_>) -> bool {
        self.axes == *step.axes && self.system == step.system.name()
    }

    /// Returns the switch. Starts the switch and warms it up, unless an earlier step has started
    /// the switch.
    pub(super) fn switch(&mut self, step: &MachineStep<'_>) -> Result<&mut Loaded, Failure> {
        if self.loaded.is_none() {
            self.loaded = Some(match self.load(step) {
                Ok(loaded) => Ok(loaded),
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                // Another attempt would take the same time and fail again.
                Err(failure) => Err(failure.to_string()),
            });
        }
        match &mut self.loaded {
            Some(Ok(loaded)) => match loaded.switch.failure() {
                Some(failure) => Err(failure),
                None => Ok(loaded),
            },
            Some(Err(reason)) => Err(Failure::Workload(reason.clone())),
            None => Err(Failure::Workload("no switch was started".to_owned())),
        }
    }

    fn load(&self, step: &MachineStep<'_>) -> Result<Loaded, Failure> {
        let name = step.system.name();
        let unknown = || Failure::Workload(format!("no switch `{name}`"));
        let product = Product::of(name).ok_or_else(unknown)?;
        let setup = Setup { rules: &self.rules, source: &self.source, cpus: &self.cpus };
        let mut switch = RunningSwitch::start(product, &setup, &self.inside, step)?;
        let longest = product.longest_warm_up(self.flows);
        let is_restless = !warm_up(&mut switch, longest, step)?;
        let connections = switch.connections().ok();
        Ok(Loaded { switch, connections, is_restless })
    }
}

/// Waits until the switch forwards and sends nearly no packet to the slow path. Returns `false` if
/// many packets still take the slow path at the deadline, because the cache does not hold the
/// flows.
pub(super) fn warm_up(
    switch: &mut RunningSwitch,
    longest: Duration,
    step: &MachineStep<'_>,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    let mut before = switch.counts()?;
    loop {
        pause(step, CHECK)?;
        if let Some(failure) = switch.failure() {
            return Err(failure);
        }
        let now = switch.counts()?;
        let elapsed = begun.elapsed();
        let rate = new_upcalls(&before, &now) as f64 / CHECK.as_secs_f64();
        let forwards = now.sent > before.sent;
        if forwards && rate < FEW_UPCALLS && elapsed >= step.omit.as_duration() {
            return Ok(true);
        }
        if elapsed >= longest {
            let nothing = "the switch forwarded nothing: its rules or its ports do not work";
            return match forwards {
                true => Ok(false),
                false => Err(Failure::Workload(nothing.to_owned())),
            };
        }
        before = now;
    }
}

fn new_upcalls(before: &Counts, now: &Counts) -> u64 {
    now.upcalls.saturating_sub(before.upcalls)
}

/// Waits, and ends early when the run is cancelled.
pub(super) fn pause(step: &MachineStep<'_>, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Span::from_millis(20).as_duration()));
    }
}

const CHECK: Duration = Duration::from_millis(500);
/// Number of upcalls a second below which the warm-up ends.
const FEW_UPCALLS: f64 = 50.0;
