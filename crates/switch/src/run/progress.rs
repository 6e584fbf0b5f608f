//! The course of a change of the settings.

use std::collections::HashMap;
use std::net::SocketAddr;

use flow::port_number::PortNumber;

use super::error::SwitchError;

/// The listener of a change of the settings.
pub(super) struct Progress<'a> {
    /// Gets a line for each thing that a user should know.
    pub(super) note: &'a mut dyn FnMut(String),
    /// Gets each part that fails, and the change goes on. With `None` the first failure ends the
    /// change.
    pub(super) failures: Option<&'a mut HashMap<Part, String>>,
    /// The former numbers of ports, by their names: a port whose settings give no number gets its
    /// former number if that number is free.
    pub(super) numbers: &'a HashMap<String, PortNumber>,
}

/// A part of the settings that may fail alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Bridge(String),
    Port(String),
    /// An address at which a bridge listens.
    Remote(SocketAddr),
}

impl Progress<'_> {
    pub(super) fn note(&mut self, line: String) {
        (self.note)(line);
    }

    /// Keeps the failure of a part, if failures are kept.
    pub(super) fn check(
        &mut self,
        part: Part,
        outcome: Result<(), SwitchError>,
    ) -> Result<(), SwitchError> {
        match (outcome, &mut self.failures) {
            (Err(error), Some(failures)) => {
                failures.insert(part, error.to_string());
                Ok(())
            }
            (outcome, _) => outcome,
        }
    }
}
