//! Progress reports while the settings of a switch change.

use std::collections::HashMap;

use flow::port_number::PortNumber;

use super::error::SwitchError;
use super::remote::Remote;

/// Receives the reports of a change of the settings.
pub(super) struct Progress<'a> {
    /// Called with each line that the user should know.
    pub(super) note: &'a mut dyn FnMut(String),
    /// The list of failed parts; the change continues after a failure. With `None`, the first
    /// failure ends the change.
    pub(super) failures: Option<&'a mut HashMap<Part, String>>,
    /// The former numbers of ports, by name. A port whose settings give no number keeps its former
    /// number if that number is free.
    pub(super) numbers: &'a HashMap<String, PortNumber>,
}

/// A part of the settings that may fail while the other parts work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Bridge(String),
    Port(String),
    /// An address at which a bridge listens.
    Remote(Remote),
    /// The files for TLS.
    Tls,
}

impl Progress<'_> {
    pub(super) fn note(&mut self, line: String) {
        (self.note)(line);
    }

    /// Stores the failure of a part. Returns the failure as an error if failures are not collected.
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
