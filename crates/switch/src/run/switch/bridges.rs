//! The bridges of a running switch, and the sockets at which they listen.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flow::port_number::PortNumber;
use ovsdb::topology::Carrier;
use rustix::fs::Mode;
use units::Time;

use super::bridge_settings::{
    add_first_rules, datapath_id, set_own_port, set_ports, set_up_normal, set_up_tables, set_vlans,
};
use super::{BridgeState, Switch, Thread};
use crate::run::bridge::{Places, Remotes};
use crate::run::bridge_thread::{BridgeThread, Doors};
use crate::run::config::{BridgeConfig, FailMode, PortConfig};
use crate::run::confinement;
use crate::run::error::SwitchError;
use crate::run::ports::SwitchPort;
use crate::run::progress::{Part, Progress};
use crate::run::remote::Remote;

impl Switch {
    pub(super) fn add_bridge(
        self: &Arc<Self>,
        name: &str,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        confinement::check_bridge(name, settings)?;
        let doors = self.doors(name, settings, progress)?;
        let bridges = self.bridges();
        let index = (0..).find(|index| bridges.iter().all(|bridge| bridge.index != *index));
        let id = datapath_id(settings);
        let (clock, meters) = (self.clock.clone(), self.meters.clone());
        let bridge = BridgeState::new(name, index.unwrap_or(0), id, clock, meters);
        let bridge = Arc::new(bridge.map_err(SwitchError::Thread)?);
        bridge.set_identity(id, settings.protocols.versions());
        bridge.set_places(Places {
            listening: doors.tcp.iter().map(|(address, _)| *address).collect(),
            controllers: doors.controllers.clone(),
        });
        set_up_normal(&bridge, settings);
        set_up_tables(&bridge, settings);
        bridge.set_standalone(settings.fail_mode == FailMode::Standalone);
        bridge.set_controller_times(&settings.controller_times);
        let mut fill = || -> Result<(), SwitchError> {
            self.add_local(&bridge, settings, progress)?;
            let opened = self.open_ports(&bridge, settings, &mut HashMap::new(), progress);
            self.ports.publish();
            opened?;
            set_ports(&bridge, settings, progress)?;
            bridge.set_bonds(Some(settings));
            set_vlans(&bridge, settings);
            add_first_rules(&bridge, settings, self.clock.now_ms())
        };
        if let Err(error) = fill() {
            // Close the devices, so that the user can add the bridge again after a correction.
            self.remove_ports(&bridge, &bridge.ports());
            return Err(error);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let socket = self.folder.path().join(Self::socket_of(name));
        progress.note(format!("bridge {name}: OpenFlow at unix:{}", socket.display()));
        for (remote, listener) in &doors.tcp {
            let Ok(address) = listener.local_addr() else { continue };
            let carrier = match remote.carrier {
                Carrier::Tcp => "tcp",
                Carrier::Tls => "ssl",
            };
            progress.note(format!("bridge {name}: OpenFlow at {carrier}:{address}"));
        }
        let thread = BridgeThread::new(self.clone(), bridge.clone(), doors, stop.clone());
        let builder = std::thread::Builder::new().name(format!("bridge {name}"));
        let handle = builder.spawn(|| thread.run()).map_err(SwitchError::Thread)?;
        self.threads().insert(name.to_owned(), Thread { stop, handle });
        let mut bridges = self.bridges.write();
        bridges.insert(name.to_owned(), bridge);
        drop(bridges);
        self.link_patches();
        Ok(())
    }

    /// Adds the bridge's own port: a TAP device with the bridge's name, or a port without a device.
    fn add_local(
        &self,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let Some(index) = self.ports.free_index(PortNumber::LOCAL) else { return Ok(()) };
        let name = &bridge.name;
        let now = Time::from_nanos(self.clock.now_ns());
        let mut local = None;
        if settings.own_interface {
            let tap = PortConfig::of_kind("tap");
            let number = PortNumber::LOCAL;
            match SwitchPort::open(name, bridge.index, number, index, &tap, now) {
                Ok((port, _)) => local = Some(port),
                Err(error) => progress.check(Part::Port(name.clone()), Err(error.into()))?,
            }
        }
        let local = local.unwrap_or_else(|| SwitchPort::local(name, bridge.index, index, now));
        let local = Arc::new(local);
        self.ports.insert(local.clone());
        bridge.add_port(local);
        set_own_port(bridge, settings, progress)
    }

    pub(super) fn remove_bridge(&self, bridge: &Arc<BridgeState>) {
        let mut bridges = self.bridges.write();
        bridges.shift_remove(&bridge.name);
        drop(bridges);
        if let Some(thread) = self.threads().remove(&bridge.name) {
            thread.stop.store(true, Ordering::Release);
            bridge.waker.wake();
            let _ = thread.handle.join();
        }
        self.remove_ports(bridge, &bridge.ports());
        let index = bridge.index;
        bridge.meters.of_bridge(bridge.place()).into_iter().for_each(|id| bridge.meters.remove(id));
        self.main().forget_bridge(index);
        for pmd in self.pmds() {
            pmd.ask(move |thread| thread.worker.forget_bridge(index));
        }
    }

    /// Gives the bridge's thread new controllers and listening addresses.
    pub(super) fn change_remotes(
        &self,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let (listen, controllers) = (&settings.listen[..], &settings.controller[..]);
        // The settings in force do not show which addresses are open: listening may have failed, or
        // a change may have ended early.
        let Places { listening, controllers: known } = bridge.places();
        let is_left = listening.iter().any(|address| !listen.contains(address));
        let is_new = listen.iter().any(|address| !listening.contains(address));
        if !is_left && !is_new && controllers == known {
            return Ok(());
        }
        // A listener that changes between TCP and TLS stays open.
        let is_open = |wanted: &Remote| {
            let mut open = listening.iter().filter(|open| open.address == wanted.address);
            open.any(|open| open == wanted || !listen.contains(open))
        };
        let mut added = Vec::new();
        for address in listen.iter().filter(|address| !is_open(address)) {
            match listen_at(*address) {
                Ok(listener) => added.push((*address, listener)),
                Err(error) => progress.check(Part::Remote(*address), Err(error))?,
            }
        }
        bridge.change_remotes(Remotes {
            listen: listen.to_vec(),
            added,
            controllers: controllers.to_vec(),
        });
        Ok(())
    }

    fn doors(
        &self,
        name: &str,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<Doors, SwitchError> {
        let (unix, file) = self.listen(&Self::socket_of(name))?;
        let snoop = self.listen(&format!("{name}.snoop"))?;
        let mut tcp = Vec::new();
        for address in &*settings.listen {
            match listen_at(*address) {
                Ok(listener) => tcp.push((*address, listener)),
                Err(error) => progress.check(Part::Remote(*address), Err(error))?,
            }
        }
        Ok(Doors { unix, file, snoop, tcp, controllers: settings.controller.to_vec() })
    }

    /// Listens at a socket in the switch's folder, and replaces a socket that a killed switch left.
    pub(in crate::run) fn listen(
        &self,
        name: &str,
    ) -> Result<(UnixListener, host::BoundFile), SwitchError> {
        let file = self.folder.socket(name);
        let place = format!("unix:{}", file.path().display());
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                SwitchError::Running { rundir: self.folder.path().to_owned() }
            }
            _ => SwitchError::Listen { place: place.clone(), error },
        };
        let (listener, file) = file.listen(Some(Mode::RUSR | Mode::WUSR)).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok((listener, file))
    }

    fn socket_of(bridge: &str) -> String {
        format!("{bridge}.mgmt")
    }
}

fn listen_at(remote: Remote) -> Result<TcpListener, SwitchError> {
    let refused = |error| SwitchError::Listen { place: format!("tcp:{}", remote.address), error };
    let listener = TcpListener::bind(remote.address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}
