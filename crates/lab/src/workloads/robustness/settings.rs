//! The target and the load of one cell.

use super::{FRAMES, FROM_HOST, PROGRAM, RATE, TARGET};
use crate::model::file::{Document, FileError};
use results::Axes;
use units::Rate;

/// The settings of a cell of `robustness`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) target: Target,
    pub(super) attacker: String,
    /// The rate of the traffic beside the frames.
    pub(super) rate: Rate,
    pub(super) frames_s: u32,
}

/// The target: the part that receives the frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Host,
    Link,
    Switch,
    Tunnel,
    /// A program of the user, which this command line starts.
    Program(String),
}

/// The kinds of frames that a system of the lab sends beside the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Quiet,
    Ordinary,
    Malformed,
}

impl Case {
    pub(super) fn parse(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        let program = document.workload_key(axes, PROGRAM, |text| Ok(text.to_owned()))?;
        let target = document.workload_key(axes, TARGET, |text| target(text, program.as_ref()))?;
        let attacker = document.workload_key(axes, FROM_HOST, |text| {
            let known = document.hosts.iter().any(|host| host.get_ref() == text);
            match known {
                true => Ok(text.to_owned()),
                false => Err(format!("no host `{text}`")),
            }
        })?;
        let rate = document.workload_key(axes, RATE, rate)?.unwrap_or(USUAL_RATE);
        let frames_s = document.workload_count(axes, FRAMES, 1..=MOST_FRAMES)?;
        let place = || document.place_of_workload(&[TARGET]);
        let missing = |what: &str| Err(document.source.error(place(), what.to_owned()));
        let Some(target) = target else {
            return missing("`target` is missing here: host, link, switch, tunnel or program");
        };
        let Some(attacker) = attacker else {
            return missing("`attacker` is missing here: the host that sends the frames");
        };
        Ok(Self { target, attacker, rate, frames_s: frames_s.unwrap_or(USUAL_FRAMES) })
    }
}

impl Load {
    pub(super) const NAMES: [(&str, Self); 3] =
        [("quiet", Self::Quiet), ("ordinary", Self::Ordinary), ("malformed", Self::Malformed)];

    pub(super) fn of(system: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == system).map(|(_, load)| *load)
    }
}

fn target(text: &str, program: Option<&String>) -> Result<Target, String> {
    match (text, program) {
        ("host", _) => Ok(Target::Host),
        ("link", _) => Ok(Target::Link),
        ("switch", _) => Ok(Target::Switch),
        ("tunnel", _) => Ok(Target::Tunnel),
        ("program", Some(line)) => Ok(Target::Program(line.clone())),
        ("program", None) => Err("the target `program` needs the key `program`".to_owned()),
        (other, _) => {
            let hint = units::did_you_mean(other, TARGETS);
            Err(format!("no target `{other}`{hint}; there are {}", TARGETS.join(", ")))
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    match rate.bits_per_second() {
        0 => Err("the traffic needs a rate above 0".to_owned()),
        _ => Ok(rate),
    }
}

const TARGETS: [&str; 5] = ["host", "link", "switch", "tunnel", "program"];
const USUAL_RATE: Rate = Rate::from_mbit(200);
const USUAL_FRAMES: u32 = 20_000;
const MOST_FRAMES: u32 = 1_000_000;
