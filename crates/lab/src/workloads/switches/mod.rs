//! Packet switches that a workload starts, loads with rules and reads counters from. All switches
//! accept OpenFlow and the control protocol of ovs-appctl, and differ only in their start.

mod control;
mod counts;
mod ovs_dpdk;
mod running;
mod weir_switch;

pub(super) use control::Control;
pub(super) use counts::Counts;
pub(super) use ovs_dpdk::Tuning;
pub(super) use running::{RunningSwitch, await_control, finish};

use crate::model::file::{Document, FileError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A kind of switch, which the name of the system chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    WeirSwitch,
    OvsDpdk(Tuning),
}

/// The frames that a switch receives.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Captures that are played in a loop, one for each receive queue. `whole` has the frames of
    /// all captures.
    Captures { whole: PathBuf, parts: Vec<PathBuf>, frames: usize },
    /// The switch's ends of two cables.
    Interfaces { input: String, output: String },
    /// TAP devices that the switch makes.
    Taps { input: String, output: String },
    /// Virtio devices of the switch. A generator drives the devices.
    VhostUser { input: PathBuf, output: PathBuf },
}

/// The rules, the frames and the CPUs of a switch.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) rules: &'a Path,
    pub(super) source: &'a Source,
    /// The CPUs of the switch's packet threads.
    pub(super) cpus: &'a [usize],
}

impl Product {
    pub(super) fn of(system: &str) -> Option<Self> {
        PRODUCTS.iter().find(|(name, _)| *name == system).map(|(_, product)| *product)
    }

    /// Whether the switch connects to the sockets of virtio devices, at which the generator
    /// listens.
    pub(super) fn connects(self) -> bool {
        matches!(self, Self::OvsDpdk(_))
    }

    /// Returns the maximum time until the switch caches `flows` flows.
    pub(super) fn longest_warm_up(self, flows: u32) -> Duration {
        match self {
            Self::WeirSwitch | Self::OvsDpdk(Tuning::Stock) => LONGEST_WARM_UP,
            // Twice a second, Open vSwitch raises its limit on cached flows by 1,000.
            Self::OvsDpdk(Tuning::ManyFlows) => {
                LONGEST_WARM_UP + Duration::from_millis(u64::from(flows) / 2)
            }
        }
    }

    /// Returns the programs that the switch needs.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::WeirSwitch => &[],
            Self::OvsDpdk(_) => ovs_dpdk::PROGRAMS,
        }
    }
}

/// Accepts only switches, and the systems in `others`.
pub(super) fn check_systems(document: &Document, others: &[&str]) -> Result<(), FileError> {
    for system in document.systems() {
        let name = system.name();
        if Product::of(name).is_some() || others.contains(&name) {
            continue;
        }
        let known: Vec<&str> =
            PRODUCTS.iter().map(|(name, _)| *name).chain(others.iter().copied()).collect();
        let hint = units::did_you_mean(name, known.iter().copied());
        let message = format!("no switch `{name}`{hint}; there are {}", known.join(", "));
        document.refuse(system.name.span(), message)?;
    }
    Ok(())
}

const PRODUCTS: [(&str, Product); 3] = [
    ("weir-switch", Product::WeirSwitch),
    ("ovs-dpdk", Product::OvsDpdk(Tuning::Stock)),
    ("ovs-dpdk-tuned", Product::OvsDpdk(Tuning::ManyFlows)),
];
const LONGEST_WARM_UP: Duration = Duration::from_secs(40);
/// The numbers of the ports that rules refer to.
const INPUT: u32 = 1;
const OUTPUT: u32 = 2;
const BRIDGE: &str = "br0";
