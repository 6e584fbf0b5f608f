//! The needs of a lab and its duration, for a list of labs.

use crate::run::plan::{self, Plan, Step};
use crate::{Executor, LabFile};
use host::Privilege;
use results::Form;
use std::path::PathBuf;
use std::time::Duration;

/// A lab's needs and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// It runs in namespaces of this machine, which needs root or a user namespace.
    pub on_machine: bool,
    /// It runs in virtual time, which needs neither.
    pub in_simulator: bool,
    /// Estimates for the systems of each form, on the machine if it runs there.
    pub quick: Duration,
    pub full: Duration,
}

impl Overview {
    /// `threads`: how many cells the simulator measures at once.
    pub fn of(lab: &LabFile, threads: usize) -> Self {
        let machine = Executor::Machine { privilege: Privilege::Root, weir: PathBuf::new() };
        let simulator = Executor::Simulator { threads };
        let time = |form| {
            let bench = machine.bench(lab).or_else(|_| simulator.bench(lab)).ok()?;
            let names = lab.systems().map(|system| system.name().to_owned());
            let measured = plan::form_of(lab, form);
            let systems: Vec<String> = names.filter(|name| measured.measures(name)).collect();
            let plan = Plan::new(lab, form, &systems, None);
            let steps: Vec<&Step> = plan.steps.iter().collect();
            Some(bench.estimate(&plan, &steps))
        };
        Self {
            on_machine: machine.bench(lab).is_ok(),
            in_simulator: simulator.bench(lab).is_ok(),
            quick: time(Form::Quick).unwrap_or_default(),
            full: time(Form::Full).unwrap_or_default(),
        }
    }
}
