//! The labs that come with the program.

use crate::LabFile;
use crate::{LabError, nearest};
use std::path::Path;

/// A lab built into the program. Its file is in `labs/`.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    pub name: &'static str,
    pub text: &'static str,
}

pub const BUILTIN: &[Builtin] = &[
    Builtin { name: "quic-tun", text: include_str!("../../../labs/quic-tun.toml") },
    Builtin { name: "tunnel-latency", text: include_str!("../../../labs/tunnel-latency.toml") },
    Builtin { name: "tunnel-scale", text: include_str!("../../../labs/tunnel-scale.toml") },
    Builtin { name: "rough-paths", text: include_str!("../../../labs/rough-paths.toml") },
    Builtin { name: "tunnel-paths", text: include_str!("../../../labs/tunnel-paths.toml") },
    Builtin { name: "link-accuracy", text: include_str!("../../../labs/link-accuracy.toml") },
    Builtin { name: "lateness", text: include_str!("../../../labs/lateness.toml") },
    Builtin { name: "lateness-bound", text: include_str!("../../../labs/lateness-bound.toml") },
    Builtin { name: "perf-overhead", text: include_str!("../../../labs/perf-overhead.toml") },
    Builtin { name: "cc-grid", text: include_str!("../../../labs/cc-grid.toml") },
    Builtin { name: "caqm-fabric", text: include_str!("../../../labs/caqm-fabric.toml") },
    Builtin { name: "incast", text: include_str!("../../../labs/incast.toml") },
    Builtin { name: "validate", text: include_str!("../../../labs/validate.toml") },
    Builtin { name: "kernel-cells", text: include_str!("../../../labs/kernel-cells.toml") },
    Builtin { name: "tcpa", text: include_str!("../../../labs/tcpa.toml") },
    Builtin { name: "tcpa-paths", text: include_str!("../../../labs/tcpa-paths.toml") },
    Builtin { name: "tcpa-hard", text: include_str!("../../../labs/tcpa-hard.toml") },
    Builtin { name: "hard-paths", text: include_str!("../../../labs/hard-paths.toml") },
    Builtin { name: "faults", text: include_str!("../../../labs/faults.toml") },
    Builtin { name: "senders", text: include_str!("../../../labs/senders.toml") },
    Builtin { name: "drawn-faults", text: include_str!("../../../labs/drawn-faults.toml") },
    Builtin { name: "captures", text: include_str!("../../../labs/captures.toml") },
    Builtin { name: "live-flows", text: include_str!("../../../labs/live-flows.toml") },
    Builtin { name: "slow-nic", text: include_str!("../../../labs/slow-nic.toml") },
    Builtin { name: "flow-rules", text: include_str!("../../../labs/flow-rules.toml") },
    Builtin { name: "conntrack", text: include_str!("../../../labs/conntrack.toml") },
    Builtin { name: "accel-cost", text: include_str!("../../../labs/accel-cost.toml") },
    Builtin { name: "before-after", text: include_str!("../../../labs/before-after.toml") },
    Builtin { name: "caqm", text: include_str!("../../../labs/caqm.toml") },
    Builtin { name: "caqm-hosts", text: include_str!("../../../labs/caqm-hosts.toml") },
    Builtin { name: "robustness", text: include_str!("../../../labs/robustness.toml") },
    Builtin { name: "cc-kernel", text: include_str!("../../../labs/cc-kernel.toml") },
];

/// Opens a built-in lab by its name, or a file by its path.
pub fn open(name: &str) -> Result<LabFile, LabError> {
    if let Some(builtin) = BUILTIN.iter().find(|builtin| builtin.name == name) {
        return Ok(LabFile::parse(&format!("labs/{name}.toml"), builtin.text)?);
    }
    let looks_like_a_path = name.contains('/') || name.ends_with(".toml");
    if looks_like_a_path || Path::new(name).is_file() {
        return Ok(LabFile::read(Path::new(name))?);
    }
    let names: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
    Err(LabError::NoSuchLab {
        name: name.to_owned(),
        hint: nearest(name, names.iter().copied()),
        known: names.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_lab_is_a_valid_lab_of_its_name() {
        for builtin in BUILTIN {
            let lab = open(builtin.name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(lab.name(), builtin.name);
        }
    }

    /// Labs of `weir doctor`, of the simulator's checks and of states need no `answer`: their
    /// verdicts answer the question.
    #[test]
    fn every_built_in_lab_that_measures_has_an_answer() {
        let is_without = |builtin: &&Builtin| {
            LabFile::parse(builtin.name, builtin.text).unwrap().answer.is_none()
        };
        let without: Vec<&str> =
            BUILTIN.iter().filter(is_without).map(|builtin| builtin.name).collect();
        let all = [
            "validate",
            "faults",
            "senders",
            "drawn-faults",
            "captures",
            "live-flows",
            "before-after",
        ];
        assert_eq!(without, all);
    }

    /// Fewer repeats have no interval, or decide no primary comparison. Each drawn fault is a case
    /// of its own: the intervals are over the faults.
    #[test]
    fn every_built_in_lab_repeats_its_full_form_often_enough() {
        for builtin in BUILTIN {
            let lab = open(builtin.name).unwrap();
            let full = lab.form.iter().find(|(name, _)| name.get_ref() == "full");
            let repeats = *full.unwrap().1.repeats.get_ref();
            let draws_cases = builtin.name == "drawn-faults";
            assert!(repeats >= 6 || draws_cases, "{} repeats {repeats} times", builtin.name);
            assert!(lab.too_few_repeats(None).is_none(), "{}", builtin.name);
        }
    }

    #[test]
    fn a_misspelt_name_is_recognised() {
        let error = open("quic-tum").unwrap_err().to_string();
        assert!(error.contains("did you mean `quic-tun`?"), "{error}");
    }
}
