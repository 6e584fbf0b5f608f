//! The needs of a lab and its duration, for a list of labs.

use crate::bench::{Executor, LabFile};
use crate::model::plan;
use crate::model::plan::{Plan, Step};
use host::Privilege;
use results::Form;
use std::path::PathBuf;
use std::time::Duration;

/// A lab's needs and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// The lab runs in namespaces of this machine, which needs root or a user namespace.
    pub on_machine: bool,
    /// The lab runs in virtual time, which needs no privilege.
    pub in_simulator: bool,
    /// Estimates for each form: for the machine if the lab can run on it, otherwise for the
    /// simulator. Systems whose programs this machine lacks are left out. Estimates for a built-in
    /// lab are scaled by the duration of its recorded run in docs/results.
    pub quick: Duration,
    pub full: Duration,
}

impl Overview {
    /// Estimates the lab's times. `threads`: the number of cells that the simulator measures at
    /// once.
    pub fn of(lab: &LabFile, threads: usize) -> Self {
        let machine =
            Executor::Machine { privilege: Privilege::Root, weir: PathBuf::new(), profile: false };
        let simulator = Executor::Simulator { threads };
        let planned = |form, repeats, left_out: &[&str], simulator: &Executor| {
            let bench = machine.bench(lab).or_else(|_| simulator.bench(lab)).ok()?;
            let names = lab.systems().map(|system| system.name().to_owned());
            let names = names.filter(|name| !left_out.contains(&name.as_str()));
            let measured = plan::form_of(lab, form);
            let systems: Vec<String> = names.filter(|name| measured.measures(name)).collect();
            let plan = Plan::new(lab, form, &systems, repeats);
            let steps: Vec<&Step> = plan.steps.iter().collect();
            Some(bench.estimate(&plan, &steps))
        };
        // The quick and the full form have the same turns. A run of either form in docs/results
        // shows by how much these turns exceed the planned time.
        let recorded = RECORDED.iter().find(|one| lab.is_builtin() && one.lab == lab.name());
        let slower = recorded.and_then(|one| {
            let two = Executor::Simulator { threads: CPUS_OF_RECORDS };
            let planned = planned(one.form, Some(one.repeats), one.left_out, &two)?;
            Some(one.took.as_secs_f64() / planned.as_secs_f64())
        });
        let slower = slower.filter(|factor| factor.is_finite()).unwrap_or(1.0);
        let left_out = if machine.bench(lab).is_ok() { lab.left_out() } else { Vec::new() };
        let time = |form| Some(planned(form, None, &left_out, &simulator)?.mul_f64(slower));
        Self {
            on_machine: machine.bench(lab).is_ok(),
            in_simulator: simulator.bench(lab).is_ok(),
            quick: time(Form::Quick).unwrap_or_default(),
            full: time(Form::Full).unwrap_or_default(),
        }
    }
}

/// A run of docs/results.
struct Recorded {
    lab: &'static str,
    form: Form,
    repeats: u32,
    /// Systems that the machine lacked.
    left_out: &'static [&'static str],
    took: Duration,
}

const fn recorded(
    lab: &'static str,
    form: Form,
    repeats: u32,
    left_out: &'static [&'static str],
    milliseconds: u64,
) -> Recorded {
    Recorded { lab, form, repeats, left_out, took: Duration::from_millis(milliseconds) }
}

/// Number of CPUs of the machine of every page.
const CPUS_OF_RECORDS: usize = 2;
/// The durations of runs, as the pages of docs/results state them. `conntrack` is missing, because
/// its machine could not run a third of the cells.
const RECORDED: &[Recorded] = &[
    recorded("accel-cost", Form::Quick, 6, &[], 126_000),
    recorded("caqm", Form::Quick, 6, &[], 266_000),
    recorded("caqm-fabric", Form::Full, 7, &[], 27_600),
    recorded("cc-grid", Form::Quick, 4, &[], 29_700),
    recorded("cc-kernel", Form::Quick, 6, &[], 119_000),
    recorded("faults", Form::Full, 20, &[], 6_960_000),
    recorded("flow-rules", Form::Full, 7, &["ovs-dpdk-tuned"], 2_555_000),
    recorded("incast", Form::Quick, 6, &[], 2_520),
    recorded("kernel-cells", Form::Full, 9, &[], 2_354_000),
    recorded("lateness", Form::Quick, 6, &[], 189_000),
    recorded("lateness-bound", Form::Full, 20, &[], 266_000),
    recorded("link-accuracy", Form::Quick, 6, &[], 104_000),
    recorded("live-flows", Form::Full, 6, &[], 389_000),
    recorded("perf-overhead", Form::Quick, 18, &[], 148_000),
    recorded("quic-tun", Form::Full, 7, &[], 1_756_000),
    recorded("rough-paths", Form::Quick, 6, &[], 206_000),
    recorded("slow-nic", Form::Full, 6, &[], 564_000),
    recorded("tcpa", Form::Quick, 6, &[], 300_000),
    recorded("tcpa-hard", Form::Full, 6, &[], 6_950),
    recorded("tcpa-paths", Form::Quick, 6, &[], 208_000),
    recorded("tunnel-latency", Form::Quick, 6, &["quic-tun", "hysteria"], 82_800),
    recorded("tunnel-paths", Form::Full, 6, &[], 141_000),
    recorded("tunnel-scale", Form::Quick, 6, &["quic-tun", "hysteria"], 63_100),
    recorded("validate", Form::Full, 12, &[], 73_900),
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
            assert_eq!(recorded.form.word(), between(&page, "**Form:** the ", " form"), "{name}");
            let took = seconds(between(&page, "; the run took ", "\n"));
            assert!((recorded.took.as_secs_f64() - took).abs() < 0.01, "{name}: {took} s");
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
        // The lab's setup tunes the board before each turn, and the plan does not know that time.
        assert!(known.quick > mine.quick * 2, "{known:?} {mine:?}");
    }
}
