//! One measurement of `perf`: `report.html`, `report.md` and `results.json` of what a client or server
//! told while it worked.

mod charts;
mod markdown;
mod method;
mod tables;
mod words;

pub(crate) use charts::series;
pub(crate) use method::{environment, how, meaning};
pub(crate) use tables::{Table, cpu, latency, limits, outcome};
pub(crate) use words::{answer, title};

use std::path::{Path, PathBuf};

use perf::event::{Audience, Ended, Event, Interval, Latency, Started};
use perf::output::Document;
use probe::machine::Machine;

use crate::{ReportError, html, run};

/// A test that came to its end, and where it was made.
#[derive(Debug)]
pub struct Measurement {
    pub started: Started,
    pub idle: Option<Latency>,
    pub intervals: Vec<Interval>,
    pub ended: Ended,
    /// What repeats it.
    pub command: String,
    /// `None` where it could not be read.
    pub machine: Option<Machine>,
}

/// Hears a test and keeps what a report needs. It stays small however long the test is: intervals are
/// kept up to a number, and the series of the outcome are bounded by themselves.
#[derive(Debug, Default)]
pub struct Recorder {
    document: Document,
    started: Option<Started>,
    idle: Option<Latency>,
    intervals: Vec<Interval>,
    ended: Option<Ended>,
}

/// Where a measurement's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasurementFiles {
    pub results: PathBuf,
    pub markdown: PathBuf,
    pub html: PathBuf,
}

impl Recorder {
    /// Writes the three files, the numbers first. `None` if no test came to its end.
    pub fn write(
        self,
        directory: &Path,
        command: String,
    ) -> Result<Option<MeasurementFiles>, ReportError> {
        let (Some(started), Some(ended)) = (self.started, self.ended) else {
            return Ok(None);
        };
        let measurement = Measurement {
            started,
            idle: self.idle,
            intervals: self.intervals,
            ended,
            command,
            machine: Machine::read().ok(),
        };
        measurement.write(directory, &self.document.to_text()).map(Some)
    }
}

impl Audience for Recorder {
    fn event(&mut self, event: &Event<'_>) {
        self.document.event(event);
        match event {
            Event::Started(started) => {
                self.started = Some((*started).clone());
                (self.idle, self.ended) = (None, None);
                self.intervals.clear();
            }
            Event::Idle(idle) => self.idle = Some((*idle).clone()),
            Event::Interval(interval) if self.intervals.len() < MOST_INTERVALS => {
                self.intervals.push((*interval).clone());
            }
            Event::Ended(ended) => self.ended = Some((*ended).clone()),
            Event::Interval(_) | Event::Listening(_) | Event::Failed(_) => {}
        }
    }
}

impl Measurement {
    fn write(&self, directory: &Path, results: &str) -> Result<MeasurementFiles, ReportError> {
        let files = MeasurementFiles {
            results: directory.join("results.json"),
            markdown: directory.join("report.md"),
            html: directory.join("report.html"),
        };
        std::fs::create_dir_all(directory)
            .map_err(|source| ReportError::Write { file: directory.to_owned(), source })?;
        run::replace(&files.results, results.as_bytes())?;
        run::replace(&files.markdown, self.markdown().as_bytes())?;
        run::replace(&files.html, self.html().as_bytes())?;
        Ok(files)
    }

    pub fn html(&self) -> String {
        html::render_measurement(self)
    }

    pub fn markdown(&self) -> String {
        markdown::render(self)
    }
}

/// An hour of intervals of a second.
const MOST_INTERVALS: usize = 3600;
