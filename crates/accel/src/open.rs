//! Connections that are already open: an iterator over the kernel's sockets gives open connections
//! the algorithm, or their earlier algorithm (bpf/open.bpf.c).

use crate::AccelError;
use crate::algorithm::NAME;
use crate::cgroup;
use crate::iterator::read_iterator;
use crate::namespaces::run_in_each;
use crate::object::{Loaded, Spec, with_libbpf_log};
use crate::pins::{self, Pins};
use crate::system::read_sysctl;
use libbpf_rs::{MapCore, MapFlags};
use std::fs;
use std::ops::Add;
use std::os::unix::fs::MetadataExt as _;

/// The connections that a change applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Connections that begin from now on; open connections stay unchanged.
    New,
    /// New connections and open connections. Open connections are treated as if they began now.
    OpenToo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchedConnections {
    pub given: u64,
    /// Connections that got back their earlier algorithm, or their namespace's default if the
    /// earlier algorithm is unknown.
    pub put_back: u64,
    /// Connections whose algorithm the kernel refused to change.
    pub refused: u64,
    /// Connections that kept their algorithm, because their program named the algorithm.
    pub kept: u64,
}

/// The loaded programs, ready to run.
#[derive(Debug)]
pub(crate) struct Open {
    loaded: Loaded,
    scope: u64,
}

impl Open {
    /// Loads the programs with the policy in force.
    pub(crate) fn load(pins: &Pins) -> Result<Self, AccelError> {
        Self::load_with(Some(pins))
    }

    /// Loads the programs only to put back earlier algorithms, whatever version of Weir is
    /// installed.
    pub(crate) fn load_to_put_back(pins: &Pins) -> Result<Self, AccelError> {
        Self::load_with(Some(pins)).or_else(|_| Self::load_with(None))
    }

    fn load_with(pins: Option<&Pins>) -> Result<Self, AccelError> {
        let mount = cgroup::mount()?;
        let about =
            fs::metadata(&mount).map_err(|source| AccelError::file("reading", &mount, source))?;
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/open.bpf.o"));
        let mut spec = Spec::open(WHAT, elf)?;
        for name in [pins::FLOWS, pins::RULES, pins::ACTIVE] {
            if let Some(pins) = pins {
                spec.reuse(name, &pins.pinned(name)?)?;
            }
        }
        Ok(Self { loaded: spec.load()?, scope: about.ino() })
    }

    /// Treats open connections as the policy treats new connections.
    pub(crate) fn adopt(&self) -> Result<SwitchedConnections, AccelError> {
        self.run("adopt")
    }

    /// Returns all connections to their earlier algorithm.
    pub(crate) fn put_back(&self) -> Result<SwitchedConnections, AccelError> {
        self.run("abandon")
    }

    fn run(&self, program: &str) -> Result<SwitchedConnections, AccelError> {
        let each = run_in_each(|_| self.run_here(program))?;
        Ok(each.into_iter().fold(SwitchedConnections::default(), Add::add))
    }

    /// Runs the program in the calling thread's namespace.
    fn run_here(&self, program: &str) -> Result<SwitchedConnections, AccelError> {
        let first = 0_u32.to_ne_bytes();
        let (order, switched) = (self.loaded.map("order")?, self.loaded.map("turned")?);
        with_libbpf_log(WHAT, || order.update(&first, &self.order(), MapFlags::ANY))?;
        with_libbpf_log(WHAT, || switched.update(&first, &[0; SWITCHED_BYTES], MapFlags::ANY))?;
        let program = self.loaded.program(program)?;
        let link = with_libbpf_log(WHAT, || program.attach())?;
        read_iterator(WHAT, &link)?;
        let bytes = with_libbpf_log(WHAT, || switched.lookup(&first, MapFlags::ANY))?;
        bytes
            .and_then(|bytes| SwitchedConnections::from_bytes(&bytes))
            .ok_or(AccelError::OtherVersion)
    }

    /// Encodes `struct order` of bpf/open.h.
    fn order(&self) -> [u8; ORDER_BYTES] {
        let usual = read_sysctl("net.ipv4.tcp_congestion_control");
        let usual = usual.filter(|name| name != NAME && name.len() < 16);
        let usual = usual.unwrap_or_else(|| EVERYWHERE.to_owned());
        let mut bytes = [0; ORDER_BYTES];
        bytes[..8].copy_from_slice(&self.scope.to_ne_bytes());
        bytes[8..8 + usual.len()].copy_from_slice(usual.as_bytes());
        bytes
    }
}

impl SwitchedConnections {
    /// Parses `struct turned` of bpf/open.h.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            given: number(0)?,
            put_back: number(8)?,
            refused: number(16)?,
            kept: number(24)?,
        })
    }
}

impl Add for SwitchedConnections {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            given: self.given + other.given,
            put_back: self.put_back + other.put_back,
            refused: self.refused + other.refused,
            kept: self.kept + other.kept,
        }
    }
}

const WHAT: &str = "the program for open connections";
/// The algorithm that every kernel has.
const EVERYWHERE: &str = "reno";
const ORDER_BYTES: usize = 24;
const SWITCHED_BYTES: usize = 32;
