//! CAQM's programs in the kernel: the algorithm, the negotiation and the tags, with the maps they
//! share.

use super::interface::FoundInterface;
use super::{NAME, Network};
use crate::AccelError;
use crate::algorithm::{Registration, register};
use crate::cgroup;
use crate::kernel::{Interface, interface};
use crate::object::{Loaded, Spec, with_libbpf_log};
use crate::pins::{self, Pins};
use crate::rules::{self, Rule};
use libbpf_rs::{Link, MapCore, MapFlags};
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// Loaded programs; nothing is registered or attached yet.
#[derive(Debug)]
pub struct Programs {
    pub(crate) algorithm: Loaded,
    pub(crate) negotiation: Loaded,
    pub(crate) tags: Loaded,
    ops: &'static str,
}

/// CAQM under a separate name and without a pin. Dropping the value ends CAQM.
#[derive(Debug)]
pub struct Unpinned {
    programs: Programs,
    name: String,
    _links: Vec<OwnedFd>,
    _negotiation: Link,
    _registration: Registration,
}

impl Programs {
    pub fn load() -> Result<Self, AccelError> {
        Self::load_as(NAME, None)
    }

    pub(crate) fn load_with(pins: &Pins) -> Result<Self, AccelError> {
        Self::load_as(NAME, Some(pins))
    }

    fn load_as(name: &str, pins: Option<&Pins>) -> Result<Self, AccelError> {
        let kernel = interface()?;
        kernel.check_caqm()?;
        let ops = ops_for(kernel);
        let mut spec =
            Spec::open(ALGORITHM, include_bytes!(concat!(env!("OUT_DIR"), "/caqm.bpf.o")))?;
        spec.create_only(ops, &OPS)?;
        spec.rename(ops, NAME, name)?;
        let reuse = |spec: &mut Spec, names: &[&str]| match pins {
            None => Ok(()),
            Some(pins) => names.iter().try_for_each(|name| spec.reuse(name, &pins.pinned(name)?)),
        };
        reuse(&mut spec, SHARED)?;
        let algorithm = spec.load()?;
        let staging = |what, elf: &[u8], more: &[&str]| {
            let mut spec = Spec::open(what, elf)?;
            SHARED.iter().try_for_each(|name| spec.share(name, &algorithm))?;
            reuse(&mut spec, more)?;
            spec.load()
        };
        let negotiation = staging(
            NEGOTIATION,
            include_bytes!(concat!(env!("OUT_DIR"), "/caqm_negotiate.bpf.o")),
            &[pins::RULES, pins::ACTIVE],
        )?;
        let tags =
            staging(TAGS, include_bytes!(concat!(env!("OUT_DIR"), "/caqm_tags.bpf.o")), &[])?;
        Ok(Self { algorithm, negotiation, tags, ops })
    }

    pub(crate) fn pin_maps(&mut self, pins: &Pins) -> Result<(), AccelError> {
        let pin = |loaded: &mut Loaded, name: &'static str| {
            let mut map = loaded.map_mut(name)?;
            with_libbpf_log(name, || map.pin(pins.at(name)))
        };
        SHARED.iter().try_for_each(|name| pin(&mut self.algorithm, name))?;
        [pins::RULES, pins::ACTIVE].iter().try_for_each(|name| pin(&mut self.negotiation, name))
    }

    pub(crate) fn register(&mut self) -> Result<Registration, AccelError> {
        register(&mut self.algorithm, self.ops, ALGORITHM, NAME)
    }

    pub(crate) fn replace(&mut self, registered: &Link) -> Result<(), AccelError> {
        crate::algorithm::replace(&mut self.algorithm, self.ops, ALGORITHM, NAME, registered)
    }

    pub(crate) fn attach(&self, found: &FoundInterface) -> Result<[OwnedFd; 2], AccelError> {
        let (inward, outward) = (self.tags.program(UNTAG)?, self.tags.program(TAG)?);
        let links = found.attach(inward.as_fd(), outward.as_fd())?;
        let interfaces = self.algorithm.map(pins::INTERFACES)?;
        with_libbpf_log(TAGS, || {
            interfaces.update(&found.key(), &1_u32.to_ne_bytes(), MapFlags::ANY)
        })?;
        Ok(links)
    }

    /// Attaches the program that inspects each connection when the connection begins.
    pub(crate) fn begin(&self) -> Result<Link, AccelError> {
        let root = cgroup::mount()?;
        let root =
            File::open(&root).map_err(|source| AccelError::file("opening", &root, source))?;
        let program = self.negotiation.program(NEGOTIATE)?;
        with_libbpf_log(NEGOTIATION, || program.attach_cgroup(root.as_raw_fd()))
    }
}

