//! The files that a command writes for continuous integration.

use crate::destination;
use crate::exit::Unusable;
use crate::output;
use clap::Args;
use lab::ci::CiReport;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct CiFiles {
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Add a summary in Markdown to a file [default: the file of $GITHUB_STEP_SUMMARY, if set]
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

impl CiFiles {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let named = [(&self.junit, JUNIT), (&self.summary, SUMMARY)];
        let named = named.into_iter().filter_map(|(file, flag)| Some((file.as_deref()?, flag)));
        for (file, flag) in named {
            destination::check_file(file, flag)?;
        }
        Ok(())
    }

    pub(super) fn write(&self, report: &CiReport) -> anyhow::Result<()> {
        if let Some(file) = &self.junit {
            let written = report.junit().and_then(|xml| destination::write(file, xml));
            written.map_err(|cause| Unusable::path("write", file, &cause, JUNIT))?;
        }
        let section = format!("{}\n", report.summary());
        if let Some(file) = &self.summary {
            let written = destination::append(file, section);
            written.map_err(|cause| Unusable::path("write", file, &cause, SUMMARY))?;
        } else if let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|f| !f.is_empty())
        {
            // The user did not name this file: a failed write does not fail the measurement.
            if let Err(cause) = destination::append(Path::new(&file), section) {
                output::note(format_args!(
                    "note: the summary was not added to $GITHUB_STEP_SUMMARY ({}): {cause}",
                    Path::new(&file).display()
                ));
            }
        }
        Ok(())
    }
}

const JUNIT: &str = "--junit";
const SUMMARY: &str = "--summary";
