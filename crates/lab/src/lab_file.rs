//! A checked lab file.

use crate::Executor;
use crate::executor::machine::{missing_right, problem_of};
use crate::file::{Document, Draft, FileError, SystemSpec, axes};
use crate::run::plan::form_of;
use crate::workload::{self, Workload};
use host::Privilege;
use indexmap::IndexMap;
use results::{Axes, Form};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A lab file that can be planned and built: everything that can be checked without touching the
/// machine was checked, for every cell of every form.
#[derive(Debug, Clone)]
pub struct LabFile {
    document: Document,
    kind: &'static dyn Workload,
}

impl LabFile {
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&path.display().to_string(), &Document::text_of(path)?)
    }

    /// Messages use `file` as the name of the file. The error names all mistakes that can be found
    /// at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let read = || {
            let mut document = Document::parse(file, text)?;
            document.add_states()?;
            document.populate()?;
            let kind = workload::bind(&mut document)?;
            workload::check(&document, kind)?;
            workload::add_short_forms(&mut document, kind);
            Ok(Self { document, kind })
        };
        read().map_err(|first| FileError::joined(mistakes(file, text)).unwrap_or(first))
    }

    /// Replaces the file's `seed`, and draws its populations of paths anew. The text of the file
    /// stays as it is.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), FileError> {
        self.document.seed = seed;
        self.document.populate()
    }

    /// Makes the hosts of the lab those of an Ansible inventory: the host or the group of the same
    /// name.
    pub fn use_inventory(&mut self, path: &Path) -> Result<(), FileError> {
        let file = path.display().to_string();
        let text = Document::text_of(path)?;
        self.document.add_inventory(&file, &text)?;
        workload::check(&self.document, self.kind)
    }

    /// The programs, algorithms, CPUs and rights that this machine lacks, at the systems that need
    /// them, or at the workload. Systems and turns that are left out then are named too.
    pub fn lacking(&self) -> Vec<FileError> {
        let machine =
            Executor::Machine { privilege: Privilege::Root, weir: PathBuf::new(), profile: false };
        // A lab that runs in virtual time lacks nothing, and `weir lab hosts check` looks at real
        // hosts.
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
            let problem = problem_of(system, &workload::programs(self, system));
            let problem = problem.or_else(|| missing_right(system));
            let Some(problem) = problem else { continue };
            let outcome = if system.optional { "is left out here" } else { "cannot run here" };
            let text = format!("system `{}` {outcome}: {problem}", system.name());
            lacking.push(at(system.name.span(), text));
        }
        if !rustix::process::geteuid().is_root() {
            let text = "you are not root: the lab runs in a user namespace, if the kernel permits one to \
                        users, without real-time scheduling, and is late more often";
            lacking.push(at(self.workload.span(), text.to_owned()));
        }
        lacking
    }

    /// The optional systems whose programs this machine lacks.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        let absent = |system: &&SystemSpec| {
            system.optional && problem_of(system, &workload::programs(self, system)).is_some()
        };
        self.document.systems().filter(absent).map(|system| system.name()).collect()
    }

    /// The needs of cells, each once, with the number of cells that have it.
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

    /// A warning if the repeats of the full form are too few for its primary comparisons to have a
    /// verdict. `repeats` replaces those of the file.
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

    /// A warning for each queue whose settings do not suit the path of a cell, at the link or the
    /// system that has the queue.
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

    /// The file's kind of workload.
    pub(crate) fn kind(&self) -> &'static dyn Workload {
        self.kind
    }
}

/// All mistakes of a file. Checks that build on others are left out where those fail.
fn mistakes(file: &str, text: &str) -> Vec<FileError> {
    let mut draft = Draft::of(file, text);
    let mut found = Vec::new();
    for round in 0..MOST_ROUNDS {
        let document = draft.document();
        found.extend(draft.found());
        let Some(document) = document else { return found };
        let checked = mistakes_of(document);
        let new: Vec<FileError> = checked
            .into_iter()
            .filter_map(|error| draft.translated(error))
            .filter(|error| !found.iter().any(|known| known.to_string() == error.to_string()))
            // A setting that was mended may have been the only one that named the axis.
            .filter(|error| round == 0 || !error.to_string().contains("nothing depends on axis"))
            .collect();
        // Each round finds one more mistake of each link.
        let mended: Vec<usize> = new
            .iter()
            .filter_map(FileError::line)
            .filter(|line| draft.mend_setting(*line))
            .collect();
        found.extend(new);
        if mended.is_empty() {
            break;
        }
    }
    found
}

/// The mistakes of a file whose grammar is sound.
fn mistakes_of(mut document: Document) -> Vec<FileError> {
    if let Err(error) = document.add_states().and_then(|()| document.populate()) {
        return vec![error];
    }
    document.source.collect();
    let checked = match workload::bind(&mut document) {
        Ok(kind) => workload::check(&document, kind),
        Err(error) => Err(error),
    };
    let mut found = document.source.mistakes();
    found.extend(checked.err());
    found
}

const MOST_ROUNDS: usize = 10;

impl Deref for LabFile {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = r#"name = "lab"
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
    fn a_lab_of_virtual_time_needs_no_algorithm_of_this_kernel() {
        let lacks = |text: &str| LabFile::parse("lab.toml", text).unwrap().lacking().len();
        let foreign = LAB.replace("\"cubic\"\n[form", "\"bbr3\"\n[form");
        assert_eq!((lacks(LAB), lacks(&foreign)), (0, 1));
        let simulated = foreign.replace("rtt = \"20ms\"", "rtt = \"20ms\"\naggregate = \"4ms\"");
        assert_eq!(lacks(&simulated), 0);
    }

