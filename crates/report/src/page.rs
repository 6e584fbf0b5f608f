//! A page of any verb: an answer, charts over time, tables and lists.

use crate::ReportError;
use crate::{html, run};
use results::Series;
use std::path::Path;

/// The page's content. Texts from other machines are shown literally.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The command: `weir doctor`.
    pub verb: String,
    pub title: String,
    pub answer: Vec<String>,
    /// Short facts below the answer.
    pub facts: Vec<String>,
    pub series: Vec<Series>,
    pub sections: Vec<Section>,
    /// The file beside the page that has every number.
    pub data: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    pub heading: String,
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub items: Vec<String>,
    /// Lines of commands.
    pub commands: Vec<String>,
}

impl Page {
    pub fn html(&self) -> String {
        html::render_page(self)
    }

    /// Writes the page, with the permissions of any new file.
    pub fn write(&self, file: &Path) -> Result<(), ReportError> {
        run::replace(file, self.html().as_bytes())
    }
}
