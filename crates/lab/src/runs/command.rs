//! The command that repeats a run which `--resume` has continued. The command line of the last part
//! names only the directory: the lab and the options are in the command line of the first part.

use crate::bench::LabFile;
use crate::model::plan::{self, Plan};
use results::Form;

/// Returns the command of a continued run. `verb` is `weir lab run` or `weir sim run`, and
/// `file_seed` the seed that the lab file names.
pub(super) fn of_continued(
    verb: &str,
    lab: &LabFile,
    plan: &Plan,
    file_seed: u64,
    began: &toml::Table,
) -> String {
    let mut words = vec![verb.to_owned(), named(lab, began)];
    match plan.form {
        Form::Full | Form::Other => {}
        form => words.push(format!("--{}", form.word())),
    }
    let spec = plan::form_of(lab, plan.form);
    let systems = plan.systems();
    let usual = lab.systems().map(|system| system.name()).filter(|name| spec.measures(name));
    if !usual.eq(systems.iter().map(String::as_str)) {
        words.push(format!("--systems {}", systems.join(",")));
    }
    if plan.repeats != *spec.repeats.get_ref() {
        words.push(format!("--repeats {}", plan.repeats));
    }
    if lab.seed != file_seed {
        words.push(format!("--seed {}", lab.seed));
    }
    words.join(" ")
}

/// Returns the name of the lab in the command of the run's first part. If that command shows no
/// path, returns the name of the file in the run's directory.
fn named(lab: &LabFile, began: &toml::Table) -> String {
    if lab.is_builtin() {
        return lab.name().to_owned();
    }
    let command = began.get("command").and_then(toml::Value::as_str).unwrap_or_default();
    let word = command.split(" run ").nth(1).and_then(|rest| rest.split(' ').next());
    word.filter(|word| !word.starts_with('-') && !word.contains('\'')).unwrap_or(LAB).to_owned()
}

const LAB: &str = "lab.toml";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;

    fn command(lab: &str, form: Form, systems: &[&str], repeats: u32, seed: Option<u64>) -> String {
        let mut lab = builtin::open(lab).unwrap();
        let file_seed = lab.seed;
        seed.into_iter().for_each(|seed| lab.set_seed(seed).unwrap());
        let names: Vec<String> = match systems {
            [] => lab.systems().map(|system| system.name().to_owned()).collect(),
            _ => systems.iter().map(|name| (*name).to_owned()).collect(),
        };
        let plan = Plan::new(&lab, form, &names, Some(repeats));
        of_continued("weir sim run", &lab, &plan, file_seed, &toml::Table::new())
    }

    #[test]
    fn a_continued_runs_command_names_its_lab_and_its_options() {
        assert_eq!(command("faults", Form::Full, &[], 20, None), "weir sim run faults");
        assert_eq!(
            command("faults", Form::Quick, &[], 40, Some(7)),
            "weir sim run faults --quick --repeats 40 --seed 7"
        );
        let chosen = command("cc-grid", Form::Full, &["tcpa"], 6, None);
        assert!(chosen.contains("weir sim run cc-grid --systems tcpa"), "{chosen}");
    }
}
