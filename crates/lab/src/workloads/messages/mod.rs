//! New connections, and small messages in both directions over open connections.

mod machine;
mod settings;

use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::Failure;
use crate::model::file::{Document, FileError, Key, SystemKind};
use results::Axes;
pub(crate) use settings::MessageSettings;
pub(super) use settings::message_size;

#[derive(Debug)]
pub(crate) struct Messages;

impl Messages {
    pub(super) fn settings(
        &self,
        document: &Document,
        axes: &Axes,
    ) -> Result<MessageSettings, FileError> {
        let streams = self.ends(document, axes)?.streams;
        MessageSettings::parse(document, axes, streams)
    }
}

impl Workload for Messages {
    fn kind(&self) -> &'static str {
        "messages"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp, SystemKind::External]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(self.settings(document, axes)?))
    }

    fn keys(&self) -> &'static [Key] {
        &[SIZE, MESSAGES]
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }
}

impl CellWorkload for MessageSettings {
    fn between_machines(&self) -> Result<(), &'static str> {
        Err("the lab itself exchanges the messages; use `benchmark` with TCP_CRR and TCP_RR")
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(*self, step, testbed)
    }
}

/// The key with the size of each message.
const SIZE: Key = Key::text("size");
/// The key with the number of messages for each connection.
const MESSAGES: Key = Key::count("messages");

const METHOD: &[(&str, &str)] = &[
    (
        "first byte",
        "from before a new connection is opened to the first byte of the answer to its first message. New \
         connections come one after the other, for the first third of the time",
    ),
    (
        "first message",
        "the same from when the first message is sent: without the opening of the connection, which in \
         a tunnel only reaches its near end",
    ),
    (
        "messages",
        "from a message to the last byte of its answer, which is as long, over an open connection. The \
         next is sent once the previous one is answered, for the other two thirds of the time",
    ),
    (
        "warm",
        "before the measurement one connection is opened and some messages are sent over it, so that a \
         tunnel's ends are connected",
    ),
];
