//! `tcpa` among the kernel's congestion controls.
#![allow(unsafe_code)]

use crate::AccelError;
use crate::kernel::{Interface, interface};
use crate::object::{Loaded, Spec, told};
use libbpf_rs::{ErrorKind, Link};
use std::os::fd::{AsFd, AsRawFd};

/// The algorithm in the kernel; no socket knows of it before [`Algorithm::register`].
#[derive(Debug)]
pub struct Algorithm {
    loaded: Loaded,
    ops: &'static str,
}

impl Algorithm {
    pub fn load() -> Result<Self, AccelError> {
        let ops = match interface()? {
            Interface::Current => OPS[0],
            Interface::Before6_10 => OPS[1],
            Interface::Before6_4 => OPS[2],
        };
        let elf = include_bytes!(concat!(env!("OUT_DIR"), "/tcpa.bpf.o"));
        let mut spec = Spec::open(WHAT, elf)?;
        spec.create_only(ops, &OPS)?;
        Ok(Self { loaded: spec.load()?, ops })
    }

    /// From now on sockets can choose it, until the link is gone. Those that have it by then keep it.
    pub fn register(&mut self) -> Result<Link, AccelError> {
        let mut ops = self.loaded.map_mut(self.ops)?;
        told(WHAT, || ops.attach_struct_ops()).map_err(|error| match error {
            AccelError::Refused { source, .. } if source.kind() == ErrorKind::AlreadyExists => {
                AccelError::NameTaken { name: NAME }
            }
            error => error,
        })
    }

    /// Takes the place of what `link` registered: who chooses `tcpa` from now on gets this one.
    pub fn replace(&mut self, link: &Link) -> Result<(), AccelError> {
        // The map is made ready on the way to a second registration, which the name then forbids.
        match self.register() {
            Err(AccelError::NameTaken { .. }) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(AccelError::NotRegistered { name: NAME }),
        }
        let ops = self.loaded.map(self.ops)?;
        told(WHAT, || {
            // SAFETY: both descriptors are open for the call; without options it takes no pointer.
            let status = unsafe {
                libbpf_sys::bpf_link_update(
                    link.as_fd().as_raw_fd(),
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

    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    pub(crate) fn loaded_mut(&mut self) -> &mut Loaded {
        &mut self.loaded
    }
}

/// As sockets choose it.
pub const NAME: &str = "tcpa";
const WHAT: &str = "the congestion control tcpa";
/// The forms of bpf/tcpa.bpf.c.
const OPS: [&str; 3] = ["ops", "ops_before_6_10", "ops_before_6_4"];
