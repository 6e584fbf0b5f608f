//! Sends malformed and unusual frames into hosts, an emulated link, a switch, a tunnel or a program
//! of the user. The frames must not disturb other traffic.

mod kernel_log;
mod machine;
mod scene;
mod settings;
mod storm;

use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::Failure;
use crate::model::file::{Document, FileError, Key, Loopback, SystemKind};
use results::Axes;
use settings::{Case, Load};

#[derive(Debug)]
pub(crate) struct Robustness;

impl Workload for Robustness {
    fn kind(&self) -> &'static str {
        "robustness"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn loopback(&self) -> Loopback {
        Err("frames are sent over a link; this workload has no `loopback`")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        self.ends(document, axes)?;
        Ok(Box::new(Case::parse(document, axes)?))
    }

    fn keys(&self) -> &'static [Key] {
        &[TARGET, FROM_HOST, RATE, FRAMES, PROGRAM]
    }

    fn check(&self, document: &Document) -> Result<(), FileError> {
        for system in document.systems() {
            if Load::of(system.name()).is_none() {
                let known = Load::NAMES.map(|(name, _)| name);
                let hint = units::did_you_mean(system.name(), known);
                let known = known.join(", ");
                let message = format!(
                    "this workload has no load `{}`{hint}; its systems are {known}",
                    system.name()
                );
                document.refuse(system.name.span(), message)?;
            }
        }
        Ok(())
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("this workload runs only on a machine")
    }
}

impl CellWorkload for Case {
    fn measure(&self, step: &MachineStep<'_>, testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self, step, testbed)
    }
}

/// The key with the target: the part that receives the frames.
const TARGET: Key = Key::text("target");
/// The key with the host that sends the frames.
const FROM_HOST: Key = Key::text("attacker");
/// The key with the rate of the traffic beside the frames.
const RATE: Key = Key::text("rate");
/// The key with the number of frames a second.
const FRAMES: Key = Key::count("frames_s");
/// The key with a command that forwards between two interfaces, whose names are the command's last
/// arguments.
pub(crate) const PROGRAM: Key = Key::text("program");

const METHOD: &[(&str, &str)] = &[
    (
        "frames",
        "drawn from the seed: valid frames cut at each of their bytes, wrong length fields, a tag's \
         EtherType with nothing behind it, stacks of one to twelve VLAN tags, all combinations of TCP flags, \
         options and extension headers with wrong lengths, fragments that overlap or end beyond the largest \
         packet, wrong checksums, addresses that no sender has, rare EtherTypes and protocols, datagrams like \
         the beginning of QUIC packets, flipped bits and noise. `frames.KIND` counts the frames sent, and \
         `frames_refused` those that the sender's kernel does not send, such as frames without a MAC header. \
         `ordinary` sends valid datagrams of the same lengths at the same rate",
    ),
    (
        "targets",
        "host: an interface of the receiving host. link: both ends of a running `weir link`. switch: a port of a \
         running `weir switch`, whose rules read and change headers of each layer. tunnel: the receiving host, \
         whose UDP port is that of `weir tunnel`. program: both interfaces of a program that forwards between \
         them",
    ),
    (
        "verdict",
        "the traffic has a fixed rate, so that its goodput shows harm and not the cost of the frames. A step \
         fails if a program ended or panicked, if the switch stopped answering, or if the kernel logged a \
         warning or worse meanwhile",
    ),
];
