//! Runs programs that measure and print one JSON document.

use crate::bench::machine::{MachineStep, Measured, Roles, Started, Testbed, Watch};
use crate::model::{Failure, Measurement};
use host::Namespace;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A measurement by one program. The machine's clocks are read before and after the program.
#[derive(Debug)]
pub(in crate::workloads) struct Measuring<'a> {
    pub(in crate::workloads) step: &'a MachineStep<'a>,
    /// The client's server. If the server has ended, its failure explains the failure of the
    /// client.
    pub(in crate::workloads) server: Option<&'a mut Started>,
}

/// Returns the CPUs of the client and the server.
pub(in crate::workloads) fn cpus_of(
    step: &MachineStep<'_>,
    pinned: bool,
) -> (Vec<usize>, Vec<usize>) {
    match (pinned, step.cpus.workload.as_slice()) {
        (true, [first, .., last]) => (vec![*first], vec![*last]),
        (true, [only]) => (vec![*only], vec![*only]),
        _ => (step.cpus.from.clone(), step.cpus.to.clone()),
    }
}

impl Measuring<'_> {
    /// Runs the program. `read` records the figures of the program's document.
    pub(in crate::workloads) fn run(
        mut self,
        argv: Vec<String>,
        inside: &Namespace,
        cpus: &[usize],
        testbed: &Testbed,
        read: impl FnOnce(&Value, &mut Measurement) -> Result<(), Failure>,
    ) -> Result<Measured, Failure> {
        let step = self.step;
        let roles = Roles { emulator_tid: testbed.emulator_tid(), ..Roles::default() };
        let before = Watch::read(&roles)?;
        let mut program = Started::new(inside, argv, cpus, step)?;
        self.await_end(&mut program)?;
        let after = Watch::read(&roles)?;
        let text = program.output().map_err(|error| Failure::io("reading figures", &error))?;
        let name = program.name();
        let document: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::Workload(format!("{name} printed no JSON that can be read: {error}"))
        })?;
        let mut result = Measurement::default();
        read(&document, &mut result)?;
        after.account(&before, step.cpus, None, &mut result);
        // A benchmark fills its CPUs by design, so full CPUs give the figures no mark.
        (result.cpu_limited, result.cpu_limit) = (false, None);
        result.congestion_control =
            step.system.congestion.as_ref().map(|name| name.get_ref().clone());
        Ok(Measured::between_ends(step, before.taken()..after.taken(), result))
    }

    fn await_end(&mut self, program: &mut Started) -> Result<(), Failure> {
        let lasting = self.step.omit + self.step.duration;
        let deadline = Instant::now() + lasting.as_duration() + PATIENCE;
        loop {
            // Status 1 means that the program counted errors in its document.
            match program.wait(LOOK)? {
                Some(status) if status.success() || status.code() == Some(1) => {
                    let has_figures = program.output().is_ok_and(|text| text.starts_with('{'));
                    return match has_figures {
                        true => Ok(()),
                        false => Err(self.cause(program.early_end(status))),
                    };
                }
                Some(status) => return Err(self.cause(program.early_end(status))),
                None if self.step.cancel.is_cancelled() => return Err(Failure::Interrupted),
                None if Instant::now() > deadline => {
                    let text = format!("{} did not end after its time was up", program.name());
                    return Err(Failure::Workload(text));
                }
                None => {}
            }
        }
    }

    /// Returns the failure of the server, if the server ended with an error, or else `failure`.
    fn cause(&mut self, failure: Failure) -> Failure {
        let Some(server) = &mut self.server else { return failure };
        match server.wait(Duration::ZERO) {
            Ok(Some(status)) if !status.success() => server.early_end(status),
            _ => failure,
        }
    }
}

/// Returns a number of a document. `way`: the keys and indices that lead to the number.
pub(in crate::workloads) fn number(document: &Value, way: &[&str]) -> Option<f64> {
    let found = way.iter().try_fold(document, |value, name| match name.parse::<usize>() {
        Ok(index) => value.get(index),
        Err(_) => value.get(*name),
    });
    found?.as_f64()
}

/// Maximum time that a program may take in addition to its measurement.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
