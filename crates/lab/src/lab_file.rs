//! A checked lab file.

use crate::file::{Document, FileError};
use crate::workload::{self, Workload};
use std::ops::Deref;
use std::path::Path;

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

    /// The file's kind of workload.
    pub(crate) fn kind(&self) -> &'static dyn Workload {
        self.kind
    }
}

/// All mistakes of a file. Checks that build on others are left out where those fail.
fn mistakes(file: &str, text: &str) -> Vec<FileError> {
    let (document, mut found) = Document::parse_on(file, text);
    let Some(mut document) = document.filter(|_| found.is_empty()) else { return found };
    if let Err(error) = document.populate() {
        return vec![error];
    }
    document.source.collect();
    let checked = match workload::bind(&mut document) {
        Ok(kind) => workload::check(&document, kind),
        Err(error) => Err(error),
    };
    found.extend(document.source.mistakes());
    found.extend(checked.err());
    found
}

impl Deref for LabFile {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::Form;

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
    fn all_mistakes_of_a_file_are_reported_at_once() {
        let text = LAB
            .replace("rate =", "rat =")
            .replace("from = \"client\"", "from = \"clent\"")
            .replace("repeats = 6", "repeats = 0")
            .replace("kind = \"tcp\"", "kind = \"tpc\"");
        let error = LabFile::parse("lab.toml", &text).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{error}");
        assert!(lines[0].starts_with("lab.toml:7: unknown key `rat`"), "{error}");
        assert!(lines[1].starts_with("lab.toml:17: unknown value `tpc`"), "{error}");
        // Mistakes of the grammar come first, because everything else builds on it.
        let text = LAB
            .replace("repeats = 6", "repeats = 0")
            .replace("loss = [\"0%\", \"1%\"]", "loss = [\"0%\", \"0%\"]");
        let error = LabFile::parse("lab.toml", &text).unwrap_err();
        let found: Vec<String> = error.each().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:#?}");
        for (one, place) in found.iter().zip(["lab.toml:4: ", "lab.toml:21: "]) {
            assert!(one.starts_with(place), "{found:#?}");
        }
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
