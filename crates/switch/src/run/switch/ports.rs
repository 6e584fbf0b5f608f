//! The ports of a running switch: opened, removed and watched.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::step::PortIndex;
use units::Time;

use super::bridge_settings::{numbered_first, set_ports, set_vlans};
use super::{BridgeState, Switch};
use crate::run::config::{BridgeConfig, PortConfig};
use crate::run::confinement;
use crate::run::device::Change;
use crate::run::error::SwitchError;
use crate::run::ports::SwitchPort;
use crate::run::progress::{Part, Progress};

impl Switch {
    pub(super) fn apply_ports(
        self: &Arc<Self>,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        // A port keeps its number if only other settings of the port change.
        let mut former = HashMap::new();
        let mut gone = Vec::new();
        for port in bridge.ports() {
            if port.number == PortNumber::LOCAL {
                continue;
            }
            let wanted = settings.port.get(&port.name);
            let is_same = wanted.is_some_and(|wanted| wanted.fixed() == port.settings.fixed());
            if !is_same {
                if port.settings.number.is_none() {
                    former.insert(port.name.clone(), port.number);
                }
                progress.note(format!("bridge {}: port {} removed", bridge.name, port.name));
                gone.push(port);
            }
        }
        self.remove_ports(bridge, &gone);
        // Close the devices: a TAP device or a queue of an interface can be open only once.
        drop(gone);
        let opened = self.open_ports(bridge, settings, &mut former, progress);
        self.ports.publish();
        // If a change fails, also link the patch ports that the change opened, and set the bonds,
        // so that the members of a bond forward no frames to one another.
        self.link_patches();
        bridge.set_bonds(Some(settings));
        opened?;
        let changed = set_ports(bridge, settings, progress);
        if *changed.as_ref().unwrap_or(&true) {
            // The packet threads look for ports that hold frames in each new list.
            self.ports.publish();
        }
        changed?;
        set_vlans(bridge, settings);
        Ok(())
    }

    /// Opens the ports of `settings` that are not open. The caller publishes the opened ports.
    pub(super) fn open_ports(
        &self,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        former: &mut HashMap<String, PortNumber>,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let mut open: HashSet<_> = bridge.ports().iter().map(|port| port.name.clone()).collect();
        for (name, wanted) in numbered_first(settings) {
            if !open.contains(name) {
                if let Some(taken) = self.free_number(bridge, wanted, progress) {
                    open.remove(&taken.name);
                }
                self.open_port(bridge, name, wanted, former.remove(name), progress)?;
            }
        }
        Ok(())
    }

    /// Removes and returns a port without a requested number if another port requests its number.
    /// The caller opens the removed port again after the other port, under a free number.
    fn free_number(
        &self,
        bridge: &Arc<BridgeState>,
        wanted: &PortConfig,
        progress: &mut Progress<'_>,
    ) -> Option<Arc<SwitchPort>> {
        let taken = wanted.number.and_then(|number| bridge.port(PortNumber(number)))?;
        if taken.number == PortNumber::LOCAL || taken.settings.number.is_some() {
            return None;
        }
        self.remove_ports(bridge, std::slice::from_ref(&taken));
        let (bridge, port) = (&bridge.name, &taken.name);
        progress.note(format!("bridge {bridge}: port {port} gets another number"));
        Some(taken)
    }

    /// Opens a port, and reports a failure to `progress`.
    fn open_port(
        &self,
        bridge: &Arc<BridgeState>,
        name: &str,
        settings: &PortConfig,
        former: Option<PortNumber>,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let former = former.or_else(|| progress.numbers.get(name).copied());
        let opened = self.try_open_port(bridge, name, settings, former, progress);
        progress.check(Part::Port(name.to_owned()), opened)
    }

    fn try_open_port(
        &self,
        bridge: &Arc<BridgeState>,
        name: &str,
        settings: &PortConfig,
        former: Option<PortNumber>,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        confinement::check_port(name, settings)?;
        let former = former.filter(|number| bridge.port(*number).is_none());
        let number = settings.number.map(PortNumber).or(former);
        let number = number.unwrap_or_else(|| bridge.free_number());
        if let Some(taken) = bridge.port(number) {
            return Err(SwitchError::Refused(format!(
                "port {name}: number {} is port {}'s: choose another",
                number.0, taken.name
            )));
        }
        let index = match settings.peer {
            None => self.ports.free_index(number),
            Some(_) => Some(PortIndex::NONE),
        };
        let Some(index) = index else {
            return Err(SwitchError::Refused(format!(
                "port {name}: there are too many ports: delete others"
            )));
        };
        let now = Time::from_nanos(self.clock.now_ns());
        let (port, missing) = SwitchPort::open(name, bridge.index, number, index, settings, now)?;
        if let Some(error) = missing {
            progress.note(format!("{error}; the port is down until its interface exists"));
        }
        let port = Arc::new(port);
        self.ports.insert(port.clone());
        bridge.add_port(port);
        Ok(())
    }

    pub(super) fn remove_ports(&self, bridge: &Arc<BridgeState>, ports: &[Arc<SwitchPort>]) {
        if ports.is_empty() {
            return;
        }
        for port in ports {
            bridge.remove_port(port.number);
            self.ports.remove(port.index);
        }
        bridge.run_bonds();
        self.ports.publish();
        // `ports` keeps the removed ports in memory, so that no new port gets the address of a
        // removed port.
        let address = |port: &Arc<SwitchPort>| Arc::as_ptr(port).addr();
        let gone: Arc<HashSet<_>> = Arc::new(ports.iter().map(address).collect());
        // Wait until no thread polls the removed ports. Their devices are then closed as soon as
        // the caller drops `ports`.
        for pmd in self.pmds() {
            let gone = gone.clone();
            pmd.ask(move |thread| {
                thread.queues.retain(|queue| !gone.contains(&address(&queue.port)));
                thread.worker.forget_ports();
            });
        }
        self.main().forget_ports();
        if ports.iter().any(|port| port.is_patch()) {
            self.link_patches();
        }
        ports.iter().for_each(|port| port.flush());
    }

    /// Opens devices that exist again, checks links if they may have changed, and flushes capture
    /// writers.
    pub(in crate::run) fn look_after_ports(&self, may_links_differ: bool) {
        let mut has_any_changed = false;
        for bridge in self.bridges() {
            for port in bridge.ports() {
                port.flush();
                let Some(change) = port.look_after(may_links_differ) else { continue };
                match change {
                    Change::Back => tracing::warn!("port {}: the device is back", port.name),
                    Change::Connected => tracing::info!("port {}: connected", port.name),
                    Change::Disconnected => tracing::warn!("port {}: disconnected", port.name),
                    Change::LinkUp => tracing::info!("port {}: the link is up", port.name),
                    Change::LinkDown => tracing::info!("port {}: the link is down", port.name),
                }
                bridge.port_changed(&port);
                has_any_changed = true;
            }
        }
        self.run_bonds();
        if has_any_changed {
            self.rebalance();
        }
    }
}
