use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datapath::Meters;
use flow::port_number::PortNumber;
use flow::request::PacketIn;
use flow::step::PortIndex;
use openflow::{PortStatus, Version};
use pipeline::{BridgePort, MacEntry, Neighbor, Patch, Removal, Tables, Translator, config};
use port::Frame;
use text::PortNames;
use units::Time;

use super::bonds::{Bond, BondSettings, MemberPort};
use super::clock::Clock;
use super::config::BridgeConfig;
use super::lacp::{self, Event};
use super::ordered::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard, rank};
use super::pmd::BATCH;
use super::ports::SwitchPort;
use super::remote::{ControllerTimes, Remote};
use super::waker::Waker;

/// A bridge of a running switch: its tables and ports, and events for its OpenFlow connections.
#[derive(Debug)]
pub struct BridgeState {
    pub name: String,
    /// The bridge's index in the switch.
    pub index: usize,
    datapath_id: AtomicU64,
    /// The versions of OpenFlow that new connections offer.
    versions: Mutex<Vec<Version>, { rank::LAST }>,
    tables: RwLock<Tables, { rank::TABLES }>,
    generation: Arc<AtomicU64>,
    /// The other bridges that this bridge's patch ports lead to, sorted by index.
    neighbors: RwLock<Vec<Weak<Self>>, { rank::LAST }>,
    ports: RwLock<BTreeMap<PortNumber, Arc<SwitchPort>>, { rank::PORTS }>,
    /// The last port number that was assigned automatically.
    last_number: AtomicU32,
    /// Whether megaflows match all fields of their first packet.
    pub(super) is_exact: AtomicBool,
    /// The state of the meters of all bridges.
    pub(super) meters: Arc<Meters>,
    events: Mutex<VecDeque<BridgeEvent>, { rank::LAST }>,
    lost_packet_ins: AtomicU64,
    /// The controllers and listening addresses that the bridge's thread has not applied yet.
    remotes: Mutex<Option<Remotes>, { rank::LAST }>,
    /// The addresses that the bridge's thread uses, or will use once it has taken over `remotes`.
    places: Mutex<Places, { rank::LAST }>,
    controllers: Mutex<Vec<ControllerState>, { rank::LAST }>,
    /// The times for controllers that have others than the usual ones.
    controller_times: Mutex<HashMap<Remote, ControllerTimes>, { rank::LAST }>,
    /// Whether a command has asked for new connections to the controllers.
    must_reconnect: AtomicBool,
    /// Whether the bridge forwards as a learning switch while it has no controller (fail mode
    /// `standalone`).
    is_standalone: AtomicBool,
    /// The bonds by their names.
    pub(super) bonds: Mutex<BTreeMap<String, Bond>, { rank::BONDS }>,
    /// Whether any bond speaks LACP.
    has_lacp: AtomicBool,
    /// The LACP frames that have arrived since the bonds last ran.
    lacp_frames: Mutex<Vec<(PortNumber, Vec<u8>)>, { rank::LAST }>,
    /// For each port, the last second in which LACP frames arrived, and the number of frames in
    /// that second.
    lacp_arrivals: Mutex<BTreeMap<PortNumber, (u64, u32)>, { rank::LAST }>,
    /// The time at which the bonds last ran, on the switch's clock.
    bonds_ran_ms: AtomicU64,
    /// Wakes the thread of the OpenFlow connections.
    pub(super) waker: Waker,
    pub(super) clock: Arc<Clock>,
}

/// The addresses that a bridge connects to and listens on.
#[derive(Debug)]
pub(super) struct Remotes {
    /// All addresses to listen at, as the settings write them.
    pub(super) listen: Vec<Remote>,
    /// The addresses of `listen` that are new.
    pub(super) added: Vec<(Remote, TcpListener)>,
    pub(super) controllers: Vec<Remote>,
}

impl Remotes {
    /// Returns the address of an open listener in the form of the new settings; `None` if the
    /// listener must be closed. A change between TCP and TLS keeps the listener open.
    pub(super) fn kept(&self, open: Remote) -> Option<Remote> {
        if self.listen.contains(&open) {
            return Some(open);
        }
        self.listen.iter().find(|wanted| wanted.address == open.address).copied()
    }
}

/// The bridge's addresses, as written in the settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The addresses at which the bridge listens.
    pub(super) listening: Vec<Remote>,
    pub(super) controllers: Vec<Remote>,
}

