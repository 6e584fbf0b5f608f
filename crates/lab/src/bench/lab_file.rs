//! A lab file that is bound to its workload and ready for a bench.

use super::Executor;
use super::hosts::check_between_machines;
use super::machine::{missing_right, problem_of, problems_of_states};
use super::workload::{Workload, programs};
use crate::model::file::{Document, FileError, SystemSpec, axes};
use crate::model::plan::form_of;
use host::Privilege;
use indexmap::IndexMap;
use results::{Axes, Form};
use std::ops::Deref;
use std::path::PathBuf;

/// A lab file that can be planned and built. Every cell of every form has passed all checks that do
/// not touch the machine.
#[derive(Debug, Clone)]
pub struct LabFile {
    pub(crate) document: Document,
    pub(crate) kind: &'static dyn Workload,
}

impl LabFile {
    /// Replaces the file's `seed`, and draws its populations of paths anew. The text of the file
    /// does not change.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), FileError> {
        self.document.seed = seed;
        self.document.populate()
    }

    /// Returns the programs, algorithms, CPUs and rights that this machine lacks, each reported at
    /// the system, the `[state]` or the workload that needs the missing part. Also names the
    /// systems and turns that a run leaves out because of a missing program or right.
    pub fn lacking(&self) -> Vec<FileError> {
        let is_root = rustix::process::geteuid().is_root();
        self.lacking_for(if is_root { Privilege::Root } else { Privilege::UserNamespace })
    }

    /// Returns the list of [`Self::lacking`] for a user with these rights.
    fn lacking_for(&self, privilege: Privilege) -> Vec<FileError> {
        let machine =
            Executor::Machine { privilege: Privilege::Root, weir: PathBuf::new(), profile: false };
        // A lab that runs in virtual time needs nothing from the machine, and `weir lab hosts
        // check` looks at real hosts.
        if self.document.has_real_hosts() || machine.bench(self).is_err() {
            return Vec::new();
        }
        let at = |place, message: String| self.source.error(place, message);
        let mut lacking: Vec<FileError> = Vec::new();
        let program = self.kind.missing_program().map(str::to_owned);
        let cells = self.lacking_of_cells();
        let of_workload = program.into_iter().chain(cells);
        lacking.extend(of_workload.map(|reason| at(self.workload.span(), reason)));
        for system in self.document.systems() {
            let problem = problem_of(system, &programs(self, system));
            let problem = problem.or_else(|| missing_right(system, privilege));
            let Some(problem) = problem else { continue };
            let outcome = if system.optional { "is left out here" } else { "cannot run here" };
            let text = format!("system `{}` {outcome}: {problem}", system.name());
            lacking.push(at(system.name.span(), text));
        }
        if let Some(state) = &self.state {
            let problems = problems_of_states(self, privilege);
            lacking.extend(problems.into_iter().map(|problem| at(state.span(), problem)));
        }
        if privilege != Privilege::Root {
            let text = "you are not root: the lab runs in a user namespace, if the kernel permits one to \
                        users, without real-time scheduling, and is late more often";
            lacking.push(at(self.workload.span(), text.to_owned()));
        }
        lacking
    }

    /// Returns the optional systems whose programs this machine lacks.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        let absent = |system: &&SystemSpec| {
            system.optional && problem_of(system, &programs(self, system)).is_some()
        };
        self.document.systems().filter(absent).map(|system| system.name()).collect()
    }

    /// Returns the needs that this machine does not meet, each need once with the number of its
    /// cells.
    fn lacking_of_cells(&self) -> Vec<String> {
        let places = axes::all_places(self);
        let mut found: IndexMap<String, Vec<&Axes>> = IndexMap::new();
        for place in &places {
            for reason in self.kind.lacking(self, place) {
                found.entry(reason).or_default().push(place);
            }
        }
        let sentence = |(reason, of): (String, Vec<&Axes>)| {
            let first = of.first().map(|axes| {
                let each = axes.iter().map(|(axis, value)| format!("{axis}={value}"));
                each.collect::<Vec<_>>().join(" ")
            });
            match first.filter(|first| !first.is_empty()) {
                Some(first) => {
                    let (count, all) = (of.len(), places.len());
                    format!("{reason}: {count} of {all} cells need it, for example {first}")
                }
                None => reason,
            }
        };
        found.into_iter().map(sentence).collect()
    }

    /// Returns a warning if the repeats of the full form are too few for its primary comparisons to
    /// have a verdict. `repeats` replaces the repeats of the file.
    pub fn too_few_repeats(&self, repeats: Option<u32>) -> Option<FileError> {
        if self.document.primary.is_empty() {
            return None;
        }
        let written = &form_of(self, Form::Full).repeats;
        let repeats = repeats.unwrap_or(*written.get_ref());
        let needed = stats::FEWEST;
        let message = format!(
            "a comparison of fewer than {needed} repeats has no verdict, and there are {repeats}: \
             raise `repeats`"
        );
        let is_too_few = (repeats as usize) < needed;
        is_too_few.then(|| self.document.source.error(written.span(), message))
    }

    /// Returns the reason why the lab does not run between the real machines that the file names.
    pub fn refused_between_machines(&self) -> Option<FileError> {
        let refused = check_between_machines(self).err();
        refused.filter(|_| self.document.has_real_hosts())
    }

    /// Returns a warning for each queue whose settings do not suit the path of a cell. The warning
    /// is at the link or the system that has the queue.
    pub fn unsuited_queues(&self) -> Vec<FileError> {
        let mut found: Vec<FileError> = Vec::new();
        for axes in axes::all_places(&self.document) {
            let at_axes = self.document.unsuited_queues(&axes);
            for warning in at_axes {
                if !found.iter().any(|known| known.line() == warning.line()) {
                    found.push(warning);
                }
            }
        }
        found
    }

    /// Returns the file's kind of workload.
    pub(crate) fn kind(&self) -> &'static dyn Workload {
        self.kind
    }
}