impl Unpinned {
    /// Starts CAQM for all connections through the interfaces. Each name of an interface begins
    /// with its namespace.
    pub fn start(
        name: &str,
        network: &Network,
        interfaces: &[super::InterfaceName],
    ) -> Result<Self, AccelError> {
        network.check()?;
        let found =
            interfaces.iter().map(super::InterfaceName::find).collect::<Result<Vec<_>, _>>()?;
        let mut programs = Programs::load_as(name, None)?;
        let first = 0_u32.to_ne_bytes();
        let settings = programs.algorithm.map(pins::NETWORK)?;
        with_libbpf_log(ALGORITHM, || {
            settings.update(&first, &network.to_bytes(name), MapFlags::ANY)
        })?;
        let all = Rule { tunables: Some(rules::Tunables::default()), ..Rule::default() };
        let (rules, active) =
            (programs.negotiation.map(pins::RULES)?, programs.negotiation.map(pins::ACTIVE)?);
        with_libbpf_log(NEGOTIATION, || rules.update(&first, &all.to_bytes(), MapFlags::ANY))?;
        let mut one = [0; 8];
        one[4..].copy_from_slice(&1_u32.to_ne_bytes());
        with_libbpf_log(NEGOTIATION, || active.update(&first, &one, MapFlags::ANY))?;
        let registration = programs.register()?;
        let mut links = Vec::new();
        for found in &found {
            links.extend(programs.attach(found)?);
        }
        let negotiation = programs.begin()?;
        let name = name.to_owned();
        Ok(Self {
            programs,
            name,
            _links: links,
            _negotiation: negotiation,
            _registration: registration,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn totals(&self) -> Result<super::status::Totals, AccelError> {
        super::status::Totals::read(&self.programs.algorithm.map(pins::TOTALS)?)
    }

    /// Reads the state of each connection, by socket cookie.
    pub fn views(&self) -> Result<std::collections::HashMap<u64, super::view::View>, AccelError> {
        super::view::read_of(|spec| spec.share(pins::RECORDS, &self.programs.algorithm))
    }
}

fn ops_for(interface: Interface) -> &'static str {
    match (interface.four_arguments, interface.tx_start) {
        (true, false) => OPS[0],
        (true, true) => OPS[2],
        (false, _) => OPS[1],
    }
}

/// Names of the struct_ops variants in bpf/caqm.bpf.c, for different kernels.
const OPS: [&str; 3] = ["ops", "ops_before_6_10", "ops_since_7_1"];
pub(crate) const SHARED: &[&str] = &[
    pins::RECORDS,
    pins::NETWORK,
    pins::INTERFACES,
    pins::PENDING,
    pins::TOTALS,
    pins::ASKED,
    pins::OFFERED,
];
const ALGORITHM: &str = "the congestion control caqm";
pub(crate) const NEGOTIATION: &str = "the program that negotiates CAQM";
pub(crate) const TAGS: &str = "the programs that put tags on and take them off";
/// Names of the programs in bpf/caqm_negotiate.bpf.c and bpf/caqm_tags.bpf.c.
pub(crate) const NEGOTIATE: &str = "negotiate";
pub(crate) const TAG: &str = "tag";
pub(crate) const UNTAG: &str = "untag";
