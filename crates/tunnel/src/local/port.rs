//! The local ports of connections to targets.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A local port that a connection to a target occupies until this value is dropped.
pub(crate) trait LocalPort: Debug + Send {
    /// Sets whether the kernel keeps the port for a minute after the connection, because this end
    /// closes first.
    fn set_stays(&mut self, stays: bool);
}

/// The port of a connection that this end opened, and whether its target has ended its half.
#[derive(Debug, Default)]
pub(crate) struct PortInUse {
    port: Mutex<Option<Box<dyn LocalPort>>>,
    is_ended_by_target: AtomicBool,
}

impl PortInUse {
    pub(super) fn new(port: Option<Box<dyn LocalPort>>) -> Self {
        Self { port: Mutex::new(port), ..Self::default() }
    }

    pub(super) fn end_by_target(&self) {
        self.is_ended_by_target.store(true, Ordering::Relaxed);
    }

    pub(super) fn end_here(&self) {
        self.set_stays(!self.is_ended_by_target.load(Ordering::Relaxed));
    }

    /// Records a reset, after which the kernel does not keep the port.
    pub(super) fn reset(&self) {
        self.set_stays(false);
    }

    fn set_stays(&self, stays: bool) {
        if let Some(port) = self.port.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            port.set_stays(stays);
        }
    }
}
