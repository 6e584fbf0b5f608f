//! One measurement of `perf`: `report.html`, `report.md` and `results.json`, from the events of a
//! client or a server.

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

use crate::profile::Profile;
use crate::{ReportError, html, run};

/// A completed test, and the machine it ran on.
#[derive(Debug)]
pub struct Measurement {
    /// The two ends and the test that they agreed on.
    pub started: Started,
    /// Round trips before the load; `None` if the test did not measure round trips.
    pub idle: Option<Latency>,
    /// Figures of the first 3600 intervals, in the order of time.
    pub intervals: Vec<Interval>,
    /// The result of the test.
    pub ended: Ended,
    /// The command line that repeats the test.
    pub command: String,
    /// The machine; `None` for a machine that could not be read.
    pub machine: Option<Machine>,
    /// The stacks of the machine, if the user asked for a profile.
    pub profile: Option<Profile>,
}

/// Receives a test's events and keeps the data for the report. The size of the recorder stays
/// bounded however long the test is: the recorder keeps a limited number of intervals, and the
/// outcome's series are bounded.
#[derive(Debug, Default)]
pub struct Recorder {
    document: Document,
    started: Option<Started>,
    idle: Option<Latency>,
    intervals: Vec<Interval>,
    ended: Option<Ended>,
}

/// Paths of a measurement's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasurementFiles {
    /// `results.json`: the results of the test.
    pub results: PathBuf,
    /// `report.md`: the report as text.
    pub markdown: PathBuf,
    /// `report.html`: the report as a page.
    pub html: PathBuf,
}

impl Recorder {
    /// Writes the three files, results.json first, and the profile's files. `None` if no test
    /// completed.
    pub fn write(
        self,
        directory: &Path,
        command: String,
        profile: Option<Profile>,
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
            profile,
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
        self.profile.as_ref().map_or(Ok(()), |profile| profile.write(directory))?;
        Ok(files)
    }

    /// Renders the text of `report.html`.
    pub fn html(&self) -> String {
        html::render_measurement(self)
    }

    /// Renders the text of `report.md`.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }
}

/// One hour of one-second intervals.
const MOST_INTERVALS: usize = 3600;
