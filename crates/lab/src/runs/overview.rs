//! The needs of a lab and its duration, for a list of labs.

use crate::bench::{Executor, LabFile};
use crate::model::plan;
use crate::model::plan::{Plan, Step};
use host::Privilege;
use results::{Form, Results};
use std::path::PathBuf;
use std::time::Duration;

/// A lab's needs, and the estimated times of its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// Whether the lab runs in namespaces of this machine, which needs root or a user namespace.
    pub on_machine: bool,
    /// Whether the lab runs in virtual time, which needs no privilege.
    pub in_simulator: bool,
    /// Estimates for each form: for this machine if the lab can run on this machine, otherwise for
    /// the simulator. Systems whose programs this machine lacks are left out. Estimates for a
    /// built-in lab are scaled by the duration of its recorded run in docs/results.
    pub quick: Duration,
    pub full: Duration,
}

impl Overview {
    /// Estimates the lab's times. `threads`: the number of cells that the simulator measures at
    /// once.
    pub fn of(lab: &LabFile, threads: usize) -> Self {
        let machine = machine();
        let left_out = if machine.bench(lab).is_ok() { lab.left_out() } else { Vec::new() };
        // The recorded run shows by how much turns exceed their planned time. The planned time is
        // the time of the recorded form, because the lab's forms may have changed since the
        // recording.
        let recorded = RECORDED.iter().find(|one| lab.is_builtin() && one.lab == lab.name());
        let slower =
            recorded.and_then(|one| Some(one.took.as_secs_f64() / one.planned(lab)?.as_secs_f64()));
        let slower = slower.filter(|factor| factor.is_finite()).unwrap_or(1.0);
        let time = |form| {
            let measured = plan::form_of(lab, form);
            let takes_part = |name: &&str| measured.measures(name) && !left_out.contains(name);
            let systems: Vec<String> = lab
                .systems()
                .map(|system| system.name())
                .filter(takes_part)
                .map(str::to_owned)
                .collect();
            Some(planned(lab, form, &systems, None, threads)?.mul_f64(slower))
        };
        Self {
            on_machine: machine.bench(lab).is_ok(),
            in_simulator: Executor::Simulator { threads }.bench(lab).is_ok(),
            quick: time(Form::Quick).unwrap_or_default(),
            full: time(Form::Full).unwrap_or_default(),
        }
    }
}

/// Returns the planned time of a run's turns. [`RECORDED`] keeps this time to scale the lab's later
/// estimates.
pub(super) fn planned_of_run(lab: &LabFile, results: &Results) -> Option<Duration> {
    let was_measured = |name: &str| results.cells.iter().any(|cell| cell.system == name);
    let systems = lab.systems().map(|system| system.name()).filter(|name| was_measured(name));
    let systems: Vec<String> = systems.map(str::to_owned).collect();
    let repeats = results.cells.iter().map(|cell| cell.repeats).max().unwrap_or(0);
    let repeats = u32::try_from(repeats).ok().filter(|repeats| *repeats > 0)?;
    planned(lab, results.form, &systems, Some(repeats), CPUS_OF_RECORDS)
}

/// Estimates the time of a form's turns: on this machine if the lab can run on this machine,
/// otherwise in the simulator.
fn planned(
    lab: &LabFile,
    form: Form,
    systems: &[String],
    repeats: Option<u32>,
    threads: usize,
) -> Option<Duration> {
    let (machine, simulator) = (machine(), Executor::Simulator { threads });
    let bench = machine.bench(lab).or_else(|_| simulator.bench(lab)).ok()?;
    let plan = Plan::new(lab, form, systems, repeats);
    let steps: Vec<&Step> = plan.steps.iter().collect();
    Some(bench.estimate(&plan, &steps))
}

fn machine() -> Executor {
    Executor::Machine { privilege: Privilege::Root, weir: PathBuf::new(), profile: false }
}