impl Deref for LabFile {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the axis values of a cell of [`LAB`].
    pub(crate) fn axes() -> Axes {
        [("loss".to_owned(), "0%".to_owned())].into_iter().collect()
    }

    pub(crate) const LAB: &str = r#"name = "lab"
hosts = ["client", "server"]
[axes]
loss = ["0%", "1%"]
[[link]]
between = ["client", "server"]
rate = "10mbit"
loss = "{loss}"
rtt = "20ms"
[workload]
kind = "bulk"
from = "client"
to = "server"
omit = "1s"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "10s"
repeats = 6
"#;

    #[test]
    fn a_virtual_time_lab_needs_no_algorithm_of_this_kernel() {
        let lacks = |text: &str| LabFile::parse("lab.toml", text).unwrap().lacking().len();
        let foreign = LAB.replace("\"cubic\"\n[form", "\"bbr3\"\n[form");
        assert_eq!((lacks(LAB), lacks(&foreign)), (0, 1));
        let simulated = foreign.replace("rtt = \"20ms\"", "rtt = \"20ms\"\naggregate = \"4ms\"");
        assert_eq!(lacks(&simulated), 0);
    }

    #[test]
    fn a_lab_with_too_few_repeats_gives_a_warning() {
        let primary = "[[primary]]\nmetric = \"goodput_mbit_s\"\nsystem = \"reno\"\n\
                       baseline = \"cubic\"\nat = { loss = \"0%\" }\n";
        let reno = "[[system]]\nname = \"reno\"\nkind = \"tcp\"\ncongestion = \"reno\"\n";
        let lab = |text: &str| LabFile::parse("lab.toml", text).unwrap();
        assert!(lab(LAB).too_few_repeats(Some(1)).is_none());
        let with_primary = lab(&format!("{LAB}{reno}{primary}"));
        assert!(with_primary.too_few_repeats(None).is_none());
        let warning = with_primary.too_few_repeats(Some(5)).unwrap().to_string();
        let expected = "a comparison of fewer than 6 repeats has no verdict, and there are 5";
        assert!(warning.contains(expected), "{warning}");
    }

    #[test]
    fn missing_programs_are_reported_with_their_lines() {
        let external =
            "kind = \"external\"\nserver = \"/nowhere/peer -s\"\nclient = \"/nowhere/peer -c\"";
        let text = LAB.replace("kind = \"tcp\"\ncongestion = \"cubic\"", external);
        let lacking = LabFile::parse("lab.toml", &text).unwrap().lacking();
        let lacking: Vec<String> = lacking.iter().map(ToString::to_string).collect();
        let expected =
            "lab.toml:16: system `cubic` cannot run here: `/nowhere/peer` is not installed";
        assert_eq!(lacking, [expected]);
        assert_eq!(LabFile::parse("lab.toml", LAB).unwrap().lacking().len(), 0);
    }

