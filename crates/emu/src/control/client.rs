use crate::control::line::Lines;
use crate::control::{Directory, Reply, Request};
use crate::{EmuError, LinkReport, Settings};
use std::io;
use std::time::Duration;
use units::foreign;

#[derive(Debug)]
pub struct Client {
    name: String,
    lines: Lines,
}

impl Client {
    pub fn connect(directory: &Directory, name: &str) -> Result<Self, EmuError> {
        let stream = directory.connect(name)?;
        Ok(Self { name: name.to_owned(), lines: Lines::new(stream, PATIENCE) })
    }

    pub fn show(&mut self) -> Result<LinkReport, EmuError> {
        match self.ask(&Request::Show)? {
            Reply::Link(report) => Ok(shown(*report)),
            _ => Err(self.failed(io::Error::other("it answered something else"))),
        }
    }

    pub fn set(&mut self, both: Settings, ab: Settings, ba: Settings) -> Result<(), EmuError> {
        let request = Request::Set { both: Box::new(both), ab: Box::new(ab), ba: Box::new(ba) };
        self.ask(&request).map(|_| ())
    }

    /// Asks the server to end the link, and waits until the link has ended.
    pub fn down(mut self) -> Result<(), EmuError> {
        self.ask(&Request::Down)?;
        // The server closes the connection once the link has removed all its objects.
        match self.lines.read() {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, EmuError> {
        let text = serde_json::to_string(request).map_err(|e| self.failed(e.into()))?;
        self.lines.write(text).map_err(|e| self.failed(e))?;
        let line = self.lines.read().map_err(|e| self.failed(e))?.ok_or(EmuError::Ended)?;
        match serde_json::from_str(&line).map_err(|e| self.failed(e.into()))? {
            Reply::Error(problem) => {
                let problem = foreign(problem).up_to(LONGEST_PROBLEM);
                Err(EmuError::Refused(problem.to_string()))
            }
            reply => Ok(reply),
        }
    }

    fn failed(&self, source: io::Error) -> EmuError {
        EmuError::Control { doing: format!("speaking to link {}", self.name), source }
    }
}

/// Escapes the strings of a report from another process, so that a terminal can show them.
fn shown(mut report: LinkReport) -> LinkReport {
    let LinkReport { name, a, b, problems, notes, warnings, .. } = &mut report;
    for text in [name, a, b].into_iter().chain(problems).chain(notes).chain(warnings) {
        *text = foreign(&*text).to_string();
    }
    report
}

const LONGEST_PROBLEM: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