/// A run whose page is in docs/results.
struct Recorded {
    lab: &'static str,
    form: Form,
    repeats: u32,
    /// Systems that the run left out because the machine lacked their programs.
    left_out: &'static [&'static str],
    took: Duration,
    /// The planned time of the run's turns ([`planned_of_run`]); zero for a page of an older weir.
    planned: Duration,
}

impl Recorded {
    /// Returns the planned time. For a page without a planned time, returns the planned time of the
    /// lab's present form.
    fn planned(&self, lab: &LabFile) -> Option<Duration> {
        if !self.planned.is_zero() {
            return Some(self.planned);
        }
        let measured = plan::form_of(lab, self.form);
        let names = lab.systems().map(|system| system.name().to_owned());
        let takes_part =
            |name: &String| measured.measures(name) && !self.left_out.contains(&name.as_str());
        let systems: Vec<String> = names.filter(takes_part).collect();
        planned(lab, self.form, &systems, Some(self.repeats), CPUS_OF_RECORDS)
    }
}

/// Builds a row of [`RECORDED`]. `took` and `planned` are in milliseconds.
const fn recorded(
    lab: &'static str,
    form: Form,
    repeats: u32,
    left_out: &'static [&'static str],
    took: u64,
    planned: u64,
) -> Recorded {
    let (took, planned) = (Duration::from_millis(took), Duration::from_millis(planned));
    Recorded { lab, form, repeats, left_out, took, planned }
}

