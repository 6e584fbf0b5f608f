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
    /// The heading of the page.
    pub title: String,
    /// The answer to the user's question; each text is a paragraph.
    pub answer: Vec<String>,
    /// Short facts below the answer.
    pub facts: Vec<String>,
    /// Figures over time, each drawn as a chart.
    pub series: Vec<Series>,
    /// The parts of the page. The first part is above the charts, the other parts are below.
    pub sections: Vec<Section>,
    /// The file beside the page that has every number.
    pub data: String,
}

/// A part of a page, which shows only its contents that are not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// The heading of the section.
    pub heading: String,
    /// The heads of the table's columns.
    pub heads: Vec<String>,
    /// The table's rows, each with one text for each head.
    pub rows: Vec<Vec<String>>,
    /// The items of a list.
    pub items: Vec<String>,
    /// Lines of commands.
    pub commands: Vec<String>,
}

impl Page {
    /// Renders the page as one self-contained HTML file.
    pub fn html(&self) -> String {
        html::render_page(self)
    }

    /// Writes the page, with the permissions of any new file.
    pub fn write(&self, file: &Path) -> Result<(), ReportError> {
        run::replace(file, self.html().as_bytes())
    }
}
