//! Starts `weir switch run`.

use super::control::Control;
use super::running::{RunningSwitch, await_control, finish};
use super::{BRIDGE, INPUT, OUTPUT, Setup, Source};
use crate::bench::machine::{MachineStep, Started};
use crate::model::Failure;
use host::Namespace;
use std::time::{Duration, Instant};

pub(super) fn start(
    setup: &Setup<'_>,
    inside: &Namespace,
    step: &MachineStep<'_>,
) -> Result<RunningSwitch, Failure> {
    let made = tempfile::Builder::new().prefix("weir-switch-").tempdir_in(step.programs);
    let folder = made.map_err(|error| Failure::io("making a folder for weir switch", &error))?;
    let rundir = folder.path().display().to_string();
    let weir = step.weir.display().to_string();
    let (input, output) = match setup.source {
        Source::Captures { whole, parts, .. } => (
            format!("pcap:{},loop,queues={},number={INPUT}", whole.display(), parts.len()),
            format!("null,number={OUTPUT}"),
        ),
        Source::Interfaces { input, output } => {
            (format!("packet:{input},number={INPUT}"), format!("packet:{output},number={OUTPUT}"))
        }
        Source::Taps { input, output } => {
            (format!("tap:{input},number={INPUT}"), format!("tap:{output},number={OUTPUT}"))
        }
        Source::VhostUser { input, output } => (
            format!("vhost-user:{},number={INPUT}", input.display()),
            format!("vhost-user:{},number={OUTPUT}", output.display()),
        ),
    };
    let cpus: Vec<String> = setup.cpus.iter().map(usize::to_string).collect();
    let words = |words: &[&str]| -> Vec<String> {
        let (verb, rest) = words.split_first().unwrap_or((&"run", &[]));
        let all = [weir.as_str(), "switch", verb, "--rundir", &rundir].into_iter();
        all.chain(rest.iter().copied()).map(str::to_owned).collect()
    };
    let cpus = cpus.join(",");
    let run = words(&["run", "--bridge", BRIDGE, "--pmd-cpus", &cpus, "--busy-poll"]);
    let mut program = Started::new(inside, run, &[], step)?;
    let control = Control::at(&folder.path().join(CONTROL_SOCKET));
    await_control(&control, &mut program, step)?;
    let begun = Instant::now();
    let rules = setup.rules.display().to_string();
    let load = Started::new(inside, words(&["add-flows", BRIDGE, &rules]), &[], step)?;
    finish(load, LOADED_WITHIN, step)?;
    let loading = begun.elapsed();
    control.call("switch/add-port", &[BRIDGE, "out0", &output])?;
    control.call("switch/add-port", &[BRIDGE, "in0", &input])?;
    let programs = vec![program];
    let add_rule = words(&["add-flow", BRIDGE]);
    Ok(RunningSwitch { programs, control, loading, remark: None, add_rule, _folder: folder })
}

const LOADED_WITHIN: Duration = Duration::from_secs(120);
/// Name of the socket in the run directory. The name is part of the interface of `weir switch run`.
const CONTROL_SOCKET: &str = "weir-switch.ctl";