/// The state of the connection to a controller in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControllerState {
    pub(super) remote: Remote,
    pub(super) is_connected: bool,
    /// `master`, `slave` or `other`; without a connection, `other`.
    pub(super) role: &'static str,
    /// Why the last connection ended or could not be made.
    pub(super) last_error: Option<String>,
}

/// An event for OpenFlow connections.
#[derive(Debug)]
pub(super) enum BridgeEvent {
    PacketIn(Box<PacketIn>),
    Port {
        status: PortStatus,
        /// The connection whose request caused the change.
        requester: Option<u64>,
    },
    Expired(Box<Removal>),
}

impl BridgeState {
    pub(super) fn new(
        name: &str,
        index: usize,
        datapath_id: Option<u64>,
        clock: Arc<Clock>,
        meters: Arc<Meters>,
    ) -> std::io::Result<Self> {
        let tables = Tables::at(place_of(index));
        Ok(Self {
            name: name.to_owned(),
            index,
            datapath_id: AtomicU64::new(datapath_id.unwrap_or_else(|| default_datapath_id(name))),
            versions: Mutex::new(Version::ALL.to_vec()),
            generation: tables.generation_source(),
            tables: RwLock::new(tables),
            neighbors: RwLock::default(),
            ports: RwLock::default(),
            last_number: AtomicU32::new(0),
            is_exact: AtomicBool::new(false),
            meters,
            events: Mutex::default(),
            lost_packet_ins: AtomicU64::new(0),
            remotes: Mutex::default(),
            places: Mutex::default(),
            controllers: Mutex::default(),
            controller_times: Mutex::default(),
            must_reconnect: AtomicBool::new(false),
            is_standalone: AtomicBool::new(false),
            bonds: Mutex::default(),
            has_lacp: AtomicBool::new(false),
            lacp_frames: Mutex::default(),
            lacp_arrivals: Mutex::default(),
            bonds_ran_ms: AtomicU64::new(0),
            waker: Waker::new()?,
            clock,
        })
    }

    #[must_use]
    pub fn datapath_id(&self) -> u64 {
        self.datapath_id.load(Ordering::Relaxed)
    }

    /// Sets the datapath ID, by default an ID derived from the name, and the versions of OpenFlow.
    /// The bridge's thread then closes the connections, as Open vSwitch does.
    pub(super) fn set_identity(&self, datapath_id: Option<u64>, versions: &[Version]) {
        let id = datapath_id.unwrap_or_else(|| default_datapath_id(&self.name));
        self.datapath_id.store(id, Ordering::Relaxed);
        *self.versions.lock() = versions.to_vec();
        self.waker.wake();
    }

    pub(super) fn identity(&self) -> (u64, Vec<Version>) {
        (self.datapath_id(), self.versions.lock().clone())
    }

