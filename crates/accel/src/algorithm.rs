//! `tcpa` among the kernel's congestion controls.
#![allow(unsafe_code)]

use crate::kernel::{Interface, interface};
use crate::object::{Loaded, Spec, with_libbpf_log};
use crate::pins::{self, Pins};
use crate::system::read_sysctl;
use crate::{AccelError, Tunables};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags};
use std::os::fd::{AsFd, AsRawFd};

/// The loaded algorithm. Sockets cannot choose the algorithm before [`Algorithm::register`].
#[derive(Debug)]
pub struct Algorithm {
    loaded: Loaded,
    ops: &'static str,
    linked: bool,
}

/// A registration of the algorithm. Dropping the value unregisters the algorithm.
#[derive(Debug)]
pub struct Registration {
    link: Link,
    linked: bool,
}

impl Algorithm {
    pub fn load() -> Result<Self, AccelError> {
        Self::load_for(interface()?)
    }

    /// Loads the struct_ops variant for `interface`. The running kernel may be newer than
    /// `interface`.
    pub fn load_for(interface: Interface) -> Result<Self, AccelError> {
        Self::load_form(interface, ops_for(interface), NAME)
    }

    /// Loads the algorithm under another name, independent of an algorithm that is registered as
    /// `tcpa`. The loaded algorithm begins with these tunables and no memory of paths, and ends
    /// with this process at the latest.
    pub fn load_unpinned(name: &str, tunables: &Tunables) -> Result<Self, AccelError> {
        tunables.check()?;
        let interface = interface()?;
        if !interface.links {
            return Err(AccelError::NotSupported {
                feature: "algorithms that leave with their link (links for struct_ops)",
                doing: "an algorithm under another name",
                advice: "it came with Linux 6.4",
            });
        }
        let loaded = Self::load_form(interface, ops_for(interface), name)?;
        let settings = loaded.loaded.map(pins::SETTINGS)?;
        let first = 0_u32.to_ne_bytes();
        with_libbpf_log(WHAT, || settings.update(&first, &tunables.to_bytes(), MapFlags::ANY))?;
        Ok(loaded)
    }

    fn load_form(interface: Interface, ops: &'static str, name: &str) -> Result<Self, AccelError> {
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/tcpa.bpf.o"));
        let mut spec = Spec::open(WHAT, elf)?;
        spec.create_only(ops, &OPS)?;
        spec.rename(ops, NAME, name)?;
        Ok(Self { loaded: spec.load()?, ops, linked: interface.links })
    }

    /// Lets sockets choose the algorithm until the registration is dropped. Sockets that have
    /// chosen the algorithm before keep the algorithm.
    pub fn register(&mut self) -> Result<Registration, AccelError> {
        let registration = register(&mut self.loaded, self.ops, WHAT, NAME)?;
        Ok(Registration { linked: self.linked, ..registration })
    }

    /// Pins the map on a kernel without links. An algorithm without a link outlasts a killed
    /// command, so its pin must exist before it is registered.
    pub(crate) fn pin_ahead(&mut self, pins: &Pins) -> Result<(), AccelError> {
        if self.linked {
            return Ok(());
        }
        let mut ops = self.loaded.map_mut(self.ops)?;
        with_libbpf_log(WHAT, || ops.pin(pins.at(pins::ALGORITHM_MAP)))
    }

    /// Replaces the algorithm that the link registers: sockets that choose `tcpa` from now on get
    /// this algorithm.
    pub fn replace(&mut self, registered: &Link) -> Result<(), AccelError> {
        replace(&mut self.loaded, self.ops, WHAT, NAME, registered)
    }

    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    pub(crate) fn loaded_mut(&mut self) -> &mut Loaded {
        &mut self.loaded
    }
}

impl Algorithm {
    /// Returns an error if another program has registered an algorithm of this name.
    pub(crate) fn check_name_is_free() -> Result<(), AccelError> {
        let names = read_sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        match names.split(' ').any(|name| name == NAME) {
            true => Err(AccelError::NameTaken { name: NAME }),
            false => Ok(()),
        }
    }
}

