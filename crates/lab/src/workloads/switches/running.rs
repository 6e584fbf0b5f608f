//! A running packet switch, and its commands.

use super::control::Control;
use super::{Counts, Product, Setup, ovs_dpdk, weir_switch};
use crate::bench::machine::{MachineStep, Started};
use crate::model::Failure;
use host::Namespace;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A switch with its rules loaded. Dropping this value ends the switch.
#[derive(Debug)]
pub(crate) struct RunningSwitch {
    /// The programs of the switch. The last program is the switch itself.
    pub(super) programs: Vec<Started>,
    pub(super) control: Control,
    /// The time in which the switch loaded the rules.
    pub(super) loading: Duration,
    /// A remark for the report about how the switch was started.
    pub(super) remark: Option<String>,
    /// The command that adds a rule, without the rule.
    pub(super) add_rule: Vec<String>,
    pub(super) _folder: TempDir,
}

/// A change of a rule that the switch may not have accepted yet.
#[derive(Debug)]
pub(crate) struct Change(Started);

impl Change {
    /// Waits until the switch has accepted the change.
    pub(crate) fn finish(self, step: &MachineStep<'_>) -> Result<(), Failure> {
        finish(self.0, Duration::from_secs(30), step).map(drop)
    }
}

impl RunningSwitch {
    /// Starts a switch, loads its rules, and then connects the receiving port.
    pub(crate) fn start(
        product: Product,
        setup: &Setup<'_>,
        inside: &Namespace,
        step: &MachineStep<'_>,
    ) -> Result<Self, Failure> {
        match product {
            Product::WeirSwitch => weir_switch::start(setup, inside, step),
            Product::OvsDpdk(tuning) => ovs_dpdk::start(setup, tuning, inside, step),
        }
    }

    pub(crate) fn loading(&self) -> Duration {
        self.loading
    }

    pub(crate) fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.programs.last().map(Started::pid)
    }

    pub(crate) fn counts(&self) -> Result<Counts, Failure> {
        let text = self.control.call("dpif-netdev/pmd-perf-show", &["-nh"])?;
        Ok(Counts::read(&text))
    }

    /// Clears the counters. Open vSwitch's packet threads clear their counters only when they begin
    /// their next iteration.
    pub(crate) fn clear_counts(&self) -> Result<(), Failure> {
        let before = self.counts()?;
        self.control.call("dpif-netdev/pmd-stats-clear", &[])?;
        let deadline = Instant::now() + CLEARED_WITHIN;
        while Instant::now() < deadline {
            let now = self.counts()?;
            if now.received < before.received || now.received == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Failure::Workload("the switch did not clear its counters".to_owned()))
    }

    pub(crate) fn connections(&self) -> Result<u64, Failure> {
        let text = self.control.call("dpctl/ct-get-nconns", &[])?;
        let wrong = || Failure::Workload("the switch did not count its connections".to_owned());
        text.trim().parse().map_err(|_| wrong())
    }

    /// Starts to add a rule. The rule takes effect after this function has returned.
    pub(crate) fn start_adding_rule(
        &self,
        rule: &str,
        inside: &Namespace,
        step: &MachineStep<'_>,
    ) -> Result<Change, Failure> {
        let mut argv = self.add_rule.clone();
        argv.push(rule.to_owned());
        Ok(Change(Started::new(inside, argv, &[], step)?))
    }

    /// Returns the failure of a program that has ended.
    pub(crate) fn failure(&mut self) -> Option<Failure> {
        self.programs.iter_mut().find_map(|program| {
            let status = program.wait(Duration::ZERO).ok()??;
            Some(program.early_end(status))
        })
    }
}

/// Runs a program to its end and returns its output.
pub(crate) fn finish(
    mut program: Started,
    patience: Duration,
    step: &MachineStep<'_>,
) -> Result<String, Failure> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        match program.wait(Duration::from_millis(20))? {
            Some(status) if status.success() => {
                return program.output().map_err(|error| Failure::io("reading its output", &error));
            }
            Some(status) => return Err(program.early_end(status)),
            None => {}
        }
    }
    let (name, seconds) = (program.name(), patience.as_secs());
    Err(Failure::Workload(format!("{name} did not end within {seconds} s")))
}

/// Waits until the control socket answers.
pub(crate) fn await_control(
    control: &Control,
    program: &mut Started,
    step: &MachineStep<'_>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        if control.answers() {
            return Ok(());
        }
        if let Some(status) = program.wait(Duration::from_millis(20))? {
            return Err(program.early_end(status));
        }
    }
    let (name, seconds) = (program.name(), READY_WITHIN.as_secs());
    Err(Failure::Workload(format!("{name} was not ready within {seconds} s")))
}

const CLEARED_WITHIN: Duration = Duration::from_secs(2);
/// Maximum time until the switch answers. Open vSwitch initialises DPDK first.
const READY_WITHIN: Duration = Duration::from_secs(30);