    pub fn tables(&self) -> ReadGuard<'_, Tables> {
        self.tables.read_at(self.index)
    }

    pub fn tables_mut(&self) -> WriteGuard<'_, Tables> {
        self.tables.write_at(self.index)
    }

    /// Returns the bridge's index in the switch, in the type that tables use.
    pub(super) fn place(&self) -> u16 {
        place_of(self.index)
    }

    /// Returns the other bridges that patch ports lead to, sorted by index.
    pub(super) fn neighbors(&self) -> Vec<Arc<Self>> {
        let neighbors = self.neighbors.read();
        neighbors.iter().filter_map(Weak::upgrade).collect()
    }

    /// Sets the bridges that patch ports lead to. From now on, a change of the tables of these
    /// bridges also counts as a change of this bridge.
    pub(super) fn set_neighbors(&self, neighbors: &[Arc<Self>]) {
        let weak = neighbors.iter().map(Arc::downgrade).collect();
        *self.neighbors.write() = weak;
        let generations = neighbors.iter().map(|bridge| bridge.generation.clone()).collect();
        self.tables_mut().set_followers(generations);
    }

    pub(super) fn set_patch(&self, number: PortNumber, patch: Option<Patch>) {
        self.tables_mut().set_patch(number, patch);
    }

    /// Locks the tables for reading, and calls `act` with a translator for packets of the bridge.
    pub(super) fn translate<R>(&self, act: impl FnOnce(Translator<'_>, &[Neighbor<'_>]) -> R) -> R {
        let lock = || self.tables();
        self.locked(lock, |tables, others| {
            if others.is_empty() {
                return act(Translator::new(&tables), others);
            }
            let own = Neighbor { name: &self.name, tables: &tables };
            let all: Vec<_> = others.iter().copied().chain([own]).collect();
            act(Translator::new(&tables).with_neighbors(&all), &all)
        })
    }

    /// Locks the tables of the bridge by `lock`, and the tables of its neighbours for reading. All
    /// threads lock bridges in the order of their indices, so that no deadlock arises.
    pub(super) fn locked<G, R>(
        &self,
        lock: impl FnOnce() -> G,
        act: impl FnOnce(G, &[Neighbor<'_>]) -> R,
    ) -> R {
        let neighbors = self.neighbors();
        if neighbors.is_empty() {
            return act(lock(), &[]);
        }
        let own = neighbors.partition_point(|bridge| bridge.index < self.index);
        let (before, behind) = neighbors.split_at(own);
        let mut guards: Vec<_> = before.iter().map(|bridge| (bridge, bridge.tables())).collect();
        let tables = lock();
        guards.extend(behind.iter().map(|bridge| (bridge, bridge.tables())));
        let others: Vec<_> = guards
            .iter()
            .map(|(bridge, guard)| Neighbor { name: &bridge.name, tables: guard })
            .collect();
        act(tables, &others)
    }

    /// Reads the tables' generation without a lock.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the ports, sorted by number.
    #[must_use]
    pub fn ports(&self) -> Vec<Arc<SwitchPort>> {
        self.port_map().values().cloned().collect()
    }

    #[must_use]
    pub fn port(&self, number: PortNumber) -> Option<Arc<SwitchPort>> {
        self.port_map().get(&number).cloned()
    }

    #[must_use]
    pub fn port_named(&self, name: &str) -> Option<Arc<SwitchPort>> {
        self.port_map().values().find(|port| port.name == name).cloned()
    }

    #[must_use]
    pub fn port_names(&self) -> PortNames {
        self.port_map().values().map(|port| (port.number, port.name.clone())).collect()
    }

    /// Returns the number of a new port that requests no number. As in Open vSwitch, the search
    /// begins after the last assigned number, so that rules for a removed port do not soon match
    /// another port's packets.
    pub(super) fn free_number(&self) -> PortNumber {
        let ports = self.port_map();
        let last = self.last_number.load(Ordering::Relaxed);
        let mut numbers = (last + 1..=LAST_NUMBER).chain(1..=last).map(PortNumber);
        let Some(free) = numbers.find(|number| !ports.contains_key(number)) else {
            return PortNumber::NONE;
        };
        self.last_number.store(free.0, Ordering::Relaxed);
        free
    }

    pub(super) fn add_port(&self, port: Arc<SwitchPort>) {
        let entry = BridgePort { index: port.index, description: port.description() };
        self.tables_mut().insert_port(entry);
        let (_, shown) = port.report();
        self.ports.write().insert(port.number, port);
        self.push_ports(PortStatus::of_added(&shown), None);
    }

    pub(super) fn remove_port(&self, number: PortNumber) {
        self.tables_mut().remove_port(number);
        let removed = self.ports.write().remove(&number);
        if let Some(port) = removed {
            self.push_ports(vec![PortStatus::of_deleted(port.report().1)], None);
        }
    }

    /// Tells tables and connections that a port's state has changed.
    pub(super) fn port_changed(&self, port: &SwitchPort) {
        self.port_configured(port, None);
    }

    /// Like [`BridgeState::port_changed`], after a connection changed the port's configuration.
    pub(super) fn port_configured(&self, port: &SwitchPort, requester: Option<u64>) {
        let mut tables = self.tables_mut();
        tables.insert_port(BridgePort { index: port.index, description: port.description() });
        // Report the change under the lock, so that messages keep the order of the changes.
        if let (Some(former), shown) = port.report() {
            self.push_ports(PortStatus::of_modified(&former, &shown), requester);
        }
    }

    /// Queues a packet-in for the connections. Packets beyond a limit are counted and dropped.
    pub(super) fn packet_in(&self, packet: PacketIn) {
        let mut events = self.lock_events();
        if events.len() >= MOST_EVENTS {
            self.lost_packet_ins.fetch_add(1, Ordering::Relaxed);
            return;
        }
        events.push_back(BridgeEvent::PacketIn(Box::new(packet)));
        drop(events);
        self.waker.wake();
    }

    /// Tells the connections that a rule with the flag send_flow_rem has expired.
    pub(super) fn rule_expired(&self, removal: Removal) {
        self.push(BridgeEvent::Expired(Box::new(removal)));
    }

    pub(super) fn take_events(&self) -> VecDeque<BridgeEvent> {
        std::mem::take(&mut *self.lock_events())
    }

    /// Returns the number of packet-ins that were dropped because the queue was full.
    #[must_use]
    pub fn lost_packet_ins(&self) -> u64 {
        self.lost_packet_ins.load(Ordering::Relaxed)
    }

    /// Gives the bridge's thread new controllers and listening addresses.
    pub(super) fn change_remotes(&self, mut remotes: Remotes) {
        let mut places = self.places();
        places.listening = places.listening.iter().filter_map(|open| remotes.kept(*open)).collect();
        places.listening.extend(remotes.added.iter().map(|(address, _)| *address));
        places.controllers.clone_from(&remotes.controllers);
        self.set_places(places);
        let mut waiting = self.remotes.lock();
        if let Some(former) = waiting.take() {
            let kept = |(open, listener)| Some((remotes.kept(open)?, listener));
            let kept: Vec<_> = former.added.into_iter().filter_map(kept).collect();
            remotes.added.extend(kept);
        }
        *waiting = Some(remotes);
        drop(waiting);
        self.waker.wake();
    }

    pub(super) fn places(&self) -> Places {
        self.places.lock().clone()
    }

    pub(super) fn set_places(&self, places: Places) {
        *self.places.lock() = places;
    }

    pub(super) fn take_remotes(&self) -> Option<Remotes> {
        self.remotes.lock().take()
    }

    pub(super) fn is_standalone(&self) -> bool {
        self.is_standalone.load(Ordering::Relaxed)
    }

    pub(super) fn set_standalone(&self, is_standalone: bool) {
        if self.is_standalone.swap(is_standalone, Ordering::Relaxed) != is_standalone {
            self.waker.wake();
        }
    }

    pub(super) fn controllers(&self) -> Vec<ControllerState> {
        self.controllers.lock().clone()
    }

    pub(super) fn set_controllers(&self, states: Vec<ControllerState>) {
        *self.controllers.lock() = states;
    }

    /// Returns the times for a controller.
    pub(super) fn times_of(&self, controller: Remote) -> ControllerTimes {
        self.controller_times.lock().get(&controller).copied().unwrap_or_default()
    }

    pub(super) fn set_controller_times(&self, times: &HashMap<Remote, ControllerTimes>) {
        self.controller_times.lock().clone_from(times);
    }

    /// Asks the bridge's thread for new connections to the controllers.
    pub(super) fn reconnect(&self) {
        self.must_reconnect.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether [`BridgeState::reconnect`] was called since the last call.
    pub(super) fn takes_reconnect(&self) -> bool {
        self.must_reconnect.swap(false, Ordering::Relaxed)
    }

    pub(super) fn bonds(&self) -> MutexGuard<'_, BTreeMap<String, Bond>> {
        self.bonds.lock()
    }

    /// Returns the existing ports of a bond's members, sorted by name.
    pub(super) fn members(&self, settings: &BondSettings) -> Vec<MemberPort> {
        members_of(settings, &self.ports_by_name())
    }

    fn ports_by_name(&self) -> HashMap<String, Arc<SwitchPort>> {
        self.port_map().values().map(|port| (port.name.clone(), port.clone())).collect()
    }

    /// Whether any bond of the bridge speaks LACP.
    pub(super) fn has_lacp(&self) -> bool {
        self.has_lacp.load(Ordering::Relaxed)
    }

    /// Takes an LACP frame that arrived at a member of a bond. Drops frames beyond a limit, because
    /// the partner sends them again.
    pub(super) fn lacp_received(&self, port: PortNumber, frame: &[u8]) {
        let is_for_lacp = self.tables().port_set().is_for_lacp(port, lacp::ETHER_TYPE);
        if !is_for_lacp || !self.counts_lacp(port) {
            return;
        }
        let mut frames = self.lacp_frames.lock();
        if frames.len() < MOST_LACP_FRAMES {
            frames.push((port, frame[..frame.len().min(LONGEST_LACP_FRAME)].to_vec()));
            drop(frames);
            self.waker.wake();
        }
    }

    /// Counts an LACP frame. Returns `false` if too many frames arrived at the port in this second:
    /// a flood at one member must not suppress the frames of other members, nor change the bond all
    /// the time.
    fn counts_lacp(&self, port: PortNumber) -> bool {
        let second = self.clock.now_ms() / 1_000;
        let mut arrivals = self.lacp_arrivals.lock();
        let (last, number) = arrivals.entry(port).or_default();
        if *last != second {
            (*last, *number) = (second, 0);
        }
        *number = number.saturating_add(1);
        *number <= MOST_LACP_IN_SECOND
    }

    /// Runs the bonds if any of them speaks LACP, and LACP frames are waiting or enough time has
    /// passed.
    pub(super) fn run_lacp(&self) {
        let ran_ms = self.bonds_ran_ms.load(Ordering::Relaxed);
        let is_late = || self.clock.now_ms() >= ran_ms + LACP_PAUSE_MS;
        if self.has_lacp() && (is_late() || !self.lacp_frames.lock().is_empty()) {
            self.run_bonds();
        }
    }

    /// Updates the bonds from the link states of their members and by LACP.
    pub(super) fn run_bonds(&self) {
        let now_ms = self.clock.now_ms();
        let mut bonds = self.bonds();
        self.bonds_ran_ms.store(now_ms, Ordering::Relaxed);
        let received = std::mem::take(&mut *self.lacp_frames.lock());
        let (mut current, mut moved, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        let by_name = if bonds.is_empty() { HashMap::new() } else { self.ports_by_name() };
        let system = self.port(PortNumber::LOCAL).map(|port| port.hardware_address());
        let mut has_lacp = false;
        for (name, bond) in bonds.iter_mut() {
            let settings = bond.settings.clone();
            let ports = members_of(&settings, &by_name);
            let former = bond.for_tables(&ports).active;
            let system = system.unwrap_or_default();
            let (frames, events) = bond.negotiate(system, &ports, &received, now_ms);
            sent.extend(frames);
            events.iter().for_each(|event| report(name, event));
            has_lacp |= bond.lacp().is_some();
            bond.run(&settings, &ports, now_ms);
            let now = bond.for_tables(&ports);
            if former != now.active {
                let active = ports.iter().find(|port| Some(port.number) == now.active);
                let active = active.map_or("none", |port| port.name.as_str());
                tracing::info!("bond {name}: the active member is {active}");
            }
            if bond.take_move() {
                moved.push(now.clone());
            }
            current.push(now);
        }
        self.has_lacp.store(has_lacp, Ordering::Relaxed);
        // Check first whether the bonds have changed: most calls change nothing, and a write lock
        // would delay translations.
        let is_news = *self.tables().port_set().bonds() != *current;
        if is_news {
            self.tables_mut().set_bonds(current);
        }
        // The members accept frames before their partners learn that the members may send.
        let now = Time::from_nanos(self.clock.now_ns());
        for (number, frame) in sent {
            let Some(port) = self.port(number) else { continue };
            let mut frames = vec![Frame::from_bytes(&frame, now)];
            if let Err(error) = port.send(0, &mut frames, |_| now, now) {
                tracing::warn!("port {}: {error}; the other ports go on", port.name);
            }
        }
        drop(bonds);
        if !moved.is_empty() {
            let macs = self.tables().mac_entries(now_ms);
            moved.iter().for_each(|bond| self.send_learning_packets(bond, &macs));
        }
    }

    fn send_learning_packets(&self, bond: &pipeline::Bond, macs: &[MacEntry]) {
        let now = Time::from_nanos(self.clock.now_ns());
        // The first member represents the bond in NORMAL, which uses that member's VLANs.
        let first = bond.members.first();
        let vlans = first.and_then(|port| self.tables().port_set().vlans(*port).cloned());
        let mut by_member: BTreeMap<PortNumber, Vec<Vec<u8>>> = BTreeMap::new();
        for (member, packet) in bond.learning_packets(macs, vlans.as_ref()) {
            by_member.entry(member).or_default().push(packet);
        }
        for (member, packets) in by_member {
            let Some(port) = self.port(member) else { continue };
            // Send the packets in batches, because a packet takes more memory than its bytes, and
            // the bridge may have learned a million addresses.
            for batch in packets.chunks(BATCH) {
                let mut frames: Vec<Frame> =
                    batch.iter().map(|packet| Frame::from_bytes(packet, now)).collect();
                if let Err(error) = port.send(0, &mut frames, |_| now, now) {
                    tracing::warn!("port {}: {error}; the other ports go on", port.name);
                    break;
                }
            }
        }
    }

    /// Sets the bonds to the bonds of the settings; `None` removes all bonds.
    pub(super) fn set_bonds(&self, settings: Option<&BridgeConfig>) {
        let mut bonds = self.bonds();
        let mut former = std::mem::take(&mut *bonds);
        for (name, wanted) in settings.iter().flat_map(|settings| &settings.bond) {
            let mut bond = former.remove(name).unwrap_or_else(|| Bond::new(wanted.last_active));
            bond.settings.clone_from(wanted);
            let ports = settings.iter().flat_map(|settings| &settings.port);
            let members = ports.filter(|(port, _)| wanted.members.contains(port));
            bond.lacp_ports =
                members.map(|(name, port)| (name.clone(), port.lacp.clone())).collect();
            bonds.insert(name.clone(), bond);
        }
        drop(bonds);
        self.lacp_arrivals.lock().clear();
        self.run_bonds();
    }

    fn push_ports(&self, statuses: Vec<PortStatus>, requester: Option<u64>) {
        for status in statuses {
            self.push(BridgeEvent::Port { status, requester });
        }
    }

    fn push(&self, event: BridgeEvent) {
        self.lock_events().push_back(event);
        self.waker.wake();
    }

    fn lock_events(&self) -> MutexGuard<'_, VecDeque<BridgeEvent>> {
        self.events.lock()
    }

    fn port_map(&self) -> ReadGuard<'_, BTreeMap<PortNumber, Arc<SwitchPort>>> {
        self.ports.read()
    }

    /// Returns the port with this index; used to print megaflows.
    #[must_use]
    pub fn port_of_index(&self, index: PortIndex) -> Option<Arc<SwitchPort>> {
        self.port_map().values().find(|port| port.index == index).cloned()
    }
}