impl Registration {
    /// Keeps the algorithm until [`Pins`] are removed.
    pub(crate) fn keep(mut self, pins: &Pins) -> Result<(), AccelError> {
        if self.linked {
            return with_libbpf_log(WHAT, || self.link.pin(pins.at(pins::ALGORITHM)));
        }
        // Without links, libbpf's `Link` is the map, and would unregister the algorithm when
        // dropped.
        self.link.disconnect();
        Ok(())
    }

    pub fn link(&self) -> &Link {
        &self.link
    }
}

/// Registers an algorithm as a link; `what` names the algorithm in messages.
pub(crate) fn register(
    loaded: &mut Loaded,
    ops: &str,
    what: &'static str,
    name: &'static str,
) -> Result<Registration, AccelError> {
    let mut ops = loaded.map_mut(ops)?;
    let link = with_libbpf_log(what, || ops.attach_struct_ops()).map_err(|error| match error {
        AccelError::Refused { source, .. } if source.kind() == ErrorKind::AlreadyExists => {
            AccelError::NameTaken { name }
        }
        error => error,
    })?;
    Ok(Registration { link, linked: true })
}

pub(crate) fn replace(
    loaded: &mut Loaded,
    ops: &str,
    what: &'static str,
    name: &'static str,
    registered: &Link,
) -> Result<(), AccelError> {
    // A second registration prepares the map, and then fails because the name is taken.
    match register(loaded, ops, what, name) {
        Err(AccelError::NameTaken { .. }) => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(AccelError::NotRegistered { name }),
    }
    let ops = loaded.map(ops)?;
    with_libbpf_log(what, || {
        // SAFETY: both descriptors are open for the call; without options the call takes no
        // pointer.
        let status = unsafe {
            libbpf_sys::bpf_link_update(
                registered.as_fd().as_raw_fd(),
                ops.as_fd().as_raw_fd(),
                std::ptr::null(),
            )
        };
        match status {
            0 => Ok(()),
            error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
        }
    })
}

fn ops_for(interface: Interface) -> &'static str {
    match (interface.four_arguments, interface.links) {
        (true, true) => match (interface.whole_trains, interface.tx_start) {
            (false, false) => OPS[0],
            (false, true) => OPS[4],
            (true, false) => OPS[5],
            (true, true) => OPS[6],
        },
        (true, false) => OPS[1],
        (false, true) => OPS[2],
        (false, false) => OPS[3],
    }
}

/// The name by which sockets choose the algorithm.
pub const NAME: &str = "tcpa";
const WHAT: &str = "the congestion control tcpa";
/// Names of the struct_ops variants in bpf/tcpa.bpf.c, for different kernels.
const OPS: [&str; 7] = [
    "ops",
    "ops_unlinked",
    "ops_before_6_10",
    "ops_before_6_4",
    "ops_since_7_1",
    "ops_whole_trains",
    "ops_whole_trains_since_7_1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_interface_gets_the_matching_struct_ops() {
        let form = |four_arguments, links, whole_trains, tx_start| {
            ops_for(Interface {
                four_arguments,
                links,
                whole_trains,
                tx_start,
                open_connections: true,
                rto_max: true,
                interface_links: true,
                rack_is_optional: false,
            })
        };
        assert_eq!(form(true, true, true, true), "ops_whole_trains_since_7_1");
        assert_eq!(form(true, true, true, false), "ops_whole_trains");
        assert_eq!(form(true, true, false, true), "ops_since_7_1");
        assert_eq!(form(true, true, false, false), "ops");
        assert_eq!(form(true, false, true, false), "ops_unlinked");
        assert_eq!(form(false, true, false, false), "ops_before_6_10");
        assert_eq!(form(false, false, false, false), "ops_before_6_4");
    }
}
