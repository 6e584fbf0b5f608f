//! Reads a lab file: binds a document to its workload, and checks the document against the
//! workload.

use super::check::{add_short_forms, bind, check};
use crate::bench::LabFile;
use crate::bench::workload::Workload;
use crate::model::file::{Document, FileError};
use std::path::Path;

impl LabFile {
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&path.display().to_string(), &Document::text_of(path)?)
    }

    /// Parses a lab file. Messages use `file` as the name of the file. The error names all mistakes
    /// that can be found at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let (mut document, mistakes) = Document::parse(file, text)?;
        let generated = document.add_states().and_then(|()| document.populate());
        document.source.collect(mistakes);
        let checked = generated.and_then(|()| checked(&mut document));
        let kind = document.source.finish(checked)?;
        add_short_forms(&mut document, kind);
        Ok(Self { document, kind })
    }

    /// Takes the lab's hosts from an Ansible inventory. Each host of the lab is the inventory's
    /// host or group of the same name.
    pub fn use_inventory(&mut self, path: &Path) -> Result<(), FileError> {
        let file = path.display().to_string();
        let text = Document::text_of(path)?;
        self.document.add_inventory(&file, &text)?;
        check(&self.document, self.kind)
    }
}

/// Finds the document's workload, and checks the document against the workload.
fn checked(document: &mut Document) -> Result<&'static dyn Workload, FileError> {
    let kind = bind(document)?;
    check(document, kind)?;
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lab_file::tests::LAB;
    use results::Form;

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
    fn all_mistakes_of_a_lab_file_are_reported_at_once() {
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
    fn grammar_and_workload_mistakes_are_reported_together() {
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

    /// Each mistake gives exactly one error, and no error about its consequences.
    #[test]
    fn a_mistake_gives_no_errors_about_its_consequences() {
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
            ("hosts = [\"client\", \"server\"]", "hots = [\"client\", \"server\"]"),
            ("hosts = [\"client\", \"server\"]", "host = [\"client\", \"server\"]"),
            ("hosts = [\"client\", \"server\"]", "hosts = 2"),
            ("loss = [\"0%\", \"1%\"]", "loss = \"0%\""),
            ("name = \"cubic\"", "name = 7"),
            ("from = \"client\"", "from = 1"),
            ("congestion = \"cubic\"", "congestion = 2"),
        ] {
            let found = lines(&LAB.replace(right, wrong));
            assert_eq!(found.len(), 1, "{wrong}: {found:#?}");
        }
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
            ("\"web\"\nserver = \"nginx\"\nsize = \"2MiB\"", "or `server = \"weir\"`"),
            ("\"web\"\npinned = \"yes\"", "leave out `pinned`"),
            ("\"download\"\nsize = \"65MiB\"", "choose a smaller `size`"),
        ] {
            let found = lines(&lab.replace("\"bulk\"", workload)).join("\n");
            let told = found.contains("does not run between real machines");
            assert!(told && found.contains(reason), "{workload}: {found}");
        }
    }

    #[test]
    fn missing_short_forms_are_made_from_the_full_form() {
        let lab = LabFile::parse("lab.toml", LAB).unwrap();
        let systems = ["cubic".to_owned()];
        let plan = |form| crate::model::Plan::new(&lab, form, &systems, None);
        let (full, quick, smoke) = (plan(Form::Full), plan(Form::Quick), plan(Form::Smoke));
        assert_eq!((full.cells.len(), full.repeats), (2, 6));
        assert_eq!((quick.cells.len(), quick.repeats), (2, 1));
        assert_eq!(quick.duration.to_string(), "3s");
        assert_eq!((smoke.cells.len(), smoke.repeats), (1, 1));
        assert_eq!(smoke.duration.to_string(), "1s");
    }
}
