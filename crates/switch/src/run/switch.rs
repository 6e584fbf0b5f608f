mod bridge_settings;
mod packet_threads;
mod patches;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use datapath::conntrack::{self, Conntrack};
use datapath::{MAX_MEGAFLOWS, Meters};
use flow::port_number::PortNumber;
use flow::request::{PacketOut, Resumption};
use flow::step::{PortIndex, Translation};
use host::PrivateDirectory;
use indexmap::IndexMap;
use ovsdb::topology::Carrier;
use pipeline::Removal;
use rustix::fs::Mode;
use text::PortNames;
use units::Time;

use self::bridge_settings::{
    add_first_rules, datapath_id, limit_macs, numbered_first, set_own_port, set_ports,
    set_up_tables, set_vlans,
};
use super::bridge::{BridgeState, Places, Remotes};
use super::bridge_thread::{BridgeThread, Doors};
use super::clock::Clock;
use super::config::{BridgeConfig, Config, FailMode, PortConfig};
use super::confinement;
use super::coverage::Coverage;
use super::device::Change;
use super::error::SwitchError;
use super::ordered::{Mutex, MutexGuard, RwLock, rank};
use super::pmd::Pmd;
use super::port_table::PortTable;
use super::ports::SwitchPort;
use super::progress::{Part, Progress};
use super::remote::Remote;
use super::start::Process;
use super::tls::Tls;
use super::worker::{Worker, WorkerStatistics};

/// A running switch.
pub struct Switch {
    folder: PrivateDirectory,
    pub(super) clock: Arc<Clock>,
    bridges: RwLock<IndexMap<String, Arc<BridgeState>>, { rank::BRIDGES }>,
    threads: Mutex<HashMap<String, Thread>, { rank::THREADS }>,
    pub(super) ports: Arc<PortTable>,
    conntrack: Arc<Conntrack>,
    /// The meters of all bridges.
    meters: Arc<Meters>,
    pmds: RwLock<Vec<Arc<Pmd>>, { rank::PMDS }>,
    /// The worker that processes the packets of commands and controllers.
    main: Mutex<Worker, { rank::MAIN }>,
    busy_poll: AtomicBool,
    megaflow_limit: AtomicUsize,
    coverage: Mutex<Coverage, { rank::COVERAGE }>,
    /// The settings in force, for comparison at a reload.
    pub(super) settings: Mutex<Config, { rank::SETTINGS }>,
    stop: Arc<AtomicBool>,
    process: Process,
    /// The files for TLS to controllers.
    pub(super) tls: Tls,
    log_level: Mutex<String, { rank::LAST }>,
    measured_since: Mutex<Instant, { rank::LAST }>,
    /// The start time, and the cycle counter then.
    started: (Instant, u64),
    /// Held during each change of bridges, ports or packet threads.
    changes: Mutex<(), { rank::CHANGES }>,
    /// Held while patch ports are linked.
    links: Mutex<(), { rank::LINKS }>,
}

#[derive(Debug)]
struct Thread {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Switch {
    pub(super) fn new(folder: PrivateDirectory, stop: Arc<AtomicBool>, process: Process) -> Self {
        let clock = Arc::new(Clock::start());
        let ports = Arc::new(PortTable::default());
        let settings = conntrack::Settings {
            seed: RandomState::new().build_hasher().finish(),
            threads: host::online_cpus().len(),
            ..conntrack::Settings::default()
        };
        let conntrack = Arc::new(Conntrack::new(&settings));
        Self {
            folder,
            main: Mutex::new(Worker::new(clock.clone(), ports.clone(), conntrack.clone())),
            conntrack,
            meters: Arc::default(),
            clock,
            bridges: RwLock::default(),
            threads: Mutex::default(),
            ports,
            pmds: RwLock::default(),
            busy_poll: AtomicBool::new(false),
            megaflow_limit: AtomicUsize::new(MAX_MEGAFLOWS),
            coverage: Mutex::default(),
            settings: Mutex::default(),
            stop,
            process,
            tls: Tls::default(),
            log_level: Mutex::new("warn".to_owned()),
            measured_since: Mutex::new(Instant::now()),
            started: (Instant::now(), host::cycles()),
            changes: Mutex::default(),
            links: Mutex::default(),
        }
    }

