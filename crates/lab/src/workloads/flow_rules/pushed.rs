//! The highest rate without loss, and a fixed load, over ports into which a generator sends. Only
//! the full form has the time for these measurements.

use super::case::{Case, PushedPorts};
use super::contention::Threads;
use super::place::{self, Place};
use super::traffic::profile_text;
use crate::bench::machine::{MachineStep, Started};
use crate::model::{Failure, Flaw, Measurement};
use crate::workloads::switches::{Product, RunningSwitch, Setup, Source};
use generator::Addressing;
use generator::ndr::Goal;
use host::Namespace;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use units::{Share, Span};

/// Measures the highest rate and the fixed load with a separate switch, which ends afterwards.
pub(super) fn measure(
    case: &Case,
    step: &MachineStep<'_>,
    place: &Place,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let online = host::online_cpus();
    let free: Vec<usize> = online.iter().copied().filter(|cpu| !place.cpus.contains(cpu)).collect();
    if free.is_empty() {
        let needs = case.pmds + 1;
        let has = online.len();
        let reason = format!("needs {needs} CPUs, one for the generator; this machine has {has}");
        result.miss(&METRICS, reason, false);
        return Ok(());
    }
    let product = Product::of(step.system.name());
    let product = product.ok_or_else(|| Failure::Workload("no such switch".to_owned()))?;
    let (near, far) = (Namespace::create("generator")?, Namespace::create("switch")?);
    let cables = Cables::lay(case.ports, product, (&near, &far), place)?;
    let setup = Setup { rules: &place.rules, source: &cables.source, cpus: &place.cpus };
    let mut switch = RunningSwitch::start(product, &setup, &far, step)?;
    if case.pmds > 1 {
        let text = "a pushed port has one queue: one packet thread takes its packets";
        result.warnings.push(text.to_owned());
    }
    if let Source::Taps { input, output } = &cables.source {
        [input, output].into_iter().try_for_each(|tap| host::bring_up(&far, tap))?;
    }
    let generator = Generator {
        case,
        step,
        longest_warm_up: product.longest_warm_up(case.rules),
        // The kernel's side of the TAP devices is in the switch's namespace.
        inside: if case.ports == PushedPorts::Tap { &far } else { &near },
        ports: cables.ports,
        cpus: &free,
        room: Room { pmds: case.pmds, online: online.len() },
        folder: place.folder.path(),
    };
    if !generator.warm_up(&mut switch)? {
        let text = "the switch still sent flows of its pushed ports to its slow path when the search began";
        result.warnings.push(text.to_owned());
    }
    let (begun, before) = (Instant::now(), Threads::of(switch.pid()));
    let mut found = Measurement::default();
    match generator.search(&mut found)? {
        Some(highest) => match generator.fixed_load(highest * ABOVE, &switch, &mut found) {
            Ok(()) => {}
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            // If the fixed load fails, the rate that the search found stays valid.
            Err(failure) => found.miss(&METRICS, failure.to_string(), true),
        },
        None => found.miss(&METRICS, "there is no rate to begin from".to_owned(), false),
    }
    match before.contended(&Threads::of(switch.pid()), begun.elapsed()) {
        None => {
            result.metrics.extend(found.metrics);
            result.missing.extend(found.missing);
        }
        Some(flaw) => {
            let (reason, failed) = generator.room.judged(format!("{}: {}", flaw.what, flaw.detail));
            result.miss(&METRICS, reason, failed);
        }
    }
    result.warnings.extend(found.warnings);
    Ok(())
}

/// Returns the goal of the search: no loss in trials at one load whose durations add up to `sum`.
pub(super) fn goal(sum: Span) -> Goal {
    Goal { duration_sum: sum, ..Goal::with_loss(Share::ZERO) }
}

/// The number of CPUs of the packet threads, and of all CPUs.
#[derive(Debug, Clone, Copy)]
struct Room {
    pmds: usize,
    online: usize,
}

impl Room {
    /// Returns the reason why no trial was valid, and whether the measurement failed. Without a CPU
    /// of their own the switch's other threads share the generator's CPU. The machine is then too
    /// small for a result, and the measurement has not failed.
    fn judged(self, reason: String) -> (String, bool) {
        let needs = self.pmds + 2;
        if self.online >= needs {
            return (reason, true);
        }
        let has = self.online;
        let reason = format!(
            "no valid trial: needs {needs} CPUs, so that the switch's other threads do not share the \
             generator's; this machine has {has} ({reason})"
        );
        (reason, false)
    }
}

