use crate::control::line::Lines;
use crate::control::{Directory, Reply, Request};
use crate::{EmuError, LinkReport, Settings};
use std::io;
use std::time::Duration;

/// A conversation with a running link.
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
            Reply::Link(report) => Ok(*report),
            _ => Err(self.failed(io::Error::other("it answered something else"))),
        }
    }

    pub fn set(&mut self, both: Settings, ab: Settings, ba: Settings) -> Result<(), EmuError> {
        let request = Request::Set { both: Box::new(both), ab: Box::new(ab), ba: Box::new(ba) };
        self.ask(&request).map(|_| ())
    }

    /// Returns when the link has ended.
    pub fn down(mut self) -> Result<(), EmuError> {
        self.ask(&Request::Down)?;
        // The server keeps the connection until all is taken down; then it closes.
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
            Reply::Error(problem) => Err(EmuError::Refused(problem)),
            reply => Ok(reply),
        }
    }

    fn failed(&self, source: io::Error) -> EmuError {
        EmuError::Control { doing: format!("speaking to link {}", self.name), source }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
