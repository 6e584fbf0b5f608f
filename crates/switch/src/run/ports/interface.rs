//! The kernel's interface of a port.

use std::sync::atomic::Ordering;

use port::{Interface, PortError, XdpPort};
use probe::ethtool::Driver;

use super::{OpenError, SwitchPort, number_of};
use crate::run::config::HardwareAddress;
use crate::run::device::{interface_of, request_mtu};
use crate::run::interface_facts::driver_of;

#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct InterfaceFacts {
    pub(in crate::run) index: Option<u32>,
    pub(in crate::run) mtu: u64,
    pub(in crate::run) is_enabled: bool,
}

impl SwitchPort {
    /// Enables or disables the kernel's interface, if the port has one.
    pub(in crate::run) fn enable_interface(&self, wanted: bool) {
        let Some(interface) = interface_of(&self.name, &self.settings) else { return };
        match Interface::enable(interface, wanted) {
            Ok(()) => self.is_enabled.store(wanted, Ordering::Relaxed),
            Err(error) => tracing::warn!(
                "port {}: {error}; the switch {} frames of the port all the same",
                self.name,
                if wanted { "forwards" } else { "drops" }
            ),
        }
    }

    #[must_use]
    pub fn hardware_address(&self) -> [u8; 6] {
        let [_, _, a, b, c, d, e, f] = self.address.load(Ordering::Relaxed).to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// Sets the address of the port and of its interface. `None` restores the address that the port
    /// had when it was opened. Returns whether the address has changed.
    pub(in crate::run) fn set_address(
        &self,
        wanted: Option<HardwareAddress>,
    ) -> Result<bool, OpenError> {
        let wanted = wanted.map_or(self.first_address, |address| address.0);
        if wanted == self.hardware_address() {
            return Ok(false);
        }
        if let Some(interface) = interface_of(&self.name, &self.settings) {
            Interface::set_address(interface, wanted).map_err(|error| self.failed(error))?;
        }
        self.address.store(number_of(wanted), Ordering::Relaxed);
        Ok(true)
    }

    /// Sets the MTU of the port's interface, if the settings request an MTU. Refuses a change for
    /// an open xdp port, because its memory suits only the present MTU.
    pub(in crate::run) fn set_mtu(&self, wanted: Option<u32>) -> Result<(), OpenError> {
        self.requested_mtu.store(wanted.unwrap_or(0), Ordering::Relaxed);
        if self.settings.kind == "xdp" && self.device.is_there() {
            return self.check_mtu(wanted);
        }
        let has_changed = self.request_mtu().map_err(|error| self.failed(error))?;
        if has_changed && self.device.is_there() {
            let opened = self.device.open_again(&self.name, &self.settings);
            let opened = opened.map_err(|error| self.failed(error));
            return opened.or_else(|error| if error.is_absence() { Ok(()) } else { Err(error) });
        }
        Ok(())
    }

    pub(super) fn request_mtu(&self) -> Result<bool, PortError> {
        match self.requested_mtu.load(Ordering::Relaxed) {
            0 => Ok(false),
            mtu => request_mtu(&self.name, &self.settings, mtu),
        }
    }

    /// Stores why the requested MTU was refused when the device was opened again.
    pub(super) fn set_refused_mtu(&self, refusal: Option<PortError>) {
        let mtu = self.requested_mtu.load(Ordering::Relaxed);
        *self.refused_mtu.lock() = refusal.map(|error| {
            tracing::warn!("port {}: {error}", self.name);
            (mtu, error.to_string())
        });
    }

    fn check_mtu(&self, wanted: Option<u32>) -> Result<(), OpenError> {
        let mtu = self.facts().mtu;
        let Some(wanted) = wanted.filter(|wanted| u64::from(*wanted) != mtu) else {
            return Ok(());
        };
        let refusal = self.refused_mtu.lock();
        let reason = match &*refusal {
            Some((refused, reason)) if *refused == wanted => reason.clone(),
            _ => format!(
                "an open xdp port keeps its MTU, here {mtu}: remove the port, and add the port \
                 with an MTU of at most {}",
                XdpPort::MOST_MTU
            ),
        };
        Err(OpenError::Mtu { port: self.name.clone(), reason })
    }

    fn failed(&self, error: PortError) -> OpenError {
        OpenError::Port { port: self.name.clone(), error }
    }

    /// Whether the kernel's interface is disabled.
    pub(in crate::run) fn is_disabled_by_kernel(&self) -> bool {
        !self.is_enabled.load(Ordering::Relaxed)
    }

    /// Whether the port's interface does not exist. An interface that is down exists.
    pub(in crate::run) fn is_absent(&self) -> bool {
        matches!(self.settings.kind.as_str(), "packet" | "xdp")
            && !self.device.is_there()
            && self.interface().is_none()
    }

    fn interface(&self) -> Option<Interface> {
        interface_of(&self.name, &self.settings).and_then(|name| Interface::find(name).ok())
    }

    /// Returns the driver of the port's interface; `None` without an interface.
    pub(in crate::run) fn driver(&self) -> Option<Driver> {
        driver_of(&self.name, &self.settings)
    }

    /// Returns facts about the port's interface for a database. Ports without an interface count as
    /// enabled.
    pub(in crate::run) fn facts(&self) -> InterfaceFacts {
        match self.interface() {
            Some(found) => InterfaceFacts {
                index: Some(found.index),
                mtu: found.mtu.count(),
                is_enabled: found.up && !self.is_set_down(),
            },
            None => InterfaceFacts { index: None, mtu: USUAL_MTU, is_enabled: !self.is_set_down() },
        }
    }
}

const USUAL_MTU: u64 = 1500;