/// Number of CPUs of the machine on which every page of docs/results was measured.
const CPUS_OF_RECORDS: usize = 2;
/// The durations of runs, as the pages of docs/results state them; `scripts/recorded-runs` writes
/// the rows. `conntrack` is missing, because its machine could not run a third of the cells.
const RECORDED: &[Recorded] = &[
    recorded("accel-cost", Form::Quick, 6, &[], 132_000, 133_000),
    recorded("caqm", Form::Quick, 6, &[], 266_000, 241_000),
    recorded("caqm-fabric", Form::Full, 7, &[], 27_800, 42_000),
    recorded("cc-grid", Form::Quick, 4, &[], 30_400, 48_000),
    recorded("cc-kernel", Form::Quick, 6, &[], 132_000, 121_000),
    recorded("faults", Form::Full, 20, &[], 6_960_000, 0),
    recorded("flow-rules", Form::Full, 7, &[], 6_060_000, 4_320_000),
    recorded("incast", Form::Quick, 6, &[], 2_630, 7_130),
    recorded("kernel-cells", Form::Full, 9, &[], 2_354_000, 0),
    recorded("lateness", Form::Quick, 6, &[], 191_000, 200_000),
    recorded("lateness-bound", Form::Full, 20, &[], 174_000, 71_300),
    recorded("link-accuracy", Form::Quick, 6, &[], 107_000, 71_400),
    recorded("live-flows", Form::Full, 6, &[], 389_000, 0),
    recorded("perf-overhead", Form::Quick, 14, &[], 175_000, 185_000),
    recorded("quic-tun", Form::Full, 7, &[], 1_840_000, 1_764_000),
    recorded("rough-paths", Form::Quick, 6, &[], 206_000, 205_000),
    recorded("slow-nic", Form::Full, 6, &[], 564_000, 0),
    recorded("tcpa", Form::Quick, 6, &[], 181_000, 156_000),
    recorded("tcpa-hard", Form::Full, 6, &[], 7_160, 7_210),
    recorded("tcpa-paths", Form::Quick, 6, &[], 187_000, 126_000),
    recorded("tunnel-latency", Form::Quick, 6, &[], 248_000, 264_000),
    recorded("tunnel-paths", Form::Full, 7, &[], 235_000, 71_100),
    recorded("tunnel-scale", Form::Quick, 6, &[], 99_600, 99_600),
    recorded("validate", Form::Full, 12, &[], 75_700, 450_000),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;
    use crate::workloads::builtin::BUILTIN;

    fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
        let rest = page.split_once(from).map_or("", |(_, rest)| rest);
        rest.split(to).next().unwrap_or_default()
    }

    fn seconds(text: &str) -> f64 {
        let words: Vec<&str> = text.split(' ').collect();
        let part = |pair: &[&str]| {
            let factor = match pair[1] {
                "s" => 1.0,
                "min" => 60.0,
                "h" => 3600.0,
                other => panic!("{other}: {text}"),
            };
            pair[0].parse::<f64>().unwrap() * factor
        };
        words.chunks(2).map(part).sum()
    }

    /// The labs without a page in docs/results.
    const NOT_ON_RECORD: [&str; 8] = [
        "tunnel-peers",
        "hard-paths",
        "senders",
        "drawn-faults",
        "captures",
        "robustness",
        "before-after",
        "caqm-hosts",
    ];

    #[test]
    fn time_estimates_follow_the_runs_on_record() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        for builtin in BUILTIN {
            let name = builtin.name;
            if NOT_ON_RECORD.contains(&name) {
                assert!(!std::path::Path::new(&format!("{folder}/{name}.md")).exists(), "{name}");
                continue;
            }
            let page = std::fs::read_to_string(format!("{folder}/{name}.md")).unwrap();
            let recorded = RECORDED.iter().find(|one| one.lab == name);
            assert_eq!(recorded.is_none(), name == "conntrack", "{name}");
            let Some(recorded) = recorded else { continue };
            let took = between(&page, "; the run took ", "\n");
            let (took, planned) = took.split_once(", planned ").unwrap_or((took, ""));
            let is_it = |time: Duration, text| (time.as_secs_f64() - seconds(text)).abs() < 0.01;
            assert!(is_it(recorded.took, took), "{name}: {took}");
            assert!(planned.is_empty() || is_it(recorded.planned, planned), "{name}: {planned}");
            assert_eq!(recorded.form.word(), between(&page, "**Form:** the ", " form"), "{name}");
            let form = between(&page, "**Form:** ", "\n");
            let repeats = between(form, "; repeats: ", ";");
            assert_eq!(recorded.repeats.to_string(), repeats, "{name}");
            assert_eq!(recorded.left_out.join(", "), between(form, "; left out: ", ";"), "{name}");
        }
    }

    #[test]
    fn a_lab_with_long_turn_setup_is_estimated_by_its_recorded_run() {
        let text = builtin::open("slow-nic").unwrap().text().replacen('\n', "\n# mine\n", 1);
        let mine = Overview::of(&LabFile::parse("mine.toml", &text).unwrap(), 2);
        let known = Overview::of(&builtin::open("slow-nic").unwrap(), 2);
        assert_eq!(known.full.as_secs(), 564);
        // The lab's setup tunes the board before each turn, and the plan does not include the time
        // of the setup.
        assert!(known.quick > mine.quick * 2, "{known:?} {mine:?}");
    }

    #[test]
    fn the_estimate_of_a_recorded_lab_changes_with_its_plan() {
        let mut lab = builtin::open("tcpa").unwrap();
        let before = Overview::of(&lab, 2);
        let (_, quick) =
            lab.document.form.iter_mut().find(|(name, _)| name.get_ref() == "quick").unwrap();
        *quick.repeats.get_mut() *= 2;
        let after = Overview::of(&lab, 2);
        let factor = after.quick.as_secs_f64() / before.quick.as_secs_f64();
        assert!((factor - 2.0).abs() < 1e-6, "{factor}");
        assert_eq!(after.full, before.full);
    }

    #[test]
    fn the_planned_time_of_a_run_counts_its_systems_and_repeats() {
        let lab = builtin::open("caqm").unwrap();
        let mut results = Results::new("caqm", Form::Quick);
        assert_eq!(planned_of_run(&lab, &results), None);
        for system in ["caqm", "bbr"] {
            let mut cell = results::Cell::new(system, results::Axes::new());
            cell.repeats = 3;
            results.cells.push(cell);
        }
        let systems = ["caqm", "bbr", "cubic"].map(str::to_owned);
        let whole = planned(&lab, Form::Quick, &systems, Some(6), 2).unwrap();
        assert_eq!(planned_of_run(&lab, &results).unwrap(), whole / 3);
    }
}