    /// Reads the settings again and applies the differences. Returns lines that the user should
    /// know.
    pub(super) fn reload(self: &Arc<Self>) -> Result<Vec<String>, SwitchError> {
        let mut config = (self.process.settings)()?;
        let mut notes = Vec::new();
        // Keep the former values, so that each later reload notes the difference again.
        let former = self.settings().clone();
        if config.metrics_on != former.metrics_on {
            notes.push("a change of metrics-on takes effect after a restart".to_owned());
            config.metrics_on = former.metrics_on;
        }
        if config.rundir != former.rundir {
            notes.push("a change of rundir takes effect after a restart".to_owned());
            config.rundir = former.rundir;
        }
        self.apply(&config, &mut |note| notes.push(note))?;
        Ok(notes)
    }

    /// Requests the end of the switch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn bridges(&self) -> Vec<Arc<BridgeState>> {
        self.bridges.read().values().cloned().collect()
    }

    #[must_use]
    pub fn bridge(&self, name: &str) -> Option<Arc<BridgeState>> {
        self.bridges.read().get(name).cloned()
    }

    /// Returns the names of all bridges' ports, with the datapath's port numbers.
    pub(super) fn datapath_names(&self) -> PortNames {
        let ports = self.bridges().into_iter().flat_map(|bridge| bridge.ports());
        let ports = ports.filter(|port| !port.is_patch());
        ports.map(|port| (PortNumber(port.index.0.into()), port.name.clone())).collect()
    }

    pub(super) fn pmds(&self) -> Vec<Arc<Pmd>> {
        self.pmds.read().clone()
    }

