//! `--report DIR`: what is told is also kept, and becomes a page.

use crate::output;
use perf::event::{Audience, Event};
use report::measurement::Recorder;
use std::path::{Path, PathBuf};

/// Hears a test beside whoever shows it, and writes the report when it is over:
///
/// ```text
/// let mut report = report_audience(directory);
/// run_for(&options, &stop, &mut report.beside(&mut text))?;
/// report.write()?;
/// ```
pub(crate) fn report_audience(directory: &Path) -> ReportAudience {
    ReportAudience { directory: directory.to_owned(), recorder: Recorder::default() }
}

#[derive(Debug)]
pub(crate) struct ReportAudience {
    directory: PathBuf,
    recorder: Recorder,
}

/// Two audiences of one test.
pub(crate) struct Both<'a> {
    shown: &'a mut dyn Audience,
    kept: &'a mut dyn Audience,
}

impl ReportAudience {
    pub(crate) fn beside<'a>(&'a mut self, shown: &'a mut dyn Audience) -> Both<'a> {
        Both { shown, kept: &mut self.recorder }
    }

    /// Writes the files and says where they are. A test that came to no end leaves none.
    pub(crate) fn write(self) -> anyhow::Result<()> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("weir {}", words.join(" "));
        if let Some(files) = self.recorder.write(&self.directory, command)? {
            output::note(format!("report: {}", files.html.display()));
        }
        Ok(())
    }
}

impl Audience for Both<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.shown.event(event);
        self.kept.event(event);
    }
}