    #[test]
    fn a_lab_whose_comparisons_cannot_decide_is_warned_of() {
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

    fn lines(text: &str) -> Vec<String> {
        let error = LabFile::parse("lab.toml", text).unwrap_err();
        error.each().iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn starts(found: &[String], expected: &[&str]) {
        let same = found.len() == expected.len();
        let all = found.iter().zip(expected).all(|(one, start)| one.starts_with(start));
        assert!(same && all, "{found:#?}");
    }

    #[test]
    fn all_mistakes_of_a_file_are_reported_at_once() {
        let text = LAB
            .replace("rate =", "rat =")
            .replace("from = \"client\"", "from = \"clent\"")
            .replace("repeats = 6", "repeats = 0")
            .replace("kind = \"tcp\"", "kind = \"tpc\"");
        let expected = [
            "lab.toml:7: unknown key `rat`",
            "lab.toml:12: no host `clent`",
            "lab.toml:17: unknown value `tpc`",
            "lab.toml:21: `repeats` is from",
        ];
        starts(&lines(&text), &expected);
        let text = LAB
            .replace("repeats = 6", "repeats = 0")
            .replace("loss = [\"0%\", \"1%\"]", "loss = [\"0%\", \"0%\"]");
        starts(&lines(&text), &["lab.toml:4: ", "lab.toml:21: "]);
    }

    #[test]
    fn mistakes_of_all_kinds_are_reported_together() {
        let text = LAB
            .replace("name = \"lab\"", "name = \"lab\"\ntitle 5")
            .replace("rtt = \"20ms\"", "rtt = \"20 parsecs\"\nqueue = \"droptali:64KiB\"")
            .replace("omit = \"1s\"", "omit = 1")
            .replace("from = \"client\"", "from = \"clent\"")
            .replace("congestion", "congestoin")
            .replace("repeats = 6", "repeats = 0\nsystems = [\"reno\"]");
        let found = lines(&text);
        let expected = [
            "lab.toml:2: ",
            "lab.toml:10: ",
            "lab.toml:11: ",
            "lab.toml:14: no host `clent`",
            "lab.toml:16: ",
            "lab.toml:20: unknown key `congestoin`",
            "lab.toml:23: `repeats` is from",
            "lab.toml:24: no system `reno`",
        ];
        starts(&found, &expected);
    }

    /// Each mistake alone is reported as itself, and nothing beside it.
    #[test]
    fn a_mended_mistake_has_no_consequences() {
        for (right, wrong) in [
            ("rate = \"10mbit\"", "rate = 10"),
            ("rate = \"10mbit\"", "rate = \"10"),
            ("kind = \"bulk\"", "kind = \"bluk\""),
            ("kind = \"tcp\"", "kind = \"zebra\""),
            ("to = \"server\"", "too = \"server\""),
            ("duration = \"10s\"", ""),
            ("duration = \"10s\"", "duration = \"10 fortnights\""),
            ("repeats = 6", "repeats = \"six\""),
            ("rtt = \"20ms\"", "rtt = \"20mss\""),
            ("between = [\"client\", \"server\"]", "between = [\"client\", \"sever\"]"),
            ("hosts = [\"client\", \"server\"]", "hosts [\"client\", \"server\"]"),
            ("from = \"client\"", "from = 1"),
            ("congestion = \"cubic\"", "congestion = 2"),
        ] {
            let found = lines(&LAB.replace(right, wrong));
            assert_eq!(found.len(), 1, "{wrong}: {found:#?}");
        }
    }

    #[test]
    fn what_the_machine_lacks_is_told_with_its_line() {
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
    fn a_workload_that_does_not_run_between_machines_is_refused_with_its_reason() {
        let real = "hosts = [\"client\", \"server\"]\n[host]\nclient = { ssh = \"a\" }\n\
                    server = { ssh = \"b\" }";
        let lab = LAB.replace("hosts = [\"client\", \"server\"]", real);
        assert!(LabFile::parse("lab.toml", &lab).is_ok());
        let lab = lab.replace("omit = \"1s\"", "");
        for (workload, reason) in [
            ("\"messages\"", "use `benchmark`"),
            ("\"crowd\"\nidle = 10", "use `command`"),
            ("\"flows\"", "use `bulk` with `streams`"),
            ("\"web\"\nscheme = \"https\"", "measure http"),
            ("\"benchmark\"\ntest = \"https_long\"", "measure http"),
            ("\"web\"\nserver = \"nginx\"", "write `server = \"weir\"`"),
            ("\"web\"\npinned = \"yes\"", "leave out `pinned`"),
            ("\"download\"\nsize = \"65MiB\"", "choose a smaller `size`"),
        ] {
            let found = lines(&lab.replace("\"bulk\"", workload)).join("\n");
            let told = found.contains("does not run between real machines");
            assert!(told && found.contains(reason), "{workload}: {found}");
        }
    }

    #[test]
    fn a_kernel_setting_that_does_not_exist_is_told_before_the_run() {
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
        // Only a host of the lab has that interface.
        assert_eq!(lacking("net.ipv4.conf.nowhere0.forwarding"), [""; 0]);
    }

    #[test]
    fn a_file_without_short_forms_gets_them_from_its_full_one() {
        let lab = LabFile::parse("lab.toml", LAB).unwrap();
        let systems = ["cubic".to_owned()];
        let plan = |form| crate::Plan::new(&lab, form, &systems, None);
        let (full, quick, smoke) = (plan(Form::Full), plan(Form::Quick), plan(Form::Smoke));
        assert_eq!((full.cells.len(), full.repeats), (2, 6));
        assert_eq!((quick.cells.len(), quick.repeats), (2, 1));
        assert_eq!(quick.duration.to_string(), "3s");
        assert_eq!((smoke.cells.len(), smoke.repeats), (1, 1));
        assert_eq!(smoke.duration.to_string(), "1s");
    }
}
