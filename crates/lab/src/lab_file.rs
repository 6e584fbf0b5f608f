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
    let Some(mut document) = document else { return found };
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