/// The ports between generator and switch: both ends of the input and of the output.
struct Cables {
    source: Source,
    ports: [String; 2],
}

impl Cables {
    fn lay(
        kind: PushedPorts,
        product: Product,
        (near, far): (&Namespace, &Namespace),
        place: &Place,
    ) -> Result<Self, Failure> {
        match kind {
            PushedPorts::Veth => {
                for side in 0..2 {
                    let (own, device) = (format!("gen{side}"), format!("dev{side}"));
                    host::connect((near, &own), (far, &device), MTU)?;
                }
                Ok(Self {
                    source: Source::Interfaces {
                        input: "dev0".to_owned(),
                        output: "dev1".to_owned(),
                    },
                    ports: [format!("gen0,dest-mac={GATEWAY}"), "gen1".to_owned()],
                })
            }
            PushedPorts::Tap => Ok(Self {
                source: Source::Taps { input: TAPS[0].to_owned(), output: TAPS[1].to_owned() },
                ports: [format!("{},dest-mac={GATEWAY}", TAPS[0]), TAPS[1].to_owned()],
            }),
            PushedPorts::VhostUser => {
                let path = |name: &str| place.folder.path().join(name);
                let (input, output) = (path("in.sock"), path("out.sock"));
                let role = if product.connects() { "server" } else { "client" };
                let port = |path: &Path| format!("vhost-user:{},{role}", path.display());
                Ok(Self {
                    ports: [format!("{},dest-mac={GATEWAY}", port(&input)), port(&output)],
                    source: Source::VhostUser { input, output },
                })
            }
        }
    }
}

struct Generator<'a> {
    case: &'a Case,
    step: &'a MachineStep<'a>,
    longest_warm_up: Duration,
    inside: &'a Namespace,
    ports: [String; 2],
    cpus: &'a [usize],
    room: Room,
    folder: &'a Path,
}

impl Generator<'_> {
    /// Sends every flow until nearly no packet takes the switch's slow path. Returns `false` if
    /// many packets still take the slow path at the deadline.
    fn warm_up(&self, switch: &mut RunningSwitch) -> Result<bool, Failure> {
        let profile = self.profile(WARM_UP_RATE)?;
        let longest = format!("{}", self.longest_warm_up.as_secs() + 10);
        let mut program = self.start(&["gen", "-f", &profile, "-d", &longest, "--json"])?;
        let is_quiet = place::warm_up(switch, self.longest_warm_up, self.step);
        match program.wait(Duration::ZERO)? {
            Some(status) => Err(program.early_end(status)),
            None => is_quiet,
        }
    }

    /// Searches for the highest rate without loss. `None` if the search found no rate.
    fn search(&self, result: &mut Measurement) -> Result<Option<f64>, Failure> {
        let profile = self.profile(1e4)?;
        let goal = goal(self.case.search);
        let (loss, sum) = (goal.loss.to_string(), seconds(goal.duration_sum));
        let trial = seconds(goal.final_trial);
        let own = ["gen", "ndr", "-f", &profile, "--goal", &loss, "--sum", &sum, "--trial", &trial];
        let only = ["--no-latency", "--no-back-to-back", "--json"];
        let document = self.run(&[&own[..], &only].concat())?;
        let size = &document["sizes"][0];
        result.retried.extend(repeated_trials(size));
        let goal = &size["goals"][0];
        let found = goal["ndr_pps"].as_f64();
        let verdict = goal["verdict"].as_str();
        let reason = verdict.or(size["stopped"].as_str()).unwrap_or("the search has no result");
        let reason = units::foreign(reason).to_string();
        if goal["generator_limited"].as_bool() == Some(true) {
            result.miss(&["ndr_pps"], reason, false);
        } else if found.is_some() {
            result.record("ndr_pps", found);
        } else if verdict.is_some() {
            // The reason concerns the device, so the measurement itself has not failed.
            result.miss(&["ndr_pps"], reason, false);
        } else {
            // Without a verdict the search has stopped, because its trials were invalid.
            let (reason, failed) = self.room.judged(reason);
            result.miss(&["ndr_pps"], reason, failed);
        }
        Ok(found)
    }

    /// Offers `rate` for the planned time. The sender waits while the port is full.
    fn fixed_load(
        &self,
        rate: f64,
        switch: &RunningSwitch,
        result: &mut Measurement,
    ) -> Result<(), Failure> {
        let profile = self.profile(rate)?;
        let planned = seconds(self.case.load);
        switch.clear_counts()?;
        let document = self.run(&["gen", "-f", &profile, "-d", &planned, "--json"])?;
        let counts = switch.counts()?;
        for metric in ["offered_pps", "planned_s", "actual_s"] {
            result.record(metric, document[metric].as_f64());
        }
        let sent = document["packets"]["sent"].as_f64();
        let lost = sent.map(|sent| (sent - counts.sent as f64).max(0.0));
        result.record("drops.pushed", lost);
        Ok(())
    }

    fn profile(&self, rate: f64) -> Result<String, Failure> {
        let path = self.folder.join("profile.yaml");
        std::fs::write(&path, profile_text(self.case.rules, rate))
            .map_err(|error| Failure::io("writing the profile", &error))?;
        Ok(path.display().to_string())
    }

    /// Runs `weir gen` and returns its document, whether the device or the machine was the limit.
    fn run(&self, words: &[&str]) -> Result<Value, Failure> {
        let mut program = self.start(words)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.step.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            let Some(status) = program.wait(Duration::from_millis(50))? else { continue };
            let output = program.output();
            let output =
                output.map_err(|error| Failure::io("reading weir gen's output", &error))?;
            return serde_json::from_str(&output).map_err(|_| program.early_end(status));
        }
        Err(Failure::Workload(format!("weir gen did not end within {} s", PATIENCE.as_secs())))
    }

    fn start(&self, words: &[&str]) -> Result<Started, Failure> {
        let weir = self.step.weir.display().to_string();
        let order = match self.case.order {
            Addressing::Lockstep => "lockstep",
            Addressing::Destination => "destination",
        };
        let [input, output] = &self.ports;
        let ports = ["--port", input, "--port", output, "--addressing", order];
        let all = std::iter::once(weir.as_str()).chain(words.iter().copied()).chain(ports);
        let argv = all.map(str::to_owned).collect();
        Started::new(self.inside, argv, self.cpus, self.step)
    }
}