    /// Locks the main worker, for commands and controllers.
    pub(super) fn main(&self) -> MutexGuard<'_, Worker> {
        self.main.lock()
    }

    /// Applies the differences between settings and the present bridges, ports and packet threads.
    /// Calls `note` with each line that the user should know.
    pub(super) fn apply(
        self: &Arc<Self>,
        config: &Config,
        note: &mut dyn FnMut(String),
    ) -> Result<(), SwitchError> {
        self.change(config, &mut Progress { note, failures: None, numbers: &HashMap::new() })
    }

    /// As [`Switch::apply`], but continues after a part that fails.
    pub(super) fn change(
        self: &Arc<Self>,
        config: &Config,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        config.check()?;
        let _changes = self.changes.lock();
        let changed = self.change_parts(config, progress);
        // Assign the queues also after a failure, because the change may have opened ports.
        self.assign_queues();
        changed
    }

    fn change_parts(
        self: &Arc<Self>,
        config: &Config,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        self.busy_poll.store(config.busy_poll, Ordering::Relaxed);
        let cpus = packet_threads::cpus(config)?;
        self.tls.change(config.tls.as_ref(), progress)?;
        for bridge in self.bridges() {
            if !config.bridge.contains_key(&bridge.name) {
                self.remove_bridge(&bridge);
                progress.note(format!("bridge {}: removed", bridge.name));
            }
        }
        let mut applied = config.clone();
        for (name, settings) in &config.bridge {
            let Some(bridge) = self.bridge(name) else {
                let added = self.add_bridge(name, settings, progress);
                progress.check(Part::Bridge(name.clone()), added)?;
                continue;
            };
            let former = self.settings().bridge.get(name).cloned();
            let begins_open = settings.begins_open()
                && former.as_ref().is_some_and(|former| !former.begins_open());
            if let Some(former) = former
                && let Some(applied) = applied.bridge.get_mut(name)
            {
                self.change_remotes(&bridge, settings, progress)?;
                if applied.keep_fixed(&former) {
                    progress.note(format!(
                        "bridge {name}: a change of own-interface takes effect after a restart"
                    ));
                }
                bridge.set_identity(datapath_id(applied), settings.protocols.versions());
            }
            limit_macs(&bridge, settings);
            set_up_tables(&bridge, settings);
            bridge.set_standalone(settings.fail_mode == FailMode::Standalone);
            set_own_port(&bridge, settings, progress)?;
            self.apply_ports(&bridge, settings, progress)?;
            if begins_open {
                // A bridge that lost its controllers starts without rules.
                add_first_rules(&bridge, settings, self.clock.now_ms())?;
            }
        }
        if config.dummies {
            // Tests with dummy ports compare the megaflows with those of Open vSwitch.
            self.bridges().iter().for_each(|bridge| bridge.tables_mut().set_alike());
        }
        self.link_patches();
        for bridge in self.bridges() {
            bridge.set_bonds(config.bridge.get(&bridge.name));
        }
        self.set_cpus(&cpus)?;
        *self.settings() = applied;
        Ok(())
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Config> {
        self.settings.lock()
    }

    fn apply_ports(
        self: &Arc<Self>,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        // A port whose other settings change keeps its number.
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
        // If a change fails, link the patch ports that the change opened, and set the bonds, so
        // that the members of a bond forward no frames to one another.
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
    fn open_ports(
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

    /// Gives the bridge's thread new controllers and listening addresses.
    fn change_remotes(
        &self,
        bridge: &Arc<BridgeState>,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        let (listen, controllers) = (&settings.listen[..], &settings.controller[..]);
        // The settings in force are not enough: an address may have failed, or a change may have
        // ended early.
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

    fn add_bridge(
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
        limit_macs(&bridge, settings);
        set_up_tables(&bridge, settings);
        bridge.set_standalone(settings.fail_mode == FailMode::Standalone);
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
            // Close the devices, so that the bridge can be added after a correction.
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

    fn remove_bridge(&self, bridge: &Arc<BridgeState>) {
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

    fn remove_ports(&self, bridge: &Arc<BridgeState>, ports: &[Arc<SwitchPort>]) {
        if ports.is_empty() {
            return;
        }
        for port in ports {
            bridge.remove_port(port.number);
            self.ports.remove(port.index);
        }
        bridge.run_bonds();
        self.ports.publish();
        // `ports` keeps the removed ports in memory, so that no new port is allocated at the
        // address of a removed port.
        let address = |port: &Arc<SwitchPort>| Arc::as_ptr(port).addr();
        let gone: Arc<HashSet<_>> = Arc::new(ports.iter().map(address).collect());
        // Wait until no thread polls the removed ports, so that their devices are closed as soon as
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
    pub(super) fn look_after_ports(&self, may_links_differ: bool) {
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
            self.assign_queues();
        }
    }

    /// Updates all bonds from the link states of their members.
    pub(super) fn run_bonds(&self) {
        for bridge in self.bridges() {
            bridge.run_bonds();
        }
    }

    /// Returns the sums of all threads' counts.
    pub(super) fn total_statistics(&self) -> WorkerStatistics {
        let mut total = self.main().statistics();
        for pmd in self.pmds() {
            if let Some(statistics) = pmd.ask(|thread| thread.worker.statistics()) {
                total.add(&statistics);
            }
        }
        total
    }

    /// Returns the number of megaflows of all threads.
    pub(super) fn megaflow_count(&self) -> usize {
        let mut count = self.main().megaflow_count();
        for pmd in self.pmds() {
            count += pmd.ask(|thread| thread.worker.megaflow_count()).unwrap_or(0);
        }
        count
    }

    /// Returns the connection table, which all threads share.
    pub(super) fn conntrack(&self) -> &Conntrack {
        &self.conntrack
    }

    /// Removes all megaflows. Later packets make new megaflows.
    pub(super) fn clear_megaflows(&self) {
        self.main().clear_megaflows();
        for pmd in self.pmds() {
            pmd.ask(|thread| thread.worker.clear_megaflows());
        }
    }

    /// Sets the limit of megaflows per bridge and packet thread.
    pub(super) fn limit_megaflows(&self, limit: usize) {
        self.megaflow_limit.store(limit, Ordering::Relaxed);
        self.main().limit_megaflows(limit);
        for pmd in self.pmds() {
            pmd.ask(move |thread| thread.worker.limit_megaflows(limit));
        }
    }

    pub(super) fn megaflow_limit(&self) -> usize {
        self.megaflow_limit.load(Ordering::Relaxed)
    }

    /// Makes every thread do its maintenance, for example after a jump of the clock.
    pub(super) fn maintain(&self) {
        self.run_bonds();
        self.main().maintain();
        for pmd in self.pmds() {
            pmd.ask(|thread| thread.worker.maintain());
        }
    }

    /// Adds the packet counts of all threads' megaflows to the bridge's rules, including packets
    /// that came through patch ports.
    pub(super) fn credit(&self, bridge: &BridgeState) {
        let neighbors = bridge.neighbors();
        let indices: Vec<_> =
            neighbors.iter().map(|bridge| bridge.index).chain([bridge.index]).collect();
        indices.iter().for_each(|index| self.main().credit(*index));
        for pmd in self.pmds() {
            let indices = indices.clone();
            pmd.ask(move |thread| indices.iter().for_each(|index| thread.worker.credit(*index)));
        }
    }

    /// As [`Switch::credit`], for the counters of patch ports. Other ports count their own frames.
    pub(super) fn credit_patches(&self, bridge: &BridgeState) {
        if bridge.ports().iter().any(|port| port.is_patch()) {
            self.credit(bridge);
        }
    }

    /// Removes the rules of a bridge whose timeouts have passed.
    pub(super) fn expire(&self, bridge: &BridgeState) -> Vec<Removal> {
        let now_ms = self.clock.now_ms();
        let is_due = bridge.tables().next_expiry_ms().is_some_and(|next| next <= now_ms);
        if is_due {
            self.credit(bridge);
        }
        bridge.tables_mut().expire(now_ms)
    }

    /// As [`Switch::expire`]. Also tells the bridge's connections.
    pub(super) fn expire_and_report(&self, bridge: &BridgeState) {
        for removal in self.expire(bridge) {
            if removal.rule.flags.send_flow_removed {
                bridge.rule_expired(removal);
            }
        }
        bridge.waker.wake();
    }

    /// Restarts the measured time of `pmd-perf-show`.
    pub(super) fn restart_measurement(&self) {
        let mut began = self.measured_since.lock();
        *began = Instant::now();
    }

    pub(super) fn coverage_mut(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock()
    }

    /// Returns the seconds since the start.
    pub(super) fn seconds(&self) -> u64 {
        self.started.0.elapsed().as_secs()
    }

    /// Returns the seconds since the measurement began, and the cycles per second.
    pub(super) fn measurement(&self) -> (f64, f64) {
        let began = self.measured_since.lock();
        let (start, first) = self.started;
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        let per_second = host::cycles().wrapping_sub(first) as f64 / seconds;
        (began.elapsed().as_secs_f64().max(1e-9), per_second.max(1.0))
    }

    pub(super) fn log_level(&self) -> String {
        self.log_level.lock().clone()
    }

    pub(super) fn set_log_level(&self, level: &str) {
        (self.process.set_log_level)(level);
        let mut current = self.log_level.lock();
        *current = level.to_owned();
    }

    pub(super) fn send_packet_out(
        &self,
        bridge: &Arc<BridgeState>,
        packet: &PacketOut,
        translation: &Translation,
    ) {
        self.main().packet_out(bridge, packet, translation);
    }

    pub(super) fn resume(&self, bridge: &Arc<BridgeState>, resumption: &Resumption) {
        self.main().resume(bridge, resumption);
        bridge.ports().iter().for_each(|port| port.flush());
    }

    fn doors(
        &self,
        name: &str,
        settings: &BridgeConfig,
        progress: &mut Progress<'_>,
    ) -> Result<Doors, SwitchError> {
        let (unix, file) = self.listen(&Self::socket_of(name))?;
        let mut tcp = Vec::new();
        for address in &*settings.listen {
            match listen_at(*address) {
                Ok(listener) => tcp.push((*address, listener)),
                Err(error) => progress.check(Part::Remote(*address), Err(error))?,
            }
        }
        Ok(Doors { unix, file, tcp, controllers: settings.controller.to_vec() })
    }

    /// Listens at a socket in the switch's folder, and replaces a socket that a killed switch left.
    pub(super) fn listen(
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

    fn threads(&self) -> MutexGuard<'_, HashMap<String, Thread>> {
        self.threads.lock()
    }

    /// Ends all threads and removes the sockets.
    pub(super) fn close(&self) {
        let _changes = self.changes.lock();
        let pmds = std::mem::take(&mut *self.pmds.write());
        pmds.iter().for_each(|pmd| pmd.stop());
        for bridge in self.bridges() {
            self.remove_bridge(&bridge);
        }
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn listen_at(remote: Remote) -> Result<TcpListener, SwitchError> {
    let refused = |error| SwitchError::Listen { place: format!("tcp:{}", remote.address), error };
    let listener = TcpListener::bind(remote.address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}
