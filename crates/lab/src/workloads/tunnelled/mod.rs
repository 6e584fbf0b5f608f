//! A service behind a pair of programs: new connections, messages beside bulk transfers, memory, a
//! network that drops UDP, and a server that is killed.

mod event;
mod machine;
mod settings;

use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, FileError, Key, SystemKind, SystemSpec};
use crate::model::{Failure, Plan};
use results::Axes;
use settings::{Event, TunnelledSettings};
use units::Span;

#[derive(Debug)]
pub(crate) struct Tunnelled;

impl Tunnelled {
    fn settings(&self, document: &Document, axes: &Axes) -> Result<TunnelledSettings, FileError> {
        let busy = self.ends(document, axes)?.streams;
        TunnelledSettings::parse(document, axes, busy)
    }
}

impl Workload for Tunnelled {
    fn kind(&self) -> &'static str {
        "tunnelled"
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
        &[IDLE, SIZE, EVENT, PATIENCE]
    }

    fn lacking(&self, document: &Document, axes: &Axes) -> Vec<String> {
        let blocked = |settings: &TunnelledSettings| settings.event == Event::UdpBlocked;
        let needs_nft = self.settings(document, axes).as_ref().is_ok_and(blocked);
        match needs_nft && event::nft().is_none() {
            true => vec!["`nft` is not installed (apt-get install nftables)".to_owned()],
            false => Vec::new(),
        }
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }

    fn machine_time(
        &self,
        document: &Document,
        _system: &SystemSpec,
        axes: &Axes,
        plan: &Plan,
    ) -> Span {
        let settings = self.settings(document, axes);
        let of_event = |event| match event {
            Event::None => Span::ZERO,
            Event::UdpBlocked | Event::ServerKilled => AROUND_AN_EVENT,
        };
        plan.duration + settings.map_or(Span::ZERO, |settings| of_event(settings.event)) + STARTING
    }
}

impl CellWorkload for TunnelledSettings {
    fn between_machines(&self) -> Result<(), &'static str> {
        Err("the lab itself opens the connections; use `command` with a load generator")
    }

    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(*self, step, testbed)
    }
}

/// The key with the number of idle connections.
const IDLE: Key = Key::count("idle");
/// The key with the size of each message.
const SIZE: Key = Key::text("size");
/// The key with the event that disturbs the programs.
const EVENT: Key = Key::text("event");
/// The key with the longest wait for the first answer through the programs.
const PATIENCE: Key = Key::text("patience");

/// Estimated time until the programs of a pair are connected.
const STARTING: Span = Span::from_millis(500);
/// Estimated mean of the wait for an answer: most programs need less than a second, and other
/// programs use up the whole patience.
const AROUND_AN_EVENT: Span = Span::from_secs(3);

const METHOD: &[(&str, &str)] = &[
    (
        "first byte",
        "from before a new connection is opened to the first byte of the answer to its first byte. New \
         connections come one after the other, for the first quarter of the time",
    ),
    (
        "goodput, messages and CPU time",
        "over the busy connections, for the rest of the time and with the idle connections open. \
         Meanwhile one more connection exchanges small messages; the next is sent once the previous one \
         is answered. CPU time is that of the programs; work in the kernel belongs to no program",
    ),
    (
        "memory",
        "RAM of the program at each end. `each` is its growth while the idle connections open, over their \
         number; `peak` is its maximum at the end, with the busy connections",
    ),
    (
        "UDP blocked",
        "both hosts drop incoming UDP before the programs start. Availability is 100 % if a connection is \
         answered within the patience, and 0 % otherwise; the other figures are then missing. The cell \
         has failed if the client's program ends or does not listen",
    ),
    (
        "server killed",
        "the program in the server's host is killed (SIGKILL) and started again with the same arguments. \
         `seconds` is the time from then until a new connection is answered. The client's side tries one \
         connection after another, each for a second. Availability is 0 % if the patience is over first",
    ),
];