    #[test]
    fn a_missing_kernel_setting_is_reported_before_the_run() {
        let lacking = |name: &str| {
            let own = format!("congestion = \"cubic\"\nsysctl = {{ \"{name}\" = \"1\" }}");
            let text = LAB.replace("congestion = \"cubic\"", &own);
            let lacking = LabFile::parse("lab.toml", &text).unwrap().lacking();
            lacking.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let expected = "lab.toml:16: system `cubic` cannot run here: this machine has no kernel \
                        setting `net.ipv4.tcp_rmen` (did you mean `net.ipv4.tcp_rmem`?)";
        assert_eq!(lacking("net.ipv4.tcp_rmen"), [expected]);
        assert_eq!(lacking("net.ipv4.tcp_rmem"), [""; 0]);
        // The interface exists only in a host of the lab, so no setting is reported.
        assert_eq!(lacking("net.ipv4.conf.nowhere0.forwarding"), [""; 0]);
    }

    fn lacking_for(text: &str, privilege: Privilege) -> Vec<String> {
        let lacking = LabFile::parse("lab.toml", text).unwrap().lacking_for(privilege);
        lacking.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn missing_programs_algorithms_and_rights_of_a_state_are_reported() {
        let system = "[[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n";
        let states = "[state]\n\
                      before = { command = \"/nowhere/make x\", undo = \"/nowhere/remove\" }\n\
                      after = { congestion = \"bbr9\", load = [\"tcpa\"], offload = { tso = \"off\" } }\n";
        let text = LAB.replace(system, states);
        let as_root = lacking_for(&text, Privilege::Root);
        for expected in [
            "lab.toml:15: before: `/nowhere/make` is not installed",
            "lab.toml:15: before: `/nowhere/remove` is not installed",
            "lab.toml:15: after: this machine has no congestion control `bbr9`",
        ] {
            let told = as_root.iter().filter(|text| text.starts_with(expected)).count();
            assert_eq!(told, 1, "{expected}: {as_root:?}");
        }
        let places = ["ethtool", "/usr/sbin/ethtool", "/sbin/ethtool"];
        let has_ethtool = places.into_iter().any(host::is_installed);
        let ethtool = "lab.toml:15: after: `ethtool` is not installed".to_owned();
        assert_eq!(as_root.contains(&ethtool), !has_ethtool, "{as_root:?}");
        let right = "lab.toml:15: after: only root loads `tcpa` into the kernel";
        let as_user = lacking_for(&text, Privilege::UserNamespace);
        assert!(as_user.iter().any(|text| text.starts_with(right)), "{as_user:?}");
        assert!(!as_root.iter().any(|text| text.contains("only root")), "{as_root:?}");
    }

    #[test]
    fn a_system_that_only_root_can_measure_is_reported_to_a_user() {
        let text = LAB.replace("\"cubic\"\n[form", "\"tcpa\"\n[form");
        assert_eq!(lacking_for(&text, Privilege::Root), [""; 0]);
        let as_user = lacking_for(&text, Privilege::UserNamespace);
        let right =
            "lab.toml:16: system `cubic` cannot run here: only root loads `tcpa` into the kernel";
        assert_eq!(as_user[0], right, "{as_user:?}");
        let slower = "the lab runs in a user namespace";
        assert!(as_user.len() == 2 && as_user[1].contains(slower), "{as_user:?}");
    }

    #[test]
    fn an_optional_system_without_its_programs_is_reported_as_left_out() {
        let external = "kind = \"external\"\noptional = true\nserver = \"/nowhere/peer -s\"\n\
                        client = \"/nowhere/peer -c\"";
        let text = LAB.replace("kind = \"tcp\"\ncongestion = \"cubic\"", external);
        let expected =
            "lab.toml:16: system `cubic` is left out here: `/nowhere/peer` is not installed";
        assert_eq!(lacking_for(&text, Privilege::Root), [expected]);
        assert_eq!(LabFile::parse("lab.toml", &text).unwrap().left_out(), ["cubic"]);
    }
}
