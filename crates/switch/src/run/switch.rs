mod bridge_settings;
mod bridges;
mod megaflows;
mod packet_threads;
mod patches;
mod ports;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use datapath::conntrack::{self, Conntrack};
use datapath::{MAX_MEGAFLOWS, Meters};
use flow::port_number::PortNumber;
use flow::request::{PacketOut, Resumption};
use flow::step::Translation;
use host::PrivateDirectory;
use indexmap::IndexMap;
use text::PortNames;

use self::bridge_settings::{
    add_first_rules, datapath_id, set_own_port, set_up_normal, set_up_tables,
};
use super::bridge::BridgeState;
use super::clock::Clock;
use super::config::{Config, FailMode};
use super::coverage::Coverage;
use super::error::SwitchError;
use super::ordered::{Mutex, MutexGuard, RwLock, rank};
use super::pmd::Pmd;
use super::port_table::PortTable;
use super::progress::{Part, Progress};
use super::start::Process;
use super::tls::Tls;
use super::worker::Worker;

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
    /// The worker for the packets of commands and controllers.
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
    /// The start time, and the value of the cycle counter at that time.
    started: (Instant, u64),
    /// Held during each change of bridges, ports or packet threads, and during each assignment of
    /// receive queues.
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
        // Keep the former values of these settings, so that each later reload reports the
        // difference again.
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

    /// Like [`Switch::apply`], but continues after a part that fails.
    pub(super) fn change(
        self: &Arc<Self>,
        config: &Config,
        progress: &mut Progress<'_>,
    ) -> Result<(), SwitchError> {
        config.check()?;
        let _changes = self.changes.lock();
        let changed = self.change_parts(config, progress);
        // Assign the queues even after a failure, because the change may have opened ports.
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
            set_up_normal(&bridge, settings);
            set_up_tables(&bridge, settings);
            bridge.set_standalone(settings.fail_mode == FailMode::Standalone);
            bridge.set_controller_times(&settings.controller_times);
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

    /// Updates all bonds from the link states of their members.
    pub(super) fn run_bonds(&self) {
        for bridge in self.bridges() {
            bridge.run_bonds();
        }
    }

    /// Returns the connection table, which all threads share.
    pub(super) fn conntrack(&self) -> &Conntrack {
        &self.conntrack
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