/// Returns a flaw for each trial of a search that was invalid and repeated.
fn repeated_trials(size: &Value) -> Vec<Flaw> {
    let trials = size["trials"].as_u64().unwrap_or_default();
    let kinds = size["invalid_kinds"].as_object().into_iter().flatten();
    let flaws = kinds.flat_map(|(kind, count)| {
        let count = count.as_u64().unwrap_or_default().min(trials);
        let flaw = Flaw {
            what: format!("a trial of the search for the highest rate, {}", units::foreign(kind)),
            detail: format!("{count} of {trials} trials"),
        };
        std::iter::repeat_n(flaw, usize::try_from(count).unwrap_or_default())
    });
    flaws.collect()
}

fn seconds(span: Span) -> String {
    format!("{}ms", span.nanos() / 1_000_000)
}

/// The names of the metrics that the pushed ports give.
pub(super) const METRICS: [&str; 5] =
    ["ndr_pps", "offered_pps", "planned_s", "actual_s", "drops.pushed"];
const GATEWAY: &str = "02:ac:10:ff:01:01";
const MTU: u32 = 1500;
const TAPS: [&str; 2] = ["tap0", "tap1"];
/// Packets a second in the warm-up. A switch takes new flows more slowly than known flows.
const WARM_UP_RATE: f64 = 100_000.0;
/// Fixed load as a multiple of the highest rate without loss, which the report's loads exceed.
const ABOVE: f64 = 1.1;
const PATIENCE: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeated_search_trial_is_a_flaw_with_its_reason() {
        let size = serde_json::json!({
            "trials": 40, "invalid_trials": 3,
            "invalid_kinds": { "full receiving port": 2, "slow generator": 1 },
        });
        let flaws: Vec<_> = repeated_trials(&size).iter().map(Flaw::to_string).collect();
        let full =
            "a trial of the search for the highest rate, full receiving port: 2 of 40 trials";
        assert_eq!(flaws.len(), 3);
        assert_eq!(flaws.iter().filter(|flaw| *flaw == full).count(), 2, "{flaws:?}");
        assert!(repeated_trials(&Value::Null).is_empty());
    }

    #[test]
    fn without_a_cpu_for_the_generator_the_metrics_are_missing_and_not_failed() {
        let judged = |pmds, online| Room { pmds, online }.judged("INVALID: it".to_owned());
        let (reason, failed) = judged(1, 2);
        assert!(!failed);
        assert!(reason.starts_with("no valid trial: needs 3 CPUs, so that"), "{reason}");
        assert!(reason.ends_with("this machine has 2 (INVALID: it)"), "{reason}");
        assert_eq!(judged(1, 3), ("INVALID: it".to_owned(), true));
        assert!(!judged(2, 3).1 && judged(2, 4).1);
    }
}
