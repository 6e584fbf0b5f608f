//! The congestion controller that the engine uses. This controller gives the engine an unlimited
//! window while the gate is open, and a window of one byte while the gate is closed.

use super::Shared;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// Creates the controllers of one connection, one per path.
#[derive(Debug)]
pub(crate) struct Factory {
    shared: Shared,
}

#[derive(Debug)]
struct Handle {
    shared: Shared,
    path: Arc<()>,
}

impl Factory {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let (shared, path) = (self.shared.clone(), Arc::new(()));
        // Switch immediately: the gate of the former path would delay the challenge of the new
        // path, and a size probe would be the first packet on the new path.
        let mut control = shared.lock();
        control.switch(&path);
        control.path_mtu(current_mtu);
        drop(control);
        Box::new(Handle { shared, path })
    }
}

impl Controller for Handle {
    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest: Option<u64>,
    ) {
        let mut control = self.shared.lock();
        control.switch(&self.path);
        control.on_engine_in_flight(in_flight);
    }

    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let mut control = self.shared.lock();
        control.switch(&self.path);
        match lost_bytes {
            0 => control.on_marked(),
            _ => control.on_lost(lost_bytes, is_persistent_congestion),
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        let mut control = self.shared.lock();
        control.switch(&self.path);
        control.path_mtu(new_mtu);
    }

    fn window(&self) -> u64 {
        let mut control = self.shared.lock();
        control.switch(&self.path);
        control.engine_window()
    }

    /// The engine clones a controller after the peer has changed its port
    /// (`PathData::from_previous`).
    fn clone_box(&self) -> Box<dyn Controller> {
        let mut control = self.shared.lock();
        control.switch(&self.path);
        control.on_another_port();
        drop(control);
        Box::new(Self { shared: self.shared.clone(), path: self.path.clone() })
    }

    fn initial_window(&self) -> u64 {
        u64::MAX
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl super::Control {
    fn path_mtu(&mut self, mtu: u16) {
        self.path.mtu = mtu;
    }
}
