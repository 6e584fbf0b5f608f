//! Opens the labs that come with the program.

use crate::bench::LabFile;
use crate::model::LabError;
pub use crate::model::builtin::{BUILTIN, Builtin};
use std::path::Path;

/// Opens a built-in lab by its name, or a file by its path.
pub fn open(name: &str) -> Result<LabFile, LabError> {
    if let Some(builtin) = BUILTIN.iter().find(|builtin| builtin.name == name) {
        return Ok(LabFile::parse(&format!("labs/{name}.toml"), builtin.text)?);
    }
    let looks_like_a_path = name.contains('/') || name.ends_with(".toml");
    if looks_like_a_path || Path::new(name).is_file() {
        return Ok(LabFile::read(Path::new(name))?);
    }
    let names = BUILTIN.iter().map(|builtin| builtin.name);
    Err(LabError::NoSuchLab { name: name.to_owned(), hint: units::did_you_mean(name, names) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_lab_is_valid_and_has_its_files_name() {
        for builtin in BUILTIN {
            let lab = open(builtin.name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(lab.name(), builtin.name);
        }
    }

    /// The labs of `weir doctor`, of the simulator's checks and of states need no `answer`, because
    /// their verdicts answer the question.
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

    /// Labs of `weir doctor` are exempt, because their first table has verdicts.
    #[test]
    fn the_first_table_of_every_built_in_lab_has_the_metrics_of_its_answer() {
        for builtin in BUILTIN {
            let lab = open(builtin.name).unwrap();
            if lab.kind().kind() == "diagnose" {
                continue;
            }
            let mut shown: Vec<&str> = Vec::new();
            if let Some(view) = &lab.view {
                shown.push(view.metric.get_ref());
                shown.extend(view.columns.iter().map(|metric| metric.get_ref().as_str()));
            }
            for metric in lab.metrics_of_answer() {
                assert!(shown.contains(&metric.as_str()), "{}: {metric}", builtin.name);
            }
        }
    }

    /// With too few repeats a figure has no interval, or a primary comparison stays undecided. Labs
    /// of drawn faults are exempt: each fault is a case of its own, and the intervals are over the
    /// faults.
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
    fn the_error_of_a_misspelt_lab_name_suggests_the_right_name() {
        let error = open("quic-tum").unwrap_err().to_string();
        assert!(error.contains("did you mean `quic-tun`?"), "{error}");
        assert!(error.contains("`weir lab list`") && error.len() < 160, "{error}");
    }
}