/// Writes an LACP event to the log.
fn report(bond: &str, event: &Event) {
    match event {
        Event::Negotiated => tracing::info!("bond {bond}: LACP has found a partner"),
        Event::PartnerLost => tracing::warn!(
            "bond {bond}: no member receives LACPDUs: check that the other end speaks LACP"
        ),
        Event::Loop(member) => tracing::warn!(
            "bond {bond}: member {member} is connected to a bond with the same lacp-system-id, or \
             to this bond itself: check the cables"
        ),
        Event::Malformed(member) => tracing::warn!(
            "bond {bond}: member {member} received a frame of LACP that is no LACPDU; \
             ovs-appctl lacp/show-stats counts more"
        ),
    }
}

fn members_of(
    settings: &BondSettings,
    ports: &HashMap<String, Arc<SwitchPort>>,
) -> Vec<MemberPort> {
    let members = settings.members.iter().filter_map(|name| ports.get(name));
    let mut members: Vec<_> = members
        .map(|port| MemberPort {
            name: port.name.clone(),
            number: port.number,
            address: port.hardware_address(),
            has_carrier: port.is_up() && port.config() & config::PORT_DOWN == 0,
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

/// Converts a bridge's index to the type that tables use. A switch has fewer than 65,535 bridges.
fn place_of(index: usize) -> u16 {
    index.try_into().unwrap_or(u16::MAX)
}

/// Derives the datapath ID from the hardware address of the bridge's own port, as in Open vSwitch.
fn default_datapath_id(name: &str) -> u64 {
    let [a, b, c, d, e, f] = super::ports::address_of(name, PortNumber::LOCAL);
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

const MOST_EVENTS: usize = 4096;
/// Maximum number of waiting LACP frames, and maximum number of bytes kept of each frame.
const MOST_LACP_FRAMES: usize = 256;
const LONGEST_LACP_FRAME: usize = 128;
/// Maximum number of LACP frames that a port takes in a second, as IEEE 802.3 limits slow
/// protocols.
const MOST_LACP_IN_SECOND: u32 = 10;
/// Maximum delay of the LACP timers.
const LACP_PAUSE_MS: u64 = 100;
/// Highest port number that is assigned automatically, as in Open vSwitch.
const LAST_NUMBER: u32 = 0x7fff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::bonds::LacpMode;
    use crate::run::config::PortConfig;

    /// Returns a bridge with three ports.
    fn bridge(clock: Clock) -> BridgeState {
        let bridge = BridgeState::new("br0", 0, None, Arc::new(clock), Arc::default()).unwrap();
        for number in 1..=3 {
            let settings = PortConfig::of_kind("null");
            let (name, number, index) =
                (format!("p{number}"), PortNumber(number), PortIndex(number as u16));
            let opened = SwitchPort::open(&name, 0, number, index, &settings, Time::ZERO);
            bridge.add_port(Arc::new(opened.unwrap().0));
        }
        bridge
    }

    #[test]
    fn a_flood_of_lacp_at_a_member_leaves_room_for_frames_of_other_members() {
        let clock = Clock::start();
        clock.stop();
        let bridge = bridge(clock);
        let settings = BondSettings {
            members: vec!["p1".to_owned(), "p2".to_owned()],
            lacp: LacpMode::Active,
            ..BondSettings::default()
        };
        let mut config = BridgeConfig::default();
        config.bond.insert("bond0".to_owned(), settings);
        bridge.set_bonds(Some(&config));
        for _ in 0..MOST_LACP_FRAMES {
            bridge.lacp_received(PortNumber(1), &[0; 60]);
        }
        // Port 3 is not a member of the bond.
        bridge.lacp_received(PortNumber(3), &[0; 60]);
        bridge.lacp_received(PortNumber(2), &[0; 60]);
        let from: Vec<_> = bridge.lacp_frames.lock().iter().map(|(port, _)| port.0).collect();
        assert_eq!(from.len(), MOST_LACP_IN_SECOND as usize + 1);
        assert_eq!(from.last(), Some(&2));
    }

    #[test]
    fn the_new_active_member_of_a_bond_announces_the_addresses_behind_other_ports() {
        let bridge = bridge(Clock::start());
        let settings = BondSettings {
            members: vec!["p1".to_owned(), "p2".to_owned()],
            ..BondSettings::default()
        };
        let mut config = BridgeConfig::default();
        config.bond.insert("bond0".to_owned(), settings.clone());
        bridge.set_bonds(Some(&config));
        for port in [1, 3, 3] {
            let last = bridge.tables().mac_entries(0).len() as u8;
            let added = bridge.tables_mut().add_mac(0, [2, 0, 0, 0, 0, last], PortNumber(port));
            assert!(added.is_ok_and(|former| former.is_none()));
        }
        let sent = || {
            bridge.run_bonds();
            [1, 2].map(|number| bridge.port(PortNumber(number)).unwrap().statistics().sent_packets)
        };
        assert_eq!(sent(), [0, 0]);
        bridge.port(PortNumber(1)).unwrap().set_disabled(true);
        assert_eq!((sent(), sent()), ([0, 2], [0, 2]), "once for each address of p3");
        // A command makes another member active.
        bridge.port(PortNumber(1)).unwrap().set_disabled(false);
        bridge.run_bonds();
        let ports = bridge.members(&settings);
        assert_eq!(bridge.bonds().get_mut("bond0").unwrap().set_active("p1", &ports), Ok(true));
        assert_eq!(sent(), [2, 2]);
    }

    #[test]
    fn the_number_of_a_removed_port_is_reused_last() {
        let clock = Arc::new(Clock::start());
        let bridge = BridgeState::new("br0", 0, None, clock, Arc::default()).unwrap();
        let add = |number: PortNumber| {
            let index = PortIndex(number.0 as u16);
            let mut port = SwitchPort::local("p", 0, index, Time::ZERO);
            port.number = number;
            bridge.add_port(Arc::new(port));
        };
        for expected in [1, 2] {
            let number = bridge.free_number();
            assert_eq!(number, PortNumber(expected));
            add(number);
        }
        bridge.remove_port(PortNumber(1));
        add(PortNumber(3));
        assert_eq!(bridge.free_number(), PortNumber(4));
        bridge.last_number.store(LAST_NUMBER, Ordering::Relaxed);
        assert_eq!(bridge.free_number(), PortNumber(1));
    }
}
